"""Values that are worth trying where nobody has named any: one for each bin of the key."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from waysout.domain.rules import Lever
from waysout.domain.schema import LARGEST, Value

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
    now, choices = float(lever.now), lever.choices()
    found = _intervals(lever, now, edges) if choices is None else _nearest(choices, now, edges)
    return list(found)


def _nearest(choices: Iterable[Value], now: float, edges: Sequence[float]) -> list[float]:
    """Return of each bin the listed value that is nearest to the present one."""
    found: dict[int, float] = {}
    numbers = (choice for choice in choices if isinstance(choice, (int, float)))
    for value in sorted(numbers, key=lambda value: abs(value - now)):
        found.setdefault(bisect_left(edges, value), value)
    found.pop(bisect_left(edges, now), None)
    return sorted(found.values())


def _intervals(lever: Lever, now: float, edges: Sequence[float]) -> Iterator[Value]:
    first, last = _reach(lever, edges)
    for i, (below, above) in enumerate(zip([first, *edges], [*edges, last], strict=True)):
        if i == bisect_left(edges, now):
            continue
        # A bin begins just above its lower edge; only the lowest holds its own.
        low = below if i == 0 else _after(lever, below, above)
        low, high = max(low, first), min(above, last)
        for value in _readable(low, high, upwards=now < low) if low <= high else ():
            near = lever.towards(value, must_move=True)
            if lever.admits(near) and bisect_left(edges, float(near or 0)) == i:
                yield near
                break


def _reach(lever: Lever, edges: Sequence[float]) -> tuple[float, float]:
    """Return a lever's ends; where it has none, the edges tell how far values go."""
    first, last = lever.bounds()
    width = (edges[-1] - edges[0]) / max(1, len(edges) - 1) or abs(edges[0]) or 1.0
    if lever.low <= -LARGEST:
        first = min(first, edges[0] - width)
    return first, max(last, edges[-1] + width) if lever.high >= LARGEST else last


def _after(lever: Lever, below: float, above: float) -> float:
    """Return the first number of a bin."""
    fine = lever.step or lever.feature.resolution
    if not fine:
        return below + (above - below) * _GRAINS[-1]
    return lever.start + fine * (math.floor((below - lever.start) / fine + 1e-9) + 1)


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
