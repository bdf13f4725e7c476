"""What a search has found: one option per key, the nearest misses, and the counts of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waysout.domain.problem import Problem
from waysout.domain.result import Option
from waysout.domain.schema import Row

NEAR_MISSES = 5
# Some of the likeliest may turn out to break a rule when they are looked at.
_MISSES_KEPT = 4 * NEAR_MISSES


@dataclass(frozen=True, slots=True)
class Found:
    """A row the oracle was asked of, and the reasons its proposer gave."""

    row: Row
    probability: float
    reasons: tuple[str, ...] = ()


class Archive:
    """Keeps the first valid row of each key. A row is valid if it is approved and breaks no rule.

    A valid row whose key is that of the query differs from it by less than the key tells: it is an
    option for the person, but counted apart and never among the unique ones.
    """

    def __init__(self, problem: Problem, query: Row) -> None:
        self.problem = problem
        self.query = query
        self.query_key = problem.key(query)
        self.best_probability: float | None = None
        self.evaluated = 0
        self.valid = 0
        self.pruned = 0
        self.generated = 0
        self.rejections: Counter[str] = Counter()
        self._found: dict[str, Found] = {}
        self._misses: dict[str, Found] = {}
        self._matrix = np.empty((16, len(problem.schema)))
        self._unique = 0

    def is_valid(self, row: Row, approved: bool) -> bool:
        """Whether a row the oracle approved or not is a way out."""
        return approved and row != self.query and not self.problem.violations(self.query, row)

    def take(
        self, row: Row, key: str, probability: float, valid: bool, reasons: Sequence[str] = ()
    ) -> bool:
        """Count an evaluated row; returns whether it is a new option."""
        self.evaluated += 1
        self.best_probability = max(probability, self.best_probability or 0.0)
        found = Found(row, probability, tuple(reasons))
        if not valid:
            self._miss(key, found)
            return False
        self.valid += 1
        if key in self._found:
            return False
        self._found[key] = found
        if key != self.query_key:
            self._append(row)
        return True

    def _miss(self, key: str, found: Found) -> None:
        known = self._misses.get(key)
        if known is None or known.probability < found.probability:
            self._misses[key] = found
        if len(self._misses) > 2 * _MISSES_KEPT:
            self._misses = dict(self._likeliest(_MISSES_KEPT))

    def _likeliest(self, most: int) -> list[tuple[str, Found]]:
        return sorted(self._misses.items(), key=lambda item: -item[1].probability)[:most]

    def _append(self, row: Row) -> None:
        if self._unique == len(self._matrix):
            self._matrix = np.concatenate([self._matrix, np.empty_like(self._matrix)])
        self._matrix[self._unique] = self.problem.schema.encode([row])[0]
        self._unique += 1

    @property
    def unique(self) -> NDArray[np.float64]:
        """The unique valid rows, encoded."""
        return self._matrix[: self._unique]

    @property
    def unique_rows(self) -> list[Row]:
        """The unique valid rows, in the order they were found."""
        return [f.row for key, f in self._found.items() if key != self.query_key]

    @property
    def rows(self) -> list[Row]:
        """The rows of the options, in the order they were found."""
        return [found.row for found in self._found.values()]

    def __len__(self) -> int:
        return len(self._found)

    def options(self, start: int = 0) -> list[Option]:
        """Return the options in the order they were found, from one on."""
        return [self._option(f) for f in list(self._found.values())[start:]]

    def near_misses(self, most: int = NEAR_MISSES) -> list[Option]:
        """Return the likeliest rows that were not approved and break no rule."""
        kept = [
            found
            for key, found in self._likeliest(_MISSES_KEPT)
            if key not in self._found and not self.problem.violations(self.query, found.row)
        ]
        return [self._option(found) for found in kept[:most]]

    def _option(self, found: Found) -> Option:
        return self.problem.option(self.query, found.row, found.probability, found.reasons)
