"""What a query's features may do, as lists of moves with their costs: what a proof searches.

Integers, steps, lists and barred values are settled here, by the levers: each feature becomes the
list of typed values worth moving to, the cheapest one between any two of the model's splits. Links
and one-hot groups become one list of joint moves.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from waysout.domain.problem import Problem
from waysout.domain.rules.base import Lever
from waysout.domain.schema import LARGEST, Row, Value

Matrix = NDArray[np.float64]
Split = tuple[float, bool]  # where, and whether the value itself goes left


def costs(problem: Problem, query: Row, rows: Sequence[Row]) -> Matrix:
    """Return what each row costs: the distance, with the mean of the gaps for their RMS."""
    distance, schema = problem.distance, problem.schema
    encoded = schema.encode([query, *rows])
    _, shares = distance.blocks(encoded[0], encoded[1:])
    numeric = [i for i, feature in enumerate(schema) if feature.is_numeric]
    if not numeric:
        return (1.0 - distance.alpha) * shares
    numbers = encoded[:, numeric] / [distance.scales[schema.features[i].name] for i in numeric]
    gaps, missing = np.abs(numbers[1:] - numbers[0]), np.isnan(numbers)
    gaps = np.where(np.isnan(gaps), (missing[1:] != missing[0]).astype(np.float64), gaps)
    total: Matrix = distance.alpha * gaps.mean(axis=1) + (1.0 - distance.alpha) * shares
    return total


@dataclass(frozen=True)
class Moves:
    """What one lever, or several that move together, may do: a row for each move.

    ``at`` are the places of the moves on an axis on which the distance from 0 is the cost. Moves
    that all cost the same have no order: ``at`` are their numbers. At 0 is the query or, where it
    may not stay as it is, the cheapest move; what that costs is the ``toll``, due in any case.
    """

    columns: tuple[int, ...]
    rows: Sequence[Row]
    at: Matrix
    cost: float | None = None  # of each move, where they have no order
    toll: float = 0.0

    def within(self, limit: float) -> Moves:
        """Return the moves that cost no more than a limit, what is due in any case apart."""
        if self.cost is not None:
            kept = np.arange(len(self.rows) if self.cost <= limit else 1)
        else:
            kept = np.flatnonzero(np.abs(self.at) <= limit)
        return replace(self, rows=[self.rows[int(i)] for i in kept], at=self.at[kept])

    def threshold(self, i: int) -> Split:
        """Return the split between a move and the next, closed on the side where it is cheapest."""
        # So the solver, which takes the cheapest point between two splits, takes the move itself.
        return (float(self.at[i + 1]), False) if self.at[i + 1] > 0 else (float(self.at[i]), True)


def all_moves(problem: Problem, query: Row, splits: Mapping[int, list[Split]]) -> list[Moves]:
    """Return every move that rules about the features it touches allow."""
    groups: list[tuple[set[int], list[Row], bool]] = []
    for name, lever in problem.rules.levers(query).items():
        i = problem.schema.index(name)
        if lever.blocked:
            continue
        values = _worth_trying(lever, splits.get(i, []))
        rows = [problem.rules.apply(query, {name: value}) for value in values]
        touched = {i} | {j for row in rows for j in differing(query, row)}
        whole = lever.values is not None
        for other in [group for group in groups if group[0] & touched]:
            groups.remove(other)
            touched, rows, whole = touched | other[0], [*other[1], *rows], whole and other[2]
        groups.append((touched, rows, whole))
    moving = {i for touched, _, _ in groups for i in touched}
    fixed = {name for i, name in enumerate(problem.schema.names) if i not in moving}
    made = (_moves(problem, query, *group, fixed) for group in groups)
    return [moves for moves in made if list(moves.rows) != [query]]


def differing(query: Row, row: Row) -> list[int]:
    """Return the places where two rows differ."""
    return [j for j, (a, b) in enumerate(zip(query, row, strict=True)) if a != b]


def _moves(
    problem: Problem, query: Row, touched: set[int], rows: list[Row], whole: bool, fixed: set[str]
) -> Moves:
    known = fixed | {problem.schema.names[i] for i in touched}
    # Of an interval only the cheapest values are there: another one may keep a rule they break.
    allowed = [r for r in rows if r != query and (not whole or _fits(problem, query, r, known))]
    allowed = list(dict.fromkeys(allowed))
    columns, stays = tuple(sorted(touched)), _fits(problem, query, query, known)
    paid = costs(problem, query, allowed) if allowed else np.zeros(0)
    rows = [query, *allowed] if stays else allowed
    if len(paid) and np.ptp(paid) <= 1e-12 * paid.max():
        numbers, each = np.arange(len(rows), dtype=np.float64), float(paid[0])
        return Moves(columns, rows, numbers, each if stays else 0.0, 0.0 if stays else each)
    if stays and len(columns) == 1 and problem.schema.features[columns[0]].is_numeric:
        # Down is on the other side, so that one of the model's splits is one split of the axis.
        encoded = problem.schema.encode(rows)[:, columns[0]]
        paid = np.where(encoded[1:] < encoded[0], -paid, paid)
    paid = np.array([0.0, *paid]) if stays else paid
    order = np.argsort(paid, kind="stable")
    toll = 0.0 if stays or not len(paid) else float(paid.min())
    return Moves(columns, [rows[i] for i in order], _apart(paid[order] - toll), toll=toll)


def _apart(costs: Matrix) -> Matrix:
    """Return sorted costs with equal ones moved apart by the least that a float can tell."""
    found = costs.copy()
    for i in range(1, len(found)):
        if found[i] <= found[i - 1]:
            found[i] = np.nextafter(found[i - 1], np.inf)
    return found


def _fits(problem: Problem, query: Row, row: Row, known: Collection[str]) -> bool:
    """Whether a row keeps the rules that speak of nothing but these features."""
    broken = problem.violations(query, row)
    return not any(v.features and set(v.features) <= set(known) for v in broken)


def _worth_trying(lever: Lever, splits: Sequence[Split]) -> list[Value]:
    """Return the values that matter: all of a list; of an interval the cheapest in each cell."""
    choices = lever.choices()
    if choices is not None:
        # The present value too: setting it again may set what follows it right.
        return [*choices] if lever.now is None else [lever.now, *choices]
    ends = sorted({at if inside else math.nextafter(at, -math.inf) for at, inside in splits})
    lows = [-math.inf, *(math.nextafter(end, math.inf) for end in ends)]
    here = float(lever.now) if isinstance(lever.now, (int, float)) else -math.inf
    found: list[Value] = []
    for low, high in zip(lows, [*ends, math.inf], strict=True):
        found += _nearest(lever, max(low, here), high, up=True) if high >= here else []
        found += _nearest(lever, low, min(high, here), up=False) if low < here else []
    return list(dict.fromkeys(found))


def _nearest(lever: Lever, low: float, high: float, *, up: bool) -> list[Value]:
    """Return the first admitted value of an interval, coming from one side, if there is any."""
    for point in _walk(lever, max(low, lever.low) if up else min(high, lever.high), up=up):
        if not low <= point <= high and (point > low) == up:
            return []
        value = lever.feature.coerce(point) if abs(point) <= LARGEST else None
        if value is not None and low <= float(value) <= high and lever.admits(value):
            return [value]
    return []


def _walk(lever: Lever, edge: float, *, up: bool) -> Iterator[float]:
    """Yield the points of a lever's grid from just outside an edge inwards."""
    tries, step = len(lever.never) + 16, lever.step or lever.feature.resolution
    if step is None:
        for _ in range(tries):
            yield edge
            edge = math.nextafter(edge, math.inf if up else -math.inf)
        return
    # A grid point may miss the edge that it stands for by rounding.
    first = round((edge - lever.start) / step) + (-1 if up else 1)
    for k in range(tries):
        point = lever.start + step * (first + k if up else first - k)
        if (point > edge - step / 2) if up else (point < edge + step / 2):
            yield point
