"""Two servers for one worker, of which one dies half-way and returns: nothing is lost."""

from __future__ import annotations

import asyncio
import json
import sys
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from batch_world import job, record, task, told
from scripted_server import Answer, Exchange, ScriptedServer, ok, run

from waysout.batch.job import PartReport
from waysout.batch.worker import Worker
from waysout.llm.base import Reply, Request
from waysout.llm.openai import pool
from waysout.llm.openai.backend import OpenAIBackend

PEOPLE = [record(i % 5, i // 5, "xyz"[i % 3]) for i in range(25)]
CALLS = 4


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_SHORTEST_REST", 0.02)
    monkeypatch.setattr(pool, "_LONGEST_REST", 0.1)
    monkeypatch.delenv("WAYSOUT_API_KEY", raising=False)
    monkeypatch.setitem(sys.modules, "keyring", None)


def proposals(prompt: str) -> str:
    """Return edits that depend on nothing but the question."""
    number = zlib.crc32(prompt.encode())
    edits = [("a", number % 21), ("b", number // 21 % 21), ("c", "xyz"[number % 3])]
    found = [{"feature": name, "value": value, "reasoning": "scripted"} for name, value in edits]
    return json.dumps({"candidates": found})


class Server(ScriptedServer):
    """A server that can die and return to its address; counts the replies it gave in full."""

    def __init__(self) -> None:
        self.replies = 0
        self.deaf = False
        super().__init__(lambda number, body: self._scripted)

    async def __aenter__(self) -> Server:
        await super().__aenter__()
        return self

    @property
    def _scripted(self) -> Answer:
        return self._fall_silent if self.deaf else self._reply

    async def _reply(self, exchange: Exchange) -> None:
        await asyncio.sleep(0.002)
        await ok(proposals(exchange.prompt))(exchange)
        self.replies += 1

    async def _fall_silent(self, exchange: Exchange) -> None:
        exchange.reset()

    async def die(self) -> None:
        await self.__aexit__()

    async def come_back(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Note which server each attempt goes to, whether it is there or not."""
    attempts: list[str] = []
    ask = OpenAIBackend.complete

    async def complete(self: OpenAIBackend, request: Request) -> Reply:
        attempts.append(self.url)
        return await ask(self, request)

    monkeypatch.setattr(OpenAIBackend, "complete", complete)
    yield attempts


async def when(happened: Callable[[], bool]) -> None:
    while not happened():
        await asyncio.sleep(0.001)


async def searched(out: Path, *servers: Server) -> PartReport:
    urls = ",".join(server.url for server in servers)
    worker = Worker(job(out, llm=f"openai:m@{urls}", calls=CALLS, trees=6))
    try:
        return await worker.run(task(PEOPLE))
    finally:
        await worker.aclose()


def spent(out: Path) -> dict[str, int]:
    people = told(out).values()
    return {name: sum(p[name] for p in people) for name in ("llm_calls", "attempts")}


async def disturbed(
    out: Path, trouble: Callable[[Server], Awaitable[None]]
) -> tuple[PartReport, Server, Server, int]:
    """Search with two servers; the first is in trouble from its eighth reply on, then returns."""
    async with Server() as one, Server() as other:
        searching = asyncio.create_task(searched(out, one, other))
        await when(lambda: one.replies >= 8)
        await trouble(one)
        before, until = one.replies, other.replies + 15
        await when(lambda: other.replies >= until)
        one.deaf = False
        if not one._server.is_serving():
            await one.come_back()
        return await searching, one, other, before


async def _die(server: Server) -> None:
    await server.die()


async def _go_deaf(server: Server) -> None:
    server.deaf = True


def undisturbed(out: Path) -> dict[int, dict[str, Any]]:
    async def alone() -> None:
        async with Server() as server:
            assert (await searched(out, server)).done

    run(alone())
    return told(out, "attempts")


def test_a_server_that_dies_and_returns_costs_nobody_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "two"
    with counted(monkeypatch) as attempts:
        report, one, other, before = run(disturbed(out, _die), 60)
    assert report.done
    assert one.replies > before  # it was asked again when it was back
    paid = spent(out)
    assert paid["llm_calls"] == one.replies + other.replies == report.tally.spent.llm_calls
    assert len(attempts) > paid["llm_calls"]
    # To a dead one nothing is sent, and what was sent may have met its end.
    assert len(attempts) >= paid["attempts"] >= len(one.seen) + len(other.seen)
    assert told(out, "attempts") == undisturbed(tmp_path / "one")


def test_every_request_that_reached_a_server_is_an_attempt(tmp_path: Path) -> None:
    out = tmp_path / "two"
    report, one, other, before = run(disturbed(out, _go_deaf), 60)
    assert report.done
    assert one.replies > before
    paid = spent(out)
    assert paid["llm_calls"] == one.replies + other.replies
    assert paid["attempts"] == len(one.seen) + len(other.seen) > paid["llm_calls"]
    assert told(out, "attempts") == undisturbed(tmp_path / "one")


def test_without_any_server_the_part_is_left_for_another_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was answered is on file, and is not asked again once there are servers."""
    monkeypatch.setattr(pool, "_PATIENCE", 0.3)

    async def cut_short() -> tuple[PartReport, int]:
        async with Server() as one, Server() as other:
            searching = asyncio.create_task(searched(tmp_path, one, other))
            await when(lambda: one.replies + other.replies >= 30)
            await asyncio.gather(one.die(), other.die())
            return await searching, one.replies + other.replies

    async def gone_on() -> tuple[PartReport, int]:
        async with Server() as another:
            return await searched(tmp_path, another), another.replies

    left, replies = run(cut_short())
    assert (left.done, left.exit_code) == (False, 9)
    assert "127.0.0.1" in left.stopped
    report, others = run(gone_on())
    assert report.done
    assert spent(tmp_path)["llm_calls"] == replies + others
