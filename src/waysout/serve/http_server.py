"""The server's process: its socket, its timeouts for slow clients, and its shutdown."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from threading import Timer
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from waysout.errors import InputError, UnavailableError
from waysout.serve.guard import App
from waysout.serve.hosts import is_loopback
from waysout.serve.tokens import VARIABLE

# Seconds for searches and streams to end; a model may hang in its thread, and is not waited for.
PATIENCE = 4.0
STREAM_SECONDS = 1
THREAD_SECONDS = 0.5
KEEP_ALIVE_SECONDS = 15
HEAD_SECONDS = 15.0
READ_SECONDS = 60.0
MOST_HEAD_BYTES = 32_768
# Streams, and the requests beside them; more get 503.
MOST_CONNECTIONS = 512


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
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STREAM_SECONDS,
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
    )
    return Server(config, closing)


class Server(uvicorn.Server):
    """Ends the searches first, so that streams end by themselves.

    A clean stop exits with 0, since being stopped is how a server ends.
    """

    def __init__(self, config: uvicorn.Config, closing: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._closing = closing
        self._signal = 0
        self._closed = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down at the first signal, exit at once at the second."""
        if self._signal:
            os._exit(128 + sig)
        self._signal = sig
        self.should_exit = True
        self._exit_in(PATIENCE)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End searches and streams, then connections; threads that hang are left behind."""
        await self._closing()
        self._closed = True
        await super().shutdown(sockets)
        if self._signal:
            self._exit_in(THREAD_SECONDS)

    def _exit_in(self, seconds: float) -> None:
        """Exit even if something in the process hangs."""
        timer = Timer(seconds, lambda: os._exit(0 if self._closed else 128 + self._signal))
        timer.daemon = True
        timer.start()


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with a time limit for a request's head, and for the client to read the answer."""

    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the head."""
        super().connection_made(transport)
        # asyncio sets this only for sockets that name their protocol: small answers waited 40 ms.
        opened = transport.get_extra_info("socket")
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        """Take data in; half a head does not restart the limit."""
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        for timer in filter(None, (self._head_timer, self._read_timer)):
            timer.cancel()
        super().connection_lost(exc)

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
