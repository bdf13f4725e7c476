"""Choosing from a pool: chance of a yes × quality × novelty, one after the other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from waysout.search.candidates import fingerprints
from waysout.search.library import Combo, Combos, Matrix

# Those that are best without novelty are looked at: so many for each that may be taken.
_LOOKED_AT = 60
_MOST_LEAN = 200

DECIMALS = 9
"""Scores are rounded: what is equal but for the last digits of a sum, which differ from processor
to processor, must be taken in the same order on all."""


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
    """The options that contain no other: what has all their edits and more has needless ones."""

    def __init__(self) -> None:
        self._found: list[frozenset[tuple[int, int]]] = []  # slots that are moved, and choices

    def add(self, combo: Combo) -> None:
        """Take in an option."""
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
