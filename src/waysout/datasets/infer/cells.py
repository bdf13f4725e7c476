"""What the cells of a column say: which are missing, which are numbers, which are other text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from waysout.datasets.table import Table
from waysout.domain.card import label_text
from waysout.domain.distance import scale_of
from waysout.domain.key import rounded
from waysout.domain.schema import LARGEST, Feature, Scalar, text_of
from waysout.errors import RowError, TableError, unknown

_PROBE = Feature("probe", "number", missing="keep")
_LEADING_ZERO = re.compile(r"[+-]?0\d")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+")


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
    def all_distinct(self) -> bool:
        """Whether no two rows share a value, and none lacks one."""
        return len(self.numbers) + len(self.texts) == self.rows

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


def sort_cells(name: str, cells: Sequence[object]) -> ColumnCells:
    """Sort the cells of a column."""
    found = ColumnCells(name, len(cells))
    for row, (cell, count) in _counted(cells).values():
        if isinstance(cell, str):
            found.spelled.setdefault(text_of(cell), {})[cell] = count
        try:
            number = _PROBE.parse(cell)
        except RowError:
            text = text_of(cell)
            found.texts[text] = found.texts.get(text, 0) + count
            found.only_text &= isinstance(cell, str) and cell.strip() == text
            if found.too_large is None and _is_too_large(cell):
                found.too_large = (row, text)
            continue
        if number is None:
            token = cell.strip() if isinstance(cell, str) else ""
            found.missing[token] = found.missing.get(token, 0) + count
            continue
        text = text_of(cell)
        found.numbers[text] = (float(number), found.numbers.get(text, (0.0, 0))[1] + count)
    return found


def _counted(cells: Sequence[object]) -> dict[object, tuple[int, tuple[object, int]]]:
    """Count equal cells of one type, with the row of the first: 1, 1.0 and True stay apart."""
    seen: dict[object, tuple[int, tuple[object, int]]] = {}
    for row, cell in enumerate(cells):
        plain = cell if isinstance(cell, (str, int, float, type(None))) else str(cell)
        key = (type(cell), plain)
        first, (_, count) = seen.get(key, (row, (cell, 0)))
        seen[key] = (first, (cell, count + 1))
    return seen


def _is_too_large(cell: object) -> bool:
    if isinstance(cell, bool):
        return False
    try:
        return abs(float(cell)) > LARGEST  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return isinstance(cell, int)


def positive_label(table: Table, column: str, positive: object) -> Scalar:
    """Return the positive value as the table spells it."""
    labels: dict[str, object] = {}
    for record in table.records:
        raw = record.get(column)
        empty = text_of(raw) == "" if isinstance(raw, str) else _is_missing(raw)
        if not empty:
            labels.setdefault(label_text(raw), raw)
    found = [raw for raw in labels.values() if _same_label(raw, positive)]
    where = f"{table.source}, column {column!r}"
    if not found:
        raise TableError(f"{where}: {unknown('value', positive, labels)}")
    if len(labels) < 2:
        raise TableError(f"{where} is always {text_of(found[0])!r}: no row has been refused")
    return _as_scalar(found[0])


def _is_missing(raw: object) -> bool:
    try:
        return _PROBE.parse(raw) is None
    except RowError:
        return False


def _same_label(raw: object, positive: object) -> bool:
    if label_text(raw) == label_text(positive):
        return True
    spellings = {True: ("true", "1"), False: ("false", "0")}
    return isinstance(raw, bool) and label_text(positive).casefold() in spellings[raw]


def _as_scalar(raw: object) -> Scalar:
    if isinstance(raw, bool):
        return raw
    text = text_of(raw)
    return int(text) if re.fullmatch(r"0|-?[1-9]\d{0,14}", text, re.ASCII) else text
