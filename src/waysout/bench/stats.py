"""The statistics of the tables: paired comparisons, two kinds of means, and the held-out protocol.

All of it is the paper's protocol: two-tailed paired t-tests, percentile bootstrap 95 % intervals of
the mean paired difference (10,000 resamples, seed 42), Cohen's d_z = t/√n, on the queries for which
both sides have a value.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from waysout.errors import MissingExtra

RESAMPLES, SEED = 10_000, 42
_NORMAL = 1.96
# Equal differences of floats still vary by about this much.
_ROUNDING = 1e-12
# Order of preference among scopes that are equally good at the same threshold.
_SCOPE_ORDER = ("path", "window", "global")

Setting = tuple[str, float]
"""A pruning setting: its scope and its threshold."""


@dataclass(frozen=True)
class Paired:
    """Two samples of the same queries compared: ``delta`` is the mean of b − a.

    ``n`` counts the queries for which both have a value. What is undefined is None: everything for
    n = 0, all but the means for n = 1. If all differences are equal they have no spread: t, p and
    d_z are None (the paper prints n/a), and the interval is that one value. ``sd`` is the standard
    deviation of the differences (ddof 1).
    """

    n: int
    mean_a: float | None = None
    mean_b: float | None = None
    delta: float | None = None
    low: float | None = None
    high: float | None = None
    t: float | None = None
    p: float | None = None
    dz: float | None = None
    sd: float | None = None


def paired(a: Sequence[float | None], b: Sequence[float | None]) -> Paired:
    """Compare two samples whose i-th values belong to the same query.

    >>> paired([1, 2, 3, None], [2, 4, 6, 8]).delta
    2.0
    """
    both = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    if not both:
        return Paired(0)
    left, right = np.array(both, dtype=np.float64).T
    differences = right - left
    delta = float(differences.mean())
    known = Paired(len(both), float(left.mean()), float(right.mean()), delta)
    if len(both) == 1:
        return known
    if np.ptp(differences) <= _ROUNDING * max(1.0, float(np.abs(both).max())):
        return replace(known, low=delta, high=delta, sd=0.0)
    low, high = bootstrap_interval(differences)
    try:
        from scipy import stats
    except ImportError:
        raise MissingExtra("scipy", "bench") from None
    test = stats.ttest_rel(right, left)
    t, p = float(test.statistic), float(test.pvalue)
    sd = float(differences.std(ddof=1))
    return replace(known, low=low, high=high, t=t, p=p, dz=t / known.n**0.5, sd=sd)


def pairs_needed(sd: float, distance: float) -> int:
    """Return how many pairs make a 95 % interval of the mean reach less far than a distance.

    The interval is taken as the mean ± 1.96·sd/√n, so n is more than (1.96·sd/distance)².

    >>> pairs_needed(sd=10, distance=5)  # (1.96 · 2)² = 15.4
    16
    """
    return math.floor((_NORMAL * sd / distance) ** 2) + 1


def bootstrap_interval(differences: NDArray[np.float64]) -> tuple[float, float]:
    """Return the percentile bootstrap 95 % interval of the mean.

    The result equals that of scipy.stats.bootstrap (see the test). It is not used here because its
    draws, and the name of its seed argument, depend on its version.
    """
    means = differences[_draws(len(differences))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


@lru_cache(maxsize=4)  # a page compares hundreds of samples of the same few sizes
def _draws(n: int) -> NDArray[np.int64]:
    return np.random.default_rng(SEED).integers(n, size=(RESAMPLES, n))


def non_empty_mean(values: Iterable[float | None]) -> float | None:
    """Return the mean over the queries that have a value, those with an option found."""
    there = [value for value in values if value is not None]
    return statistics.fmean(there) if there else None


def mean_with_zeros(values: Iterable[float | None]) -> float | None:
    """Return the mean over all queries; one for which no option was found counts as 0."""
    return non_empty_mean(zeros(values))


def zeros(values: Iterable[float | None]) -> list[float]:
    """Return values with 0 in place of None."""
    return [0.0 if value is None else value for value in values]


def deviation(values: Iterable[float | None]) -> float | None:
    """Return the standard deviation (ddof 1) over the queries that have a value, two at least."""
    there = [value for value in values if value is not None]
    return statistics.stdev(there) if len(there) > 1 else None


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Return the volume of what some points dominate, as far as a reference point; less is better.

    Exact, by inclusion and exclusion over all sets of points: for a handful of them.

    >>> hypervolume([(1, 3), (2, 1)], (4, 4))
    7.0
    """
    end = np.asarray(reference, dtype=np.float64)
    volume = 0.0
    for size in range(1, len(points) + 1):
        for some in combinations(points, size):
            sides = np.clip(end - np.max(np.asarray(some, dtype=np.float64), axis=0), 0.0, None)
            volume += (-1) ** (size + 1) * float(np.prod(sides))
    return volume


def halves(n: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split n queries into a validation and a test half, as positions in the stored order.

    The paper says "randomly (seed 42)" and names no generator. Ours: the first ⌊n/2⌋ of
    ``numpy.random.default_rng(42).permutation(n)`` are for validation, the others for the test.

    >>> halves(4)
    ((2, 3), (0, 1))
    """
    order = np.random.default_rng(SEED).permutation(n).tolist()
    return tuple(sorted(order[: n // 2])), tuple(sorted(order[n // 2 :]))


def best_setting(means: Mapping[Setting, float]) -> Setting:
    """Return the setting with the highest mean; ties go to the smaller threshold, then to path.

    >>> best_setting({("global", 0.01): 5.0, ("path", 0.01): 5.0, ("global", 0.02): 5.0})
    ('path', 0.01)
    """
    return min(means, key=lambda s: (-means[s], s[1], _SCOPE_ORDER.index(s[0])))
