"""Rows in the form of a frame the user has: its container, columns, order and types.

`like_layout` reads that form off a pandas or polars frame or a numpy matrix, once, and keeps no
cell of it but one spelling for each level and for a missing value: a model may have been trained
on "?" where the card reads a missing value, or on the number 1 for the level "1".
"""

from __future__ import annotations

import contextlib
import importlib
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from waysout.columns import categories_of, is_gap, matrix, pandas_column, polars_column
from waysout.domain.schema import Row, Schema, Value
from waysout.errors import OracleError, RowError, shown, unknown
from waysout.oracles.inputs import InputColumn, InputLayout, Place

# Enough cells to know how a column writes its levels, or what is not one of a few.
_MANY, _FEW = 100_000, 1000


@dataclass(frozen=True)
class Form:
    """What holds the rows: a kind of frame, with the labels and the types of its columns.

    ``nones`` tells the columns in which a missing value is None, which an encoder tells from NaN.
    """

    container: str
    labels: tuple[Any, ...]
    dtypes: tuple[Any, ...]
    nones: tuple[bool, ...]

    def fill(self, columns: Sequence[InputColumn], rows: Sequence[Row]) -> Any:
        """Return a frame, or a matrix, of these rows."""
        cells = [column.cells(rows) for column in columns]
        for i, none in enumerate(self.nones):
            if none:
                cells[i] = [None if is_gap(cell) else cell for cell in cells[i]]
        if self.container == "numpy":
            return matrix(cells, self.dtypes[0], len(rows))
        typed = pandas_column if self.container == "pandas" else polars_column
        package = importlib.import_module(self.container)
        made = [typed(c, d) for c, d in zip(cells, self.dtypes, strict=True)]
        if self.container == "polars":
            return package.DataFrame(dict(zip(self.labels, made, strict=True)))
        frame = package.DataFrame(dict(enumerate(made)))
        frame.columns = list(self.labels)
        return frame


def like_layout(
    like: Any, schema: Schema, names: Sequence[str] | None = None
) -> tuple[InputLayout, tuple[str, ...]]:
    """Return the layout of rows that look like a frame, and what a user should know about it.

    ``names`` are the columns that the model was trained on, in its order, where it tells; without
    them the model gets every column of the frame.
    """
    container = type(like).__module__.split(".")[0]
    if container == "numpy":
        if like.ndim != 2 or like.shape[1] != len(schema):
            raise OracleError(
                f"like is an array of shape {like.shape}, and the card describes {len(schema)} "
                f"columns: pass a matrix with these columns: {', '.join(schema.names[:20])}"
            )
        places = [Place(f.name, i, f) for i, f in enumerate(schema)]
        cells = [like[:_MANY, i].tolist() for i in range(len(schema))]
        written = [_written(p, c, like.dtype) for p, c in zip(places, cells, strict=True)]
        columns, nones = zip(*written, strict=True)
        form = Form("numpy", (), (like.dtype,), nones)
        return InputLayout("like", columns, "like", form), ()
    if container not in ("pandas", "polars") or not hasattr(like, "columns"):
        raise OracleError(
            f"like is a {type(like).__name__}: pass a pandas or polars DataFrame or a numpy matrix "
            "in the form the model was trained on"
        )
    spots, labels = _places(list(like.columns), schema, names)
    dtypes = tuple(like[label].dtype for label in labels)
    parts = zip(spots, labels, dtypes, strict=True)
    written = [_written(p, _seen(like[label], p), dtype) for p, label, dtype in parts]
    columns, nones = zip(*written, strict=True)
    notes = (_never_seen(c, dtype) for c, dtype in zip(columns, dtypes, strict=True))
    form = Form(container, tuple(labels), dtypes, nones)
    return InputLayout("like", columns, "like", form), tuple(note for note in notes if note)


def _places(
    labels: Sequence[Any], schema: Schema, names: Sequence[str] | None
) -> tuple[list[Place], list[Any]]:
    """Find the frame's columns in the schema, those that the model wants in its order."""
    known = {_plain(label): label for label in labels}
    if len(known) < len(labels):
        twice = next(n for n, count in Counter(map(_plain, labels)).items() if count > 1)
        raise OracleError(f"like has several columns named {twice!r}: rename or drop one")
    wanted = list(known) if names is None else [as_named(_plain(n), known) for n in names]
    lacking = next((name for name in wanted if name not in known), None)
    if lacking is not None:
        raise OracleError(
            f"the model wants a column that like does not have: {unknown('column', lacking, known)}"
        )
    strange = [name for name in wanted if name not in schema]
    if strange:
        listed = ", ".join(map(repr, strange[:20])) + (", …" if len(strange) > 20 else "")
        raise OracleError(
            f"like has columns that the card does not describe: {listed}. Describe them in the "
            "card, or drop them if the model does not take them"
        )
    at = [schema.index(name) for name in wanted]
    return [Place(schema.names[i], i, schema.features[i]) for i in at], [known[n] for n in wanted]


def as_named(name: str, known: Collection[str]) -> str:
    """Return a column's name in the frame: LightGBM writes "loan amount" as "loan_amount"."""
    if name in known:
        return name
    alike = [other for other in known if re.sub(r"\W", "_", other) == re.sub(r"\W", "_", name)]
    return alike[0] if len(alike) == 1 else name


def _plain(label: object) -> str:
    return unicodedata.normalize("NFC", str(label)).strip()


def _seen(series: Any, place: Place) -> list[Any]:
    """Return cells of a column, more of them where its levels have to be found among them."""
    return series.head(_MANY if place.feature.levels else _FEW).to_list()  # type: ignore[no-any-return]


def _written(place: Place, cells: Iterable[Any], dtype: Any) -> tuple[InputColumn, bool]:
    """Return the column with the table's own spelling of each level and of a missing value.

    Besides, whether a missing value is None.
    """
    feature, column = place.feature, InputColumn.as_written(place)
    kept: list[Any] = []
    gaps: list[Any] = []
    for cell in cells:
        (gaps if feature.is_missing(cell) else kept).append(cell)
        if isinstance(cell, Collection) and not isinstance(cell, (str, bytes)):
            raise OracleError(
                f"column {feature.name!r} holds several values in a cell ({shown(cell)}), and a "
                "row has one: leave it out if the model does not look at it (features=[…]), or "
                "pass a function that makes it of other columns"
            )
    tokens = Counter(cell if isinstance(cell, str) else None for cell in gaps)
    missing: Any = tokens.most_common(1)[0][0] if gaps else None
    none = missing is None and any(cell is None for cell in gaps)
    if column.table is None:
        # A column of dates makes them of text by itself; one of objects does not.
        text = str in set(map(type, kept))
        objects = getattr(dtype, "kind", "") == "O" and not text
        stays = {"dates": objects, "text": text, "objects": False}.get(column.holds, True)
        holds = column.holds if stays else "values"
        return replace(column, missing=missing, holds=holds), none
    found: Counter[tuple[type, Any]] = Counter()
    for cell in kept:
        with contextlib.suppress(TypeError):  # without a hash, which is no level
            found[type(cell), cell] += 1
    written: dict[Value, Any] = {}
    for (_, cell), _ in found.most_common():
        with contextlib.suppress(RowError):  # a level that the card does not list
            written.setdefault(feature.parse(cell), cell)
    table = {value: written.get(value, raw) for value, raw in column.table.items()}
    return replace(column, table=table, missing=missing, holds="objects"), none


def _never_seen(column: InputColumn, dtype: Any) -> str | None:
    """Say which levels of the card the column's type has no room for, if any."""
    known = categories_of(dtype)
    lacking = [cell for cell in (column.table or {}).values() if known and cell not in known]
    if not lacking:
        return None
    listed = ", ".join(map(repr, lacking[:8])) + (", …" if len(lacking) > 8 else "")
    return (
        f"column {column.place.name!r}: {listed} is none of the categories of the model's column, "
        "and is given to it as missing"
    )
