"""The table of rule kinds; `docs/cards.md` shows how each is written in a card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from waysout.domain.rules.base import Rule
from waysout.domain.rules.joint import Custom, Exclude, Implies, Linear, Linked, MaxChanges, OneHot
from waysout.domain.rules.single import (
    Allowed,
    Direction,
    Immutable,
    Never,
    Range,
    Step,
    Transitions,
)
from waysout.errors import RuleError, shown, unknown

RULE_KINDS: dict[str, type[Rule]] = {
    rule.kind: rule
    for rule in (
        Immutable, Range, Step, Allowed, Never, Direction, Transitions, Linked, OneHot, Linear,
        Implies, Exclude, Custom, MaxChanges,
    )
}  # fmt: skip


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
            raise RuleError(f"{key} is text, not {shown(given[key])}")
    return rule(**given)
