"""What an audit says, whatever it is written as: its sentences, its tables, its notes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waysout.audit.figures import FEW, Audit, Group, LeverUse, Section
from waysout.audit.stats import RESAMPLES, SEED, Interval, Spread
from waysout.domain.result import OutcomeKind
from waysout.report.words import chance, counted, goal_text

NOTHING = "–"


@dataclass(frozen=True)
class AuditTable:
    """A table of text, and what kind of figures it holds."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def title(audit: Audit) -> str:
    """Return what the audit is called."""
    return f"Audit: {audit.about.title}" if audit.about.title else "Audit of a batch"


def lead(audit: Audit) -> str:
    """Say in a sentence or two what was found for everybody."""
    all_ = audit.everybody
    if not all_.share_without:
        return f"Of {counted(audit.rows, 'person', 'people')} nobody was rejected."
    said = f"Of {_people(all_.people)} whom the model rejected, {all_.with_way_out:,} "
    said += f"{'has' if all_.with_way_out == 1 else 'have'} a way out; for {all_.without:,} none "
    told = all_.share_without
    said += f"was found: {_percent(told.value)}, 95 % interval {_percent(told.low)} to "
    said += f"{_percent(told.high)}."
    if all_.cost:
        said += f" The typical cost of a yes is {number(all_.cost.median)}"
        said += f" ({number(all_.cost.low)} to {number(all_.cost.high)} for the middle half)."
    return said


def source(audit: Audit) -> str:
    """Say what was searched with; a server's address is nothing to a reader."""
    about = audit.about
    llm = about.llm.partition("@")[0] + (_SIMULATED if about.simulated else "")
    limits = [
        counted(int(about.budget[name]), what)
        for name, what in _LIMITS.items()
        if name in about.budget
    ]
    told = [
        f"method {about.method}" if about.method else "",
        f"LLM {llm}" if llm else "",
        f"at most {' and '.join(limits)} a person" if limits else "",
        f"asked for: {goal_text(about.goal)}" if about.goal else "",
    ]
    return ", ".join(part for part in told if part)


_SIMULATED = " (simulated: no language model)"
_LIMITS = {"llm_calls": "LLM call", "oracle_rows": "oracle row"}


def simulated_note(audit: Audit) -> str:
    """Say that the LLM was the simulated one; empty where it was not."""
    if not audit.about.simulated:
        return ""
    return (
        "Simulated: what an LLM was to propose came from a simulated one, no language model. "
        "The answers of the model that decides are real."
    )


def coverage(audit: Audit) -> str:
    """Say which rows the figures cover, where that is not all of them."""
    rows, limit = audit.about.rows, audit.about.limit
    if rows is None or audit.rows >= rows:
        return ""
    told = f"These figures cover {audit.rows:,} of the {rows:,} rows of the input"
    if limit is not None and audit.rows >= limit:
        return f"{told}: the batch was limited to the first of them."
    return f"{told}: those of the {counted(audit.parts, 'part')} that are done by now."


def notes(audit: Audit) -> Iterator[str]:
    """Yield what must be known to read the figures."""
    if told := coverage(audit):
        yield f"{told} They need not be like the others."
    yield from _left_out(audit.everybody)
    yield (
        "This tells what this search found, with these rules and this budget. That no way out was "
        "found does not mean that there is none, but where the rules leave none."
    )
    yield (
        "By the rules: they leave no way out. Budget: none was found before it was spent. Tried "
        "all: none was found, and the search had nothing left to try."
    )
    yield (
        "The cost of a yes is the distance of the nearest option found, the present values being "
        "0, with the quartiles in brackets. It is known of people with a way out only: a group "
        "whose hardest cases found none can look cheap."
    )
    yield (
        "A lever is in the nearest option, suffices alone (with what rules tie to it), or is in "
        "some option. What moves the model's answer is no cause of anything else."
    )
    yield (
        "Approved: the share the model approves as they are. Medians: the chance of those "
        "rejected; changes in the nearest option, fewest changes in any, and options, of those "
        "with a way out. LLM calls: the mean of those rejected."
    )
    if audit.comparisons:
        yield from _on_comparisons(audit)


def _left_out(all_: Group) -> Iterator[str]:
    approved = all_.approved
    if approved:
        yield f"{_people(approved)} had a yes already: counted among the approved, and no more."
    for kind in (OutcomeKind.FAILED, OutcomeKind.INTERRUPTED):
        if n := all_.outcomes.get(kind, 0):
            yield f"{_people(n)} whose search {_HOW[kind]}: left out of every figure."


_HOW = {OutcomeKind.FAILED: "failed", OutcomeKind.INTERRUPTED: "was interrupted"}


def _on_comparisons(audit: Audit) -> Iterator[str]:
    yield (
        "95 % intervals: Wilson's of a share, Newcombe's of a difference of shares, and of a "
        f"difference of medians a percentile bootstrap ({RESAMPLES:,} resamples, seed {SEED}). "
        "Differences are to all other people (shares: in points); * marks intervals that leave out "
        "0."
    )
    yield (
        "Intervals are not adjusted for many comparisons: of the "
        f"{audit.comparisons:,} told here, about one in twenty would leave out 0 by chance alone "
        "if no group differed. A difference is no proof of unfairness, and none is no proof of "
        "fairness."
    )
    if any(group.few or group.few_costs for s in audit.sections for group in s.groups):
        yield f"few: fewer than {FEW} people; such figures say little."


# Tables ----------------------------------------------------------------------------------------


def sections(audit: Audit) -> tuple[Section, ...]:
    """Return the sections, or everybody as one where nothing is grouped."""
    return audit.sections or (Section((), (audit.everybody,), {}, 0),)


def tables(section: Section, levers: int) -> list[AuditTable]:
    """Return a section's tables, each narrow enough for a terminal; so many levers at most."""
    return [
        without_table(section),
        why_table(section),
        cost_table(section),
        lever_table(section, levers),
        search_table(section),
    ]


def without_table(section: Section) -> AuditTable:
    """Return who has no way out."""
    columns = (section.name, "rejected", "without", "share, %", "to the others")
    return AuditTable(f"No way out found{by(section)}", columns, tuple(
        (g.name, _with_few(g.people, g.few), f"{g.without:,}", interval(g.share_without),
         points(g.share_difference)) for g in section.groups
    ))  # fmt: skip


def why_table(section: Section) -> AuditTable:
    """Return why people are without a way out."""
    columns = (section.name, "by the rules", "budget", "tried all", "rules that bind")
    return AuditTable(f"Why without{by(section)}", columns, tuple(
        (g.name, *(f"{n:,}" for n in g.why_without.values()), binding(g) or NOTHING)
        for g in section.groups
    ))  # fmt: skip


def cost_table(section: Section) -> AuditTable:
    """Return what a yes costs."""
    columns = (section.name, "way out", "median cost", "to the others")
    return AuditTable(f"The cost of a yes{by(section)}", columns, tuple(
        (g.name, _with_few(g.with_way_out, g.few_costs), quartiles(g.cost),
         difference(g.cost_difference)) for g in section.groups
    ))  # fmt: skip


def search_table(section: Section) -> AuditTable:
    """Return what else is known of the people, their options and the search."""
    columns = (section.name, "approved", "chance", "changes", "fewest", "options", "LLM calls")
    return AuditTable(f"The people and the search{by(section)}", columns, tuple(
        (g.name, percent(g.approval_rate), percent(g.chance), figure(g.changes),
         figure(g.fewest_changes), figure(g.options), figure(g.llm_calls)) for g in section.groups
    ))  # fmt: skip


def lever_table(section: Section, most: int) -> AuditTable:
    """Return the levers that help most, group by group."""
    columns = (section.name, "lever", "in the nearest", "alone", "in some option")
    rows = [
        ("" if i else g.name, lever.name, *lever_shares(g, lever))
        for g in section.groups
        for i, lever in enumerate(g.levers[:most])
    ]
    return AuditTable(
        f"Levers{by(section)}: share of the people with a way out", columns, tuple(rows)
    )


def by(section: Section) -> str:
    """Say what a section is grouped by; nothing where it is everybody."""
    return f", by {section.name}" if section.by else ""


def _with_few(count: int, few: bool) -> str:
    return f"{count:,} (few)" if few else f"{count:,}"


def binding(group: Group, most: int = 3) -> str:
    """Say which rules leave people without a way out, and how many."""
    told = [f"{rule} ({n:,})" for rule, n in list(group.binding.items())[:most]]
    others = len(group.binding) - most
    return ", ".join(told) + (f" and {others} more" if others > 0 else "")


def lever_shares(group: Group, lever: LeverUse) -> tuple[str, str, str]:
    """Return the three shares of a lever."""
    nearest, alone, some = (
        percent(n / group.with_way_out) for n in (lever.nearest, lever.alone, lever.some)
    )
    return nearest, alone, some


# Words -----------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Write a cost.

    >>> number(0.12345), number(12.345), number(1234.5)
    ('0.123', '12.3', '1,234')
    """
    digits = 3 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
    return f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    """Write a share, of which some may not be there."""
    return NOTHING if value is None else chance(value)


def figure(value: float | None) -> str:
    """Write a count that may be a mean or a median."""
    return NOTHING if value is None else f"{value:,.1f}".removesuffix(".0")


def interval(told: Interval | None) -> str:
    """Write a share and its interval, in per cent."""
    if told is None:
        return NOTHING
    return f"{100 * told.value:.1f} [{100 * told.low:.1f}, {100 * told.high:.1f}]"


def points(told: Interval | None) -> str:
    """Write a difference of shares, in points."""
    if told is None:
        return NOTHING
    mark = "*" if told.leaves_out_zero else ""
    return f"{100 * told.value:+.1f} [{100 * told.low:+.1f}, {100 * told.high:+.1f}]{mark}"


def difference(told: Interval | None) -> str:
    """Write a difference of costs."""
    if told is None:
        return NOTHING
    mark = "*" if told.leaves_out_zero else ""
    value, low, high = (_signed(x) for x in (told.value, told.low, told.high))
    return f"{value} [{low}, {high}]{mark}"


def _signed(value: float) -> str:
    return ("-" if value < 0 else "+") + number(abs(value))


def quartiles(told: Spread | None) -> str:
    """Write a median with its quartiles."""
    if told is None:
        return NOTHING
    return f"{number(told.median)} [{number(told.low)}, {number(told.high)}]"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def _people(count: int) -> str:
    return counted(count, "person", "people")
