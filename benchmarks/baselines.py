"""How fast the methods without an LLM are, and how much memory they take.

    python benchmarks/baselines.py adult --rows 1000

Prints rows a second and memory for each arm of the plan `baselines`, one arm after the other, each
in a process of its own. Needs the table and its trained oracle.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from timing import DATASETS

from waysout.bench.arms import Arm
from waysout.bench.cell import Cell
from waysout.bench.measure import environment
from waysout.bench.plan import load_plan
from waysout.bench.tasks import Task
from waysout.bench.workers import search


def peak() -> float:
    """Return the peak memory of this process in MB."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)


def measure(arm: Arm, queries: int) -> tuple[int, float, float, float]:
    """Return rows asked, seconds, peak memory, and by how much the searches raised it."""
    place = environment(arm.data)
    arm.made.learn(place.problem(arm.rules), place.data, lambda what, share: None)

    def rows(query: int) -> int:
        found = search(Task(arm, "", (query,)), "", Path())
        if not isinstance(found, Cell):
            raise SystemExit(f"{arm.name}: {found.reason}")
        return int(found.spent["rows"])

    rows(arm.people[queries])  # packages and models are loaded now
    before, began = peak(), time.perf_counter()
    asked = sum(map(rows, arm.people[:queries]))
    return asked, time.perf_counter() - began, peak(), peak() - before


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dataset", choices=DATASETS)
    parser.add_argument("--rows", type=int, default=1000, help="150, 1000 or 10000")
    parser.add_argument("--queries", type=int, default=3)
    given = parser.parse_args()
    print(
        "| arm | rows | seconds | rows a second | memory (MB) | of it |\n|---|---|---|---|---|---|"
    )
    for arm in load_plan("baselines").cut(only=[given.dataset]).arms:
        if arm.rows == given.rows:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                rows, spent, most, more = pool.submit(measure, arm, given.queries).result()
            name = arm.name.removesuffix(f" rows={arm.rows}")
            speed = f"{spent:.1f} | {rows / spent:,.0f}"
            print(f"| {name} | {rows:,} | {speed} | {most:.0f} | +{more:.0f} |", flush=True)


if __name__ == "__main__":
    main()
