"""A short list: the few ways a person should read first."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from waysout.domain.distance import ALPHA, Distance, Matrix, scale_of, simplicity
from waysout.domain.result import Option, ResultData, Way
from waysout.domain.schema import Feature, Schema
from waysout.domain.ways import overlap
from waysout.errors import InputError, shown

_MOST_TAKEN_APART = 10  # changes; their subsets double with each
_COST_DIGITS = 9  # a sum in another order is the same cost


def pick(result: ResultData, n: int = 5) -> tuple[Option, ...]:
    """Return n ways that are good and different, best first; all of them where there are fewer.

    Stable ones come first; then those known to hold and to be irreducible before those of which
    not everything was asked, and these before what is known not to hold; then those known to be
    tight, so that what leaves nothing in doubt is read first. Among equals, each next way is the
    one of least cost × (1 + the largest overlap of its levers with a way picked); one that was
    named, by an LLM or a user, is preferred at equal cost.

    Results of earlier releases have no ways: the most different good options are picked.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InputError(f"pick: n is a whole number of 1 or more, not {shown(n)}")
    if not result.ways:
        return _pick_options(result.options, result.settings, n)
    left, picked = list(result.ways), list[Way]()
    while left and len(picked) < n:
        best = min(left, key=lambda way: _order(way, picked))
        left.remove(best)
        picked.append(best)
    return tuple(picked)


def pickable(result: ResultData) -> Sequence[Option]:
    """Return what `pick` chooses from: the ways, or the options of a result without any."""
    return result.ways or result.options


def easiest_first(options: Iterable[Option]) -> list[Option]:
    """Return options by ease: few and small changes first, unstable ones last."""
    return sorted(options, key=lambda o: (o.stable is False, -o.proximity * simplicity(o.sparsity)))


def _order(way: Way, picked: Sequence[Way]) -> tuple[bool, int, bool, float, bool]:
    shared = overlap(way.levers, (other.levers for other in picked))
    cost = round(way.cost * (1.0 + shared), _COST_DIGITS)
    return way.stable is False, way.standing, way.tight is not True, cost, not way.reasons


def _pick_options(
    options: Sequence[Option], settings: Mapping[str, Any], n: int
) -> tuple[Option, ...]:
    """Return the n most different good options, best first.

    The first is the best: proximity × 1/(1 + changes). Each next one is the option with the highest
    product of that and its novelty, 1 − 1/(1 + distance to the nearest one picked). Both are
    bounded, so an outlier, far from everything, does not win by its distance. Three rules go before
    the score: unstable options come last; so do those that only add to another option without
    making a yes likelier; and a set of changed features is repeated only when each other set
    was picked as often or has no option left. Ties go to the option found first.
    """
    if not options:
        return ()
    distance, matrix = _measured(options, settings)
    stable = np.array([o.stable is not False for o in options])
    quality = np.array([o.proximity * simplicity(o.sparsity) for o in options])
    needed = ~np.array(_padded(options))
    levers = _codes([frozenset(o.changes) for o in options])
    used = np.zeros(len(options))  # how often an option's set of features was picked
    nearest = np.full(len(options), np.inf)  # distance to the nearest one picked
    left = np.arange(len(options))
    picked: list[Option] = []
    while len(left) and len(picked) < n:
        of_best = left  # in the first key, then in the next, and so on
        for key in (stable, needed, -used, quality * (1.0 - 1.0 / (1.0 + nearest))):
            of_best = of_best[key[of_best] == key[of_best].max()]
        best = int(of_best[0])
        left = left[left != best]
        picked.append(options[best])
        used += levers == levers[best]
        nearest = np.minimum(nearest, distance.between(matrix[best], matrix))
    return tuple(picked)


def _padded(options: Sequence[Option]) -> list[bool]:
    """Return which options make all changes of another one, and more, for no better chance."""
    sets = [frozenset((name, new) for name, (_, new) in o.changes.items()) for o in options]
    chance = {found: o.probability for found, o in zip(sets, options, strict=True)}
    return [
        any(
            chance.get(frozenset(part), -1.0) >= option.probability
            for size in range(1, len(found) if len(found) <= _MOST_TAKEN_APART else 1)
            for part in combinations(found, size)
        )
        for found, option in zip(sets, options, strict=True)
    ]


def _measured(options: Sequence[Option], settings: Mapping[str, Any]) -> tuple[Distance, Matrix]:
    """Return the search's own distance and the options' rows for it.

    A result holds no schema, so features are told apart by the scales that the search noted: those
    with a scale are numbers. Without such a note, the spread among the options is the scale.
    """
    noted = settings.get("distance", {})
    features, columns = [], []
    scales: dict[str, float] = {}
    for i, name in enumerate(options[0].row):
        values = [o.row.get(name) for o in options]
        present = [v for v in values if v is not None]
        # Nor are numbers amounts here that the table writes as text, such as "12,5 %".
        if any(isinstance(v, str) for v in present):
            scale = None
        elif "scales" in noted:
            scale = noted["scales"].get(name)
        elif not present or any(isinstance(v, bool) for v in present):
            scale = None
        else:
            scale = scale_of(np.array(present, dtype=np.float64)).value
        features.append(Feature(str(i), "number" if scale else "boolean"))
        scales |= {str(i): scale} if scale else {}
        columns.append(np.array(values, dtype=np.float64) if scale else _codes(values))
    distance = Distance(Schema(tuple(features)), scales, noted.get("alpha", ALPHA))
    return distance, np.array(columns).T


def _codes(values: Sequence[Hashable]) -> Matrix:
    """Return a number for each value, the same for the same; NaN for a missing one."""
    seen: dict[Hashable, float] = {None: math.nan}
    return np.array([seen.setdefault(v, float(len(seen))) for v in values])
