"""``attempts`` in a ledger are the requests that a server gets, whatever becomes of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
from scripted_server import run

from waysout.domain.budget import Budget, Ledger
from waysout.errors import LLMRefused, WaysoutError
from waysout.llm.base import Constraint, Limits, Message, Request
from waysout.llm.call import Caller
from waysout.llm.openai import backend as backend_module
from waysout.llm.openai.backend import OpenAIBackend
from waysout.llm.openai.pool import ServerPool
from waysout.llm.openai.transport import HttpxTransport
from waysout.llm.shared import BackendClient, BackendServer
from waysout.serve.concurrency import SharedBackend

QUICK = Limits(connect=2.0, silence=0.3, seconds=0.6)
OK = json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}).encode()
RESET, HANG, CUT = b"reset", b"hang", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"


def said(code: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


GOOD, MALFORMED = said(200, OK), said(200, b"{")
TOO_MANY, BROKEN = said(429, b"{}"), said(500, b"{}")
REFUSED = said(400, b'{"error": {"message": "Unsupported parameter: response_format"}}')


class KeptServer:
    """Keeps its connections, answers each request by a list, and counts those it has read."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self.answers = answers
        self.requests = 0
        self.url = ""
        self.asked = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                await reader.readexactly(length)
                answer = self.answers[min(self.requests, len(self.answers) - 1)]
                self.requests += 1
                self.asked.set()
                if answer == RESET:
                    break
                if answer == HANG:
                    await reader.read()
                    break
                writer.write(answer)
                if answer == CUT:
                    break
        writer.close()


@asynccontextmanager
async def serving(*answers: bytes) -> AsyncIterator[KeptServer]:
    kept = KeptServer(answers)
    server = await asyncio.start_server(kept.serve, "127.0.0.1", 0)
    kept.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield kept
    finally:
        server.close()


@pytest.fixture(params=["http1", "httpx"])
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "httpx":
        pytest.importorskip("httpx2")
        headers = {"Content-Type": "application/json", "Host": "127.0.0.1"}

        def made(url: str, key: str, limits: Limits) -> HttpxTransport:
            return HttpxTransport(url, headers, limits, 10_000)

        monkeypatch.setattr(backend_module, "open_transport", made)
    return str(request.param)


async def no_wait(seconds: float) -> None:
    await asyncio.sleep(0)


def question(number: int, constraint: Constraint | None = None) -> Request:
    return Request((Message("user", f"{number}"),), max_tokens=9, constraint=constraint)


FAULTS = {
    "none": [GOOD],
    "a kept connection is reset": [GOOD, RESET, GOOD],
    "and the next as well": [GOOD, RESET, RESET, GOOD],
    "500": [BROKEN, GOOD, BROKEN, BROKEN, GOOD],
    "429": [GOOD, TOO_MANY, GOOD],
    "silence": [GOOD, HANG, GOOD],
    "cut": [CUT, GOOD],
    "malformed": [MALFORMED, GOOD],
    "found out": [REFUSED, GOOD],
    "always 500": [BROKEN],
    "always reset": [GOOD, RESET],
}


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("pooled", [False, True])
def test_attempts_are_what_the_server_got(fault: str, pooled: bool) -> None:
    async def go() -> tuple[int, int]:
        async with serving(*FAULTS[fault]) as server:
            alone = OpenAIBackend("m", server.url, limits=QUICK, key="", stream=False)
            backend = ServerPool([alone], patience=0.01) if pooled else alone
            caller, ledger = Caller(backend, sleep=no_wait), Ledger()
            constraint = Constraint(json_schema={"type": "object"})
            for number in range(3):
                with suppress(WaysoutError):
                    await caller.call(question(number, constraint), ledger)
            await backend.aclose()
            return ledger.spent.attempts, server.requests

    attempts, requests = run(go())
    assert attempts == requests > 0


@pytest.mark.usefixtures("transport")
def test_what_a_server_has_not_implemented_is_found_out_once() -> None:
    async def go() -> tuple[int, int]:
        async with serving(said(501, b"{}")) as server:
            backend, ledger = OpenAIBackend("m", server.url, key=""), Ledger()
            held = question(0, Constraint(json_schema={"type": "object"}))
            with pytest.raises(LLMRefused, match="501"):
                await Caller(backend, sleep=no_wait).call(held, ledger)
            await backend.aclose()
            return ledger.spent.attempts, server.requests

    assert run(go()) == (9, 9)  # with every part, and eight times with one less


@pytest.mark.usefixtures("transport")
def test_calls_that_a_deadline_ends_count_where_they_were_sent() -> None:
    """Of those that wait for a slot nothing was sent."""

    async def go() -> tuple[int, int, int]:
        async with serving(HANG) as server:
            inner = OpenAIBackend("m", server.url, limits=Limits(), key="", stream=False)
            shared = SharedBackend(inner, asyncio.Semaphore(2), asyncio.Lock())
            caller, ledger = Caller(shared), Ledger(Budget(seconds=0.3))
            calls = (caller.call(question(i), ledger) for i in range(5))
            ended = await asyncio.gather(*calls, return_exceptions=True)
            await inner.aclose()
            return ledger.spent.attempts, server.requests, len(ended)

    attempts, requests, calls = run(go())
    assert attempts == requests < calls


def test_what_another_process_sends_is_counted_here() -> None:
    async def go() -> tuple[int, int]:
        async with serving(BROKEN, GOOD, RESET, GOOD, HANG) as server:
            inner = OpenAIBackend("m", server.url, limits=Limits(), key="", stream=False)
            there = BackendServer(inner)
            client = await asyncio.to_thread(lambda: BackendClient(there.open()))
            caller, ledger = Caller(client, sleep=no_wait), Ledger()
            for number in range(2):
                await caller.call(question(number), ledger)
            server.asked.clear()
            last = asyncio.create_task(caller.call(question(2), ledger))
            await server.asked.wait()
            last.cancel()
            await asyncio.wait([last])
            while client._counts:  # until the last word on the cancelled one has come
                await asyncio.sleep(0.001)
            await asyncio.to_thread(there.close)
            return ledger.spent.attempts, server.requests

    assert run(go()) == (5, 5)
