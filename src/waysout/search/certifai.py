"""CERTIFAI: a genetic search for approved rows near the query.

After Sharma and others (2020). The population is carried from generation to generation, features
that may not change keep the query's values after every operator, and rows asked before are bred
again. As published, each generation is drawn afresh, and the nearest of all approved rows returned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from waysout.domain.result import OutcomeKind
from waysout.search.base import Case, Method, Search, least, within
from waysout.search.batches import BatchSearch, Candidate
from waysout.search.candidates import DECIMALS
from waysout.search.space import Coordinates, Matrix, Space

_SMALLEST, _LARGEST = 10, 200
_BRED, _DRAWN = 3, 5  # rounds of each to fill a generation
_SPREAD = 2.0  # of rows drawn around the query, in scales
_REDRAWN = 0.2  # share of the mutated values
# The defaults of the public code.
_GENERATIONS, _SELECTED, _MOST_PEOPLE = 3, 1000, 30_000


@dataclass(frozen=True)
class Certifai(Method):
    """Keeps the ``population`` fittest of all rows so far and breeds as many anew.

    A ``population`` of 0 stands for the root of the oracle rows, from 10 to 200. Approved rows are
    the fittest, the nearest to the query first; then the likeliest. A child takes features from a
    second parent with the chance ``crossover``, and has others mutated with the chance
    ``mutation``, or if it was not crossed: a number becomes the mean of two parents, anything else
    a parent's value; some are drawn anew. ``query_share`` of second parents are the query.
    ``nearby`` is the share drawn around the query; the others are drawn from all allowed values.

    ``published`` is the public code: three generations of ``population`` rows, or of the square of
    the number of features, each drawn afresh, mutated and crossed; of the approved ones it returns
    the nearest by its own distance. As many generations are made as the rows pay for.
    """

    name: ClassVar[str] = "certifai"

    population: int = least(0, 0)
    crossover: float = within(0, 1, 0.5)
    mutation: float = within(0, 1, 0.2)
    query_share: float = within(0, 1, 0.2)
    nearby: float = within(0, 1, 0.75)
    published: bool = False

    def start(self, case: Case) -> Search:
        """Return a search whose draws follow from the seed and the query."""
        if self.published:
            return _Restarts(case.with_row_limit(), self)
        return _Evolution(case.with_row_limit(), self)


class _Evolution(BatchSearch):
    def __init__(self, case: Case, method: Certifai) -> None:
        # Sized by the row budget: public defaults spend 1,000 rows before they look at an answer.
        root = math.isqrt(case.budget.oracle_rows or 0)
        super().__init__(case, method.population or min(max(root, _SMALLEST), _LARGEST))
        self.method = method
        self._space = Space(case.problem, case.query)
        self._coordinates = Coordinates(self._space)
        self._rng = case.generator()
        self._people = self._space.start[:0].reshape(0, len(self._space.start))
        self._faults = np.empty((0, 3))  # what makes a person less fit, the worst first

    def _batch(self, most: int) -> list[Candidate]:
        """Return a generation; where its parents give nothing new, newcomers fill it up."""
        breeders = [self._bred] * _BRED if len(self._people) else []
        batch: list[Candidate] = []
        for make in [*breeders, *[self._newcomers] * _DRAWN] if self._space.levers else []:
            wanted = most - len(batch)
            if wanted:
                rows = self._space.rows(make(max(wanted, _SMALLEST)))
                batch += self._candidates(rows, wanted)
        return batch

    def _nothing_left(self) -> str:
        if not self._space.levers:
            return "no feature may change"
        return "neither breeding nor drawing gave anything new that the rules allow"

    def _learn(
        self, batch: Sequence[Candidate], chances: Sequence[float], valid: Sequence[bool]
    ) -> None:
        """Keep the fittest of parents and children."""
        problem = self.case.problem
        children = problem.schema.encode([candidate.row for candidate in batch])
        refused = ~np.array(valid)
        worth = np.round([problem.goal.worth(chance) for chance in chances], DECIMALS)
        # Among approved rows only the distance counts: a likelier one is no better.
        faults = np.column_stack(
            [refused, np.where(refused, -worth, 0.0), self._space.distances(children)]
        )
        people = np.concatenate([self._people, children])
        faults = np.concatenate([self._faults, faults])
        fittest = np.lexsort(faults.T[::-1])[: self._size]
        self._people, self._faults = people[fittest], faults[fittest]

    # Breeding ----------------------------------------------------------------------------------

    def _newcomers(self, count: int) -> Matrix:
        """Draw rows that move some of the levers."""
        anywhere = self._space.drawn(count, self._rng)
        points = _SPREAD * self._rng.standard_normal((count, self._coordinates.width))
        near = self._coordinates.encoded(points)
        drawn = np.where(self._chance(count, self.method.nearby), near, anywhere)
        return np.where(self._some_features(count), drawn, self._space.start)

    def _bred(self, count: int) -> Matrix:
        """Return children: crossed, mutated or both."""
        crossed = self._chance(count, self.method.crossover)
        mutated = ~crossed | self._chance(count, self.method.mutation)
        taken = crossed & self._some_features(count)
        children = np.where(taken, self._second_parents(count), self._parents(count))
        return np.where(mutated & self._some_features(count), self._mutations(count), children)

    def _mutations(self, count: int) -> Matrix:
        one, other = self._second_parents(count), self._second_parents(count)
        schema = self.case.problem.schema
        numeric = [feature.is_numeric for feature in schema]
        mixed = np.where(numeric, (one + other) / 2, one)
        redrawn = np.zeros(mixed.shape, dtype=np.bool_)
        kept = [i for i, feature in enumerate(schema) if not feature.is_opaque]
        redrawn[:, kept] = self._rng.random((count, len(kept))) < _REDRAWN
        return np.where(redrawn, self._newcomers(count), mixed)

    def _parents(self, count: int) -> Matrix:
        return self._people[self._rng.integers(len(self._people), size=count)]

    def _second_parents(self, count: int) -> Matrix:
        home = self._chance(count, self.method.query_share)
        return np.where(home, self._space.start, self._parents(count))

    def _chance(self, count: int, share: float) -> NDArray[np.bool_]:
        return self._rng.random((count, 1)) < share

    def _some_features(self, count: int) -> NDArray[np.bool_]:
        """Choose one to all of the levers for each row, every number of them equally likely."""
        columns = list(self._space.levers)
        most = self._rng.integers(len(columns), size=(count, 1))
        places = np.argsort(self._rng.random((count, len(columns))), axis=1)
        chosen = np.zeros((count, len(self._space.start)), dtype=np.bool_)
        chosen[:, columns] = places <= most
        return chosen


class _Restarts(BatchSearch):
    """CERTIFAI as published: generations that have nothing in common."""

    def __init__(self, case: Case, method: Certifai) -> None:
        features = sum(not feature.is_opaque for feature in case.problem.schema)
        size = method.population or min(features * features, _MOST_PEOPLE)
        super().__init__(case, size, published=True)
        self.method = method
        self._space = Space(case.problem, case.query)
        self._rng = case.generator()
        self._made = 0
        self._best: tuple[float, Candidate, float] | None = None

    def _batch(self, most: int) -> list[Candidate]:
        if self._made == _GENERATIONS or not self._space.levers:
            return []
        self._made += 1
        # Values are drawn from what the card and the rules allow, not from the range of the data.
        people = self._space.drawn(self._size, self._rng)
        people = people[np.argsort(self._distances(people), kind="stable")[:_SELECTED]]
        people = self._crossed(self._mutated(people))
        return self._candidates(self._space.rows(people), self._size)

    def _distances(self, people: Matrix) -> Matrix:
        """Return how far rows are by the public code's measure: numbers are not scaled there."""
        schema = self.case.problem.schema
        gaps = np.abs(people - self._space.start)
        gaps[np.isnan(gaps)] = 1.0
        numeric = np.array([feature.is_numeric for feature in schema])
        levels = np.array([feature.has_levels for feature in schema])
        both = max(1, numeric.sum() + levels.sum())
        apart = numeric.sum() * gaps[:, numeric].sum(axis=1)
        found: Matrix = (apart + levels.sum() * (gaps[:, levels] != 0).sum(axis=1)) / both
        return found

    def _mutated(self, people: Matrix) -> Matrix:
        """Change some features of some rows: a number to the mean of two, else to another's."""
        numeric, found = [f.is_numeric for f in self.case.problem.schema], people.copy()
        for i in np.flatnonzero(self._rng.random(len(people)) < self.method.mutation):
            for j in self._some_features():
                one, other = people[self._rng.integers(len(people), size=2), j]
                found[i, j] = (one + other) / 2 if numeric[j] else one
        return found

    def _crossed(self, people: Matrix) -> Matrix:
        """Swap some features between the rows of random pairs."""
        chosen = np.flatnonzero(self._rng.random(len(people)) < self.method.crossover)
        chosen, found = self._rng.permutation(chosen), people.copy()
        for one, other in zip(chosen[::2], chosen[1::2], strict=False):
            columns = self._some_features()
            found[one, columns], found[other, columns] = (
                people[other, columns],
                people[one, columns],
            )
        return found

    def _some_features(self) -> list[int]:
        columns = list(self._space.levers)
        count = self._rng.integers(1, max(2, len(columns)))
        return [columns[i] for i in self._rng.integers(len(columns), size=count)]

    def _learn(
        self, batch: Sequence[Candidate], chances: Sequence[float], valid: Sequence[bool]
    ) -> None:
        encoded = self.case.problem.schema.encode([candidate.row for candidate in batch])
        apart = self._distances(encoded).tolist()
        for candidate, chance, yes, distance in zip(batch, chances, valid, apart, strict=True):
            if yes and (self._best is None or distance < self._best[0]):
                self._best = distance, candidate, chance

    def _end(self, kind: OutcomeKind, reason: str) -> None:
        if self._best is not None:
            self._return(*self._best[1:])
        super()._end(kind, reason)

    def _nothing_left(self) -> str:
        if not self._space.levers:
            return "no feature may change"
        return f"all {_GENERATIONS} generations of the published search were made"
