"""Logging in: a browser shows the token once, and has a cookie from then on."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from waysout.serve.errors import error_answer
from waysout.serve.guard import Head
from waysout.serve.models import ErrorDocument, Given
from waysout.serve.tokens import LONGEST, Gate

_USAGE = 2  # what the command line says of a wrong usage
_ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"model": ErrorDocument, "description": "This is not the token"},
    422: {"model": ErrorDocument, "description": "The body holds no token"},
}


class Login(Given):
    """The token, as the page's form sends it."""

    token: str = Field(max_length=LONGEST)


def make_login(gate: Gate | None) -> APIRouter:
    """Return the routes to log in and out. Without a token everybody is in already."""
    router = APIRouter(prefix="/api")

    @router.post("/login", status_code=204, operation_id="login", responses=_ERRORS,
                 summary="Trade the token for a cookie")  # fmt: skip
    async def login(request: Request, login: Login) -> Response:
        if gate is None:
            return Response(status_code=204)
        if not gate.is_token(login.token):
            return error_answer("WrongToken", "this is not the token", _USAGE, 401)
        answer = Response(status_code=204)
        answer.set_cookie(
            gate.cookie, gate.login(), httponly=True, samesite="strict", secure=_is_https(request)
        )
        return answer

    @router.post("/logout", status_code=204, operation_id="logout", summary="End the cookie")
    async def logout(request: Request) -> Response:
        answer = Response(status_code=204)
        if gate is not None:
            gate.logout(Head(request.scope).cookies(gate.cookie))
            answer.delete_cookie(gate.cookie, httponly=True, samesite="strict")
        return answer

    return router


def _is_https(request: Request) -> bool:
    """Whether the page came by HTTPS, through a proxy; the guard has let its origin in."""
    return request.headers.get("origin", "").lower().startswith("https:")
