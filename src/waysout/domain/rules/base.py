"""What every rule shares: how it judges a candidate, and what it leaves of a feature's domain."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np

from waysout.domain.schema import LARGEST, Feature, Row, Schema, Value, format_number

# A sum such as 0.1 + 0.2 may miss 0.3 by the last bits of a float, and by no more.
ROUNDING = 16 * sys.float_info.epsilon


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a candidate breaks, and how.

    ``part`` tells rules of the same name apart: it is the place of the broken part in its set.
    """

    rule: str
    features: tuple[str, ...]
    reason: str
    part: int = field(default=-1, compare=False)

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


def at_most(value: float, limit: float) -> bool:
    """Whether a value is no more than a limit, but for rounding.

    >>> at_most(0.1 + 0.2, 0.3), at_most(0.31, 0.3)
    (True, False)
    """
    return value <= limit + ROUNDING * max(abs(value), abs(limit))


def on_grid(start: float, step: float, value: float) -> bool:
    """Whether a value lies on a grid, but for rounding.

    >>> on_grid(0, 0.1, 0.3), on_grid(0, 5, 10**10 + 3)
    (True, False)
    """
    steps = (value - start) / step
    return abs(steps - round(steps)) <= ROUNDING * max(1.0, abs(steps))


@dataclass(frozen=True)
class Lever:
    """The values one feature of one query may be set to, as far as single-feature rules tell.

    Either a closed list of ``values`` or an interval, possibly on a grid. ``blocked`` says why the
    feature cannot be moved at all, and ``blocked_by`` which rule holds it.
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
    blocked_by: str = ""

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

    def block(self, rule: str, reason: str) -> Lever:
        """Return the lever held fast by a rule (the first one stays)."""
        return self if self.blocked else replace(self, blocked=reason, blocked_by=rule)

    def within(self, low: float = -LARGEST, high: float = LARGEST) -> Lever:
        """Return the lever cut down to an interval."""
        return replace(self, low=max(self.low, low), high=min(self.high, high))

    def only(self, values: Collection[Value]) -> Lever:
        """Return the lever cut down to a list of values."""
        wanted = frozenset(values)
        kept = values if self.values is None else (v for v in self.values if v in wanted)
        return replace(self, values=tuple(kept))

    def without(self, values: Iterable[Value]) -> Lever:
        """Return the lever with some values taken out."""
        return replace(self, never=self.never.union(values))

    def on(self, step: float, start: float) -> Lever:
        """Return the lever on a grid."""
        return replace(self, step=step, start=start)

    def admits(self, value: Value) -> bool:
        """Whether the feature may be *changed* to this value."""
        if not self.feature.holds(value) or (self.values is not None and value not in self.values):
            return False
        return self._allows(value)

    def _allows(self, value: Value) -> bool:
        if self.blocked or value is None or value == self.now or value in self.never:
            return False
        if isinstance(value, (str, bool)):
            return True
        on_step = self.step is None or on_grid(self.start, self.step, value)
        return on_step and at_most(self.low, value) and at_most(value, self.high)

    def choices(self) -> tuple[Value, ...] | None:
        """Return the admitted values where they are a list, else ``None`` (an interval)."""
        if self.values is None:
            return None
        return tuple(v for v in self.values if self._allows(v))

    @cached_property
    def is_open(self) -> bool:
        """Whether there is at least one value to move to."""
        # The present value and those barred by name may be among the points: look at more.
        return not self.blocked and bool(self.sample(len(self.never) + 3))

    def sample(self, count: int) -> tuple[Value, ...]:
        """Return at most so many admitted values, spread evenly: what could be tried first."""
        choices = self.choices()
        if choices is None:
            points = dict.fromkeys(self.feature.coerce(p) for p in self._points(count))
            return tuple(value for value in points if self._allows(value))
        if len(choices) <= count:
            return choices
        return tuple(choices[i * len(choices) // count] for i in range(count))

    def _points(self, count: int) -> list[float]:
        low, high = self.bounds()
        step = self.step or self.feature.resolution
        if step is None or step <= 0:
            return [low + (high - low) * i / max(1, count - 1) for i in range(count)]
        first = math.ceil((low - self.start) / step - ROUNDING)
        last = math.floor((high - self.start) / step + ROUNDING)
        wanted = (first + (last - first) * i // max(1, count - 1) for i in range(count))
        return [self.start + step * k for k in wanted if first <= k <= last]

    def draw(self, rng: np.random.Generator) -> Value:
        """Draw a value from all that the lever spans, each equally likely.

        Of an interval, the present value and those barred by name are among them: ask `admits`. An
        interval without an end reaches as far as `sample` does.
        """
        choices = self.choices()
        if choices is not None:
            return choices[int(rng.integers(len(choices)))]
        low, high = self.bounds()
        step = self.step or self.feature.resolution
        if step is None:
            return self.feature.coerce(rng.uniform(low, high))
        first = math.ceil((low - self.start) / step - ROUNDING)
        last = math.floor((high - self.start) / step + ROUNDING)
        steps = min(last, math.floor(rng.uniform(first, last + 1)))
        return self.feature.coerce(self.start + step * steps)

    def towards(self, goal: Value, *, must_move: bool = False) -> Value:
        """Return the admitted value nearest to a goal, or the present one where none is nearer.

        Categories and booleans have no nearness: they reach the goal or stay. So does a number
        whose goal is barred by name: such a value is a code, and nothing lies near a code.
        """
        if goal is not None and self.admits(goal):
            return goal
        if goal is None or goal in self.never or not self.feature.is_numeric:
            return self.now
        aim = float(goal)
        gaps = {value: abs(value - aim) for value in self._around(aim) if self.admits(value)}
        best = min(gaps, key=gaps.__getitem__, default=None)
        stay = math.inf if must_move or self.now is None else abs(float(self.now) - aim)
        return self.now if best is None or gaps[best] >= stay else best

    def _around(self, aim: float) -> list[float]:
        """Return the values near a goal among which the nearest admitted one is."""
        choices, inside = self.choices(), min(max(aim, self.low), self.high)
        step = self.step or self.feature.resolution
        if choices is not None:
            points = [float(choice) for choice in choices if choice is not None]
        elif step is None:
            points = [inside]
        else:
            below = math.floor((inside - self.start) / step)
            points = [self.start + step * steps for steps in (below, below + 1)]
        typed = (self.feature.coerce(point) for point in points if abs(point) <= LARGEST)
        return [value for value in typed if isinstance(value, (int, float))]

    def bounds(self) -> tuple[float, float]:
        """Return a number's interval, where it has no end so far as the present value suggests."""
        centre = float(self.now) if isinstance(self.now, (int, float)) else 0.0
        reach = max(abs(centre), 10.0, 10 * (self.step or 0.0))
        low = self.low if self.low > -LARGEST else min(centre, self.high) - reach
        high = self.high if self.high < LARGEST else max(centre, self.low) + reach
        return max(low, -LARGEST), min(high, LARGEST)

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
        return interval_words(self.low, self.high) + grid + self._exceptions()

    def _exceptions(self) -> str:
        barred = sorted(float(v) for v in self.never if isinstance(v, (int, float)))
        inside = [format_number(v) for v in barred if self.low <= v <= self.high]
        named = inside if len(inside) <= 4 else [inside[0], "…", inside[-1]]
        return f", never {', '.join(named)}" if inside else ""


def interval_words(low: float, high: float) -> str:
    """Say an interval as a person would.

    >>> interval_words(3, 5), interval_words(3, LARGEST)
    ('3 to 5', '3 or more')
    """
    below, above = low <= -LARGEST, high >= LARGEST
    if below and above:
        return "any number"
    if above:
        return f"{format_number(low)} or more"
    if below:
        return f"up to {format_number(high)}"
    return f"{format_number(low)} to {format_number(high)}"


Check = Callable[[Row, Row], str | None]
Narrow = Callable[[Lever], Lever]


@dataclass(frozen=True, slots=True)
class Bound:
    """A rule, or its part about one feature, bound to a table.

    ``check`` returns why a candidate breaks it, if it does. ``narrow`` returns what it leaves of
    the levers of ``narrows``.
    """

    features: tuple[str, ...]
    check: Check
    narrow: Narrow | None = None
    narrows: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule. It is described by values alone and judges once it is bound to a table."""

    kind: ClassVar[str]
    name: str = ""
    why: str = ""

    @property
    def subject(self) -> str:
        """What the rule speaks of, in a word or two."""
        one = getattr(self, "feature", None)
        return " ".join(map(str, getattr(self, "features", ()))) if one is None else str(one)

    @property
    def label(self) -> str:
        """The rule's name, or a plain one made of its kind and subject."""
        return self.name or f"{self.kind} {self.subject}".strip()

    @property
    def says(self) -> str:
        """What the rule demands, in a line; a rule that cannot tell says its label."""
        return self.label

    def bind(self, context: Context) -> tuple[Bound, ...]:
        """Return the rule's parts for one table; raise `RuleError` where it cannot hold there."""
        raise NotImplementedError
