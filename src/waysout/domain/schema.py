"""Features and rows: what a table holds, typed.

A row is a plain tuple of values in the schema's order: ``float`` for a number, ``int`` for an
integer, ``str`` for a category (always one of its levels), ``bool`` for a boolean, the cell itself
for an opaque feature, and ``None`` for a missing value. So it hashes, compares and caches as it is,
and a misspelt feature cannot slip through: every name goes through the schema. Reading is exact: a
value is kept as it was written or refused by name, so that what a person sees is what the oracle
was asked.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from waysout.domain.written import WrittenForm
from waysout.errors import RowError, SchemaError, nearest, shown, unknown

Kind = Literal["number", "integer", "category", "boolean", "opaque"]
Holds = Literal["", "date", "number"]
MissingPolicy = Literal["refuse", "keep", "fill"]
UnseenPolicy = Literal["refuse", "missing"]
Value = float | int | str | bool | None
Scalar = float | int | str | bool
Row = tuple[Value, ...]

KINDS: tuple[str, ...] = get_args(Kind)
NUMERIC = ("number", "integer")

# Beyond 2**53 a float no longer tells neighbouring integers apart, so such a value could not be
# shown, keyed and scored as the same number.
LARGEST = 1e15
LONGEST_TEXT = 1000

# What pandas reads as missing, so that a card and a model trained from the same file agree.
MISSING_TOKENS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NUMBERS = (int, float, np.integer, np.floating)
_FALSE_TOKENS = {"false", "0", "no", "n", "f"}
_TRUE_TOKENS = {"true", "1", "yes", "y", "t"}


def text_of(raw: object) -> str:
    """Write a raw scalar the way a level is spelled: ``1`` and ``1.0`` are both ``"1"``.

    >>> text_of(1.0), text_of(" a "), text_of(True)
    ('1', 'a', 'True')
    """
    if isinstance(raw, (bool, np.bool_)):
        return str(bool(raw))
    if isinstance(raw, (float, np.floating)) and math.isfinite(raw) and float(raw).is_integer():
        return str(int(raw))
    return unicodedata.normalize("NFC", str(raw)).strip()


def format_number(value: float) -> str:
    """Write a number in its shortest exact form, without a needless ``.0``.

    >>> format_number(2.0), format_number(0.1), format_number(1e-9)
    ('2', '0.1', '1e-09')
    """
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def check_name(name: object) -> str:
    """Return a feature name in NFC, or say why it cannot be one."""
    if not isinstance(name, str) or not name.strip():
        raise SchemaError(f"a feature name must be non-empty text, not {name!r}")
    if any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in name):
        raise SchemaError(f"feature name {name!r} holds a control character or a line break")
    return unicodedata.normalize("NFC", name).strip()


@dataclass(frozen=True, slots=True)
class Feature:
    """One column: its kind, what it may hold, and the words a person reads.

    ``levels`` are the raw scalars of the table (a model may have been trained on the integers 1 and
    2); inside rows a level is always its text. For a boolean they are the two spellings, false
    first. ``range`` bounds the values that may be *proposed*; a query's own value may lie outside.
    ``codes`` are the numbers a label-encoded model was trained on, ``missing_code`` the one it got
    for a missing value (default: NaN).

    An ``opaque`` feature (an identifier, free text, a date) is carried along as it is and never
    proposed: any value will do, and it counts neither in the key nor in the distance. ``holds``
    says what a model is given there: the cell itself, a ``"date"``, or a ``"number"``.
    ``written`` is an example of how the table writes a number that `float` cannot read, such as
    ``"12,5 %"``; ``label`` is the name that people read, if it is not the column's. ``moves`` says
    what a person does to change it: for a number ``up`` and ``down``, with ``{}`` for the amount
    (``{"down": "borrow {} less"}``), else for each level (``{"own": "buy a home"}``).

    >>> import waysout
    >>> home = waysout.Feature("home", "category", levels=("rented", "own"))
    >>> home.parse(" own "), home.coerce("OWN")  # a cell of the table; a value that was proposed
    ('own', 'own')
    >>> waysout.Feature("income", "integer", range=(0, 200_000), unit="euros").parse("48000.0")
    48000
    """

    name: str
    kind: Kind
    levels: tuple[Scalar, ...] = ()
    ordered: bool = False
    range: tuple[float, float] | None = None
    decimals: int | None = None
    missing: MissingPolicy = "refuse"
    unseen: UnseenPolicy = "refuse"
    synonyms: Mapping[str, str] = field(default_factory=dict)
    codes: Mapping[str, float] = field(default_factory=dict)
    missing_code: float | None = None
    words: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""
    about: str = ""
    missing_tokens: tuple[str, ...] = MISSING_TOKENS
    holds: Holds = ""
    written: str = ""
    label: str = ""
    moves: Mapping[str, str] = field(default_factory=dict)
    _index: Mapping[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    _folded: Mapping[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    _form: WrittenForm | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Reject invalid descriptions."""
        object.__setattr__(self, "name", check_name(self.name))
        for field_name, what, known in (
            ("kind", "kind", KINDS),
            ("missing", "missing policy", get_args(MissingPolicy)),
            ("unseen", "unseen policy", get_args(UnseenPolicy)),
            ("holds", "content of an opaque feature", get_args(Holds)),
        ):
            value = getattr(self, field_name)
            if value not in known:
                raise self._wrong(unknown(what, value, known), field_name)
        if self.kind == "boolean" and not self.levels:
            object.__setattr__(self, "levels", (False, True))
        self._check_levels()
        if self.decimals is not None and (self.kind != "number" or not 0 <= self.decimals <= 15):
            reason = f"decimals is 0 to 15, for a number only; got {self.decimals!r}"
            raise self._wrong(reason, "decimals")
        if self.range is not None:
            low, high = self.range
            if not self.is_numeric:
                raise self._wrong(f"only numbers have a range, and this is {self.kind}", "range")
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise self._wrong(f"range [{low}, {high}] is empty or not finite", "range")
        if self.holds and not self.is_opaque:
            raise self._wrong(f"holds is for kind = 'opaque', not for {self.kind!r}", "holds")
        if self.written:
            self._read_example()
        self._check_moves()
        for title, levels in (
            ("codes", self.codes), ("words", self.words), ("synonyms", self.synonyms.values()),
            ("moves", () if self.is_numeric else self.moves),
        ):  # fmt: skip
            for level in levels:
                if level not in self._index:
                    reason = f"{title}: {unknown('level', level, self.level_texts)}"
                    raise self._wrong(reason, title)

    def _wrong(self, reason: str, field: str | None = None) -> SchemaError:
        return SchemaError(f"feature {self.name!r}: {reason}", field=field)

    def _check_moves(self) -> None:
        if not self.is_numeric:
            return  # the keys are levels, and checked with the others
        for way, said in self.moves.items():
            if way not in ("up", "down"):
                raise self._wrong(f"moves: {unknown('direction', way, ['up', 'down'])}", "moves")
            if said.count("{}") != 1:
                reason = f"moves: {shown(said)} needs {{}} once, where the amount goes"
                raise self._wrong(reason, "moves")

    def _read_example(self) -> None:
        if not self.is_numeric:
            raise self._wrong(f"written is for numbers, and this is {self.kind}", "written")
        try:
            object.__setattr__(self, "_form", WrittenForm.like(self.written))
        except ValueError as error:
            raise self._wrong(f"written: {error}; write one such as '1.234,5'", "written") from None

    def _check_levels(self) -> None:
        if not self.has_levels:
            if self.levels or self.ordered:
                reason = f"levels and ordered belong to a category, not to kind {self.kind!r}"
                raise self._wrong(reason, "levels" if self.levels else "ordered")
            return
        texts = [text_of(level) for level in self.levels]
        if not texts:
            reason = "a category needs its levels, for example levels = ['yes', 'no']"
            raise self._wrong(reason, "kind")
        if self.kind == "boolean" and (len(texts) != 2 or texts == ["True", "False"]):
            reason = f"a boolean has two levels, false first; got {list(self.levels)}"
            raise self._wrong(reason, "levels")
        if len(set(texts)) != len(texts):
            twice = next(t for t in texts if texts.count(t) > 1)
            raise self._wrong(f"level {twice!r} is listed twice", "levels")
        too_long = next((t for t in texts if len(t) > LONGEST_TEXT), None)
        if too_long is not None:
            reason = f"level {too_long[:40]!r}… is longer than {LONGEST_TEXT} characters"
            raise self._wrong(reason, "levels")
        object.__setattr__(self, "_index", {t: i for i, t in enumerate(texts)})
        folded = Counter(t.casefold() for t in texts)
        alone = {t.casefold(): t for t in texts if folded[t.casefold()] == 1}
        object.__setattr__(self, "_folded", alone)

    @property
    def is_numeric(self) -> bool:
        """Whether the feature holds numbers (and counts in the numeric half of the distance)."""
        return self.kind in NUMERIC

    @property
    def has_levels(self) -> bool:
        """Whether the feature has a list of levels: a category or a boolean."""
        return self.kind in ("category", "boolean")

    @property
    def is_opaque(self) -> bool:
        """Whether the feature is carried along as it is, and never proposed."""
        return self.kind == "opaque"

    @property
    def display_name(self) -> str:
        """The name that people read: the label, or the name with spaces for underscores."""
        return self.label or self.name.replace("_", " ").strip() or self.name

    @property
    def level_texts(self) -> tuple[str, ...]:
        """The levels as rows hold them."""
        return tuple(self._index)

    def values(self) -> tuple[Value, ...]:
        """All values the feature can take, for a category or a boolean."""
        return (False, True) if self.kind == "boolean" else self.level_texts

    @property
    def resolution(self) -> float | None:
        """The least step between two values: 1 for integers, else what ``decimals`` says."""
        if self.kind == "integer":
            return 1.0
        return None if self.decimals is None else 10.0**-self.decimals

    def fits(self, value: Value) -> bool:
        """Whether a typed value is one this feature can have (missing is not).

        >>> term = Feature("term", "integer")
        >>> term.fits(3), term.fits(3.5), term.fits(True), term.fits("3")
        (True, False, False, False)
        """
        if self.is_opaque:
            return value is not None
        if self.kind == "category":
            return isinstance(value, str) and value in self._index
        if self.kind == "boolean" or isinstance(value, bool):
            return self.kind == "boolean" and isinstance(value, bool)
        if not isinstance(value, (int, float)) or not abs(value) <= LARGEST:
            return False
        if self.kind == "integer":
            return isinstance(value, int)
        return self.decimals is None or round(value, self.decimals) == value

    def parse(self, raw: object) -> Value:
        """Read one cell exactly, or raise `RowError` naming the column.

        >>> Feature("term", "integer").parse("12.0")
        12
        >>> Feature("job", "category", levels=("clerk", "cook")).parse(" cook ")
        'cook'
        """
        if self.is_missing(raw):
            if not self.is_opaque:
                self._refuse_missing("missing")
            return None
        if self.is_opaque:
            return self._plain(raw)
        if self.is_numeric:
            number = self._finite(raw)
            if self.kind == "integer" and not number.is_integer():
                raise RowError(f"{shown(raw)} is not a whole number", column=self.name)
            return number if self.kind == "number" else int(number)
        if self.kind == "boolean" and isinstance(raw, (bool, np.bool_)):
            return bool(raw)
        text = text_of(raw)
        if self.kind == "category":
            text = self.synonyms.get(text, text)
        # A column of integer levels with gaps reaches us as floats: "1.0" means 1.
        if text not in self._index and _NUMBER.fullmatch(text):
            text = text_of(float(text))
        if self.kind == "boolean":
            text = self._folded.get(text.casefold(), text)
        if text in self._index:
            return text if self.kind == "category" else bool(self._index[text])
        # Only where the card names no spellings: "0" may mean anything to the levels 1 and 2.
        folded, unnamed = text.casefold(), self.kind == "boolean" and self.levels == (False, True)
        if unnamed and folded in _TRUE_TOKENS | _FALSE_TOKENS:
            return folded in _TRUE_TOKENS
        if self.unseen == "refuse":
            raise RowError(unknown("value", text[:60], self.level_texts), column=self.name)
        self._refuse_missing(f"the unknown level {text[:60]!r}")
        return None

    def coerce(self, raw: object) -> Value:
        """Read a *proposed* value: like `parse`, but rounds to the type and ignores letter case.

        Proposals are rounded before key, rules and oracle see them.

        >>> Feature("term", "integer").coerce(11.6)
        12
        >>> Feature("job", "category", levels=("clerk", "cook")).coerce("COOK")
        'cook'
        """
        if self.is_numeric and not self.is_missing(raw):
            number = self._finite(raw)
            if self.kind == "integer":
                return round(number)
            return number if self.decimals is None else round(number, self.decimals) + 0.0
        if self.kind == "category" and isinstance(raw, str) and text_of(raw) not in self._index:
            raw = self._folded.get(text_of(raw).casefold(), raw)
        return self.parse(raw)

    def format(self, value: Value) -> str:
        """Write a value as a person reads it; `parse` reads it back to the same value."""
        if value is None:
            return next((t for t in self.missing_tokens if t not in self._index), "")
        if self.kind == "boolean":
            return text_of(self.levels[int(bool(value))])
        if isinstance(value, (str, bool)) or self.is_opaque:
            return str(value)
        text = format_number(float(value))
        # To a form that parts thousands by a point, 1.234 is a thousand and more: 1.2340 is not.
        other = self._form is not None and self._form.read(text) not in (None, float(value))
        return f"{text}0" if other else text

    def raw(self, value: Value) -> Scalar | None:
        """Return the value as the user's table holds it."""
        if self._form is not None and isinstance(value, (int, float)):
            return self._form.write(value)
        if value is None or not self.has_levels:
            return value
        return self.levels[int(self.encode(value))]

    def encode(self, value: Value) -> float:
        """Return the value as a number: itself, its level's position, 0/1, or NaN for missing.

        An opaque value is always 0: whatever compares encoded rows finds no difference.
        """
        if self.is_opaque:
            return 0.0
        if value is None:
            return math.nan
        if isinstance(value, str):
            return float(self._index[value])
        return float(value)

    def decode(self, numbers: NDArray[np.float64]) -> list[Value]:
        """Return the typed values nearest to encoded ones (see `Schema.decode`)."""
        if self.is_opaque:
            return [None] * len(numbers)
        missing = np.isnan(numbers)
        filled = np.clip(np.where(missing, 0.0, numbers), -LARGEST, LARGEST)
        found: list[Value]
        if self.kind == "integer":
            found = [int(number) for number in np.rint(filled).tolist()]
        elif self.kind == "number":
            digits = self.decimals
            found = [(n if digits is None else round(n, digits)) + 0.0 for n in filled.tolist()]
        else:
            values = self.values()
            places = np.clip(np.rint(filled), 0, len(values) - 1).astype(np.intp)
            found = [values[place] for place in places.tolist()]
        if missing.any():
            found = [None if gone else v for v, gone in zip(found, missing.tolist(), strict=True)]
        return found

    def is_missing(self, raw: object) -> bool:
        """Whether a raw cell stands for a missing value."""
        if raw is None or (isinstance(raw, (float, np.floating)) and math.isnan(raw)):
            return True
        # pandas' own NA and NaT are neither None nor floats, and refuse to be compared.
        if type(raw).__name__ in ("NAType", "NaTType"):
            return True
        if not isinstance(raw, str):
            return False
        return (text := raw.strip()) in self.missing_tokens and text not in self._index

    def _refuse_missing(self, what: str) -> None:
        if self.missing == "refuse":
            raise RowError(
                f"the value is {what}, and the feature's policy is missing = 'refuse' "
                "(set it to 'keep' or 'fill' in the card)",
                column=self.name,
            )

    def _plain(self, raw: object) -> Value:
        """Return an opaque cell as a plain value."""
        plain: object = raw.item() if isinstance(raw, np.generic) else raw
        if self.holds == "number":
            if isinstance(plain, str) and (whole := re.fullmatch(r"[+-]?\d{1,300}", plain.strip())):
                return int(whole[0])
            if isinstance(plain, str) and _NUMBER.fullmatch(plain.strip()):
                plain = float(plain)
        if isinstance(plain, (date, time)):
            plain = plain.isoformat()
        if self.holds == "date":
            try:
                datetime.fromisoformat(str(plain))
            except ValueError:
                reason = f"{shown(raw)} is not a date such as 2024-12-31"
                raise RowError(reason, column=self.name) from None
        if isinstance(plain, (str, bool, int)):
            return plain
        if isinstance(plain, float) and math.isfinite(plain):
            return plain + 0.0
        return str(plain)

    def _finite(self, raw: object) -> float:
        if isinstance(raw, (str, Decimal)):
            text = str(raw).strip()
            found = None if self._form is None else self._form.read(text)
            if found is None and not _NUMBER.fullmatch(text):
                raise RowError(f"{shown(raw)} is not a number{self._as_in()}", column=self.name)
            number = float(text) if found is None else found
        elif isinstance(raw, _NUMBERS) and not isinstance(raw, (bool, np.timedelta64)):
            # An integer of thousands of digits does not fit a float.
            number = float(raw) if -LARGEST <= raw <= LARGEST else math.inf
        else:
            raise RowError(f"{shown(raw)} is not a number{self._as_in()}", column=self.name)
        if not abs(number) <= LARGEST:
            reason = f"{shown(raw)} is not a finite number of at most ±1e15"
            raise RowError(reason, column=self.name)
        return number + 0.0  # -0.0 becomes 0.0

    def _as_in(self) -> str:
        return (
            f" such as {self.written!r} or {self._form.read(self.written):g}" if self._form else ""
        )


@dataclass(frozen=True)
class Schema:
    """The features of a table, in order.

    It reads rows of the table into tuples of typed values.

    >>> import waysout
    >>> income = waysout.Feature("income", "integer", unit="euros a year")
    >>> schema = waysout.Schema((income, waysout.Feature("married", "boolean")))
    >>> schema.parse({"married": "yes", "income": "48000.0"})
    (48000, True)
    """

    features: tuple[Feature, ...]

    def __post_init__(self) -> None:
        """Refuse an empty schema and names that occur twice."""
        if not self.features:
            raise SchemaError("a schema needs at least one feature")
        names = [f.name for f in self.features]
        if len(set(names)) != len(names):
            twice = next(n for n in names if names.count(n) > 1)
            raise SchemaError(f"feature {twice!r} is described twice")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The feature names, in order."""
        return tuple(f.name for f in self.features)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.features)

    def __iter__(self) -> Iterator[Feature]:
        return iter(self.features)

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def __getitem__(self, name: str) -> Feature:
        return self.features[self.index(name)]

    def index(self, name: str) -> int:
        """Return the position of a feature, or say which names there are."""
        position = self._positions.get(name)
        if position is None:
            position = self._positions.get(unicodedata.normalize("NFC", name).strip())
        if position is None:
            raise SchemaError(unknown("feature", name, self.names))
        return position

    def parse(self, raw: Mapping[str, Any]) -> Row:
        """Read a row given as a mapping; other columns are ignored, missing ones are an error."""
        return tuple(f.parse(raw[f.name]) if f.name in raw else self._absent(f, raw) for f in self)

    def _absent(self, feature: Feature, raw: Mapping[str, Any]) -> Value:
        # A column under another Unicode normal form is the same column.
        for name, value in raw.items():
            if isinstance(name, str) and unicodedata.normalize("NFC", name).strip() == feature.name:
                return feature.parse(value)
        if feature.is_opaque:
            return None  # nobody needs a case number to ask for a way
        others = [name for name in raw if isinstance(name, str) and name not in self]
        near = nearest(feature.name, others)
        told = "" if near is None else f" (is it {near!r}?)"
        has = ", ".join(map(repr, list(raw)[:20])) or "none"
        raise RowError(f"the row has no such column{told}; it has {has}", column=feature.name)

    def parse_many(self, raws: Iterable[Mapping[str, Any]]) -> list[Row]:
        """Read many rows; an error names the zero-based row and the column."""
        rows = []
        for i, raw in enumerate(raws):
            try:
                rows.append(self.parse(raw))
            except RowError as error:
                raise error.at(i) from None
        return rows

    def format(self, row: Row) -> dict[str, str]:
        """Write a row as text; `parse` reads it back to the same row."""
        return {f.name: f.format(v) for f, v in zip(self.features, row, strict=True)}

    def raw(self, row: Row) -> dict[str, Scalar | None]:
        """Return the row as the user's table holds it: its spellings, its way to write numbers."""
        return {f.name: f.raw(v) for f, v in zip(self.features, row, strict=True)}

    def as_dict(self, row: Row) -> dict[str, Value]:
        """Return the row as a mapping from feature name to typed value."""
        return dict(zip(self.names, row, strict=True))

    def replace(self, row: Row, changes: Mapping[str, Value]) -> Row:
        """Return the row with some typed values replaced."""
        values = list(row)
        for name, value in changes.items():
            values[self.index(name)] = value
        return tuple(values)

    def changed(self, before: Row, after: Row) -> tuple[str, ...]:
        """Return the names of the features in which two rows differ."""
        return tuple(n for n, a, b in zip(self.names, before, after, strict=True) if a != b)

    def encode(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        """Return the rows as a matrix of numbers (see `Feature.encode`)."""
        out = np.empty((len(rows), len(self)), dtype=np.float64)
        for j, feature in enumerate(self.features):
            out[:, j] = [feature.encode(row[j]) for row in rows]
        return out

    def decode(self, matrix: NDArray[np.float64]) -> list[Row]:
        """Return the typed rows nearest to encoded ones: the way back from `encode`.

        Numbers are rounded to their type, positions to the next level there is; NaN is missing, and
        so is what is opaque, which encoded rows do not hold.

        >>> schema = Schema((Feature("term", "integer"), Feature("job", "category", ("a", "b"))))
        >>> schema.decode(np.array([[11.6, 7.0], [3.0, np.nan]]))
        [(12, 'b'), (3, None)]
        """
        columns = [f.decode(matrix[:, j]) for j, f in enumerate(self.features)]
        return list(zip(*columns, strict=True))


@dataclass(frozen=True, slots=True)
class Edit:
    """One feature set to one new value, and why its proposer thought so (text, never obeyed)."""

    feature: str
    value: Value
    reason: str = ""
