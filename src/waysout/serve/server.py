"""The server's process: its socket, its patience with slow clients, and its end."""

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

# How long searches and streams may take to end; a model may be thinking, and nobody waits for it.
PATIENCE = 4.0
STREAM_SECONDS = 1
THREAD_SECONDS = 0.5
KEEP_ALIVE_SECONDS = 15
HEAD_SECONDS = 15.0
READ_SECONDS = 60.0
MOST_HEAD_BYTES = 32_768
# Streams, and the requests beside them: more than that get 503.
MOST_CONNECTIONS = 512


def open_socket(host: str, port: int, *, token: bool) -> socket.socket:
    """Take a port before anything is loaded. Without a token, only one of this machine's own."""
    if not token and not is_loopback(host):
        raise _needs_token(host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server((host, port), family=family)
    except OSError as error:
        raise _cannot_open(host, port, error) from None
    if not token and not is_loopback(opened.getsockname()[0]):  # a name can mean any address
        opened.close()
        raise _needs_token(host)
    return opened


def _needs_token(host: str) -> InputError:
    return InputError(
        f"others can reach {host}, so it needs a token: set {VARIABLE} or give --token-file FILE "
        "(or stay on this machine: --host 127.0.0.1)"
    )


def _cannot_open(host: str, port: int, error: OSError) -> UnavailableError:
    if error.errno == errno.EADDRINUSE:
        return UnavailableError(
            f"port {port} of {host} is taken: choose another, or --port 0 for any free one"
        )
    return UnavailableError(f"cannot listen on {host}, port {port}: {error.strerror or error}")


def run_server(app: App, opened: socket.socket, closing: Callable[[], Awaitable[None]]) -> None:
    """Answer requests until a signal comes; then ``closing`` ends searches and streams."""
    make_server(app, closing).run(sockets=[opened])


def make_server(app: App, closing: Callable[[], Awaitable[None]]) -> Server:
    """Return a server that knows how to end. It takes nobody's word for who a client is."""
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level=logging.ERROR,  # of what a stranger sends, a line each would fill a disk
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
    """Ends when told to: the searches first, so that streams end by themselves."""

    def __init__(self, config: uvicorn.Config, closing: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._closing = closing
        self._signal = 0
        self._kept = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End soon at the first signal, at once at the second."""
        if self._signal:
            os._exit(128 + sig)
        self._signal = sig
        self.should_exit = True
        self._end_in(PATIENCE)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End searches and streams, then connections; threads that still think are left behind."""
        await self._closing()
        self._kept = True
        await super().shutdown(sockets)
        if self._signal:
            self._end_in(THREAD_SECONDS)

    def _end_in(self, seconds: float) -> None:
        """End the process though something in it hangs."""
        timer = Timer(seconds, self._end_now)
        timer.daemon = True
        timer.start()

    def _end_now(self) -> None:
        os._exit(0 if self._kept else 128 + self._signal)


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that waits for a request's head, and for an answer to be read, but not for ever."""

    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        # asyncio sees to it only where a socket names its protocol: small answers would wait 40 ms.
        opened = transport.get_extra_info("socket")
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take data in; half a head does not start the wait again."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._unwatch()
        self._be_read()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begin to wait for whoever does not read what they asked for."""
        super().pause_writing()
        self._read_timer = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: they read."""
        self._be_read()
        super().resume_writing()

    def _be_read(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _watch(self) -> None:
        waiting: Any = self.conn.their_state is h11.IDLE
        if not waiting:
            self._unwatch()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _unwatch(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
