"""HTTP/1.1 without TLS or a proxy: as much of it as a request to a model server takes.

Connections are kept and used again. A server may close a kept one at any time; a request that meets
this is sent once more on a new connection, without a wait: nothing was answered and no time was
lost. Both count as attempts. If the server takes longer than a second (`_AT_ONCE`) to close it, it
counts as a failure: the server may have worked on the request.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import urlsplit

from waysout.llm.base import Limits, note_sent
from waysout.llm.openai.transport import (
    HttpResponse,
    Transport,
    TransportError,
    no_connection,
    silence,
)

_LONGEST_HEAD = 64 * 1024
_LONGEST_LINE = 1024
_MAX_EXTRA = 100  # interim responses (1xx), and trailer lines
# Common servers close a connection that was idle for five seconds.
_KEPT_SECONDS = 3.0
# A server that closed a kept connection before it read our request tells so at once.
_AT_ONCE = 1.0
# Neither holds a line break of its own or another control character but a tab.
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_FIELD = re.compile(r"([!-9;-~]+):([^\x00-\x08\x0a-\x1f\x7f]*)")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_FRAMING = frozenset({"content-length", "transfer-encoding"})


class Http1Transport(Transport):
    """A pool of plain connections to one server."""

    def __init__(
        self, url: str, headers: Mapping[str, str], limits: Limits, max_bytes: int
    ) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._path = parts.hostname or "", parts.port or 80, parts.path
        self._limits, self._max_bytes = limits, max_bytes
        fields = {"Host": parts.netloc, **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._idle: list[_Connection] = []
        self._connections: set[_Connection] = set()
        self._closed = False

    @asynccontextmanager
    async def send(self, path: str, body: bytes | None) -> AsyncIterator[HttpResponse]:
        """Send a request; see `Transport.send`."""
        method, length = "GET", ""
        if body is not None:
            method, length = "POST", f"Content-Length: {len(body)}\r\n"
        head = f"{method} {self._path}{path} HTTP/1.1\r\n{self._head}{length}\r\n"
        request = head.encode("ascii") + (body or b"")
        connection = None
        while self._idle and connection is None:  # the one that was used last
            connection = self._idle.pop()
            if not connection.is_fresh:
                connection.close()
                connection = None
        started = None
        if connection is not None:
            try:
                _note(body)
                started = await connection.request(request)
            except _ClosedBefore:
                if self._closed:
                    raise
        if connection is None or started is None:
            connection = await self._connect()
            _note(body)
            started = await connection.request(request)
        try:
            yield HttpResponse(*started, connection.read_body, self._max_bytes)
        finally:
            if self._closed or not connection.put_aside():
                connection.close()
            else:
                while self._idle and not self._idle[0].is_fresh:
                    self._idle.pop(0).close()
                self._idle.append(connection)

    async def aclose(self) -> None:
        """Close all connections; those that are being made end with their request."""
        self._closed = True
        for connection in list(self._connections):
            connection.close()

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._limits.connect):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self._limits, self._connections),
                    self._host,
                    self._port,
                )
        except TimeoutError:
            raise no_connection(self._limits) from None
        except (OSError, UnicodeError) as error:  # the latter: a name that no host can have
            raise TransportError(_reason(error)) from None
        return connection


def _note(body: bytes | None) -> None:
    """Count a request of the LLM; a look whether a server is up is none."""
    if body is not None:
        note_sent()


class _ClosedBefore(TransportError):
    """The connection was closed at once, before any byte of a response."""


class _Connection(asyncio.Protocol):
    """One connection: the bytes received and not yet read, and the body they belong to."""

    def __init__(self, limits: Limits, connections: set[_Connection]) -> None:
        self._limits, self._connections = limits, connections
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._ended = False
        self._problem: TransportError | None = None
        self._last_heard = self._asked = 0.0
        self._answering = self._idle = self._keep_alive = False
        self._body = _Body(0)
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Keep the data until it is read."""
        if self._idle:  # nothing was requested, and it might go on for ever
            self.close()
            return
        self._last_heard = self._loop.time()
        self._answering = True
        self._received = self._received + data if self._received else data
        self._wake()

    def eof_received(self) -> None:
        """Note that no more data will come."""
        self._ended = True
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """Note that the connection is gone."""
        self._ended = True
        self._connections.discard(self)
        if error is not None and self._problem is None:
            self._problem = TransportError(_reason(error))
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def request(self, data: bytes) -> tuple[int, dict[str, str]]:
        """Send a request; return the status and headers of the response, or close and raise."""
        self._last_heard = self._asked = self._loop.time()
        self._answering = self._idle = False
        self._watch()
        self._transport.write(data)
        try:
            for _ in range(_MAX_EXTRA):
                status, headers, newer = _parse_head(await self._read_head())
                if status >= 200:
                    self._body = _body_of(status, headers)
                    closes = "close" in headers.get("connection", "").lower()
                    self._keep_alive = newer and not closes and not headers.keys() >= _FRAMING
                    return status, headers
            raise TransportError("it says again and again that an answer will come")
        except BaseException:
            self.close()
            raise

    async def _read_head(self) -> bytes:
        """Return the next head; what was received after it stays to be read."""
        data = b""
        while (end := data.find(b"\r\n\r\n", 0, _LONGEST_HEAD)) < 0:
            if len(data) >= _LONGEST_HEAD:
                raise TransportError("the head of its answer has no end")
            try:
                if not (more := await self._read()):
                    raise TransportError("it closed the connection without an answer")
            except TransportError as error:
                at_once = self._loop.time() - self._asked < _AT_ONCE
                raise (
                    _ClosedBefore(str(error)) if at_once and not self._answering else error
                ) from None
            data += more
        self._received = data[end + 4 :]
        return data[:end]

    async def _read(self) -> bytes:
        """Return what was received, as soon as there is anything; nothing at the end."""
        while not (self._received or self._ended):
            self._waiter = self._loop.create_future()
            await self._waiter
        data, self._received = self._received, b""
        if not data and self._problem is not None:
            raise self._problem
        return data

    async def read_body(self) -> bytes:
        """Return the next piece of the response's body; nothing at its end."""
        while not self._body.over:
            data = await self._read()
            if piece := self._body.take(data) if data else self._body.end():
                return piece
        return b""

    def _watch(self) -> None:
        quiet = self._loop.time() - self._last_heard
        if quiet < self._limits.silence:
            self._timer = self._loop.call_later(self._limits.silence - quiet, self._watch)
            return
        self._problem = silence(self._limits)
        self.close()

    def put_aside(self) -> bool:
        """Mark the connection as idle; false where it cannot be used again."""
        if self._timer is not None:
            self._timer.cancel()
        self._last_heard = self._loop.time()
        self._idle = True
        read = self._body.over and not (self._body.surplus or self._received)
        unsent = self._transport.get_write_buffer_size()
        return self._keep_alive and read and not (self._ended or unsent)

    @property
    def is_fresh(self) -> bool:
        """Whether an idle connection can still be used."""
        return not self._ended and self._loop.time() - self._last_heard < _KEPT_SECONDS

    def close(self) -> None:
        """Close the connection at once."""
        if self._timer is not None:
            self._timer.cancel()
        self._ended = True
        self._transport.abort()
        self._wake()


class _Body:
    """A body that ends after ``length`` bytes, or, without a length, with its connection."""

    def __init__(self, length: int | None) -> None:
        self._left = length
        self.over = length == 0
        self.surplus = length is None

    def take(self, data: bytes) -> bytes:
        """Return the content of the data received."""
        if self._left is None:
            return data
        self.surplus = len(data) > self._left
        data = data[: self._left]
        self._left -= len(data)
        self.over = not self._left
        return data

    def end(self) -> bytes:
        """Note that the connection has ended."""
        if self._left is not None:
            raise TransportError("it closed the connection in the middle of its answer")
        self.over = True
        return b""


class _ChunkedBody(_Body):
    """A body in chunks, each with its length before it."""

    def __init__(self) -> None:
        # A sentinel: neither empty (0) nor ended by the connection (None). The last chunk ends it.
        super().__init__(-1)
        self._rest = b""
        self._left_of_chunk = 0
        self._in_chunk = False  # until the empty line after it
        self._trailers = 0  # lines since the last chunk, which has the length 0

    def take(self, data: bytes) -> bytes:
        """Return the content of the data received."""
        data, at, pieces = self._rest + data, 0, []
        while True:
            if self._left_of_chunk:
                piece = data[at : at + self._left_of_chunk]
                pieces.append(piece)
                at += len(piece)
                self._left_of_chunk -= len(piece)
            end = data.find(b"\r\n", at)
            if self._left_of_chunk or end < 0:
                break
            self._line(data[at:end])
            at = end + 2
            if self.over:
                self.surplus = at < len(data)
                break
        self._rest = data[at:]
        if len(self._rest) > _LONGEST_LINE:
            raise _unknown_form()
        return b"".join(pieces)

    def _line(self, line: bytes) -> None:
        """Read the line before a chunk, the empty one after it, or a trailer."""
        size = _SIZE.fullmatch(line)
        if self._trailers:
            self._trailers += 1
            self.over = not line
        elif self._in_chunk and not line:
            self._in_chunk = False
        elif self._in_chunk or size is None:
            raise _unknown_form()
        else:
            self._left_of_chunk = int(size[1], 16)
            self._in_chunk = self._left_of_chunk > 0
            self._trailers = int(not self._left_of_chunk)
        if len(line) > _LONGEST_LINE or self._trailers > _MAX_EXTRA:
            raise _unknown_form()


def _unknown_form() -> TransportError:
    return TransportError("its answer is in no known form")


def _reason(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    # asyncio's own message only repeats the address.
    return os.strerror(number) if number and number > 0 else str(error) or type(error).__name__


def _parse_head(head: bytes) -> tuple[int, dict[str, str], bool]:
    """Return the status, the headers, and whether the server speaks HTTP/1.1."""
    first, *lines = head.decode("latin-1").split("\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise TransportError("it does not speak HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise _unknown_form()
        name, value = field[1].lower(), field[2].strip(" \t")
        if headers.setdefault(name, value) != value and name in _FRAMING:
            raise _unknown_form()
    return int(status[2]), headers, status[1] == "1"


def _body_of(status: int, headers: Mapping[str, str]) -> _Body:
    coding, length = headers.get("transfer-encoding", "").lower(), headers.get("content-length")
    if status in (204, 304):
        return _Body(0)
    if coding == "chunked":
        return _ChunkedBody()
    if coding or (length is not None and not re.fullmatch("[0-9]{1,15}", length)):
        raise _unknown_form()
    return _Body(None if length is None else int(length))
