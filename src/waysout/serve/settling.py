"""After a search: the rows that make what a person is shown exact.

A search spends its rows on finding ways, and walks them back to a tenth. The page shows them beside
strips, which are asked more closely, and two numbers for one thing are one too many. So, where the
model is at hand, the strips are asked as the search ends, the ways that are shown first are walked
back further, and ways and tipping points are read anew from all that was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from waysout.domain.memory import Past
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.domain.spelling import as_in_table
from waysout.report.result import Result
from waysout.search.archive import Archive
from waysout.search.finish import NEAREST, Finisher
from waysout.serve.strips import Strips

_BATCH = 12
_LIVE = (OutcomeKind.FOUND, OutcomeKind.BUDGET_SPENT, OutcomeKind.EXHAUSTED)


def settled(
    problem: Problem, query: Row, past: Past, result: Result, most: int
) -> tuple[Result, int]:
    """Return a result whose ways are exact, and how many rows that took, ``most`` at most.

    What the model says is remembered in ``past``.
    """
    if most < 1 or result.outcome.kind not in _LIVE:
        return result, 0
    settling = _Settling(problem, query, past, most)
    settling.ask_strips()
    settling.finish()
    archive = settling.archive
    found = result
    if not result.options and len(archive):  # a strip found what the search did not
        outcome = replace(result.outcome, kind=OutcomeKind.FOUND, best_probability=None)
        found = replace(result, options=tuple(archive.options()), outcome=outcome)
    if found.options:
        found = replace(found, ways=archive.ways())
    found = as_in_table(problem.schema, replace(found, tipping=archive.tipping()))
    return found, settling.used


class _Settling:
    """Rows asked for one person, on top of those that are known."""

    def __init__(self, problem: Problem, query: Row, past: Past, most: int) -> None:
        answers = problem.oracle.ask([query])
        goal = problem.goal.for_query(float(answers.probability[0]), bool(answers.decision[0]))
        self.problem = replace(problem, goal=goal)
        self.query = query
        self.archive = Archive(self.problem, query)
        self.used = 0
        self._past = past
        self._most = most
        # What the locks of today forbid was asked when they were others.
        self._recall([row for row in past.answered if not problem.violations(query, row)])

    def ask_strips(self) -> None:
        """Ask what each lever does alone, as the page will draw it."""
        strips = Strips(
            self.problem, self.query, self.query, self.problem.schema.names, most=self._most
        )
        strips.answer()
        self._take([row for row in strips.asked if row != self.query])

    def finish(self) -> None:
        """Walk back what is shown first, and ask what is open about it."""
        finisher = Finisher(self.archive, near=NEAREST)
        while (left := self._most - self.used) > 0:
            rows = [row for row, _ in finisher.rows(min(_BATCH, left))]
            if not rows:
                return
            self._take(rows)

    def _take(self, rows: Sequence[Row]) -> None:
        new = [row for row in rows if row not in self._past.answered]
        if new:
            self._past.add_answers(new, self.problem.oracle.ask(new))
            self.used += len(new)
            self._recall(new)

    def _recall(self, rows: Sequence[Row]) -> None:
        if not rows:
            return
        told = self.archive.judge(rows, self._past.answers(rows))
        for row, (probability, valid) in zip(rows, told, strict=True):
            reasons = self._past.reasons.get(row, ())
            self.archive.recall(row, self.problem.key(row), probability, valid, reasons)
