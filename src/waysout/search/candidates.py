"""Combinations worth a look before each batch: a few thousand of the very many there are."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from waysout.search.library import Combos, Matrix, Tables

Prints = NDArray[np.int64]

RANDOM = 300
MOST_MOVED = 4


def make_pool(
    tables: Tables,
    parents: Combos,
    worth: Matrix,
    rng: np.random.Generator,
    most_moved: int = MOST_MOVED,
) -> tuple[Combos, Prints]:
    """Return different combinations, with their fingerprints.

    They are the neighbours of the parents, which differ from them in one lever (moved, moved
    elsewhere or put back), ever longer combinations of what is best for each lever, and random
    ones, which move at most so many levers. ``worth`` says how good each choice alone seems.
    """
    drawn = _random(tables, worth, rng, most_moved)
    combos = np.concatenate([_neighbours(tables, parents), _ladder(tables, worth), drawn])
    prints, first = np.unique(fingerprints(combos), return_index=True)
    moved = combos[first].any(axis=1)
    return combos[first][moved], prints[moved]


def fingerprints(combos: Combos) -> Prints:
    """Return a number for each combination; it stays the same when slots are added."""
    prints: Prints = combos @ _factors(combos.shape[1])  # wraps around, as hashes do
    return prints


@lru_cache(maxsize=8)
def _factors(width: int) -> Prints:
    return np.random.default_rng(0).integers(2**63, size=width)


def _neighbours(tables: Tables, parents: Combos) -> Combos:
    """Return each parent with every choice of every slot put in."""
    choices = len(tables.slot)
    found = np.repeat(parents, choices, axis=0)
    each = np.arange(len(found))
    found[each, np.tile(tables.slot, len(parents))] = np.tile(tables.number, len(parents))
    return found


def _ladder(tables: Tables, worth: Matrix) -> Combos:
    """Return the best choice of the best lever, that with the next best lever's, and so on."""
    best = np.array(
        [
            int(np.argmax(worth[first : first + size]))
            for first, size in zip(tables.start, tables.sizes, strict=True)
        ]
    )
    gains = worth[tables.start + best] - worth[tables.start]
    order = np.argsort(-gains, kind="stable")
    rungs = int(np.count_nonzero(gains > 0))
    found = np.zeros((rungs, len(best)), dtype=np.int64)
    for rung in range(rungs):
        found[rung:, order[rung]] = best[order[rung]]
    return found


def _random(tables: Tables, worth: Matrix, rng: np.random.Generator, most_moved: int) -> Combos:
    """Draw levers at random, and for each a choice, the better the likelier."""
    slots = len(tables.sizes)
    lots = np.argsort(rng.random((RANDOM, slots)), axis=1)
    count = rng.integers(1, min(most_moved, slots), size=(RANDOM, 1), endpoint=True)
    noisy = worth + rng.gumbel(size=(RANDOM, len(worth)))
    found = np.zeros((RANDOM, slots), dtype=np.int64)
    for slot, (first, size) in enumerate(zip(tables.start, tables.sizes, strict=True)):
        found[:, slot] = 1 + np.argmax(noisy[:, first + 1 : first + size], axis=1)
    found[lots >= count] = 0
    return found
