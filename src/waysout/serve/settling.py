"""After a search: the rows that make what a person is shown exact.

A search spends its rows on finding ways, and walks them back to a tenth. The page shows them beside
strips, which are asked more closely, and two numbers for one thing are one too many. So, where the
model is at hand, the strips are asked as the search ends, the ways that are shown first are walked
back further, and ways and tipping points are read anew from all that was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from waysout.domain.budget import Ledger
from waysout.domain.memory import Past
from waysout.domain.oracle import Answers, Oracle
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.domain.spelling import as_in_table
from waysout.errors import BudgetSpent, WaysoutError
from waysout.report.result import Result
from waysout.search.archive import Archive
from waysout.search.finish import NEAREST, Finisher
from waysout.serve.strips import Strips

_BATCH = 12
_LIVE = (OutcomeKind.FOUND, OutcomeKind.BUDGET_SPENT, OutcomeKind.EXHAUSTED)


def settled(
    problem: Problem,
    query: Row,
    past: Past,
    result: Result,
    ledger: Ledger,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Result:
    """Return a result whose ways are exact, as far as the rows of a ledger reach.

    What the model says is remembered in ``past``. Where it fails, or ``is_stopped`` says so before
    a batch, what was known before stands; the rows that were sent count all the same.
    """
    if ledger.rows_left < 1 or result.outcome.kind not in _LIVE:
        return result
    asking = _Asking(problem.oracle, query, past, ledger, is_stopped)
    try:
        settling = _Settling(replace(problem, oracle=asking), query, past)
        settling.ask_strips(asking.left)
        settling.finish(asking)
    except WaysoutError:
        return result
    archive = settling.archive
    found = result
    if not result.options and len(archive):  # a strip found what the search did not
        outcome = replace(result.outcome, kind=OutcomeKind.FOUND, best_probability=None)
        found = replace(result, options=tuple(archive.options()), outcome=outcome)
    if found.options:
        found = replace(found, ways=archive.ways())
    return as_in_table(problem.schema, replace(found, tipping=archive.tipping()))


class _Asking:
    """The model as it is asked here: new rows are charged as they are sent, and remembered.

    The person's own row was scored by the search.
    """

    watches = True

    def __init__(
        self,
        oracle: Oracle,
        query: Row,
        past: Past,
        ledger: Ledger,
        is_stopped: Callable[[], bool],
    ) -> None:
        self.name, self.labels_only = oracle.name, oracle.labels_only
        self._oracle, self._query, self._past = oracle, query, past
        self._known = past.copy()
        self._ledger = ledger
        self._is_stopped = is_stopped

    @property
    def left(self) -> int:
        """The number of rows that may still be."""
        return int(self._ledger.rows_left)

    def ask(self, rows: Sequence[Row]) -> Answers:
        """Return the answer for each row."""
        if self._is_stopped():
            raise BudgetSpent("stopped by request")
        known = self._known
        if new := [row for row in dict.fromkeys(rows) if row not in known.answered]:
            paid = [row for row in new if row != self._query]
            self._ledger.take_rows(len(paid))
            known.add_answers(new, self._oracle.ask(new))
            self._past.add_answers(paid, known.answers(paid))
        return known.answers(rows)


class _Settling:
    """Rows asked for one person, on top of those that are known."""

    def __init__(self, problem: Problem, query: Row, past: Past) -> None:
        answers = problem.oracle.ask([query])
        goal = problem.goal.for_query(float(answers.probability[0]), bool(answers.decision[0]))
        self.problem = replace(problem, goal=goal)
        self.query = query
        self.archive = Archive(self.problem, query)
        self._past = past
        # What the locks of today forbid was asked when they were others.
        self._recall([row for row in past.answered if not problem.violations(query, row)])

    def ask_strips(self, most: int) -> None:
        """Ask what each lever does alone, as the page will draw it."""
        strips = Strips(self.problem, self.query, self.query, self.problem.schema.names, most=most)
        strips.answer()
        self._recall([row for row in strips.asked if row != self.query])

    def finish(self, asking: _Asking) -> None:
        """Walk back what is shown first, and ask what is open about it."""
        finisher = Finisher(self.archive, near=NEAREST)
        while asking.left:
            rows = [row for row, _ in finisher.rows(min(_BATCH, asking.left))]
            if not rows:
                return
            asking.ask(rows)
            self._recall(rows)

    def _recall(self, rows: Iterable[Row]) -> None:
        new = [row for row in rows if row not in self.archive.answered]
        if not new:
            return
        told = self.archive.judge(new, self._past.answers(new))
        for row, (probability, valid) in zip(new, told, strict=True):
            reasons = self._past.reasons.get(row, ())
            self.archive.recall(row, self.problem.key(row), probability, valid, reasons)
