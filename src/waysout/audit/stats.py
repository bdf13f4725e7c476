"""The intervals of an audit: of a share, of the difference of two, of the difference of medians."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

RESAMPLES, SEED = 10_000, 42
_ROUNDING = 1e-12  # of the size of costs: sums of floats that should be equal differ by less
_Z = 1.959963984540054  # the normal distribution's 97.5 % point


@dataclass(frozen=True)
class Interval:
    """A figure and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def leaves_out_zero(self) -> bool:
        """Whether 0 lies outside."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Spread:
    """The median of some numbers and the quartiles around it."""

    low: float
    median: float
    high: float


def share(count: int, of: int) -> Interval | None:
    """Return a share with Wilson's interval, which holds for small numbers and for 0 and 1 too.

    >>> share(0, 4), share(0, 0)
    (Interval(value=0.0, low=0.0, high=0.4898908364545973), None)
    """
    if not of:
        return None
    p, z2 = count / of, _Z**2
    middle = (p + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z / (1 + z2 / of) * sqrt(p * (1 - p) / of + z2 / (4 * of**2))
    low = 0.0 if count == 0 else middle - half
    return Interval(p, low, 1.0 if count == of else middle + half)


def share_difference(count: int, of: int, others: int, of_others: int) -> Interval | None:
    """Return how much larger a share is than that of others, with Newcombe's interval."""
    a, b = share(count, of), share(others, of_others)
    if a is None or b is None:
        return None
    value = a.value - b.value
    below = sqrt((a.value - a.low) ** 2 + (b.high - b.value) ** 2)
    above = sqrt((a.high - a.value) ** 2 + (b.value - b.low) ** 2)
    return Interval(value, value - below, value + above)


def spread(numbers: Numbers) -> Spread | None:
    """Return median and quartiles; None of nothing."""
    if not len(numbers):
        return None
    low, median, high = np.quantile(numbers, (0.25, 0.5, 0.75)).tolist()
    return Spread(low, median, high)


def median_difference(numbers: Numbers, others: Numbers) -> Interval | None:
    """Return how much larger a median is than that of others, with a bootstrap interval.

    It is the percentile interval of 10,000 resamples of both sides, seed 42. Two numbers of each
    are needed.
    """
    if min(len(numbers), len(others)) < 2:
        return None
    rng = np.random.default_rng(SEED)
    drawn = medians(np.sort(numbers), rng) - medians(np.sort(others), rng)
    low, high = np.percentile(drawn, (2.5, 97.5)).tolist()
    middles = float(np.median(numbers)), float(np.median(others))
    noise = _ROUNDING * max(map(abs, middles))
    ends = (middles[0] - middles[1], low, high)
    return Interval(*(0.0 if abs(end) <= noise else end for end in ends))


def medians(ordered: Numbers, rng: np.random.Generator, resamples: int = RESAMPLES) -> Numbers:
    """Return the medians of resamples of sorted numbers, drawn without making the resamples.

    The k-th smallest of n uniform draws has a beta distribution; a resample's k-th smallest number
    stands where such a draw falls. So a million numbers take no longer than ten.
    """
    n = len(ordered)
    k = (n + 1) // 2
    at = rng.beta(k, n - k + 1, resamples)
    lower = ordered[_places(at, n)]
    if n % 2:
        return lower
    after = at + (1 - at) * rng.beta(1, n - k, resamples)
    return (lower + ordered[_places(after, n)]) / 2


def _places(at: Numbers, n: int) -> NDArray[np.intp]:
    return np.minimum((at * n).astype(np.intp), n - 1)
