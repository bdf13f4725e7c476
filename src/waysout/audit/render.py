"""An audit as Markdown, as one tidy table in CSV, as JSON, and as a page that needs nothing else.

Names of columns, groups, levers and rules are untrusted: they reach the page through `esc`, or
cleaned and escaped in a drawing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from html import escape
from math import floor, log10
from typing import TYPE_CHECKING, Any

from waysout.audit import words
from waysout.audit.figures import Audit, Group, LeverUse, Section
from waysout.audit.stats import Spread
from waysout.errors import InputError, unknown
from waysout.report.chart import WIDTH, drawing, label, line
from waysout.report.html import bullets, section, warning_note, whole_page
from waysout.report.tables import csv_text, esc, escape_markdown, html_table, markdown_table
from waysout.report.words import clean, cut

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("markdown", "csv", "html", "json")
_LONGEST = 60
_TIDY = ("by", "group", "few", "figure", "of", "value", "low", "high", "llm")


def render(audit: Audit, format: str, levers: int = 5) -> str:
    """Return an audit as text, with at most ``levers`` of each group; CSV and JSON have all."""
    if format == "markdown":
        return _markdown(audit, levers)
    if format == "csv":
        groups = [("", audit.everybody)]
        groups += [(section.name, group) for section in audit.sections for group in section.groups]
        rows = [
            [by, group.name, group.few_costs if name in _OF_THE_LUCKY else group.few, name, *told,
             words.source(audit)]
            for by, group in groups
            for name, *told in _figures(group)
        ]  # fmt: skip
        return csv_text(_TIDY, rows)
    if format == "html":
        return _page(audit, levers)
    if format == "json":
        return json.dumps(audit.as_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    raise InputError(unknown("format", format, FORMATS))


def cells(frame: pd.DataFrame, longest: int = _LONGEST) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of a table, each cell clean and cut."""
    rows = [(frame.index.name or "people", *frame.columns), *frame.itertuples(name=None)]
    head, *body = ([cut(clean(cell), longest) for cell in row] for row in rows)
    return head, body


def _markdown(audit: Audit, levers: int) -> str:
    told = (words.lead(audit), words.simulated_note(audit), words.source(audit))
    parts = [f"# {escape_markdown(words.title(audit))}", *map(escape_markdown, filter(None, told))]
    for one in words.sections(audit):
        for heading, frame in words.tables(one, levers).values():
            parts += [f"## {escape_markdown(heading)}", markdown_table(*cells(frame))]
    listed = "\n".join(f"- {escape_markdown(note)}" for note in words.notes(audit))
    return "\n\n".join([*parts, "## To read this", listed]) + "\n"


# CSV: a figure, what of (a lever, a rule, an outcome), its value, and the interval or quartiles. --

_OF_THE_LUCKY = (
    "cost", "cost_difference", "changes", "fewest_changes", "options", "lever_nearest",
    "lever_alone", "lever_some",
)  # fmt: skip
_PLAIN = (
    "people", "approved", "approval_rate", "with_way_out", "without", "changes", "fewest_changes",
    "options", "chance", "llm_calls",
)  # fmt: skip


def _figures(group: Group) -> Iterator[tuple[Any, ...]]:
    for name in _PLAIN:
        yield name, "", getattr(group, name), None, None
    for name in ("share_without", "share_difference", "cost_difference", "cost"):
        told = getattr(group, name)
        middle = told.median if isinstance(told, Spread) else told and told.value
        yield name, "", middle, told and told.low, told and told.high
    counts = (("outcome", group.outcomes), ("why_without", group.why_without),
              ("binding", group.binding))  # fmt: skip
    for name, table in counts:
        yield from ((name, str(of), count, None, None) for of, count in table.items())
    for lever in group.levers:
        for name in ("nearest", "alone", "some"):
            share = getattr(lever, name) / group.with_way_out
            yield f"lever_{name}", lever.name, share, None, None


# The page --------------------------------------------------------------------------------------

_LEFT, _RIGHT, _STEP, _TOP, _BOTTOM = 170, 60, 24, 14, 24
_LABEL = 26  # characters of a name that fit beside a chart
_RULER = 'style="stroke:var(--soft);stroke-dasharray:4 3"'
_SHARES = (
    "People for whom no way out was found, in per cent, with 95 % intervals. Dashed: everybody."
)
_COSTS = "The cost of a yes: median and quartiles of the people with a way out. Dashed: everybody."
_LEVERS = (
    "share of the people with a way out whose nearest option moves it; in small, those for "
    "whom it suffices alone, and those with some option that moves it"
)
Mark = tuple[Group, bool, float, float, float]
"""A group's line in a chart: whether it has few people, and a figure between two others."""


def _page(audit: Audit, levers: int) -> str:
    everybody = audit.everybody
    parts = ["<header>", f"<h1>{esc(words.title(audit))}</h1>"]
    parts += [warning_note(note)] if (note := words.simulated_note(audit)) else []
    parts.append(f'<p class="lead">{esc(words.lead(audit))}</p>')
    told = [text for text in (words.source(audit), words.coverage(audit)) if text]
    parts += [*(f'<p class="soft">{esc(text)}</p>' for text in told), "</header>"]
    for one in words.sections(audit):
        drawn = dict.fromkeys(("without", "cost"), "")
        if one.by and (overall := everybody.share_without):
            shares = [(g, g.few, 100 * s.low, 100 * s.value, 100 * s.high)
                      for g in one.groups if (s := g.share_without)]  # fmt: skip
            ruler = 100 * overall.value
            drawn["without"] = _chart(shares, ruler, _SHARES, "--warn", lambda x: f"{x:.1f}")
        if one.by and everybody.cost:
            costs = [(g, g.few_costs, c.low, c.median, c.high)
                     for g in one.groups if (c := g.cost)]  # fmt: skip
            drawn["cost"] = _chart(costs, everybody.cost.median, _COSTS, "--yes", words.number)
        made = {}
        for kind, (heading, frame) in words.tables(one, levers).items():
            heads, rows = cells(frame)
            marked = ([esc(cell) for cell in row] for row in rows)
            table = html_table(cut(heading, _LONGEST), list(map(esc, heads)), marked)
            made[kind] = drawn.get(kind, "") + table
        made["levers"] = _levers(one, everybody.levers[:levers])
        parts.append(section(f"By {esc(one.name)}" if one.by else "Everybody", *made.values()))
    if audit.about.rules:
        rules = bullets(map(esc, audit.about.rules))
        parts.append(section("The rules that every way out keeps", rules))
    parts.append(section("To read this", bullets(map(esc, words.notes(audit)))))
    return whole_page(words.title(audit), "page.css", "\n".join(parts))


def _levers(one: Section, levers: Sequence[LeverUse]) -> str:
    """Return groups × the levers that help most overall, darker where the nearest moves it."""
    rows = []
    for group in one.groups:
        own = {lever.name: lever for lever in group.levers}
        row = [esc(cut(clean(group.name), _LONGEST))]
        for name in (lever.name for lever in levers if group.with_way_out):
            lever = own.get(name, LeverUse(name, 0, 0, 0))
            nearest, alone, some = map(escape, words.lever_shares(group, lever))
            shade = 0.45 * lever.nearest / group.with_way_out
            row.append(
                f'<td style="padding-left:.5rem;background:rgba(26,107,60,{shade:.2f})">{nearest}'
                f"<small>alone {alone}, some {some}</small></td>"
            )
        rows += [row] if group.with_way_out else []
    names = [one.name, *(lever.name for lever in levers)]
    heads = [esc(cut(clean(name), _LONGEST)) for name in names]
    return html_table(f"Levers{words.by(one)}: {_LEVERS}", heads, rows) if levers else ""


def _chart(
    marks: Sequence[Mark], ruler: float, caption: str, colour: str, write: Callable[[float], str]
) -> str:
    """Draw a line for each group, on one scale from 0; hollow ones have few people."""
    most = _round_up(max([ruler, *(high for *_, high in marks)]))
    bottom = _TOP + _STEP * len(marks)

    def across(value: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * value / most

    parts = []
    for value in (most * i / 4 for i in range(5)):
        parts.append(line(across(value), across(value), 4, bottom))
        parts.append(label(across(value), bottom + 16, f"{value:g}"))
    parts.append(line(across(ruler), across(ruler), 4, bottom, _RULER))
    for i, (group, few, low, middle, high) in enumerate(marks):
        y = _TOP + _STEP * i + _STEP // 2
        name = escape(cut(clean(group.name), _LABEL)) + (" (few)" if few else "")
        look = f'style="stroke:var({colour});stroke-width:1.5"'
        fill = f"fill:var({'--paper' if few else colour});stroke:var({colour})"
        parts += [
            label(_LEFT - 8, y + 4, name, "end"),
            line(across(low), across(high), y, y, look),
            f'<circle cx="{across(middle):.1f}" cy="{y}" r="4.5" style="{fill}"/>',
            label(WIDTH - 4, y + 4, write(middle), "end"),
        ]
    return drawing(bottom + _BOTTOM, caption, parts)


def _round_up(value: float) -> float:
    """Return the end of a scale: the next number that reads easily in quarters.

    >>> _round_up(37.2), _round_up(0.61), _round_up(0)
    (40.0, 0.8, 1.0)
    """
    power = 10.0 ** floor(log10(value)) if value > 0 else 1.0
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if value <= step * power * (1 + 1e-9))
