"""The fields of a card: each is read by its type, and a wrong one fails with its value."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from waysout.domain.schema import KINDS, LARGEST, Feature, Scalar, text_of
from waysout.errors import SchemaError, shown


def feature_of(name: str, table: Mapping[str, Any], tokens: tuple[str, ...]) -> Feature:
    """Return the feature that a card's table describes."""
    if "kind" not in table:
        raise SchemaError(f"feature {name!r} needs a kind: {', '.join(KINDS)}")
    ends, decimals = table.get("range"), table.get("decimals")
    code = table.get("missing_code")
    if ends is not None and (not isinstance(ends, list) or len(ends) != 2):
        raise _wrong("range", "two numbers, [lowest, highest]", ends)
    if isinstance(decimals, bool) or not isinstance(decimals, int | None):
        raise _wrong("decimals", "a whole number", decimals)
    if not isinstance(ordered := table.get("ordered", False), bool):
        raise _wrong("ordered", "true or false", ordered)
    levels = tuple(as_scalar(v, "levels") for v in as_list(table.get("levels", []), "levels"))
    feature = Feature(
        name=name,
        kind=table["kind"],
        levels=levels,
        ordered=ordered,
        range=(as_number(ends[0], "range"), as_number(ends[1], "range")) if ends else None,
        decimals=decimals,
        missing=table.get("missing", "refuse"),
        unseen=table.get("unseen", "refuse"),
        synonyms=_texts(table.get("synonyms", {}), "synonyms"),
        codes=_codes(table.get("codes", {}), levels),
        words=_texts(table.get("words", {}), "words"),
        unit=as_text(table.get("unit", ""), "unit"),
        about=as_text(table.get("about", ""), "about"),
        missing_code=None if code is None else as_number(code, "missing_code"),
        missing_tokens=tokens,
        holds=as_text(table.get("holds", ""), "holds"),  # type: ignore[arg-type]  # it checks
        written=as_text(table.get("written", ""), "written"),
        label=as_text(table.get("label", ""), "label"),
        moves=_texts(table.get("moves", {}), "moves"),
    )
    without = [t for t in feature.level_texts if t not in feature.codes]
    if feature.codes and without:
        raise SchemaError(f"feature {name!r}: level {without[0]!r} has no code", field="codes")
    return feature


def _codes(raw: object, levels: Sequence[Scalar]) -> dict[str, float]:
    """Return the codes of a table, or those of "sorted": 0, 1, 2 ... as LabelEncoder gives them."""
    if raw == "sorted":
        texts = any(isinstance(level, str) for level in levels)
        ordered = sorted(levels, key=str if texts else float)
        return {text_of(level): float(i) for i, level in enumerate(ordered)}
    if isinstance(raw, str):
        raise _wrong("codes", 'a table of numbers or "sorted"', raw)
    return {text_of(k): as_number(number, "codes") for k, number in as_table(raw, "codes").items()}


def _wrong(what: str, wanted: str, raw: object) -> SchemaError:
    return SchemaError(f"{what} must be {wanted}, not {shown(raw)}", field=what)


def as_table(raw: object, what: str) -> Mapping[str, Any]:
    """Return a table, or say what is in its place."""
    if not isinstance(raw, dict):
        raise _wrong(what, "a table", raw)
    return raw


def _texts(raw: object, what: str) -> dict[str, str]:
    return {text_of(k): as_text(v, what) for k, v in as_table(raw, what).items()}


def as_list(raw: object, what: str) -> list[Any]:
    """Return a list, or say what is in its place."""
    if not isinstance(raw, list):
        raise _wrong(what, "a list", raw)
    return raw


def as_text(raw: object, what: str) -> str:
    """Return text, or say what is in its place."""
    if not isinstance(raw, str):
        raise _wrong(what, "text", raw)
    return raw


def as_name(raw: object, what: str) -> str:
    """Return a column's name in the form that tables are read in."""
    return unicodedata.normalize("NFC", as_text(raw, what)).strip()


def as_scalar(raw: object, what: str) -> Scalar:
    """Return a label or a level: text, a number or true/false."""
    # A whole number may be too large for a float, and is encoded as one.
    if not isinstance(raw, (str, int, float)) or (
        not isinstance(raw, str) and not abs(raw) <= sys.float_info.max
    ):
        raise _wrong(what, "text, a finite number or true/false", raw)
    return raw


def as_number(raw: object, what: str) -> float:
    """Return a finite number."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not abs(raw) <= LARGEST:
        raise _wrong(what, "a finite number of at most ±1e15", raw)
    return float(raw)
