"""One-hot groups: columns of 0 and 1 of which one is set in every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from waysout.datasets.infer_names import starts

_FEWEST_ROWS = 10  # fewer rows may look so by chance
# Flags that have nothing to do with each other would be set together in so many rows or more.
_EXPECTED = 5.0

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Group:
    """The columns of a group; ``or_none`` where some rows have none of them set."""

    names: tuple[str, ...]
    or_none: bool


def one_hot_groups(flags: Mapping[str, Flags]) -> list[Group]:
    """Find the groups among columns of flags.

    Names of a group begin alike, as those of `pandas.get_dummies` do. With ``drop_first`` some rows
    have none set: that is taken for a group only where it cannot be chance.
    """
    found: list[Group] = []
    taken: set[str] = set()
    for start in starts(flags):
        names = tuple(n for n in flags if n.startswith(start) and n not in taken)
        if len(names) < 2:
            continue
        set_in = np.sum([flags[name] for name in names], axis=0)
        if len(set_in) < _FEWEST_ROWS or set_in.max() != 1:
            continue
        or_none = bool(set_in.min() == 0)
        if or_none and _together([flags[name] for name in names]) < _EXPECTED:
            continue
        found.append(Group(names, or_none))
        taken.update(names)
    return found


def _together(columns: Sequence[Flags]) -> float:
    """Return in how many rows two columns would be set if each were set for itself."""
    shares = [float(column.mean()) for column in columns]
    return len(columns[0]) * sum(a * b for a, b in combinations(shares, 2))
