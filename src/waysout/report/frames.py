"""Tables as data frames: pandas', or of the kind and the types of a frame that is given."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from waysout.columns import pandas_column, polars_column
from waysout.domain.schema import Value

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Columns = Mapping[str, Sequence[Value]]


def frame_of(columns: Columns, like: Any = None) -> Any:
    """Return columns as a frame; those that ``like`` has too get its types where the values fit.

    Without ``like``, a frame of pandas in which whole numbers stay whole beside gaps.
    """
    if like is not None and not all(isinstance(label, str) for label in like.columns):
        # pandas' labels may be numbers or tuples; ours are their text.
        labels = {str(label): label for label in like.columns}
        named = like.set_axis([str(label) for label in like.columns], axis=1)
        made = frame_of(columns, named)
        return made.set_axis([labels.get(name, name) for name in made.columns], axis=1)
    if type(like).__module__.partition(".")[0] == "polars":
        return _polars(columns, like)
    import pandas as pd

    types = {} if like is None else dict(like.dtypes)
    nones = getattr(like, "attrs", {}).get("none", ())
    return pd.DataFrame(
        {
            name: _series(values)
            if name not in types
            else _as_in(values, types[name], gap=None if name in nones else math.nan)
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


def _as_in(values: Sequence[Value], dtype: Any, gap: float | None = math.nan) -> pd.Series:
    """Return values in a type of pandas, or as they would be without it where they do not fit."""
    import pandas as pd

    if pd.api.types.is_object_dtype(dtype):
        # NaN is what pandas itself reads from a file; a model may have been trained on None.
        return pd.Series([gap if v is None else v for v in values], dtype=object)
    try:
        made: pd.Series = pandas_column(values, dtype)
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
        if name not in like.columns:
            return plain
        try:
            made: pl.Series = polars_column(values, like.schema[name]).alias(name)
        except (pl.exceptions.PolarsError, TypeError, ValueError):
            return plain
        return made if made.null_count() == plain.null_count() else plain

    return pl.DataFrame([series(name, values) for name, values in columns.items()])
