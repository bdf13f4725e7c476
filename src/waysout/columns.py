"""Columns of data frames in given types: what both a model's rows and a user's tables are made of.

A type that cannot hold a value widens as pandas would, and never changes the value: whole numbers
beside a missing one become floats. A category that is not among those of the type becomes missing.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from waysout.domain.schema import text_of


def categories_of(dtype: Any) -> list[Any] | None:
    """Return the only values that a column of this type can hold, where it has such."""
    categories = getattr(dtype, "categories", None)
    if categories is None or type(dtype).__name__ == "Categorical":
        return None
    return list(categories)


def is_gap(cell: Any) -> bool:
    """Whether a cell is missing: None, NaN, or what pandas has for it."""
    gone = cell is None or (isinstance(cell, float) and math.isnan(cell))
    return gone or type(cell).__name__ in ("NAType", "NaTType")


def _numbers(cells: Sequence[Any], dtype: Any, *, gap: bool) -> Any:
    """Return numbers in a numpy type of integers or floats, or in the next that can hold them."""
    values = [math.nan if is_gap(cell) else _number(cell) for cell in cells]
    whole = all(isinstance(v, int) or v.is_integer() for v in values)
    if dtype.kind == "f" or not whole or gap:
        return np.array(values, dtype=dtype if dtype.kind == "f" else np.float64)
    try:
        return np.array([int(v) for v in values], dtype=dtype)
    except OverflowError:
        return np.array([int(v) for v in values])


def _number(cell: Any) -> int | float:
    return cell if isinstance(cell, (int, float)) else float(cell)


def matrix(cells: Sequence[Sequence[Any]], dtype: Any, count: int) -> Any:
    """Return columns of cells as one matrix of a numpy type."""
    flat = [cell for column in cells for cell in column]
    if dtype.kind in "iufb":
        kept = np.dtype(np.float64) if dtype.kind == "b" and any(map(is_gap, flat)) else dtype
        made = _numbers(flat, kept, gap=any(map(is_gap, flat)))
        if dtype.kind == "b" and made.dtype.kind != "f":
            made = made.astype(np.bool_)
    elif dtype.kind in "US":
        made = np.array([_text(cell) for cell in flat], dtype=dtype.kind)
    else:
        made = np.empty(len(flat), dtype=object)
        made[:] = flat
    return np.ascontiguousarray(made.reshape(len(cells), count).T)


def _text(cell: Any) -> str:
    return cell if isinstance(cell, str) else text_of(cell)


def pandas_column(cells: Sequence[Any], dtype: Any) -> Any:
    """Return cells as a pandas Series of a type; dates may be ISO text."""
    import pandas as pd

    gap = any(map(is_gap, cells))
    if isinstance(dtype, pd.CategoricalDtype):
        known = set(dtype.categories)
        kept = [cell if not is_gap(cell) and cell in known else None for cell in cells]
        return pd.Series(pd.Categorical(kept, dtype=dtype))
    if isinstance(dtype, pd.DatetimeTZDtype) or getattr(dtype, "kind", "") == "M":
        told = pd.to_datetime(pd.Series(cells, dtype=object), format="ISO8601")
        zone = getattr(dtype, "tz", None)
        if zone is not None:
            told = told.dt.tz_localize(zone) if told.dt.tz is None else told.dt.tz_convert(zone)
        return told.astype(dtype)
    if isinstance(dtype, np.dtype):
        if dtype.kind in "iuf":
            return pd.Series(_numbers(cells, dtype, gap=gap))
        if dtype.kind == "m":
            return pd.Series(pd.to_timedelta(pd.Series(cells, dtype=object))).astype(dtype)
        # A column of true and false has no room for a missing value.
        return pd.Series(list(cells), dtype=object if dtype.kind == "b" and gap else dtype)
    if isinstance(dtype, pd.StringDtype):
        return pd.Series([None if is_gap(c) else _text(c) for c in cells], dtype=dtype)
    plain = [None if is_gap(cell) else cell for cell in cells]
    if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype):
        plain = [None if cell is None else _number(cell) for cell in plain]
        if pd.api.types.is_integer_dtype(dtype) and not _whole(plain):
            return pd.Series(plain, dtype="Float64")
    return pd.Series(plain, dtype=dtype)


def _whole(cells: Iterable[Any]) -> bool:
    return all(cell is None or float(cell).is_integer() for cell in cells)


def polars_column(cells: Sequence[Any], dtype: Any) -> Any:
    """Return cells as a polars Series of a type; dates may be ISO text."""
    import polars as pl

    plain = [None if is_gap(cell) else cell for cell in cells]
    if dtype.is_numeric():
        plain = [None if cell is None else _number(cell) for cell in plain]
        kept = pl.Float64 if dtype.is_integer() and not _whole(plain) else dtype
        if kept.is_integer():
            plain = [None if cell is None else int(cell) for cell in plain]
        return pl.Series(plain, dtype=kept)
    if dtype == pl.Datetime:
        told = [_as(dt.datetime.fromisoformat, cell) for cell in plain]
        zone = getattr(dtype, "time_zone", None)
        if zone is None:
            return pl.Series(told, dtype=dtype)
        made = pl.Series(told)
        aware = any(cell is not None and cell.tzinfo is not None for cell in told)
        made = made.dt.convert_time_zone(zone) if aware else made.dt.replace_time_zone(zone)
        return made.cast(dtype)
    if dtype == pl.Date:
        return pl.Series([_as(_date, cell) for cell in plain], dtype=dtype)
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        plain = [None if cell is None else _text(cell) for cell in plain]
        known = categories_of(dtype)
        plain = plain if known is None else [cell if cell in known else None for cell in plain]
    return pl.Series(plain, dtype=dtype)


def _as(read: Callable[[str], Any], cell: Any) -> Any:
    return read(cell) if isinstance(cell, str) else cell


def _date(text: str) -> dt.date:
    return dt.datetime.fromisoformat(text).date()
