"""The text of an audit, the same in every format: its sentences, its tables and its notes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from waysout.audit.figures import FEW, Asked, Audit, Group, LeverUse, Section
from waysout.audit.groups import MISSING, NO_NUMBER
from waysout.audit.stats import RESAMPLES, SEED, Interval, Spread
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import DOMAIN
from waysout.report.words import PERCENT, Wording, chance, clean, counted, cut, goal_text

if TYPE_CHECKING:
    import pandas as pd

NOTHING = "–"
CAPTIONS = {
    "without": "People for whom no way out was found, in per cent, with 95\u00a0% intervals.",
    "cost": "The cost of a yes: median and quartiles of the people with a way out.",
}
_WITHOUT = ("without", "why")  # tables about people without a way out
_ORDER = ("without", "why", "cost", "ways", "levers", "search")
_SAYS_NOTHING = re.compile(r"–?|0(\.0)?(\s?%)?( \(few\))?")
_LONGEST_RULE = 60  # in a table; the findings have it in full
_LIMITS = {"llm_calls": "LLM call", "oracle_rows": "oracle row"}


def title(audit: Audit) -> str:
    """Return the title of the audit."""
    return f"Audit: {audit.about.title}" if audit.about.title else "Audit of a batch"


def lead(audit: Audit) -> str:
    """Say how many of the people rejected have a way out."""
    all_ = audit.everybody
    if not all_.share_without:
        return f"Of {people(audit.rows)} nobody was rejected."
    without = all_.share_without
    share = Interval(1 - without.value, 1 - without.high, 1 - without.low)
    found = f"{all_.with_way_out:,} {'has' if all_.with_way_out == 1 else 'have'}"
    every = "all " if all_.with_way_out == all_.people > 1 else ""
    return (
        f"Of {people(all_.people)} whom the model rejected, {every}{found} a way out: "
        f"{with_interval(share)}."
    )


def source(audit: Audit) -> str:
    """Describe the method, LLM, budget and goal, without the address of a server."""
    about, budget = audit.about, audit.about.budget
    instead = f" ({about.stand_in}: no language model)" if about.stand_in else ""
    llm = about.llm.partition("@")[0] + instead
    limits = [counted(int(n), what) for name, what in _LIMITS.items() if (n := budget.get(name))]
    parts = [
        f"method {about.method}" if about.method else "",
        f"LLM {llm}" if llm else "",
        f"at most {' and '.join(limits)} a person" if limits else "",
        f"asked for: {goal_text(about.goal)}" if about.goal else "",
    ]
    return ", ".join(part for part in parts if part)


def stand_in_note(audit: Audit) -> str:
    """Return a note that the LLM was simulated or scripted, or an empty string."""
    instead = audit.about.stand_in
    if not instead:
        return ""
    return (
        f"{instead.capitalize()}: the proposals came from a {instead} LLM, not from a language "
        "model. The answers of the model that decides are real."
    )


def coverage(audit: Audit) -> str:
    """Return which rows the figures cover, or an empty string if all."""
    rows, limit = audit.about.rows, audit.about.limit
    if rows is None:
        told = f"These figures cover {counted(audit.rows, 'row')} of the input"
        return f"{told}; of how many is unknown without its _manifest.json."
    if audit.rows >= rows:
        return ""
    text = f"These figures cover {audit.rows:,} of the {rows:,} rows of the input"
    if limit is not None and audit.rows >= limit:
        return f"{text}: the batch was limited to the first of them."
    return f"{text}: those of the {counted(audit.parts, 'part')} that are done so far."


def notes(audit: Audit) -> Iterator[str]:
    """Yield what a reader must know about the figures."""
    if text := coverage(audit):
        yield f"{text} They need not be like the others."
    if approved := audit.everybody.approved:
        yield f"{people(approved)} had a yes already: counted among the approved, and no more."
    for kind, how in ((OutcomeKind.FAILED, "failed"), (OutcomeKind.INTERRUPTED, "was interrupted")):
        if n := audit.everybody.outcomes.get(kind, 0):
            yield f"{people(n)} whose search {how}: left out of every figure."
    yield (
        "These figures describe what this search found, with these rules and this budget. That no "
        "way out was found does not mean that there is none, except where the rules leave none."
    )
    all_ = audit.everybody
    if all_.without:
        yield (
            "By the rules: they leave no way out. Budget: none was found before it was spent. "
            "Nothing left: none was found, and the search had nothing left to try."
        )
    if all_.with_way_out:
        yield _cost_note(audit)
        yield (
            f"A lever is in the nearest {audit.nearest}, suffices alone (with what rules tie to "
            f"it), or is in any {audit.nearest} found. Typically: what the nearest {audit.nearest} "
            "asks most of the people for, and the median amount. What moves the model's answer is "
            "not a cause of anything else."
        )
        yield _found_note(audit)
    if all_.people:
        calls = " LLM calls: their mean." if all_.llm_calls else ""
        yield (
            "Approved: the share the model approves as they are. Chance: the median of those "
            f"rejected.{calls}"
        )
    if not audit.comparisons:
        return
    yield (
        "95\u00a0% intervals: Wilson's of a share, Newcombe's of a difference of shares, and of a "
        f"difference of medians a percentile bootstrap ({RESAMPLES:,} resamples, seed {SEED}). "
        "Differences are to all other people (shares: in points); * marks intervals that leave out "
        "0."
    )
    yield (
        "Intervals are not adjusted for many comparisons: of the "
        f"{audit.comparisons:,} reported here, about one in twenty would leave out 0 by chance "
        "alone if no group differed. A difference is no proof of unfairness, and none is no proof "
        "of fairness."
    )
    if any(group.few or group.few_costs for s in audit.sections for group in s.groups):
        yield f"few: fewer than {FEW} people; such figures say little."


def _cost_note(audit: Audit) -> str:
    if audit.nearest == "way":
        nearest = (
            "The cost of a yes is that of the nearest way found: a sum over its changes, numbers "
            "by how much people differ in them and categories as shares, the present values being "
            "0. Nearest is the cheapest of the ways known to hold and to need all their changes; "
            "where there is none, the cheapest of the others."
        )
    else:
        nearest = (
            "An earlier release wrote this batch, without ways: the cost of a yes is the distance "
            "of the nearest option found, the present values being 0, and options may change more "
            "than they need. It is no measure to compare with a batch that has ways."
        )
    return (
        f"{nearest} Quartiles are in brackets. It is known only for people with a way out: a group "
        "whose hardest cases found none can look cheap."
    )


def _found_note(audit: Audit) -> str:
    ways = audit.nearest == "way"
    holds = (
        " Hold: the share of them whose nearest way is known to be a yes still for whoever goes "
        "10\u00a0% and 50\u00a0% farther."
    )
    return (
        f"Medians of those with a way out: changes in the nearest {audit.nearest}, fewest changes "
        f"in any, {'ways, ' if ways else ''}and options, which are approved rows with values of "
        f"their own.{holds if ways else ''}"
    )


# Tables ----------------------------------------------------------------------------------------


def sections(audit: Audit) -> tuple[Section, ...]:
    """Return the sections, or everybody as one if nothing is grouped."""
    return audit.sections or (everybody(audit),)


def everybody(audit: Audit) -> Section:
    """Return everybody as the only group of a section."""
    return Section((), (audit.everybody,), {}, 0)


def section_name(audit: Audit, section: Section) -> str:
    """Return what a section is grouped by, in the card's words."""
    return " × ".join(map(Wording(audit.about.wording).name, section.by))


def group_name(audit: Audit, section: Section, group: Group) -> str:
    """Return a group's values in the card's words, ranges with their unit."""
    if len(group.values) != len(section.by):  # everybody, or all the others as one
        return group.name
    wording = Wording(audit.about.wording)
    texts = []
    for column, value in zip(section.by, group.values, strict=True):
        is_range = column in section.edges and value not in (MISSING, NO_NUMBER)
        texts.append(
            wording.with_unit(column, value, 0) if is_range else wording.value(column, value)
        )
    return ", ".join(texts)


def by(audit: Audit, section: Section) -> str:
    """Return what a section is grouped by, to follow a title; empty for everybody."""
    return f", by {section_name(audit, section)}" if section.by else ""


def tables(audit: Audit, section: Section, levers: int) -> dict[str, tuple[str, pd.DataFrame]]:
    """Return a section's tables of text, each a title and a frame with a row for each group.

    Each is narrow enough for a terminal. The table of levers has at most ``levers`` of a group.
    What has nothing to tell is left out: columns and groups that are all zero or unknown, tables
    that are empty then, and all about people without a way out if there are none.
    """
    import pandas as pd

    names = [group_name(audit, section, group) for group in section.groups]
    index = pd.Index(names, name=section_name(audit, section))
    found = {}
    for kind, (title, columns) in _TABLES.items():
        cells = {
            column: [write(g, audit) for g in section.groups] for column, write in columns.items()
        }
        if kind not in _WITHOUT or audit.everybody.without:
            found[kind] = f"{title}{by(audit, section)}", pd.DataFrame(cells, index=index)
    found["levers"] = (
        f"Levers{by(audit, section)}: share of the people with a way out",
        _lever_table(audit, section, names, levers),
    )
    told = {kind: (title, _telling(frame)) for kind, (title, frame) in found.items()}
    return {kind: told[kind] for kind in _ORDER if kind in told and told[kind][1].size}


def _lever_table(audit: Audit, section: Section, names: Sequence[str], levers: int) -> pd.DataFrame:
    import pandas as pd

    rows = [
        ("" if i else name, lever_name(audit, lever.name), *lever_shares(group, lever),
         typically(audit, group, lever.name) or NOTHING)
        for name, group in zip(names, section.groups, strict=True)
        for i, lever in enumerate(telling_levers(group, levers))
    ]  # fmt: skip
    first = section_name(audit, section)
    heads = [first, "lever", "nearest", "alone", "any", "typically"]
    return pd.DataFrame(rows, columns=heads).set_index(first)


def _telling(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table without the columns and rows that say nothing."""
    says = frame.map(lambda cell: _SAYS_NOTHING.fullmatch(cell) is None)
    return frame.loc[says.any(axis=1), says.any()]


class Mark(NamedTuple):
    """A group's line in a chart: its size, whether that is small, and a figure with a range."""

    name: str
    people: int
    few: bool
    low: float
    middle: float
    high: float


def charts(audit: Audit, section: Section) -> dict[str, list[Mark]]:
    """Return the marks of two charts: shares without a way out (in per cent), and costs.

    A chart that would show nothing but zeros is left out.
    """
    shares, costs = [], []
    for g in section.groups:
        name = group_name(audit, section, g)
        if (s := g.share_without) and audit.everybody.without:
            shares.append(Mark(name, g.people, g.few, 100 * s.low, 100 * s.value, 100 * s.high))
        if (c := g.cost) and audit.everybody.cost and audit.everybody.cost.high:
            costs.append(Mark(name, g.with_way_out, g.few_costs, c.low, c.median, c.high))
    return {kind: marks for kind, marks in (("without", shares), ("cost", costs)) if marks}


def lever_name(audit: Audit, lever: str) -> str:
    """Return the name of a lever, in the card's words."""
    return Wording(audit.about.wording).name(lever)


def telling_levers(group: Group, most: int) -> tuple[LeverUse, ...]:
    """Return the levers that help most, of those that a nearest way moves at all."""
    return tuple(lever for lever in group.levers if lever.nearest)[:most]


def lever_shares(group: Group, lever: LeverUse) -> list[str]:
    """Return the three shares of a lever."""
    return [percent(n / group.with_way_out) for n in (lever.nearest, lever.alone, lever.some)]


# What is asked for ------------------------------------------------------------------------------


def typically(audit: Audit, group: Group, lever: str) -> str:
    """Return what nearest ways mostly ask of a group with a lever; empty for few people."""
    asked = next((a for a in group.asked if a.lever == lever), None)
    return "" if asked is None or asked.people < FEW else asked_text(audit, asked)


def asked_text(audit: Audit, asked: Asked) -> str:
    """Write what is asked for: the median amount in its unit, or the level in the card's words."""
    if asked.amount:
        return f"{amount_text(audit, asked)} {asked.move}"
    truth = {"True": True, "False": False}
    level = Wording(audit.about.wording).value(asked.lever, truth.get(asked.to, asked.to))
    return f"to {level}"


def middle_half(audit: Audit, asked: Asked) -> str:
    """Write between which amounts the middle half lies; empty if they are the same, or none."""
    if not asked.amount:
        return ""
    low, _, high = _amounts(audit, asked)
    return f"{low} to {high}" if low != high else ""


def _amounts(audit: Audit, asked: Asked) -> list[str]:
    assert asked.amount is not None
    numbers = (asked.amount.low, asked.amount.median, asked.amount.high)
    return Wording(audit.about.wording).values(asked.lever, *map(_rounded, numbers))


def _rounded(amount: float) -> float:
    """Return an amount without the digits that come of being a quantile."""
    return float(round(amount)) if amount >= 10 else float(f"{amount:.2g}")


def amount_text(audit: Audit, asked: Asked) -> str:
    """Write the median amount that is asked for, in its unit."""
    wording, number = Wording(audit.about.wording), _amounts(audit, asked)[1]
    if wording.in_percent(asked.lever):  # 5 % more is not 5 points more
        return f"{number} points"
    return wording.with_unit(asked.lever, number, 0)


def _with_few(count: int, few: bool) -> str:
    return f"{count:,} (few)" if few else f"{count:,}"


def rule_name(audit: Audit, rule: str) -> str:
    """Say a rule in the card's words; a batch of an earlier release has its label alone."""
    if rule == DOMAIN and rule not in audit.about.rules_in_words:
        return "What may change has no other value within its limits"
    return clean(audit.about.rules_in_words.get(rule, rule))


def _binding(group: Group, audit: Audit, most: int = 3) -> str:
    first = list(group.binding.items())[:most]
    rules = [f"{cut(rule_name(audit, rule), _LONGEST_RULE)}: {n:,}" for rule, n in first]
    others = len(group.binding) - most
    return "; ".join(rules) + (f" and {others} more" if others > 0 else "") or NOTHING


# Cells -----------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Format a cost; only 0 is shown as 0.

    >>> number(0.12345), number(12.345), number(1234.5), number(0.00037)
    ('0.123', '12.3', '1,234', '0.0004')
    """
    digits = 3 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
    return f"{value:,.{digits}f}" if round(value, digits) or not value else f"{value:.1g}"


def points(difference: float) -> str:
    """Format a difference of shares, in points; only 0 is shown as 0.

    >>> points(0.048), points(-0.00037), points(0.0)
    ('+4.8', '-0.04', '+0.0')
    """
    shown = f"{100 * difference:+.1f}"
    return f"{100 * difference:+.1g}" if difference and float(shown) == 0 else shown


def percent(value: float | None, limits: Sequence[float] = ()) -> str:
    """Format a share, or a chance with its limits, that may be unknown."""
    return NOTHING if value is None else chance(value, limits)


def with_interval(share: Interval) -> str:
    """Format a share and its 95 % interval."""
    return (
        f"{percent(share.value)} (95{PERCENT} interval {percent(share.low)} to "
        f"{percent(share.high)})"
    )


def _figure(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.1f}".removesuffix(".0")


def _between(figure: Interval | Spread | None, write: Callable[[float], str]) -> str:
    """Format a figure and its range; a difference whose interval excludes 0 gets a star.

    Differences are recognised by ``write``, which adds their sign.
    """
    if figure is None:
        return NOTHING
    middle = figure.median if isinstance(figure, Spread) else figure.value
    signed = write(1.0).startswith("+")
    star = "*" if signed and isinstance(figure, Interval) and figure.leaves_out_zero else ""
    return f"{write(middle)} [{write(figure.low)}, {write(figure.high)}]{star}"


def signed(value: float) -> str:
    """Format a difference of costs."""
    return ("-" if value < 0 else "+") + number(abs(value))


def people(count: int) -> str:
    """Write a number of people."""
    return counted(count, "person", "people")


_TABLES: Mapping[str, tuple[str, Mapping[str, Callable[[Group, Audit], str]]]] = {
    "without": ("No way out found", {
        "rejected": lambda g, _: _with_few(g.people, g.few),
        "without": lambda g, _: f"{g.without:,}",
        "share, %": lambda g, _: _between(g.share_without, lambda x: f"{100 * x:.1f}"),
        "to the others": lambda g, _: _between(g.share_difference, points),
    }),
    "why": ("Why without", {
        "by the rules": lambda g, _: f"{g.why_without[OutcomeKind.INFEASIBLE]:,}",
        "budget": lambda g, _: f"{g.why_without[OutcomeKind.BUDGET_SPENT]:,}",
        "nothing left": lambda g, _: f"{g.why_without[OutcomeKind.EXHAUSTED]:,}",
        "rules that bind": _binding,
    }),
    "cost": ("The cost of a yes", {
        "way out": lambda g, _: _with_few(g.with_way_out, g.few_costs),
        "median cost": lambda g, _: _between(g.cost, number),
        "to the others": lambda g, _: _between(g.cost_difference, signed),
    }),
    "ways": ("What was found", {
        "changes": lambda g, _: _figure(g.changes),
        "fewest": lambda g, _: _figure(g.fewest_changes),
        "ways": lambda g, _: _figure(g.ways),
        "hold": lambda g, _: percent(g.holds),
        "options": lambda g, _: _figure(g.options),
    }),
    "search": ("The people and the search", {
        "approved": lambda g, _: percent(g.approval_rate),
        "chance": lambda g, _: percent(g.chance, limits=(0.5,)),
        "LLM calls": lambda g, _: _figure(g.llm_calls),
    }),
}  # fmt: skip
