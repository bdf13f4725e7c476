"""How a page feels while others search: one search against many at once, in one run.

    python benchmarks/serve.py --searches 20

Starts `waysout serve` on the synthetic table with the simulated LLM, runs one search alone and then
many at once, and prints the time to the first card and the 95th percentile of small API calls (a
decision, as the page asks for with every slider) as ratios to one search. Rounds alternate, so that
a noisy machine hits both alike.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROBLEM = "synthetic"


@contextmanager
def server(searches: int) -> Iterator[int]:
    """Run the real command on a free port."""
    waysout = Path(sys.executable).with_name("waysout")
    command = [waysout, "serve", "--llm", "simulated:1", "--port",
               "0", "--no-run", "--searches", str(searches)]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                threading.Thread(target=process.stdout.read, daemon=True).start()
                yield int(found[1])
                return
        raise SystemExit("the server did not start")
    finally:
        process.terminate()
        process.wait(10)


@dataclass
class Client:
    """Asks the server, and notes how long small questions take."""

    port: int
    waits: list[float] = field(default_factory=list)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request and return its JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status >= 400:
            raise SystemExit(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text) if text else None

    def decide(self, row: Any) -> None:
        """Ask for a decision, and note the time."""
        began = time.perf_counter()
        self.ask("POST", f"/api/problems/{PROBLEM}/decide", {"row": row})
        self.waits.append(time.perf_counter() - began)

    def first_card(self, row: Any) -> tuple[float, float]:
        """Run a search; returns the seconds until its first option and until its end."""
        began = time.perf_counter()
        made = self.ask("POST", "/api/searches", {"problem": PROBLEM, "row": row, "calls": 6})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("GET", f"/api/searches/{made['id']}/events")
        first, kind = 0.0, ""
        answer = connection.getresponse()
        while line := answer.readline().decode():
            kind = line.partition(":")[2].strip() if line.startswith("event:") else kind
            if kind == "options" and not first:
                first = time.perf_counter() - began
            if kind == "ended":
                break
        connection.close()
        self.ask("DELETE", f"/api/searches/{made['id']}")
        return first, time.perf_counter() - began


def searches(port: int, rows: list[Any], at_once: int) -> list[float]:
    """Return the waits for first cards when several search at once."""
    with ThreadPoolExecutor(at_once) as pool:
        client = Client(port)
        running = [pool.submit(client.first_card, rows[i % len(rows)]) for i in range(at_once)]
        return [search.result()[0] for search in running]


def measure(
    others: ProcessPoolExecutor, port: int, rows: list[Any], at_once: int
) -> tuple[list[float], list[float]]:
    """Return the waits for first cards, and those for small calls meanwhile.

    The searches are followed by a process of their own: else we would measure ourselves.
    """
    client, running = Client(port), others.submit(searches, port, rows, at_once)
    while not running.done():
        client.decide(rows[len(client.waits) % len(rows)])
        time.sleep(0.01)
    return running.result(), client.waits


def main() -> None:
    """Print both, and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--searches", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    found: dict[int, tuple[list[float], list[float]]] = {}
    with server(given.searches) as port, ProcessPoolExecutor(1) as others:
        client = Client(port)
        examples = client.ask("GET", f"/api/problems/{PROBLEM}/examples")["examples"]
        rows = [example["row"] for example in examples]
        measure(others, port, rows, 1)  # the first one loads what all others find loaded
        for _ in range(given.rounds):
            for at_once in (1, given.searches):
                cards, waits = measure(others, port, rows, at_once)
                noted = found.setdefault(at_once, ([], []))
                noted[0].extend(cards)
                noted[1].extend(waits)
    show(found, given.searches)


def show(found: dict[int, tuple[list[float], list[float]]], many: int) -> None:
    """Print milliseconds, and the ratio of many to one."""
    print(f"{'':28}{'one':>10}{f'{many} at once':>14}{'ratio':>8}")
    for name, part, figure in (
        ("first card, median", 0, statistics.median),
        ("first card, last of all", 0, max),
        ("decision, median", 1, statistics.median),
        ("decision, 95th percentile", 1, _p95),
    ):
        one, more = figure(found[1][part]), figure(found[many][part])
        print(f"{name:28}{one * 1000:8.0f}ms{more * 1000:12.0f}ms{more / one:8.1f}")


def _p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))]


if __name__ == "__main__":
    main()
