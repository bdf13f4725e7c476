"""What may change and how: the rules of a table, and one answer for all of them.

``base`` says what a rule is and what it leaves of a feature (a `Lever`), ``kinds`` has the rules,
``comparison`` reads a linear one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from typing import Any

from waysout.domain.rules.base import Bound, Lever, Rule, Violation, find_feature, find_features
from waysout.domain.rules.kinds import (
    Allowed,
    Custom,
    Direction,
    Exclude,
    Immutable,
    Implies,
    Linear,
    Linked,
    MaxChanges,
    Never,
    OneHot,
    Range,
    Step,
    Transitions,
)
from waysout.domain.rules.reach import Refusals, every_row, reach_of, refusals
from waysout.domain.schema import Row, Schema, Value
from waysout.errors import RuleError, shown, unknown

__all__ = [
    "DOMAIN", "RULE_KINDS", "Allowed", "Custom", "Direction", "Exclude", "Immutable", "Implies",
    "Lever", "Linear", "Linked", "MaxChanges", "Never", "OneHot", "Range", "Rule", "RuleSet",
    "Step", "Transitions", "Violation", "rule_from_table",
]  # fmt: skip

RULE_KINDS: dict[str, type[Rule]] = {
    rule.kind: rule
    for rule in (
        Immutable, Range, Step, Allowed, Never, Direction, Transitions, Linked, OneHot, Linear,
        Implies, Exclude, Custom, MaxChanges,
    )
}  # fmt: skip
DOMAIN = "domain"
_QUERIES_REMEMBERED = 256
_ROWS_REMEMBERED = 4096


def _be(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"


def rule_from_table(table: Mapping[str, Any]) -> Rule:
    """Build a rule from a card's table, or say which field is wrong."""
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in RULE_KINDS:
        raise RuleError(unknown("rule kind", kind, [*RULE_KINDS, "include"]))
    rule = RULE_KINDS[kind]
    known = {f.name: f for f in fields(rule)}
    given = {key: value for key, value in table.items() if key != "kind"}
    for key in given:
        if key not in known:
            raise RuleError(f"a rule of kind {kind!r}: {unknown('field', key, known)}")
    for name, field in known.items():
        if field.default is MISSING and name not in given:
            raise RuleError(f"a rule of kind {kind!r} needs the field {shown(name)}")
    for key in ("name", "why"):
        if not isinstance(given.get(key, ""), str):
            raise RuleError(f"{key} must be a string, not {shown(given[key])}")
    return rule(**given)


@dataclass(frozen=True)
class RuleSet:
    """Rules over one schema. A rule that does not fit the schema is rejected on construction."""

    schema: Schema
    rules: tuple[Rule, ...] = ()
    name: str = "rules"

    def __post_init__(self) -> None:
        self._bound  # noqa: B018 - binding is what finds a wrong rule, so it happens now
        self.links  # noqa: B018 - ordering the links is what finds a circle
        stepped = Counter(rule.feature for rule in self.rules if isinstance(rule, Step))
        for feature, count in stepped.items():
            if count > 1:
                raise RuleError(f"feature {feature!r} has two step rules; one grid is enough")

    def __reduce__(self) -> tuple[Any, ...]:
        # What is bound are closures, which cannot be pickled; the rules themselves can.
        return RuleSet, (self.schema, self.rules, self.name)

    @cached_property
    def _bound(self) -> tuple[tuple[Rule, Bound], ...]:
        return tuple((rule, part) for rule in self.rules for part in rule.bind(self))

    def rule_of(self, violation: Violation) -> Rule | None:
        """Return the rule that was broken; nothing for a feature's own domain."""
        return self._bound[violation.part][0] if violation.part >= 0 else None

    @cached_property
    def links(self) -> tuple[tuple[str, str, dict[Value, Value]], ...]:
        """The links, each after those that set its source."""
        found = {}
        for rule in self.rules:
            if isinstance(rule, Linked):
                source = find_feature(self.schema, rule.feature)[1].name
                target = find_feature(self.schema, rule.sets)[1].name
                if target in found:
                    raise RuleError(f"feature {target!r} is set by two linked rules")
                found[target] = (source, target, rule.table(self.schema))
        ordered: list[tuple[str, str, dict[Value, Value]]] = []
        while found:
            ready = [target for target, (source, *_) in found.items() if source not in found]
            if not ready:
                raise RuleError(f"linked features form a circle through {next(iter(found))!r}")
            ordered += [found.pop(target) for target in ready]
        return tuple(ordered)

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The one-hot groups, by the names of their features."""
        found = (rule.features for rule in self.rules if isinstance(rule, OneHot))
        return tuple(tuple(f.name for _, f in find_features(self.schema, names)) for names in found)

    def violations(self, query: Row, candidate: Row) -> tuple[Violation, ...]:
        """Return every rule the candidate breaks.

        For the query itself this is empty, or names what the query already breaks. A candidate
        that leaves a feature's own domain (40.5 in an integer, an unknown level, too many decimals,
        all of which methods and LLMs do propose) is not put to the rules, which could not judge it.
        """
        # A row is judged where it is made, before it is asked and once it is answered: three times
        # for each row of a search. By identity, as below; what is kept here stays alive.
        seen = self._judged.get(id(candidate))
        if seen is not None and seen[0] is candidate and seen[1] is query:
            return seen[2]
        found = self._violations(query, candidate)
        if len(self._judged) >= _ROWS_REMEMBERED:
            self._judged.clear()
        self._judged[id(candidate)] = candidate, query, found
        return found

    @cached_property
    def _judged(self) -> dict[int, tuple[Row, Row, tuple[Violation, ...]]]:
        """The rows judged last, with the query and what they break."""
        return {}

    def _violations(self, query: Row, candidate: Row) -> tuple[Violation, ...]:
        last = self._last_domains[-1] if self._last_domains else None
        # By identity: 1 and True are equal, and two rows that differ so are not the same.
        if last is None or last[0] is not query:
            last = query, tuple(Lever.of(f, v) for f, v in zip(self.schema, query, strict=True))
            self._last_domains[:] = [last]
        found = []
        for lever, after in zip(last[1], candidate, strict=True):
            same = lever.now == after and type(lever.now) is type(after)
            if not same and not lever.admits(after):
                feature, what = lever.feature, "missing" if after is None else shown(after)
                reason = f"{feature.name} is {what}, not {lever.describe()} ({feature.kind})"
                found.append(Violation(DOMAIN, (feature.name,), reason))
        if found:
            return tuple(found)
        for i, (rule, part) in enumerate(self._bound):
            broken = part.check(query, candidate)
            if broken is not None:
                found.append(Violation(rule.label, part.features, broken, i))
        return tuple(found)

    @cached_property
    def _last_domains(self) -> list[tuple[Row, tuple[Lever, ...]]]:
        """The features' own domains for the query last asked: a search asks at every row."""
        return []

    def apply(self, row: Row, edits: Mapping[str, Value]) -> Row:
        """Return the row after some edits, with the features that follow them set too.

        Of several edits in one one-hot group the last one stands.
        """
        if not self.groups:  # most tables have none, and rows are made by the hundred thousand
            row = self.schema.replace(row, edits)
        for name, value in edits.items() if self.groups else ():
            cleared: set[str] = set()
            if value:
                cleared.update(n for group in self.groups if name in group for n in group)
            off = {n: False if self.schema[n].kind == "boolean" else 0 for n in cleared}
            row = self.schema.replace(row, {**off, name: value})
        moved = {self.schema[name].name for name in edits} if self.links else set()
        for source, target, table in self.links:
            value = row[self.schema.index(source)]
            if source in moved and value is not None:
                row = self.schema.replace(row, {target: table[value]})
                moved.add(target)
        return row

    @cached_property
    def _sources(self) -> dict[str, set[str]]:
        """For each feature that follows others, all that it follows, however indirectly."""
        found: dict[str, set[str]] = {}
        for source, target, _ in self.links:
            found[target] = {source} | found.get(source, set())
        return found

    def moved(self, query: Row, candidate: Row) -> frozenset[str]:
        """Return the levers a person would say they moved.

        What follows another change is none; a one-hot group is one, named by its first feature.
        """
        changed = set(self.schema.changed(query, candidate))
        if not self.links and not self.groups:
            return frozenset(changed)
        levers = {name for name in changed if not self._sources.get(name, set()) & changed}
        for group in self.groups:
            if levers.intersection(group):
                levers = levers.difference(group) | {group[0]}
        return frozenset(levers)

    def leader(self, feature: str) -> str:
        """Return the name of the lever that a feature belongs to: its own, or its group's."""
        if not self.groups:
            return feature
        return next((group[0] for group in self.groups if feature in group), feature)

    def features_of(self, lever: str) -> tuple[str, ...]:
        """Return the features that make a lever (see `moved`): itself, or its one-hot group."""
        return next((group for group in self.groups if group[0] == lever), (lever,))

    def is_cleared(self, row: Row, feature: str) -> bool:
        """Whether another feature of its one-hot group is set in a row, so that it is not."""
        group, at = self.features_of(self.leader(feature)), self.schema.index
        return not row[at(feature)] and any(row[at(name)] for name in group)

    def count_changes(self, query: Row, candidate: Row) -> int:
        """Count the changes a person would count: what follows another change is not one."""
        return len(self.moved(query, candidate))

    def put_back(self, query: Row, row: Row, lever: str) -> Row:
        """Return a row without one of the levers it moved (see `moved`), nor what followed that.

        A one-hot group goes back as a whole.
        """
        return self.only(query, row, self.moved(query, row) - {lever})

    def only(self, query: Row, row: Row, kept: Collection[str]) -> Row:
        """Return a row with some of the levers it moved, and what follows them, and no others."""
        if not self.links and not self.groups:
            named = zip(self.schema.names, query, row, strict=True)
            return tuple(b if a != b and name in kept else a for name, a, b in named)
        # A follower has no lever of its own here: applying those that stay sets what follows them.
        names = (n for n in self.schema.changed(query, row) if self.leader(n) in kept)
        return self.apply(query, {name: row[self.schema.index(name)] for name in names})

    def may_still_move(self, query: Row, row: Row) -> frozenset[str]:
        """Return the features whose edit passes no limit on the number of changes."""
        names = frozenset(self.schema.names)
        limits = [rule.at_most for rule in self.rules if isinstance(rule, MaxChanges)]
        moved = self.moved(query, row)
        if not limits or len(moved) < min(limits):
            return names
        groups = {name for group in self.groups if moved.intersection(group) for name in group}
        return names & (moved | groups)

    def levers(self, query: Row) -> Mapping[str, Lever]:
        """Return for each feature what it may be set to, by the rules about it alone."""
        found = self._recent.get(query)
        if found is None:
            if len(self._recent) >= _QUERIES_REMEMBERED:
                self._recent.clear()
            found = {f.name: Lever.of(f, v) for f, v in zip(self.schema, query, strict=True)}
            for _, part in self._bound:
                if part.narrow is not None:
                    found |= {name: part.narrow(found[name]) for name in part.narrows}
            self._recent[query] = found
        return found

    @cached_property
    def _recent(self) -> dict[Row, dict[str, Lever]]:
        """The levers of recent queries: a search asks for the same ones at every step."""
        return {}

    @cached_property
    def joint(self) -> tuple[Rule, ...]:
        """The rules that levers do not tell: those about several features, or about the whole."""
        return tuple(r for r in self.rules if any(part.narrow is None for part in r.bind(self)))

    def actionable(self, query: Row) -> tuple[str, ...]:
        """Return the features that can be edited at all, in the schema's order."""
        return tuple(name for name, lever in self.levers(query).items() if lever.is_open)

    def obstacles(self, query: Row) -> tuple[Violation, ...]:
        """Return the rules that no edit can satisfy, so that the query has no way out.

        A broken rule counts only if no row within reach keeps it: because no edit moves any of its
        features, followers included, or none moves them far enough. An empty answer does not
        promise a way out: the oracle has its say, and so do rules that only together leave nothing
        (see `refusals`).
        """
        levers = self.levers(query)
        free = {g for g in self.groups if any(not levers[name].blocked for name in g)}
        movable = self.movable(query)
        if not movable:
            return self._closed(levers)
        found = []
        for v in self.violations(query, query):
            why = self._bound[v.part][1].unmet
            # A group with two set is right again once one of them is cleared, by setting the other.
            if v.features and not movable.intersection(v.features) and v.features not in free:
                found.append(replace(v, reason=f"{v.reason}, but may not change"))
            elif why is not None and (unmet := why(reach_of(self, query))) is not None:
                found.append(replace(v, reason=unmet))
        return tuple(found)

    def _closed(self, levers: Mapping[str, Lever]) -> tuple[Violation, ...]:
        """Return why nothing may change, each reason once."""
        reasons: dict[tuple[str, str], list[str]] = {}
        for name, lever in levers.items():
            if not lever.feature.is_opaque:
                key = lever.blocked_by or DOMAIN, lever.describe()
                reasons.setdefault(key, []).append(name)
        return tuple(
            Violation(rule, tuple(names), f"{', '.join(names)} {_be(names)} {why}")
            for (rule, why), names in reasons.items()
        )

    def refusals(self, query: Row) -> Refusals | None:
        """Return the rules that leave no row to ask, as far as can be told by looking at rows."""
        return refusals(self, query)

    def every_row(self, query: Row, most: int) -> Iterator[Row] | None:
        """Return every row that edits can make, allowed or not; ``None`` where ``most`` are few."""
        return every_row(self, query, most)

    def movable(self, query: Row) -> frozenset[str]:
        """Return the features that some edit moves, be it as a follower."""
        editable = set(self.actionable(query))
        found = set(editable)
        for group in self.groups:
            found.update(group if editable.intersection(group) else ())
        found.update(name for name, sources in self._sources.items() if sources & found)
        return frozenset(found)

    def extended(self, rules: Sequence[Rule]) -> RuleSet:
        """Return the set with more rules, for example a person's own locks."""
        return RuleSet(self.schema, (*self.rules, *rules), self.name) if rules else self
