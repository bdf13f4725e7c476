"""Which combinations to ask next: a pool of a few thousand, and the ranking of a pool.

A combination's rank is its chance of a yes × quality × novelty, taken one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from waysout.search.library import Combo, Combos, Matrix, Tables

Prints = NDArray[np.int64]

RANDOM = 300
MOST_MOVED = 4
# How many of the best without novelty are looked at, for each that may be taken.
_LOOKED_AT = 60
_MOST_LEAN = 200

DECIMALS = 9
"""Scores are rounded to these before the best is taken: equal sums are common (two categories cost
the same), and their last digits differ from processor to processor."""


def make_pool(
    tables: Tables,
    parents: Combos,
    worth: Matrix,
    rng: np.random.Generator,
    extra: int = 0,
) -> tuple[Combos, Prints]:
    """Return distinct combinations, with their fingerprints.

    They are the neighbours of the parents, which differ from them in one lever (moved, moved
    elsewhere or put back), ever longer combinations of the best choice of each lever, and random
    ones, which move at most four levers and ``extra``. ``worth`` says how good each choice alone
    seems.
    """
    # Drawn first: the order of draws is part of a search's result for its seed.
    drawn = _random(tables, worth, rng, MOST_MOVED + extra)
    neighbours = np.repeat(parents, len(tables.slot), axis=0)
    each = np.arange(len(neighbours))
    neighbours[each, np.tile(tables.slot, len(parents))] = np.tile(tables.number, len(parents))
    combos = np.concatenate([neighbours, _ladder(tables, worth), drawn])
    prints, first = np.unique(fingerprints(combos), return_index=True)
    moved = combos[first].any(axis=1)
    return combos[first][moved], prints[moved]


def fingerprints(combos: Combos) -> Prints:
    """Return a number for each combination; it stays the same when slots are added.

    Thousands of combinations are so compared with all that were seen in one pass. Two that collide
    cost one combination, never a row twice: keys are compared as well.
    """
    prints: Prints = combos @ _factors(combos.shape[1])  # wraps around, as hashes do
    return prints


def fingerprint(combo: Sequence[int]) -> int:
    """Return the fingerprint of one combination."""
    return int(fingerprints(np.array([combo], dtype=np.int64))[0])


@lru_cache(maxsize=8)
def _factors(width: int) -> Prints:
    return np.random.default_rng(0).integers(2**63, size=width)


def _ladder(tables: Tables, worth: Matrix) -> Combos:
    """Return the best choice of the best lever, that with the next best lever's, and so on."""
    slots = zip(tables.start, tables.sizes, strict=True)
    best = np.array([int(np.argmax(worth[first : first + size])) for first, size in slots])
    gains = worth[tables.start + best] - worth[tables.start]
    order = np.argsort(-gains, kind="stable")
    rungs = int(np.count_nonzero(gains > 0))
    found = np.zeros((rungs, len(best)), dtype=np.int64)
    for rung in range(rungs):
        found[rung:, order[rung]] = best[order[rung]]
    return found


def _random(tables: Tables, worth: Matrix, rng: np.random.Generator, most_moved: int) -> Combos:
    """Draw levers at random, and a choice for each, better ones more likely."""
    slots = len(tables.sizes)
    lots = np.argsort(rng.random((RANDOM, slots)), axis=1)
    count = rng.integers(1, min(most_moved, slots), size=(RANDOM, 1), endpoint=True)
    noisy = worth + rng.gumbel(size=(RANDOM, len(worth)))
    found = np.zeros((RANDOM, slots), dtype=np.int64)
    for slot, (first, size) in enumerate(zip(tables.start, tables.sizes, strict=True)):
        found[:, slot] = 1 + np.argmax(noisy[:, first + 1 : first + size], axis=1)
    found[lots >= count] = 0
    return found


class Ranking:
    """The best combinations of a pool, of which ``most`` will be taken.

    A combination's score is a sum of logarithms: of its chance and quality, which come in
    ``scores``; less ``novelty`` × that of how often its levers were tried; less ``needless`` where
    one of its edits can be left out, as far as is known.
    """

    def __init__(
        self,
        combos: Combos,
        scores: Matrix,
        *,
        most: int,
        novelty: float,
        tried: Mapping[int, int],
        needless: float,
        lean: LeanOptions,
    ) -> None:
        rounded: Matrix = np.round(scores - np.where(lean.within(combos), needless, 0.0), DECIMALS)
        best = np.argsort(-rounded, kind="stable")[: most * _LOOKED_AT]
        self._combos, self._scores = combos[best], rounded[best]
        self._levers = fingerprints((self._combos > 0).astype(np.int64))
        self._novelty = novelty
        self._tried = np.array([tried.get(p, 0) for p in self._levers.tolist()], dtype=np.float64)

    def pop(self) -> Combo | None:
        """Take the best; those that move the same levers then count as less new."""
        total = np.round(self._scores - self._novelty * np.log1p(self._tried), DECIMALS)
        if not len(total) or not np.isfinite(total.max()):
            return None
        best = int(np.argmax(total))
        self._scores[best] = -np.inf
        self._tried += self._levers == self._levers[best]
        return tuple(self._combos[best].tolist())


class LeanOptions:
    """The options that contain no other: a combination with all their edits and more is padded.

    Adding to an option likely gives another option, so padding would be the surest way to a high
    count; that is why it costs something.
    """

    def __init__(self) -> None:
        self._found: list[frozenset[tuple[int, int]]] = []  # slots that are moved, and choices

    def add(self, combo: Combo) -> None:
        """Add an option."""
        edits = frozenset((slot, choice) for slot, choice in enumerate(combo) if choice)
        if not any(lean <= edits for lean in self._found):
            others = [lean for lean in self._found if not edits <= lean]
            # The smallest are contained in most.
            self._found = sorted([*others, edits], key=len)[:_MOST_LEAN]

    def within(self, combos: Combos) -> NDArray[np.bool_]:
        """Return which combinations have all edits of an option, and more."""
        found = np.zeros(len(combos), dtype=np.bool_)
        moved = np.count_nonzero(combos, axis=1)
        for lean in self._found:
            slots, choices = zip(*lean, strict=True)
            has_all = (combos[:, slots] == choices).all(axis=1)
            found |= has_all & (moved > len(lean))
        return found
