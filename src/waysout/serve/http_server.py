"""The server's process: its socket, its patience with clients, and its shutdown."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from threading import Timer
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from waysout.errors import InputError, UnavailableError
from waysout.oracles.watchdog import end_process
from waysout.run.forks import own_handlers
from waysout.serve.concurrency import LEFT
from waysout.serve.guard import KNOWN, App
from waysout.serve.hosts import is_loopback, network_of
from waysout.serve.tokens import VARIABLE, WRONG

if sys.platform != "win32":
    import resource

# Seconds for searches and streams to end; a model may hang in its thread, and is not waited for.
PATIENCE = 4.0
STREAM_SECONDS = 1
THREAD_SECONDS = 0.5
KEEP_ALIVE_SECONDS = 15
HEAD_SECONDS = 15.0
READ_SECONDS = 60.0
MOST_HEAD_BYTES = 32_768
# More get 503. Strangers, who have not shown the token, have a sixth of them between them: one
# more, and the one that has waited longest goes. So they can lock nobody out by waiting.
MOST_CONNECTIONS = 768
STRANGERS_SHARE = 6
# Connections taken in a turn of the loop: those that are to go are closed before the next turn.
MOST_AT_ONCE = 32
QUEUE = 2048
MOST_FILES = 8192
_log = logging.getLogger(__name__)


def open_socket(host: str, port: int, *, token: bool) -> socket.socket:
    """Open a port, before anything is loaded. Without a token, only on this machine's loopback."""
    if token or is_loopback(host):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            opened = socket.create_server((host, port), family=family)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UnavailableError(
                    f"port {port} of {host} is taken: choose another, or 0 for any free one"
                ) from None
            reason = error.strerror or error
            raise UnavailableError(f"cannot listen on {host}, port {port}: {reason}") from None
        if token or is_loopback(opened.getsockname()[0]):  # a name can mean any address
            return opened
        opened.close()
    raise InputError(
        f"others can reach {host}, so it needs a token, in {VARIABLE} or a token file (or listen "
        "on this machine only, at 127.0.0.1)"
    )


def run_server(app: App, opened: socket.socket, closing: Callable[[], Awaitable[None]]) -> None:
    """Answer requests until a signal comes; then ``closing`` ends searches and streams."""
    raise_file_limit()
    with own_handlers():
        make_server(app, closing).run(sockets=[opened])


def make_server(app: App, closing: Callable[[], Awaitable[None]]) -> Server:
    """Return a server that shuts down cleanly. It trusts no header about the client's address."""
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level=logging.ERROR,  # a line for each bad request would fill a disk
        access_log=False,  # its lines would hold query strings
        server_header=False,
        proxy_headers=False,
        # A connection is a file, and a part of the files is for the searches.
        limit_concurrency=min(MOST_CONNECTIONS, file_limit() * 3 // 4),
        backlog=MOST_AT_ONCE,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=2 * STREAM_SECONDS,  # none is left by then: see `shutdown`
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
    )
    return Server(config, closing)


def file_limit() -> int:
    """Return how many files this process may have open."""
    if sys.platform == "win32":
        return MOST_FILES
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_FILES if soft == resource.RLIM_INFINITY else soft


def raise_file_limit() -> None:
    """Have the files that a full server needs, where the system grants them.

    Many systems begin with 1024, or 256, for the sake of programs that use ``select``.
    """
    if sys.platform != "win32" and file_limit() < MOST_FILES:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        most = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class Server(uvicorn.Server):
    """Ends the searches first, so that streams end by themselves.

    A clean stop exits with 0, since being stopped is how a server ends.
    """

    def __init__(self, config: uvicorn.Config, closing: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._closing = closing
        self._signal = 0
        self._closed = False
        self._out_of_files = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        asyncio.get_running_loop().set_exception_handler(self._on_loop_error)
        await super().startup(sockets)
        for opened in sockets or ():  # asyncio takes as many in a turn as it lets wait
            opened.listen(QUEUE)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Drop a stranger where files run out; asyncio tries again after a second."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
            return
        drop_one(_strangers(self.server_state.connections))
        if not self._out_of_files:  # once: it may come many times a second
            self._out_of_files = True
            _log.error("out of open files: %s; `ulimit -n` says how many there may be", error)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down at the first signal, exit at once at the second."""
        if self._signal:
            end_process(128 + sig)
        self._signal = sig
        self.should_exit = True
        self._exit_in(PATIENCE)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End searches and streams, then connections; threads that hang are left behind."""
        await self._closing()
        self._closed = True
        # uvicorn would write a traceback for each request that it ends.
        asyncio.get_running_loop().call_later(STREAM_SECONDS, self._end_requests)
        await super().shutdown(sockets)
        if self._signal:
            self._exit_in(THREAD_SECONDS)

    def _end_requests(self) -> None:
        for connection in list(self.server_state.connections):
            if isinstance(connection, PatientProtocol):
                connection.end()

    def _exit_in(self, seconds: float) -> None:
        """Exit even if something in the process hangs."""
        timer = Timer(seconds, lambda: end_process(0 if self._closed else 128 + self._signal))
        timer.daemon = True
        timer.start()


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with a time limit for a request's head, and for the client to read the answer.

    A connection is a stranger's until the guard has admitted a request of it.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _was_known = False
    _task: asyncio.Task[Any] | None = None
    dropped = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the head, and make room if there are too many."""
        super().connection_made(transport)
        self.app = self._answer
        self.since = self.loop.time()
        self.network = network_of(self.client[0] if self.client else "")
        # asyncio sets this only for sockets that name their protocol: small answers waited 40 ms.
        opened = transport.get_extra_info("socket")
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The read limit then holds for the last bytes too, with which a connection would be
        # closed and yet stay for as long as the client likes.
        transport.set_write_buffer_limits(high=0)
        self._watch_head()
        make_room(self.connections, self.limit_concurrency or MOST_CONNECTIONS)

    @property
    def is_known(self) -> bool:
        """Whether the guard has admitted a request of this connection."""
        return self._was_known or (self.scope is not None and KNOWN in self.scope)

    @property
    def is_wrong(self) -> bool:
        """Whether its last request showed a wrong token."""
        return self.scope is not None and WRONG in self.scope

    @property
    def is_idle(self) -> bool:
        """Whether there is no request under way, or only the beginning of a head."""
        return self.cycle is None or self.cycle.response_complete

    def drop(self) -> None:
        """End the connection at once."""
        self.dropped = True
        self.transport.abort()

    def end(self) -> None:
        """End the connection and its request at once."""
        self.drop()
        if self._task is not None:  # the request is to see that nobody waits for its answer
            self.loop.call_soon(self._task.cancel)

    def on_response_complete(self) -> None:
        """Remember whom the answer was for: a next request has another scope."""
        self._was_known = self.is_known
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        """Take data in; half a head does not restart the limit."""
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and a stranger's request: the next would come before it ends."""
        for timer in filter(None, (self._head_timer, self._read_timer)):
            timer.cancel()
        super().connection_lost(exc)
        if self._task is not None and not self.is_known:
            self._task.cancel()

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        self._task, cycle = asyncio.current_task(), self.cycle
        scope[LEFT] = lambda: cycle.disconnected
        try:
            await self.config.loaded_app(scope, receive, send)
        except asyncio.CancelledError:
            if not self.cycle.disconnected:  # then nobody waits for the answer
                raise

    def pause_writing(self) -> None:
        """Start the time limit for the client to read."""
        super().pause_writing()
        self._read_timer = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop that limit: the client reads."""
        if self._read_timer is not None:
            self._read_timer.cancel()
        super().resume_writing()

    def _watch_head(self) -> None:
        waiting: Any = self.conn.their_state is h11.IDLE
        if waiting and self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)
        elif not waiting and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def make_room(connections: Iterable[object], most: int) -> None:
    """Drop a stranger where there are too many, or else a known connection that only waits."""
    everyone = [each for each in connections if isinstance(each, PatientProtocol)]
    if len(everyone) <= most // STRANGERS_SHARE:
        return
    strangers = _strangers(everyone)
    if len(strangers) > most // STRANGERS_SHARE:
        drop_one(strangers)
    elif len(everyone) >= most - MOST_AT_ONCE:
        drop_one([each for each in everyone if each.is_idle and each.is_known and not each.dropped])


def drop_one(connections: Sequence[PatientProtocol]) -> None:
    """Drop one that showed a wrong token, or else the oldest of the network that has most.

    The oldest quarter goes first: whoever has just come may be about to show the right one, and
    where each of hundreds of strangers has an address of its own, a page's six connections would
    be most.
    """
    if not connections:
        return
    count = Counter(each.network for each in connections)
    newer = sorted(each.since for each in connections)[len(connections) // 4]

    def order(each: PatientProtocol) -> tuple[bool, bool, int, float]:
        return not each.is_wrong, each.since >= newer, -count[each.network], each.since

    min(connections, key=order).drop()


def _strangers(connections: Iterable[object]) -> list[PatientProtocol]:
    return [
        each
        for each in connections
        if isinstance(each, PatientProtocol) and not each.is_known and not each.dropped
    ]
