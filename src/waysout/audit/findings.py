"""What a batch has shown, in a few sentences: the opening of an audit.

Every sentence is made from figures. What is typical, and how groups differ, is said only of at
least `FEW` people.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waysout.audit.figures import FEW, Asked, Audit, Group, Section
from waysout.audit.stats import Interval, share
from waysout.audit.words import (
    amount_text,
    asked_text,
    group_name,
    lever_name,
    middle_half,
    number,
    people,
    percent,
    points,
    rule_name,
    section_name,
    signed,
    with_interval,
)
from waysout.domain.result import OutcomeKind
from waysout.report.words import PERCENT, capital, counted

_MOST = 5


@dataclass(frozen=True)
class Finding:
    """A finding: a heading, a sentence or two, what they are about one by one, and a caveat."""

    title: str
    says: str
    items: tuple[str, ...] = ()
    caveat: str = ""


def findings(audit: Audit) -> list[Finding]:
    """Return what the figures show beyond how many have a way out, which is the lead."""
    found = (_without(audit), _asked_for(audit), _differences(audit))
    return [finding for finding in found if finding is not None]


# Who has none -----------------------------------------------------------------------------------


def _without(audit: Audit) -> Finding | None:
    all_ = audit.everybody
    if not all_.without:
        return None
    by_rules = all_.why_without[OutcomeKind.INFEASIBLE]
    says = []
    if by_rules and (part := share(by_rules, all_.people)):
        says.append(
            f"The rules leave {by_rules:,} of {people(all_.people)} no way out: "
            f"{with_interval(part)}."
        )
    says += _not_found(all_)
    items = [f"{rule_name(audit, rule)}: {people(n)}" for rule, n in all_.binding.items()]
    rest = len(items) - _MOST
    if rest > 0:
        items = [*items[:_MOST], f"and {counted(rest, 'rule')} more"]
    return Finding("Who has no way out", " ".join(says), tuple(items))


def _not_found(group: Group) -> Iterator[str]:
    spent = group.why_without[OutcomeKind.BUDGET_SPENT]
    exhausted = group.why_without[OutcomeKind.EXHAUSTED]
    if spent:
        yield (
            f"For {people(spent)} none was found within the budget, and there may be one: search "
            "again with a larger budget before you take that for a fact."
        )
    if exhausted:
        yield f"For {people(exhausted)} none was found, and the search had nothing left to try."


# What a yes takes -------------------------------------------------------------------------------


def _asked_for(audit: Audit) -> Finding | None:
    all_, nearest = audit.everybody, audit.nearest
    if not all_.with_way_out:
        return None
    title = f"What the nearest {nearest} asks for"
    if all_.few_costs:
        few = f"Fewer than {FEW} people have a way out: too few to say what it typically takes."
        return Finding(title, few)
    says = f"The nearest {nearest} takes {_changes(all_)} (median of {people(all_.with_way_out)})."
    if all_.holds is not None:
        says += (
            f" {percent(all_.holds)} of these ways are known to hold: still a yes for whoever goes "
            "farther."
        )
    items = [_item(audit, asked) for asked in all_.asked if asked.people >= FEW]
    if not items:
        says += f" No single change is asked of {FEW} people or more."
    return Finding(title, says, tuple(items[:_MOST]))


def _changes(group: Group) -> str:
    changes = group.changes or 0.0
    return counted(int(changes), "change") if changes == int(changes) else f"{changes:.1f} changes"


def _item(audit: Audit, asked: Asked) -> str:
    whose = f"for {asked.people:,} of {people(audit.everybody.with_way_out)}"
    name = capital(lever_name(audit, asked.lever))
    half = middle_half(audit, asked)
    spread = f" (median; middle half {half})" if half else ""
    return f"{name}: {asked_text(audit, asked)}{spread}, {whose}"


# How groups differ ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Compared:
    """A group beside all other people, in one figure."""

    section: Section
    group: Group
    figure: str
    difference: Interval


def _differences(audit: Audit) -> Finding | None:
    if not audit.sections or not audit.everybody.people:
        return None
    title = "Which groups differ"
    compared = [*_compared(audit)]
    if not compared:
        few = f"No group can be compared: that takes {FEW} people in it, and as many others."
        return Finding(title, few)
    clear = sorted(
        (one for one in compared if one.difference.leaves_out_zero),
        # Shares before costs: their differences are in other units.
        key=lambda one: (one.figure != "share", -abs(one.difference.value)),
    )
    compared_text = counted(len(compared), "comparison")
    if not clear:
        return Finding(title, f"None differs clearly from all others, in {compared_text}.")
    says = f"A clear difference from all other people shows in {len(clear):,} of {compared_text}"
    says += f"; the {_MOST} largest:" if len(clear) > _MOST else ":"
    caveat = (
        "If no group differed, about one in twenty comparisons would look clear all the same. A "
        "difference is no proof of unfairness, and none is no proof of fairness."
    )
    items = tuple(_difference(audit, one) for one in clear[:_MOST])
    return Finding(title, says, items, caveat)


def _compared(audit: Audit) -> Iterator[_Compared]:
    """Yield the comparisons of enough people; of two groups only that of one, the worse off."""
    all_ = audit.everybody
    for section in audit.sections:
        groups = [group for group in section.groups if group.people]
        for group in groups:
            told = [("cost", group.cost_difference, group.with_way_out, all_.with_way_out)]
            if all_.without:
                told.append(("share", group.share_difference, group.people, all_.people))
            for figure, difference, own, of in told:
                if difference is None or min(own, of - own) < FEW:
                    continue
                is_first = group is groups[0]
                if len(groups) > 2 or difference.value > 0 or (is_first and not difference.value):
                    yield _Compared(section, group, figure, difference)


def _difference(audit: Audit, one: _Compared) -> str:
    group, by_share = one.group, one.figure == "share"
    column, name = section_name(audit, one.section), group_name(audit, one.section, group)
    count = people(group.people if by_share else group.with_way_out)
    said = _share(group, one.difference) if by_share else _cost(audit, group, one.difference)
    return f"{capital(column)}, {name} ({count}): {said}"


def _share(group: Group, difference: Interval) -> str:
    assert group.share_without is not None
    value = difference.value
    return (
        f"{percent(group.share_without.value)} have no way out, {points(abs(value))[1:]} points "
        f"{'more' if value > 0 else 'less'} than the others (95{PERCENT} interval "
        f"{points(difference.low)} to {points(difference.high)})"
    )


def _cost(audit: Audit, group: Group, difference: Interval) -> str:
    assert group.cost is not None
    others = group.cost.median - difference.value
    return (
        f"a yes costs {_relative(group.cost.median, others)} the others"
        f"{_most_often(audit, group)} (median cost {number(group.cost.median)} to "
        f"{number(others)}; 95{PERCENT} interval of the difference {signed(difference.low)} to "
        f"{signed(difference.high)})"
    )


def _most_often(audit: Audit, group: Group) -> str:
    """Say what is asked of most in a group, beside what the same is for everybody."""
    first = next((asked for asked in group.asked if asked.people >= FEW), None)
    if first is None:
        return ""
    said = f"; most often: {lever_name(audit, first.lever)} {asked_text(audit, first)}"
    if first.amount is None:
        return said
    same = (first.lever, first.move)
    for asked in audit.everybody.asked:
        if (asked.lever, asked.move) == same:
            return f"{said}, where everybody's median is {amount_text(audit, asked)}"
    return said


def _relative(cost: float, others: float) -> str:
    if others <= 0:
        return "more than for"
    ratio = cost / others
    if ratio >= 2:
        return f"{ratio:.1f} times as much as for"
    return f"{percent(abs(ratio - 1))} {'more' if ratio > 1 else 'less'} than for"
