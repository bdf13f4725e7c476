"""Requests as they come over the wire: to an ASGI app in hand, or through a socket of its own."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any

from waysout.serve.guard import App, Message, Receive, Scope, Send
from waysout.serve.http_server import make_server

PORT = 8765
HOST = ("host", f"127.0.0.1:{PORT}")
TOKEN = "correct-horse-battery-staple"
Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class Answered:
    """An answer, and how many parts of the body were read before it was given."""

    status: int
    headers: Headers
    body: bytes
    read: int

    def header(self, name: str) -> str:
        """The one value of a header; empty where there is none."""
        found = [value for key, value in self.headers if key == name]
        assert len(found) <= 1, f"{name} came more than once"
        return found[0] if found else ""

    @property
    def error(self) -> dict[str, Any]:
        """The error document's content."""
        assert self.header("content-type") == "application/json"
        error: dict[str, Any] = json.loads(self.body)["error"]
        assert set(error) == {"type", "message", "code"}
        return error


def ask(
    app: App,
    method: str = "GET",
    path: str = "/api/echo",
    headers: Headers | None = None,
    body: list[bytes] | None = None,
) -> Answered:
    """Put one request to an app; without headers, one with the right Host."""
    return asyncio.run(_ask(app, method, path, [HOST] if headers is None else headers, body or []))


async def _ask(app: App, method: str, path: str, headers: Headers, body: list[bytes]) -> Answered:
    sent: list[Message] = []
    left, before = body or [b""], 0

    async def receive() -> Message:
        nonlocal left
        if not left:
            return {"type": "http.disconnect"}
        part, *left = left
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    async def send(message: Message) -> None:
        nonlocal before
        before = before if sent else len(left)
        sent.append(message)

    scope = scope_of(method, path, headers)
    await app(scope, receive, send)
    start = sent[0]
    found = [(key.decode(), value.decode()) for key, value in start["headers"]]
    read = len(body or [b""]) - before
    return Answered(start["status"], found, b"".join(m.get("body", b"") for m in sent[1:]), read)


def scope_of(method: str, path: str, headers: Headers) -> Scope:
    """Return what a server says of a request."""
    pairs = [(key.encode("latin-1"), value.encode("latin-1")) for key, value in headers]
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "scheme": "http", "headers": pairs, "server": ("127.0.0.1", PORT),
        "client": ("127.0.0.1", 1),
    }  # fmt: skip


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that hands the body back."""
    message = await receive()
    headers = [(b"content-type", b"text/plain"), (b"cache-control", b"public")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": message["body"]})


async def _nothing() -> None:
    pass


@contextmanager
def serving(
    app: App, opened: socket.socket, closing: Callable[[], Awaitable[None]] = _nothing
) -> Iterator[int]:
    """Serve an app in a thread, on a socket that is open already."""
    server = make_server(app, closing)
    server.config.lifespan = "auto"
    thread = Thread(target=server.run, kwargs={"sockets": [opened]})
    thread.start()
    try:
        yield opened.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


def exchange(port: int, *parts: bytes, seconds: float = 10.0) -> bytes:
    """Send bytes, and return all that comes back until the server hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        for part in parts:
            connection.sendall(part)
        return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """Return all that comes until the other side hangs up."""
    found = b""
    while part := connection.recv(65536):
        found += part
    return found


def status_of(answer: bytes) -> int:
    """The status of a raw answer."""
    return int(answer.split(b" ", 2)[1])
