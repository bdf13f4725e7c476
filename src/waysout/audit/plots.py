"""An audit as pictures: who has no way out, what a yes costs, which levers help whom, as SVG."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from waysout.audit import words
from waysout.audit.figures import Audit, Group, Section
from waysout.audit.words import Mark
from waysout.report.plot import BLUE, RED, plot_style, to_svg
from waysout.report.words import clean, cut

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABEL = 32


def pictures(audit: Audit, levers: int = 5) -> Iterator[tuple[str, bytes]]:
    """Yield each picture with the name of its file; empty ones are left out."""
    taken: set[str] = set()
    overall = words.charts(audit, words.everybody(audit))
    for section in words.sections(audit):
        # File names keep to letters that any disk takes.
        plain = re.sub(r"[^A-Za-z0-9]+", "-", "-".join(section.by)).strip("-").lower()[:60]
        name = stem = f"-by-{plain or 'column'}" if section.by else ""
        number = 2
        while name in taken:
            name, number = f"{stem}-{number}", number + 1
        taken.add(name)
        lucky = [group for group in section.groups if group.with_way_out]
        with plot_style():
            for kind, marks in words.charts(audit, section).items():
                figure = _intervals(audit, section, kind, marks, overall[kind])
                yield f"{kind}{name}.svg", to_svg(figure)
            if lucky:
                yield f"levers{name}.svg", to_svg(_levers(audit, section, lucky, levers))


def _panel(audit: Audit, title: str, names: Sequence[str]) -> tuple[Figure, Axes]:
    """Return an empty panel that names the groups from top to bottom."""
    from matplotlib.figure import Figure

    height = 1.5 + 0.3 * len(names)
    figure = Figure(figsize=(7.2, height), layout="constrained", facecolor="white")
    panel = figure.subplots()
    told = [title, audit.about.title, words.source(audit)]
    figure.suptitle("\n".join(cut(clean(text), 90) for text in told if text), fontsize=10)
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(len(names) - 0.5, -0.5)
    return figure, panel


def _label(name: str, people: int, few: bool) -> str:
    return f"{cut(clean(name), _LABEL)} (n = {people:,}{', few' if few else ''})"


def _intervals(
    audit: Audit, section: Section, kind: str, marks: Sequence[Mark], overall: Sequence[Mark]
) -> Figure:
    """Draw a figure of each group between two others; hollow ones have few people."""
    title, _ = words.tables(audit, section, 0)[kind]
    figure, panel = _panel(audit, title, [_label(*mark[:3]) for mark in marks])
    colour = RED if kind == "without" else BLUE
    for y, (_, _, few, low, middle, high) in enumerate(marks):
        panel.plot([low, high], [y, y], color=colour, linewidth=1.4)
        filling = "white" if few else colour
        panel.plot([middle], [y], "o", color=colour, markerfacecolor=filling)
    panel.axvline(overall[0][4], color="0.4", dashes=(4, 3), linewidth=0.9)
    panel.set_xlim(left=0)
    panel.set_xlabel(f"{words.CAPTIONS[kind]} Dashed: everybody.")
    panel.grid(axis="x", alpha=0.25)
    return figure


def _levers(audit: Audit, section: Section, groups: Sequence[Group], most: int) -> Figure:
    """Draw groups × the levers that help most overall, darker for more people."""
    labels = [
        _label(words.group_name(audit, section, group), group.with_way_out, group.few_costs)
        for group in groups
    ]
    figure, panel = _panel(audit, f"Levers{words.by(audit, section)}", labels)
    names = [lever.name for lever in words.telling_levers(audit.everybody, most)]
    shares = []
    for group in groups:
        counts = {lever.name: lever.nearest for lever in group.levers}
        shares.append([counts.get(name, 0) / group.with_way_out for name in names])
    panel.imshow(shares, cmap="Greens", vmin=0, vmax=1, aspect="auto")
    for y, row in enumerate(shares):
        for x, share in enumerate(row):
            colour, text = "white" if share > 0.6 else "black", words.percent(share)
            panel.text(x, y, text, ha="center", va="center", color=colour, fontsize=8)
    shown = [cut(words.lever_name(audit, name), 18) for name in names]
    panel.set_xticks(range(len(names)), shown, rotation=20, ha="right")
    panel.set_xlabel(f"share of the people with a way out whose nearest {audit.nearest} moves it")
    return figure
