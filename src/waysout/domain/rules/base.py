"""What every rule shares: how it judges a candidate, and what it leaves of a feature's domain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from waysout.domain.schema import LARGEST, Feature, Row, Schema, Value, format_number

# Amounts such as 0.1 + 0.2 must not break a limit of 0.3 by the last bit of a float.
TOLERANCE = 1e-9

Check = Callable[[Row, Row], str | None]


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a candidate breaks, and how."""

    rule: str
    features: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.reason}"


class Context(Protocol):
    """What a rule may look at when it is bound to a table."""

    @property
    def schema(self) -> Schema:
        """The features."""
        ...

    def count_changes(self, query: Row, candidate: Row) -> int:
        """Count the changes a person would count."""
        ...


def steps_from(start: float, step: float, value: float) -> float:
    """Return how many steps a value lies from the grid's start."""
    return (value - start) / step


def on_grid(start: float, step: float, value: float) -> bool:
    """Whether a value lies on a grid."""
    steps = steps_from(start, step, value)
    return abs(steps - round(steps)) <= TOLERANCE * max(1.0, abs(steps))


@dataclass(frozen=True, slots=True)
class Lever:
    """The values one feature of one query may be set to, as far as single-feature rules tell.

    Either a closed list of ``values`` or an interval, possibly on a grid. ``blocked`` says why
    the feature cannot be moved at all.
    """

    feature: Feature
    now: Value
    values: tuple[Value, ...] | None = None
    low: float = -LARGEST
    high: float = LARGEST
    step: float | None = None
    start: float = 0.0
    never: frozenset[Value] = frozenset()
    blocked: str = ""

    @classmethod
    def of(cls, feature: Feature, now: Value) -> Lever:
        """Return the feature's own domain, before any rule."""
        blocked = ""
        if now is None and feature.missing == "keep":
            blocked = "the value is missing and stays so (missing = 'keep')"
        if not feature.is_numeric:
            return cls(feature, now, values=feature.values(), blocked=blocked)
        low, high = feature.range or (-LARGEST, LARGEST)
        return cls(feature, now, low=low, high=high, blocked=blocked)

    def block(self, reason: str) -> Lever:
        """Return the lever held fast (the first reason stays)."""
        return self if self.blocked else replace(self, blocked=reason)

    def within(self, low: float = -LARGEST, high: float = LARGEST) -> Lever:
        """Return the lever cut down to an interval."""
        return replace(self, low=max(self.low, low), high=min(self.high, high))

    def only(self, values: Iterable[Value]) -> Lever:
        """Return the lever cut down to a list of values."""
        wanted = tuple(values)
        kept = wanted if self.values is None else tuple(v for v in self.values if v in wanted)
        return replace(self, values=kept)

    def without(self, values: Iterable[Value]) -> Lever:
        """Return the lever with some values taken out."""
        return replace(self, never=self.never | frozenset(values))

    def admits(self, value: Value) -> bool:
        """Whether the feature may be *changed* to this value."""
        if self.blocked or value is None or value == self.now or value in self.never:
            return False
        if self.values is not None and value not in self.values:
            return False
        if isinstance(value, (str, bool)):
            return True
        on_step = self.step is None or on_grid(self.start, self.step, value)
        return on_step and self.low - TOLERANCE <= value <= self.high + TOLERANCE

    def choices(self) -> tuple[Value, ...] | None:
        """Return the admitted values where they are a list, else ``None`` (an interval)."""
        if self.values is None:
            return None
        return tuple(v for v in self.values if self.admits(v))

    @property
    def grid_step(self) -> float | None:
        """The distance between neighbouring values: the rule's, else 1 for integers."""
        return 1.0 if self.step is None and self.feature.kind == "integer" else self.step

    @property
    def is_open(self) -> bool:
        """Whether there is at least one value to move to."""
        if self.blocked:
            return False
        choices = self.choices()
        if choices is not None:
            return bool(choices)
        # Of one point more than can be refused by name, one must be admitted.
        return any(self.admits(point) for point in self._points(len(self.never) + 2))

    def sample(self, count: int) -> tuple[Value, ...]:
        """Return at most so many admitted values, spread evenly: what could be tried first."""
        choices = self.choices()
        if choices is not None:
            return choices[:count]
        if not self.is_open:
            return ()
        step, width = self.grid_step, self.high - self.low
        points = [self.low + width * i / max(1, count - 1) for i in range(count)]
        if step is not None:
            points = [self.start + step * round(steps_from(self.start, step, p)) for p in points]
        typed = dict.fromkeys(self.feature.coerce(p) for p in points)
        return tuple(value for value in typed if self.admits(value))

    def _points(self, count: int) -> Iterable[float]:
        step = self.grid_step
        if step is None:
            width = max(0.0, self.high - self.low)
            return [self.low + width * i / count for i in range(count + 1)]
        first = math.ceil(steps_from(self.start, step, self.low) - TOLERANCE)
        points = [self.start + step * (first + i) for i in range(count)]
        return [p for p in points if p <= self.high + TOLERANCE]

    def describe(self) -> str:
        """Say in words what the feature may be set to."""
        if self.blocked:
            return f"fixed: {self.blocked}"
        choices = self.choices()
        if choices is not None:
            return " | ".join(self.feature.format(v) for v in choices) or "fixed: no other value"
        if not self.is_open:
            return "fixed: no other value"
        grid = f" in steps of {format_number(self.step)}" if self.step else ""
        return self._interval() + grid + self._exceptions()

    def _exceptions(self) -> str:
        barred = sorted(float(v) for v in self.never if isinstance(v, (int, float)))
        inside = [format_number(v) for v in barred if self.low <= v <= self.high]
        shown = inside if len(inside) <= 4 else [inside[0], "…", inside[-1]]
        return f", never {', '.join(shown)}" if inside else ""

    def _interval(self) -> str:
        low = "" if self.low <= -LARGEST else format_number(self.low)
        high = "" if self.high >= LARGEST else format_number(self.high)
        if low and high:
            return f"{low} to {high}"
        return f"{low} or more" if low else f"up to {high}" if high else "any number"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule. It is described by values alone and judges once it is bound to a table."""

    kind: ClassVar[str]
    name: str = ""
    why: str = ""

    @property
    def about(self) -> tuple[str, ...]:
        """The features the rule speaks of: those of its ``features`` or ``feature`` field."""
        one = getattr(self, "feature", None)
        return tuple(getattr(self, "features", ())) if one is None else (one,)

    @property
    def label(self) -> str:
        """The rule's name, or a plain one made of its kind and features."""
        return self.name or " ".join([self.kind, *self.about])

    def bind(self, context: Context) -> Check:
        """Return the check for one table; raise `RuleError` where the rule cannot hold there."""
        raise NotImplementedError

    def narrow(self, lever: Lever) -> Lever:
        """Return what the rule leaves of a feature it speaks of."""
        return lever
