"""How long something takes, for the benchmarks beside it."""

from __future__ import annotations

import time
from collections.abc import Callable

DATASETS = ("loan", "adult", "credit", "heloc")


def seconds(work: Callable[[], object], at_least: float = 0.2) -> float:
    """Return the seconds one call takes, the best of several rounds."""
    best, spent = float("inf"), 0.0
    while spent < at_least:
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
        spent += best
    return best
