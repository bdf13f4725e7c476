"""Rows whose outcome is known: what a search may learn from and be compared with."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from waysout.domain.schema import Row, Schema
from waysout.errors import InputError


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

    schema: Schema
    numbers: NDArray[np.intp]
    matrix: NDArray[np.float64]


# By identity: hashing or comparing a large table would cost as much as encoding it.
_encoded: dict[int, Approved] = {}


def approved(known: Known, schema: Schema) -> Approved:
    """Return the approved rows, encoded once for as long as the data lives."""
    found = _encoded.get(id(known))
    if found is not None and found.schema == schema:
        return found
    found = _encode(known, schema)
    try:
        weakref.finalize(known, _encoded.pop, id(known), None)
    except TypeError:  # it cannot tell when it goes, and another may get its id
        return found
    _encoded[id(known)] = found
    return found


def _encode(known: Known, schema: Schema) -> Approved:
    check_lengths(known)
    numbers = np.flatnonzero(np.asarray(known.labels, dtype=np.bool_))
    rows = known.rows
    return Approved(schema, numbers, schema.encode([rows[i] for i in numbers.tolist()]))


def check_lengths(known: Known) -> None:
    """Raise `InputError` unless there is a label for every row."""
    if len(known.rows) != len(known.labels):
        raise InputError(f"{len(known.rows)} rows are known, but {len(known.labels)} labels")
