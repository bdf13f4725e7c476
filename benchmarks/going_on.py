"""What a memory is worth when a person locks a feature in the middle and goes on.

    python benchmarks/going_on.py loan adult --queries 30

Half of the rows are spent; then the feature that most options change is locked, and the other half
goes on with what is known (`memory=`). Next to it: the second half begun anew, which throws the
first away, and all rows with the lock known from the start, which nobody could know. No LLM is
asked. Counts are options under the lock. Needs the tables and their trained oracles.
"""

from __future__ import annotations

import argparse
from collections import Counter
from statistics import fmean

from paired import show
from yields import load

from waysout.datasets.queries import queries
from waysout.domain.memory import Memory
from waysout.domain.problem import Problem
from waysout.domain.rules import Immutable
from waysout.domain.schema import Row
from waysout.report.result import Result
from waysout.run.find import find


def search(problem: Problem, query: Row, rows: int, memory: Memory | None = None) -> Result:
    """Search without an LLM."""
    return find(problem, query, calls=0, oracle_rows=rows, memory=memory)


def compare(problem: Problem, query: Row, rows: int) -> tuple[int, int, int, int] | None:
    """Return what is kept, and what each way ends with; None where there is nothing to lock."""
    memory = Memory()
    first = search(problem, query, rows // 2, memory)
    levers = Counter(name for option in first.options for name in option.changes)
    if not levers:
        return None
    ((locked, used),) = levers.most_common(1)
    tighter = problem.with_rules([Immutable(features=[locked])])
    return (
        len(first.options) - used,
        len(search(tighter, query, rows // 2, memory).options),
        len(search(tighter, query, rows // 2).options),
        len(search(tighter, query, rows).options),
    )


def main() -> None:
    """Print a line for each table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--rows", type=int, default=150)
    given = parser.parse_args()
    lines = []
    for name in given.data:
        problem, data = load(name)
        people = [data.rows[number] for number in queries(name)[: given.queries]]
        found = [line for row in people if (line := compare(problem, row, given.rows))]
        means = [f"{fmean(counts):.1f}" for counts in zip(*found, strict=True)]
        lines.append((name, str(len(found)), *means))
    heads = ("table", "queries", "kept", "going on", "half anew", "all with the lock")
    show([heads, *lines], markdown=False)


if __name__ == "__main__":
    main()
