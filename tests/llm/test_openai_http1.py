"""Our own HTTP: what is kept, what is sent once more, and where an answer ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import dead_url, run

from waysout.llm.base import Limits
from waysout.llm.openai import http1
from waysout.llm.openai.http1 import Http1Transport, _ChunkedBody
from waysout.llm.openai.transport import Transport, TransportError

QUICK = Limits(connect=1.0, silence=0.4, seconds=2.0)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

Handler = Callable[[asyncio.StreamWriter, int], Awaitable[bool]]


class Server:
    """Keeps connections: a handler answers each request, and says whether it goes on."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.connections = 0
        self.requests: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            going = True
            while going:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"POST"):
                    await reader.readexactly(4)
                self.requests.append(head)
                going = await self.handler(writer, len(self.requests))
        writer.close()


@contextlib.asynccontextmanager
async def wired(handler: Handler, most: int = 1000) -> AsyncIterator[tuple[Server, Transport]]:
    server = Server(handler)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    transport = Http1Transport(f"http://127.0.0.1:{port}/v1", {"User-Agent": "us"}, QUICK, most)
    try:
        yield server, transport
    finally:
        await transport.aclose()
        listening.close()


def saying(data: bytes, *, stay: bool = True) -> Handler:
    async def handler(writer: asyncio.StreamWriter, number: int) -> bool:
        writer.write(data)
        return stay

    return handler


async def ask(transport: Transport, path: str = "/x") -> tuple[int, bytes, bool]:
    async with transport.send(path, b"body") as answer:
        body = b""
        while piece := await answer.read():
            body += piece
        return answer.status, body, answer.truncated


def asked(handler: Handler, times: int = 1, most: int = 1000) -> tuple[list[object], Server]:
    async def go() -> tuple[list[object], Server]:
        async with wired(handler, most) as (server, transport):
            return [await ask(transport) for _ in range(times)], server

    return run(go())


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"


STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("told", "connections"),
    [
        (OK, 1),
        (STREAM + chunked(b"hel", b"lo"), 1),
        (STREAM + b"5;x=y\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n", 1),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 1),
        (OK.replace(b"\r\nC", b"\r\nConnection: close\r\nC"), 3),
        (OK.replace(b"1.1", b"1.0"), 3),
        (OK + b"more than was promised", 3),
        (OK.replace(b"\r\nC", b"\r\ncontent-length: 5\r\nC"), 1),
        (STREAM[:-2] + b"Content-Length: 2\r\n\r\n" + chunked(b"hello"), 3),
    ],
    ids=[
        *("length", "chunks", "trailer", "continue", "close", "older", "surplus", "twice"),
        "length-and-chunks",
    ],
)
def test_a_connection_is_used_again_where_that_is_safe(told: bytes, connections: int) -> None:
    answers, server = asked(saying(told), 3)
    assert answers == [(200, b"hello", False)] * 3
    assert server.connections == connections
    assert server.requests[0].startswith(b"POST /v1/x HTTP/1.1\r\nHost: 127.0.0.1:")


@pytest.mark.parametrize("code", [200, 204, 304])
def test_what_follows_an_empty_answer_is_not_the_next_one(code: int) -> None:
    empty = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % code
    answers, server = asked(saying(empty + OK), 2)
    assert answers == [(code, b"", False)] * 2
    assert server.connections == 2


def test_a_server_that_goes_on_without_being_asked_is_left() -> None:
    async def go() -> tuple[list[object], int]:
        async def flood(writer: asyncio.StreamWriter, number: int) -> bool:
            writer.write(OK)
            if number == 1:
                await asyncio.sleep(0.05)
                writer.write(OK.replace(b"hello", b"other"))
            return True

        async with wired(flood) as (server, transport):
            first = await ask(transport)
            assert isinstance(transport, Http1Transport)
            while transport._connections:
                await asyncio.sleep(0.01)
            return [first, await ask(transport)], server.connections

    assert run(go()) == ([(200, b"hello", False)] * 2, 2)


def test_a_request_that_was_not_sent_in_full_keeps_no_connection() -> None:
    async def go() -> None:
        asked = asyncio.Event()

        async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(OK)
            await asked.wait()
            writer.close()

        listening = await asyncio.start_server(early, "127.0.0.1", 0, limit=1024)
        port = listening.sockets[0].getsockname()[1]
        transport = Http1Transport(f"http://127.0.0.1:{port}/v1", {}, QUICK, 1000)
        async with transport.send("/x", b"x" * 20_000_000) as answer:
            assert (await answer.read(), await answer.read()) == (b"hello", b"")
        assert not transport._idle
        asked.set()
        listening.close()

    run(go())


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    answers, server = asked(saying(b"HTTP/1.1 200 OK\r\n\r\nhello", stay=False), 2)
    assert answers == [(200, b"hello", False)] * 2
    assert server.connections == 2


def test_a_kept_connection_that_is_closed_is_replaced() -> None:
    async def once_each(writer: asyncio.StreamWriter, number: int) -> bool:
        writer.write(OK)
        return False  # though it did not say so

    answers, server = asked(once_each, 4)
    assert answers == [(200, b"hello", False)] * 4
    assert server.connections >= 4


def test_what_meets_a_closing_connection_goes_out_once_more() -> None:
    async def drop_second(writer: asyncio.StreamWriter, number: int) -> bool:
        if number != 2:
            writer.write(OK)
        return number != 2

    answers, server = asked(drop_second, 2)
    assert answers == [(200, b"hello", False)] * 2
    assert (server.connections, len(server.requests)) == (2, 3)


@pytest.mark.parametrize("sign", [b"HTTP/1.1 100 Continue\r\n\r\n", b""])
def test_what_the_server_may_have_worked_on_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, sign: bytes
) -> None:
    monkeypatch.setattr(http1, "_AT_ONCE", 1.0 if sign else 0.05)

    async def go() -> Server:
        async def drop_second(writer: asyncio.StreamWriter, number: int) -> bool:
            writer.write(OK if number != 2 else sign)
            await asyncio.sleep(0.1 if number == 2 else 0.0)
            return number != 2

        async with wired(drop_second) as (server, transport):
            await ask(transport)
            with pytest.raises(TransportError, match="without an answer"):
                await ask(transport)
            return server

    assert len(run(go()).requests) == 2


def test_nothing_is_sent_again_after_the_end() -> None:
    async def go() -> tuple[int, int]:
        async def hang_second(writer: asyncio.StreamWriter, number: int) -> bool:
            if number > 1:
                await asyncio.sleep(0.2)
            writer.write(OK)
            return True

        async with wired(hang_second) as (server, transport):
            await ask(transport)
            under_way = asyncio.create_task(ask(transport))
            while len(server.requests) < 2:
                await asyncio.sleep(0.01)
            await transport.aclose()
            with pytest.raises(TransportError):
                await under_way
            assert isinstance(transport, Http1Transport)
            return len(server.requests), len(transport._connections)

    assert run(go()) == (2, 0)


def test_a_new_connection_that_is_closed_is_a_failure() -> None:
    async def go() -> Server:
        async with wired(saying(b"", stay=False)) as (server, transport):
            with pytest.raises(TransportError, match="without an answer"):
                await ask(transport)
            return server

    assert len(run(go()).requests) == 1


def test_what_was_half_answered_is_not_asked_again() -> None:
    async def go() -> Server:
        async def half(writer: asyncio.StreamWriter, number: int) -> bool:
            writer.write(OK if number == 1 else b"HTTP/1.1 200 OK\r\nX-")
            return number == 1

        async with wired(half) as (server, transport):
            await ask(transport)
            with pytest.raises(TransportError):
                await ask(transport)
            return server

    assert len(run(go()).requests) == 2


@pytest.mark.parametrize(
    "told",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 2\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX: folded\r\n Content-Length: 2\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX: a\nContent-Length: 2\r\n\r\nhello",
        b"HTTP/1.1 200 OK\nX: a\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX\x00: a\r\nContent-Length: 5\r\n\r\nhello",
        STREAM[:-2] + b"Transfer-Encoding: gzip\r\n\r\n" + chunked(b"hello"),
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1000 + OK,
        STREAM + b"five\r\nhello\r\n",
        STREAM + b"-5\r\nhello\r\n",
        STREAM + b"0x5\r\nhello\r\n0\r\n\r\n",
        STREAM + b"5\r\nhello2\r\nab\r\n0\r\n\r\n",
        STREAM + b"\r\n5\r\nhello\r\n0\r\n\r\n",
        STREAM + b"5;" + b"x" * 2000 + b"\r\nhello\r\n0\r\n\r\n",
        STREAM + b"5\r\nhello\r\n0\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
        STREAM + b"f" * 2000,
        STREAM + b"5\r\nhel",
        OK[:-1],
    ],
)
def test_what_is_no_answer_is_a_failure(told: bytes) -> None:
    with pytest.raises(TransportError):
        asked(saying(told, stay=False), most=5000)


def test_silence_is_a_failure_and_slowness_is_none() -> None:
    async def slow(writer: asyncio.StreamWriter, number: int) -> bool:
        writer.write(STREAM)
        for _ in range(6):
            await asyncio.sleep(0.1)
            writer.write(b"1\r\nx\r\n")
        writer.write(b"0\r\n\r\n")
        return True

    answers, _ = asked(slow)
    assert answers == [(200, b"x" * 6, False)]
    with pytest.raises(TransportError, match="no sign of life"):
        asked(saying(STREAM + b"5\r\nhel"))


def test_no_more_is_read_than_may_be() -> None:
    endless = STREAM + b"ffffffff\r\n" + b"x" * 50_000
    answers, server = asked(saying(endless), 2, most=20)
    assert answers == [(200, b"x" * 20, True)] * 2
    assert server.connections == 2


def test_nobody_there() -> None:
    transport = Http1Transport(dead_url(), {}, QUICK, 10)
    with pytest.raises(TransportError, match="refused"):
        run(ask(transport))


def test_a_name_that_no_host_can_have() -> None:
    with pytest.raises(TransportError, match="label"):
        run(ask(Http1Transport("http://a..b/v1", {}, QUICK, 10)))


def test_who_is_cancelled_leaves_no_connection() -> None:
    async def go() -> int:
        async with wired(saying(STREAM)) as (_, transport):
            task = asyncio.create_task(ask(transport))
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(0)
            assert isinstance(transport, Http1Transport)
            return len(transport._connections)

    assert run(go()) == 0


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=8), st.integers(1, 40))
def test_chunks_may_come_in_any_pieces(chunks: list[bytes], size: int) -> None:
    body, told, read = _ChunkedBody(), chunked(*chunks), b""
    for start in range(0, len(told), size):
        assert not body.over
        read += body.take(told[start : start + size])
    assert body.over
    assert not body.surplus
    assert read == b"".join(chunks)


@given(st.lists(st.sampled_from([b"5", b"0", b"\r\n", b"\r", b"\n", b"a", b";", b"\xff"])))
def test_any_bytes_end_somehow(pieces: list[bytes]) -> None:
    body, told = _ChunkedBody(), b"".join(pieces)
    with contextlib.suppress(TransportError):
        for piece in pieces:
            assert len(body.take(piece)) <= len(told)
