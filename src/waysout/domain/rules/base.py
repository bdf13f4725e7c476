"""What all rules share: levers (what a feature may be set to), the rule's interface, its fields."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from waysout.domain.schema import LARGEST, Feature, Row, Schema, Value, format_number
from waysout.errors import RowError, RuleError, SchemaError, shown, unknown

if TYPE_CHECKING:
    from waysout.domain.rules import RuleSet
    from waysout.domain.rules.reach import Reach

# Comparisons allow for the last bits of a float and no more: 0.1 + 0.2 keeps a limit of 0.3, and
# ten billion and nine breaks one of ten billion. Whole numbers are exact as far as `LARGEST`, where
# the last bits are worth more than one.
ROUNDING = 16 * sys.float_info.epsilon


# What divides: a quotient of `LARGEST` by it, and that one's square, are finite.
SMALLEST = 1e-100

CARRIED = "carried along, never proposed"
"""Why an opaque feature does not move."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a candidate breaks, and how.

    ``part`` tells rules of the same name apart: it is the index of the broken part in its set.
    """

    rule: str
    features: tuple[str, ...]
    reason: str
    part: int = field(default=-1, compare=False)

    def __str__(self) -> str:
        return f"{self.rule}: {self.reason}"


def at_most(value: float, limit: float) -> bool:
    """Whether a value is no more than a limit, up to rounding.

    >>> at_most(0.1 + 0.2, 0.3), at_most(0.31, 0.3)
    (True, False)
    """
    over = value - limit
    return over <= 0 or (over < 1 and over <= ROUNDING * max(abs(value), abs(limit)))


def on_grid(start: float, step: float, value: float) -> bool:
    """Whether a value lies on a grid, up to rounding.

    >>> on_grid(0, 0.1, 0.3), on_grid(1000, 0.1, 1000.3), on_grid(0, 5, 10**10 + 3)
    (True, True, False)
    """
    if value % 1 == start % 1 == step % 1 == 0:
        return (value - start) % step == 0
    steps = (value - start) / step
    return abs(steps - round(steps)) <= ROUNDING * max(1.0, abs(value / step), abs(start / step))


@dataclass(frozen=True)
class Lever:
    """A feature that may change for this person, and the values it may take.

    Only rules about a single feature are applied here. The values are a closed list (``values``) or
    an interval, possibly on a grid. ``blocked`` says why the feature cannot be moved at all, and
    ``blocked_by`` which rule holds it.
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
        if feature.is_opaque:
            return cls(feature, now, values=(), blocked=CARRIED)
        blocked = ""
        if now is None and feature.missing == "keep":
            blocked = "the value is missing and stays so (missing = 'keep')"
        if not feature.is_numeric:
            return cls(feature, now, values=feature.values(), blocked=blocked)
        low, high = feature.range or (-LARGEST, LARGEST)
        return cls(feature, now, low=low, high=high, blocked=blocked)

    def block(self, rule: str, reason: str) -> Lever:
        """Return the lever blocked by a rule; the first rule to block it stays."""
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
        if type(value) is self._plain_type and value != self.now and self.low <= value <= self.high:
            return True
        listed = self._listed
        if not self.feature.fits(value) or (listed is not None and value not in listed):
            return False
        return self._allows(value)

    @cached_property
    def _listed(self) -> frozenset[Value] | None:
        return None if self.values is None else frozenset(self.values)

    @cached_property
    def _plain_type(self) -> type[int] | type[float] | None:
        """The type of values that need only lie within the limits: most of what searches ask."""
        feature = self.feature
        free = self.values is None and self.step is None and not self.never and not self.blocked
        if not free or feature.decimals is not None or max(-self.low, self.high) > LARGEST:
            return None
        return {"integer": int, "number": float}.get(feature.kind)

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

    @property
    def _grid(self) -> float | None:
        return self.step or self.feature.resolution

    def _grid_ends(self, step: float) -> tuple[int, int]:
        low, high = self.bounds()
        first = math.ceil((low - self.start) / step - ROUNDING)
        return first, math.floor((high - self.start) / step + ROUNDING)

    def ends(self) -> tuple[float, float] | None:
        """Return the least and the greatest number it may be set to; ``None`` if there is none.

        Where it has no end that is ±`LARGEST`.
        """
        if not self.is_open or self.feature.kind == "category":
            return None
        choices = self.choices()
        if choices is not None:
            numbers = [float(choice) for choice in choices if choice is not None]
            return min(numbers), max(numbers)
        if (step := self._grid) is None:
            return self.low, self.high
        first = math.ceil((self.low - self.start) / step - ROUNDING)
        last = math.floor((self.high - self.start) / step + ROUNDING)
        # It is open, so both walks end at a value that is not barred by name.
        while self.feature.coerce(self.start + step * first) in self.never:
            first += 1
        while self.feature.coerce(self.start + step * last) in self.never:
            last -= 1
        return self.start + step * first, self.start + step * last

    def sample(self, count: int) -> tuple[Value, ...]:
        """Return at most ``count`` admitted values, spread evenly: what could be tried first."""
        choices = self.choices()
        if choices is not None:
            if len(choices) <= count:
                return choices
            return tuple(choices[i * len(choices) // count] for i in range(count))
        gaps = max(1, count - 1)
        if (step := self._grid) is None:
            low, high = self.bounds()
            points = [low + (high - low) * i / gaps for i in range(count)]
        else:
            first, last = self._grid_ends(step)
            wanted = (first + (last - first) * i // gaps for i in range(count))
            points = [self.start + step * k for k in wanted if first <= k <= last]
        typed = dict.fromkeys(map(self.feature.coerce, points))
        return tuple(value for value in typed if self._allows(value))

    def draw(self, rng: np.random.Generator) -> Value:
        """Draw a value from all that the lever spans, each equally likely.

        Of an interval, the present value and those barred by name are among them: ask `admits`. An
        interval without an end reaches as far as `sample` does.
        """
        choices = self.choices()
        if choices is not None:
            return choices[int(rng.integers(len(choices)))]
        if (step := self._grid) is None:
            return self.feature.coerce(rng.uniform(*self.bounds()))
        first, last = self._grid_ends(step)
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
        aim, choices = float(goal), self.choices()
        inside = min(max(aim, self.low), self.high)
        if choices is not None:
            points = [float(choice) for choice in choices if choice is not None]
        elif (step := self._grid) is None:
            points = [inside]
        else:
            below = math.floor((inside - self.start) / step)
            points = [self.start + step * steps for steps in (below, below + 1)]
        typed = [self.feature.coerce(point) for point in points if abs(point) <= LARGEST]
        gaps = {v: abs(float(v) - aim) for v in typed if v is not None and self.admits(v)}
        best = min(gaps, key=gaps.__getitem__, default=None)
        stay = math.inf if must_move or self.now is None else abs(float(self.now) - aim)
        return self.now if best is None or gaps[best] >= stay else best

    def bounds(self) -> tuple[float, float]:
        """Return a number's interval; open ends are closed in proportion to the present value."""
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
        words = interval_words(self.low, self.high)
        if self.step:
            words += f" in steps of {format_number(self.step)}"
        barred = sorted(float(v) for v in self.never if isinstance(v, (int, float)))
        inside = [format_number(v) for v in barred if self.low <= v <= self.high]
        named = inside if len(inside) <= 4 else [inside[0], "…", inside[-1]]
        return f"{words}, never {', '.join(named)}" if inside else words


def interval_words(low: float, high: float) -> str:
    """Say an interval as a person would.

    >>> interval_words(3, 5), interval_words(3, LARGEST)
    ('3 to 5', '3 or more')
    """
    if high >= LARGEST:
        return "any number" if low <= -LARGEST else f"{format_number(low)} or more"
    upper = format_number(high)
    return f"up to {upper}" if low <= -LARGEST else f"{format_number(low)} to {upper}"


Check = Callable[[Row, Row], str | None]
Narrow = Callable[[Lever], Lever]
Unmet = Callable[[Mapping[str, "Reach"]], str | None]


@dataclass(frozen=True, slots=True)
class Bound:
    """A rule, or its part about one feature, bound to a table.

    ``check`` returns why a candidate breaks it, if it does. ``narrow`` returns what it leaves of
    the levers of ``narrows``. ``unmet`` says why no row within reach can keep it, if that is so.
    """

    features: tuple[str, ...]
    check: Check
    narrow: Narrow | None = None
    narrows: tuple[str, ...] = ()
    unmet: Unmet | None = None


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule. It is described by values alone and judges once it is bound to a table."""

    kind: ClassVar[str]
    name: str = ""
    why: str = ""

    @property
    def subject(self) -> str:
        """The features that the rule names."""
        one = getattr(self, "feature", None)
        return " ".join(map(str, getattr(self, "features", ()))) if one is None else str(one)

    @property
    def text(self) -> str:
        """The rule in a few words: its kind and subject, unless it can say more."""
        return f"{self.kind} {self.subject}".strip()

    @property
    def label(self) -> str:
        """The rule's name, or its text where it has none."""
        return self.name or self.text

    @property
    def says(self) -> str:
        """What the rule demands, in a line; a rule whose text does not tell says its label."""
        return self.label

    def bind(self, rules: RuleSet) -> tuple[Bound, ...]:
        """Return the rule's parts for one table; raise `RuleError` where it cannot hold there."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Stated(Rule):
    """A rule whose text says all that it demands."""

    @property
    def says(self) -> str:
        """The rule's text."""
        return self.text


# Reading the fields of a rule: a wrong one fails with its value and the remedy.


def find_feature(schema: Schema, name: object) -> tuple[int, Feature]:
    """Return a feature and its position, or say which there are."""
    if not isinstance(name, str):
        raise RuleError(f"a feature is named by text, not {shown(name)}")
    try:
        return schema.index(name), schema[name]
    except SchemaError as error:
        raise RuleError(str(error)) from None


def find_features(schema: Schema, names: object) -> list[tuple[int, Feature]]:
    """Return the features of a list, each once."""
    if not isinstance(names, (list, tuple)) or not names:
        raise RuleError(f"features is a list of names, not {shown(names)}")
    if len(set(map(str, names))) != len(names):
        raise RuleError(f"a feature is listed twice in {list(names)!r}")
    return [find_feature(schema, name) for name in names]


def read_value(feature: Feature, raw: object) -> Value:
    """Return a rule's value, typed by its feature."""
    try:
        value = feature.parse(raw)
    except RowError as error:
        raise RuleError(f"feature {feature.name!r}: {error.reason}") from None
    if value is None:
        raise RuleError(f"feature {feature.name!r}: a rule cannot ask for a missing value")
    return value


def read_values(feature: Feature, raws: object) -> tuple[Value, ...]:
    """Return a rule's values, typed by their feature."""
    if not isinstance(raws, (list, tuple)) or not raws:
        raise RuleError(f"feature {feature.name!r}: pass a list of values, not {shown(raws)}")
    return tuple(read_value(feature, raw) for raw in raws)


def read_number(what: str, raw: object) -> float:
    """Return a finite number."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not abs(raw) <= LARGEST:
        raise RuleError(f"{what} must be a finite number of at most ±1e15, not {shown(raw)}")
    return float(raw)


def read_limits(feature: Feature, low: object, high: object) -> tuple[float, float]:
    """Read a pair of limits for a numeric feature; both may not be absent, nor contradict."""
    if not feature.is_numeric:
        raise RuleError(f"feature {feature.name!r} is a {feature.kind}; min and max need a number")
    if low is None and high is None:
        raise RuleError(f"feature {feature.name!r}: set min, max or both")
    lowest = -LARGEST if low is None else read_number("min", low)
    highest = LARGEST if high is None else read_number("max", high)
    if lowest > highest:
        raise RuleError(f"feature {feature.name!r}: the range {low} to {high} is empty")
    return lowest, highest


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a condition asks of a value: to be one of a list, or within limits."""

    values: tuple[Value, ...] | None = None
    low: float = -LARGEST
    high: float = LARGEST

    def __call__(self, value: Value) -> bool:
        """Whether a value is as asked."""
        if self.values is not None:
            return value in self.values
        number = float(cast(float, value))
        return at_most(self.low, number) and at_most(number, self.high)


Condition = tuple[int, Feature, Wanted]


def read_conditions(schema: Schema, part: str, table: object) -> list[Condition]:
    """Return the conditions of a table, such as ``{ age = { max = 20 }, job = ["cook"] }``."""
    if not isinstance(table, Mapping) or not table:
        raise RuleError(f"{part} is a table such as {{ age = {{ max = 20 }} }}, not {shown(table)}")

    def test(feature: Feature, want: object) -> Wanted:
        if not isinstance(want, Mapping):
            listed = want if isinstance(want, (list, tuple)) else [want]
            return Wanted(read_values(feature, listed))
        if extra := set(want) - {"min", "max"}:
            raise RuleError(unknown("condition", min(extra), ["min", "max"]))
        low, high = read_limits(feature, want.get("min"), want.get("max"))
        return Wanted(low=low, high=high)

    found = ((*find_feature(schema, name), want) for name, want in table.items())
    return [(i, feature, test(feature, want)) for i, feature, want in found]


def condition_words(table: Mapping[str, Any]) -> str:
    """Say conditions as a person would."""

    def one(name: str, want: object) -> str:
        if isinstance(want, Mapping):
            limits = {"min": ">=", "max": "<="}
            return " and ".join(f"{name} {limits.get(k, k)} {v}" for k, v in want.items())
        if isinstance(want, (list, tuple)):
            return f"{name} among {', '.join(map(str, want))}"
        return f"{name} = {want}"

    return " and ".join(one(name, want) for name, want in table.items())
