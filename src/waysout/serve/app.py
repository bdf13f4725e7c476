"""The whole application: the guard, and behind it the API, the page, the login and the metrics."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI, Request
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import Field
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from waysout import __version__
from waysout.serve import api, api_page
from waysout.serve.errors import USAGE, error_answer, install_errors
from waysout.serve.guard import App, Guard, Head
from waysout.serve.hosts import Hosts
from waysout.serve.metrics import Counting, Metrics
from waysout.serve.models import Given
from waysout.serve.pages import make_pages
from waysout.serve.service import Service
from waysout.serve.tokens import LONGEST, Gate, WrongToken


class Login(Given):
    """The token, as the page's form sends it."""

    token: str = Field(max_length=LONGEST)


def create_app(
    service: Service, hosts: Hosts, *, gate: Gate | None = None, metrics: Metrics | None = None
) -> App:
    """Return a service as an ASGI application; ``metrics`` are those the service reports to.

    >>> from waysout.serve import Gate, Hosts, Service, create_app
    >>> service = Service({})  # a `ServedProblem` for each name
    >>> app = create_app(service, Hosts.of("127.0.0.1", 8765), gate=Gate("a long secret", 8765))
    >>> callable(app)  # for example uvicorn.run(app, port=8765)
    True
    """
    counts = metrics or Metrics()
    counts.watch("waysout_searches_running", "Searches under way", lambda: service.running)
    counts.watch("waysout_searches_kept", "Searches kept", lambda: len(service.searches))
    counts.watch("waysout_subscribers", "Streams of events open", lambda: service.subscribers)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with service:
            yield

    app = FastAPI(
        title="Waysout",
        version=__version__,
        summary="Many different, validated, actionable ways from a model's no to a yes.",
        description="Where the server has a token, send it: `Authorization: Bearer TOKEN`.",
        openapi_url="/api/openapi.json",
        # These pages would load scripts from elsewhere; `api_page` does without any.
        docs_url=None,
        redoc_url=None,
        # A redirect would repeat the Host that was sent.
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        lifespan=lifespan,
    )
    app.state.service = service
    install_errors(app)
    for router in (api.router, make_login(gate), make_pages(needs_token=gate is not None)):
        app.include_router(router)

    @app.api_route(api_page.PATH, methods=["GET", "HEAD"], include_in_schema=False)
    async def show_api() -> Response:
        return HTMLResponse(api_page.api_page(app.openapi()))

    @app.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        """Counts of requests and searches, in Prometheus' text format."""
        return Response(counts.text(), media_type=CONTENT_TYPE_LATEST)

    return Counting(Guard(app, hosts, gate, service.limits.body), counts)


def make_login(gate: Gate | None) -> APIRouter:
    """Return the routes to log in and out. Without a token everybody is logged in.

    A form and a cookie, never a token in an address: addresses stay in histories and logs.
    """
    router = APIRouter(prefix="/api")
    refusals = api.errors(401, 422, 429)
    refusals[429]["description"] = "Too many wrong tokens; Retry-After says when to try again"

    @router.post("/login", status_code=204, responses=refusals)
    async def login(request: Request, login: Login) -> Response:
        """Trade the token for a cookie."""
        answer = Response(status_code=204)
        if gate is not None:
            try:
                await gate.check(login.token, request.scope)
            except WrongToken as wrong:
                if not wrong.seconds:
                    return error_answer("WrongToken", str(wrong), USAGE, 401)
                wait = {"Retry-After": str(wrong.seconds)}
                return error_answer("TooManyGuesses", str(wrong), USAGE, 429, wait)
            # Through a proxy the page came by HTTPS; the guard has checked its origin.
            secure = request.headers.get("origin", "").lower().startswith("https:")
            answer.set_cookie(
                gate.cookie, gate.login(), httponly=True, samesite="strict", secure=secure
            )
        return answer

    @router.post("/logout", status_code=204)
    async def logout(request: Request) -> Response:
        """End the cookie."""
        answer = Response(status_code=204)
        if gate is not None:
            gate.logout(Head(request.scope).cookies(gate.cookie))
            answer.delete_cookie(gate.cookie, httponly=True, samesite="strict")
        return answer

    return router
