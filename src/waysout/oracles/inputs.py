"""Rows, the way a model was trained on them.

An `InputLayout` says which columns a model wants, in its own order and under its own names, and
what stands for each level of a category: the table's own value as `pd.read_csv` would give it
("raw"), a pandas category ("category"), a number ("codes"), a plain dict of raw values ("dicts"),
or what a frame of the user's holds ("like", see `waysout.oracles.like`). `InputLayout.build` fills
it with rows.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from waysout.domain.schema import LARGEST, MISSING_TOKENS, Feature, Row, Schema, Value, text_of
from waysout.errors import OracleError, unknown

if TYPE_CHECKING:
    from waysout.oracles.like import Form

InputKind = Literal["raw", "category", "codes", "dicts", "like"]
Inputs = Literal["auto", "raw", "category", "codes", "dicts"]
Container = Literal["frame", "matrix", "dicts", "like"]
Holds = Literal["values", "objects", "numbers", "text", "categories", "dates"]

# What libraries call columns that were given without names.
_GENERIC = ("Column_{}", "f{}", "{}")


@dataclass(frozen=True, slots=True)
class Place:
    """A column the model wants: what the model calls it, and its position in a row."""

    name: str
    position: int
    feature: Feature


@dataclass(frozen=True, slots=True)
class InputColumn:
    """A place and what the model gets there.

    ``table`` maps a row's value to it, and ``missing`` stands where there is none: NaN, unless the
    model got something else. (It is not NaN itself, which would make no column equal to another.)
    """

    place: Place
    holds: Holds
    table: Mapping[Value, object] | None = None
    categories: tuple[object, ...] = ()
    missing: object = None

    @classmethod
    def raw(cls, place: Place) -> InputColumn:
        """Return the column as the user's table holds it."""
        feature = place.feature
        if feature.is_opaque:
            held: dict[str, Holds] = {"date": "dates", "number": "values"}
            return cls(place, held.get(feature.holds, "objects"))
        if feature.is_numeric:
            return cls(place, "numbers" if feature.kind == "number" else "values")
        text = all(isinstance(level, str) for level in feature.levels)
        table: dict[Value, object] = {value: feature.raw(value) for value in feature.values()}
        return cls(place, "text" if text else "values", table)

    @classmethod
    def as_written(cls, place: Place) -> InputColumn:
        """Return the column as the table's file holds it, with numbers such as "12,5" as text."""
        return cls(place, "text") if place.feature.written else cls.raw(place)

    @classmethod
    def codes(cls, place: Place) -> InputColumn:
        """Return the column as numbers; what is opaque stays as it is."""
        feature = place.feature
        if feature.is_opaque:
            return cls.raw(place)
        table = None if feature.is_numeric else codes_of(feature)
        return cls(place, "numbers", table, missing=feature.missing_code)

    @classmethod
    def category(cls, place: Place) -> InputColumn:
        """Return the column as a pandas category of the card's levels; a number stays a number."""
        raw, levels = cls.raw(place), tuple(place.feature.levels)
        return cls(place, "categories", raw.table, levels) if place.feature.has_levels else raw

    @classmethod
    def positions(cls, place: Place, categories: Sequence[object]) -> InputColumn:
        """Return the column as positions in the categories the model recorded."""
        found = match(place.feature, categories)
        missing = float(found[None]) if None in found else None
        return cls(place, "numbers", {v: float(i) for v, i in found.items()}, missing=missing)

    @classmethod
    def spelled(cls, place: Place, categories: Sequence[object]) -> InputColumn:
        """Return the column in the spelling the model recorded; a level it never saw stays raw."""
        found = match(place.feature, categories)
        table = {
            value: categories[found[value]] if value in found else place.feature.raw(value)
            for value in place.feature.values()
        }
        text = all(isinstance(cell, str) for cell in table.values())
        missing = categories[found[None]] if None in found else None
        return cls(place, "text" if text else "values", table, missing=missing)

    def cells(self, rows: Sequence[Row]) -> list[object]:
        """Return the column's cells, NaN where the model never saw the level."""
        values = [row[self.place.position] for row in rows]
        gap = math.nan if self.missing is None else self.missing
        if self.holds == "dates":
            return [
                None if value is None else datetime.fromisoformat(str(value)) for value in values
            ]
        if self.table is None and self.holds == "text":
            raw = self.place.feature.raw
            return [gap if value is None else raw(value) for value in values]
        if self.table is None:
            return [gap if value is None else value for value in values]
        table = self.table
        return [gap if value is None else table.get(value, math.nan) for value in values]


@dataclass(frozen=True, slots=True)
class InputLayout:
    """The columns of a model's input, in its order, and what holds them."""

    kind: InputKind
    columns: tuple[InputColumn, ...]
    container: Container
    form: Form | None = None

    @classmethod
    def plain(cls, kind: InputKind, spots: Sequence[Place], *, named: bool = True) -> InputLayout:
        """Return a layout that needs to know nothing but the schema."""
        container: Container = "dicts" if kind == "dicts" else "frame" if named else "matrix"
        if kind == "category":
            container = "frame"  # A matrix has no categories.
        of_kind = {"codes": InputColumn.codes, "category": InputColumn.category}
        make = of_kind.get(kind, InputColumn.raw)
        return cls(kind, tuple(make(spot) for spot in spots), container)

    @classmethod
    def text_categories(cls, spots: Sequence[Place]) -> InputLayout:
        """Return a layout of pandas categories for text, and of numbers for number levels."""

        def column(spot: Place) -> InputColumn:
            text = any(isinstance(level, str) for level in spot.feature.levels)
            return InputColumn.category(spot) if text else InputColumn.raw(spot)

        return cls("category", tuple(map(column, spots)), "frame")

    def build(self, rows: Sequence[Row]) -> Any:
        """Fill the layout with rows: a DataFrame, a matrix or a list of dicts."""
        if self.form is not None:
            return self.form.fill(self.columns, rows)
        if self.container == "dicts":
            spots = [column.place for column in self.columns]
            return [{s.name: s.feature.raw(row[s.position]) for s in spots} for row in rows]
        if self.container == "matrix":
            text = any(column.holds in ("text", "objects", "dates") for column in self.columns)
            matrix = np.empty((len(rows), len(self.columns)), dtype=object if text else np.float64)
            for i, column in enumerate(self.columns):
                matrix[:, i] = column.cells(rows)
            return matrix
        import pandas as pd

        # As read_csv would: a column of NaN alone must not become one of numbers.
        dtypes = {"numbers": "float64", "text": pd.Series([""]).dtype, "objects": object}
        frame: dict[str, Any] = {}
        for column in self.columns:
            cells: Any = column.cells(rows)
            if column.holds == "categories":
                cells = pd.Categorical(cells, categories=list(column.categories))
            series = pd.Series(cells, dtype=dtypes.get(column.holds))
            frame[column.place.name] = pd.to_datetime(series) if column.holds == "dates" else series
        return pd.DataFrame(frame)


def check_rows(schema: Schema, rows: Sequence[Row]) -> None:
    """Raise unless these are typed rows: what is not would reach the model as missing."""
    given: Any = rows if isinstance(rows, (list, tuple)) else [rows]
    for wrong in given:
        if isinstance(wrong, tuple) and len(wrong) == len(schema) and given is rows:
            continue
        raise OracleError(
            f"an oracle takes typed rows (tuples), and was given {type(wrong).__name__} "
            f"{wrong!r:.60}: make rows of dicts with schema.parse_many(…), and of a DataFrame with "
            'schema.parse_many(frame.to_dict("records"))'
        )
    for feature, column in zip(schema, zip(*rows, strict=True), strict=False):
        if feature.is_opaque:
            continue
        # A column has few distinct values or types; asking each cell would cost more than a model.
        distinct: set[Any] = set(column) - ({None} if feature.missing != "refuse" else set())
        if feature.is_numeric:
            # Not `fits`, which also asks for the decimals of a proposal.
            kinds = (int, float, np.number) if feature.kind == "number" else (int, np.integer)
            of_each_type = {type(value): value for value in distinct}.values()
            bad = [v for v in of_each_type if not isinstance(v, kinds) or isinstance(v, bool)]
            bad = bad or [value for value in distinct if not abs(value) <= LARGEST]
        else:
            bad = [value for value in distinct if not feature.fits(value)]
        for value in bad:
            levels = f"; its levels are {_shown(feature.level_texts)}" if feature.levels else ""
            raise OracleError(
                f"column {feature.name!r}: {value!r:.60} ({type(value).__name__}) is no "
                f"{feature.kind} of the card{levels}. Read rows with schema.parse, which types them"
            )


def places(
    schema: Schema, names: Sequence[str] | None = None, count: int | None = None
) -> tuple[Place, ...]:
    """Find the model's columns in the schema: by name, or by position where it has no names."""
    wanted = count if names is None else len(names)
    if names is None or (is_generic(names) and not any(name in schema for name in names)):
        positions = [*range(len(schema))]
        carried = [i for i, feature in enumerate(schema) if feature.is_opaque]
        if wanted is not None and wanted + len(carried) == len(schema):
            # Identifiers and notes are rarely given to a model that wants no names.
            positions = [i for i in positions if i not in carried]
        if wanted not in (None, len(positions)):
            raise OracleError(
                f"the model was trained on {wanted} columns and the card describes {len(schema)}: "
                f"{', '.join(map(repr, schema.names[:20]))}. Describe the model's columns in the "
                "card, in the order it was trained on, or wrap the model in a function"
            )
        own = [schema.names[i] for i in positions] if names is None else names
        found_at = zip(own, positions, strict=True)
        return tuple(Place(str(n), i, schema.features[i]) for n, i in found_at)
    found = []
    for name in map(str, names):
        exact = unicodedata.normalize("NFC", name).strip()
        # LightGBM and ONNX converters write "loan amount" as "loan_amount".
        plain = re.sub(r"\W", "_", exact)
        alike = [i for i, n in enumerate(schema.names) if re.sub(r"\W", "_", n) == plain]
        if exact in schema:
            alike = [schema.index(exact)]
        if len(alike) != 1:
            raise OracleError(
                f"the model wants a column the card does not describe: "
                f"{unknown('column', name, schema.names)}. Add it to the card or, if it is made "
                "from other columns (dummies, ratios), wrap the model in a function that makes it"
            )
        found.append(Place(name, alike[0], schema.features[alike[0]]))
    return tuple(found)


def is_generic(names: Sequence[str]) -> bool:
    """Whether a library made the names up, for columns that had none.

    >>> is_generic(["f0", "f1"]), is_generic(["f0", "income"])
    (True, False)
    """
    return any(all(n == p.format(i) for i, n in enumerate(names)) for p in _GENERIC)


def codes_of(feature: Feature) -> dict[Value, float]:
    """Return the number that stands for each level, or say which column needs ``codes``.

    Codes are for text: without codes in the card a level that is a number stands for itself, as
    `pd.read_csv` would give it to the model, and a boolean is 0 and 1
    where its spellings in alphabetical order give the same.

    >>> codes_of(Feature("own", "boolean", levels=("No", "Yes")))
    {False: 0.0, True: 1.0}
    """
    texts = feature.level_texts
    if feature.codes:
        lacking = [text for text in texts if text not in feature.codes]
        if lacking:
            raise OracleError(f"column {feature.name!r} has no code for the level {lacking[0]!r}")
        numbers = [float(feature.codes[text]) for text in texts]
    elif not any(isinstance(level, str) for level in feature.levels):
        numbers = [float(level) for level in feature.levels]
    elif feature.kind == "boolean" and list(texts) == sorted(texts):
        numbers = [0.0, 1.0]
    else:
        raise OracleError(
            f"column {feature.name!r} holds text and has no codes: write the numbers the model was "
            f"trained on into the card (codes = {{ {texts[0]!r} = 0, … }}), or pass inputs='raw' "
            "if it was trained on the text itself"
        )
    return dict(zip(feature.values(), numbers, strict=True))


def match(feature: Feature, categories: Sequence[object]) -> dict[Value, int]:
    """Find each level among the categories a model recorded, and None where it kept a token.

    Text is matched by its text. Numbers say less (1 may be the level 1 or the code of another), so
    they count only where either all the levels or all the categories are found, and in one way.
    Levels the model never saw are left out; no level found at all is an error.
    """
    gaps = [c is None or (isinstance(c, float) and math.isnan(c)) for c in categories]
    index = {text_of(c): i for i, c in enumerate(categories) if not gaps[i]}
    # A missing value may have been a text to the model: pandas keeps what it does not know.
    tokens = dict.fromkeys(feature.missing_tokens) if not any(gaps) else ()
    kept = [t for t in tokens if t in index and t not in feature.level_texts]
    if len(kept) > 1 and feature.missing != "refuse":
        raise OracleError(
            f"column {feature.name!r}: the model tells {' and '.join(map(repr, kept))} apart, "
            "and to the card they are all missing: list them as levels"
        )
    wanted = {text: i for text, i in index.items() if text not in kept[:1]}
    found: dict[Value, int]
    if feature.is_opaque:
        found = {text: i for text, i in index.items() if text not in kept[:1]}
    elif feature.is_numeric:
        # The model took a number for a category: the row's number is the category.
        found = {_number(text): i for text, i in wanted.items() if not math.isnan(_number(text))}
    else:
        found = _match_levels(feature, wanted)
        lost = [feature.format(v) for v in feature.values() if v not in found]
        lost = [text for text in lost if text in MISSING_TOKENS]
        if any(gaps) and lost:
            raise OracleError(
                f"column {feature.name!r}: the card lists the level {lost[0]!r}, which the model "
                "seems to have been given as missing (pandas reads it so): take it out of the "
                'levels, and write missing = "keep"'
            )
    return {**found, None: index[kept[0]]} if kept else found


def _match_levels(feature: Feature, index: Mapping[str, int]) -> dict[Value, int]:
    by_level = dict(zip(feature.values(), feature.level_texts, strict=True))
    found = {value: index[text] for value, text in by_level.items() if text in index}
    if any(math.isnan(_number(by_level[value])) for value in found):
        return found
    by_code = {value: text_of(code) for value, code in codes_if_any(feature).items()}
    coded = {value: index[text] for value, text in by_code.items() if text in index}
    numbers = {value: _number(text) for value, text in by_level.items()}
    at = {_number(text): i for text, i in index.items()}
    if any(number in at for value, number in numbers.items() if value not in found):
        found = {}  # "1" is there, and "01" would be the same number.
    # "01" is 1, unless two levels or two categories are the same number.
    by_number: dict[Value, int] = {}
    sizes = (len(set(numbers.values())), len(at))
    if sizes == (len(by_level), len(index)) and not any(map(math.isnan, {*numbers.values(), *at})):
        by_number = {value: at[number] for value, number in numbers.items() if number in at}
    every = set(index.values())
    ways = [
        way
        for way in (found, by_number)
        if way and (len(way) == len(by_level) or set(way.values()) == every)
    ]
    ways += [coded] if coded and set(coded.values()) == every else []
    if not ways or any(way != ways[0] for way in ways):
        raise OracleError(
            f"column {feature.name!r}: the model was trained on the categories "
            f"{_shown(list(index))} and the card lists {_shown(feature.level_texts)}: "
            "write the model's own values as levels, or its numbers as codes, into the card"
        )
    return ways[0]


def codes_if_any(feature: Feature) -> dict[Value, float]:
    """Return the number that stands for each level, or nothing where that is not known."""
    try:
        return codes_of(feature) if feature.has_levels else {}
    except OracleError:
        return {}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _shown(values: Sequence[object]) -> str:
    return ", ".join(repr(v) for v in values[:8]) + (", …" if len(values) > 8 else "")


def never_seen(feature: Feature, found: Mapping[Value, int]) -> str | None:
    """Say which levels of the card the model never saw, if any."""
    values = () if feature.is_numeric else feature.values()
    lacking = [feature.format(value) for value in values if value not in found]
    return f"column {feature.name!r}: the model never saw {_shown(lacking)}" if lacking else None
