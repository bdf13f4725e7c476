"""The load of a soak: clients of a server, and an LLM server that fails at random."""

from __future__ import annotations

import http.client
import json
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class QuietServer(ThreadingHTTPServer):
    """A server that prints nothing where a client has hung up."""

    def handle_error(self, *_: object) -> None:
        """Print nothing."""


class BadLLM(BaseHTTPRequestHandler):
    """An LLM server that answers nonsense, refuses, is slow or hangs up, at random."""

    rng = random.Random(0)

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        """List the one model."""
        self._answer(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})

    def do_POST(self) -> None:
        """Answer a prompt."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind = self.rng.choice(["empty", "nonsense", "error", "busy", "cut", "slow", "no json"])
        if kind == "cut":
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if kind in ("error", "busy"):
            self._answer(500 if kind == "error" else 429, {"error": {"message": "at random"}})
            return
        if kind == "slow":
            time.sleep(0.5)
        if kind == "no json":
            self._answer(200, "no json")
            return
        said = '{"edits": []}' if kind == "empty" else "I would rather not say. " * 20
        choice = {"index": 0, "message": {"role": "assistant", "content": said},
                  "finish_reason": "stop"}  # fmt: skip
        self._answer(200, {"id": "1", "object": "chat.completion", "model": "m",
                           "choices": [choice],
                           "usage": {"prompt_tokens": 10, "completion_tokens": 10}})  # fmt: skip

    def _answer(self, status: int, body: Any) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(data)


# Clients ----------------------------------------------------------------------------------------


@dataclass
class Load:
    """Clients of a server, and what they were answered."""

    rows: Sequence[dict[str, Any]]
    seed: int
    port: int
    until: float
    statuses: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest_health: float = 0.0

    def ask(self, method: str, path: str, body: Any = None, timeout: float = 60.0) -> Any:
        """Send a request; return its document, or nothing where it is refused."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.statuses[type(error).__name__] += 1
            self.faults.append(f"{method} {path}: {type(error).__name__} {error}")
            return None
        finally:
            connection.close()
        self.statuses[str(answer.status)] += 1
        if answer.status == 500 or answer.status > 503:
            self.faults.append(f"{method} {path}: {answer.status} {text[:200]!r}")
        is_json = "json" in (answer.headers.get("Content-Type") or "")
        return json.loads(text) if answer.status < 400 and text and is_json else None

    def person(self, rng: random.Random) -> dict[str, Any]:
        """Return one of a few people: else the rows that are remembered would grow for long."""
        return self.rows[rng.randrange(len(self.rows))]

    def decide(self, rng: random.Random) -> None:
        """Ask for a decision, for strips, or for people."""
        row, at = self.person(rng), "/api/problems/synthetic"
        kind = rng.random()
        if kind < 0.7:
            self.ask("POST", f"{at}/decide", {"row": row})
        elif kind < 0.85:
            self.ask("POST", f"{at}/strips", {"row": row})
        else:
            self.ask("GET", f"{at}/people?q=a&limit=5")

    def search(self, rng: random.Random) -> None:
        """Search, follow it to its end or hang up in the middle, and read or forget it."""
        made = self.ask("POST", "/api/searches", {
            "problem": "synthetic", "row": self.person(rng), "calls": rng.choice([0, 0, 2]),
            "oracle_rows": 60})  # fmt: skip
        if made is None:
            return
        at = f"/api/searches/{made['id']}"
        self.follow(at, rng.choice([None, None, rng.randrange(1, 30)]))
        if rng.random() < 0.3:
            self.ask("POST", f"{at}/stop")
        if rng.random() < 0.2:
            self.ask("POST", f"{at}/continue", {"oracle_rows": 90})
        view = self.ask("GET", at)
        if view is not None and view["status"] == "ended":
            self.outcomes[view["outcome"]] += 1
            self.ask("GET", f"{at}/{rng.choice(['result.json', 'report.html', 'ways.csv'])}")
        if rng.random() < 0.5:
            self.ask("DELETE", at)

    def follow(self, at: str, most: int | None) -> None:
        """Follow the events of a search to its end, or hang up after some lines."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        try:
            connection.request("GET", f"{at}/events")
            answer = connection.getresponse()
            self.statuses[f"{answer.status} events"] += 1
            lines = 0
            while line := answer.readline():
                lines += 1
                if line.startswith(b"event: ended") or (most is not None and lines >= most):
                    break
        except (OSError, http.client.HTTPException) as error:
            self.faults.append(f"{at}/events: {type(error).__name__} {error}")
        finally:
            connection.close()

    def be_bad(self, rng: random.Random) -> None:
        """Send what no client should."""
        kind, at = rng.randrange(6), "/api/problems/synthetic/decide"
        if kind == 0:
            self.ask("POST", at, rng.randbytes(200))
        elif kind == 1:
            self.ask("POST", at, {"row": {"age": [1], rng.choice("abc"): None}})
        elif kind == 2:
            self.ask("GET", f"/api/searches/{rng.randbytes(11).hex()}")
        elif kind == 3:
            self.ask("POST", "/api/searches", {"problem": "other", "row": {}, "seed": "x"})
        elif kind == 4:
            row = self.person(rng) | {"income": rng.choice([-1, 1e300, "many", None])}
            self.ask("POST", at, {"row": row})
        else:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5) as half:
                half.sendall(b"POST /api/searches HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le")

    def check_health(self, rng: random.Random) -> None:
        """Ask whether the server is well."""
        began = time.monotonic()
        if (self.ask("GET", "/api/health", timeout=30) or {}).get("status") != "ok":
            self.faults.append("it did not say that it is well")
        self.slowest_health = max(self.slowest_health, time.monotonic() - began)

    def run(self, what: Callable[[random.Random], None], pause: float, name: str) -> None:
        """Do something again and again until the end."""
        rng = random.Random(f"{self.seed} {name}")
        while time.monotonic() < self.until:
            try:
                what(rng)
            except Exception as error:
                self.faults.append(f"{name}: {type(error).__name__}: {error}")
            time.sleep(pause * rng.random() * 2)
