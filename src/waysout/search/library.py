"""The library of edits: the values of each lever, and every combination of them.

A *combination* is one choice for each lever, as a row of whole numbers: 0 leaves the lever alone,
*n* is the n-th value that the library knows for it. Thousands of them are measured in one pass.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from waysout.domain.problem import Problem
from waysout.domain.rules import Lever
from waysout.domain.schema import LARGEST, Edit, Row, Value

Matrix = NDArray[np.float64]
Combos = NDArray[np.int64]
Combo = tuple[int, ...]

MOST_VALUES = 40
"""Levels tried of a category that has very many."""

MOST_LEVERS = 40
"""Levers that get edits of our own; of more than these, some are drawn."""

MOST_CHOICES = 200
"""Values of one lever beyond which only named ones are added."""

_DRAWN = 40
_POINTS = 9
# Of a bin's width: a tenth is fine enough for a number that people like to read.
_GRAINS = (1.0, 0.5, 0.2, 0.1)

# The prior variance of an effect, in squared logits: of a step over one edge, of moving a number at
# all, of a category's level, and of one value beside the others of its bin.
_EDGE, _MOVE, _LEVEL, _VALUE = 0.05, 0.1, 0.2, 0.1


@dataclass(frozen=True, slots=True)
class EditChoice:
    """One value of one lever; ``named`` where an LLM proposed it.

    ``effects`` are the numbers of the effects it is made of: a number that passes three edges
    shares three effects with one that passes four.
    """

    edit: Edit
    effects: tuple[int, ...]
    position: float
    named: bool


@dataclass(slots=True)
class Slot:
    """A lever and its choices; the first of them is to leave it alone."""

    lever: str
    choices: list[EditChoice] = field(default_factory=list)

    def __len__(self) -> int:
        return 1 + len(self.choices)


@dataclass(frozen=True)
class Tables:
    """The choices of all slots, one after the other, as arrays to look things up in.

    ``start`` is where each slot begins; ``effects`` has a column for each effect; ``squares`` and
    ``shares`` are the blocks of the distance (`Distance.blocks`); ``position`` orders a slot's
    choices; ``unnamed`` is 1 where no LLM proposed the choice.
    """

    start: NDArray[np.int64]
    sizes: NDArray[np.int64]
    effects: Matrix
    squares: Matrix
    shares: Matrix
    position: Matrix
    unnamed: Matrix

    def places(self, combos: Combos) -> Combos:
        """Return the indices of the choices of combinations in the tables."""
        return combos + self.start

    @cached_property
    def slot(self) -> NDArray[np.int64]:
        """The slot of each choice."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def number(self) -> NDArray[np.int64]:
        """The number of each choice in its slot."""
        return np.arange(len(self.slot)) - self.start[self.slot]


class EditLibrary:
    """Edits of one query, by the lever they move. It only grows."""

    def __init__(self, problem: Problem, query: Row) -> None:
        self.problem = problem
        self.query = query
        self.slots: list[Slot] = []
        self.prior: list[float] = []
        """The variance of each effect."""
        self._numbers: dict[str, int] = {}
        self._effects: dict[tuple[object, ...], int] = {}
        self._known: dict[Edit, tuple[Slot, int]] = {}
        self._query_key = problem.key(query)
        self._alone = {self._query_key}  # the keys of the edits, each alone
        self._encoded = problem.schema.encode([query])[0]
        self._levers = problem.rules.levers(query)
        self._blocks: list[list[tuple[float, float]]] = []
        self._tables: Tables | None = None

    def __len__(self) -> int:
        return sum(len(slot.choices) for slot in self.slots)

    # Growing -----------------------------------------------------------------------------------

    def add(self, edit: Edit, *, named: bool = True) -> str | None:
        """Add an edit, or return why it cannot be combined.

        A known edit keeps its place, and gets the reason given with the first proposal of it.
        """
        problem, bare = self.problem, Edit(edit.feature, edit.value)
        if bare in self._known:
            slot, number = self._known[bare]
            if not slot.choices[number].named:
                slot.choices[number] = replace(slot.choices[number], edit=edit, named=True)
                self._tables = None
            return None
        row = problem.rules.apply(self.query, {edit.feature: edit.value})
        moved = problem.rules.moved(self.query, row)
        key = problem.key(row)
        if key == self._query_key:
            return "in the query's own bin"
        if len(moved) > 1:
            return "moves two levers at once"
        lever = next(iter(moved))
        if lever not in self._numbers:
            self._numbers[lever] = len(self.slots)
            self.slots.append(Slot(lever))
            self._blocks.append([(0.0, 0.0)])
        slot = self.slots[self._numbers[lever]]
        if not named and len(slot.choices) >= MOST_CHOICES:
            return None
        encoded = problem.schema.encode([row])
        squares, shares = problem.distance.blocks(self._encoded, encoded)
        at = problem.schema.index(edit.feature)
        # Of a one-hot group, the first feature has the places 0 and 1, each other one its own.
        position = float(np.nan_to_num(encoded[0, at])) if edit.feature == lever else 2.0 + at
        self._alone.add(key)
        self._known[bare] = (slot, len(slot.choices))
        effects = tuple(self._effects_of(edit))
        if any(other.effects == effects for other in slot.choices):
            # Another value in the same bin, where the oracle may yet see a difference.
            effects += (self._effect((edit.feature, "value", edit.value), _VALUE),)
        slot.choices.append(EditChoice(edit, effects, position, named))
        self._blocks[self._numbers[lever]].append((float(squares[0]), float(shares[0])))
        self._tables = None
        return None

    def add_own(self, rng: np.random.Generator) -> None:
        """Add edits of our own, for levers all over the table.

        A library that only an LLM fills is empty when the LLM talks nonsense, and a small LLM names
        few levers. The price is edits without a reason; the rules bind them like all others.
        """
        names = [name for name, lever in self._levers.items() if lever.is_open]
        if len(names) > MOST_LEVERS:
            drawn = rng.choice(len(names), MOST_LEVERS, replace=False)
            names = [names[i] for i in sorted(drawn.tolist())]
        for name in names:
            edges = self.problem.key.bins.get(name, ())
            for value in values_to_try(self._levers[name], edges):
                self.add(Edit(name, value), named=False)

    def add_drawn(self, rng: np.random.Generator) -> bool:
        """Add random values whose key differs from all others; returns whether there were any.

        Where a number has no bins or a category very many levels, own edits are only a sample.
        """
        levers = [lever for lever in self._levers.values() if lever.is_open]
        before = len(self)
        for _ in range(_DRAWN if levers else 0):
            lever = levers[int(rng.integers(len(levers)))]
            name, value = lever.feature.name, lever.draw(rng)
            row = self.problem.rules.apply(self.query, {name: value})
            if lever.admits(value) and self.problem.key(row) not in self._alone:
                self.add(Edit(name, value), named=False)
        return len(self) > before

    def _effects_of(self, edit: Edit) -> Iterator[int]:
        """Yield the effects of an edit: those of nearer values, and its own.

        A number's effects are steps over the key's bin edges, shared by all values that pass them:
        with one effect for each value nothing would be learned from its neighbours, and a slope
        would have to be straight. Trees, the usual oracles, change in steps.
        """
        name, value, lever = edit.feature, edit.value, self._levers[edit.feature]
        if isinstance(value, (str, bool)) or value is None or lever.now is None:
            yield self._effect((name, "level", value), _LEVEL)
            return
        edges = list(self.problem.key.bins.get(name) or ())
        if not edges:
            edges = sorted(float(tried) for tried in values_to_try(lever) if tried is not None)
        here, there = bisect_left(edges, float(lever.now)), bisect_left(edges, value)
        way = "up" if value > float(lever.now) else "down"
        yield self._effect((name, way), _MOVE)
        for edge in range(here, there) if way == "up" else range(there, here):
            yield self._effect((name, "edge", edge), _EDGE)

    def _effect(self, what: tuple[object, ...], variance: float) -> int:
        if what not in self._effects:
            self._effects[what] = len(self._effects)
            self.prior.append(variance)
        return self._effects[what]

    # Looking combinations up -------------------------------------------------------------------

    @property
    def tables(self) -> Tables:
        """The choices as arrays; made anew when the library has grown."""
        if self._tables is not None:
            return self._tables
        sizes = np.array([len(slot) for slot in self.slots], dtype=np.int64)
        start = np.cumsum(sizes) - sizes
        effects = np.zeros((int(sizes.sum()), len(self.prior)))
        position, unnamed = np.zeros(len(effects)), np.zeros(len(effects))
        for slot, first in zip(self.slots, start.tolist(), strict=True):
            at = self.problem.schema.index(slot.lever)
            position[first] = float(np.nan_to_num(self._encoded[at]))
            for i, choice in enumerate(slot.choices, first + 1):
                effects[i, list(choice.effects)] = 1.0
                position[i], unnamed[i] = choice.position, not choice.named
        blocks = np.array([pair for pairs in self._blocks for pair in pairs]).reshape(-1, 2)
        squares, shares = blocks[:, 0], blocks[:, 1]
        self._tables = Tables(start, sizes, effects, squares, shares, position, unnamed)
        return self._tables

    def padded(self, combos: Iterable[Combo]) -> Combos:
        """Return combinations as an array; those made when there were fewer slots are filled up."""
        found, width = list(combos), len(self.slots)
        filled = [combo + (0,) * (width - len(combo)) for combo in found]
        return np.array(filled, dtype=np.int64).reshape(len(found), width)

    def distances(self, combos: Combos) -> Matrix:
        """Return how far combinations lead from the query, without joint effects of followers."""
        tables = self.tables
        places = tables.places(combos)
        squares, shares = tables.squares[places].sum(axis=1), tables.shares[places].sum(axis=1)
        return self.problem.distance.joined(squares, np.minimum(shares, 1.0))

    def unnamed(self, combos: Combos) -> Matrix:
        """Return how many edits of each combination no LLM proposed."""
        tables = self.tables
        unnamed: Matrix = tables.unnamed[tables.places(combos)].sum(axis=1)
        return unnamed

    def edits(self, combo: Combo) -> list[Edit]:
        """Return the edits of a combination."""
        pairs = zip(self.slots, combo, strict=False)
        return [slot.choices[choice - 1].edit for slot, choice in pairs if choice]

    def combo(self, row: Row) -> Combo | None:
        """Return a row as a combination, adding missing edits; None if it cannot be one."""
        schema, combo = self.problem.schema, [0] * len(self.slots)
        for name in schema.changed(self.query, row):
            edit = Edit(name, row[schema.index(name)])
            cleared = self.problem.rules.is_cleared(row, name)
            if cleared or not self._levers[name].admits(edit.value):
                continue  # it follows another, or is cleared by it; checked below
            self.add(edit, named=False)
            if edit not in self._known:
                return None
            slot, number = self._known[edit]
            combo += [0] * (len(self.slots) - len(combo))
            combo[self._numbers[slot.lever]] = number + 1
        found = tuple(combo)
        return found if self.row(found) == row else None

    def row(self, combo: Combo) -> Row:
        """Return the query after the edits of a combination."""
        edits = {edit.feature: edit.value for edit in self.edits(combo)}
        return self.problem.rules.apply(self.query, edits)


# Values worth trying -----------------------------------------------------------------------------


def values_to_try(lever: Lever, edges: Sequence[float] = ()) -> list[Value]:
    """Return admitted values of a lever, each as near to the present one as its bin allows.

    Rows in the same bins have the same key, so only one value a bin can count. The end of a bin
    next to the present value changes least, and a round number near it can be read and said.

    >>> from waysout.domain.schema import Feature
    >>> income = Lever.of(Feature("income", "integer", range=(0, 900)), 240)
    >>> values_to_try(income, [100, 250, 400, 800])
    [100, 300, 500, 810]
    """
    if not lever.feature.is_numeric or lever.now is None or not edges:
        return list(lever.sample(_POINTS if lever.feature.is_numeric else MOST_VALUES))
    now, choices = float(lever.now), lever.choices()
    if choices is None:
        return list(_one_in_each_bin(lever, now, edges))
    nearest: dict[int, float] = {}
    numbers = (choice for choice in choices if isinstance(choice, (int, float)))
    for value in sorted(numbers, key=lambda value: abs(value - now)):
        nearest.setdefault(bisect_left(edges, value), value)
    nearest.pop(bisect_left(edges, now), None)
    return [*sorted(nearest.values())]


def _one_in_each_bin(lever: Lever, now: float, edges: Sequence[float]) -> Iterator[Value]:
    # Where the lever has no end, the edges show how far values go.
    first, last = lever.bounds()
    width = (edges[-1] - edges[0]) / max(1, len(edges) - 1) or abs(edges[0]) or 1.0
    if lever.low <= -LARGEST:
        first = min(first, edges[0] - width)
    if lever.high >= LARGEST:
        last = max(last, edges[-1] + width)
    fine = lever.step or lever.feature.resolution
    for i, (below, above) in enumerate(zip([first, *edges], [*edges, last], strict=True)):
        if i == bisect_left(edges, now):
            continue
        # A bin begins just above its lower edge; only the lowest holds its own.
        low = below
        if i and fine:
            low = lever.start + fine * (math.floor((below - lever.start) / fine + 1e-9) + 1)
        elif i:
            low = below + (above - below) * _GRAINS[-1]
        low, high = max(low, first), min(above, last)
        for value in _readable(low, high, upwards=now < low) if low <= high else ():
            near = lever.towards(value, must_move=True)
            # The value must stay in its bin: where no round number does, the end itself is taken.
            if lever.admits(near) and bisect_left(edges, float(near or 0)) == i:
                yield near
                break


def _readable(low: float, high: float, *, upwards: bool) -> Iterator[float]:
    """Yield numbers of an interval from the near end on, rounder ones first."""
    if high > low:
        width = 10.0 ** math.floor(math.log10(high - low))
        for grain in _GRAINS:
            step = width * grain
            steps = math.ceil(low / step - 1e-9) if upwards else math.floor(high / step + 1e-9)
            if low <= steps * step <= high:
                yield steps * step
    yield from (low, high) if upwards else (high, low)
