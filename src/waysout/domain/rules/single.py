"""Rules about one feature at a time.

A rule about a *state* (range, allowed) must hold in the candidate even where the query itself
breaks it, so that a bad start is moved or named, never passed through. A rule about a *move*
(immutable, step, never, direction, transitions) looks at what changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from waysout.domain.rules.base import TOLERANCE, Check, Context, Lever, Rule, on_grid
from waysout.domain.rules.reading import (
    find_feature,
    find_features,
    moved,
    read_limits,
    read_number,
    read_value,
    read_values,
)
from waysout.domain.schema import LARGEST, Feature, Row, Value
from waysout.errors import RuleError, unknown


@dataclass(frozen=True, kw_only=True)
class Immutable(Rule):
    """The value does not change."""

    kind: ClassVar[str] = "immutable"
    features: Sequence[str]

    def bind(self, context: Context) -> Check:
        where = find_features(context.schema, self.features)

        def check(query: Row, candidate: Row) -> str | None:
            for i, feature in where:
                if query[i] != candidate[i]:
                    return f"{feature.name} {moved(feature, query[i], candidate[i])} but is fixed"
            return None

        return check

    def narrow(self, lever: Lever) -> Lever:
        return lever.block(self.why or "may not change")


@dataclass(frozen=True, kw_only=True)
class Range(Rule):
    """The value lies within limits, whether it changed or not."""

    kind: ClassVar[str] = "range"
    feature: str
    min: float | None = None
    max: float | None = None

    def bind(self, context: Context) -> Check:
        i, feature = find_feature(context.schema, self.feature)
        low, high = read_limits(feature, self.min, self.max)
        if feature.range and (feature.range[0] > high or feature.range[1] < low):
            raise RuleError(
                f"feature {feature.name!r}: nothing of its range {list(feature.range)} is left"
            )

        def check(query: Row, candidate: Row) -> str | None:
            value = candidate[i]
            if value is None or low - TOLERANCE <= float(value) <= high + TOLERANCE:
                return None
            limits = Lever(feature, None, low=low, high=high).describe()
            return f"{feature.name} is {feature.format(value)}, must be {limits}"

        return check

    def narrow(self, lever: Lever) -> Lever:
        return lever.within(
            -LARGEST if self.min is None else self.min, LARGEST if self.max is None else self.max
        )


@dataclass(frozen=True, kw_only=True)
class Step(Rule):
    """A changed value lies on a grid."""

    kind: ClassVar[str] = "step"
    feature: str
    step: float
    start: float = 0.0

    def bind(self, context: Context) -> Check:
        i, feature = find_feature(context.schema, self.feature)
        step, start = read_number("step", self.step), read_number("start", self.start)
        if not feature.is_numeric:
            raise RuleError(f"feature {feature.name!r} is a {feature.kind}; a step needs a number")
        if step <= 0:
            raise RuleError(f"feature {feature.name!r}: step must be above 0, not {self.step!r}")
        if feature.kind == "integer" and not (step.is_integer() and start.is_integer()):
            raise RuleError(f"feature {feature.name!r} is an integer; its step and start are too")

        def check(query: Row, candidate: Row) -> str | None:
            value = candidate[i]
            if value is None or value == query[i] or on_grid(start, step, float(value)):
                return None
            return f"{feature.name} is {feature.format(value)}, not on the grid of {self.step}"

        return check

    def narrow(self, lever: Lever) -> Lever:
        return replace(lever, step=float(self.step), start=float(self.start))


@dataclass(frozen=True, kw_only=True)
class Allowed(Rule):
    """The value is one of a list, whether it changed or not."""

    kind: ClassVar[str] = "allowed"
    feature: str
    values: Sequence[Value]

    def bind(self, context: Context) -> Check:
        i, feature = find_feature(context.schema, self.feature)
        values = read_values(feature, self.values)

        def check(query: Row, candidate: Row) -> str | None:
            if candidate[i] is None or candidate[i] in values:
                return None
            return f"{feature.name} is {feature.format(candidate[i])}, which is not allowed"

        return check

    def narrow(self, lever: Lever) -> Lever:
        return lever.only(read_values(lever.feature, self.values))


@dataclass(frozen=True, kw_only=True)
class Never(Rule):
    """A changed value is none of a list: codes such as "not applicable" are never proposed."""

    kind: ClassVar[str] = "never"
    features: Sequence[str]
    values: Sequence[Value]

    def bind(self, context: Context) -> Check:
        where = [
            (i, feature, read_values(feature, self.values))
            for i, feature in find_features(context.schema, self.features)
        ]

        def check(query: Row, candidate: Row) -> str | None:
            for i, feature, values in where:
                if candidate[i] != query[i] and candidate[i] in values:
                    return f"{feature.name} is set to {feature.format(candidate[i])}"
            return None

        return check

    def narrow(self, lever: Lever) -> Lever:
        return lever.without(read_values(lever.feature, self.values))


@dataclass(frozen=True, kw_only=True)
class Direction(Rule):
    """A changed value has moved up, or down."""

    kind: ClassVar[str] = "direction"
    features: Sequence[str]
    direction: str

    @property
    def label(self) -> str:
        return self.name or f"{' '.join(self.about)} only {self.direction}"

    def bind(self, context: Context) -> Check:
        if self.direction not in ("up", "down"):
            raise RuleError(unknown("direction", self.direction, ["up", "down"]))
        where = find_features(context.schema, self.features)
        for _, feature in where:
            if feature.kind == "category" and not feature.ordered:
                raise RuleError(
                    f"feature {feature.name!r} has no order: list its levels from low to high and "
                    "set ordered = true"
                )

        def check(query: Row, candidate: Row) -> str | None:
            for i, feature in where:
                if candidate[i] != query[i] and not self._follows(feature, query[i], candidate[i]):
                    move = moved(feature, query[i], candidate[i])
                    return f"{feature.name} {move}; it may only go {self.direction}"
            return None

        return check

    def _follows(self, feature: Feature, before: Value, after: Value) -> bool:
        if before is None or after is None:
            return True
        rise = feature.encode(after) - feature.encode(before)
        return rise >= 0 if self.direction == "up" else rise <= 0

    def narrow(self, lever: Lever) -> Lever:
        if lever.now is None:
            return lever
        if not lever.feature.is_numeric:
            values = lever.feature.values()
            return lever.only(v for v in values if self._follows(lever.feature, lever.now, v))
        now = float(lever.now)
        return lever.within(low=now) if self.direction == "up" else lever.within(high=now)


@dataclass(frozen=True, kw_only=True)
class Transitions(Rule):
    """Some moves from one value to another are forbidden."""

    kind: ClassVar[str] = "transitions"
    feature: str
    forbid: Mapping[str, Sequence[Value]]

    def _table(self, feature: Feature) -> dict[Value, tuple[Value, ...]]:
        if not isinstance(self.forbid, Mapping) or not self.forbid:
            raise RuleError(f"forbid is a table such as {{ from = ['to'] }}, not {self.forbid!r}")
        return {
            "*" if before == "*" else read_value(feature, before): read_values(feature, after)
            for before, after in self.forbid.items()
        }

    @staticmethod
    def _closed(table: Mapping[Value, tuple[Value, ...]], before: Value) -> tuple[Value, ...]:
        return table.get(before, ()) + table.get("*", ())

    def bind(self, context: Context) -> Check:
        i, feature = find_feature(context.schema, self.feature)
        table = self._table(feature)

        def check(query: Row, candidate: Row) -> str | None:
            if candidate[i] == query[i] or candidate[i] not in self._closed(table, query[i]):
                return None
            return f"{feature.name} {moved(feature, query[i], candidate[i])}, which is forbidden"

        return check

    def narrow(self, lever: Lever) -> Lever:
        return lever.without(self._closed(self._table(lever.feature), lever.now))
