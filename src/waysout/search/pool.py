"""Pools of combinations to choose from: singles, neighbours of promising ones, and random ones."""

from __future__ import annotations

from collections import Counter, deque
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from waysout.search.steps import DOWN, LEVEL, UP, Combos, StepTables

RANDOM = 30
"""Random combinations in a pool for each that is asked."""
_PER_LEVER = 4  # choices drawn for each lever of each parent, as far as all that fits into:
_MOST_CELLS = 2**23  # of a thousand levers, neighbours of sixteen would take seconds and a gigabyte
_SHARES = (0.9, 0.75, 0.5)
_LATEST = 1000  # tries that are looked at


def singles(tables: StepTables) -> Combos:
    """Return every choice alone."""
    moved = np.flatnonzero(tables.way >= 0)
    slots = tables.slot[moved]
    found = np.zeros((len(moved), len(tables.first)), dtype=np.int32)
    found[np.arange(len(moved)), slots] = moved - tables.first[slots]
    return found


def around(tables: StepTables, parents: Combos, rng: np.random.Generator) -> Combos:
    """Return neighbours of combinations: a lever moved, dropped, or some steps nearer or farther.

    And all levers walked back together.
    """
    if not len(parents):
        return parents
    width = len(tables.first)
    each, most = np.arange(len(parents) * width * _PER_LEVER), max(1, _MOST_CELLS // width)
    if len(each) > most:
        each = np.sort(rng.choice(each, most, replace=False))
    slots = each // _PER_LEVER % width
    moved = parents[each // (_PER_LEVER * width)]
    drawn = (rng.random(len(slots)) * tables.sizes[slots]).astype(np.int32)
    moved[np.arange(len(slots)), slots] = drawn
    found = [parents, moved]
    for parent in parents:
        on = np.flatnonzero(parent)
        for slot in on:
            near = _near(tables, int(slot), int(parent[slot]))
            new = np.repeat(parent[None, :], len(near), axis=0)
            new[:, slot] = near
            found.append(new)
        if len(on) > 1:
            back = np.repeat(parent[None, :], len(_SHARES), axis=0)
            for slot in on:
                back[:, slot] = [_scaled(tables, int(slot), int(parent[slot]), s) for s in _SHARES]
            found.append(back)
    return np.concatenate(found)


def _same_way(tables: StepTables, slot: int, choice: int) -> NDArray[np.intp]:
    """Return the choices of a slot in the direction of one of them, from near to far."""
    first = tables.first[slot]
    ways = tables.way[first : first + tables.sizes[slot]]
    same = np.flatnonzero(ways == ways[choice])
    return same[np.argsort(tables.at[first + same], kind="stable")]


def _near(tables: StepTables, slot: int, choice: int) -> NDArray[np.intp]:
    """Return a choice's neighbours, those at half and a quarter of its steps, and leaving it."""
    order = _same_way(tables, slot, choice)
    at = int(np.flatnonzero(order == choice)[0])
    return np.unique([0, *order[max(0, at - 4) : at + 3], *order[[at // 2, at // 4]]])


def _scaled(tables: StepTables, slot: int, choice: int, share: float) -> int:
    """Return the choice at a share of the way of another; a level has no way to go back."""
    order, first = _same_way(tables, slot, choice), tables.first[slot]
    if tables.way[first + choice] == LEVEL:
        return choice
    gaps = np.abs(tables.at[first + order] - share * tables.at[first + choice])
    return int(order[np.argmin(gaps)])


def random_combos(
    tables: StepTables, rng: np.random.Generator, count: int, fewest: int, most: int
) -> Combos:
    """Return combinations of random choices of some number of levers."""
    width = len(tables.first)
    lots = np.argsort(rng.random((count, width)), axis=1)
    moved = rng.integers(min(fewest, width), min(most, width), size=(count, 1), endpoint=True)
    found = 1 + (rng.random((count, width)) * (tables.sizes - 1)).astype(np.int32)
    return np.where(lots < moved, found, 0)


def farthest(tables: StepTables, combos: Combos) -> Combos:
    """Return combinations with each number as far as it goes in its direction."""
    found = combos.copy()
    for slot, first in enumerate(tables.first.tolist()):
        inside = slice(first, first + int(tables.sizes[slot]))
        ways, at = tables.way[inside], tables.at[inside]
        for way in (UP, DOWN):
            moved = ways[combos[:, slot]] == way
            found[moved, slot] = np.argmax(np.where(ways == way, at, -1.0))
    return found


def distinct(combos: Combos) -> Combos:
    """Return each combination once, in the order they came; none that changes nothing."""
    combos = combos[combos.any(axis=1)]
    prints = combos.astype(np.int64) @ _factors(combos.shape[1])  # wraps around, as hashes do
    _, first = np.unique(prints, return_index=True)
    kept: Combos = combos[np.sort(first)]
    return kept


@lru_cache(maxsize=8)
def _factors(width: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(2**62, size=width)


class Tried:
    """The sets of levers that were tried, and how often.

    A set that has most of its levers in common with many that were tried has been tried, too: else
    rows would go to one lever with each of the others in turn.
    """

    def __init__(self) -> None:
        self._latest: deque[tuple[int, ...]] = deque(maxlen=_LATEST)

    def add(self, moved: NDArray[np.bool_]) -> None:
        """Note that these levers were moved together."""
        self._latest.append(tuple(np.flatnonzero(moved).tolist()))

    def alike(self, moved: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return how often sets were tried, where others count by their overlap, squared.

        >>> tried = Tried()
        >>> tried.add(np.array([True, True, False]))
        >>> tried.alike(np.array([[True, True, False], [True, False, False], [False, False, True]]))
        array([1.  , 0.25, 0.  ])
        """
        counts = Counter(self._latest)
        known = np.zeros((len(counts), moved.shape[1]))
        for i, levers in enumerate(counts):
            known[i, list(levers)] = 1.0
        # Many combinations move the same levers.
        prints = moved.astype(np.int64) @ _factors(moved.shape[1])
        _, first, which = np.unique(prints, return_index=True, return_inverse=True)
        sets = moved[first].astype(np.float64)
        both = sets @ known.T
        either = sets.sum(axis=1)[:, None] + known.sum(axis=1) - both
        found: NDArray[np.float64] = (both / either) ** 2 @ np.array([*counts.values()])
        return found[which]
