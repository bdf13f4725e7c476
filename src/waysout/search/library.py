"""The library of edits: what may be done about each lever, and every combination of it.

A *combination* is one choice for each lever, as a row of whole numbers: 0 leaves the lever alone,
*n* is the n-th value that the library knows for it. Thousands of them are measured in one pass.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from waysout.domain.edit import Edit
from waysout.domain.problem import Problem
from waysout.domain.schema import Row, Value
from waysout.search.grid import values_to_try

Matrix = NDArray[np.float64]
Combos = NDArray[np.int64]
Combo = tuple[int, ...]

MOST_LEVERS = 40
"""Levers that get edits nobody named; of more than these, some are drawn."""

MOST_CHOICES = 200
"""Values of one lever beyond which only named ones are added."""

_DRAWN = 40

# How much an effect may be, in squared logits, before anything was asked: of a step over one edge,
# of moving a number at all, of a category's level, and of one value beside its bin's others.
_EDGE, _MOVE, _LEVEL, _VALUE = 0.05, 0.1, 0.2, 0.1


@dataclass(frozen=True, slots=True)
class EditChoice:
    """One value of one lever; ``named`` where somebody proposed it.

    ``effects`` are the numbers of what it is made of: a number that passes three edges has three
    effects in common with one that passes four.
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
    choices; ``unnamed`` is 1 where nobody proposed the choice.
    """

    start: NDArray[np.int64]
    sizes: NDArray[np.int64]
    effects: Matrix
    squares: Matrix
    shares: Matrix
    position: Matrix
    unnamed: Matrix

    def places(self, combos: Combos) -> Combos:
        """Return where the choices of combinations stand in the tables."""
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
        """Add an edit, or return why it is none to be combined.

        What is known keeps its place, and gets the reason of who first named it.
        """
        bare = Edit(edit.feature, edit.value)
        if bare in self._known:
            self._name(edit, *self._known[bare])
            return None
        row = self.problem.rules.apply(self.query, {edit.feature: edit.value})
        moved = self.problem.rules.moved(self.query, row)
        if self.problem.key(row) == self._query_key:
            return "in the query's own bin"
        if len(moved) > 1:
            return "moves two levers at once"
        self._place(edit, next(iter(moved)), row, named)
        return None

    def add_own(self, rng: np.random.Generator) -> None:
        """Add edits that nobody named, for levers all over the table."""
        names = [name for name, lever in self._levers.items() if lever.is_open]
        if len(names) > MOST_LEVERS:
            drawn = rng.choice(len(names), MOST_LEVERS, replace=False)
            names = [names[i] for i in sorted(drawn.tolist())]
        for name in names:
            edges = self.problem.key.bins.get(name, ())
            for value in values_to_try(self._levers[name], edges):
                self.add(Edit(name, value), named=False)

    def add_drawn(self, rng: np.random.Generator) -> bool:
        """Add values drawn at random that the key tells from all others; whether there were any.

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

    def _name(self, edit: Edit, slot: Slot, number: int) -> None:
        if not slot.choices[number].named:
            slot.choices[number] = replace(slot.choices[number], edit=edit, named=True)
            self._tables = None

    def _place(self, edit: Edit, lever: str, row: Row, named: bool) -> None:
        if lever not in self._numbers:
            self._numbers[lever] = len(self.slots)
            self.slots.append(Slot(lever))
            self._blocks.append([(0.0, 0.0)])
        number = self._numbers[lever]
        slot = self.slots[number]
        if not named and len(slot.choices) >= MOST_CHOICES:
            return
        encoded = self.problem.schema.encode([row])
        squares, shares = self.problem.distance.blocks(self._encoded, encoded)
        at = self.problem.schema.index(edit.feature)
        # Of a one-hot group, the first feature has the places 0 and 1, each other one its own.
        position = float(np.nan_to_num(encoded[0, at])) if edit.feature == lever else 2.0 + at
        self._alone.add(self.problem.key(row))
        self._known[Edit(edit.feature, edit.value)] = (slot, len(slot.choices))
        slot.choices.append(EditChoice(edit, self._effects_of(edit, slot), position, named))
        self._blocks[number].append((float(squares[0]), float(shares[0])))
        self._tables = None

    # What an edit is made of -------------------------------------------------------------------

    def _effects_of(self, edit: Edit, slot: Slot) -> tuple[int, ...]:
        found = tuple(self._parts(edit, self._levers[edit.feature].now))
        if any(other.effects == found for other in slot.choices):
            # Another value in the same bin, where the oracle may yet see a difference.
            found += (self._effect((edit.feature, "value", edit.value), _VALUE),)
        return found

    def _parts(self, edit: Edit, now: Value) -> Iterator[int]:
        """Return the effects of an edit: those of nearer values, and its own."""
        name, value = edit.feature, edit.value
        if isinstance(value, (str, bool)) or value is None or now is None:
            yield self._effect((name, "level", value), _LEVEL)
            return
        edges = self._edges(name)
        here, there = bisect_left(edges, float(now)), bisect_left(edges, value)
        way = "up" if value > float(now) else "down"
        yield self._effect((name, way), _MOVE)
        for edge in range(here, there) if way == "up" else range(there, here):
            yield self._effect((name, "edge", edge), _EDGE)

    def _edges(self, name: str) -> list[float]:
        edges = self.problem.key.bins.get(name)
        return list(edges) if edges else self._sampled_edges(name)

    def _sampled_edges(self, name: str) -> list[float]:
        """Return edges for a number that the key does not bin."""
        values = values_to_try(self._levers[name])
        return sorted(float(value) for value in values if value is not None)

    def _effect(self, what: tuple[object, ...], variance: float) -> int:
        if what not in self._effects:
            self._effects[what] = len(self._effects)
            self.prior.append(variance)
        return self._effects[what]

    # Looking combinations up -------------------------------------------------------------------

    @property
    def tables(self) -> Tables:
        """The choices as arrays; made anew when the library has grown."""
        if self._tables is None:
            self._tables = self._make_tables()
        return self._tables

    def _make_tables(self) -> Tables:
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
        return Tables(start, sizes, effects, blocks[:, 0], blocks[:, 1], position, unnamed)

    def padded(self, combos: Iterable[Combo]) -> Combos:
        """Return combinations as an array; those made when there were fewer slots are filled up."""
        found, width = list(combos), len(self.slots)
        filled = [combo + (0,) * (width - len(combo)) for combo in found]
        return np.array(filled, dtype=np.int64).reshape(len(found), width)

    def distances(self, combos: Combos) -> Matrix:
        """Return how far combinations lead from the query, but for what followers do together."""
        tables = self.tables
        places = tables.places(combos)
        squares, shares = tables.squares[places].sum(axis=1), tables.shares[places].sum(axis=1)
        return self.problem.distance.joined(squares, np.minimum(shares, 1.0))

    def unnamed(self, combos: Combos) -> Matrix:
        """Return how many edits of each combination nobody proposed."""
        tables = self.tables
        unnamed: Matrix = tables.unnamed[tables.places(combos)].sum(axis=1)
        return unnamed

    def edits(self, combo: Combo) -> list[Edit]:
        """Return the edits of a combination."""
        pairs = zip(self.slots, combo, strict=False)
        return [slot.choices[choice - 1].edit for slot, choice in pairs if choice]

    def combo(self, row: Row) -> Combo | None:
        """Return a row as a combination, its edits added if need be; None where it is none."""
        schema, combo = self.problem.schema, [0] * len(self.slots)
        for name in schema.changed(self.query, row):
            edit = Edit(name, row[schema.index(name)])
            if not self._levers[name].admits(edit.value):
                continue  # it follows another, or is cleared by it; the check below tells
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
