"""Uniform feasible edits: the floor that every method must beat.

Rows whose key was asked before are drawn again: a floor that spends its rows on repeats would be
beaten too easily.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from waysout.domain.schema import Row, Value
from waysout.search.base import Case, Method, Search, least
from waysout.search.batches import BATCH, BatchSearch, Candidate


@dataclass(frozen=True)
class RandomEdits(Method):
    """Changes one to ``most_changes`` features, drawn at random, to values drawn at random.

    A batch is made of at most ``tries`` draws. If none of them is new and feasible, the search
    ends.
    """

    name: ClassVar[str] = "random"

    most_changes: int = least(1, 3)
    batch: int = least(1, BATCH)
    tries: int = least(1, 2000)

    def start(self, case: Case) -> Search:
        """Return a search whose draws follow from the seed and the query."""
        return _RandomSearch(case.with_row_limit(), self)


class _RandomSearch(BatchSearch):
    def __init__(self, case: Case, method: RandomEdits) -> None:
        super().__init__(case, method.batch)
        levers = case.problem.rules.levers(case.query)
        self._levers = [(name, lever) for name, lever in levers.items() if lever.is_open]
        self._most_changes = min(method.most_changes, len(self._levers))
        self._tries = method.tries
        self._rng = case.generator()

    def _batch(self, most: int) -> list[Candidate]:
        drawn = (self._draw() for _ in range(self._tries if self._levers else 0))
        return self._candidates((row for row in drawn if row is not None), most)

    def _draw(self) -> Row | None:
        count = int(self._rng.integers(1, self._most_changes, endpoint=True))
        edits: dict[str, Value] = {}
        for i in self._rng.choice(len(self._levers), count, replace=False):
            name, lever = self._levers[i]
            edits[name] = lever.draw(self._rng)
            if not lever.admits(edits[name]):
                return None  # drawing anew is what keeps the admitted values equally likely
        return self.case.problem.rules.apply(self.case.query, edits)

    def _nothing_left(self) -> str:
        if not self._levers:
            return "no feature may change"
        return f"{self._tries} random edits in a row gave nothing new that the rules allow"
