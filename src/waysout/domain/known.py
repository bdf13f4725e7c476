"""Rows whose outcome is known: what a search may learn from and be compared with."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from waysout.domain.schema import Row, Schema
from waysout.errors import InputError

T = TypeVar("T")


class Known(Protocol):
    """Rows and, for each, whether its outcome was a yes. A `Dataset` is one."""

    @property
    def rows(self) -> Sequence[Row]:
        """The rows."""
        ...

    @property
    def labels(self) -> Sequence[bool]:
        """Which of them were approved."""
        ...


@dataclass(frozen=True, slots=True)
class Approved:
    """The approved rows, encoded, and their numbers in the data."""

    numbers: NDArray[np.intp]
    matrix: NDArray[np.float64]


class PerData(Generic[T]):
    """A function of data and a schema that is computed once for as long as the data lives.

    By identity: hashing or comparing a large table would cost as much as encoding it.
    """

    def __init__(self, make: Callable[[Known, Schema], T]) -> None:
        self._make = make
        self._made: dict[int, tuple[Schema, T]] = {}

    def __call__(self, known: Known, schema: Schema) -> T:
        """Return what was made of this data, or make it."""
        schema_then, made = self._made.get(id(known), (None, None))
        if made is not None and schema_then == schema:
            return made
        made = self._make(known, schema)
        try:
            weakref.finalize(known, self._made.pop, id(known), None)
        except TypeError:  # no weak references, so its id may be reused unnoticed
            return made
        self._made[id(known)] = schema, made
        return made


@PerData
def approved(known: Known, schema: Schema) -> Approved:
    """Return the approved rows, encoded."""
    check_lengths(known)
    numbers = np.flatnonzero(np.asarray(known.labels, dtype=np.bool_))
    rows = known.rows
    return Approved(numbers, schema.encode([rows[i] for i in numbers.tolist()]))


def need_known(known: Known | None, who: str) -> Known:
    """Return the known rows, or raise `InputError` where there are none."""
    if known is None:
        raise InputError(f"{who} needs rows whose outcome is known: pass your data (data=…)")
    return known


def check_lengths(known: Known) -> None:
    """Raise `InputError` unless there is a label for every row."""
    if len(known.rows) != len(known.labels):
        raise InputError(f"{len(known.rows)} rows are known, but {len(known.labels)} labels")
