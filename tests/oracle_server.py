"""A server that does what a test says, request by request."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Rows = list[dict[str, Any]]


class Handler(BaseHTTPRequestHandler):
    """Keeps connections open, counts them, and follows the script of its server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Scripted

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked.append(body)
            self.server.headers.append(dict(self.headers))
            step = self.server.script.pop(0) if self.server.script else self.server.usual
        step(self, body)

    def send(self, reply: Any, status: int = 200, **headers: str) -> None:
        data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def hang_up(self, _: Any = None) -> None:
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_: Any) -> None:
        pass


Step = Callable[[Handler, Any], object]


class Scripted(ThreadingHTTPServer):
    """Answers the usual way once its script is at an end."""

    daemon_threads = True

    def __init__(self, usual: Step, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.usual = usual
        self.script: list[Step] = []
        self.asked: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def sizes(self) -> list[int]:
        return [len(next(iter(body.values()))) for body in self.asked]

    def handle_error(self, *_: Any) -> None:
        pass


def answer(score: Callable[[dict[str, Any]], Any], **also: Any) -> Step:
    """A step that answers each row by a function of it."""

    def step(handler: Handler, body: Any) -> None:
        rows: Rows = next(iter(body.values()))
        handler.send({"predictions": [score(row) for row in rows], **also})

    return step


def reply(data: Any, status: int = 200, **headers: str) -> Step:
    return lambda handler, body: handler.send(data, status, **headers)


@contextmanager
def serving(usual: Step, script: Sequence[Step] = (), port: int = 0) -> Iterator[Scripted]:
    server = Scripted(usual, port)
    server.script += script
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
