"""The rows a query may become: as numbers, as typed rows, and projected onto the rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from waysout.domain.problem import Problem
from waysout.domain.rules.base import Lever
from waysout.domain.schema import Row, Value
from waysout.search.candidates import DECIMALS

Matrix = NDArray[np.float64]


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
        """Return the query made like another row; the query itself where nothing can change.

        Where rules about several features forbid it, edits are undone one by one: of those the
        broken rule names, the smallest first, since the large ones are what makes the rows alike.
        """
        schema, apply = self.problem.schema, self.problem.rules.apply
        edits: dict[str, Value] = {}
        for name, lever in self._levers.items():
            value = lever.towards(goal[schema.index(name)], must_move=(name,) in self._broken)
            if value != lever.now:
                edits[name] = value
        row, sizes = apply(self.query, edits), dict[str, float]()
        while edits and (broken := self.problem.violations(self.query, row)):
            if not sizes:  # how far each edit alone leads away; most rows need no such sizes
                alone = [apply(self.query, {name: value}) for name, value in edits.items()]
                encoded = schema.encode([self.query, *alone])
                distances = self.problem.distance.between(encoded[0], encoded[1:]).tolist()
                sizes = dict(zip(edits, distances, strict=True))
            named = [name for name in edits if name in broken[0].features]
            del edits[min(named or edits, key=sizes.__getitem__)]
            row = apply(self.query, edits)
        return row


class Space:
    """What one query may become, as rows of a matrix encoded by `Schema.encode`."""

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
        """Return the typed rows nearest to encoded ones that keep the rules, if there are any.

        Features that may not change, and those that did not, keep the query's values. Rows are
        projected rather than refused: a method that knows no rules would otherwise look weaker
        than it is, and a refused row teaches nothing.
        """
        columns: list[Sequence[Value]] = []
        for column, now in enumerate(self.query):
            numbers, lever = matrix[:, column], self.levers.get(column)
            if lever is None:
                columns.append([now] * len(matrix))
                continue
            # A query's number may have more decimals than its feature: as it stands, it may stay.
            stays = np.equal(numbers, self.start[column]).tolist()
            typed = zip(lever.feature.decode(numbers), stays, strict=True)
            columns.append([now if same else value for value, same in typed])
        broken = self.problem.violations
        rows = zip(*columns, strict=True)
        return [self._project(row) if broken(self.query, row) else row for row in rows]

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
        self.width = 0
        """How many coordinates there are."""
        self.reach = 0.0
        """How large a coordinate must be to reach the farthest value."""
        self._axes: list[tuple[int, slice, _Numbers | _Choices]] = []
        for column, lever in space.levers.items():
            choices = lever.choices()
            axis: _Numbers | _Choices
            if choices is None:
                axis = _Numbers(lever, space.problem.distance.scales[lever.feature.name])
            else:
                axis = _Choices(lever, choices)
            self._axes.append((column, slice(self.width, self.width + axis.size), axis))
            self.width += axis.size
            self.reach = max(self.reach, axis.reach)

    def encoded(self, points: Matrix) -> Matrix:
        """Return points as encoded rows, which may still break rules."""
        matrix = np.tile(self.space.start, (len(points), 1))
        # The last digits of roots and powers differ from processor to processor.
        points = np.round(points, DECIMALS)
        for column, place, axis in self._axes:
            matrix[:, column] = axis.encoded(points[:, place])
        return matrix


class _Numbers:
    size = 1

    def __init__(self, lever: Lever, scale: float) -> None:
        low, high = lever.bounds()
        self._missing, self._scale = lever.now is None, scale
        # A missing value is put in the middle.
        centre = self._centre = (low + high) / 2 if lever.now is None else float(lever.now)
        self._low, self._high = min(low, centre), max(high, centre)
        reach = max(centre - self._low, self._high - centre, scale) / scale
        self.reach = reach + self._missing

    def encoded(self, points: Matrix) -> Matrix:
        steps = points[:, 0]
        if not self._missing:
            return np.clip(self._centre + steps * self._scale, self._low, self._high)
        # The distance takes a missing value for one scale apart from any other.
        beyond = np.sign(steps) * np.maximum(np.abs(steps) - 1.0, 0.0)
        found: Matrix = np.clip(self._centre + beyond * self._scale, self._low, self._high)
        found[np.abs(steps) < 1.0] = np.nan
        return found


class _Choices:
    reach = 10.0  # from where on the present value is hardly likelier than another

    def __init__(self, lever: Lever, choices: Sequence[Value]) -> None:
        encode = lever.feature.encode
        self._codes = np.array([encode(value) for value in (lever.now, *choices)])
        self.size = len(self._codes)

    def encoded(self, points: Matrix) -> Matrix:
        ahead = points + np.eye(1, points.shape[1])
        found: Matrix = self._codes[np.argmax(ahead, axis=1)]
        return found
