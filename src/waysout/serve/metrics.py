"""What a server counts, for Prometheus: requests and searches, by labels that are all our own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from waysout.domain.budget import Spent
from waysout.domain.result import OutcomeKind
from waysout.serve.guard import App, Message, Receive, Scope, Send

# Methods and paths are whatever a client sends; as labels they would fill the memory.
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_OUTCOMES = frozenset(map(str, OutcomeKind))
_OTHER, _UNMATCHED = "other", "unmatched"
_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """The counts of one server; two servers in a process keep theirs apart."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._counter(
            "waysout_requests", "Requests answered", "route", "method", "status"
        )
        self._seconds = Histogram(
            "waysout_request_seconds", "Seconds until an answer began", ["route", "method"],
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self._began = self._counter("waysout_searches_started", "Parts of searches begun")
        self._ended = self._counter("waysout_searches_ended", "Parts of searches ended", "outcome")
        self._options = self._counter("waysout_options_found", "Options found by ended parts")
        self._calls = self._counter("waysout_llm_calls", "LLM calls of ended parts")
        self._rows = self._counter("waysout_oracle_rows", "Oracle rows of ended parts")

    def began(self) -> None:
        """Count a part of a search that begins."""
        self._began.inc()

    def ended(self, outcome: str, options: int, spent: Spent) -> None:
        """Count a part that has ended, what it found and what it spent."""
        self._ended.labels(outcome if outcome in _OUTCOMES else _OTHER).inc()
        self._options.inc(options)
        self._calls.inc(spent.llm_calls)
        self._rows.inc(spent.oracle_rows)

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Count an answer by its route's template, and how long it took to begin."""
        route = str(getattr(scope.get("route"), "path", None) or _UNMATCHED)
        method = scope["method"] if scope["method"] in _METHODS else _OTHER
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route, method).observe(seconds)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, labels, registry=self.registry)

    def watch(self, name: str, what: str, count: Callable[[], int]) -> None:
        """Add a number that is looked up on each request, such as the searches under way."""
        Gauge(name, what, registry=self.registry).set_function(count)

    def text(self) -> bytes:
        """Return all counts in Prometheus' text format."""
        return generate_latest(self.registry)


@dataclass(frozen=True)
class Counting:
    """An ASGI wrapper that counts answers, including those of the guard."""

    app: App
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and count the answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = perf_counter()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.metrics.answered(scope, message["status"], perf_counter() - began)
            await send(message)

        await self.app(scope, receive, sending)
