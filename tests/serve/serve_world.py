"""A service on the small world of tests/run: a model that adds, and the simulated LLM."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx2
from fastapi import FastAPI
from run_world import PEOPLE, Adder, Broken, Gate, Watched, person, problem

from waysout.domain.schema import Row
from waysout.llm.base import Backend
from waysout.serve import api
from waysout.serve.errors import install_errors
from waysout.serve.limits import ServiceLimits
from waysout.serve.models import ContinueRequest, SearchRequest
from waysout.serve.problems import ServedProblem
from waysout.serve.search_session import SearchSession
from waysout.serve.service import Service

__all__ = ["PEOPLE", "Adder", "Broken", "Gate", "Watched", "person", "problem"]

T = TypeVar("T")

ROW = person(PEOPLE[1])  # a = 1, b = 0, c = "y"
BRIEF = {"problem": "small", "row": ROW, "oracle_rows": 30}
LLM = "simulated:7"


@dataclass
class Table:
    """Rows with outcomes: half of them approved."""

    rows: Sequence[Row] = field(
        default_factory=lambda: [(i % 21, (i * 7) % 21, "xyz"[i % 3]) for i in range(60)]
    )

    @property
    def labels(self) -> Sequence[bool]:
        return [float(row[0] or 0) + float(row[1] or 0) >= 10 for row in self.rows]


def small(oracle: Adder | None = None, *, known: bool = False) -> ServedProblem:
    return ServedProblem.of(problem(oracle=oracle or Adder()), Table() if known else None)


def make_service(
    world: ServedProblem | None = None,
    llm: str | Backend | None = LLM,
    *,
    keep_runs: bool = False,
    **limits: Any,
) -> Service:
    return Service(
        {"small": world or small()}, llm, limits=ServiceLimits(**limits), keep_runs=keep_runs
    )


def start(service: Service, **other: Any) -> SearchSession:
    request = SearchRequest(**{**BRIEF, **other})
    return service.start(request, service.check(request))


def go_on(service: Service, search: SearchSession, **other: Any) -> SearchSession:
    return service.go_on(search.id, ContinueRequest(**other))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, or fail: a test that hangs tells nothing."""

    async def in_time() -> T:
        async with asyncio.timeout(30):
            return await work

    return asyncio.run(in_time())


async def ended(search: SearchSession) -> list[Mapping[str, Any]]:
    """Wait until the part has ended; returns what was told of each end."""
    await until(lambda: not search.running)
    return of_kind(search, "ended")


def of_kind(search: SearchSession, kind: str) -> list[Mapping[str, Any]]:
    return [event.data for event in search.log.events if event.kind == kind]


@dataclass
class Client:
    """Asks an app in this process."""

    app: FastAPI
    http: httpx2.AsyncClient

    async def get(self, path: str, **query: Any) -> httpx2.Response:
        return await self.http.get(path, params=query)

    async def post(self, path: str, body: Any = None) -> httpx2.Response:
        return await self.http.post(path, json={} if body is None else body)

    async def started(self, **body: Any) -> dict[str, Any]:
        answer = await self.post("/api/searches", {**BRIEF, **body})
        assert answer.status_code == 201, answer.text
        view: dict[str, Any] = answer.json()
        return view

    async def waited(self, id: str) -> dict[str, Any]:
        """Wait until a part has ended."""
        while True:
            view: dict[str, Any] = (await self.get(f"/api/searches/{id}")).json()
            if view["status"] == "ended":
                return view
            await asyncio.sleep(0.005)


@asynccontextmanager
async def client(service: Service) -> AsyncGenerator[Client]:
    app = FastAPI()
    app.state.service = service
    app.include_router(api.router)
    install_errors(app)
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with service, httpx2.AsyncClient(transport=transport, base_url="http://here") as http:
        yield Client(app, http)


@dataclass
class Stream:
    """A stream of server-sent events, as it comes over the wire."""

    status: int = 0
    text: str = ""

    @property
    def events(self) -> list[tuple[int, str, Any]]:
        """What was told so far, as (id, kind, data)."""
        found = []
        for block in self.text.split("\n\n")[:-1]:
            lines = dict(line.split(": ", 1) for line in block.split("\n"))
            if "data" in lines:
                found.append((int(lines["id"]), lines["event"], json.loads(lines["data"])))
        return found


@asynccontextmanager
async def streaming(app: FastAPI, path: str, after: int | None = None) -> AsyncGenerator[Stream]:
    """Follow a stream while the block lasts, then hang up."""
    stream, left = Stream(), asyncio.Event()
    told = [] if after is None else [(b"last-event-id", str(after).encode())]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
        "path": path, "raw_path": path.encode(), "query_string": b"", "scheme": "http",
        "headers": [(b"host", b"here"), *told], "root_path": "",
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        stream.status = message.get("status", stream.status)
        stream.text += message.get("body", b"").decode()

    task = asyncio.create_task(app(scope, receive, send))
    try:
        yield stream
    finally:
        left.set()
        await asyncio.gather(task, return_exceptions=True)


async def until(true: Any) -> None:
    """Wait until something is so."""
    while not true():
        await asyncio.sleep(0.002)
