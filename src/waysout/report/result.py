"""The result as users get it: a subclass of the domain's data that can show itself.

The subclass lives here so that imports still go down only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from waysout.domain.pick import easiest_first, pick
from waysout.domain.result import Option, Way
from waysout.domain.result import ResultData as Data
from waysout.domain.schema import Value
from waysout.prompts.reasons import kept_reasons
from waysout.report.text import headline, lines, spent
from waysout.report.words import reason_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Option = TypeVar("_Option", bound=Option)
SCORES = ("probability", "proximity", "sparsity")
OF_WAYS = ("cost", "irreducible", "tight", "holds")
REMARKS = ("reasons", "stable")


class Result(Data):
    """What a search found for one query.

    ``print(result)`` describes it; the methods return it as a short list, a frame or a file.

    >>> import waysout
    >>> data = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, data.card)
    >>> problem = waysout.Problem.from_card(data.card, oracle, training=data.rows)
    >>> result = waysout.find(problem, data.rows[828], oracle_rows=40)
    >>> best = result.pick(1)[0]
    >>> list(best.changes), best.probability >= 0.5
    (['credit_score'], True)
    >>> waysout.Result.from_json(result.to_json()) == result
    True
    """

    @classmethod
    def of(cls, data: Data) -> Self:
        """Return a plain result, which may be on file, as one that can show itself.

        What earlier releases took for reasons is left out (see `waysout.prompts.reasons`).
        """
        llm = str(data.settings.get("llm") or "")
        lists = {name: [_checked(option, llm) for option in getattr(data, name)]
                 for name in ("options", "near_misses", "ways")}  # fmt: skip
        found = {f.name: getattr(data, f.name) for f in fields(data)}
        return cls(**found | {name: tuple(options) for name, options in lists.items()})

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Self:
        """Read what `as_dict` wrote."""
        return cls.of(Data.from_dict(table))

    def pick(self, n: int = 5) -> tuple[Option, ...]:
        """Return n good and different ways, best first (see `waysout.domain.pick`)."""
        return pick(self, n)

    def with_like(self, frame: Any) -> Self:
        """Return the result with a frame of pandas or polars that `to_frame` is to be like.

        Only the kind of the frame and the types of its columns are used, and kept.
        """
        return replace(self, like=frame[:0])

    def to_frame(self, *, all_options: bool = False, all_features: bool = False) -> Any:
        """Return one row for each way, best first: the new values and what is known of it.

        Only features that some way changes are columns, and only changed cells are filled; the
        others are missing. ``all_features`` gives the whole rows instead, ready for a model: the
        values are those of the user's table in its own spelling and type.
        ``all_options`` gives everything that was approved, needed or not, the easiest first: near
        to the present values and with few changes, unstable ones last. So do results of earlier
        releases, which have no ways.

        The frame is one of pandas; where the search was given a frame (see `with_like`), one of
        its kind, in which features have the types of its columns as far as their values fit.
        """
        from waysout.report.frames import frame_of

        names, rows = self._table(all_options, all_features)
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        return frame_of(dict(zip(names, columns, strict=True)), self.like)

    def to_csv(
        self,
        path: str | Path | None = None,
        *,
        all_options: bool = False,
        all_features: bool = False,
        present: bool = False,
    ) -> str | None:
        """Write the table of `to_frame` as CSV (UTF-8), or return it as text.

        ``present`` adds the present values, ``NAME (now)`` beside each feature that some way
        changes, and numbers the ways in a first column ``way``.

        Text that a spreadsheet would run as a formula (it begins with ``=``, ``+``, ``-`` or ``@``)
        gets an apostrophe in front: that is the one spelling which is not the table's. Numbers stay
        as they are, also those that the table writes in its own way, such as ``-12,5 %``.
        """
        from waysout.report.tables import csv_text

        names, rows = self._table(all_options, all_features)
        if present:
            names, rows = self._with_present(names, rows)
        return _write_or_return(csv_text(names, rows), path)

    def _with_present(
        self, names: list[str], rows: list[list[Value]]
    ) -> tuple[list[str], list[list[Value]]]:
        """Return a table with the ways numbered and the present value beside each that changes."""
        changed = {i for i, name in enumerate(names) if name in self.query and any(
            row[i] is not None and row[i] != self.query[name] for row in rows)}  # fmt: skip
        wider = [_unlike(names, "way")]
        for i, name in enumerate(names):
            wider += [name, *([_unlike(names, f"{name} (now)")] if i in changed else [])]
        filled: list[list[Value]] = []
        for number, row in enumerate(rows, 1):
            filled.append([number])
            for i, (name, cell) in enumerate(zip(names, row, strict=True)):
                filled[-1] += [cell, *([self.query[name]] if i in changed else [])]
        return wider, filled

    def to_html(
        self,
        path: str | Path | None = None,
        *,
        n: int = 5,
        when: date | None = None,
        ways: Sequence[Option] | None = None,
    ) -> str | None:
        """Write one self-contained page, the n ways to read first on top, or return it.

        ``when`` is the day of the search, for the page to name. ``ways`` are shown instead of what
        `pick` chooses; one that is no `Way` is marked as put together by hand.
        """
        from waysout.report.html import page

        return _write_or_return(page(self, n, when=when, ways=ways), path)

    def to_letter(
        self,
        path: str | Path | None = None,
        *,
        html: bool | None = None,
        n: int = 3,
        when: date | None = None,
        ways: Sequence[Option] | None = None,
    ) -> str | None:
        """Write a letter to the person concerned, with at most n ways, or return it.

        It is plain text, or a page to print: as ``html`` says, or else as the path ends. ``when``
        is the day of the search, for the letter to name; ``ways`` are told instead of what `pick`
        chooses.
        """
        from waysout.report.letter import letter_page, letter_text

        if html is None:
            html = path is not None and Path(path).suffix.lower() in (".html", ".htm")
        letter = letter_page if html else letter_text
        return _write_or_return(letter(self, n=n, when=when, ways=ways), path)

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
        return f"<Result {self.outcome.kind}: {headline(self)}; {spent(self)[7:-1]}>"

    def _repr_html_(self) -> str:
        from waysout.report.html import excerpt

        return excerpt(self)

    def _table(
        self, all_options: bool = False, all_features: bool = False
    ) -> tuple[list[str], list[list[Value]]]:
        """Return the columns' names, each once, and a row of values for each way, or option."""
        ways = not all_options and bool(self.ways)
        shown = self.pick(len(self.ways)) if ways else easiest_first(self.options)
        changed = {name for option in shown for name in option.changes}
        features = [name for name in self.query if all_features or name in changed]
        rows = [
            [
                *(o.row[f] if all_features or f in o.changes else None for f in features),
                *(getattr(o, score) for score in SCORES),
                *(getattr(o, known) for known in OF_WAYS if isinstance(o, Way)),
                reason_text(o.reasons), o.stable,
            ]
            for o in shown
        ]  # fmt: skip
        names = (*SCORES, *(OF_WAYS if ways else ()), *REMARKS)
        return features + [_unlike(features, name) for name in names], rows


def _checked(option: _Option, llm: str) -> _Option:
    """Return an option with those of its reasons that are reasons."""
    if isinstance(option, Way):
        option = replace(
            option,
            variants=tuple(_checked(v, llm) for v in option.variants),
            safer=tuple(_checked(s, llm) for s in option.safer),
        )
    return replace(option, reasons=kept_reasons(option.reasons, llm))


def to_csv(results: Sequence[Result], *, all_options: bool = False) -> str:
    """Return the ways of several queries as one table, with the query each belongs to.

    ``all_options`` gives everything that was approved.
    """
    from waysout.report.tables import csv_text

    return csv_text(*one_table(results, all_options))


def one_table(
    results: Sequence[Result], all_options: bool = False, all_features: bool = False
) -> tuple[list[str], list[list[Value]]]:
    """Return the names of the columns, the query's first, and a row for each way of each query."""
    tables = [(result.index, *result._table(all_options, all_features)) for result in results]
    names = list(dict.fromkeys(name for _, columns, _ in tables for name in columns))
    rows = [
        [index, *(dict(zip(columns, row, strict=True)).get(name) for name in names)]
        for index, columns, table in tables
        for row in table
    ]
    return [_unlike(names, "query"), *names], rows


def _unlike(taken: Iterable[str], name: str) -> str:
    """Return the name, prefixed where a feature has the same one."""
    while name in taken:
        name = f"option_{name}"
    return name


def _write_or_return(text: str, path: str | Path | None) -> str | None:
    if path is None:
        return text
    # A lone surrogate has no UTF-8, and is no reason to write nothing.
    Path(path).write_text(text, encoding="utf-8", errors="replace", newline="")
    return None
