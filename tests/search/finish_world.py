"""Searches to finish, and what is asked of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind, Way
from waysout.domain.rules import Linked, OneHot
from waysout.domain.schema import Feature, Row, Schema
from waysout.llm.simulated import Simulated
from waysout.search.base import Case, Search
from waysout.search.finish import Finishing, without_set_aside
from waysout.search.work import Evaluate, Propose, Work

GROUPED = Schema(
    (
        Feature("school", "category", levels=("basic", "high")),
        Feature("years", "integer", range=(0, 20)),
        Feature("rents", "boolean"),
        Feature("owns", "boolean"),
    )
)
GROUPS = (
    Linked(feature="school", sets="years", map={"basic": 9, "high": 12}),
    OneHot(features=["rents", "owns"]),
)


class Handed(Search):
    """Asks some rows and ends."""

    def __init__(self, given_case: Case, rows: Sequence[Row], *reasons: str) -> None:
        super().__init__(given_case)
        self.rows, self.reasons = rows, reasons

    def _next(self) -> Work | None:
        if self.asked == 0 and self.rows:
            return self._evaluate(self.rows)
        if not self.waiting:
            self._end(OutcomeKind.EXHAUSTED, "all were asked")
        return None

    def _on_answers(self, context: Any, rows: Sequence[Row], answers: Answers) -> None:
        judged = self.archive.judge(rows, answers)
        for row, (chance, valid) in zip(rows, judged, strict=True):
            self.archive.take(row, self.case.problem.key(row), chance, valid, self.reasons)


def finished(
    given_case: Case, *rows: Row, aside: int = 40, reasons: Sequence[str] = ()
) -> tuple[Finishing, list[list[Row]]]:
    """Finish some rows; returns the search and the batches that finishing asked."""
    inner = Handed(without_set_aside(given_case, aside), rows, *reasons)
    search = Finishing(given_case, inner, aside)
    works = run(search, given_case)
    return search, [list(work.rows) for work in works[1:] if isinstance(work, Evaluate)]


def run(search: Search, given_case: Case, order: Callable[[int], int] = lambda n: 0) -> list[Work]:
    """Drive a search with all it hands out; ``order`` says which of n works is answered next."""
    out: list[Work] = []
    asked: list[Work] = []
    llm = Simulated(3)
    while True:
        while (work := search.ask()) is not None:
            out.append(work)
            asked.append(work)
        if not out:
            return asked
        answer_one(search, out.pop(order(len(out))), given_case, llm)


def answer_one(search: Search, work: Work, given_case: Case, llm: Simulated) -> None:
    if isinstance(work, Propose):
        search.tell(work, asyncio.run(llm.complete(work.request)))
    else:
        search.tell(work, given_case.problem.oracle.ask(work.rows))


def flat(batches: Sequence[Sequence[Row]]) -> list[Row]:
    return [row for batch in batches for row in batch]


def shown(search: Search) -> list[tuple[Any, ...]]:
    return [tuple(way.row.values()) for way in search.archive.ways()]


def flags(way: Way) -> tuple[bool | None, ...]:
    return way.irreducible, way.tight, way.holds


def reason_of(search: Search) -> str:
    assert search.ending is not None
    return search.ending.reason
