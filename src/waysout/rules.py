"""The rules that say what may change and how, for use from Python. See docs/cards.md for each.

>>> import waysout
>>> waysout.rules.Direction(features=["income"], direction="up").says
'income only up'
"""

from waysout.domain.rules import (
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
    Rule,
    Step,
    Transitions,
)

__all__ = [
    "Allowed", "Custom", "Direction", "Exclude", "Immutable", "Implies", "Linear", "Linked",
    "MaxChanges", "Never", "OneHot", "Range", "Rule", "Step", "Transitions",
]  # fmt: skip
