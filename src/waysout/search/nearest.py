"""The nearest approved rows of the user's own data, as far as the rules let one become like them.

What tools that look for a "nearest unlike neighbour" give: a neighbour is approved by its label,
whatever the oracle says about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np

from waysout.domain.known import Known, approved, need_known
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.search.base import Case, Method, Search, least
from waysout.search.batches import BATCH, BatchSearch, Candidate
from waysout.search.space import Projection

NEIGHBOURS = 500


@dataclass(frozen=True)
class NearestRows(Method):
    """Tries the ``neighbours`` nearest approved rows, nearest first."""

    name: ClassVar[str] = "nearest"
    needs_known: ClassVar[bool] = True

    neighbours: int = least(1, NEIGHBOURS)
    batch: int = least(1, BATCH)

    def start(self, case: Case) -> Search:
        """Return a search over the known rows."""
        return _NearestSearch(case, need_known(case.known, "the method 'nearest'"), self)


class _NearestSearch(BatchSearch):
    def __init__(self, case: Case, known: Known, method: NearestRows) -> None:
        super().__init__(case, method.batch)
        self._known = known
        self._numbers = nearest(case.problem, case.query, known, method.neighbours)
        self._nearest_first = self._all_candidates()

    def _all_candidates(self) -> Iterator[Candidate]:
        project = Projection(self.case.problem, self.case.query)
        for number in self._numbers:
            reason = f"like row {number} of your data ({self.case.problem.yes})"
            candidate = self._candidate(project(self._known.rows[number]), reason)
            if candidate is not None:
                yield candidate

    def _batch(self, most: int) -> list[Candidate]:
        return list(islice(self._nearest_first, most))

    def _nothing_left(self) -> str:
        if not self._numbers:
            return f"none of the {len(self._known.rows)} rows of your data is labelled approved"
        return f"all {len(self._numbers)} nearest approved rows of your data were tried"


def nearest(problem: Problem, query: Row, known: Known, most: int) -> list[int]:
    """Return the numbers of the approved rows nearest to a query; among equals, the first."""
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
