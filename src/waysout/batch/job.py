"""What travels between the driver of a batch and its workers: the job, parts and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from waysout.batch.tables import Contents
from waysout.domain.budget import Spent
from waysout.domain.known import Known
from waysout.domain.memory import Memory
from waysout.domain.problem import Problem
from waysout.domain.result import ResultData
from waysout.oracles.watchdog import ROW_SECONDS
from waysout.run.options import Options

BEGUN = "begun"
"""The event that the store of an isolated part holds for each person whose search was started."""
_FOUND = ("ways", "options", "approved_rows")


@dataclass(frozen=True)
class BatchJob:
    """Everything a worker needs; it can be pickled, and every worker gets the same.

    ``make`` makes the problem, with the worker's own copy of the model. ``options`` are those of
    `find_many` that decide what a search does. ``steady`` says whether the model answers the same
    row the same way: it was probed once for the whole batch. ``trees`` is how many searches a
    worker runs at once. ``contents`` says what has a row in the files, and ``as_in_table`` whether
    features hold the values of the user's table there. ``row_seconds`` is how long the model may
    take for a row: a worker that is silent for longer than a part may take is ended.
    """

    make: Callable[[], Problem]
    options: Options
    out: Path
    columns: tuple[str, ...]
    trees: int
    known: Known | None = None
    memory: Memory | None = None
    steady: bool = True
    keep_stores: bool = False
    contents: Contents = Contents.WAYS
    as_in_table: bool = True
    row_seconds: float = ROW_SECONDS


@dataclass(frozen=True)
class PartTask:
    """Consecutive rows of the input: the unit of work, of storage and of resuming.

    A part travels with its rows: only the driver reads the table, which may be a gzipped CSV that
    workers could not seek in, or out of their reach. A part that has killed its worker is
    ``isolated``: it has a worker to itself, which searches for one person at a time and leaves out
    those in ``skip``, each of whom was being searched for when a worker died. Those in ``settled``
    have failed in an earlier attempt, and what is on file of them is their result.
    """

    part: int
    first: int
    """The index of its first row in the input."""
    rows: Sequence[Mapping[str, Any]]
    cut: bool = False
    """Whether a limit ended it early: it may have more rows another time."""
    isolated: bool = False
    skip: tuple[int, ...] = ()
    settled: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class BatchTally:
    """How many people, how their searches ended, what was found and spent; tallies add up."""

    outcomes: Mapping[str, int] = field(default_factory=dict)
    options: int = 0
    spent: Spent = field(default_factory=Spent)
    """Without seconds: searches run side by side, so their sum means nothing."""
    ways: int = 0
    approved_rows: int = 0

    @classmethod
    def of(cls, result: ResultData) -> BatchTally:
        """Return the tally of one person."""
        spent = replace(result.ledger, seconds=0.0)
        approved = int(result.metrics.get("valid") or 0)
        outcomes = {str(result.outcome.kind): 1}
        return cls(outcomes, len(result.options), spent, len(result.ways), approved)

    @property
    def people(self) -> int:
        """How many people were counted."""
        return sum(self.outcomes.values())

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, the costs side by side with the rest."""
        spent = self.spent.as_dict()
        del spent["seconds"]
        found = {name: getattr(self, name) for name in _FOUND}
        return {"outcomes": dict(self.outcomes), **found, **spent}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> BatchTally:
        """Read what `as_dict` wrote."""
        # Releases before ways wrote of the options alone.
        found = {name: table.get(name, 0) for name in _FOUND}
        spent = {name: n for name, n in table.items() if name not in ("outcomes", *_FOUND)}
        return cls(table["outcomes"], spent=Spent.from_dict(spent), **found)

    def __add__(self, other: BatchTally) -> BatchTally:
        outcomes = Counter(self.outcomes) + Counter(other.outcomes)
        found = {name: getattr(self, name) + getattr(other, name) for name in _FOUND}
        return BatchTally(outcomes, spent=self.spent + other.spent, **found)


@dataclass(frozen=True)
class PartReport:
    """What became of a part: ``tally`` counts its people, ``on_file`` those of an earlier run.

    It is ``done`` when its files are written, which needs a result for everyone. Otherwise
    ``stopped`` gives the reason if it stops the whole batch (with ``exit_code``), and ``lost`` says
    that the worker died, or had an error that may be the fault of its process: then ``stopped`` is
    that error. ``worn`` says that the worker is to be replaced, since calls of the model hang in
    it, or since the model may have changed its process.

    ``settled`` are those who failed by what is their own. ``doubted`` failed by an error that
    nobody expects: of their own, if they were alone with the worker, and else perhaps by what the
    model did to the process when it was asked about others.
    """

    part: int
    tally: BatchTally = field(default_factory=BatchTally)
    on_file: int = 0
    done: bool = False
    stopped: str = ""
    exit_code: int = 0
    lost: bool = False
    worn: bool = False
    settled: tuple[int, ...] = ()
    doubted: tuple[int, ...] = ()
