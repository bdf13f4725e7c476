"""The kinds of rules; `docs/cards.md` shows how each is written in a card.

A rule about a *state* (range, allowed, one-hot, linear, implies, exclude) must hold in the
candidate even where the query itself breaks it, so that a bad start is moved or named, never passed
through. A rule about a *move* (immutable, step, never, direction, transitions, linked, max-changes)
looks at what changed: an applicant whose income is off the grid need not change it.
"""
# ruff: noqa: D102  # what these methods do is said once, in their base class

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from waysout.domain.rules.base import (
    SMALLEST,
    Bound,
    Check,
    Lever,
    Narrow,
    Rule,
    Stated,
    at_most,
    condition_words,
    find_feature,
    find_features,
    interval_words,
    on_grid,
    read_conditions,
    read_limits,
    read_number,
    read_value,
    read_values,
)
from waysout.domain.rules.comparison import COMPARISONS, Comparison, parse_comparison
from waysout.domain.schema import Feature, Row, Schema, Value, format_number
from waysout.errors import RuleError, is_ctrl_c, shown, unknown

if TYPE_CHECKING:
    from waysout.domain.rules import RuleSet
    from waysout.domain.rules.reach import Reach

# That a comparison cannot hold is said only where rounding is no part of it.
_SLACK = 1e-9


def _moved(feature: Feature, before: Value, after: Value) -> str:
    ends = ["missing" if v is None else feature.format(v) for v in (before, after)]
    return f"{feature.name} goes from {ends[0]} to {ends[1]}"


def _refuse_opaque(feature: Feature) -> None:
    if feature.is_opaque:
        raise RuleError(
            f"feature {feature.name!r} is opaque, so it never changes: such a rule needs another "
            "kind of feature"
        )


@dataclass(frozen=True, kw_only=True)
class FeatureRule(Rule):
    """A rule about one feature, or about several one by one."""

    def part(self, i: int, feature: Feature) -> tuple[Check, Narrow]:
        """Return how the rule judges and narrows the feature at this position."""
        raise NotImplementedError

    def bind(self, rules: RuleSet) -> tuple[Bound, ...]:
        one = getattr(self, "feature", None)
        several = getattr(self, "features", None)
        found = find_features(rules.schema, [one] if several is None else several)
        if not isinstance(self, Immutable):
            for _, feature in found:
                _refuse_opaque(feature)
        parts = ((f.name, *self.part(i, f)) for i, f in found)
        return tuple(Bound((name,), check, narrow, (name,)) for name, check, narrow in parts)


@dataclass(frozen=True, kw_only=True)
class Immutable(FeatureRule):
    """The value does not change."""

    kind: ClassVar[str] = "immutable"
    features: Sequence[str]

    def part(self, i: int, feature: Feature) -> tuple[Check, Narrow]:
        def check(query: Row, candidate: Row) -> str | None:
            if query[i] == candidate[i]:
                return None
            return f"{_moved(feature, query[i], candidate[i])} but is fixed"

        return check, lambda lever: lever.block(self.label, self.why or "may not change")


@dataclass(frozen=True, kw_only=True)
class Range(FeatureRule):
    """The value lies within limits, whether it changed or not.

    A feature's own ``range`` bounds what may be proposed; this one is a demand on results.
    """

    kind: ClassVar[str] = "range"
    feature: str
    min: float | None = None
    max: float | None = None

    def part(self, i: int, feature: Feature) -> tuple[Check, Narrow]:
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

        return check, lambda lever: lever.within(low, high)


@dataclass(frozen=True, kw_only=True)
class Step(FeatureRule):
    """A changed value lies on a grid."""

    kind: ClassVar[str] = "step"
    feature: str
    step: float
    start: float = 0.0

    def part(self, i: int, feature: Feature) -> tuple[Check, Narrow]:
        step, start = read_number("step", self.step), read_number("start", self.start)
        if not feature.is_numeric:
            raise RuleError(f"feature {feature.name!r} is a {feature.kind}; a step needs a number")
        if step < SMALLEST:
            least = "above 0" if step <= 0 else f"at least {SMALLEST:g}"
            raise RuleError(
                f"feature {feature.name!r}: step must be {least}, not {shown(self.step)}"
            )
        if feature.kind == "integer" and not (step.is_integer() and start.is_integer()):
            raise RuleError(f"feature {feature.name!r} is an integer; its step and start are too")

        def check(query: Row, candidate: Row) -> str | None:
            value = candidate[i]
            if value is None or value == query[i] or on_grid(start, step, float(value)):
                return None
            return f"{feature.name} is {feature.format(value)}, not on the grid of {self.step}"

        return check, lambda lever: lever.on(step, start)


@dataclass(frozen=True, kw_only=True)
class Allowed(FeatureRule):
    """The value is one of a list, whether it changed or not."""

    kind: ClassVar[str] = "allowed"
    feature: str
    values: Sequence[Value]

    def part(self, i: int, feature: Feature) -> tuple[Check, Narrow]:
        values = dict.fromkeys(read_values(feature, self.values))

        def check(query: Row, candidate: Row) -> str | None:
            if candidate[i] is None or candidate[i] in values:
                return None
            return f"{feature.name} is {feature.format(candidate[i])}, which is not allowed"

        return check, lambda lever: lever.only(values)


@dataclass(frozen=True, kw_only=True)
class Never(FeatureRule):
    """A changed value is none of a list: codes such as "not applicable" may stay, but are no goal.

    (`Allowed` would also forbid them to stay.)
    """

    kind: ClassVar[str] = "never"
    features: Sequence[str]
    values: Sequence[Value]

    def part(self, i: int, feature: Feature) -> tuple[Check, Narrow]:
        values = frozenset(read_values(feature, self.values))

        def check(query: Row, candidate: Row) -> str | None:
            if candidate[i] == query[i] or candidate[i] not in values:
                return None
            return f"{feature.name} is set to {feature.format(candidate[i])}"

        return check, lambda lever: lever.without(values)


@dataclass(frozen=True, kw_only=True)
class Direction(FeatureRule):
    """A changed value has moved up, or down."""

    kind: ClassVar[str] = "direction"
    features: Sequence[str]
    direction: str

    @property
    def text(self) -> str:
        return f"{self.subject} only {self.direction}"

    def part(self, i: int, feature: Feature) -> tuple[Check, Narrow]:
        if self.direction not in ("up", "down"):
            raise RuleError(unknown("direction", self.direction, ["up", "down"]))
        if feature.kind == "category" and not feature.ordered:
            raise RuleError(
                f"feature {feature.name!r} has no order: list its levels from low to high and "
                "set ordered = true"
            )
        sign = 1.0 if self.direction == "up" else -1.0

        def follows(before: Value, after: Value) -> bool:
            if before is None or after is None:
                return True
            return sign * (feature.encode(after) - feature.encode(before)) >= 0

        def check(query: Row, candidate: Row) -> str | None:
            if candidate[i] == query[i] or follows(query[i], candidate[i]):
                return None
            move = _moved(feature, query[i], candidate[i])
            return f"{move}; it may only go {self.direction}"

        def narrow(lever: Lever) -> Lever:
            if lever.now is None:
                return lever
            if not feature.is_numeric:
                return lever.only([v for v in feature.values() if follows(lever.now, v)])
            now = float(lever.now)
            return lever.within(low=now) if sign > 0 else lever.within(high=now)

        return check, narrow


@dataclass(frozen=True, kw_only=True)
class Transitions(FeatureRule):
    """Some moves from one value to another are forbidden."""

    kind: ClassVar[str] = "transitions"
    feature: str
    forbid: Mapping[str, Sequence[Value]]

    def part(self, i: int, feature: Feature) -> tuple[Check, Narrow]:
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
            return f"{_moved(feature, query[i], candidate[i])}, which is forbidden"

        return check, lambda lever: lever.without(closed(lever.now))


@dataclass(frozen=True, kw_only=True)
class Linked(Rule):
    """Editing one feature sets another, which is never edited by itself."""

    kind: ClassVar[str] = "linked"
    feature: str
    sets: str
    map: Mapping[str, Value]

    @property
    def text(self) -> str:
        return f"{self.feature} sets {self.sets}"

    def table(self, schema: Schema) -> dict[Value, Value]:
        """Return which value of the feature sets which value of the other, typed.

        Every level must be there: else what a row becomes would depend on the way it came.
        """
        source, target = find_feature(schema, self.feature)[1], find_feature(schema, self.sets)[1]
        if source.name == target.name:
            raise RuleError(f"feature {source.name!r} cannot be linked to itself")
        for feature in (source, target):
            _refuse_opaque(feature)
        if source.is_numeric:
            raise RuleError(f"feature {source.name!r} is a {source.kind}; a link needs levels")
        if not isinstance(self.map, Mapping) or not self.map:
            raise RuleError(f"map is a table such as {{ Masters = 14 }}, not {shown(self.map)}")
        table = {read_value(source, a): read_value(target, b) for a, b in self.map.items()}
        for value in source.values():
            if value not in table:
                raise RuleError(f"map lacks the level {source.format(value)!r} of {source.name!r}")
        low, high = target.range or (-math.inf, math.inf)
        for due in table.values():
            if target.is_numeric and not low <= float(cast(float, due)) <= high:
                raise RuleError(f"map sets {target.name!r} to {due}, outside its range")
        return table

    def bind(self, rules: RuleSet) -> tuple[Bound, ...]:
        table = self.table(rules.schema)
        i, source = find_feature(rules.schema, self.feature)
        j, target = find_feature(rules.schema, self.sets)

        def check(query: Row, candidate: Row) -> str | None:
            due = table.get(candidate[i], query[j])
            same = (candidate[i], candidate[j]) == (query[i], query[j])
            if same or candidate[j] == due:
                return None
            return (
                f"{source.name} is {source.format(candidate[i])}, so {target.name} must be "
                f"{target.format(due)}, not {target.format(candidate[j])}"
            )

        def narrow(lever: Lever) -> Lever:
            return lever.block(self.label, f"set by {source.name}")

        return (Bound((source.name, target.name), check, narrow, (target.name,)),)


@dataclass(frozen=True, kw_only=True)
class OneHot(Rule):
    """Exactly one feature of a group is true; setting one clears the others.

    With ``or_none`` all may be false, as in dummies whose first level was dropped.
    """

    kind: ClassVar[str] = "one-hot"
    features: Sequence[str]
    or_none: bool = False

    def bind(self, rules: RuleSet) -> tuple[Bound, ...]:
        where = find_features(rules.schema, self.features)
        if len(where) < 2:
            raise RuleError("a one-hot group needs at least two features")
        for _, feature in where:
            if feature.kind not in ("boolean", "integer"):
                raise RuleError(f"feature {feature.name!r} is a {feature.kind}, not true/false")
        if not isinstance(self.or_none, bool):
            raise RuleError(f"or_none is true or false, not {shown(self.or_none)}")
        names = tuple(feature.name for _, feature in where)
        none = [0.0] * len(where)
        wanted = [[*none[1:], 1.0], *([none] if self.or_none else [])]

        def check(query: Row, candidate: Row) -> str | None:
            values = (candidate[i] for i, _ in where)
            if sorted(0.5 if v is None else float(v) for v in values) in wanted:
                return None
            on = ", ".join(f.name for i, f in where if candidate[i]) or "none"
            how_many = "at most" if self.or_none else "exactly"
            return f"{how_many} one of {', '.join(names)} must be true; {on} is"

        def narrow(lever: Lever) -> Lever:
            # Clearing one says nothing of which comes instead: a group is moved by setting one.
            off, on = (False, True) if lever.feature.kind == "boolean" else (0, 1)
            return lever.only([off, on] if self.or_none else [on])

        return (Bound(names, check, narrow, names),)


@dataclass(frozen=True, kw_only=True)
class Linear(Stated):
    """A linear comparison of numbers holds."""

    kind: ClassVar[str] = "linear"
    that: str

    @property
    def text(self) -> str:
        return str(self.that)

    def bind(self, rules: RuleSet) -> tuple[Bound, ...]:
        parsed = parse_comparison(self.that)
        terms = []
        for name, coefficient in parsed.terms:
            try:
                i, feature = find_feature(rules.schema, name)
            except RuleError as error:
                hint = " (a name such as capital-gain stands in `backticks`)"
                raise RuleError(f"{self.that!r}: {error}{hint}") from None
            _refuse_opaque(feature)
            if feature.kind == "category":
                raise RuleError(f"{self.that!r}: feature {feature.name!r} is a category")
            terms.append((i, feature, coefficient))

        def check(query: Row, candidate: Row) -> str | None:
            values = [candidate[i] for i, *_ in terms]
            if None in values:
                return None
            left = parsed.left_side(cast(list[float], values))
            if COMPARISONS[parsed.comparison](left, 0.0):
                return None
            held = ", ".join(f"{f.name} = {f.format(candidate[i])}" for i, f, _ in terms)
            return f"{self.that} does not hold for {held}"

        def unmet(reach: Mapping[str, Reach]) -> str | None:
            ends = [(f, c, reach[f.name].numbers()) for _, f, c in terms]
            known = [(f, c, pair) for f, c, pair in ends if pair is not None]
            if len(known) < len(ends):
                return None  # it holds where a value is missing
            # The sum's least and greatest value are at corners, for each term by itself.
            why = _missed(parsed, known, 1) or _missed(parsed, known, -1)
            return why and f"{self.that} cannot be met: {why}"

        return (Bound(tuple(f.name for _, f, _ in terms), check, unmet=unmet),)


def _missed(
    parsed: Comparison, terms: Sequence[tuple[Feature, float, tuple[float, float]]], side: int
) -> str | None:
    """Say why a comparison fails even where it comes nearest to holding, if it does.

    ``side`` is 1 for the least value that its sum can have, -1 for the greatest.
    """
    if parsed.comparison not in {1: ("<", "<=", "=="), -1: (">", ">=", "==")}[side]:
        return None
    corner = [(f, ends, ends[0 if side * c > 0 else 1]) for f, c, ends in terms]
    over = side * parsed.left_side([value for *_, value in corner])
    products = [c * value for (_, c, _), (*_, value) in zip(terms, corner, strict=True)]
    slack = _SLACK * (abs(parsed.constant) + sum(map(abs, products)))
    if over <= slack and not (over >= 0 and parsed.comparison in ("<", ">")):
        return None
    short = f", which misses it by {format_number(float(f'{over:.12g}'))}" if over > slack else ""
    return f"{' and '.join(_at_end(*at) for at in corner)}{short}"


def _at_end(feature: Feature, ends: tuple[float, float], value: float) -> str:
    side = "" if ends[0] == ends[1] else "at least " if value == ends[0] else "at most "
    return f"{feature.name} is {side}{format_number(value)}"


@dataclass(frozen=True, kw_only=True)
class Implies(Stated):
    """Where some conditions hold, others hold too."""

    kind: ClassVar[str] = "implies"
    when: Mapping[str, Any]
    then: Mapping[str, Any]

    @property
    def text(self) -> str:
        return f"{condition_words(self.when)} implies {condition_words(self.then)}"

    def bind(self, rules: RuleSet) -> tuple[Bound, ...]:
        when = read_conditions(rules.schema, "when", self.when)
        then = read_conditions(rules.schema, "then", self.then)

        def check(query: Row, candidate: Row) -> str | None:
            if not all(candidate[i] is not None and test(candidate[i]) for i, _, test in when):
                return None
            for i, feature, test in then:
                if candidate[i] is not None and not test(candidate[i]):
                    value = feature.format(candidate[i])
                    return f"with {condition_words(self.when)}, {feature.name} cannot be {value}"
            return None

        def unmet(reach: Mapping[str, Reach]) -> str | None:
            if any(reach[f.name].can_miss(test) for _, f, test in when):
                return None
            for (_, feature, test), want in zip(then, self.then.items(), strict=True):
                held = reach[feature.name]
                if None not in held.others and not held.can_meet(test):
                    always = condition_words(self.when)
                    return f"{always} cannot be changed, nor {condition_words(dict([want]))} met"
            return None

        features = tuple(dict.fromkeys(f.name for _, f, _ in when + then))
        return (Bound(features, check, unmet=unmet),)


@dataclass(frozen=True, kw_only=True)
class Exclude(Stated):
    """Some conditions never hold all at once."""

    kind: ClassVar[str] = "exclude"
    values: Mapping[str, Any]

    @property
    def text(self) -> str:
        return f"never {condition_words(self.values)}"

    def bind(self, rules: RuleSet) -> tuple[Bound, ...]:
        conditions = read_conditions(rules.schema, "values", self.values)

        def check(query: Row, candidate: Row) -> str | None:
            met = all(candidate[i] is not None and test(candidate[i]) for i, _, test in conditions)
            return f"{condition_words(self.values)} is excluded" if met else None

        def unmet(reach: Mapping[str, Reach]) -> str | None:
            if any(reach[feature.name].can_miss(test) for _, feature, test in conditions):
                return None
            return f"{condition_words(self.values)} is excluded, and cannot be changed"

        return (Bound(tuple(f.name for _, f, _ in conditions), check, unmet=unmet),)


@dataclass(frozen=True, kw_only=True)
class Custom(Rule):
    """A function of the user's own judges query and candidate, given as mappings.

    A card names it as ``module:function``. Importing it runs code, so a card's custom rules work
    only if it is loaded with ``trust_code=True``.
    """

    kind: ClassVar[str] = "custom"
    call: Callable[[dict[str, Any], dict[str, Any]], str | bool | None] | str

    @property
    def text(self) -> str:
        return getattr(self.call, "__name__", str(self.call))

    def bind(self, rules: RuleSet) -> tuple[Bound, ...]:
        if isinstance(self.call, str) or not callable(self.call):
            raise RuleError(
                f"custom rule {self.call!r} runs code: load the card with trust_code=True if you "
                "trust it"
            )
        call, as_dict = self.call, rules.schema.as_dict

        def check(query: Row, candidate: Row) -> str | None:
            try:
                verdict = call(as_dict(query), as_dict(candidate))
                if isinstance(verdict, str):
                    return str(verdict) or None
                return None if verdict is None or bool(verdict) else "the custom rule says no"
            except BaseException as error:  # one that exits or panics must not end the service
                if is_ctrl_c(error):
                    raise
                raise RuleError(f"custom rule {self.label!r} broke: {error!r}") from error

        return (Bound((), check),)

    def trusted(self) -> Custom:
        """Return the rule with a ``module:function`` name imported: runs that module's code."""
        if not isinstance(self.call, str):
            return self
        module, _, function = self.call.partition(":")
        try:
            found = getattr(importlib.import_module(module), function)
        except BaseException as error:  # of code that is imported
            if is_ctrl_c(error):
                raise
            raise RuleError(f"custom rule {self.call!r} cannot be imported: {error}") from error
        return Custom(name=self.name or self.call, why=self.why, call=found)


@dataclass(frozen=True, kw_only=True)
class MaxChanges(Stated):
    """No more features change than this; linked ones count as one."""

    kind: ClassVar[str] = "max-changes"
    at_most: int

    @property
    def text(self) -> str:
        return f"at most {self.at_most} changes"

    def bind(self, rules: RuleSet) -> tuple[Bound, ...]:
        if isinstance(self.at_most, bool) or not isinstance(self.at_most, int) or self.at_most < 1:
            raise RuleError(f"at_most is a whole number of at least 1, not {shown(self.at_most)}")

        def check(query: Row, candidate: Row) -> str | None:
            count = rules.count_changes(query, candidate)
            return None if count <= self.at_most else f"{count} features change"

        return (Bound((), check),)
