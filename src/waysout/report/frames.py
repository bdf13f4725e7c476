"""Tables as data frames: pandas', or of the kind and the types of a frame that is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from waysout.domain.schema import Value

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Columns = Mapping[str, Sequence[Value]]


def frame_of(columns: Columns, like: Any = None) -> Any:
    """Return columns as a frame; those that ``like`` has too get its types where the values fit.

    Without ``like``, a frame of pandas in which whole numbers stay whole beside gaps.
    """
    if type(like).__module__.partition(".")[0] == "polars":
        return _polars(columns, like)
    import pandas as pd

    types = {} if like is None else dict(like.dtypes)
    return pd.DataFrame(
        {
            name: _series(values) if name not in types else _as_in(values, types[name])
            for name, values in columns.items()
        }
    )


def _series(values: Sequence[Value]) -> pd.Series:
    import pandas as pd

    kinds = {type(v) for v in values} - {type(None)}
    if None not in values or not kinds <= {bool, int, float}:
        return pd.Series(values)
    # Nullable types keep whole numbers whole and gaps empty.
    whole = "boolean" if kinds <= {bool} else "Int64"
    return pd.Series(values, dtype="Float64" if float in kinds else whole)


def _as_in(values: Sequence[Value], dtype: Any) -> pd.Series:
    """Return values in a type of pandas, or as they would be without it where they do not fit."""
    import pandas as pd

    if pd.api.types.is_object_dtype(dtype):
        # What pandas itself reads from a file, and what models take for missing.
        return pd.Series([float("nan") if v is None else v for v in values], dtype=object)
    if isinstance(dtype, pd.CategoricalDtype) and not {*values} - {None} <= {*dtype.categories}:
        return _series(values)
    try:
        if pd.api.types.is_datetime64_any_dtype(dtype):
            texts = [None if value is None else str(value) for value in values]
            made = pd.Series(pd.to_datetime(pd.Series(texts, dtype=object), format="ISO8601"))
            made = made.astype(dtype)
        else:
            made = pd.Series(list(values), dtype=object).astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return _series(values)
    return made if _fits(values, made) else _series(values)


def _fits(values: Sequence[Value], made: pd.Series) -> bool:
    """Whether a type kept each value: it may not cut off decimals, nor drop what it cannot hold."""
    if made.isna().tolist() != [value is None for value in values]:
        return False
    pairs = zip(values, made.tolist(), strict=True)
    return made.dtype.kind not in "iu" or all(value is None or value == m for value, m in pairs)


def _polars(columns: Columns, like: Any) -> pl.DataFrame:
    import polars as pl

    def series(name: str, values: Sequence[Value]) -> pl.Series:
        plain = pl.Series(name, list(values), strict=False)
        dtype = dict(like.schema).get(name)
        if dtype is None:
            return plain
        try:
            if dtype.is_temporal() and plain.dtype == pl.String:
                moments = [None if v is None else datetime.fromisoformat(str(v)) for v in values]
                return pl.Series(name, moments).cast(dtype)
            made = plain.cast(dtype)
        except (pl.exceptions.PolarsError, TypeError, ValueError):
            return plain
        # A cast to whole numbers cuts decimals off without a word.
        kept = not dtype.is_integer() or made.to_list() == plain.to_list()
        return made if kept else plain

    return pl.DataFrame([series(name, values) for name, values in columns.items()])
