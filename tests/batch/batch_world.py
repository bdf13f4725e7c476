"""A batch of the small world: people as a table has them, and jobs for a worker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from run_world import SCHEMA, Adder, problem

from waysout.batch.job import BatchJob, PartTask
from waysout.batch.tables import people
from waysout.domain.problem import Problem
from waysout.run.options import Options

COLUMNS = (*SCHEMA.names, "who")


def record(a: object, b: object, c: object = "x", who: object = "") -> dict[str, Any]:
    return {"a": str(a), "b": str(b), "c": str(c), "who": who}


# Rows 2 and 5 are approved already, and row 6 cannot be read.
RECORDS = [
    record(1, 1), record(2, 1, "y"), record(9, 9), record(3, 0, "z"), record(0, 2), record(10, 0),
    record("many", 1), record(4, 4, "y"),
]  # fmt: skip


def small_problem() -> Problem:
    return problem()


class Made:
    """Makes the problem around a given oracle."""

    def __init__(self, oracle: Adder) -> None:
        self.oracle = oracle

    def __call__(self) -> Problem:
        return problem(oracle=self.oracle)


def job(
    out: Path, make: Any = small_problem, trees: int = 4, **options: Unpack[Options]
) -> BatchJob:
    given: Options = {
        "llm": "simulated:7", "calls": 3, "oracle_rows": 20, "seed": 0, **options
    }  # fmt: skip
    return BatchJob(make, given, out, COLUMNS, trees)


def task(rows: Sequence[dict[str, Any]] = RECORDS, part: int = 0, first: int = 0) -> PartTask:
    return PartTask(part, first, rows)


def told(out: Path, *but: str) -> dict[int, dict[str, Any]]:
    """Return all people of a batch by their rows, without what no two runs share."""
    found = [person for table in people(out) for person in table.to_pylist()]
    assert len({p["row_id"] for p in found}) == len(found)
    return {p["row_id"]: {k: v for k, v in p.items() if k not in ("seconds", *but)} for p in found}
