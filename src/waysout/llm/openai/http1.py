"""HTTP/1.1 without TLS or a proxy: as much of it as it takes to ask a server next door.

A connection is kept and used again. A server may close a kept one at any time; a request that
meets this goes out once more, on a new connection, and that is no attempt of its own: nothing was
answered and nobody has waited. After a while it is one, since the server may have worked on it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import urlsplit

from waysout.llm.base import Limits
from waysout.llm.openai.wire import HttpAnswer, NoConnection, Silence, Wire, WireError

_LONGEST_HEAD = 64 * 1024
_LONGEST_LINE = 1024
_MOST_ASIDES = 100  # answers that only say that one will come, and lines after the last chunk
# Common servers close a connection that was idle for five seconds.
_KEPT_SECONDS = 3.0
# A server that closed a kept connection before it read our request tells so at once.
_AT_ONCE = 1.0
# Neither holds a line break of its own or another control character but a tab.
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_FIELD = re.compile(r"([!-9;-~]+):([^\x00-\x08\x0a-\x1f\x7f]*)")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_FRAMING = frozenset({"content-length", "transfer-encoding"})


class Direct(Wire):
    """Asks one server over connections of its own."""

    def __init__(self, url: str, headers: Mapping[str, str], limits: Limits, most: int) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._limits, self._most = limits, most
        fields = {"Host": parts.netloc, **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._path = parts.path
        self._idle: list[_Line] = []
        self._lines: set[_Line] = set()
        self._closed = False

    @asynccontextmanager
    async def ask(self, path: str, body: bytes | None) -> AsyncIterator[HttpAnswer]:
        """Send a request; see `Wire.ask`."""
        line, answer = await self._answered(self._request(path, body))
        try:
            yield answer
        finally:
            self._keep(line, answer)

    async def aclose(self) -> None:
        """Close all connections; those that are being made end with their request."""
        self._closed = True
        for line in list(self._lines):
            line.close()

    def _request(self, path: str, body: bytes | None) -> bytes:
        method = "GET" if body is None else "POST"
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        head = f"{method} {self._path}{path} HTTP/1.1\r\n{self._head}{length}\r\n"
        return head.encode("ascii") + (body or b"")

    async def _answered(self, request: bytes) -> tuple[_Line, _DirectAnswer]:
        kept = self._kept()
        if kept is not None:
            try:
                return kept, await self._begun(kept, request)
            except _ClosedBefore:
                if self._closed:
                    raise
        line = await self._connect()
        return line, await self._begun(line, request)

    async def _begun(self, line: _Line, request: bytes) -> _DirectAnswer:
        try:
            return _DirectAnswer(line, *await line.ask(request), self._most)
        except BaseException:
            line.close()
            raise

    async def _connect(self) -> _Line:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._limits.connect):
                _, line = await loop.create_connection(
                    lambda: _Line(self._limits.silence, self._lines), self._host, self._port
                )
        except TimeoutError:
            raise NoConnection from None
        except (OSError, UnicodeError) as error:  # the latter: a name that no host can have
            raise WireError(_reason(error)) from None
        return line

    def _kept(self) -> _Line | None:
        """Return the connection that was used last, if it can be used again."""
        while self._idle:
            line = self._idle.pop()
            if line.fresh:
                return line
            line.close()
        return None

    def _keep(self, line: _Line, answer: _DirectAnswer) -> None:
        if self._closed or not (answer.reusable and line.rest()):
            line.close()
            return
        while self._idle and not self._idle[0].fresh:
            self._idle.pop(0).close()
        self._idle.append(line)


class _ClosedBefore(WireError):
    """The connection was closed at once, before anything was answered."""


class _Line(asyncio.Protocol):
    """One connection: what has come in, and whether more can come."""

    def __init__(self, silence: float, among: set[_Line]) -> None:
        self._silence, self._among = silence, among
        self._loop = asyncio.get_running_loop()
        self._come = b""
        self._over = False
        self._problem: WireError | None = None
        self._heard = self._asked = 0.0
        self._begun = self._rests = False
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        self._among.add(self)

    def data_received(self, data: bytes) -> None:
        """Keep what comes until it is asked for."""
        if self._rests:  # it was not asked, and might go on for ever
            self.close()
            return
        self._heard = self._loop.time()
        self._begun = True
        self._come = self._come + data if self._come else data
        self._wake()

    def eof_received(self) -> None:
        """Take note that no more will come."""
        self._over = True
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """Take note that the connection is gone."""
        self._over = True
        self._among.discard(self)
        if error is not None and self._problem is None:
            self._problem = WireError(_reason(error))
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def ask(self, request: bytes) -> tuple[int, dict[str, str], bool, bytes]:
        """Send a request; return status, headers, whether the server speaks 1.1, and the rest."""
        self._heard = self._asked = self._loop.time()
        self._begun = self._rests = False
        self._watch()
        self._transport.write(request)
        come = b""
        for _ in range(_MOST_ASIDES):
            head, come = await self._head(come)
            status, headers, newer = _read_head(head)
            if status >= 200:
                return status, headers, newer, come
        raise WireError("it says again and again that an answer will come")

    async def _head(self, come: bytes) -> tuple[bytes, bytes]:
        """Return the next head and what came after it; ``come`` is there already."""
        while (end := come.find(b"\r\n\r\n", 0, _LONGEST_HEAD)) < 0:
            if len(come) >= _LONGEST_HEAD:
                raise WireError("the head of its answer has no end")
            come += await self._more_of_head()
        return come[:end], come[end + 4 :]

    async def _more_of_head(self) -> bytes:
        problem = WireError("it closed the connection without an answer")
        try:
            if more := await self.more():
                return more
        except Silence:
            raise
        except WireError as error:
            problem = error
        at_once = self._loop.time() - self._asked < _AT_ONCE
        raise _ClosedBefore(str(problem)) if at_once and not self._begun else problem

    async def more(self) -> bytes:
        """Return what has come since, as soon as there is anything; nothing at the end."""
        while not (self._come or self._over):
            self._waiter = self._loop.create_future()
            await self._waiter
        come, self._come = self._come, b""
        if not come and self._problem is not None:
            raise self._problem
        return come

    def _watch(self) -> None:
        quiet = self._loop.time() - self._heard
        if quiet < self._silence:
            self._timer = self._loop.call_later(self._silence - quiet, self._watch)
            return
        self._problem = Silence()
        self.close()

    def rest(self) -> bool:
        """Put the connection by; false where it cannot be used again."""
        if self._timer is not None:
            self._timer.cancel()
        self._heard = self._loop.time()
        self._rests = True
        unsent = self._transport.get_write_buffer_size()
        return not (self._over or self._come or unsent)

    @property
    def fresh(self) -> bool:
        """Whether a connection that was put by can be used."""
        waited = self._loop.time() - self._heard
        return not self._over and waited < _KEPT_SECONDS

    def close(self) -> None:
        """End the connection at once."""
        if self._timer is not None:
            self._timer.cancel()
        self._over = True
        self._transport.abort()
        self._wake()


class _DirectAnswer(HttpAnswer):
    def __init__(
        self,
        line: _Line,
        status: int,
        headers: dict[str, str],
        newer: bool,
        come: bytes,
        most: int,
    ) -> None:
        super().__init__(most)
        self.status, self.headers = status, headers
        self._line, self._come = line, come
        self._body = _framing(status, headers)
        closes = "close" in headers.get("connection", "").lower()
        self._stays = newer and not closes and not headers.keys() >= _FRAMING

    @property
    def reusable(self) -> bool:
        """Whether all of it was read and nothing else, and the server keeps the connection."""
        return self._stays and self._body.over and not (self._body.surplus or self._come)

    async def _more(self) -> bytes:
        while not self._body.over:
            data = self._come or await self._line.more()
            self._come = b""
            piece = self._body.take(data) if data else self._body.end()
            if piece:
                return piece
        return b""


class _Body:
    """A body that ends with its connection, or, with a length, after so many bytes."""

    def __init__(self, length: int | None) -> None:
        self._left = length
        self.over = length == 0
        self.surplus = length is None

    def take(self, data: bytes) -> bytes:
        """Return the content of what has come."""
        if self._left is None:
            return data
        self.surplus = len(data) > self._left
        data = data[: self._left]
        self._left -= len(data)
        self.over = not self._left
        return data

    def end(self) -> bytes:
        """Take note that no more will come."""
        if self._left is not None:
            raise WireError("it closed the connection in the middle of its answer")
        self.over = True
        return b""


class _Chunks(_Body):
    """A body in chunks, each with its length before it."""

    def __init__(self) -> None:
        super().__init__(-1)
        self._rest = b""
        self._room = 0  # what is still to come of a chunk
        self._within = False  # until the empty line after it
        self._asides = 0  # lines since the last one

    def take(self, data: bytes) -> bytes:
        """Return the content of what has come."""
        data, at, pieces = self._rest + data, 0, []
        while True:
            if self._room:
                piece = data[at : at + self._room]
                pieces.append(piece)
                at += len(piece)
                self._room -= len(piece)
            end = data.find(b"\r\n", at)
            if self._room or end < 0:
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
        """Read the line before a chunk, the empty one after it, or what follows the last."""
        if self._asides:
            self._asides += 1
            self.over = not line
        elif self._within:
            self._within = False
            if line:
                raise _unknown_form()
        else:
            self._size(line)
        if len(line) > _LONGEST_LINE or self._asides > _MOST_ASIDES:
            raise _unknown_form()

    def _size(self, line: bytes) -> None:
        size = _SIZE.fullmatch(line)
        if size is None:
            raise _unknown_form()
        self._room = int(size[1], 16)
        self._within = self._room > 0
        self._asides = int(not self._room)


def _unknown_form() -> WireError:
    return WireError("its answer is in no known form")


def _reason(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    # What asyncio says of it instead is where it called, which everybody knows.
    return os.strerror(number) if number and number > 0 else str(error) or type(error).__name__


def _read_head(head: bytes) -> tuple[int, dict[str, str], bool]:
    first, *lines = head.decode("latin-1").split("\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise WireError("it does not speak HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise _unknown_form()
        name, value = field[1].lower(), field[2].strip(" \t")
        if headers.setdefault(name, value) != value and name in _FRAMING:
            raise _unknown_form()
    return int(status[2]), headers, status[1] == "1"


def _framing(status: int, headers: Mapping[str, str]) -> _Body:
    """Say where the body of an answer ends."""
    coding, length = headers.get("transfer-encoding", "").lower(), headers.get("content-length")
    if status in (204, 304):
        return _Body(0)
    if coding == "chunked":
        return _Chunks()
    if coding or (length is not None and not re.fullmatch("[0-9]{1,15}", length)):
        raise _unknown_form()
    return _Body(None if length is None else int(length))
