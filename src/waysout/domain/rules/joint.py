"""Rules about several features together, and about the candidate as a whole."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from waysout.domain.rules.base import ROUNDING, Bound, Context, Lever, Rule, at_most
from waysout.domain.rules.linear import COMPARISONS, Comparison, parse_comparison
from waysout.domain.rules.reading import (
    find_feature,
    find_features,
    read_limits,
    read_value,
    read_values,
)
from waysout.domain.schema import Feature, Row, Schema, Value
from waysout.errors import RuleError, shown, unknown


@dataclass(frozen=True, kw_only=True)
class Linked(Rule):
    """Editing one feature sets another, which is never edited by itself."""

    kind: ClassVar[str] = "linked"
    feature: str
    sets: str
    map: Mapping[str, Value]

    @property
    def subject(self) -> str:
        return f"{self.feature} sets {self.sets}"

    @property
    def label(self) -> str:
        return self.name or self.subject

    def table(self, schema: Schema) -> dict[Value, Value]:
        """Return which value of the feature sets which value of the other, typed.

        Every level must be there: else what a row becomes would depend on the way it came.
        """
        source, target = find_feature(schema, self.feature)[1], find_feature(schema, self.sets)[1]
        if source.name == target.name:
            raise RuleError(f"feature {source.name!r} cannot be linked to itself")
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

    def bind(self, context: Context) -> tuple[Bound, ...]:
        table = self.table(context.schema)
        i, source = find_feature(context.schema, self.feature)
        j, target = find_feature(context.schema, self.sets)

        def check(query: Row, candidate: Row) -> str | None:
            if (candidate[i], candidate[j]) == (query[i], query[j]):
                return None
            due = table.get(candidate[i], query[j])
            if candidate[j] == due:
                return None
            return (
                f"{source.name} is {source.format(candidate[i])}, so {target.name} must be "
                f"{target.format(due)}, not {target.format(candidate[j])}"
            )

        both, reason = (source.name, target.name), f"set by {source.name}"
        held = (target.name,)
        return (Bound(both, check, lambda lever: lever.block(self.label, reason), held),)


@dataclass(frozen=True, kw_only=True)
class OneHot(Rule):
    """Exactly one feature of a group is true; setting one clears the others."""

    kind: ClassVar[str] = "one-hot"
    features: Sequence[str]

    def bind(self, context: Context) -> tuple[Bound, ...]:
        where = find_features(context.schema, self.features)
        if len(where) < 2:
            raise RuleError("a one-hot group needs at least two features")
        for _, feature in where:
            if feature.kind not in ("boolean", "integer"):
                raise RuleError(f"feature {feature.name!r} is a {feature.kind}, not true/false")
        names = tuple(feature.name for _, feature in where)
        wanted = [0.0] * (len(where) - 1) + [1.0]

        def check(query: Row, candidate: Row) -> str | None:
            values = (candidate[i] for i, _ in where)
            if sorted(0.5 if v is None else float(v) for v in values) == wanted:
                return None
            on = ", ".join(f.name for i, f in where if candidate[i]) or "none"
            return f"exactly one of {', '.join(names)} must be true; {on} is"

        # Clearing one says nothing of which comes instead: a group is moved by setting one.
        return (Bound(names, check, _only_set, names),)


def _only_set(lever: Lever) -> Lever:
    return lever.only([True if lever.feature.kind == "boolean" else 1])


@dataclass(frozen=True, kw_only=True)
class Linear(Rule):
    """A linear comparison of numbers holds."""

    kind: ClassVar[str] = "linear"
    that: str

    @property
    def label(self) -> str:
        return self.name or self.says

    @property
    def says(self) -> str:
        return str(self.that)

    def bind(self, context: Context) -> tuple[Bound, ...]:
        parsed = parse_comparison(self.that)
        terms = [(*self._find(context.schema, name), c) for name, c in parsed.terms]

        def check(query: Row, candidate: Row) -> str | None:
            parts = [(c, candidate[i]) for i, _, c in terms]
            if any(v is None for _, v in parts):
                return None
            products = [c * float(cast(float, v)) for c, v in parts]
            if _holds(parsed, products):
                return None
            values = ", ".join(f"{f.name} = {f.format(candidate[i])}" for i, f, _ in terms)
            return f"{self.that} does not hold for {values}"

        return (Bound(tuple(f.name for _, f, _ in terms), check),)

    def _find(self, schema: Schema, name: str) -> tuple[int, Feature]:
        try:
            i, feature = find_feature(schema, name)
        except RuleError as error:
            hint = " (a name such as capital-gain stands in `backticks`)"
            raise RuleError(f"{self.that!r}: {error}{hint}") from None
        if feature.kind == "category":
            raise RuleError(f"{self.that!r}: feature {feature.name!r} is a category")
        return i, feature


def _holds(parsed: Comparison, products: Sequence[float]) -> bool:
    total = math.fsum([*products, parsed.constant])
    if abs(total) <= ROUNDING * (abs(parsed.constant) + sum(map(abs, products))):
        total = 0.0
    return COMPARISONS[parsed.comparison](total, 0.0)


@dataclass(frozen=True, kw_only=True)
class Implies(Rule):
    """Where some conditions hold, others hold too."""

    kind: ClassVar[str] = "implies"
    when: Mapping[str, Any]
    then: Mapping[str, Any]

    @property
    def label(self) -> str:
        return self.name or self.says

    @property
    def says(self) -> str:
        return f"{_words(self.when)} implies {_words(self.then)}"

    def bind(self, context: Context) -> tuple[Bound, ...]:
        when = _conditions(context.schema, "when", self.when)
        then = _conditions(context.schema, "then", self.then)

        def check(query: Row, candidate: Row) -> str | None:
            if not all(candidate[i] is not None and test(candidate[i]) for i, _, test in when):
                return None
            for i, feature, test in then:
                if candidate[i] is not None and not test(candidate[i]):
                    value = feature.format(candidate[i])
                    return f"with {_words(self.when)}, {feature.name} cannot be {value}"
            return None

        return (Bound(tuple(dict.fromkeys(f.name for _, f, _ in when + then)), check),)


@dataclass(frozen=True, kw_only=True)
class Exclude(Rule):
    """Some conditions never hold all at once."""

    kind: ClassVar[str] = "exclude"
    values: Mapping[str, Any]

    @property
    def label(self) -> str:
        return self.name or self.says

    @property
    def says(self) -> str:
        return f"never {_words(self.values)}"

    def bind(self, context: Context) -> tuple[Bound, ...]:
        conditions = _conditions(context.schema, "values", self.values)

        def check(query: Row, candidate: Row) -> str | None:
            met = all(candidate[i] is not None and test(candidate[i]) for i, _, test in conditions)
            return f"{_words(self.values)} is excluded" if met else None

        return (Bound(tuple(feature.name for _, feature, _ in conditions), check),)


Condition = tuple[int, Feature, Callable[[Value], bool]]


def _conditions(schema: Schema, part: str, table: object) -> list[Condition]:
    if not isinstance(table, Mapping) or not table:
        raise RuleError(f"{part} is a table such as {{ age = {{ max = 20 }} }}, not {shown(table)}")
    found = []
    for name, want in table.items():
        i, feature = find_feature(schema, name)
        found.append((i, feature, _test(feature, want)))
    return found


def _test(feature: Feature, want: object) -> Callable[[Value], bool]:
    if isinstance(want, Mapping):
        extra = set(want) - {"min", "max"}
        if extra:
            raise RuleError(unknown("condition", sorted(extra)[0], ["min", "max"]))
        low, high = read_limits(feature, want.get("min"), want.get("max"))
        return lambda value: at_most(low, cast(float, value)) and at_most(cast(float, value), high)
    values = read_values(feature, want if isinstance(want, (list, tuple)) else [want])
    return lambda value: value in values


def _words(table: Mapping[str, Any]) -> str:
    def one(name: str, want: object) -> str:
        if isinstance(want, Mapping):
            limits = {"min": ">=", "max": "<="}
            return " and ".join(f"{name} {limits.get(k, k)} {v}" for k, v in want.items())
        if isinstance(want, (list, tuple)):
            return f"{name} among {', '.join(map(str, want))}"
        return f"{name} = {want}"

    return " and ".join(one(name, want) for name, want in table.items())


@dataclass(frozen=True, kw_only=True)
class Custom(Rule):
    """A function of the user's own judges query and candidate, given as mappings."""

    kind: ClassVar[str] = "custom"
    call: Callable[[dict[str, Any], dict[str, Any]], str | bool | None] | str

    @property
    def label(self) -> str:
        return self.name or getattr(self.call, "__name__", str(self.call))

    def bind(self, context: Context) -> tuple[Bound, ...]:
        if isinstance(self.call, str) or not callable(self.call):
            raise RuleError(
                f"custom rule {self.call!r} runs code: load the card with --trust-code "
                "(trust_code=True in Python) if you trust it"
            )
        call, as_dict = self.call, context.schema.as_dict

        def check(query: Row, candidate: Row) -> str | None:
            try:
                verdict = call(as_dict(query), as_dict(candidate))
            except Exception as error:
                raise RuleError(f"custom rule {self.label!r} broke: {error!r}") from error
            if isinstance(verdict, str):
                return verdict or None
            return None if verdict is None or bool(verdict) else "the custom rule says no"

        return (Bound((), check),)

    def trusted(self) -> Custom:
        """Return the rule with a ``module:function`` name imported: runs that module's code."""
        if not isinstance(self.call, str):
            return self
        module, _, function = self.call.partition(":")
        try:
            found = getattr(importlib.import_module(module), function)
        except Exception as error:
            raise RuleError(f"custom rule {self.call!r} cannot be imported: {error}") from error
        return Custom(name=self.name or self.call, why=self.why, call=found)


@dataclass(frozen=True, kw_only=True)
class MaxChanges(Rule):
    """No more features change than this; linked ones count as one."""

    kind: ClassVar[str] = "max-changes"
    at_most: int

    @property
    def label(self) -> str:
        return self.name or self.says

    @property
    def says(self) -> str:
        return f"at most {self.at_most} changes"

    def bind(self, context: Context) -> tuple[Bound, ...]:
        if isinstance(self.at_most, bool) or not isinstance(self.at_most, int) or self.at_most < 1:
            raise RuleError(f"at_most is a whole number of at least 1, not {shown(self.at_most)}")

        def check(query: Row, candidate: Row) -> str | None:
            count = context.count_changes(query, candidate)
            return None if count <= self.at_most else f"{count} features change"

        return (Bound((), check),)
