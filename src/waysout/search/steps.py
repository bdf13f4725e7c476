"""Steps: the values worth trying for each lever, from near to far, and combinations of them.

What is tried never depends on the key's bins: those decide what counts as different. A number gets
values in both directions: quantiles of what other people's rows hold on that side, and even
fractions of the way near the person.

A *combination* has one choice for each lever, as a row of whole numbers: 0 leaves the lever alone,
*n* is its n-th value. Thousands of them are measured in one pass.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.known import Known, PerData
from waysout.domain.problem import Problem
from waysout.domain.rules import Lever
from waysout.domain.schema import LARGEST, Edit, Row, Schema, Value
from waysout.domain.ways import nearest_to, place

Matrix = NDArray[np.float64]
Combos = NDArray[np.int32]
Combo = tuple[int, ...]

QUANTILES, FRACTIONS = 16, 8
"""Steps of a number in one direction: by the values of others, and evenly near the person."""
MOST_LEVELS = 400
_SAMPLED = 20_000

UP, DOWN, LEVEL = 0, 1, 2


@PerData
def sorted_columns(known: Known, schema: Schema) -> list[Matrix]:
    """Return the values of each column of the known rows, in order; missing ones are left out."""
    rows = known.rows
    if len(rows) > _SAMPLED:
        drawn = np.random.default_rng(0).choice(len(rows), _SAMPLED, replace=False)
        rows = [rows[i] for i in sorted(drawn.tolist())]
    encoded = schema.encode(rows)
    return [np.sort(column[~np.isnan(column)]) for column in encoded.T]


@dataclass(frozen=True)
class StepMoves:
    """What combinations do to each lever: the direction, how far from 0 to 1, and which level.

    A row for each combination, a column for each slot; the direction is -1 where it is left alone.
    """

    way: NDArray[np.int8]
    at: Matrix
    level: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.way)

    def __getitem__(self, rows: Any) -> StepMoves:
        return StepMoves(self.way[rows], self.at[rows], self.level[rows])

    def padded(self, width: int) -> StepMoves:
        """Return the moves with columns for slots that were added later."""
        more = ((0, 0), (0, width - self.way.shape[1]))
        return StepMoves(
            np.pad(self.way, more, constant_values=-1), np.pad(self.at, more),
            np.pad(self.level, more),
        )  # fmt: skip

    def joined(self, others: StepMoves) -> StepMoves:
        """Return these moves and others, one after the other."""
        return StepMoves(
            np.concatenate([self.way, others.way]),
            np.concatenate([self.at, others.at]),
            np.concatenate([self.level, others.level]),
        )


@dataclass(slots=True)
class LeverSteps:
    """One lever (or one-hot group): its choices, their directions, and where they lie from 0 to 1.

    ``ladder`` holds the places of the first steps in each direction, to lay later values between.
    """

    lever: str
    edits: list[Edit] = field(default_factory=list)
    ways: list[int] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    encoded: list[Matrix] = field(default_factory=list)
    named: list[bool] = field(default_factory=list)
    ladder: dict[int, list[float]] = field(default_factory=dict)


class Steps:
    """The values of each lever of one query. It only grows: named and finer values join it."""

    def __init__(self, problem: Problem, query: Row, known: Known | None = None) -> None:
        self.problem = problem
        self.query = query
        self.levers = problem.rules.levers(query)
        self.start: Matrix = problem.schema.encode([query])[0]
        self.slots: list[LeverSteps] = []
        self._slot_of: dict[str, int] = {}
        self._known: dict[tuple[str, Value], tuple[int, int]] = {}
        self._met: dict[str, set[Value]] = {}  # with those that move two levers at once
        self._levels: dict[tuple[str, Row], int] = {}
        self._moves: dict[Row, dict[int, tuple[int, float, int]]] = {}
        self._tables: StepTables | None = None
        columns = sorted_columns(known, problem.schema) if known is not None else []
        self._others = dict(zip(self.levers, columns, strict=False))
        self._held: dict[str, Matrix] = {}  # by others, as far as it is admitted
        for name, lever in self.levers.items():
            if lever.is_open:
                self._add_all(name, values_to_try(lever, self._others.get(name)))

    def _add_all(self, name: str, values: Sequence[Value]) -> None:
        lever = self.levers[name]
        now = place(lever, lever.now)
        sides: dict[int, list[float]] = {UP: [], DOWN: []}
        for value in values:
            there = place(lever, value)
            if now is not None and there is not None:
                sides[UP if there > now else DOWN].append(abs(there - now))
        rows = [self.problem.rules.apply(self.query, {name: value}) for value in values]
        ladder = {way: sorted(gaps) for way, gaps in sides.items()}
        for value, row, *priced in zip(values, rows, *self._priced(rows), strict=True):
            self._add(Edit(name, value), row, *priced, ladder=ladder)

    def _priced(self, rows: Sequence[Row]) -> tuple[Matrix, list[float]]:
        """Return edited rows encoded, and what they cost.

        Together, and without a look at what stays: a table of a thousand columns has ten thousand
        such rows, which differ from the person in one place each.
        """
        schema, encoded = self.problem.schema, np.repeat(self.start[None, :], len(rows), axis=0)
        for i, row in enumerate(rows):
            for name in schema.changed(self.query, row):
                encoded[i, schema.index(name)] = schema[name].encode(row[schema.index(name)])
        return encoded, self.problem.distance.costs(self.start, encoded).tolist()

    def refine(self) -> bool:
        """Add values between those of each lever; returns whether there were any."""
        before = len(self)
        for name, lever in self.levers.items():
            if lever.is_open:
                if name not in self._held:
                    self._held[name] = _held(lever, self._others.get(name, np.zeros(0)))
                for value in finer_values(lever, self._met.get(name, ()), self._held[name]):
                    self.add(Edit(name, value))
        return len(self) > before

    def add(self, edit: Edit, *, named: bool = False) -> tuple[int, int] | None:
        """Add a value; returns its slot and number, or ``None`` if it moves two levers at once."""
        known = self._known.get((edit.feature, edit.value))
        if known is not None:
            slot, number = self.slots[known[0]], known[1]
            if named and not slot.named[number]:
                slot.named[number], slot.edits[number] = True, edit
                self._tables = None
            return known
        row = self.problem.rules.apply(self.query, {edit.feature: edit.value})
        (encoded,), (cost,) = self._priced([row])
        return self._add(edit, row, encoded, cost, named=named)

    def _add(
        self,
        edit: Edit,
        row: Row,
        encoded: Matrix,
        cost: float,
        *,
        named: bool = False,
        ladder: dict[int, list[float]] | None = None,
    ) -> tuple[int, int] | None:
        self._met.setdefault(edit.feature, set()).add(edit.value)
        moved = self.problem.rules.moved(self.query, row)
        if len(moved) != 1:
            return None
        (name,) = moved
        if name not in self._slot_of:
            self._slot_of[name] = len(self.slots)
            self.slots.append(LeverSteps(name))
        number = self._slot_of[name]
        slot = self.slots[number]
        if ladder and not slot.ladder:
            slot.ladder = ladder
        way, at, level = self._move(number, name, row)
        slot.edits.append(edit)
        slot.ways.append(way)
        slot.at.append(at)
        slot.levels.append(level)
        slot.cost.append(cost)
        slot.encoded.append(encoded)
        slot.named.append(named)
        self._known[edit.feature, edit.value] = (number, len(slot.edits) - 1)
        self._tables = None
        return number, len(slot.edits) - 1

    def _move(self, number: int, name: str, row: Row) -> tuple[int, float, int]:
        """Return what a row does to one of the levers it moves."""
        slot, lever = self.slots[number], self.levers[name]
        now, there = place(lever, lever.now), place(lever, row[self.problem.schema.index(name)])
        if (
            now is not None
            and there is not None
            and there != now
            and len(self.problem.rules.features_of(name)) == 1
        ):
            way = UP if there > now else DOWN
            return way, _share(slot.ladder.get(way, []), abs(there - now)), 0
        alone = self.problem.rules.only(self.query, row, {name})
        return LEVEL, 1.0, self._levels.setdefault((name, alone), len(self._levels))

    def moves(self, rows: Sequence[Row]) -> StepMoves:
        """Return what any rows do, on the steps or between them."""
        shape = (len(rows), len(self.slots))
        found = StepMoves(np.full(shape, -1, np.int8), np.zeros(shape), np.zeros(shape, np.int32))
        for i, row in enumerate(rows):
            if row not in self._moves:
                levers = self.problem.rules.moved(self.query, row) & self._slot_of.keys()
                slots = {self._slot_of[name]: name for name in levers}
                self._moves[row] = {s: self._move(s, name, row) for s, name in slots.items()}
            for slot, move in self._moves[row].items():
                found.way[i, slot], found.at[i, slot], found.level[i, slot] = move
        return found

    def __len__(self) -> int:
        return sum(len(slot.edits) for slot in self.slots)

    @property
    def tables(self) -> StepTables:
        """The choices as arrays; made anew when values were added."""
        if self._tables is None:
            self._tables = StepTables.of(self.slots, self.start)
        return self._tables

    def values(self, lever: str) -> list[Value]:
        """Return the values of a lever that are tried."""
        slots = (slot for slot in self.slots if slot.lever == lever)
        return [edit.value for slot in slots for edit in slot.edits]

    def edits(self, combo: Sequence[int]) -> list[Edit]:
        """Return the edits of a combination."""
        pairs = zip(self.slots, combo, strict=False)
        return [slot.edits[choice - 1] for slot, choice in pairs if choice]

    def row(self, combo: Sequence[int]) -> Row:
        """Return the query after the edits of a combination."""
        edits = {edit.feature: edit.value for edit in self.edits(combo)}
        return self.problem.rules.apply(self.query, edits)

    def combo(self, row: Row) -> Combo | None:
        """Return a row as a combination, adding missing values; ``None`` if it cannot be one."""
        schema, chosen = self.problem.schema, dict[int, int]()
        for name in schema.changed(self.query, row):
            value = row[schema.index(name)]
            if self.problem.rules.is_cleared(row, name) or not self.levers[name].admits(value):
                continue  # it follows another, or is cleared by it; checked below
            found = self.add(Edit(name, value))
            if found is not None:
                chosen[found[0]] = found[1] + 1
        combo = tuple(chosen.get(slot, 0) for slot in range(len(self.slots)))
        return combo if self.row(combo) == row else None

    def padded(self, combos: Iterable[Sequence[int]]) -> Combos:
        """Return combinations as an array; those made when there were fewer slots are filled up."""
        found, width = list(combos), len(self.slots)
        filled = [(*combo, *(0,) * (width - len(combo))) for combo in found]
        return np.array(filled, dtype=np.int32).reshape(len(found), width)


@dataclass(frozen=True)
class StepTables:
    """The choices of all slots, one after the other, each slot beginning with leaving it alone.

    ``first`` is where each slot begins; ``way`` is -1 where a lever is left alone. ``columns`` are
    those of the encoded row that each slot touches, and ``encoded`` what its choices put there.
    """

    first: NDArray[np.int64]
    sizes: NDArray[np.int64]
    slot: NDArray[np.int64]
    way: NDArray[np.int8]
    at: Matrix
    level: NDArray[np.int32]
    cost: Matrix
    unnamed: Matrix
    columns: list[NDArray[np.int64]]
    encoded: list[Matrix]

    @classmethod
    def of(cls, slots: Sequence[LeverSteps], start: Matrix) -> StepTables:
        """Make the tables of some slots."""
        sizes = np.array([1 + len(slot.edits) for slot in slots], dtype=np.int64)
        columns, encoded = [], []
        for slot in slots:
            full = np.array([start, *slot.encoded])
            differs = (full != start) & ~(np.isnan(full) & np.isnan(start))
            touched = np.flatnonzero(differs.any(axis=0))
            columns.append(touched)
            encoded.append(full[:, touched])

        def flat(zero: float, name: str) -> Matrix:
            values = (v for slot in slots for v in (zero, *getattr(slot, name)))
            return np.fromiter(values, dtype=np.float64)

        return cls(
            first=np.cumsum(sizes) - sizes,
            sizes=sizes,
            slot=np.repeat(np.arange(len(slots)), sizes),
            way=flat(-1.0, "ways").astype(np.int8),
            at=flat(0.0, "at"),
            level=flat(0.0, "levels").astype(np.int32),
            cost=flat(0.0, "cost"),
            unnamed=1.0 - flat(1.0, "named"),
            columns=columns,
            encoded=encoded,
        )

    def places(self, combos: Combos) -> NDArray[np.int64]:
        """Return the indices of the choices of combinations in the tables."""
        return combos + self.first

    def moves(self, combos: Combos) -> StepMoves:
        """Return what combinations do."""
        places = self.places(combos)
        return StepMoves(self.way[places], self.at[places], self.level[places])

    def costs(self, combos: Combos) -> Matrix:
        """Return what combinations cost."""
        paid: Matrix = self.cost[self.places(combos)].sum(axis=1)
        return paid

    def rows(self, combos: Combos, start: Matrix) -> Matrix:
        """Return combinations as encoded rows."""
        found = np.repeat(start[None, :], len(combos), axis=0)
        for slot, columns in enumerate(self.columns):
            moved = np.flatnonzero(combos[:, slot])
            if len(moved):
                found[np.ix_(moved, columns)] = self.encoded[slot][combos[moved, slot]]
        return found


def values_to_try(lever: Lever, others: Matrix | None = None) -> list[Value]:
    """Return the values of a lever to try, given those that other people's rows hold, in order.

    >>> from waysout.domain.schema import Feature
    >>> gain = Lever.of(Feature("gain", "integer", range=(0, 100_000)), 0)
    >>> others = np.array([0.0] * 90 + [3000.0] * 5 + [7000.0] * 4 + [99_999.0])
    >>> [v for v in values_to_try(gain, others) if v >= 3000]
    [3000, 7000, 99999, 100000]
    """
    choices = lever.choices()
    if choices is not None:
        return list(choices) if len(choices) <= MOST_LEVELS else list(lever.sample(MOST_LEVELS))
    low, high = lever.bounds()
    now = place(lever, lever.now)
    if others is not None:
        # Codes are nobody's goal, and many of them would leave few quantiles for the rest.
        others = others[~np.isin(others, _codes(lever))]
        others = others[(others >= lever.low) & (others <= lever.high)]
    if now is None:
        aims = np.linspace(low, high, QUANTILES)
        if others is not None and len(others):
            aims = _quantiles(others)
        return _admitted(lever, aims)
    found: list[Value] = []
    for sign in (1, -1):
        end = high if sign > 0 else low
        beyond = np.zeros(0)
        if others is not None:
            beyond = others[others > now] if sign > 0 else others[others < now][::-1]
        aims = _quantiles(beyond)
        if not len(beyond):
            if (end - now) * sign <= 0:
                continue
            aims = now + (end - now) * np.geomspace(1 / 32, 1, QUANTILES)
        # Near the person, where quantiles are coarse: a column that is mostly one value has few.
        step = (aims[len(aims) // 4] - now) / FRACTIONS
        found += _admitted(lever, now + step * np.arange(1, FRACTIONS), room=abs(step))
        # A way may lie beyond all that others have.
        last = [end] if (end - aims[-1]) * sign > 0 else []
        found += _admitted(lever, np.concatenate([aims, last]))
    # From between two values of a grid, the nearest may lie on the other side.
    return list(dict.fromkeys(found))


def finer_values(lever: Lever, met: Collection[Value], held: Matrix) -> list[Value]:
    """Return more values for a lever: the medians of what others hold in its widest gaps.

    A gap lies between two values that were tried; the widest are those in which most rows lie, and
    narrower ones have their turn later. Where nobody holds a value that was not tried, the middles
    of the widest; of a list, what was not tried. All that is ``held`` is admitted, and in order.

    >>> from waysout.domain.schema import Feature
    >>> hours = Lever.of(Feature("hours", "integer", range=(0, 100)), 40)
    >>> finer_values(hours, {0, 60, 100}, np.array([10.0, 20, 40, 60, 61, 70, 71]))
    [20, 70]
    >>> finer_values(hours, {0, 60, 100}, np.zeros(0))
    [20, 80]
    """
    choices = lever.choices()
    if choices is not None:
        return [value for value in choices if value not in met][:MOST_LEVELS]
    ends = _admitted(lever, np.array(lever.bounds()))
    places = {place(lever, value) for value in (lever.now, *met, *ends)}
    known = np.array(sorted(at for at in places if at is not None))
    low, high = np.searchsorted(held, known[:-1], "right"), np.searchsorted(held, known[1:])
    inside = np.flatnonzero(2 * (high - low) > (high - low).max(initial=0))
    found = [*ends, *_admitted(lever, held[(low + high)[inside] // 2])]
    return _new(found, met) or _new(_middles(lever, known), met)


def _codes(lever: Lever) -> list[float]:
    return [float(code) for code in lever.never if code is not None]


def _new(values: Iterable[Value], met: Collection[Value]) -> list[Value]:
    return [value for value in dict.fromkeys(values) if value not in met]


def _held(lever: Lever, others: Matrix) -> Matrix:
    """Return what others hold, in order, as far as the lever admits it."""
    numbers, counts = np.unique(others, return_counts=True)
    admitted = [lever.admits(lever.feature.coerce(number)) for number in numbers.tolist()]
    return np.repeat(numbers, counts * np.array(admitted, dtype=np.int64))


def _middles(lever: Lever, known: Matrix) -> list[Value]:
    """Return the middles of the gaps that are at least half as wide as any that has one."""
    gaps = np.diff(known)
    middles = known[:-1] + gaps / 2
    # Nothing is near a code.
    aims = np.where(np.isin(middles, _codes(lever)), known[:-1] + gaps / 3, middles)
    for width in np.unique(gaps)[::-1].tolist():
        found = _admitted(lever, aims[2 * gaps > width])
        if any(place(lever, value) not in known for value in found):
            return found
    return []


def _share(rungs: Sequence[float], gap: float) -> float:
    """Return how many of the rungs a gap passes, as a share; between two of them, in proportion.

    >>> _share([1, 3], 2), _share([1, 3], 9)
    (0.75, 1.0)
    """
    i = bisect_left(rungs, gap)
    if i == len(rungs):
        return 1.0
    below = rungs[i - 1] if i else 0.0
    return (i + (gap - below) / (rungs[i] - below)) / len(rungs)


def _quantiles(values: Matrix) -> Matrix:
    """Return values from near to far, closer together where many lie."""
    if not len(values):
        return values
    places = np.rint(np.linspace(0, len(values) - 1, QUANTILES)).astype(np.intp)
    return np.array(list(dict.fromkeys(values[places].tolist())))


def _admitted(lever: Lever, aims: Matrix, room: float = 0.0) -> list[Value]:
    # A grid of fives admits 75.00000000000001 too, and that is what a person would read.
    rounded = (float(f"{aim:.12g}") for aim in np.clip(aims, -LARGEST, LARGEST))
    near = (nearest_to(lever, aim, room) for aim in rounded)
    return [value for value in dict.fromkeys(near) if lever.admits(value)]
