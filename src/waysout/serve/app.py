"""The whole application: the guard, and behind it the API, the page, the login and the counts."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.responses import Response

from waysout import __version__
from waysout.serve.api import create_api
from waysout.serve.errors import install_errors
from waysout.serve.guard import App, Guard
from waysout.serve.hosts import Hosts
from waysout.serve.login import make_login
from waysout.serve.metrics import CONTENT_TYPE, Counting, Metrics
from waysout.serve.pages import make_pages
from waysout.serve.service import Service
from waysout.serve.tokens import Gate


def create_app(
    service: Service, hosts: Hosts, *, gate: Gate | None = None, metrics: Metrics | None = None
) -> App:
    """Return a service as an ASGI application; ``metrics`` are those the service reports to."""
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
        # Their pages would load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        # A redirect would be written with the Host that somebody sent.
        redirect_slashes=False,
        lifespan=lifespan,
    )
    install_errors(app)
    pages = make_pages(needs_token=gate is not None)
    for router in (create_api(service), make_login(gate), make_counts(counts), pages):
        app.include_router(router)
    return Counting(Guard(app, hosts, gate, service.limits.body), counts)


def make_counts(metrics: Metrics) -> APIRouter:
    """Return the route of the counts."""
    router = APIRouter()
    text: dict[int | str, dict[str, Any]] = {
        200: {"description": "Prometheus' text format", "content": {"text/plain": {}}}
    }

    @router.get("/metrics", response_class=Response, responses=text, operation_id="metrics",
                summary="What was counted, for Prometheus")  # fmt: skip
    async def show_metrics() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    return router
