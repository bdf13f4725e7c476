"""What each column of a table is, told from its cells and its name, and how a card says so."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

import numpy as np
from numpy.typing import NDArray

from waysout.datasets.infer_names import is_code, is_identifier
from waysout.datasets.infer_toml import comment, level, toml, toml_key, wrapped
from waysout.datasets.infer_written import written_form
from waysout.datasets.scales import known_order
from waysout.domain.distance import scale_of
from waysout.domain.key import bin_edges, rounded
from waysout.domain.rules.base import SMALLEST
from waysout.domain.schema import (
    LARGEST,
    LONGEST_TEXT,
    Feature,
    Kind,
    Scalar,
    format_number,
    text_of,
)
from waysout.errors import RowError

FEW = 20  # whole numbers with no more distinct values than this may be codes
ENOUGH_FOR_A_STEP = 12  # different numbers
MANY = 100  # text with more distinct values than this is no category

_SPECIAL = {*range(-9, 0), -99, -999, -9999}
_TWO_VALUES = ({"false", "true"}, {"no", "yes"}, {"n", "y"}, {"f", "t"})
# What pandas reads as booleans; a column of nothing else holds True and False, not text.
_PANDAS_BOOLEANS = {"True", "TRUE", "true", "False", "FALSE", "false"}
_CONSTANT = "always the same value: a model cannot have learnt from it"
_UNKNOWN = "?"  # what old tables write where there is no figure
_LOOKS_MISSING = {"?", "-", "--", ".", "missing", "none", "not available", "unknown"}
NUMBER = Feature("number", "number", missing="keep")
_DATE = re.compile(
    r"(\d{4}-\d{2}-\d{2}|\d{4}/\d{1,2}/\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{2,4})"
    r"([T ]\d{1,2}:\d{2}.*)?"
)
_LEADING_ZERO = re.compile(r"[+-]?0\d")
_WHOLE = re.compile(r"[+-]?\d{1,300}", re.ASCII)
_DATES = "dates"


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
    typed: bool = False  # whether the cells have types of their own, as in a data frame
    days: set[str] = field(default_factory=set)  # the texts of cells that are dates
    floats: bool = False  # whether some typed cells are floats, whole or not

    @property
    def levels(self) -> list[str]:
        """All values as text."""
        return [*self.numbers, *self.texts]

    @property
    def dates(self) -> bool:
        """Whether all values are dates, not texts that look like one."""
        return bool(self.days) and not self.numbers and self.days == set(self.texts)

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
        """Return the numbers' scale as a card writes it; where all are (nearly) the same, none."""
        values = self.values()
        scale = scale_of(values).value
        # A card takes no smaller one.
        return rounded(scale, 3) if values.min() < values.max() and scale >= SMALLEST else None

    def reason_to_carry(self) -> str:
        """Return why the column is opaque: no category, no quantity. Empty if it may be one."""
        distinct = len(self.levels)
        if not distinct:
            return "empty in every row"
        if self.dates or (not self.numbers and all(map(_DATE.fullmatch, self.texts))):
            return _DATES
        if max(map(len, self.levels)) > LONGEST_TEXT:
            return "long texts"
        every = distinct == self.rows > 1
        mostly = every or (distinct > FEW and 2 * distinct > self.rows)
        if is_identifier(self.name) and self.whole and (mostly or distinct > MANY):
            return "an identifier, by its name and its values"
        texts = bool(self.texts) and not self.numbers
        if self.rows > FEW and (texts or self.padded or self.too_large) and self.whole and mostly:
            return "a different text or long number in most rows"
        return ""


def sort_cells(name: str, cells: Sequence[object], typed: bool = False) -> ColumnCells:
    """Sort the cells of a column."""
    # Equal cells of one type are counted, with the row of the first: 1, 1.0 and True stay apart.
    seen: dict[object, tuple[int, object, int]] = {}
    for row, cell in enumerate(cells):
        plain = cell if isinstance(cell, (str, int, float, type(None))) else str(cell)
        first, _, count = seen.get((type(cell), plain), (row, cell, 0))
        seen[type(cell), plain] = (first, cell, count + 1)
    found = ColumnCells(name, len(cells), typed=typed)
    for row, cell, count in seen.values():
        text = text_of(cell)
        if isinstance(cell, str):
            found.spelled.setdefault(text, {})[cell] = count
            if typed:  # what a model was trained on is this text, whatever it looks like
                found.texts[text] = found.texts.get(text, 0) + count
                continue
        try:
            number = NUMBER.parse(cell)
        except RowError:
            found.texts[text] = found.texts.get(text, 0) + count
            found.days |= {text} if isinstance(cell, date) else set()
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
            found.floats |= typed and isinstance(cell, float)
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
    more: Mapping[str, str | bool] = field(default_factory=dict)
    """Further fields: holds, written, unit, ordered."""

    @property
    def name(self) -> str:
        """The feature's name."""
        return self.cells.name

    @property
    def is_numeric(self) -> bool:
        """Whether the feature is a number or an integer."""
        return self.kind in ("number", "integer")

    @property
    def is_flag(self) -> bool:
        """Whether all that is there are 0 and 1, or true and false."""
        cells = self.cells
        numbers = {number for number, _ in cells.numbers.values()}
        if cells.missing or self.odd or not (numbers or cells.texts):
            return False
        if self.kind == "boolean":
            return numbers == {0.0, 1.0} or self.levels in ([], [False, True])
        return self.kind == "integer" and numbers <= {0.0, 1.0}

    def step(self) -> int:
        """Return what all numbers are multiples of, where that is more than chance; else 0."""
        numbers = {number for number, _ in self.cells.numbers.values()}
        if self.kind != "integer" or len(numbers) < ENOUGH_FOR_A_STEP:
            return 0
        common = math.gcd(*(int(number) for number in numbers))
        return common if common > 1 else 0

    def lines(self) -> list[str]:
        """Return the feature's part of the card, a field a line."""
        lines = [f"[features.{toml_key(self.name)}]", *map(comment, self.notes)]
        for key, value in self._fields():
            if key == "missing":
                lines += map(comment, self._missing_notes())
            lines.append(f"{key} = {value}")
        return [*lines, *map(comment, self._code_notes())]

    def line(self) -> str:
        """Return the feature's part of the card in a line, which stands under ``[features]``."""
        fields = [f"{k} = {v}" for k, v in self._fields(one_line=True) if v != '""']
        said = f"  {comment('; '.join(self.notes))}" if self.notes else ""
        return f"{toml_key(self.name)} = {{ {', '.join(fields)} }}{said}"

    def _fields(self, one_line: bool = False) -> list[tuple[str, str]]:
        """Return the fields of the card as they are written, in order."""
        cells = self.cells
        fields = [("kind", toml(self.kind))]
        fields += [(key, toml(text)) for key, text in self.more.items()]
        fields += [("about", '""')] if self.kind != "opaque" else []
        if (cells.missing or self.odd) and self.kind != "opaque":
            fields.append(("missing", '"keep"'))

        def listed(items: Sequence[str]) -> str:
            return f"[{', '.join(items)}]" if one_line else wrapped(items)

        if self.is_numeric:
            values = cells.values()
            fields.append(("range", toml([float(values.min()), float(values.max())])))
            if self.kind == "number":
                fields.append(("decimals", str(_decimals(cells))))
            if edges := bin_edges(values):
                fields.append(("bins", listed([toml(edge) for edge in edges])))
            if (scale := cells.scale()) is not None:
                fields.append(("scale", format_number(scale)))
        if self.levels:
            fields.append(("levels", listed([level(one) for one in self.levels])))
            if not self._stand_for_themselves:
                fields.append(("codes", '"sorted"'))
        return fields

    @property
    def _stand_for_themselves(self) -> bool:
        """Whether the levels are numbers, so that a model was trained on these."""
        texts = all(isinstance(one, str) for one in self.levels)
        return not texts or not self.cells.texts

    def _missing_notes(self) -> list[str]:
        cells = self.cells
        tokens = cells.missing | {t: cells.texts[t] for t in self.odd}
        shown = ", ".join(f"{t!r}" if t else "empty" for t in tokens)
        notes = [f"missing in {sum(tokens.values())} of {cells.rows} rows ({shown})"]
        code = "missing_code = -1 if your model was trained on pandas' cat.codes"
        return [*notes, code] if self.levels else notes

    def _code_notes(self) -> list[str]:
        """Say what to write for a model that was not trained on numbers that are levels."""
        others = self.levels != [*range(len(self.levels))]
        if not self.levels or not self._stand_for_themselves or not others:
            return []
        return ['codes = "sorted" if your model was trained on LabelEncoder\'s positions']


def describe(cells: ColumnCells) -> Described:
    """Decide what a column is."""
    written = _as_written(cells)
    if written is None and (reason := cells.reason_to_carry()):
        return _as_opaque(cells, reason)
    asked = tuple(text for text in cells.texts if text == _UNKNOWN)
    if set(cells.numbers) == {"0", "1"} and set(cells.texts) <= {_UNKNOWN}:
        note = 'only 0 and 1, so read as no and yes; for a count, use kind = "integer"'
        levels: list[Scalar] = [0.0, 1.0] if cells.floats else [0, 1]
        return Described(cells, "boolean", levels, [note], asked)
    if not cells.numbers and cells.texts:
        folded = {text.casefold() for text in cells.texts}
        if cells.texts.keys() <= _PANDAS_BOOLEANS and not (cells.typed and cells.spelled):
            return Described(cells, "boolean", [], [_CONSTANT] if len(folded) == 1 else [])
        if len(cells.texts) == 2 and folded in _TWO_VALUES:
            pair = sorted(cells.texts, key=str.casefold)
            return Described(cells, "boolean", [cells.spelling(text) for text in pair])
    if written is not None:
        return written
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
    most = MANY if is_identifier(cells.name) else FEW
    coded = is_code(cells.name) and cells.whole and len(cells.numbers) <= most
    coded = coded and not cells.numbers.keys() <= {"0", "1"}  # a dummy that never occurs
    numeric = cells.numbers and not cells.padded and (not cells.texts or odd)
    if numeric and not coded:
        return _as_numeric(cells, odd)
    found = _as_category(cells)
    many = len(found.levels) > MANY
    return _as_opaque(cells, f"{len(found.levels)} different values") if many else found


def _as_opaque(cells: ColumnCells, reason: str) -> Described:
    """Describe a column that is carried along: an identifier, free text, dates."""
    notes = [f"{reason}: carried along, never proposed"]
    if reason == _DATES:
        notes.append("for a feature, a number of days or years serves a model better")
    elif cells.texts and len(cells.levels) > 1:
        notes.append('for a feature, use kind = "category" and list the levels that a model knows')
    elif cells.numbers:
        notes.append('for a feature, use kind = "integer" and give it a range')
    more = {"holds": "date"} if cells.dates else {}
    # To pandas a column of whole numbers in a CSV file is one of numbers, however long they are.
    whole = all(map(_WHOLE.fullmatch, cells.levels)) and cells.levels
    texts = cells.typed and cells.spelled  # in a table with types of its own, text stays text
    if whole and not texts and not cells.padded:
        more = {"holds": "number"}
    return Described(cells, "opaque", [], notes, (), more)


def _as_written(cells: ColumnCells) -> Described | None:
    """Describe numbers in a form of their own: ``12,5``, ``1.234``, ``45 %``, ``$5.00``."""
    texts = {text: count for text, count in cells.texts.items() if text != _UNKNOWN}
    form = written_form([*cells.numbers, *texts]) if texts else None
    # Text with types of its own stays text where it is plain numbers, or a few levels.
    if form is None or (cells.typed and (form[0].is_plain or len(texts) <= FEW)):
        return None
    numbers: dict[str, tuple[float, int]] = {}
    counts = {text: count for text, (_, count) in cells.numbers.items()} | texts
    for text, count in counts.items():
        value = form[0].read(text)
        if value is None or not abs(value) <= LARGEST:
            return None
        plain = format_number(value)
        numbers[plain] = (value, numbers.get(plain, (0.0, 0))[1] + count)
    odd = {t: n for t, n in cells.texts.items() if t == _UNKNOWN}
    read = ColumnCells(cells.name, cells.rows, dict(cells.missing), numbers, odd)
    made = _as_numeric(read, tuple(odd))
    sign = (form[0].before or form[0].after).strip()
    made.more = {"written": form[1]} | ({"unit": sign} if sign else {})
    example = format_number(form[0].read(form[1]) or 0.0)
    made.notes.insert(0, f"read as numbers: {form[1]} is {example}")
    return made


def _as_numeric(cells: ColumnCells, odd: tuple[str, ...]) -> Described:
    values = {number for number, _ in cells.numbers.values()}
    notes = []
    if odd:
        shown = " and ".join(repr(t[:40]) for t in odd)
        notes.append(f"numbers but for {shown}, read as missing (see missing_values above)")
    if len(values) == 1:
        notes.append(_CONSTANT)
    elif cells.whole and len(values) <= FEW and not cells.floats:
        notes.append(
            f"{len(values)} different whole numbers, taken as a quantity; if they are codes:"
        )
        notes.append('kind = "category" and levels = [...] in place of range, bins and scale')
    below = sorted(v for v in values if v < 0)
    if 0 < len(below) <= 3 and len(below) < len(values) and _SPECIAL.issuperset(below):
        shown = ", ".join(map(format_number, below))
        notes.append(f"does {shown} mean that there is no figure? A rule of kind never keeps it")
        notes.append("from being proposed")
    # A column of floats stays one, whole or not: what comes out is what went in.
    return Described(cells, "integer" if cells.whole and not cells.floats else "number", [],
                     notes, odd)  # fmt: skip


def _as_category(cells: ColumnCells) -> Described:
    levels: list[Scalar]
    notes = []
    if cells.texts or not cells.whole:
        texts = sorted(set(cells.levels))
        levels = [cells.spelling(text) for text in texts]
        doubtful = [t for t in texts if t.casefold() in _LOOKS_MISSING]
        if doubtful and not cells.typed:
            notes.append(
                f"{doubtful[0]!r} looks like a missing value; if your model was trained that way, "
                "take it out of levels,"
            )
            notes.append('list it in missing_values, and write missing = "keep"')
        twice = next((t for t in texts if len(cells.spelled.get(t, ())) > 1), None)
        if twice is not None:
            spellings = ", ".join(map(repr, cells.spelled[twice]))
            notes.append(f"spelled in more than one way ({spellings}), and read as one level")
    else:
        numbers = sorted({number for number, _ in cells.numbers.values()})
        levels = [number if cells.floats else int(number) for number in numbers]
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
    order = _order([one for one in levels if isinstance(one, str)])
    if order is None or len(order) < len(levels):
        return Described(cells, "category", levels, notes)
    notes.append("levels from low to high, as everybody orders them; if not, take ordered away")
    return Described(cells, "category", [*order], notes, (), {"ordered": True})


def _order(levels: list[str]) -> list[str] | None:
    """Return levels from low to high, where everybody orders them so: 5 % is less than 10 %."""
    form = written_form(levels) if levels else None
    if form is None or form[0].is_plain:
        return known_order(levels)
    return sorted(levels, key=lambda level: form[0].read(level) or 0.0)


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
