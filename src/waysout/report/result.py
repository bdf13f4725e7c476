"""The result as users get it: data that can show itself."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Self

from waysout.domain.pick import pick
from waysout.domain.result import Option
from waysout.domain.result import ResultData as Data
from waysout.domain.schema import Value
from waysout.report.text import lines, spent
from waysout.report.words import counted, reason_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SCORES = ("probability", "proximity", "sparsity", "reasons", "stable")
# Spreadsheets take a cell that begins so for a formula; some also in the full-width forms.
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


class Result(Data):
    """All that a search has to tell about one query.

    ``print(result)`` tells it in words; the methods give it as a short list, a frame, a file.
    """

    @classmethod
    def of(cls, data: Data) -> Self:
        """Return a plain result as one that can show itself."""
        return cls(**{f.name: getattr(data, f.name) for f in fields(data)})

    def pick(self, n: int = 5) -> tuple[Option, ...]:
        """Return the n most different good options, best first (see `waysout.domain.pick`)."""
        return pick(self, n)

    def to_frame(self, *, all_features: bool = False) -> pd.DataFrame:
        """Return one row for each option: the new values and the scores.

        Only features that some option changes are columns, and only changed cells are filled; the
        others are missing. ``all_features`` gives the whole rows instead, ready for a model.
        """
        import pandas as pd

        names, rows = self._table(all_features)
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        return pd.DataFrame(
            {name: _series(column) for name, column in zip(names, columns, strict=True)}
        )

    def to_csv(self, path: str | Path | None = None, *, all_features: bool = False) -> str | None:
        """Write the table of `to_frame` as CSV (UTF-8), or return it as text.

        Text that a spreadsheet would run as a formula gets an apostrophe in front. Numbers stay
        as they are.
        """
        names, rows = self._table(all_features)
        return _handed_over(_csv(names, rows), path)

    def to_html(
        self, path: str | Path | None = None, *, n: int = 5, when: date | None = None
    ) -> str | None:
        """Write one self-contained page, the n options to read first on top, or return it.

        ``when`` is the day of the search, for the page to name.
        """
        from waysout.report.html import page

        return _handed_over(page(self, n, when=when), path)

    def to_letter(
        self,
        path: str | Path | None = None,
        *,
        html: bool | None = None,
        n: int = 3,
        when: date | None = None,
    ) -> str | None:
        """Write a letter to the person concerned, with at most n options, or return it.

        It is plain text, or a page to print: as ``html`` says, else as the path ends. ``when`` is
        the day of the search, for the letter to name.
        """
        from waysout.report.letter import letter_page, letter_text

        if html is None:
            html = path is not None and Path(path).suffix.lower() in (".html", ".htm")
        letter = letter_page if html else letter_text
        return _handed_over(letter(self, n=n, when=when), path)

    def plot(self, x: str = "proximity", y: str = "sparsity", ax: Axes | None = None) -> Axes:
        """Draw the options by two scores (proximity, sparsity, probability), with matplotlib.

        Returns the axes: those given, or new ones, which a notebook shows (see
        `waysout.report.plot`).
        """
        from waysout.report.plot import plot

        return plot(self, x, y, ax)

    def __str__(self) -> str:
        return lines(self)

    def __repr__(self) -> str:
        found = counted(len(self.options), "option")
        return f"<Result {self.outcome.kind}: {found}; {spent(self)[7:-1]}>"

    def _repr_html_(self) -> str:
        from waysout.report.notebook import excerpt

        return excerpt(self)

    def _table(self, all_features: bool) -> tuple[list[str], list[list[Value]]]:
        """Return the columns' names, each once, and a row of values for each option."""
        changed = {name for option in self.options for name in option.changes}
        features = [name for name in self.query if all_features or name in changed]
        rows = [
            [option.row[name] if all_features or name in option.changes else None
             for name in features] + _scores(option)
            for option in self.options
        ]  # fmt: skip
        return features + [_unlike(features, score) for score in SCORES], rows


def to_csv(results: Sequence[Result]) -> str:
    """Return the options of several queries as one table, with the query each belongs to."""
    tables = [(result.index, *result._table(all_features=False)) for result in results]
    names = list(dict.fromkeys(name for _, columns, _ in tables for name in columns))
    query = _unlike(names, "query")
    rows = [
        [index, *(dict(zip(columns, row, strict=True)).get(name) for name in names)]
        for index, columns, table in tables
        for row in table
    ]
    return _csv([query, *names], rows)


def _csv(names: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out)  # its line ends, CR LF, are what makes it quote either in a cell
    writer.writerow([defused(name) for name in names])
    writer.writerows([defused(cell) for cell in row] for row in rows)
    return out.getvalue()


def _scores(option: Option) -> list[Value]:
    reasons = reason_text(option.reasons)
    return [option.probability, option.proximity, option.sparsity, reasons, option.stable]


def _unlike(taken: Iterable[str], name: str) -> str:
    """Return the name, prefixed where a feature has the same one."""
    while name in taken:
        name = f"option_{name}"
    return name


def _series(values: Sequence[Value]) -> pd.Series:
    """Return a column whose whole numbers stay whole and whose gaps stay gaps."""
    import pandas as pd

    kinds = {type(v) for v in values} - {type(None)}
    if None not in values or not kinds <= {bool, int, float}:
        return pd.Series(values)
    whole = "boolean" if kinds == {bool} else "Int64"
    return pd.Series(values, dtype="Float64" if float in kinds else whole)


def defused(cell: Value) -> Value:
    """Return a cell of a CSV file that no spreadsheet runs as a formula."""
    if not isinstance(cell, str) or _NUMBER.fullmatch(cell):
        return cell
    # A formula does not hide behind what a spreadsheet may drop: blanks, controls, marks.
    seen = next((c for c in cell if unicodedata.category(c)[0] not in "CZ"), "")
    begins = cell.lstrip(" ").startswith(_FORMULA) or seen in _FORMULA
    return f"'{cell}" if begins else cell


def _handed_over(text: str, path: str | Path | None) -> str | None:
    if path is None:
        return text
    # Half a character (a lone surrogate) has no UTF-8, and is no reason to write nothing.
    Path(path).write_text(text, encoding="utf-8", errors="replace", newline="")
    return None
