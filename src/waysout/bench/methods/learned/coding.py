"""Rows encoded as vectors for a network, and back: ranks for numbers, one-hot levels.

A number becomes its rank among the known rows, as a normal deviate. Where many rows share a value
(half of all people have no capital gain) the value owns a range of ranks, and each row gets a
random one of them: the distribution to learn is smooth, and decoding restores the value exactly,
also a code such as -9. So generated numbers always occur in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from waysout.domain.schema import Feature, Row, Schema

Matrix = NDArray[np.float64]

_EDGE = 1e-4  # the ends of the normal deviates lie at ±3.7
_GRID = np.linspace(_EDGE, 1 - _EDGE, 20_001)
_DEVIATES = np.array([NormalDist().inv_cdf(share) for share in _GRID.tolist()])


@dataclass(frozen=True)
class NumberCode:
    """One number as a normal deviate; ``ends`` are the shares of rows up to each of ``values``."""

    values: Matrix
    ends: Matrix

    width = 1

    @classmethod
    def fit(cls, column: Matrix) -> NumberCode:
        """Take values and shares from a column that has at least one value."""
        values, counts = np.unique(column, return_counts=True)
        return cls(values, np.cumsum(counts) / len(column))

    def encode(self, column: Matrix, rng: np.random.Generator) -> Matrix:
        """Return a deviate for each number; an unseen number counts as the next one below."""
        at = np.clip(np.searchsorted(self.values, column, side="right") - 1, 0, None)
        starts = np.concatenate([[0.0], self.ends[:-1]])[at]
        shares = starts + (self.ends[at] - starts) * rng.random(len(column))
        deviates: Matrix = np.interp(shares, _GRID, _DEVIATES)
        return deviates[:, None]

    def decode(self, block: Matrix) -> Matrix:
        """Return the number whose range of ranks a deviate falls into."""
        shares = np.interp(block[:, 0], _DEVIATES, _GRID)
        at = np.searchsorted(self.ends, shares, side="left")
        return self.values[np.clip(at, 0, len(self.values) - 1)]


@dataclass(frozen=True)
class LevelCode:
    """One category or boolean as one-hot places at ±1."""

    width: int

    def encode(self, column: Matrix, rng: np.random.Generator) -> Matrix:
        """Return 1 in the place of the level and -1 in the others."""
        return np.where(column[:, None] == np.arange(self.width), 1.0, -1.0)

    def decode(self, block: Matrix) -> Matrix:
        """Return the level whose place is the highest."""
        places: Matrix = np.argmax(block, axis=1).astype(np.float64)
        return places


@dataclass(frozen=True)
class FeatureCode:
    """One feature: its values, and a flag for missing ones where there are any."""

    code: NumberCode | LevelCode
    may_be_missing: bool

    @classmethod
    def fit(cls, feature: Feature, column: Matrix) -> FeatureCode:
        """Return how a feature is encoded, given the known values."""
        missing = np.isnan(column)
        known = column[~missing]
        if not feature.is_numeric:
            return cls(LevelCode(max(1, len(feature.values()))), bool(missing.any()))
        return cls(NumberCode.fit(known if len(known) else np.zeros(1)), bool(missing.any()))

    @property
    def width(self) -> int:
        """Number of vector positions of the feature."""
        return self.code.width + self.may_be_missing

    def encode(self, column: Matrix, rng: np.random.Generator) -> Matrix:
        """Return a column as numbers; a missing value is encoded as the first known one."""
        missing = np.isnan(column)
        first = self.code.values[0] if isinstance(self.code, NumberCode) else 0.0
        block = self.code.encode(np.where(missing, first, column), rng)
        if not self.may_be_missing:
            return block
        return np.hstack([block, np.where(missing, 1.0, -1.0)[:, None]])

    def decode(self, block: Matrix) -> Matrix:
        """Return numbers as a column."""
        column = self.code.decode(block[:, : self.code.width])
        if not self.may_be_missing:
            return column
        return np.where(block[:, -1] > 0, np.nan, column)


@dataclass(frozen=True)
class Coding:
    """All features of a table, in the schema's order."""

    schema: Schema
    codes: tuple[FeatureCode, ...]

    @classmethod
    def fit(cls, schema: Schema, matrix: Matrix) -> Coding:
        """Return the coding of encoded rows (see `Schema.encode`)."""
        return cls(schema, tuple(FeatureCode.fit(f, matrix[:, j]) for j, f in enumerate(schema)))

    @property
    def width(self) -> int:
        """Number of vector positions of a row."""
        return sum(code.width for code in self.codes)

    @property
    def blocks(self) -> list[slice]:
        """The slice of each feature in a row's numbers."""
        ends = np.cumsum([code.width for code in self.codes]).tolist()
        return [slice(end - code.width, end) for end, code in zip(ends, self.codes, strict=True)]

    def encode(self, matrix: Matrix, rng: np.random.Generator) -> Matrix:
        """Return encoded rows as vectors."""
        columns = zip(self.codes, matrix.T, strict=True)
        return np.hstack([code.encode(column, rng) for code, column in columns])

    def decode(self, vectors: Matrix) -> Matrix:
        """Return vectors as encoded rows."""
        parts = zip(self.codes, self.blocks, strict=True)
        return np.column_stack([code.decode(vectors[:, block]) for code, block in parts])

    def rows(self, vectors: Matrix) -> Sequence[Row]:
        """Return vectors as typed rows."""
        return self.schema.decode(self.decode(vectors))
