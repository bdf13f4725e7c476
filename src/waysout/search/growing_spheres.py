"""Growing Spheres: rings around the query, ever wider, until the oracle approves something.

After Laugel and others (2018), whose search ends at the nearest row it finds, without the changes
that row does not need. Here rings are sized by the row budget and widen by a factor, every approved
row is made sparse, many side by side, and further rings follow until all rows are spent. As
published, it is their search with the defaults of their code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from waysout.domain.schema import Row
from waysout.search.base import Case, Method, Search, least, within
from waysout.search.batches import BatchSearch, Candidate
from waysout.search.space import Coordinates, Matrix, Space

_LAYERS = 20
_SMALLEST, _LARGEST = 5, 100
_TRIES = 3  # draws in a ring that give nothing new before it is left
_FARTHEST = 1e15
_RINGS = 15  # at most; fewer than the layers, so that all values are within reach
# The defaults of the public code. The paper names neither them nor others.
_PUBLIC_LAYER, _PUBLIC_RADIUS, _PUBLIC_FACTOR = 2000, 0.1, 10.0


@dataclass(frozen=True)
class GrowingSpheres(Method):
    """Draws ``layer`` rows from a ball around the query, then from ring on ring around it.

    A ``layer`` of 0 stands for a twentieth of the oracle rows, from 5 to 100. At the radius 1 a
    number moves by about one scale of the distance. The ball shrinks while something in it is
    approved; then each ring is wider than the last by the factor ``growth``, or by more where the
    farthest value would not be reached in 15. After the first ring with an approved row they start
    there again, and go one ring farther each time. ``sparse`` undoes the changes that an approved
    row does not need, the smallest first.

    ``published`` is the public code with its own radii: a ball of 0.1 that shrinks to a tenth while
    it holds a yes and once more, then balls wider by a tenth of that, 2,000 rows or ``layer`` each,
    until one holds a yes. Its one option is the nearest of these, without needless changes.
    """

    name: ClassVar[str] = "growing-spheres"

    layer: int = least(0, 0)
    first_radius: float = within(0.001, 1000, 0.5)
    growth: float = within(1.01, 100, 1.5)
    sparse: bool = True
    published: bool = False

    def start(self, case: Case) -> Search:
        """Return a search whose draws follow from the seed and the query."""
        if self.published:
            return _PublishedSpheres(case.with_row_limit(), self)
        return _SpheresSearch(case.with_row_limit(), self)


@dataclass(slots=True)
class _Hit:
    """An approved row, and the levers it moves that may yet go back, the smallest change first."""

    row: Row
    levers: list[str]
    trial: Row = ()

    def settle(self, approved: bool) -> None:
        """Put the first lever back for good if that was approved; else it is needed."""
        self.levers.pop(0)
        self.row = self.trial if approved else self.row


class _SpheresSearch(BatchSearch):
    def __init__(self, case: Case, method: GrowingSpheres) -> None:
        rows = case.budget.oracle_rows or 0
        # Sized by the row budget: public defaults spend 1,000 rows before they look at an answer.
        super().__init__(case, method.layer or min(max(rows // _LAYERS, _SMALLEST), _LARGEST))
        self._space = Space(case.problem, case.query)
        # In the levers alone: features that are pasted back afterwards would use up the radius,
        # most of it in high dimensions.
        self._coordinates = Coordinates(self._space)
        self._rings = Rings(method.first_radius, method.growth, self._coordinates.reach)
        self._sparse = method.sparse
        self._rng = case.generator()
        self._hits: list[_Hit] = []
        self._trials: dict[str, _Hit] = {}  # by the key that is asked
        self._drawn = self._approved = 0  # in this ring

    def _batch(self, most: int) -> list[Candidate]:
        """Return the next trial of each hit, then new rows of this ring or the next with any."""
        batch: list[Candidate] = []
        unfinished: list[_Hit] = []
        for number, hit in enumerate(self._hits):
            if len(batch) == most:
                unfinished += self._hits[number:]
                break
            candidate = self._trial(hit)
            if candidate is not None:
                self._trials[candidate.key] = hit
                batch.append(candidate)
            if hit.levers:
                unfinished.append(hit)
        self._hits = unfinished
        most -= len(batch)
        for _ in range(self._rings.count if self._space.levers and most else 0):
            drawn: list[Candidate] = []
            for _ in range(_TRIES):
                wanted = most - len(drawn)
                count, rings = max(wanted, _SMALLEST), self._rings
                points = ring(count, self._coordinates.width, rings.inner, rings.outer, self._rng)
                rows = self._space.rows(self._coordinates.encoded(points))
                drawn += self._candidates(rows, wanted)
            if drawn:
                return batch + drawn
            self._rings.widen()
            self._next_ring()
        return batch

    def _trial(self, hit: _Hit) -> Candidate | None:
        """Return the next row to ask of a hit; ``None`` if it is done, or shares another's trial.

        A row whose key was asked before is not asked again; the earlier answer counts.
        """
        problem, query = self.case.problem, self.case.query
        while hit.levers:
            hit.trial = problem.rules.put_back(query, hit.row, hit.levers[0])
            candidate = self._candidate(hit.trial)
            if candidate is not None:
                return candidate
            key = problem.key(hit.trial)
            if key in self._trials:
                return None
            hit.settle(self.archive.is_valid(hit.trial, key in self.archive))
        return None

    def _nothing_left(self) -> str:
        if not self._space.levers:
            return "no feature may change"
        return "draws from every ring around the query gave nothing new that the rules allow"

    def _learn(
        self, batch: Sequence[Candidate], chances: Sequence[float], valid: Sequence[bool]
    ) -> None:
        problem = self.case.problem
        for candidate, approved in zip(batch, valid, strict=True):
            hit = self._trials.pop(candidate.key, None)
            if hit is not None:
                hit.settle(approved)
                continue
            self._drawn += 1
            self._approved += approved
            if approved and self._sparse:
                sizes = self._space.sizes(candidate.row)
                moved = sorted(problem.rules.moved(self.case.query, candidate.row))
                moved.sort(key=lambda name: sizes[problem.schema.index(name)])
                self._hits.append(_Hit(candidate.row, moved))
        if self._drawn >= self._size:
            self._next_ring()

    def _next_ring(self) -> None:
        self._rings.next(self._approved > 0)
        self._drawn = self._approved = 0


class _PublishedSpheres(BatchSearch):
    def __init__(self, case: Case, method: GrowingSpheres) -> None:
        super().__init__(case, method.layer or _PUBLIC_LAYER, published=True)
        self._space = Space(case.problem, case.query)
        # The public code leaves scaling to its user: numbers are in the distance's own scales.
        self._coordinates = Coordinates(self._space)
        self._sparse = method.sparse
        self._rng = case.generator()
        self._radius, self._step = _PUBLIC_RADIUS, 0.0  # no step while the ball shrinks
        self._hit: _Hit | None = None
        self._chance = 0.0  # of the hit

    def _batch(self, most: int) -> list[Candidate]:
        if self._hit is not None:
            return self._trial(self._hit)
        if not self._space.levers:
            return []
        width = self._coordinates.width
        # Radii are of the sum of squares there, of their mean here. The wrapper of the public code
        # draws from whole balls; its class could draw from the ring that was added.
        outer = (self._radius + self._step) / math.sqrt(width)
        points = ring(self._size, width, 0.0, outer, self._rng)
        return self._candidates(self._space.rows(self._coordinates.encoded(points)), self._size)

    def _trial(self, hit: _Hit) -> list[Candidate]:
        """Return the hit with one more change undone; the hit itself is returned after the last."""
        problem, query = self.case.problem, self.case.query
        while hit.levers:
            hit.trial = problem.rules.put_back(query, hit.row, hit.levers[0])
            if hit.trial != query and (found := self._candidate(hit.trial)) is not None:
                return [found]
            hit.settle(False)
        self._return(Candidate(hit.row, problem.key(hit.row)), self._chance)
        return []

    def _learn(
        self, batch: Sequence[Candidate], chances: Sequence[float], valid: Sequence[bool]
    ) -> None:
        if self._hit is not None:
            self._hit.settle(valid[0])
            self._chance = chances[0] if valid[0] else self._chance
            return
        sizes = {i: self._space.sizes(batch[i].row) for i, yes in enumerate(valid) if yes}
        if self._step == 0:
            # The public code divides once more when the ball holds no yes, before it grows.
            self._radius /= _PUBLIC_FACTOR
            self._step = 0.0 if sizes else self._radius / _PUBLIC_FACTOR
        elif sizes:
            nearest = min(sizes, key=lambda i: sum(size * size for size in sizes[i]))
            row, moved = batch[nearest].row, sizes[nearest]
            names, at = self.case.problem.rules.moved(self.case.query, row), self._place
            levers = sorted(sorted(names), key=lambda name: moved[at(name)])
            self._hit, self._chance = _Hit(row, levers if self._sparse else []), chances[nearest]
        else:
            self._radius += self._step

    def _place(self, name: str) -> int:
        return self.case.problem.schema.index(name)

    def _nothing_left(self) -> str:
        if not self._space.levers:
            return "no feature may change"
        if self._hit is None:
            return "no row of the next ball keeps the rules"
        return "the published search has returned its one counterfactual"


class Rings:
    """Which ring is next: a ball that shrinks while it holds a yes, then rings around it."""

    def __init__(self, ball: float, growth: float, reach: float) -> None:
        span = max(1.0, min(reach, _FARTHEST) / ball)
        self._ball, self._growth = ball, max(growth, span ** (1 / _RINGS))
        self.count = 2 + math.ceil(math.log(span) / math.log(self._growth))
        """How many rings there are, up to the one that holds the farthest value."""
        self._shrinking = True
        self._number = 0
        self._first: int | None = None  # the first with a yes
        self._beyond = 0

    @property
    def inner(self) -> float:
        """The radius from which the ring begins; 0 where it is a ball."""
        return self._ball * self._growth ** (self._number - 1) if self._number else 0.0

    @property
    def outer(self) -> float:
        """The radius at which it ends."""
        radius: float = self._ball * self._growth**self._number
        return radius

    def widen(self) -> None:
        """Allow one ring farther out, because this one holds nothing new."""
        self._beyond += 1

    def next(self, approved: bool) -> None:
        """Go to the next ring; ``approved`` says whether this one held a yes."""
        if self._shrinking and approved:
            self._ball /= self._growth
            self.count += 1
            return
        self._shrinking = False
        if approved and self._first is None:
            self._first = self._number
        last = self.count - 1
        if self._first is not None:
            last = min(self._first + self._beyond, last)
        if self._number < last:
            self._number += 1
        else:
            self._number = self._first or 0
            self._beyond += 1


def ring(count: int, width: int, inner: float, outer: float, rng: np.random.Generator) -> Matrix:
    """Draw points spread evenly between two radii, in ``width`` coordinates.

    Radii are the root of the mean square, not of the sum, so that they mean the same in any width.
    """
    points = rng.standard_normal((count, width))
    points /= np.sqrt(np.mean(points * points, axis=1, keepdims=True))
    hollow, share = (inner / outer) ** width, rng.random((count, 1))
    radii = outer * (hollow + share * (1.0 - hollow)) ** (1.0 / width)
    found: Matrix = points * radii
    return found
