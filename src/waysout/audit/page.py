"""An audit as one page that needs nothing else: tables, and charts drawn in the page itself.

Names of columns, groups, levers and rules are untrusted: they reach the page through `esc`, or
cleaned and escaped in a drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from waysout.audit.figures import Audit, Group, LeverUse, Section
from waysout.audit.words import (
    AuditTable,
    by,
    cost_table,
    coverage,
    lead,
    lever_shares,
    notes,
    number,
    search_table,
    sections,
    simulated_note,
    source,
    title,
    why_table,
    without_table,
)
from waysout.report.html import esc, whole_page
from waysout.report.words import clean, cut

_LONGEST = 60
_WIDTH, _LEFT, _RIGHT, _STEP, _TOP, _BOTTOM = 640, 170, 60, 24, 14, 24
_LABEL = 26  # characters of a name that fit beside a chart
_RULER = "stroke:var(--soft);stroke-dasharray:4 3"


def page(audit: Audit, levers: int = 5) -> str:
    """Return a whole page about a batch, with so many levers at most."""
    parts = [_head(audit)]
    parts += [_section(section, audit.everybody, levers) for section in sections(audit)]
    if audit.about.rules:
        rules = _each("li", map(esc, audit.about.rules))
        parts.append(_titled("The rules that every way out keeps", f"<ul>{rules}</ul>"))
    parts.append(_titled("To read this", f"<ul>{_each('li', map(esc, notes(audit)))}</ul>"))
    return whole_page(title(audit), "page.css", "\n".join(parts))


def _head(audit: Audit) -> str:
    parts = [f"<h1>{esc(title(audit))}</h1>"]
    if note := simulated_note(audit):
        word, rest = note.split(":", 1)
        parts.append(f'<p class="note" role="note"><strong>{word}:</strong>{rest}</p>')
    parts.append(f'<p class="lead">{esc(lead(audit))}</p>')
    told = [text for text in (source(audit), coverage(audit)) if text]
    parts += [f'<p class="soft">{esc(text)}</p>' for text in told]
    return "\n".join(["<header>", *parts, "</header>"])


def _section(section: Section, everybody: Group, levers: int) -> str:
    return _titled(
        f"By {esc(section.name)}" if section.by else "Everybody",
        _without_chart(section, everybody),
        _table(without_table(section)),
        _table(why_table(section)),
        _cost_chart(section, everybody),
        _table(cost_table(section)),
        _levers(section, everybody.levers[:levers]),
        _table(search_table(section)),
    )


def _titled(heading: str, *parts: str) -> str:
    return "\n".join(["<section>", f"<h2>{heading}</h2>", *filter(None, parts), "</section>"])


def _each(tag: str, items: Iterable[str]) -> str:
    return "".join(f"<{tag}>{item}</{tag}>" for item in items)


# Tables ----------------------------------------------------------------------------------------


def _table(table: AuditTable) -> str:
    heads = [_name(table.columns[0]), *map(escape, table.columns[1:])]
    rows = ([_name(name), *map(_name, cells)] for name, *cells in table.rows)
    return _scrolled(_name(table.title), escape(clean(table.title)), heads, rows)


def _scrolled(caption: str, label: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of markup that scrolls by itself where it is too wide."""
    head = "".join(f'<th scope="col">{text}</th>' for text in heads)
    body = "\n".join(
        f'<tr><th scope="row">{name}</th>{_cells(cells)}</tr>' for name, *cells in rows
    )
    return (
        f'<div class="scroll" style="margin-top:1.5rem" role="region" tabindex="0" '
        f'aria-label="{label}">'
        f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _cells(cells: Iterable[str]) -> str:
    return "".join(cell if cell.startswith("<td") else f"<td>{cell}</td>" for cell in cells)


def _name(text: str) -> str:
    return esc(cut(clean(text), _LONGEST))


def _levers(section: Section, levers: Sequence[LeverUse]) -> str:
    """Return groups × the levers that help most overall, darker where the nearest moves it."""
    if not levers:
        return ""
    heads = [_name(section.name), *(_name(lever.name) for lever in levers)]
    rows = (
        [_name(group.name), *(_lever_cell(group, lever.name) for lever in levers)]
        for group in section.groups
        if group.with_way_out
    )
    caption = (
        "share of the people with a way out whose nearest option moves it; in small, those for "
        "whom it suffices alone, and those with some option that moves it"
    )
    label = f"Levers{by(section)}"
    return _scrolled(f"{_name(label)}: {caption}", escape(clean(label)), heads, rows)


def _lever_cell(group: Group, name: str) -> str:
    lever = next((one for one in group.levers if one.name == name), LeverUse(name, 0, 0, 0))
    nearest, alone, some = map(escape, lever_shares(group, lever))
    shade = 0.45 * lever.nearest / group.with_way_out
    return (
        f'<td style="padding-left:.5rem;background:rgba(26,107,60,{shade:.2f})">{nearest}'
        f"<small>alone {alone}, some {some}</small></td>"
    )


# Charts ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Mark:
    """A group's line in a chart: a figure between two others."""

    label: str
    low: float
    middle: float
    high: float
    few: bool


def _without_chart(section: Section, everybody: Group) -> str:
    marks = [
        _Mark(g.name, 100 * s.low, 100 * s.value, 100 * s.high, g.few)
        for g in section.groups
        if (s := g.share_without)
    ]
    overall = everybody.share_without
    if not section.by or overall is None:
        return ""
    caption = (
        "People for whom no way out was found, in per cent, with 95 % intervals. Dashed: everybody."
    )
    return _chart(marks, 100 * overall.value, caption, _whisker, lambda x: f"{x:.1f}")


def _cost_chart(section: Section, everybody: Group) -> str:
    marks = [
        _Mark(g.name, c.low, c.median, c.high, g.few_costs) for g in section.groups if (c := g.cost)
    ]
    if not section.by or everybody.cost is None:
        return ""
    caption = (
        "The cost of a yes: median and quartiles of the people with a way out. Dashed: everybody."
    )
    return _chart(marks, everybody.cost.median, caption, _box, number)


def _chart(
    marks: Sequence[_Mark],
    ruler: float,
    caption: str,
    draw: Callable[[_Mark, Callable[[float], float], int], str],
    told: Callable[[float], str],
) -> str:
    """Draw a line for each group, on one scale from 0; hollow or pale ones are of few people."""
    most = _round_up(max([ruler, *(mark.high for mark in marks)]))
    floor = _TOP + _STEP * len(marks)

    def across(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / most

    parts = [_tick(across(most * i / 4), f"{most * i / 4:g}", floor) for i in range(5)]
    x = across(ruler)
    parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{floor}" style="{_RULER}"/>')
    for i, mark in enumerate(marks):
        y = _TOP + _STEP * i + _STEP // 2
        label = escape(cut(clean(mark.label), _LABEL)) + (" (few)" if mark.few else "")
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{label}</text>')
        parts.append(draw(mark, across, y))
        value = told(mark.middle)
        parts.append(f'<text x="{_WIDTH - 4}" y="{y + 4}" text-anchor="end">{value}</text>')
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {floor + _BOTTOM}" role="img" aria-label="{caption}">'
        f"{''.join(parts)}</svg><figcaption>{caption}</figcaption></figure>"
    )


def _tick(x: float, text: str, floor: int) -> str:
    return (
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{floor}"/>'
        f'<text x="{x:.1f}" y="{floor + 16}" text-anchor="middle">{text}</text>'
    )


def _whisker(mark: _Mark, across: Callable[[float], float], y: int) -> str:
    low, middle, high = (across(value) for value in (mark.low, mark.middle, mark.high))
    fill = "var(--paper)" if mark.few else "var(--warn)"
    return (
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}" '
        f'style="stroke:var(--warn);stroke-width:1.5"/>'
        f'<circle cx="{middle:.1f}" cy="{y}" r="4.5" style="fill:{fill};stroke:var(--warn)"/>'
    )


def _box(mark: _Mark, across: Callable[[float], float], y: int) -> str:
    low, middle, high = (across(value) for value in (mark.low, mark.middle, mark.high))
    pale = ".15" if mark.few else ".4"
    return (
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}" '
        f'style="stroke:var(--yes);stroke-width:14;stroke-opacity:{pale}"/>'
        f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{y - 8}" y2="{y + 8}" '
        f'style="stroke:var(--yes);stroke-width:2.5"/>'
    )


def _round_up(value: float) -> float:
    """Return the end of a scale: the next number that reads easily in quarters.

    >>> _round_up(37.2), _round_up(0.61), _round_up(0)
    (40.0, 0.8, 1.0)
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(f"{int(value)}") - 1) if value >= 1 else 0.1
    while value < power:
        power /= 10
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if value <= step * power * (1 + 1e-9))
