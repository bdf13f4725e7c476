"""How long the parts that every search leans on take, as ratios within one run.

    .venv/bin/python benchmarks/domain.py

Absolute times are this machine's; the ratios are what to compare.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from timing import seconds

from waysout.datasets import registry
from waysout.datasets.load import labelled
from waysout.datasets.table import read_table
from waysout.domain.distance import Distance
from waysout.domain.key import Key
from waysout.domain.schema import Row


def starting() -> None:
    """Compare the command line's start with Python's own."""
    bare = seconds(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), 0.5)
    for title, args in (("import waysout", ["-c", "import waysout"]),
                        ("waysout --help", ["-m", "waysout", "--help"])):  # fmt: skip
        command = [sys.executable, *args]
        whole = seconds(lambda c=command: subprocess.run(c, capture_output=True, check=True), 0.5)  # type: ignore[misc]
        print(f"{title}: {whole:.3f} s, {whole / bare:.1f} × the start of Python ({bare:.3f} s)")


def distances(rows: list[Row]) -> None:
    """Compare one pass over 10,000 rows with 10,000 single distances."""
    schema = registry.card("synthetic").schema
    archive_rows = [rows[i % len(rows)] for i in range(10_000)]
    distance = Distance.fit(schema, rows)
    archive = schema.encode(archive_rows)
    one_pass = seconds(lambda: distance.between(archive[0], archive))
    singly = seconds(lambda: [distance(rows[0], row) for row in archive_rows[:500]]) * 20
    print(f"distance to 10,000 rows: {one_pass * 1e3:.2f} ms in one pass, "
          f"{singly / one_pass:.0f} × faster than one by one")  # fmt: skip


def judging(rows: list[Row]) -> None:
    """Show what a candidate costs before the oracle sees it."""
    card = registry.card("synthetic")
    rules, key = card.rules("realistic"), Key(card.schema, card.bins)
    generator = np.random.default_rng(0)
    pairs = [(rows[i], rows[j]) for i, j in generator.integers(len(rows), size=(1000, 2))]
    check = seconds(lambda: [rules.violations(a, b) for a, b in pairs]) / 1000
    name = seconds(lambda: [key(b) for _, b in pairs]) / 1000
    print(f"rules of one candidate: {check * 1e6:.0f} µs; its key: {name * 1e6:.0f} µs")


if __name__ == "__main__":
    table = labelled(registry.card("synthetic"), read_table(registry.get("synthetic")))
    starting()
    distances(list(table.rows))
    judging(list(table.rows))
