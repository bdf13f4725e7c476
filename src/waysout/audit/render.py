"""An audit as Markdown, a tidy CSV table, JSON, or a self-contained HTML page.

Names of columns, groups, levers and rules are untrusted: all of them are escaped, by `esc` or, in
drawings, after cleaning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from html import escape
from math import floor, log10
from typing import TYPE_CHECKING, Any

from waysout.audit import words
from waysout.audit.figures import Audit, Group, LeverUse, Section
from waysout.audit.findings import Finding, findings
from waysout.audit.stats import Interval, Spread
from waysout.audit.words import Mark
from waysout.errors import InputError, unknown
from waysout.report.chart import WIDTH, drawing, label, line
from waysout.report.html import bullets, section, warning_note, whole_page
from waysout.report.tables import csv_text, esc, escape_markdown, html_table, markdown_table
from waysout.report.words import clean, cut

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("markdown", "csv", "html", "json")
_LONGEST = 60
_LONGEST_CELL = 240  # a few rules in words
_TIDY = ("by", "group", "few", "figure", "of", "value", "low", "high", "llm")


def render(audit: Audit, format: str, levers: int = 5) -> str:
    """Return an audit as text, with at most ``levers`` per group; CSV and JSON have all."""
    if format == "markdown":
        return _markdown(audit, levers)
    if format == "csv":
        groups = [("", audit.everybody)]
        groups += [(section.name, group) for section in audit.sections for group in section.groups]
        source, rows = words.source(audit), []
        for by, group in groups:
            for name, *values in _figures(group):
                only_with = name in _ONLY_WITH_WAY_OUT or name.startswith(("lever_", "asked"))
                few = group.few_costs if only_with else group.few
                rows.append([by, group.name, few, name, *values, source])
        return csv_text(_TIDY, rows)
    if format == "html":
        return _page(audit, levers)
    if format == "json":
        return json.dumps(audit.as_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    raise InputError(unknown("format", format, FORMATS))


def cells(frame: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return the headings and rows of a table, each cell cleaned and cut."""
    rows = [(frame.index.name or "people", *frame.columns), *frame.itertuples(name=None)]
    head, *body = (
        [cut(clean(name), _LONGEST), *(cut(clean(cell), _LONGEST_CELL) for cell in others)]
        for name, *others in rows
    )
    return head, body


def _markdown(audit: Audit, levers: int) -> str:
    intro = (words.lead(audit), words.stand_in_note(audit), words.source(audit))
    parts = [f"# {escape_markdown(words.title(audit))}", *map(escape_markdown, filter(None, intro))]
    for finding in findings(audit):
        parts += [f"## {escape_markdown(finding.title)}", escape_markdown(finding.says)]
        parts += ["\n".join(f"- {escape_markdown(item)}" for item in finding.items)]
        parts += [escape_markdown(finding.caveat)]
    for one in words.sections(audit):
        for heading, frame in words.tables(audit, one, levers).values():
            parts += [f"## {escape_markdown(heading)}", markdown_table(*cells(frame))]
    listed = "\n".join(f"- {escape_markdown(note)}" for note in words.notes(audit))
    return "\n\n".join(filter(None, [*parts, "## How to read this", listed])) + "\n"


# Figures of the people with a way out.
_ONLY_WITH_WAY_OUT = (
    "cost", "cost_difference", "holds", "changes", "fewest_changes", "ways", "options",
)  # fmt: skip


def _figures(group: Group) -> Iterator[tuple[Any, ...]]:
    """Yield (name, subject, value, low, high) for each figure."""
    for field in fields(group):
        name, value = field.name, getattr(group, field.name)
        if isinstance(value, (Interval, Spread)):
            middle = value.median if isinstance(value, Spread) else value.value
            yield name, "", middle, value.low, value.high
        elif isinstance(value, Mapping):
            name = "outcome" if name == "outcomes" else name
            yield from ((name, str(subject), n, None, None) for subject, n in value.items())
        elif name not in ("values", "levers", "asked", "few", "few_costs"):
            yield name, "", value, None, None
    for lever in group.levers:
        for name in ("nearest", "alone", "some"):
            share = getattr(lever, name) / group.with_way_out
            yield f"lever_{name}", lever.name, share, None, None
    for asked in group.asked:
        subject = f"{asked.lever}: {asked.move} {asked.to}".rstrip()
        yield "asked", subject, asked.people, None, None
        if amount := asked.amount:
            yield "asked_amount", subject, amount.median, amount.low, amount.high


# The page --------------------------------------------------------------------------------------

_LEFT, _RIGHT, _STEP, _TOP, _BOTTOM = 170, 60, 24, 14, 24
_LABEL = 26  # characters of a name that fit beside a chart
_RULER = 'style="stroke:var(--soft);stroke-dasharray:4 3"'


def _page(audit: Audit, levers: int) -> str:
    parts = ["<header>", f"<h1>{esc(words.title(audit))}</h1>"]
    parts += [warning_note(note)] if (note := words.stand_in_note(audit)) else []
    parts.append(f'<p class="lead">{esc(words.lead(audit))}</p>')
    details = [text for text in (words.source(audit), words.coverage(audit)) if text]
    parts += [*(f'<p class="soft">{esc(text)}</p>' for text in details), "</header>"]
    if cards := "".join(map(_finding, findings(audit))):
        parts.append(section("What stands out", f'<ol class="cards findings">{cards}</ol>'))
    parts += [_groups(audit, one, levers) for one in words.sections(audit)]
    if rules_told := [*audit.about.rules_in_words.values()] or audit.about.rules:
        rules = bullets(map(esc, rules_told))
        parts.append(section("The rules that every way out keeps", rules))
    parts.append(section("How to read this", bullets(map(esc, words.notes(audit)))))
    return whole_page(words.title(audit), "page.css", "\n".join(parts))


def _groups(audit: Audit, one: Section, levers: int) -> str:
    """Return the charts and tables of a section."""
    overall = words.charts(audit, words.everybody(audit))
    drawn = words.charts(audit, one) if one.by else {}
    made = {}
    for kind, (heading, frame) in words.tables(audit, one, levers).items():
        heads, rows = cells(frame)
        marked = ([esc(cell) for cell in row] for row in rows)
        table = html_table(cut(heading, _LONGEST), list(map(esc, heads)), marked)
        chart = _chart(kind, drawn[kind], overall[kind]) if kind in drawn else ""
        made[kind] = chart + table
    if "levers" in made:
        made["levers"] = _levers(audit, one, levers)
    heading = f"By {esc(words.section_name(audit, one))}" if one.by else "Everybody"
    return section(heading, *made.values()) if made else ""


def _finding(finding: Finding) -> str:
    items = bullets(map(esc, finding.items)) if finding.items else ""
    caveat = f'<p class="reason">{esc(finding.caveat)}</p>' if finding.caveat else ""
    title, says = esc(finding.title), esc(finding.says)
    return f'<li class="card"><h3>{title}</h3><p>{says}</p>{items}{caveat}</li>'


def _levers(audit: Audit, one: Section, most: int) -> str:
    """Return groups × levers, shaded by how often the nearest way moves it."""
    levers = [lever.name for lever in words.telling_levers(audit.everybody, most)]
    rows = []
    for group in one.groups:
        own = {lever.name: lever for lever in group.levers}
        told = [own.get(name, LeverUse(name, 0, 0, 0)) for name in levers]
        name = esc(cut(words.group_name(audit, one, group), _LONGEST))
        if group.with_way_out:
            rows.append([name, *(_lever_cell(audit, group, lever) for lever in told)])
    names = [words.section_name(audit, one), *(words.lever_name(audit, name) for name in levers)]
    heads = [esc(cut(name, _LONGEST)) for name in names]
    title = (
        f"Levers{words.by(audit, one)}: share of the people with a way out whose nearest "
        f"{audit.nearest} moves it; in small print: what it typically asks for, the share for whom "
        f"it alone suffices, and the share with any {audit.nearest} that moves it"
    )
    return html_table(title, heads, rows) if levers else ""


def _lever_cell(audit: Audit, group: Group, lever: LeverUse) -> str:
    nearest, *others = map(escape, words.lever_shares(group, lever))
    counts = zip(("alone", "any"), others, (lever.alone, lever.some), strict=True)
    asked = words.typically(audit, group, lever.name)
    lines = [esc(asked)] if asked else []
    lines.append(", ".join(f"{what} {share}" for what, share, count in counts if count))
    shade = 0.45 * lever.nearest / group.with_way_out
    return (
        f'<td style="padding-left:.5rem;background:rgba(26,107,60,{shade:.2f})">'
        f"{nearest if lever.nearest else words.NOTHING}"
        + "".join(f"<small>{line}</small>" for line in lines if line)
        + "</td>"
    )


def _chart(kind: str, marks: Sequence[Mark], overall: Sequence[Mark]) -> str:
    """Draw one line per group, on a scale from 0; a hollow mark means few people."""
    colour, write = ("--warn", "{:.1f}".format) if kind == "without" else ("--yes", words.number)
    most = _round_up(max(mark.high for mark in (*marks, *overall)))
    bottom = _TOP + _STEP * len(marks)

    def across(value: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * value / most

    parts = []
    for value in (most * i / 4 for i in range(5)):
        parts.append(line(across(value), across(value), 4, bottom))
        parts.append(label(across(value), bottom + 16, f"{value:g}"))
    ruler = across(overall[0].middle)
    parts.append(line(ruler, ruler, 4, bottom, _RULER))
    for i, (name, _, few, low, middle, high) in enumerate(marks):
        y = _TOP + _STEP * i + _STEP // 2
        shown = escape(cut(clean(name), _LABEL)) + (" (few)" if few else "")
        look = f'style="stroke:var({colour});stroke-width:1.5"'
        fill = f"fill:var({'--paper' if few else colour});stroke:var({colour})"
        parts += [
            label(_LEFT - 8, y + 4, shown, "end"),
            line(across(low), across(high), y, y, look),
            f'<circle cx="{across(middle):.1f}" cy="{y}" r="4.5" style="{fill}"/>',
            label(WIDTH - 4, y + 4, write(middle), "end"),
        ]
    return drawing(bottom + _BOTTOM, f"{words.CAPTIONS[kind]} Dashed: everybody.", parts)


def _round_up(value: float) -> float:
    """Return the end of a scale: the next number whose quarters are round.

    >>> _round_up(37.2), _round_up(0.61), _round_up(0)
    (40.0, 0.8, 1.0)
    """
    power = 10.0 ** floor(log10(value)) if value > 0 else 1.0
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if value <= step * power * (1 + 1e-9))
