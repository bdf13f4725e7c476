"""A search that sends rows to the oracle batch by batch, each key once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.search.base import Case, Search
from waysout.search.work import Work

BATCH = 50


@dataclass(frozen=True, slots=True)
class Idea:
    """A feasible row on its way to the oracle."""

    row: Row
    key: str
    reasons: tuple[str, ...] = ()


class BatchSearch(Search):
    """Asks one batch after the other, so that options always come in the same order.

    Subclasses make the rows (`_batch`), passing each through `_idea`, and say what it means that
    they can make no more (`_nothing_left`).
    """

    def __init__(self, case: Case, size: int = BATCH) -> None:
        super().__init__(case)
        self._size = size
        self._keys = set(self.archive.asked)

    @abstractmethod
    def _batch(self, most: int) -> list[Idea]:
        """Return at most so many ideas; none ends the search."""

    @abstractmethod
    def _nothing_left(self) -> str:
        """Say why no idea is left."""

    def _next(self) -> Work | None:
        if self.waiting:
            return None
        if self.rows_left < 1:
            rows = self.case.budget.oracle_rows
            self._end(OutcomeKind.BUDGET_SPENT, f"all {rows} oracle rows are spent")
            return None
        ideas = self._batch(int(min(self._size, self.rows_left)))
        if not ideas:
            self._end(OutcomeKind.EXHAUSTED, self._nothing_left())
            return None
        return self._evaluate([idea.row for idea in ideas], ideas)

    def _ideas(self, rows: Iterable[Row], most: int) -> list[Idea]:
        """Return at most so many of the rows as ideas; what comes after is not looked at."""
        return list(islice(filter(None, map(self._idea, rows)), most))

    def _idea(self, row: Row, *reasons: str) -> Idea | None:
        """Return a row as an idea, or count why it is none."""
        self.archive.generated += 1
        key = self.case.problem.key(row)
        fault = self._fault(row, key)
        if fault:
            self.archive.rejections[fault] += 1
            return None
        self._keys.add(key)
        return Idea(row, key, reasons)

    def _fault(self, row: Row, key: str) -> str:
        if key in self._keys:
            return "repeated"
        broken = self.case.problem.violations(self.case.query, row)
        if broken:
            return f"breaks rule: {broken[0].rule}"
        return "no change" if row == self.case.query else ""

    def _on_answers(self, ideas: Sequence[Idea], rows: Sequence[Row], answers: Answers) -> None:
        met = self.case.problem.goal.met(answers).tolist()
        chances = answers.probability.tolist()
        valid = [self.archive.is_valid(i.row, yes) for i, yes in zip(ideas, met, strict=True)]
        for idea, chance, is_valid in zip(ideas, chances, valid, strict=True):
            self.archive.take(idea.row, idea.key, chance, is_valid, idea.reasons)
        self._learn(ideas, chances, valid)

    def _learn(
        self, ideas: Sequence[Idea], chances: Sequence[float], valid: Sequence[bool]
    ) -> None:
        """Hear what became of a batch."""
