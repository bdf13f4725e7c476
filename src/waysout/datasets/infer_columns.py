"""What each column of a table is, told from its cells and its name, and how a card says so."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

import numpy as np
from numpy.typing import NDArray

from waysout.domain.distance import scale_of
from waysout.domain.key import bin_edges, rounded
from waysout.domain.schema import (
    LARGEST,
    LONGEST_TEXT,
    Feature,
    Kind,
    Scalar,
    format_number,
    text_of,
)
from waysout.errors import RowError, TableError

FEW = 20  # whole numbers with no more distinct values than this may be codes
MANY = 100  # a category with more levels than this deserves a second look

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
_ID_WORDS = {"id", "ids", "uid", "uuid", "guid", "unnamed", "index"}
_SPECIAL = {*range(-9, 0), -99, -999, -9999}
_TWO_VALUES = ({"false", "true"}, {"no", "yes"}, {"n", "y"}, {"f", "t"})
# What pandas reads as booleans; a column of nothing else holds True and False, not text.
_PANDAS_BOOLEANS = {"True", "TRUE", "true", "False", "FALSE", "false"}
_CONSTANT = "always the same value: a model cannot have learnt from it"
_UNKNOWN = "?"  # what old tables write where there is no figure
_LOOKS_MISSING = {"?", "-", "--", ".", "missing", "none", "not available", "unknown"}
NUMBER = Feature("number", "number", missing="keep")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}")
_LEADING_ZERO = re.compile(r"[+-]?0\d")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+")


# TOML is written by hand: no library writes the comments that make a card a draft to read.


def toml(value: object) -> str:
    r"""Write a value, a list or a table on one line.

    >>> print(toml('say "hi"\n'))
    "say \"hi\"\n"
    """
    if isinstance(value, str):
        if any(unicodedata.category(c) == "Cs" for c in value):
            raise TableError(f"{value[:60]!r} holds half a character (a lone surrogate)")
        return _visible(json.dumps(value, ensure_ascii=False))
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{toml_key(k)} = {toml(v)}' for k, v in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    assert isinstance(value, (bool, int, float))
    return str(value).lower() if isinstance(value, bool) else format_number(value)


def _visible(text: str) -> str:
    """Escape invisible characters and exotic line ends, so that a person can see them."""
    return "".join(
        (f"\\u{ord(c):04X}" if ord(c) < 0x10000 else f"\\U{ord(c):08X}")
        if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")
        else c
        for c in text
    )


def toml_key(text: str) -> str:
    """Write a key, quoted where it has to be."""
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else toml(text)


def toml_list(values: Iterable[Scalar]) -> str:
    """Write a list, on several lines where one is not enough."""
    lines, line = [], ""
    for item in map(toml, values):
        if line and len(line) + len(item) > 90:
            lines.append(line.rstrip())
            line = ""
        line += item + ", "
    if not lines:
        return f"[{line[:-2]}]"
    return "[\n  " + "\n  ".join([*lines, line.rstrip()]) + "\n]"


def comment(text: str) -> str:
    """Write a comment, on one line whatever the text."""
    return "# " + _visible(text)


@dataclass
class ColumnCells:
    """The distinct cells of one column, sorted into missing ones, numbers and other text."""

    name: str
    rows: int
    missing: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, tuple[float, int]] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)
    spelled: dict[str, dict[str, int]] = field(default_factory=dict)  # with spaces, as in the table
    too_large: tuple[int, str] | None = None
    only_text: bool = True  # whether whatever is neither missing nor a number is text as it stands

    @property
    def words(self) -> set[str]:
        """The words of the column's name, in lower case."""
        return {word.casefold() for word in _WORD.findall(self.name)}

    @property
    def levels(self) -> list[str]:
        """All values as text."""
        return [*self.numbers, *self.texts]

    @property
    def padded(self) -> bool:
        """Whether some numbers have leading zeros: 01234 is a code, not a quantity."""
        return any(_LEADING_ZERO.match(text) for text in self.numbers)

    def spelling(self, text: str) -> str:
        """Return a value as the table spells it: pandas keeps spaces and Unicode forms."""
        spellings = self.spelled.get(text, {text: 1})
        return max(spellings, key=spellings.__getitem__)

    @property
    def whole(self) -> bool:
        """Whether every number is a whole one."""
        return all(number.is_integer() for number, _ in self.numbers.values())

    def values(self) -> NDArray[np.float64]:
        """Return the numbers, one for each row that has one."""
        numbers, counts = zip(*self.numbers.values(), strict=True)
        return np.repeat(np.array(numbers, dtype=np.float64), np.array(counts))

    def scale(self) -> float | None:
        """Return the numbers' scale as a card writes it; where all are the same there is none."""
        values = self.values()
        return rounded(scale_of(values).value, 3) if values.min() < values.max() else None

    def reason_to_ignore(self) -> str:
        """Return why the column says nothing about a person, or an empty text if it may."""
        if not self.levels:
            return "is empty in every row"
        if max(map(len, self.levels)) > LONGEST_TEXT:
            return "holds long texts"
        distinct = len(self.levels) == self.rows
        if not distinct or self.rows < 2 or (self.numbers and not self.whole):
            return ""
        if self.words & _ID_WORDS:
            return "is different in every row and named like an identifier"
        if self.rows > FEW and (not self.numbers or self.padded or self.too_large):
            return "is a different text or long number in every row"
        return ""


def sort_cells(name: str, cells: Sequence[object]) -> ColumnCells:
    """Sort the cells of a column."""
    # Equal cells of one type are counted, with the row of the first: 1, 1.0 and True stay apart.
    seen: dict[object, tuple[int, object, int]] = {}
    for row, cell in enumerate(cells):
        plain = cell if isinstance(cell, (str, int, float, type(None))) else str(cell)
        first, _, count = seen.get((type(cell), plain), (row, cell, 0))
        seen[type(cell), plain] = (first, cell, count + 1)
    found = ColumnCells(name, len(cells))
    for row, cell, count in seen.values():
        text = text_of(cell)
        if isinstance(cell, str):
            found.spelled.setdefault(text, {})[cell] = count
        try:
            number = NUMBER.parse(cell)
        except RowError:
            found.texts[text] = found.texts.get(text, 0) + count
            found.only_text &= isinstance(cell, str) and cell.strip() == text
            try:
                large = not isinstance(cell, bool) and abs(float(cell)) > LARGEST  # type: ignore[arg-type]
            except (TypeError, ValueError, OverflowError):
                large = isinstance(cell, int)
            if large and found.too_large is None:
                found.too_large = (row, text)
            continue
        if number is None:
            token = cell.strip() if isinstance(cell, str) else ""
            found.missing[token] = found.missing.get(token, 0) + count
        else:
            found.numbers[text] = (float(number), found.numbers.get(text, (0.0, 0))[1] + count)
    return found


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
        cells = self.cells
        lines = [f"[features.{toml_key(self.name)}]", *map(comment, self.notes)]
        lines += [f'kind = "{self.kind}"', 'about = ""']
        if tokens := cells.missing | {t: cells.texts[t] for t in self.odd}:
            shown = ", ".join(f"{t!r}" if t else "empty" for t in tokens)
            lines += [
                comment(f"missing in {sum(tokens.values())} of {cells.rows} rows ({shown}):"),
                comment("keep leaves it missing, fill lets it be filled in, refuse is an error"),
                'missing = "keep"',
            ]
            if self.levels:
                code = "missing_code = -1 if your model was trained on pandas' cat.codes"
                lines.append(comment(code))
        if self.is_numeric:
            values = cells.values()
            lines.append(f"range = [{format_number(values.min())}, {format_number(values.max())}]")
            if self.kind == "number":
                lines.append(f"decimals = {_decimals(cells)}")
            if edges := bin_edges(values):
                lines.append(f"bins = {toml_list(edges)}")
            if (scale := cells.scale()) is not None:
                lines.append(f"scale = {format_number(scale)}")
        elif self.levels:
            lines += self._level_lines()
        return lines

    def _level_lines(self) -> list[str]:
        codes = [f"{toml_key(text_of(level))} = {i}" for i, level in enumerate(self.levels)]
        lines = [f"levels = {toml_list(self.levels)}"]
        if not all(isinstance(level, str) for level in self.levels) or not self.cells.texts:
            # Numbers stand for themselves; say what to write for a model that did not get them.
            some = ", ".join(codes[:8]) + (", ..." if len(codes) > 8 else "")
            other = f"for a model trained on LabelEncoder's positions: codes = {{ {some} }}"
            return lines if self.levels == [*range(len(codes))] else [*lines, comment(other)]
        if len(inline := f"codes = {{ {', '.join(codes)} }}") <= 100:
            return [*lines, inline]
        return [*lines, "", f"[features.{toml_key(self.name)}.codes]", *codes]


def describe(cells: ColumnCells) -> Described:
    """Decide what a column is."""
    asked = tuple(text for text in cells.texts if text == _UNKNOWN)
    if set(cells.numbers) == {"0", "1"} and set(cells.texts) <= {_UNKNOWN}:
        note = 'only 0 and 1, so read as no and yes; for a count, use kind = "integer"'
        return Described(cells, "boolean", [0, 1], [note], asked)
    if not cells.numbers and cells.texts:
        folded = {text.casefold() for text in cells.texts}
        if cells.texts.keys() <= _PANDAS_BOOLEANS:
            return Described(cells, "boolean", [], [_CONSTANT] if len(folded) == 1 else [])
        if len(cells.texts) == 2 and folded in _TWO_VALUES:
            pair = sorted(cells.texts, key=str.casefold)
            return Described(cells, "boolean", [cells.spelling(text) for text in pair])
    odd: tuple[str, ...] = ()  # texts among numbers that surely mean "missing"
    if cells.numbers and not cells.texts.keys() - {_UNKNOWN}:
        odd = asked
    elif len(cells.numbers) > FEW and not cells.padded:
        if cells.too_large is not None:
            row, text = cells.too_large
            reason = (
                f"{text[:60]!r} is not a finite number of at most ±1e15; mend it, leave it empty "
                "or leave the column out"
            )
            raise RowError(reason, column=cells.name, row=row)
        odd = tuple(cells.texts) if len(cells.texts) <= 2 and cells.only_text else ()
    # Few whole numbers may be codes rather than a quantity: the name tells.
    named = cells.words & _CODED_WORDS and not cells.words & _QUANTITY_WORDS
    coded = named and cells.whole and len(cells.numbers) <= FEW
    numeric = cells.numbers and not cells.padded and (not cells.texts or odd)
    return _as_numeric(cells, odd) if numeric and not coded else _as_category(cells)


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
    below = sorted(v for v in values if v < 0)
    if 0 < len(below) <= 3 and len(below) < len(values) and _SPECIAL.issuperset(below):
        shown = ", ".join(map(format_number, below))
        notes.append(f"does {shown} mean that there is no figure? A rule of kind never keeps it")
        notes.append("from being proposed")
    return Described(cells, "integer" if cells.whole else "number", [], notes, odd)


def _as_category(cells: ColumnCells) -> Described:
    levels: list[Scalar]
    notes = []
    if cells.texts or not cells.whole:
        texts = sorted(set(cells.levels))
        levels = [cells.spelling(text) for text in texts]
        if doubtful := [t for t in texts if t.casefold() in _LOOKS_MISSING]:
            notes.append(
                f"{doubtful[0]!r} looks like a missing value; if your model was trained that way, "
                "take it out of levels and codes,"
            )
            notes.append('list it in missing_values, and write missing = "keep"')
        twice = next((t for t in texts if len(cells.spelled.get(t, ())) > 1), None)
        if twice is not None:
            spellings = ", ".join(map(repr, cells.spelled[twice]))
            notes.append(f"spelled in more than one way ({spellings}), and read as one level")
    else:
        levels = sorted({int(number) for number, _ in cells.numbers.values()})
        if cells.padded:
            text = next(text for text in cells.numbers if text_of(float(text)) != text)
            notes.append(
                f"{text!r} is read as {text_of(float(text))}, as pandas does; if your model was "
                f"trained on the text, list the levels as text: levels = [{toml(text)}, ...]"
            )
        else:
            notes.append('taken as codes because of its name; for a quantity, use kind = "integer"')
    if len(levels) == 1:
        notes.append(_CONSTANT)
    if len(levels) > MANY:
        notes.append(f"{len(levels)} levels: is it an identifier (ignore it) or worth grouping?")
    if cells.texts and all(map(_DATE.match, cells.texts)):
        notes.append("these look like dates; a number of days or years would serve a model better")
    return Described(cells, "category", levels, notes)


def _decimals(cells: ColumnCells) -> int:
    """Return how many decimals a proposal needs: those found, but no more than four digits' worth.

    Figures such as 0.30000000000000004 are an accident of floats, not a grid that people use.
    """
    found = max(-int(Decimal(text).normalize().as_tuple().exponent) for text in cells.numbers)
    scale = cells.scale() or abs(float(next(iter(cells.numbers)))) or 1.0
    return min(15, max(0, min(found, 3 - math.floor(math.log10(scale)))))


def outer_range(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the lowest and highest value, rounded outwards to two significant digits.

    >>> outer_range(np.array([-1234.0, 987.0]))
    (-1300.0, 990.0)
    """
    down, up = Context(prec=2, rounding=ROUND_FLOOR), Context(prec=2, rounding=ROUND_CEILING)
    low, high = repr(float(values.min())), repr(float(values.max()))
    return float(down.create_decimal(low)), float(up.create_decimal(high))
