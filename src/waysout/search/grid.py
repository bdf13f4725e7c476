"""Values that are worth trying where nobody has named any: one for each bin of the key."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from waysout.domain.rules import Lever
from waysout.domain.schema import Value

MOST_VALUES = 40
"""What is tried of a category with very many levels."""

_POINTS = 9
# Of a bin's width: a tenth is fine enough for a number that people like to read.
_GRAINS = (1.0, 0.5, 0.2, 0.1)


def values_to_try(lever: Lever, edges: Sequence[float] = ()) -> list[Value]:
    """Return admitted values of a lever, each as near to the present one as its bin allows.

    Rows in the same bins have the same key, so one value a bin is all that can tell. Of the values
    near that end of a bin which is next to the present value, a round one is taken.

    >>> from waysout.domain.schema import Feature
    >>> income = Lever.of(Feature("income", "integer", range=(0, 900)), 240)
    >>> values_to_try(income, [100, 250, 400, 800])
    [100, 300, 500, 810]
    """
    if not lever.feature.is_numeric or lever.now is None or not edges:
        return list(lever.sample(_POINTS if lever.feature.is_numeric else MOST_VALUES))
    return list(_one_a_bin(lever, float(lever.now), edges))


def _one_a_bin(lever: Lever, now: float, edges: Sequence[float]) -> Iterator[Value]:
    first, last = lever.bounds()
    fine = lever.step or lever.feature.resolution
    for i, (below, above) in enumerate(zip([first, *edges], [*edges, last], strict=True)):
        # A bin begins just above its lower edge; only the lowest holds its own.
        low = below if i == 0 else below + (fine or (above - below) * _GRAINS[-1])
        low, high = max(low, first), min(above, last)
        if low <= high and not low <= now <= high:
            for value in _readable(low, high, upwards=now < low):
                near = lever.towards(value, must_move=True)
                if lever.admits(near) and bisect_left(edges, float(near or 0)) == i:
                    yield near
                    break


def _readable(low: float, high: float, *, upwards: bool) -> Iterator[float]:
    """Return numbers of an interval from the near end on, the rounder the earlier."""
    if high > low:
        width = 10.0 ** math.floor(math.log10(high - low))
        for grain in _GRAINS:
            step = width * grain
            steps = math.ceil(low / step - 1e-9) if upwards else math.floor(high / step + 1e-9)
            if low <= steps * step <= high:
                yield steps * step
    yield from (low, high) if upwards else (high, low)
