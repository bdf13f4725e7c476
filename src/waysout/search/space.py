"""A query's open levers as numbers, and typed rows that keep the rules out of such numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from waysout.domain.problem import Problem
from waysout.domain.rules.base import Lever
from waysout.domain.schema import Row, Value
from waysout.search.projection import Projection
from waysout.search.ranking import DECIMALS

Matrix = NDArray[np.float64]


class Space:
    """What one query may become. Rows are those of a matrix as `Schema.encode` makes it."""

    def __init__(self, problem: Problem, query: Row) -> None:
        self.problem = problem
        self.query = query
        self.start: Matrix = problem.schema.encode([query])[0]
        self._project = Projection(problem, query)
        levers = problem.rules.levers(query)
        self.levers = {
            column: levers[name]
            for column, name in enumerate(problem.schema.names)
            if levers[name].is_open
        }

    def rows(self, matrix: Matrix) -> list[Row]:
        """Return the typed rows nearest to encoded ones that keep the rules, where there are any.

        What may not change is the query's own, and so is what did not change.
        """
        columns = [self._typed(column, matrix[:, column]) for column in range(len(self.start))]
        return [self._kept(row) for row in zip(*columns, strict=True)]

    def _typed(self, column: int, numbers: Matrix) -> list[Value]:
        now, lever = self.query[column], self.levers.get(column)
        if lever is None:
            return [now] * len(numbers)
        # A query's number may have more decimals than its feature: as it stands, it may stay.
        stays = np.equal(numbers, self.start[column]).tolist()
        found = lever.feature.decode(numbers)
        return [now if same else value for value, same in zip(found, stays, strict=True)]

    def _kept(self, row: Row) -> Row:
        return self._project(row) if self.problem.violations(self.query, row) else row

    def distances(self, matrix: Matrix) -> Matrix:
        """Return how far encoded rows are from the query."""
        found: Matrix = np.round(self.problem.distance.between(self.start, matrix), DECIMALS)
        return found

    def sizes(self, row: Row) -> list[float]:
        """Return how far each feature is from the query's: in scales, or 1 where it has none."""
        schema, scales = self.problem.schema, self.problem.distance.scales
        divisors = np.array([scales.get(name, np.nan) for name in schema.names])
        gaps = np.abs(schema.encode([row])[0] - self.start) / divisors
        found: list[float] = np.round(np.nan_to_num(gaps, nan=1.0), DECIMALS).tolist()
        return found

    def drawn(self, count: int, rng: np.random.Generator) -> Matrix:
        """Draw encoded rows from all that the levers span, each value equally likely."""
        matrix = np.tile(self.start, (count, 1))
        for column, lever in self.levers.items():
            choices = lever.choices()
            if choices is None:
                matrix[:, column] = rng.uniform(*lever.bounds(), count)
            else:
                codes = np.array([lever.feature.encode(choice) for choice in choices])
                matrix[:, column] = codes[rng.integers(len(codes), size=count)]
        return matrix


class Coordinates:
    """The open levers as a vector of real numbers, the query at its origin.

    A number has one coordinate, in scales of the distance. Anything else has one for each value it
    may take and one for the present value, which is ahead of them by 1; the largest is taken.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        scales = space.problem.distance.scales
        self._axes: list[_Numbers | _Choices] = []
        for column, lever in space.levers.items():
            choices = lever.choices()
            if choices is None:
                scale = scales[lever.feature.name]
                self._axes.append(_Numbers(column, self.width, lever, scale))
            else:
                self._axes.append(_Choices(column, self.width, lever, choices))

    @property
    def width(self) -> int:
        """How many coordinates there are."""
        return self._axes[-1].end if self._axes else 0

    @property
    def reach(self) -> float:
        """How large a coordinate need be for the farthest value there is."""
        return max((axis.reach for axis in self._axes), default=0.0)

    def encoded(self, points: Matrix) -> Matrix:
        """Return points as encoded rows, which may still break rules."""
        matrix = np.tile(self.space.start, (len(points), 1))
        # The last digits of roots and powers differ from processor to processor.
        points = np.round(points, DECIMALS)
        for axis in self._axes:
            matrix[:, axis.column] = axis.encoded(points[:, axis.first : axis.end])
        return matrix


@dataclass(frozen=True)
class _Numbers:
    column: int
    first: int
    lever: Lever
    scale: float

    @property
    def end(self) -> int:
        return self.first + 1

    @cached_property
    def _span(self) -> tuple[float, float, float]:
        """The present value, and the least and the most; a missing one is put in the middle."""
        low, high = self.lever.bounds()
        now = self.lever.now
        centre = (low + high) / 2 if now is None else float(now)
        return centre, min(low, centre), max(high, centre)

    @property
    def reach(self) -> float:
        centre, low, high = self._span
        reach = max(centre - low, high - centre, self.scale) / self.scale
        return reach + (self.lever.now is None)

    def encoded(self, points: Matrix) -> Matrix:
        centre, low, high = self._span
        steps = points[:, 0]
        if self.lever.now is not None:
            return np.clip(centre + steps * self.scale, low, high)
        # The distance takes a missing value for one scale apart from any other.
        beyond = np.sign(steps) * np.maximum(np.abs(steps) - 1.0, 0.0)
        found: Matrix = np.clip(centre + beyond * self.scale, low, high)
        found[np.abs(steps) < 1.0] = np.nan
        return found


@dataclass(frozen=True)
class _Choices:
    column: int
    first: int
    lever: Lever
    choices: tuple[Value, ...]

    reach = 10.0  # from where on the present value is hardly likelier than another

    @property
    def end(self) -> int:
        return self.first + 1 + len(self.choices)

    @cached_property
    def _codes(self) -> Matrix:
        encode = self.lever.feature.encode
        return np.array([encode(value) for value in (self.lever.now, *self.choices)])

    def encoded(self, points: Matrix) -> Matrix:
        ahead = points + np.eye(1, points.shape[1])
        found: Matrix = self._codes[np.argmax(ahead, axis=1)]
        return found
