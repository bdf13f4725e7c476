"""Rules about one feature at a time.

A rule about a *state* (range, allowed) must hold in the candidate even where the query itself
breaks it, so that a bad start is moved or named, never passed through. A rule about a *move*
(immutable, step, never, direction, transitions) looks at what changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from waysout.domain.rules.base import (
    Bound,
    Check,
    Context,
    Lever,
    Narrow,
    Rule,
    at_most,
    interval_words,
    on_grid,
)
from waysout.domain.rules.reading import (
    find_feature,
    find_features,
    moved,
    read_limits,
    read_number,
    read_value,
    read_values,
)
from waysout.domain.schema import Feature, Row, Value
from waysout.errors import RuleError, shown, unknown


def _bound(feature: Feature, check: Check, narrow: Narrow) -> Bound:
    return Bound((feature.name,), check, narrow, (feature.name,))


@dataclass(frozen=True, kw_only=True)
class Immutable(Rule):
    """The value does not change."""

    kind: ClassVar[str] = "immutable"
    features: Sequence[str]

    def bind(self, context: Context) -> tuple[Bound, ...]:
        return tuple(self._fix(i, f) for i, f in find_features(context.schema, self.features))

    def _fix(self, i: int, feature: Feature) -> Bound:
        def check(query: Row, candidate: Row) -> str | None:
            if query[i] == candidate[i]:
                return None
            return f"{feature.name} {moved(feature, query[i], candidate[i])} but is fixed"

        reason = self.why or "may not change"
        return _bound(feature, check, lambda lever: lever.block(self.label, reason))


@dataclass(frozen=True, kw_only=True)
class Range(Rule):
    """The value lies within limits, whether it changed or not."""

    kind: ClassVar[str] = "range"
    feature: str
    min: float | None = None
    max: float | None = None

    def bind(self, context: Context) -> tuple[Bound, ...]:
        i, feature = find_feature(context.schema, self.feature)
        low, high = read_limits(feature, self.min, self.max)
        if feature.range and (feature.range[0] > high or feature.range[1] < low):
            raise RuleError(
                f"feature {feature.name!r}: nothing of its range {list(feature.range)} is left"
            )

        def check(query: Row, candidate: Row) -> str | None:
            value = candidate[i]
            if value is None or (at_most(low, float(value)) and at_most(float(value), high)):
                return None
            limits = interval_words(low, high)
            return f"{feature.name} is {feature.format(value)}, must be {limits}"

        return (_bound(feature, check, lambda lever: lever.within(low, high)),)


@dataclass(frozen=True, kw_only=True)
class Step(Rule):
    """A changed value lies on a grid."""

    kind: ClassVar[str] = "step"
    feature: str
    step: float
    start: float = 0.0

    def bind(self, context: Context) -> tuple[Bound, ...]:
        i, feature = find_feature(context.schema, self.feature)
        step, start = read_number("step", self.step), read_number("start", self.start)
        if not feature.is_numeric:
            raise RuleError(f"feature {feature.name!r} is a {feature.kind}; a step needs a number")
        if step <= 0:
            raise RuleError(
                f"feature {feature.name!r}: step must be above 0, not {shown(self.step)}"
            )
        if feature.kind == "integer" and not (step.is_integer() and start.is_integer()):
            raise RuleError(f"feature {feature.name!r} is an integer; its step and start are too")

        def check(query: Row, candidate: Row) -> str | None:
            value = candidate[i]
            if value is None or value == query[i] or on_grid(start, step, float(value)):
                return None
            return f"{feature.name} is {feature.format(value)}, not on the grid of {self.step}"

        return (_bound(feature, check, lambda lever: lever.on(step, start)),)


@dataclass(frozen=True, kw_only=True)
class Allowed(Rule):
    """The value is one of a list, whether it changed or not."""

    kind: ClassVar[str] = "allowed"
    feature: str
    values: Sequence[Value]

    def bind(self, context: Context) -> tuple[Bound, ...]:
        i, feature = find_feature(context.schema, self.feature)
        values = dict.fromkeys(read_values(feature, self.values))

        def check(query: Row, candidate: Row) -> str | None:
            if candidate[i] is None or candidate[i] in values:
                return None
            return f"{feature.name} is {feature.format(candidate[i])}, which is not allowed"

        return (_bound(feature, check, lambda lever: lever.only(values)),)


@dataclass(frozen=True, kw_only=True)
class Never(Rule):
    """A changed value is none of a list: codes such as "not applicable" are never proposed."""

    kind: ClassVar[str] = "never"
    features: Sequence[str]
    values: Sequence[Value]

    def bind(self, context: Context) -> tuple[Bound, ...]:
        return tuple(self._bar(i, f) for i, f in find_features(context.schema, self.features))

    def _bar(self, i: int, feature: Feature) -> Bound:
        values = frozenset(read_values(feature, self.values))

        def check(query: Row, candidate: Row) -> str | None:
            if candidate[i] == query[i] or candidate[i] not in values:
                return None
            return f"{feature.name} is set to {feature.format(candidate[i])}"

        return _bound(feature, check, lambda lever: lever.without(values))


@dataclass(frozen=True, kw_only=True)
class Direction(Rule):
    """A changed value has moved up, or down."""

    kind: ClassVar[str] = "direction"
    features: Sequence[str]
    direction: str

    @property
    def label(self) -> str:
        return self.name or f"{self.subject} only {self.direction}"

    def bind(self, context: Context) -> tuple[Bound, ...]:
        if self.direction not in ("up", "down"):
            raise RuleError(unknown("direction", self.direction, ["up", "down"]))
        return tuple(self._steer(i, f) for i, f in find_features(context.schema, self.features))

    def _steer(self, i: int, feature: Feature) -> Bound:
        if feature.kind == "category" and not feature.ordered:
            raise RuleError(
                f"feature {feature.name!r} has no order: list its levels from low to high and "
                "set ordered = true"
            )

        def check(query: Row, candidate: Row) -> str | None:
            if candidate[i] == query[i] or self._follows(feature, query[i], candidate[i]):
                return None
            move = moved(feature, query[i], candidate[i])
            return f"{feature.name} {move}; it may only go {self.direction}"

        return _bound(feature, check, self._narrow)

    def _follows(self, feature: Feature, before: Value, after: Value) -> bool:
        if before is None or after is None:
            return True
        rise = feature.encode(after) - feature.encode(before)
        return rise >= 0 if self.direction == "up" else rise <= 0

    def _narrow(self, lever: Lever) -> Lever:
        if lever.now is None:
            return lever
        if not lever.feature.is_numeric:
            values = lever.feature.values()
            return lever.only([v for v in values if self._follows(lever.feature, lever.now, v)])
        now = float(lever.now)
        return lever.within(low=now) if self.direction == "up" else lever.within(high=now)


@dataclass(frozen=True, kw_only=True)
class Transitions(Rule):
    """Some moves from one value to another are forbidden."""

    kind: ClassVar[str] = "transitions"
    feature: str
    forbid: Mapping[str, Sequence[Value]]

    def bind(self, context: Context) -> tuple[Bound, ...]:
        i, feature = find_feature(context.schema, self.feature)
        if not isinstance(self.forbid, Mapping) or not self.forbid:
            raise RuleError(
                f"forbid is a table such as {{ from = ['to'] }}, not {shown(self.forbid)}"
            )
        by_value: dict[Value, frozenset[Value]] = {}
        from_any: frozenset[Value] = frozenset()
        for before, after in self.forbid.items():
            if before == "*":
                from_any = frozenset(read_values(feature, after))
            else:
                by_value[read_value(feature, before)] = frozenset(read_values(feature, after))

        def closed(before: Value) -> frozenset[Value]:
            return by_value.get(before, frozenset()) | from_any

        def check(query: Row, candidate: Row) -> str | None:
            if candidate[i] == query[i] or candidate[i] not in closed(query[i]):
                return None
            move = moved(feature, query[i], candidate[i])
            return f"{feature.name} {move}, which is forbidden"

        return (_bound(feature, check, lambda lever: lever.without(closed(lever.now))),)
