"""Data frames as tables: pandas and polars (through narwhals), and numpy arrays with names."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np

from waysout.datasets.table import WIDEST, Table
from waysout.domain.schema import check_name
from waysout.errors import InputError, SchemaError, TableError, unknown

MOST_ROWS = 50_000
"""Larger frames are sampled: a card and distances need no more, and typing a row takes time."""


@dataclass(frozen=True)
class Frame:
    """A data frame whose columns have the names that a card can use.

    ``native`` is the frame itself, or a numpy array; ``columns`` maps each name to its position.
    """

    native: Any
    columns: Mapping[str, int]

    @classmethod
    def of(cls, data: Any, names: Sequence[str] | None = None) -> Frame:
        """Wrap a frame, or an array with the names of its columns."""
        if isinstance(data, np.ndarray):
            if data.ndim != 2:
                raise InputError(
                    f"data is an array of shape {data.shape}: pass one row for each person"
                )
            if names is None or len(names) != data.shape[1]:
                told = "no names" if names is None else f"{len(names)} names"
                raise InputError(
                    f"data is an array of {data.shape[1]} columns and {told}: name them, "
                    "features=['income', …], or pass a data frame"
                )
            return cls(data, _positions(names))
        if not is_frame(data):
            raise InputError(
                f"data is a pandas or polars DataFrame, a numpy array with features=[…], or a "
                f"Dataset, not a {type(data).__name__}"
            )
        return cls(data, _positions([str(name) for name in data.columns]))

    def __len__(self) -> int:
        return len(self.native)

    def only(self, names: Sequence[str]) -> Frame:
        """Return some of the columns, in that order."""
        for name in names:
            if name not in self.columns:
                raise InputError(f"data: {unknown('column', name, self.columns)}")
        places = [self.columns[name] for name in names]
        if isinstance(self.native, np.ndarray):
            native = self.native[:, places]
        elif hasattr(self.native, "iloc"):
            native = self.native.iloc[:, places]
        else:
            native = self.native[:, places]
        return Frame(native, {name: i for i, name in enumerate(names)})

    def empty(self) -> Any:
        """Return the frame without rows: its kind, its columns and their types."""
        return self.native[:0]

    def cells(self, name: str) -> list[Any]:
        """Return a column as plain Python values; dates become ISO text only in rows."""
        place = self.columns[name]
        if isinstance(self.native, np.ndarray):
            return [_plain(cell) for cell in self.native[:, place].tolist()]
        import narwhals as nw

        frame = nw.from_native(self.native, eager_only=True)
        return [_plain(cell) for cell in frame[:, place].to_list()]

    def table(self, keep: Sequence[int] | None = None, source: str = "data") -> Table:
        """Return the frame as a table of typed cells; ``keep`` are the numbers of its rows."""
        chosen = {name: self.cells(name) for name in self.columns}
        if keep is not None:
            chosen = {name: [cells[i] for i in keep] for name, cells in chosen.items()}
        records = [
            dict(zip(chosen, cells, strict=True)) for cells in zip(*chosen.values(), strict=True)
        ]
        return Table(tuple(chosen), records, source, typed=True)

    def sample(self, most: int = MOST_ROWS) -> list[int] | None:
        """Return which rows to read, or None for all of them.

        Where there are more than ``most``, they are drawn, always the same ones; the rows with a
        column's extremes and the first with each level are always among them, so that what the
        sample does not hold is not in the table either.
        """
        if len(self) <= most:
            return None
        kept = set(random.Random(0).sample(range(len(self)), most))
        for name in self.columns:
            cells = self.cells(name)
            numbers = [i for i, cell in enumerate(cells) if _is_number(cell)]
            if numbers:
                kept |= {min(numbers, key=cells.__getitem__), max(numbers, key=cells.__getitem__)}
            first: dict[Any, int] = {}
            for i, cell in enumerate(cells):
                if not _is_number(cell):
                    with contextlib.suppress(TypeError):  # a list, which is no level
                        first.setdefault(cell, i)
            if len(first) <= most // 10:  # else it is no category
                kept |= set(first.values())
        return sorted(kept)


def is_frame(data: Any) -> bool:
    """Whether this is a data frame that narwhals knows, with its rows in memory."""
    import narwhals as nw

    columns = list(getattr(data, "columns", ()))
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise TableError(f"data has two columns named {twice!r}; rename one")
    found = nw.from_native(data, eager_only=True, pass_through=True)
    return isinstance(found, nw.DataFrame)


def row_of(raw: Any, names: Sequence[str]) -> Any:
    """Return one person's row as a mapping.

    An array, a tuple or a list has its values in the order of the ``names``; a frame of a single
    row is that row. Whatever else there is stays as it is.
    """
    if isinstance(raw, (tuple, list)):
        if len(raw) != len(names):
            raise InputError(
                f"the row has {len(raw)} values, and data has {len(names)} columns: give one value "
                "for each, in that order, or a mapping"
            )
        return dict(zip(names, map(_plain, raw), strict=True))
    if isinstance(raw, np.ndarray):
        flat = raw.reshape(-1) if raw.ndim == 2 and len(raw) == 1 else raw
        if flat.shape != (len(names),):
            raise InputError(
                f"the row is an array of shape {raw.shape}, and there are {len(names)} columns"
            )
        return dict(zip(names, map(_plain, flat.tolist()), strict=True))
    if isinstance(raw, Mapping) or not hasattr(raw, "columns"):
        if hasattr(raw, "to_dict") and getattr(raw, "ndim", 0) == 1:
            raw = raw.to_dict()
        if isinstance(raw, Mapping):
            return {str(name).strip(): _plain(value) for name, value in raw.items()}
        return raw
    frame = Frame.of(raw)
    if len(frame) != 1:
        raise InputError(
            f"find takes one person, and was given a frame of {len(frame)} rows: take one of them "
            "(X.iloc[3]), or use Explainer(…).batch(frame)"
        )
    return dict(frame.table().records[0])


def _positions(names: Sequence[str]) -> dict[str, int]:
    if not 0 < len(names) <= WIDEST:
        raise TableError(f"data has {len(names):,} columns, and a table has 1 to {WIDEST:,}")
    found: dict[str, int] = {}
    for i, name in enumerate(names):
        try:
            clean = check_name(name)
        except SchemaError as error:
            raise TableError(f"data, column {i}: {error}; rename it") from None
        if clean in found:
            raise TableError(f"data has two columns named {clean!r}; rename one")
        found[clean] = i
    return found


def _is_number(cell: object) -> bool:
    return isinstance(cell, (int, float)) and not isinstance(cell, bool) and cell == cell


def _plain(cell: Any) -> Any:
    """Return a cell as a plain Python value; pandas' own missing values become None."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, (str, int, float, datetime, date)):
        return None if cell != cell else cell  # NaN and NaT differ from themselves
    return None if type(cell).__name__ in ("NAType", "NaTType") else cell
