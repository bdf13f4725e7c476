"""What the service refuses, and how every error is answered: as the JSON of the command line."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from waysout.domain.result import plain
from waysout.errors import InputError, LLMError, OracleError, UnavailableError, WaysoutError, shown
from waysout.report.words import clean, cut

USAGE = 2  # the command line's exit code for wrong usage
_LONGEST = 1000
_STATUS: Sequence[tuple[type[WaysoutError], int]] = (
    (InputError, 422),
    (OracleError, 502),
    (LLMError, 502),
    (UnavailableError, 503),
)
_log = logging.getLogger(__name__)


class Refused(WaysoutError):
    """The service cannot do this, or not now."""

    status = 400
    headers: ClassVar[Mapping[str, str]] = {}


class NotFound(Refused):
    """There is no such thing here."""

    status = 404


class Conflict(Refused):
    """Not possible in the search's present state."""

    status = 409


class TooMany(Refused):
    """The service's limit of running searches is reached."""

    status = 429
    headers: ClassVar[Mapping[str, str]] = {"Retry-After": "5"}


class Full(Refused):
    """The service accepts no more streams or searches now."""

    status = 503
    headers: ClassVar[Mapping[str, str]] = {"Retry-After": "30"}


def document(content: Any) -> bytes:
    """Return JSON; a lone surrogate, which has no UTF-8, becomes a question mark."""
    text = json.dumps(plain(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON document as a response."""
    return Response(document(content), status, dict(headers or {}), "application/json")


def error_answer(
    kind: str, message: str, code: int, status: int, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an error as a response, its text cut and cleaned."""
    told = {"type": kind, "message": cut(clean(message), _LONGEST), "code": code}
    return answer({"error": told}, status, headers)


def install_errors(app: FastAPI) -> None:
    """Make an app answer every error in one form."""

    @app.exception_handler(WaysoutError)
    async def own(request: Request, error: WaysoutError) -> Response:
        kind, code = type(error).__name__, error.exit_code
        if isinstance(error, Refused):
            return error_answer(kind, str(error), code, error.status, error.headers)
        status = next((status for of, status in _STATUS if isinstance(error, of)), 500)
        return error_answer(kind, str(error), code, status)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        said = []
        for found in list(error.errors())[:3]:  # the field, what was expected, and the value
            where = ".".join(str(part) for part in found["loc"] if part != "body") or "the body"
            shows = found["type"] not in ("missing", "extra_forbidden")
            given = f", not {shown(found.get('input'))}" if shows else ""
            said.append(f"{where}: {found['msg']}{given}")
            if found["type"] == "json_invalid":
                said[-1] = f"the body is not JSON: {found['ctx']['error']}"
        return error_answer("InputError", "; ".join(said), InputError.exit_code, 422)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        path, status = shown(request.url.path), error.status_code
        kind, said = {
            # FastAPI's own words here are that there was an error.
            400: ("BadRequest",
                  "the body cannot be read: send JSON in UTF-8, of at most a few hundred levels, "
                  "its whole numbers of at most 4,300 digits"),
            404: ("NotFound", f"there is nothing at {path}: see GET /api/openapi.json"),
            405: ("MethodNotAllowed",
                  f"{request.method} is not allowed at {path}: see GET /api/openapi.json"),
        }.get(status, ("BadRequest", str(error.detail)))  # fmt: skip
        return error_answer(kind, said, USAGE, status, error.headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        _log.error("unexpected error at %s", request.url.path, exc_info=error)
        kind = type(error).__name__
        return error_answer(kind, f"unexpected {kind}; the service's log says more", 1, 500)
