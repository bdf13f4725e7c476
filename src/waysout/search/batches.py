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
class Candidate:
    """A feasible row on its way to the oracle.

    >>> from waysout.search import Candidate
    >>> Candidate((41, "full-time"), "the row's key", ("works more hours",)).row
    (41, 'full-time')
    """

    row: Row
    key: str
    reasons: tuple[str, ...] = ()


class BatchSearch(Search):
    """Asks one batch after the other, so that options always come in the same order.

    Subclasses make the rows (`_batch`), passing each through `_candidate`, and say why they can
    make no more (`_nothing_left`). Every valid row met is an option, not only those a published
    method would return: the count is then the same for all methods.

    With ``published`` it is the other way round, to compare with published figures: only what the
    subclass passes to `_return` is an option, every row that it makes is asked and paid for, be it
    known already, and a batch that the rows left do not pay for whole ends the search.

    >>> from dataclasses import dataclass
    >>> import waysout
    >>> from waysout.search import BatchSearch
    >>> class SavingsOnly(BatchSearch):
    ...     def __init__(self, case):
    ...         super().__init__(case)
    ...         rules, query = case.problem.rules, case.query
    ...         self.rows = (rules.apply(query, {"savings": 1000 * n}) for n in range(50))
    ...     def _batch(self, most):
    ...         return self._candidates(self.rows, most)
    ...     def _nothing_left(self):
    ...         return "every thousand was tried"
    >>> @dataclass(frozen=True)
    ... class Savings(waysout.Method):
    ...     name = "savings"
    ...     def start(self, case):
    ...         return SavingsOnly(case)
    >>> people = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["savings"] > 9999, people.card)
    >>> problem = waysout.Problem.from_card(people.card, oracle, training=people.rows)
    >>> result = waysout.find(problem, people.rows[828], method=Savings(), data=people)
    >>> [list(way.changes) for way in result.ways]
    [['savings']]
    """

    def __init__(self, case: Case, size: int = BATCH, *, published: bool = False) -> None:
        super().__init__(case)
        self._size = size
        self._published = published
        self._keys = set(self.archive.asked)

    @abstractmethod
    def _batch(self, most: int) -> list[Candidate]:
        """Return at most ``most`` candidates; an empty list ends the search.

        A published search may return more: then they do not fit, and the search ends.
        Make them with `_candidate` or `_candidates`, which check the rules and drop repeats.
        """

    @abstractmethod
    def _nothing_left(self) -> str:
        """Return why no candidate is left."""

    def _next(self) -> Work | None:
        if self.waiting:
            return None
        if self.rows_left < 1:
            rows = self.case.budget.oracle_rows
            self._end(OutcomeKind.BUDGET_SPENT, f"all {rows} oracle rows are spent")
            return None
        batch = self._batch(int(min(self._size, self.rows_left)))
        if not batch:
            self._end(OutcomeKind.EXHAUSTED, self._nothing_left())
            return None
        if len(batch) > self.rows_left:
            left, rows = int(self.rows_left), self.case.budget.oracle_rows
            reason = f"{left} of {rows} oracle rows are left, and the next step takes {len(batch)}"
            self._end(OutcomeKind.BUDGET_SPENT, reason)
            return None
        return self._evaluate([candidate.row for candidate in batch], batch)

    def _candidates(self, rows: Iterable[Row], most: int) -> list[Candidate]:
        """Return the first ``most`` rows that can be asked; the rows after them are not drawn."""
        return list(islice(filter(None, map(self._candidate, rows)), most))

    def _candidate(self, row: Row, *reasons: str) -> Candidate | None:
        """Return a row as a candidate, or count why it cannot be asked."""
        self.archive.generated += 1
        key = self.case.problem.key(row)
        if key in self._keys and not self._published:
            fault = "repeated"
        elif broken := self.case.problem.violations(self.case.query, row):
            fault = f"breaks rule: {broken[0].rule}"
        elif row == self.case.query and not self._published:
            fault = "no change"
        else:
            self._keys.add(key)
            return Candidate(row, key, reasons)
        self.archive.rejections[fault] += 1
        return None

    def _on_answers(
        self, batch: Sequence[Candidate], rows: Sequence[Row], answers: Answers
    ) -> None:
        judged = self.archive.judge(rows, answers)
        for candidate, (chance, valid) in zip(batch, judged, strict=True):
            if self._published:
                self.archive.pass_by(candidate.row, candidate.key, chance, valid)
            else:
                self.archive.take(candidate.row, candidate.key, chance, valid, candidate.reasons)
        self._learn(batch, [chance for chance, _ in judged], [valid for _, valid in judged])

    def _learn(
        self, batch: Sequence[Candidate], chances: Sequence[float], valid: Sequence[bool]
    ) -> None:
        """Learn from the answers to a batch.

        ``chances`` are the oracle's probabilities of approval, ``valid`` whether each row is an
        option: it meets the goal and keeps the rules. To compare chances, use
        ``problem.goal.worth(chance)``: a goal may ask for less.
        """

    def _return(self, candidate: Candidate, chance: float) -> None:
        """Make an option of a valid row that a published search returns."""
        self.archive.recall(candidate.row, candidate.key, chance, True, candidate.reasons)
