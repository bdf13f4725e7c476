"""The nearest approved rows of the user's own data, as far as the rules let one become like them.

What tools that look for a "nearest unlike neighbour" give: a neighbour is approved by its label,
whatever the oracle says of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np

from waysout.baselines.batches import BATCH, BatchSearch, Idea
from waysout.domain.known import Known, approved
from waysout.domain.problem import Problem
from waysout.domain.schema import Row, Value
from waysout.errors import InputError
from waysout.search.base import Case, Method, Search, least

NEIGHBOURS = 500


@dataclass(frozen=True)
class NearestRows(Method):
    """Tries the ``neighbours`` nearest approved rows, nearest first."""

    name: ClassVar[str] = "nearest"
    needs_known: ClassVar[bool] = True

    neighbours: int = least(1, NEIGHBOURS)
    batch: int = least(1, BATCH)

    def start(self, case: Case) -> Search:
        """Return a search over the rows that are known."""
        if case.known is None:
            raise InputError(
                "the method 'nearest' needs rows whose outcome is known: give it your data "
                "(data=…, --data on the command line)"
            )
        return _NearestSearch(case, case.known, self)


class _NearestSearch(BatchSearch):
    def __init__(self, case: Case, known: Known, method: NearestRows) -> None:
        super().__init__(case, method.batch)
        self._known = known
        self._numbers = nearest(case.problem, case.query, known, method.neighbours)
        self._projection = Projection(case.problem, case.query)
        self._ideas = self._make_ideas()

    def _make_ideas(self) -> Iterator[Idea]:
        yes = self.case.problem.yes
        for number in self._numbers:
            row = self._projection(self._known.rows[number])
            idea = self._idea(row, f"like row {number} of your data ({yes})")
            if idea is not None:
                yield idea

    def _batch(self, most: int) -> list[Idea]:
        return list(islice(self._ideas, most))

    def _nothing_left(self) -> str:
        if not self._numbers:
            return f"none of the {len(self._known.rows)} rows of your data is labelled approved"
        return f"all {len(self._numbers)} nearest approved rows of your data were tried"


# Finding neighbours -----------------------------------------------------------------------------


def nearest(problem: Problem, query: Row, known: Known, most: int) -> list[int]:
    """Return the numbers of the approved rows nearest to a query; of equally near, the first."""
    neighbours = approved(known, problem.schema)
    distances = problem.distance.between(problem.schema.encode([query])[0], neighbours.matrix)
    if most < len(distances):
        # Not argpartition: which of several equally far it keeps depends on the processor.
        near = np.flatnonzero(distances <= np.partition(distances, most - 1)[most - 1])
    else:
        near = np.arange(len(distances))
    order = near[np.argsort(distances[near], kind="stable")][:most]
    found: list[int] = neighbours.numbers[order].tolist()
    return found


# Becoming like one ------------------------------------------------------------------------------


class Projection:
    """Makes a query as like other rows as the rules allow."""

    def __init__(self, problem: Problem, query: Row) -> None:
        self.problem = problem
        self.query = query
        levers = problem.rules.levers(query)
        self._levers = {name: lever for name, lever in levers.items() if lever.is_open}
        # A value that breaks a rule about itself cannot stay, however like the other's it is.
        self._broken = {violation.features for violation in problem.violations(query, query)}

    def __call__(self, goal: Row) -> Row:
        """Return the query made like another row; the query itself where nothing may be done.

        Where rules about several features forbid it, edits are taken back one by one: of those the
        broken rule names, the smallest, since the large ones are what makes the rows alike.
        """
        edits, sizes = self._edits(goal), dict[str, float]()
        row = self.problem.rules.apply(self.query, edits)
        while edits and (broken := self.problem.violations(self.query, row)):
            sizes = sizes or self._sizes(edits)
            named = [name for name in edits if name in broken[0].features]
            del edits[min(named or edits, key=sizes.__getitem__)]
            row = self.problem.rules.apply(self.query, edits)
        return row

    def _edits(self, goal: Row) -> dict[str, Value]:
        edits = {}
        for name, lever in self._levers.items():
            wanted = goal[self.problem.schema.index(name)]
            value = lever.towards(wanted, must_move=(name,) in self._broken)
            if value != lever.now:
                edits[name] = value
        return edits

    def _sizes(self, edits: dict[str, Value]) -> dict[str, float]:
        """Return how far each edit alone leads away."""
        apply, schema = self.problem.rules.apply, self.problem.schema
        alone = [apply(self.query, {name: value}) for name, value in edits.items()]
        encoded = schema.encode([self.query, *alone])
        distances = self.problem.distance.between(encoded[0], encoded[1:]).tolist()
        return dict(zip(edits, distances, strict=True))
