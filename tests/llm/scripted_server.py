"""A loopback server that speaks OpenAI's chat completions, as well or as badly as a script says.

    async with ScriptedServer([status(429), ok("hello")]) as server:
        backend = OpenAIBackend("m", server.url, key="")

The script is a list of answers, one for each request (the last one goes on for ever), or a function
of the request's number and body. The server ends with its block, whatever its answers are doing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Any, TypeVar

USAGE = {"prompt_tokens": 11, "completion_tokens": 7}
LONGEST = 10.0  # seconds any one connection may live

T = TypeVar("T")


@dataclass
class Exchange:
    """One request that came in, and the way back."""

    number: int
    headers: dict[str, str]
    body: dict[str, Any]
    writer: asyncio.StreamWriter

    @property
    def prompt(self) -> str:
        return str(self.body["messages"][-1]["content"])

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, code: int, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {code} Scripted", *(f"{k}: {v}" for k, v in headers.items())]
        await self.send("\r\n".join([*lines, "Connection: close", "", ""]).encode())

    async def whole(self, code: int, kind: str, body: bytes, **headers: str) -> None:
        length = {"Content-Type": kind, "Content-Length": str(len(body))}
        await self.head(code, {**length, **{k.replace("_", "-"): v for k, v in headers.items()}})
        await self.send(body)

    async def chunk(self, data: bytes) -> None:
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def reset(self) -> None:
        """End the connection the rude way."""
        self.writer.transport.abort()


Answer = Callable[[Exchange], Awaitable[None]]
Script = Sequence[Answer] | Callable[[int, dict[str, Any]], Answer]
_STREAM = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}


class ScriptedServer:
    """Answers by a script and remembers what it was asked."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.seen: list[Exchange] = []
        self.connections = 0
        self.looks = 0
        self._refusals = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def requests(self) -> int:
        """How many attempts reached us, those turned away at the door included."""
        return len(self.seen) + self._refusals

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    async def __aenter__(self) -> ScriptedServer:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # A task that was cancelled before its first step has closed nothing.
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            async with asyncio.timeout(LONGEST), _closing(writer):
                if isinstance(self.script, Sequence) and self._next({}) is refuse:
                    self._refusals += 1
                    writer.transport.abort()
                else:
                    await self._answer(reader, writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:])}
        if head[0].startswith("GET "):
            self.looks += 1
            await raw(b'{"data": []}')(Exchange(0, headers, {}, writer))
            return
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))))
        answer = self._next(body)
        exchange = Exchange(self.requests, headers | {"": head[0]}, body, writer)
        self.seen.append(exchange)
        await answer(exchange)

    def _next(self, body: dict[str, Any]) -> Answer:
        if callable(self.script):
            return self.script(self.requests, body)
        return self.script[min(self.requests, len(self.script) - 1)]


@contextlib.asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def dead_url() -> str:
    """Return an address where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


def event(data: object) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def delta(text: str, index: int = 0, finish: str | None = None, **more: object) -> bytes:
    said = {"content": text, **more}
    return event({"choices": [{"index": index, "delta": said, "finish_reason": finish}]})


def events(
    text: str, finish: str = "stop", usage: object = USAGE, done: bool = True
) -> list[bytes]:
    """Return a well-formed stream."""
    sent = [delta(text[start : start + 5]) for start in range(0, len(text), 5)]
    sent.append(delta("", 0, finish))
    if usage is not None:
        sent.append(event({"choices": [], "usage": usage, "model": "scripted-1"}))
    return [*sent, event(b"[DONE]")] if done else sent


def stream(*parts: bytes) -> Answer:
    """Stream these bytes, in these parts, and end properly."""

    async def answer(exchange: Exchange) -> None:
        await exchange.head(200, _STREAM)
        for part in parts:
            await exchange.chunk(part)
        await exchange.send(b"0\r\n\r\n")

    return answer


def ok(text: str, finish: str = "stop", usage: object = USAGE) -> Answer:
    return stream(*events(text, finish=finish, usage=usage))


async def echo(exchange: Exchange) -> None:
    """Answer with what was asked."""
    await ok(f"reply 0 to {exchange.prompt}")(exchange)


async def refuse(exchange: Exchange) -> None:
    """Stand for a connection that is turned away before a byte is read (lists only)."""
    raise AssertionError("turned away at the door")


async def reset(exchange: Exchange) -> None:
    exchange.reset()


async def hang(exchange: Exchange) -> None:
    await asyncio.sleep(LONGEST)


async def hang_within(exchange: Exchange) -> None:
    """Begin to answer and fall silent."""
    await exchange.head(200, _STREAM)
    await exchange.chunk(delta("some"))
    await asyncio.sleep(LONGEST)


def cut(text: str, *, rudely: bool = True) -> Answer:
    """Break off in the middle of a stream, with or without a proper end of the connection."""

    async def answer(exchange: Exchange) -> None:
        head = _STREAM if rudely else {"Content-Type": "text/event-stream"}
        await exchange.head(200, head)
        say = exchange.chunk if rudely else exchange.send
        for part in events(text)[: max(1, len(text) // 10)]:
            await say(part)

    return answer


def endless(piece: bytes, pause: float = 0.0, kind: str = "text/event-stream") -> Answer:
    """Send the same bytes again and again."""

    async def answer(exchange: Exchange) -> None:
        await exchange.head(200, {**_STREAM, "Content-Type": kind})
        while True:
            await exchange.chunk(piece)
            await asyncio.sleep(pause)

    return answer


async def endless_head(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await exchange.send(b"X-More: " + b"x" * 10_000 + b"\r\n")


def raw(body: bytes, kind: str = "application/json", code: int = 200, **headers: str) -> Answer:
    async def answer(exchange: Exchange) -> None:
        await exchange.whole(code, kind, body, **headers)

    return answer


def plain(text: str, usage: object = USAGE, finish: str = "stop") -> Answer:
    """Answer in one JSON object, though asked to stream."""
    said = {"role": "assistant", "content": text}
    choices = [{"index": 0, "message": said, "finish_reason": finish}]
    return raw(json.dumps({"choices": choices, "usage": usage, "model": "scripted-1"}).encode())


def status(
    code: int, message: str = "scripted", param: str = "", kind: str = "", **headers: str
) -> Answer:
    error = {"message": message, "param": param or None, "code": kind or None, "type": "scripted"}
    return raw(json.dumps({"error": error}).encode(), code=code, **headers)


def unless(refused: Mapping[str, Answer], answer: Answer) -> Answer:
    """Answer a request that holds one of these parameters in its own way."""

    async def choose(exchange: Exchange) -> None:
        first = next((part for part in refused if part in exchange.body), None)
        await (answer if first is None else refused[first])(exchange)

    return choose


def refusing(*parameters: str, named: bool = True, code: int = 400) -> Answer:
    """Refuse requests that hold one of these parameters, saying which or not; echo the others."""
    refused = {
        p: status(code, f"Unsupported parameter: '{p}'" if named else "invalid request")
        for p in parameters
    }
    return unless(refused, echo)


@contextlib.asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(answers) as server:
        yield server


@contextlib.contextmanager
def serving_apart(*answers: Answer) -> Iterator[ScriptedServer]:
    """Serve from a thread of its own, for what brings its own event loops."""
    loop, server = asyncio.new_event_loop(), ScriptedServer(answers)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(LONGEST)
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(LONGEST)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LONGEST)
        loop.close()


def run(work: Coroutine[Any, Any, T], seconds: float = 20) -> T:
    """Run some work to its end, or fail when that takes too long."""

    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())
