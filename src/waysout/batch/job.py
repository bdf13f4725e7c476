"""What a batch is made of: the job, its parts, and what becomes of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from waysout.domain.known import Known
from waysout.domain.memory import Memory
from waysout.domain.problem import Problem
from waysout.domain.result import ResultData
from waysout.run.options import Options

BEGUN = "begun"
"""What a store notes of each person of a part that is done with care: who was the last?"""


@dataclass(frozen=True)
class BatchJob:
    """All that a worker needs; it can be pickled, and every worker gets the same.

    ``make`` makes the problem, with a model of the worker's own. ``options`` are those of
    `find_many` that decide what a search does. ``steady`` is what trying the model has shown: it
    is tried once for all. ``trees`` are the searches that a worker has under way at once.
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


@dataclass(frozen=True)
class PartTask:
    """Rows of the input that follow each other, the first of them with its number.

    A part that has killed its worker before is done with care: one person after the other, and
    without those of ``skip``, each of whom was being searched when a worker died.
    """

    part: int
    first: int
    rows: Sequence[Mapping[str, Any]]
    cut: bool = False
    """Whether the limit ended it early: more rows may follow another time."""
    careful: bool = False
    skip: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class BatchTally:
    """How many people, how they ended, what was found and what it cost; tallies add up."""

    outcomes: Mapping[str, int] = field(default_factory=dict)
    options: int = 0
    llm_calls: int = 0
    attempts: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cached_tokens: int = 0
    oracle_rows: int = 0
    setup_rows: int = 0
    money: float = 0.0

    @classmethod
    def of(cls, result: ResultData) -> BatchTally:
        """Return the tally of one person."""
        spent = result.ledger
        return cls(
            {str(result.outcome.kind): 1},
            len(result.options),
            spent.llm_calls,
            spent.attempts,
            spent.tokens_in,
            spent.tokens_out,
            spent.cached_tokens,
            spent.oracle_rows,
            spent.setup_rows,
            spent.money,
        )

    @property
    def people(self) -> int:
        """How many people were counted."""
        return sum(self.outcomes.values())

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            **{f.name: getattr(self, f.name) for f in fields(self)},
            "outcomes": dict(self.outcomes),
        }

    def __add__(self, other: BatchTally) -> BatchTally:
        numbers = [f.name for f in fields(self) if f.name != "outcomes"]
        summed = {name: getattr(self, name) + getattr(other, name) for name in numbers}
        return replace(self, outcomes=Counter(self.outcomes) + Counter(other.outcomes), **summed)


@dataclass(frozen=True)
class PartReport:
    """What became of a part: ``tally`` counts its people, ``on_file`` those of an earlier sitting.

    It is ``done`` when its files are written. It is not when somebody was interrupted, and
    ``stopped`` says why where that meets everybody (``exit_code`` as of the error). A worker that
    died tells nothing but that the part is ``lost``.
    """

    part: int
    tally: BatchTally = field(default_factory=BatchTally)
    on_file: int = 0
    done: bool = False
    stopped: str = ""
    exit_code: int = 0
    lost: bool = False


def parts_at_once(trees: int, part_rows: int) -> int:
    """Return how many parts a worker has at once: while one runs out, the next fills the trees.

    >>> parts_at_once(64, 200), parts_at_once(256, 100)
    (2, 4)
    """
    return 1 + -(-trees // part_rows)
