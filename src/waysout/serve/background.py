"""The page of a problem that lives in this process, served from a thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread

from waysout.domain.known import Known
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.errors import MissingExtra
from waysout.llm.base import Backend

_START_SECONDS = 10.0


@dataclass(frozen=True)
class ServedPage:
    """A page that is being served, at its ``url``."""

    url: str
    _server: object
    _thread: Thread

    def wait(self) -> None:
        """Serve until Ctrl-C."""
        try:
            while self._thread.is_alive():
                self._thread.join(0.5)
        except KeyboardInterrupt:
            self.close()

    def close(self) -> None:
        """End the searches and the server."""
        self._server.should_exit = True  # type: ignore[attr-defined]
        self._thread.join()

    def _repr_html_(self) -> str:
        return f'<a href="{self.url}" target="_blank" rel="noopener">{self.url}</a>'


def serve_in_background(
    problem: Problem,
    known: Known | None,
    people: Sequence[Row],
    *,
    host: str,
    port: int,
    llm: str | Backend | None = None,
) -> ServedPage:
    """Start a server for one problem; ``people`` are rows to offer where no outcome is known."""
    try:
        from waysout.serve import http_server
        from waysout.serve.app import create_app
        from waysout.serve.hosts import Hosts, url_of
        from waysout.serve.limits import SETTLING_ROWS, ServiceLimits
        from waysout.serve.metrics import Metrics
        from waysout.serve.problems import ServedProblem
        from waysout.serve.service import Service
    except ImportError as error:
        raise MissingExtra(error.name or "fastapi", "serve") from error
    opened = http_server.open_socket(host, port, token=False)
    port = opened.getsockname()[1]
    metrics = Metrics()
    served = ServedProblem.of(problem, known, people=people)
    limits = ServiceLimits(settling_rows=SETTLING_ROWS)
    service = Service({problem.name: served}, llm, limits=limits, listener=metrics)
    app = create_app(service, Hosts.of(host, port, ()), metrics=metrics)
    server = http_server.make_server(app, service.close)

    def run() -> None:
        with opened:
            server.run(sockets=[opened])

    thread = Thread(target=run, name="waysout-page", daemon=True)
    thread.start()
    end = time.monotonic() + _START_SECONDS
    while not server.started and thread.is_alive() and time.monotonic() < end:
        time.sleep(0.01)
    return ServedPage(url_of(host, port), server, thread)
