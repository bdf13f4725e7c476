"""The numbers a model saw in a column, held against the codes of the card.

Integer levels and label codes look alike: 0 to 3 may be positions, 1 to 4 the levels themselves,
and -1 a missing value. A model that recorded its numbers, or the thresholds at which its trees
split, tells which of them it was trained on.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from waysout.domain.schema import Feature, Value
from waysout.errors import OracleError


@dataclass(frozen=True, slots=True)
class Seen:
    """What a model recorded: the least and the greatest number, or all of a category's numbers."""

    low: float
    high: float
    values: frozenset[float] = frozenset()

    @classmethod
    def by_lightgbm(cls, info: Mapping[str, Any]) -> Seen | None:
        """Read one of LightGBM's ``feature_infos``; a column it never used has none."""
        # For a category -1 stands for whatever is missing, rare or unknown.
        values = frozenset(float(v) for v in info.get("values", ()) if v >= 0)
        if values:
            return cls(min(values), max(values), values)
        if info.get("values") or "min_value" not in info:
            return None
        return cls(float(info["min_value"]), float(info["max_value"]))

    def outside(self, numbers: Iterable[float]) -> int:
        """Count the numbers that the model cannot have seen."""
        if self.values:
            return sum(number not in self.values for number in numbers)
        return sum(not self.low <= number <= self.high for number in numbers)

    def is_exactly(self, numbers: Collection[float]) -> bool:
        """Whether these numbers are what the model saw, as far as it tells."""
        if self.values:
            return self.values == set(numbers)
        return (self.low, self.high) == (min(numbers), max(numbers))

    def __str__(self) -> str:
        return f"was trained on the numbers {self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class Splits:
    """The thresholds at which the trees of a model split a column; each parts some numbers."""

    thresholds: frozenset[float]

    def outside(self, numbers: Iterable[float]) -> int:
        """Count the thresholds that would part none of these numbers from another."""
        known = list(numbers)
        return sum(not min(known) < t <= max(known) for t in self.thresholds)

    def is_exactly(self, numbers: Collection[float]) -> bool:
        """Whether every threshold parts some of these numbers."""
        return not self.outside(numbers)

    def __str__(self) -> str:
        return f"splits at {min(self.thresholds):g} to {max(self.thresholds):g}"


def check_codes(feature: Feature, codes: Mapping[Value, float], seen: Seen | Splits | None) -> None:
    """Raise where other numbers than the card's codes fit what the model saw, and the codes not."""
    if seen is None:
        return
    used = list(codes.values())
    with_missing = used if feature.missing_code is None else [*used, feature.missing_code]
    if seen.is_exactly(used) or seen.is_exactly(with_missing):
        return
    readings = list(_readings(feature, used))
    for numbers, missing in readings:
        if seen.is_exactly(numbers if missing is None else [*numbers, missing]):
            raise _other_codes(feature, seen, used, (numbers, missing))
    for numbers, missing in readings:
        if missing is None and seen.outside(numbers) < seen.outside(used):
            raise _other_codes(feature, seen, used, (numbers, missing))


def _readings(
    feature: Feature, used: Sequence[float]
) -> Iterator[tuple[Sequence[float], float | None]]:
    """Yield what else may stand for the levels, and for a missing value."""
    bases: list[Sequence[float]] = [used, _positions(feature)]
    if (numbers := _numbers(feature)) is not None:
        bases.append(numbers)
    yield from ((numbers, None) for numbers in bases[1:])
    if feature.missing != "refuse" and feature.missing_code is None:
        # pandas' cat.codes gives -1 for missing, a label encoder the number after the last.
        yield from ((b, missing) for b in bases for missing in (-1.0, max(b) + 1))


def _positions(feature: Feature) -> list[float]:
    """Return the positions of the levels in sorted order, as a label encoder gives them."""
    numbers = _numbers(feature)
    texts = any(isinstance(level, str) for level in feature.levels)
    keys: Sequence[Any] = feature.level_texts if texts or numbers is None else numbers
    order = sorted(keys)
    return [float(order.index(key)) for key in keys]


def _numbers(feature: Feature) -> list[float] | None:
    """Return the levels as numbers, where they are: "01" is 1 to pandas."""
    try:
        numbers = [float(level) for level in feature.levels]
    except ValueError:
        return None
    return numbers if all(map(math.isfinite, numbers)) else None


def _other_codes(
    feature: Feature,
    seen: Seen | Splits,
    used: Sequence[float],
    reading: tuple[Sequence[float], float | None],
) -> OracleError:
    numbers, missing = reading
    remedies = []
    if list(numbers) != list(used):
        pairs = [f'"{t}" = {n:g}' for t, n in zip(feature.level_texts, numbers, strict=True)]
        more = ", …" if len(pairs) > 12 else ""
        remedies.append(f"codes = {{ {', '.join(pairs[:12])}{more} }}")
    if missing is not None:
        remedies.append(f"missing_code = {missing:g}")
    return OracleError(
        f"column {feature.name!r}: the model {seen}, and the levels are given to it as "
        f"{min(used):g} to {max(used):g}. Its "
        f"numbers seem to be {' and '.join(remedies)}: write that into the card, or pass "
        "inputs='codes' if the card is right"
    )
