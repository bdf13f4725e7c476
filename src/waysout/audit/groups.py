"""Who belongs to which group: by value, by quartiles of numbers, and by several columns at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from waysout.audit.people import Codes, Texts
from waysout.domain.schema import LARGEST, MISSING_TOKENS, format_number
from waysout.report.words import grouped

MOST_GROUPS = 20
MOST_NUMBERS = 12
"""More distinct numbers than these are grouped by quartiles."""
_MOSTLY = 0.95  # of the cells; a column of numbers may hold a few that are none
MISSING, NO_NUMBER = "(missing)", "(not a number)"


@dataclass(frozen=True)
class Groups:
    """The groups by name, each person's place among them, and what to know of how they were made.

    ``edges`` are the quartiles that part a column of numbers, by column. Where there are too many
    groups, the smallest, so many as ``merged``, are one: the last.
    """

    names: tuple[tuple[str, ...], ...]
    codes: Codes
    edges: dict[str, tuple[float, ...]]
    merged: int = 0


def everybody(people: int) -> Groups:
    """Return one group of all."""
    return Groups((("everybody",),), np.zeros(people, dtype=np.int32), {})


def group(columns: dict[str, Texts], rejected: NDArray[np.bool_]) -> Groups:
    """Return groups by one column, or by the values of several that go together.

    The largest are those with most people who were rejected.
    """
    parted = [_by_column(name, column, rejected) for name, column in columns.items()]
    edges = {name: cut for one in parted for name, cut in one.edges.items()}
    if len(parted) == 1:
        return parted[0]
    sizes = [len(one.names) for one in parted]
    joint = np.ravel_multi_index([one.codes for one in parted], sizes)
    there, codes = np.unique(joint, return_inverse=True)
    places = zip(*np.unravel_index(there, sizes), strict=True)
    names = [
        tuple(one.names[place][0] for one, place in zip(parted, at, strict=True)) for at in places
    ]
    return _largest(names, codes.astype(np.int32), rejected, edges)


def _by_column(name: str, column: Texts, rejected: NDArray[np.bool_]) -> Groups:
    numbers = _numbers(column)
    if numbers is None:
        return _by_value(column, rejected)
    distinct = np.unique(numbers[~np.isnan(numbers)])
    if len(distinct) > MOST_NUMBERS:
        return _by_quartile(name, column, numbers, rejected)
    return _by_number(column, numbers, distinct)


def _numbers(column: Texts) -> NDArray[np.float64] | None:
    """Return the numbers that the texts are, NaN for those that are none; None for a text column.

    They stand by the place of the text.
    """
    counts = np.bincount(column.codes, minlength=len(column.texts))
    missing = np.array([_is_missing(text) for text in column.texts], dtype=bool)
    numbers = np.array([_number(text) for text in column.texts], dtype=np.float64)
    there = counts[~missing].sum()
    read = counts[~np.isnan(numbers)].sum()
    return numbers if there and read >= _MOSTLY * there else None


def _is_missing(text: str | None) -> bool:
    return text is None or text.strip() in MISSING_TOKENS


def _number(text: str | None) -> float:
    try:
        number = float("nan") if _is_missing(text) else float(str(text))
    except ValueError:
        return float("nan")
    return number if abs(number) <= LARGEST else float("nan")


def _by_value(column: Texts, rejected: NDArray[np.bool_]) -> Groups:
    """Group by text as it is written, but for blanks around it."""
    texts = [MISSING if _is_missing(text) else str(text).strip() for text in column.texts]
    names = list(dict.fromkeys(texts))
    places = {name: i for i, name in enumerate(names)}
    codes = np.array([places[text] for text in texts], dtype=np.int32)[column.codes]
    return _largest([(name,) for name in names], codes, rejected, {})


def _by_number(
    column: Texts, numbers: NDArray[np.float64], distinct: NDArray[np.float64]
) -> Groups:
    """Group by number, so that 1 and 1.0 are one group, in the order of numbers."""
    names = [format_number(number) for number in distinct]
    return _with_gaps(names, np.searchsorted(distinct, numbers), numbers, column, {})


def _by_quartile(
    name: str, column: Texts, numbers: NDArray[np.float64], rejected: NDArray[np.bool_]
) -> Groups:
    """Group by the quartiles of those rejected; equal ones make fewer groups."""
    everyone = numbers[column.codes]
    known = everyone[rejected & ~np.isnan(everyone)]
    if not len(known):
        known = everyone[~np.isnan(everyone)]
    # An observed number, so that no edge shows more digits than the data has.
    quartiles = np.quantile(known, (0.25, 0.5, 0.75), method="inverted_cdf")
    edges = np.unique(quartiles[quartiles < known.max()])
    places = np.searchsorted(edges, numbers, side="left")
    cut = tuple(edges.tolist())
    return _with_gaps(_ranges(cut), places, numbers, column, {name: cut})


def _ranges(edges: Sequence[float]) -> list[str]:
    """Name what lies between edges.

    >>> _ranges([25, 40.5])
    ['up to 25', 'over 25 to 40.5', 'over 40.5']
    """
    told = grouped(*edges)
    between = [f"over {low} to {high}" for low, high in pairwise(told)]
    return [f"up to {told[0]}", *between, f"over {told[-1]}"] if told else ["any number"]


def _with_gaps(
    names: list[str],
    places: NDArray[np.intp],
    numbers: NDArray[np.float64],
    column: Texts,
    edges: dict[str, tuple[float, ...]],
) -> Groups:
    """Return groups of numbers; cells without one have groups of their own, where there are any."""
    by_text = places.astype(np.int32)
    for code in np.flatnonzero(np.isnan(numbers)):
        by_text[code] = len(names) + (not _is_missing(column.texts[code]))
    there, codes = np.unique(by_text[column.codes], return_inverse=True)
    all_names = [*names, MISSING, NO_NUMBER]
    return Groups(tuple((all_names[i],) for i in there), codes.astype(np.int32), edges)


def _largest(
    names: list[tuple[str, ...]],
    codes: Codes,
    rejected: NDArray[np.bool_],
    edges: dict[str, tuple[float, ...]],
) -> Groups:
    """Return the largest groups in order of size, of equals the one met first, the rest as one."""
    sizes = np.bincount(codes[rejected], minlength=len(names))
    all_sizes = np.bincount(codes, minlength=len(names))
    order = np.lexsort((-all_sizes, -sizes)).tolist()
    kept, others = order[:MOST_GROUPS], order[MOST_GROUPS:]
    if len(others) == 1:  # it needs no more room than what would be said of it
        kept, others = order, []
    place = np.full(len(names), len(kept), dtype=np.int32)
    place[kept] = np.arange(len(kept))
    told = [names[i] for i in kept] + ([(f"({len(others):,} others)",)] if others else [])
    return Groups(tuple(told), place[codes], edges, len(others))
