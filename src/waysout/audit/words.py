"""The text of an audit, the same in every format: its sentences, its tables and its notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from waysout.audit.figures import FEW, Audit, Group, LeverUse, Section
from waysout.audit.stats import RESAMPLES, SEED, Interval, Spread
from waysout.domain.result import OutcomeKind
from waysout.report.words import chance, counted, goal_text

if TYPE_CHECKING:
    import pandas as pd

NOTHING = "–"
CAPTIONS = {
    "without": "People for whom no way out was found, in per cent, with 95 % intervals.",
    "cost": "The cost of a yes: median and quartiles of the people with a way out.",
}
_SIMULATED = " (simulated: no language model)"
_OF_WAYS = ("ways", "hold")  # columns of tables
_LIMITS = {"llm_calls": "LLM call", "oracle_rows": "oracle row"}


def title(audit: Audit) -> str:
    """Return the title of the audit."""
    return f"Audit: {audit.about.title}" if audit.about.title else "Audit of a batch"


def lead(audit: Audit) -> str:
    """Summarize in a sentence or two what was found for everybody."""
    all_ = audit.everybody
    if not all_.share_without:
        return f"Of {_people(audit.rows)} nobody was rejected."
    share = all_.share_without
    value, low, high = (f"{100 * x:.1f}%" for x in (share.value, share.low, share.high))
    text = (
        f"Of {_people(all_.people)} whom the model rejected, {all_.with_way_out:,} "
        f"{'has' if all_.with_way_out == 1 else 'have'} a way out; for {all_.without:,} none "
        f"was found: {value}, 95 % interval {low} to {high}."
    )
    if all_.cost:
        text += f" The typical cost of a yes, that of the nearest {audit.nearest} found, is "
        text += number(all_.cost.median)
        text += f" ({number(all_.cost.low)} to {number(all_.cost.high)} for the middle half)."
    return text


def source(audit: Audit) -> str:
    """Describe the method, LLM, budget and goal, without the address of a server."""
    about, budget = audit.about, audit.about.budget
    llm = about.llm.partition("@")[0] + (_SIMULATED if about.simulated else "")
    limits = [counted(int(n), what) for name, what in _LIMITS.items() if (n := budget.get(name))]
    parts = [
        f"method {about.method}" if about.method else "",
        f"LLM {llm}" if llm else "",
        f"at most {' and '.join(limits)} a person" if limits else "",
        f"asked for: {goal_text(about.goal)}" if about.goal else "",
    ]
    return ", ".join(part for part in parts if part)


def simulated_note(audit: Audit) -> str:
    """Return a note that the LLM was simulated, or an empty string."""
    if not audit.about.simulated:
        return ""
    return (
        "Simulated: the proposals came from a simulated LLM, not from a language model. "
        "The answers of the model that decides are real."
    )


def coverage(audit: Audit) -> str:
    """Return which rows the figures cover, or an empty string if all."""
    rows, limit = audit.about.rows, audit.about.limit
    if rows is None or audit.rows >= rows:
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
        yield f"{_people(approved)} had a yes already: counted among the approved, and no more."
    for kind, how in ((OutcomeKind.FAILED, "failed"), (OutcomeKind.INTERRUPTED, "was interrupted")):
        if n := audit.everybody.outcomes.get(kind, 0):
            yield f"{_people(n)} whose search {how}: left out of every figure."
    yield (
        "These figures describe what this search found, with these rules and this budget. That no "
        "way out was found does not mean that there is none, except where the rules leave none."
    )
    yield (
        "By the rules: they leave no way out. Budget: none was found before it was spent. Tried "
        "all: none was found, and the search had nothing left to try."
    )
    yield _cost_note(audit)
    yield (
        f"A lever is in the nearest {audit.nearest}, suffices alone (with what rules tie to it), "
        f"or is in any {audit.nearest} found. What moves the model's answer is not a cause of "
        "anything else."
    )
    yield _found_note(audit)
    yield (
        "Approved: the share the model approves as they are. Chance: the median of those rejected. "
        "LLM calls: their mean."
    )
    if not audit.comparisons:
        return
    yield (
        "95 % intervals: Wilson's of a share, Newcombe's of a difference of shares, and of a "
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
        "10 % and 50 % farther."
    )
    return (
        f"Medians of those with a way out: changes in the nearest {audit.nearest}, fewest changes "
        f"in any, {'ways, ' if ways else ''}and options, which are approved rows with values of "
        f"their own.{holds if ways else ''}"
    )


# Tables ----------------------------------------------------------------------------------------


def sections(audit: Audit) -> tuple[Section, ...]:
    """Return the sections, or everybody as one if nothing is grouped."""
    return audit.sections or (Section((), (audit.everybody,), {}, 0),)


def by(section: Section) -> str:
    """Return what a section is grouped by, to follow a title; empty for everybody."""
    return f", by {section.name}" if section.by else ""


def tables(audit: Audit, section: Section, levers: int) -> dict[str, tuple[str, pd.DataFrame]]:
    """Return a section's tables of text, each a title and a frame with a row for each group.

    Each is narrow enough for a terminal. The table of levers has at most ``levers`` of a group.
    """
    import pandas as pd

    names = pd.Index([group.name for group in section.groups], name=section.name)
    found = {}
    for kind, (title, columns) in _TABLES.items():
        cells = {
            column: [write(g) for g in section.groups]
            for column, write in columns.items()
            if audit.nearest == "way" or column not in _OF_WAYS
        }
        found[kind] = f"{title}{by(section)}", pd.DataFrame(cells, index=names)
    rows = [
        ("" if i else group.name, lever.name, *lever_shares(group, lever))
        for group in section.groups
        for i, lever in enumerate(group.levers[:levers])
    ]
    heads = [section.name, "lever", "in the nearest", "alone", "in any"]
    title = f"Levers{by(section)}: share of the people with a way out"
    table = pd.DataFrame(rows, columns=heads).set_index(section.name)
    search = found.pop("search")
    return {**found, "levers": (title, table), "search": search}


class Mark(NamedTuple):
    """A group's line in a chart: its size, whether that is small, and a figure with a range."""

    group: Group
    people: int
    few: bool
    low: float
    middle: float
    high: float


def charts(groups: Sequence[Group]) -> dict[str, list[Mark]]:
    """Return the marks of two charts: shares without a way out (in per cent), and costs."""
    shares = [(g, s) for g in groups if (s := g.share_without)]
    costs = [(g, c) for g in groups if (c := g.cost)]
    return {
        "without": [
            Mark(g, g.people, g.few, 100 * s.low, 100 * s.value, 100 * s.high) for g, s in shares
        ],
        "cost": [Mark(g, g.with_way_out, g.few_costs, c.low, c.median, c.high) for g, c in costs],
    }


def lever_shares(group: Group, lever: LeverUse) -> list[str]:
    """Return the three shares of a lever."""
    return [percent(n / group.with_way_out) for n in (lever.nearest, lever.alone, lever.some)]


def _with_few(count: int, few: bool) -> str:
    return f"{count:,} (few)" if few else f"{count:,}"


def _binding(group: Group, most: int = 3) -> str:
    rules = [f"{rule} ({n:,})" for rule, n in list(group.binding.items())[:most]]
    others = len(group.binding) - most
    return ", ".join(rules) + (f" and {others} more" if others > 0 else "") or NOTHING


# Cells -----------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Format a cost.

    >>> number(0.12345), number(12.345), number(1234.5)
    ('0.123', '12.3', '1,234')
    """
    digits = 3 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
    return f"{value:,.{digits}f}"


def percent(value: float | None, limits: Sequence[float] = ()) -> str:
    """Format a share, or a chance with its limits, that may be unknown."""
    return NOTHING if value is None else chance(value, limits)


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


def _signed(value: float) -> str:
    return ("-" if value < 0 else "+") + number(abs(value))


def _people(count: int) -> str:
    return counted(count, "person", "people")


_TABLES: Mapping[str, tuple[str, Mapping[str, Callable[[Group], str]]]] = {
    "without": ("No way out found", {
        "rejected": lambda g: _with_few(g.people, g.few),
        "without": lambda g: f"{g.without:,}",
        "share, %": lambda g: _between(g.share_without, lambda x: f"{100 * x:.1f}"),
        "to the others": lambda g: _between(g.share_difference, lambda x: f"{100 * x:+.1f}"),
    }),
    "why": ("Why without", {
        "by the rules": lambda g: f"{g.why_without[OutcomeKind.INFEASIBLE]:,}",
        "budget": lambda g: f"{g.why_without[OutcomeKind.BUDGET_SPENT]:,}",
        "nothing left": lambda g: f"{g.why_without[OutcomeKind.EXHAUSTED]:,}",
        "rules that bind": _binding,
    }),
    "cost": ("The cost of a yes", {
        "way out": lambda g: _with_few(g.with_way_out, g.few_costs),
        "median cost": lambda g: _between(g.cost, number),
        "to the others": lambda g: _between(g.cost_difference, _signed),
    }),
    "ways": ("What was found", {
        "changes": lambda g: _figure(g.changes),
        "fewest": lambda g: _figure(g.fewest_changes),
        "ways": lambda g: _figure(g.ways),
        "hold": lambda g: percent(g.holds),
        "options": lambda g: _figure(g.options),
    }),
    "search": ("The people and the search", {
        "approved": lambda g: percent(g.approval_rate),
        "chance": lambda g: percent(g.chance, limits=(0.5,)),
        "LLM calls": lambda g: _figure(g.llm_calls),
    }),
}  # fmt: skip
