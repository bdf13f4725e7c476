"""All the rules of a table, bound to it: one answer for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from waysout.domain.rules.base import Check, Lever, Rule, Violation
from waysout.domain.rules.joint import Linked, OneHot
from waysout.domain.rules.single import Step
from waysout.domain.schema import Row, Schema, Value
from waysout.errors import RuleError

DOMAIN = "domain"


@dataclass(frozen=True)
class RuleSet:
    """Rules over one schema. A rule that cannot hold there is refused when the set is made."""

    schema: Schema
    rules: tuple[Rule, ...] = ()
    name: str = "rules"

    def __post_init__(self) -> None:
        self._checks  # noqa: B018 - binding is what finds a wrong rule, so it happens now
        self._refuse_cycles()
        stepped = [rule.feature for rule in self.rules if isinstance(rule, Step)]
        for feature in stepped:
            if stepped.count(feature) > 1:
                raise RuleError(f"feature {feature!r} has two step rules; one grid is enough")

    @cached_property
    def _checks(self) -> tuple[tuple[Rule, Check], ...]:
        return tuple((rule, rule.bind(self)) for rule in self.rules)

    @cached_property
    def _links(self) -> tuple[tuple[str, str, dict[Value, Value]], ...]:
        linked = [rule for rule in self.rules if isinstance(rule, Linked)]
        return tuple((rule.feature, rule.sets, rule.table(self.schema)) for rule in linked)

    @cached_property
    def _groups(self) -> tuple[tuple[str, ...], ...]:
        return tuple(rule.about for rule in self.rules if isinstance(rule, OneHot))

    def _refuse_cycles(self) -> None:
        follows: dict[str, set[str]] = {}
        for source, target, _ in self._links:
            follows.setdefault(source, set()).add(target)
        for start in follows:
            seen, front = set[str](), {start}
            while front := {t for name in front for t in follows.get(name, ())} - seen:
                seen |= front
            if start in seen:
                raise RuleError(f"linked features form a circle through {start!r}")

    def violations(self, query: Row, candidate: Row) -> tuple[Violation, ...]:
        """Return every rule the candidate breaks, the features' own domains first.

        For the query itself this is empty, or names what the query already breaks.
        """
        found = list(self._outside_domain(query, candidate))
        for rule, check in self._checks:
            reason = check(query, candidate)
            if reason is not None:
                found.append(Violation(rule.label, rule.about, reason))
        return tuple(found)

    def _outside_domain(self, query: Row, candidate: Row) -> Iterable[Violation]:
        for feature, before, after in zip(self.schema, query, candidate, strict=True):
            if before == after:
                continue
            lever = Lever.of(feature, before)
            if not lever.admits(after):
                shown = "missing" if after is None else feature.format(after)
                yield Violation(
                    DOMAIN, (feature.name,), f"{feature.name} is {shown}, not {lever.describe()}"
                )

    def apply(self, row: Row, edits: Mapping[str, Value]) -> Row:
        """Return the row after some edits, with the features that follow them set too."""
        row = self.schema.replace(row, edits)
        for name, value in edits.items():
            row = self._clear_group(row, name, value)
        moved = set(edits)
        # Links may be chained in any order, and no chain is longer than there are links.
        for _ in self._links:
            row = self._follow_links(row, moved)
        return row

    def _clear_group(self, row: Row, name: str, value: Value) -> Row:
        if not value:
            return row
        others = {n for group in self._groups if name in group for n in group if n != name}
        off = {n: False if self.schema[n].kind == "boolean" else 0 for n in others}
        return self.schema.replace(row, off)

    def _follow_links(self, row: Row, moved: set[str]) -> Row:
        for source, target, table in self._links:
            if source in moved and (due := table.get(row[self.schema.index(source)])) is not None:
                row = self.schema.replace(row, {target: due})
                moved.add(target)
        return row

    def count_changes(self, query: Row, candidate: Row) -> int:
        """Count the changes a person would count: what follows another change is not one."""
        changed = set(self.schema.changed(query, candidate))
        following = {t for s, t, _ in self._links if s in changed and t in changed}
        spare = sum(max(0, len(changed.intersection(group)) - 1) for group in self._groups)
        return len(changed) - len(following) - spare

    def levers(self, query: Row) -> dict[str, Lever]:
        """Return for each feature what it may be set to, as far as rules about it alone tell."""
        levers = {f.name: Lever.of(f, v) for f, v in zip(self.schema, query, strict=True)}
        for rule in self.rules:
            for name in rule.about:
                levers[name] = rule.narrow(levers[name])
        return levers

    def actionable(self, query: Row) -> tuple[str, ...]:
        """Return the features that can be edited at all, in the schema's order."""
        return tuple(name for name, lever in self.levers(query).items() if lever.is_open)

    def obstacles(self, query: Row) -> tuple[Violation, ...]:
        """Return the rules that no edit can satisfy, so that the query has no way out.

        Empty does not promise a way out: the oracle has its say, and so do rules about several
        features at once.
        """
        levers = self.levers(query)
        if not any(lever.is_open for lever in levers.values()):
            return tuple(
                Violation(lever.blocked or DOMAIN, (name,), lever.describe())
                for name, lever in levers.items()
            )
        return tuple(
            found
            for found in self.violations(query, query)
            if found.features and not any(levers[n].is_open for n in found.features)
        )

    def extended(self, rules: Sequence[Rule]) -> RuleSet:
        """Return the set with more rules, for example a person's own locks."""
        return RuleSet(self.schema, (*self.rules, *rules), self.name)
