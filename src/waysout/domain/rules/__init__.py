"""What may change and how: rules, what they leave open, and one answer for all of them."""

from waysout.domain.rules.base import Lever, Rule, Violation
from waysout.domain.rules.joint import Custom, Exclude, Implies, Linear, Linked, MaxChanges, OneHot
from waysout.domain.rules.kinds import RULE_KINDS, rule_from_table
from waysout.domain.rules.ruleset import RuleSet
from waysout.domain.rules.single import (
    Allowed,
    Direction,
    Immutable,
    Never,
    Range,
    Step,
    Transitions,
)

__all__ = [
    "RULE_KINDS",
    "Allowed",
    "Custom",
    "Direction",
    "Exclude",
    "Immutable",
    "Implies",
    "Lever",
    "Linear",
    "Linked",
    "MaxChanges",
    "Never",
    "OneHot",
    "Range",
    "Rule",
    "RuleSet",
    "Step",
    "Transitions",
    "Violation",
    "rule_from_table",
]
