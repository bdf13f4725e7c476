"""How far apart two rows are, and the scores the paper builds on that.

``d(x', x) = α · RMS((x'_i − x_i) / MAD_i) + (1 − α) · share of categories that differ``

Numbers and integers make the first block, categories and booleans the second; a block without
features contributes 0 and α stays what it is. Where exactly one of two values is missing, a number
counts as one scale apart and a category as changed. Opaque features count in neither block.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from waysout.domain.schema import Row, Schema

Matrix = NDArray[np.float64]

ALPHA = 0.5


@dataclass(frozen=True)
class Distance:
    """The mixed distance over one schema. ``scales`` divides each number's difference."""

    schema: Schema
    scales: Mapping[str, float]
    alpha: float = ALPHA
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def fit(
        cls, schema: Schema, rows: Sequence[Row], scales: Mapping[str, float] | None = None
    ) -> Distance:
        """Return the distance with the scales given, else from training rows, else the range.

        A scale of training rows is their median absolute deviation. Where that is 0 (a column that
        is mostly one value) it is the standard deviation; where that is 0 too, 1. Without any rows
        it is a quarter of the feature's range, which is the MAD of numbers spread evenly over it;
        else 1. Fallbacks are listed in ``notes``.
        """
        given = scales or {}
        found: dict[str, float] = {}
        notes: list[str] = []
        for i, feature in enumerate(schema):
            if feature.is_numeric:
                numbers = np.array([r[i] for r in rows if r[i] is not None], dtype=np.float64)
                low, high = feature.range or (0.0, 0.0)
                if feature.name in given:
                    scale = Scale(given[feature.name])
                elif len(numbers):
                    scale = scale_of(numbers)
                elif high > low:
                    scale = Scale((high - low) / 4, "no training rows; a quarter of the range")
                else:
                    scale = Scale(1.0, "no training rows, scale or range; not scaled")
                found[feature.name] = scale.value
                notes += [f"{feature.name}: {scale.note}"] if scale.note else []
        return cls(schema, found, notes=tuple(notes))

    @cached_property
    def _numeric(self) -> NDArray[np.bool_]:
        return np.array([f.is_numeric for f in self.schema], dtype=np.bool_)

    @cached_property
    def _levels(self) -> NDArray[np.bool_]:
        return np.array([f.has_levels for f in self.schema], dtype=np.bool_)

    @cached_property
    def _divisors(self) -> Matrix:
        return np.array([self.scales[f.name] for f in self.schema if f.is_numeric])

    def between(self, row: Matrix, rows: Matrix) -> Matrix:
        """Return the distance of one encoded row to each of many, in one pass.

        Rows are encoded by `Schema.encode`; ``row`` has one dimension, ``rows`` two.
        """
        return self.joined(*self.blocks(row, rows))

    def blocks(self, row: Matrix, rows: Matrix) -> tuple[Matrix, Matrix]:
        """Return what the distances of one encoded row to many are made of.

        The mean squared gap of the numbers and the share of categories that differ: of changes to
        different features, both simply add up.
        """
        return self._blocks(self._split(row), self._split(rows))

    def joined(self, squares: Matrix, shares: Matrix) -> Matrix:
        """Return the distances that such blocks make."""
        joined: Matrix = self.alpha * np.sqrt(squares) + (1.0 - self.alpha) * shares
        return joined

    def costs(self, row: Matrix, rows: Matrix) -> Matrix:
        """Return the distances with the mean of the gaps in place of their RMS.

        So the cost of a row is the sum of the costs of its changes, and never above the distance.
        """
        (here, there), (numbers, others) = self._split(row), self._split(rows)
        shares = self._shares(there, others) if others.shape[1] else np.zeros(len(rows))
        gaps = np.abs(self._gaps(here, numbers))
        mean: Matrix = gaps.sum(axis=1) / max(1, gaps.shape[1])
        return self.alpha * mean + (1.0 - self.alpha) * shares

    def gaps(self, row: Matrix, rows: Matrix) -> Matrix:
        """Return how many scales each number of many encoded rows is from that of one."""
        return self._gaps(self._split(row)[0], self._split(rows)[0])

    def _split(self, rows: Matrix) -> tuple[Matrix, Matrix]:
        """Return the scaled numbers of encoded rows (or of one), and the rest."""
        with np.errstate(over="ignore"):
            return rows[..., self._numeric] / self._divisors, rows[..., self._levels]

    def _gaps(self, here: Matrix, numbers: Matrix) -> Matrix:
        with np.errstate(over="ignore", invalid="ignore"):
            gaps: Matrix = numbers - here
        unknown = np.isnan(gaps)
        if unknown.any():
            both = np.isnan(numbers) & np.isnan(here)
            gaps = np.where(both, 0.0, np.where(unknown, 1.0, gaps))
        return gaps

    def _blocks(
        self, row: tuple[Matrix, Matrix], rows: tuple[Matrix, Matrix]
    ) -> tuple[Matrix, Matrix]:
        (here, there), (numbers, others) = row, rows
        squares, shares = np.zeros(len(numbers)), np.zeros(len(numbers))
        if numbers.shape[1]:
            gaps = self._gaps(here, numbers)
            with np.errstate(over="ignore", invalid="ignore"):
                squares = np.einsum("ij,ij->i", gaps, gaps) / gaps.shape[1]
        if others.shape[1]:
            shares = self._shares(there, others)
        return squares, shares

    def _shares(self, there: Matrix, others: Matrix) -> Matrix:
        differ = (others != there) & ~(np.isnan(others) & np.isnan(there))
        shares: Matrix = np.mean(differ, axis=1)
        return shares

    def __call__(self, one: Row, other: Row) -> float:
        """Return the distance of two rows."""
        return self.each(one, [other])[0]

    def each(self, row: Row, rows: Sequence[Row]) -> list[float]:
        """Return the distance of one row to each of many as if it were the only one.

        `between` adds up many rows in another order than one, and the last digit shows it: what is
        said of a row must not depend on the rows that were measured with it.
        """
        encoded = self.schema.encode([row, *rows])
        (here, there), (numbers, others) = self._split(encoded[0]), self._split(encoded[1:])
        squares, shares = np.zeros(len(rows)), np.zeros(len(rows))
        if numbers.shape[1]:
            gaps = np.ascontiguousarray(self._gaps(here, numbers))
            with np.errstate(over="ignore", invalid="ignore"):
                sums = [np.einsum("ij,ij->i", one, one)[0] for one in gaps[:, None, :]]
                squares = np.array(sums).reshape(len(rows)) / gaps.shape[1]
        if others.shape[1]:
            shares = self._shares(there, others)
        found: list[float] = self.joined(squares, shares).tolist()
        return found


class Neighbours:
    """Encoded rows kept ready to be measured against, one added at a time."""

    def __init__(self, distance: Distance) -> None:
        self.distance = distance
        numbers, others = distance._split(np.zeros((16, len(distance.schema))))
        self._numbers, self._others, self._count = numbers, others, 0

    def __len__(self) -> int:
        return self._count

    @classmethod
    def of(cls, distance: Distance, rows: Matrix) -> Neighbours:
        """Return many encoded rows, ready to be measured against: they are scaled once."""
        found = cls(distance)
        (found._numbers, found._others), found._count = distance._split(rows), len(rows)
        return found

    def add(self, row: Matrix) -> None:
        """Add a row."""
        if self._count == len(self._numbers):
            self._numbers = np.concatenate([self._numbers, np.empty_like(self._numbers)])
            self._others = np.concatenate([self._others, np.empty_like(self._others)])
        self._numbers[self._count], self._others[self._count] = self.distance._split(row)
        self._count += 1

    def distances(self, row: Matrix) -> Matrix:
        """Return the distance of a row to each, in the order they were added."""
        rows = self._numbers[: self._count], self._others[: self._count]
        return self.distance.joined(*self.distance._blocks(self.distance._split(row), rows))


class Scale(NamedTuple):
    """What a number's difference is divided by, and which fallback gave it."""

    value: float
    note: str = ""


def scale_of(numbers: Matrix) -> Scale:
    """Return the scale of some numbers: the MAD, else the standard deviation, else 1.

    >>> scale_of(np.array([1.0, 2.0, 4.0])).value
    1.0
    >>> scale_of(np.array([0.0, 0.0, 0.0, 4.0])).note
    'the MAD is 0; scaled by the standard deviation'
    """
    mad = float(np.median(np.abs(numbers - np.median(numbers))))
    if mad > 0:
        return Scale(mad)
    # Three times 0.1 has a standard deviation of 1e-17: the mean is rounded.
    deviation = float(np.std(numbers)) if numbers.min() < numbers.max() else 0.0
    if deviation > 0:
        return Scale(deviation, "the MAD is 0; scaled by the standard deviation")
    return Scale(1.0, "constant in the training rows; not scaled")


def proximity(distance: float) -> float:
    """Return how near, from 1 (the same) towards 0.

    >>> proximity(0.0), proximity(1.0)
    (1.0, 0.5)
    """
    return 1.0 / (1.0 + distance)


def simplicity(changes: int) -> float:
    """Return how few features change, as the reward's sparsity score.

    >>> simplicity(1), simplicity(3)
    (0.5, 0.25)
    """
    return 1.0 / (1.0 + changes)


def novelty(distances: Matrix) -> float:
    """Return how different a candidate is from an archive, given its distances to it.

    >>> novelty(np.array([])), novelty(np.array([3.0, 1.0]))
    (1.0, 0.5)
    """
    return 1.0 if len(distances) == 0 else 1.0 - 1.0 / (1.0 + float(np.min(distances)))


def gate(probability: float, threshold: float = 0.5, softness: float = 0.1) -> float:
    """Return the soft gate of the reward, which dampens what the oracle is unlikely to approve.

    >>> gate(0.5)
    0.5
    """
    # The logistic function, in the form that cannot overflow when the gate is hard.
    return 0.5 * (1.0 + math.tanh((probability - threshold) / (2.0 * softness)))
