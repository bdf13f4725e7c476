"""What each column is, told from its cells and its name, and how a card says so."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

import numpy as np
from numpy.typing import NDArray

from waysout.datasets.infer.cells import ColumnCells
from waysout.datasets.infer.toml import comment, quoted, toml_key, toml_list
from waysout.domain.key import bin_edges
from waysout.domain.schema import LONGEST_TEXT, Kind, Scalar, format_number, text_of
from waysout.errors import RowError

FEW = 20  # whole numbers with no more distinct values than this may be codes
MANY = 100  # a category with more levels than this deserves a second look

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}")
_ID_WORDS = {"id", "ids", "uid", "uuid", "guid", "unnamed", "index"}
PROTECTED_WORDS = {
    "sex", "gender", "race", "ethnic", "ethnicity", "nationality", "native", "religion", "birth",
    "birthday", "birthdate", "birthplace", "born", "dob", "caste", "disability", "disabled",
}  # fmt: skip
_CODED_WORDS = PROTECTED_WORDS | {
    "marital", "marriage", "education", "occupation", "job", "region", "state", "country", "city",
    "code", "type", "category", "class", "group", "branch", "zip", "postcode",
}  # fmt: skip
_QUANTITY_WORDS = {
    "num", "number", "count", "score", "years", "months", "days", "amount", "rate", "percent",
}  # fmt: skip
_SPECIAL = {*range(-9, 0), -99, -999, -9999}
_TWO_VALUES = ({"false", "true"}, {"no", "yes"}, {"n", "y"}, {"f", "t"})
# What pandas reads as booleans; a column of nothing else holds True and False, not text.
_PANDAS_BOOLEANS = {"True", "TRUE", "true", "False", "FALSE", "false"}
_CONSTANT = "always the same value: a model cannot have learnt from it"
_UNKNOWN = "?"  # what old tables write where there is no figure
_LOOKS_MISSING = {"?", "-", "--", ".", "missing", "none", "not available", "unknown"}


@dataclass
class Described:
    """One feature of the card: what was decided, why, and what the examples need to know."""

    cells: ColumnCells
    kind: Kind
    levels: list[Scalar] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    odd: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The feature's name."""
        return self.cells.name

    @property
    def is_numeric(self) -> bool:
        """Whether the feature is a number or an integer."""
        return self.kind in ("number", "integer")

    def lines(self) -> list[str]:
        """Return the feature's part of the card."""
        lines = [f"[features.{toml_key(self.name)}]", *map(comment, self.notes)]
        lines += [f'kind = "{self.kind}"', 'about = ""']
        lines += self._missing_lines()
        return lines + (self._numeric_lines() if self.is_numeric else self._level_lines())

    def _missing_lines(self) -> list[str]:
        tokens = self.cells.missing | {t: self.cells.texts[t] for t in self.odd}
        if not tokens:
            return []
        shown = ", ".join(f"{t!r}" if t else "empty" for t in tokens)
        return [
            comment(f"missing in {sum(tokens.values())} of {self.cells.rows} rows ({shown}):"),
            comment("keep leaves it missing, fill lets it be filled in, refuse is an error"),
            'missing = "keep"',
            *self._missing_code_lines(),
        ]

    def _missing_code_lines(self) -> list[str]:
        if not self.levels:
            return []
        return [comment("missing_code = -1 if your model was trained on pandas' cat.codes")]

    def _numeric_lines(self) -> list[str]:
        values = self.cells.values()
        low, high = format_number(values.min()), format_number(values.max())
        lines = [f"range = [{low}, {high}]"]
        if self.kind == "number":
            lines.append(f"decimals = {_decimals(self.cells)}")
        if edges := bin_edges(values):
            lines.append(f"bins = {toml_list(edges)}")
        if (scale := self.cells.scale()) is not None:
            lines.append(f"scale = {format_number(scale)}")
        return lines

    def _level_lines(self) -> list[str]:
        if not self.levels:
            return []
        codes = [f"{toml_key(text_of(level))} = {i}" for i, level in enumerate(self.levels)]
        lines = [f"levels = {toml_list(self.levels)}"]
        if not all(isinstance(level, str) for level in self.levels) or not self.cells.texts:
            return [*lines, *_no_codes_lines(codes, self.levels)]
        if len(inline := f"codes = {{ {', '.join(codes)} }}") <= 100:
            return [*lines, inline]
        return [*lines, "", f"[features.{toml_key(self.name)}.codes]", *codes]


def _no_codes_lines(codes: list[str], levels: list[Scalar]) -> list[str]:
    """Say what to write for a model that did not get the numbers themselves."""
    if list(levels) == list(range(len(levels))):
        return []
    some = ", ".join(codes[:8]) + (", ..." if len(codes) > 8 else "")
    return [comment(f"for a model trained on LabelEncoder's positions: codes = {{ {some} }}")]


def describe(cells: ColumnCells) -> Described:
    """Decide what a column is."""
    if (two := _boolean_levels(cells)) is not None:
        return _as_boolean(cells, two)
    odd = _odd_tokens(cells)
    numeric = cells.numbers and not cells.padded and (not cells.texts or odd)
    return _as_numeric(cells, odd) if numeric and not _coded(cells) else _as_category(cells)


def _coded(cells: ColumnCells) -> bool:
    """Whether a column of few whole numbers is named like a code rather than a quantity."""
    named = cells.words & _CODED_WORDS and not cells.words & _QUANTITY_WORDS
    return bool(named) and cells.whole and len(cells.numbers) <= FEW


def _boolean_levels(cells: ColumnCells) -> list[Scalar] | None:
    """Return the two spellings, false first, or nothing where it is no boolean."""
    if cells.numbers:
        zero_one = set(cells.numbers) == {"0", "1"} and set(cells.texts) <= {_UNKNOWN}
        return [0, 1] if zero_one else None
    if cells.texts and cells.texts.keys() <= _PANDAS_BOOLEANS:
        return [False, True]
    pair = sorted(cells.texts, key=str.casefold)
    if len(pair) != 2 or {t.casefold() for t in pair} not in _TWO_VALUES:
        return None
    return [cells.spelling(text) for text in pair]


def _as_boolean(cells: ColumnCells, levels: list[Scalar]) -> Described:
    notes = []
    if cells.numbers:
        notes = ['only 0 and 1, so read as no and yes; for a count, use kind = "integer"']
    if isinstance(levels[0], bool):
        if len({text.casefold() for text in cells.texts}) == 1:
            notes.append(_CONSTANT)
        return Described(cells, "boolean", [], notes)
    return Described(cells, "boolean", levels, notes, _asked(cells) if cells.numbers else ())


def _asked(cells: ColumnCells) -> tuple[str, ...]:
    return tuple(text for text in cells.texts if text == _UNKNOWN)


def _odd_tokens(cells: ColumnCells) -> tuple[str, ...]:
    """Return the texts among numbers that surely mean "missing": a "?", or one or two of many."""
    if cells.numbers and not cells.texts.keys() - {_UNKNOWN}:
        return _asked(cells)
    if len(cells.numbers) <= FEW or cells.padded:
        return ()
    if cells.too_large is not None:
        row, text = cells.too_large
        reason = (
            f"{text[:60]!r} is not a finite number of at most ±1e15; mend it, leave it empty or "
            "leave the column out"
        )
        raise RowError(reason, column=cells.name, row=row)
    return tuple(cells.texts) if len(cells.texts) <= 2 and cells.only_text else ()


def _as_numeric(cells: ColumnCells, odd: tuple[str, ...]) -> Described:
    values = {number for number, _ in cells.numbers.values()}
    notes = []
    if odd:
        shown = " and ".join(repr(t[:40]) for t in odd)
        notes.append(f"numbers but for {shown}, read as missing (see missing_values above)")
    if len(values) == 1:
        notes.append(_CONSTANT)
    elif cells.whole and len(values) <= FEW:
        notes.append(
            f"{len(values)} different whole numbers, taken as a quantity; if they are codes:"
        )
        notes.append('kind = "category" and levels = [...] in place of range, bins and scale')
    if (
        (below := {v for v in values if v < 0})
        and len(below) <= 3
        and below <= _SPECIAL
        and below < values
    ):
        shown = ", ".join(format_number(v) for v in sorted(below))
        notes.append(f"does {shown} mean that there is no figure? A rule of kind never keeps it")
        notes.append("from being proposed")
    return Described(cells, "integer" if cells.whole else "number", [], notes, odd)


def _as_category(cells: ColumnCells) -> Described:
    levels: list[Scalar]
    notes = []
    if cells.texts or not cells.whole:
        texts = sorted(set(cells.levels))
        levels = [cells.spelling(text) for text in texts]
        notes += _spelling_notes(cells, texts)
    else:
        levels = sorted({int(number) for number, _ in cells.numbers.values()})
        notes.append(_why_codes(cells))
    if len(levels) == 1:
        notes.append(_CONSTANT)
    if len(levels) > MANY:
        notes.append(f"{len(levels)} levels: is it an identifier (ignore it) or worth grouping?")
    if cells.texts and all(map(_DATE.match, cells.texts)):
        notes.append("these look like dates; a number of days or years would serve a model better")
    return Described(cells, "category", levels, notes)


def _why_codes(cells: ColumnCells) -> str:
    if not cells.padded:
        return 'taken as codes because of its name; for a quantity, use kind = "integer"'
    text = next(text for text in cells.numbers if _as_text(text) != text)
    return (
        f"{text!r} is read as {_as_text(text)}, as pandas does; if your model was trained on the "
        f"text, list the levels as text: levels = [{quoted(text)}, ...]"
    )


def _as_text(text: str) -> str:
    return text_of(float(text))


def _spelling_notes(cells: ColumnCells, texts: list[str]) -> list[str]:
    notes = []
    if doubtful := [t for t in texts if t.casefold() in _LOOKS_MISSING]:
        notes.append(
            f"{doubtful[0]!r} looks like a missing value; if your model was trained that way, take "
            "it out of levels and codes,"
        )
        notes.append('list it in missing_values, and write missing = "keep"')
    twice = next((t for t in texts if len(cells.spelled.get(t, ())) > 1), None)
    if twice is not None:
        spellings = ", ".join(map(repr, cells.spelled[twice]))
        notes.append(f"spelled in more than one way ({spellings}), and read as one level")
    return notes


def _decimals(cells: ColumnCells) -> int:
    """Return how many decimals a proposal needs: those found, but no more than four digits' worth.

    Figures such as 0.30000000000000004 are an accident of floats, not a grid that people use.
    """
    found = max(-int(Decimal(text).normalize().as_tuple().exponent) for text in cells.numbers)
    scale = cells.scale() or abs(float(next(iter(cells.numbers)))) or 1.0
    return min(15, max(0, min(found, 3 - math.floor(math.log10(scale)))))


def reason_to_ignore(cells: ColumnCells) -> str:
    """Return why a column says nothing about a person, or nothing where it may."""
    if not cells.levels:
        return "is empty in every row"
    if max(map(len, cells.levels)) > LONGEST_TEXT:
        return "holds long texts"
    if not cells.all_distinct or cells.rows < 2 or (cells.numbers and not cells.whole):
        return ""
    if cells.words & _ID_WORDS:
        return "is different in every row and named like an identifier"
    if cells.rows > FEW and (not cells.numbers or cells.padded or cells.too_large):
        return "is a different text or long number in every row"
    return ""


def outer_range(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the lowest and highest value, rounded outwards to two significant digits.

    >>> outer_range(np.array([-1234.0, 987.0]))
    (-1300.0, 990.0)
    """
    down, up = Context(prec=2, rounding=ROUND_FLOOR), Context(prec=2, rounding=ROUND_CEILING)
    low, high = repr(float(values.min())), repr(float(values.max()))
    return float(down.create_decimal(low)), float(up.create_decimal(high))
