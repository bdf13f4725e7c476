"""Which row came from which: the tree of what a search has tried, for whoever watches it grow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from waysout.domain.problem import Problem
from waysout.domain.schema import Row, Value
from waysout.run.progress import Tried


class Lineage:
    """Numbers the rows of one person, the query being 0, and finds each a parent.

    The parent is the row that a method says it came from; where it says none, the largest one tried
    before whose changes are all among the row's own, and the first of those that are equally large.
    """

    def __init__(self, problem: Problem, query: Row) -> None:
        self._problem = problem
        self._query = query
        self._numbers: dict[Row, int] = {query: 0}
        self._changes: list[frozenset[tuple[str, Value]]] = [frozenset()]

    def add(self, tried: Iterable[Tried]) -> list[dict[str, Any]]:
        """Return the rows that are new, with their numbers and parents."""
        return [self._add(one) for one in tried if one.row not in self._numbers]

    def _add(self, one: Tried) -> dict[str, Any]:
        changes = self._problem.changes(self._query, one.row)
        edits = frozenset((name, new) for name, (_, new) in changes.items())
        told = self._numbers.get(one.came_from) if one.came_from is not None else None
        parent = self._largest_within(edits) if told is None else told
        number = self._numbers[one.row] = len(self._changes)
        self._changes.append(edits)
        return {
            "id": number,
            "parent": parent,
            "changes": {name: list(pair) for name, pair in changes.items()},
            "probability": one.probability,
            "approved": one.approved,
        }

    def _largest_within(self, edits: frozenset[tuple[str, Value]]) -> int:
        within = (i for i, other in enumerate(self._changes) if other < edits)
        return max(within, key=lambda i: (len(self._changes[i]), -i), default=0)
