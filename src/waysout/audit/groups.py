"""The groups of an audit: by value, by quartiles of numbers, and by several columns at once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from waysout.audit.people import Mask
from waysout.domain.schema import LARGEST, MISSING_TOKENS, format_number
from waysout.report.words import grouped, is_year

if TYPE_CHECKING:
    import pandas as pd

MOST_GROUPS = 20
MOST_NUMBERS = 12
"""A column with more distinct numbers is grouped by quartiles."""
_MOSTLY = 0.95  # of the cells are numbers in a column of numbers; a few may be stray texts
MISSING, NO_NUMBER = "(missing)", "(not a number)"

Codes = NDArray[np.intp]


@dataclass(frozen=True)
class Groups:
    """The groups by name, and the index of each person's group.

    ``edges`` are the quartiles that separate a column of numbers, by column. If there are too many
    groups, the ``merged`` smallest are one: the last.
    """

    names: tuple[tuple[str, ...], ...]
    codes: Codes
    edges: dict[str, tuple[float, ...]]
    merged: int = 0


def group(columns: dict[str, pd.Series], rejected: Mask) -> Groups:
    """Return the groups by one column, or by the values of several together.

    The largest groups are those with the most people who were rejected.
    """
    parted = [_by_column(name, column, rejected) for name, column in columns.items()]
    if len(parted) == 1:
        return parted[0]
    sizes = [len(one.names) for one in parted]
    joint = np.ravel_multi_index([one.codes for one in parted], sizes)
    there, codes = np.unique(joint, return_inverse=True)
    names = [
        tuple(one.names[i][0] for one, i in zip(parted, indices, strict=True))
        for indices in zip(*np.unravel_index(there, sizes), strict=True)
    ]
    edges = {name: cut for one in parted for name, cut in one.edges.items()}
    return _largest(names, codes, rejected, edges)


def _by_column(name: str, column: pd.Series, rejected: Mask) -> Groups:
    codes = column.cat.codes.to_numpy().astype(np.intp)  # -1, a missing cell, is the last text
    texts = [str(text).strip() for text in column.cat.categories] + [""] * bool((codes < 0).any())
    counts = np.bincount(codes % max(1, len(texts)), minlength=len(texts))
    missing = np.array([text in MISSING_TOKENS for text in texts], dtype=bool)
    numbers = np.array([np.nan if text in MISSING_TOKENS else _number(text) for text in texts])
    is_number = ~np.isnan(numbers)
    filled = counts[~missing].sum()
    if not filled or counts[is_number].sum() < _MOSTLY * filled:
        labels = [MISSING if gone else text for text, gone in zip(texts, missing, strict=True)]
        indices = {label: i for i, label in enumerate(dict.fromkeys(labels))}
        by_text = np.array([indices[label] for label in labels], dtype=np.intp)
        return _largest([(label,) for label in indices], by_text[codes], rejected, {})

    distinct = np.unique(numbers[is_number])
    edges: dict[str, tuple[float, ...]] = {}
    if len(distinct) <= MOST_NUMBERS:
        names = [format_number(number) for number in distinct]
        by_text = np.searchsorted(distinct, numbers)
    else:
        everyone = numbers[codes]
        known = everyone[rejected & ~np.isnan(everyone)]
        known = known if len(known) else everyone[~np.isnan(everyone)]
        # An observed number, so that no edge shows more digits than the data has.
        quartiles = np.quantile(known, (0.25, 0.5, 0.75), method="inverted_cdf")
        cut = np.unique(quartiles[quartiles < known.max()])  # equal quartiles make fewer groups
        by_text = np.searchsorted(cut, numbers, side="left")
        edges[name] = tuple(cut.tolist())
        told = grouped(*edges[name], apart=not is_year(name, *edges[name]))
        between = [f"over {low} to {high}" for low, high in pairwise(told)]
        names = [f"up to {told[0]}", *between, f"over {told[-1]}"] if told else ["any number"]
    gaps = np.where(missing, len(names), len(names) + 1)
    there, codes = np.unique(np.where(is_number, by_text, gaps)[codes], return_inverse=True)
    all_names = [*names, MISSING, NO_NUMBER]
    return Groups(tuple((all_names[i],) for i in there), codes, edges)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return float("nan")
    return number if abs(number) <= LARGEST else float("nan")


def _largest(
    names: list[tuple[str, ...]], codes: Codes, rejected: Mask, edges: dict[str, tuple[float, ...]]
) -> Groups:
    """Return the largest groups in order of size, the rest as one; ties keep their order."""
    sizes = np.bincount(codes[rejected], minlength=len(names))
    all_sizes = np.bincount(codes, minlength=len(names))
    order = np.lexsort((-all_sizes, -sizes)).tolist()
    kept, others = order[:MOST_GROUPS], order[MOST_GROUPS:]
    if len(others) == 1:  # it needs no more room than a line about the others
        kept, others = order, []
    place = np.full(len(names), len(kept), dtype=np.intp)
    place[kept] = np.arange(len(kept))
    told = [names[i] for i in kept] + ([(f"({len(others):,} others)",)] if others else [])
    return Groups(tuple(told), place[codes], edges, len(others))
