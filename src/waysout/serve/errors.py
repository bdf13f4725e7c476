"""What the service refuses, and how every error is told: as the command line's JSON tells it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from waysout.domain.result import plain
from waysout.errors import (
    InputError,
    LLMError,
    OracleError,
    UnavailableError,
    WaysoutError,
    shown,
)
from waysout.report.words import clean, cut

_log = logging.getLogger(__name__)
_LONGEST = 1000
_USAGE = 2  # what the command line says of a wrong usage
_STATUS: Sequence[tuple[type[WaysoutError], int]] = (
    (InputError, 422),
    (OracleError, 502),
    (LLMError, 502),
    (UnavailableError, 503),
)


class Refused(WaysoutError):
    """The service cannot do this, or not now."""

    status = 400
    headers: ClassVar[Mapping[str, str]] = {}


class NotFound(Refused):
    """There is no such thing here."""

    status = 404


class Conflict(Refused):
    """Not while things stand as they do."""

    status = 409


class TooMany(Refused):
    """As much as the service puts up with is under way already."""

    status = 429
    headers: ClassVar[Mapping[str, str]] = {"Retry-After": "5"}


class Full(Refused):
    """Nobody else can follow now."""

    status = 503
    headers: ClassVar[Mapping[str, str]] = {"Retry-After": "30"}


def document(content: Any) -> bytes:
    """Write JSON; half a character (a lone surrogate), which has no UTF-8, becomes a mark."""
    text = json.dumps(plain(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON document as a response."""
    return Response(document(content), status, dict(headers or {}), "application/json")


def error_answer(
    kind: str, message: str, code: int, status: int, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an error as a response, its text cut short and made harmless."""
    told = {"type": kind, "message": cut(clean(message), _LONGEST), "code": code}
    return answer({"error": told}, status, headers)


def install_errors(app: FastAPI) -> None:
    """Let an app tell every error in one form."""
    app.add_exception_handler(WaysoutError, _own)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def _own(request: Request, error: Exception) -> Response:
    assert isinstance(error, WaysoutError)
    kind, code = type(error).__name__, error.exit_code
    if isinstance(error, Refused):
        return error_answer(kind, str(error), code, error.status, error.headers)
    status = next((status for of, status in _STATUS if isinstance(error, of)), 500)
    return error_answer(kind, str(error), code, status)


def _invalid(request: Request, error: Exception) -> Response:
    """Say which field of a request is wrong, the value and what was expected."""
    assert isinstance(error, RequestValidationError)
    said = "; ".join(map(_field, list(error.errors())[:3]))
    return error_answer("InputError", said, InputError.exit_code, 422)


def _field(found: Mapping[str, Any]) -> str:
    if found["type"] == "json_invalid":
        return f"the body is no JSON: {found['ctx']['error']}"
    where = ".".join(str(part) for part in found["loc"] if part != "body") or "the body"
    given = "" if found["type"] in ("missing", "extra_forbidden") else shown(found.get("input"))
    return f"{where}: {found['msg']}" + (f", not {given}" if given else "")


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = shown(request.url.path)
    said = {
        404: f"there is nothing at {path}: GET /api/openapi.json lists what there is",
        405: f"{request.method} is not understood at {path}: GET /api/openapi.json says what is",
    }.get(error.status_code, str(error.detail))
    kind = {404: "NotFound", 405: "MethodNotAllowed"}.get(error.status_code, "BadRequest")
    return error_answer(kind, said, _USAGE, error.status_code, error.headers)


def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("unexpected error at %s", request.url.path, exc_info=error)
    kind = type(error).__name__
    return error_answer(kind, f"unexpected {kind}; the service's log says more", 1, 500)
