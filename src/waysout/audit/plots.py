"""An audit as pictures: who has no way out, what a yes costs, which levers help whom, as SVG."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from waysout.audit.figures import Audit, Group, Section
from waysout.audit.words import by, percent, sections, source
from waysout.report.plot import BLUE, RED, plot_style, to_svg
from waysout.report.words import clean, cut

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABEL = 32


def pictures(audit: Audit, levers: int = 5) -> Iterator[tuple[str, bytes]]:
    """Yield each picture with the name of its file; empty ones are left out."""
    taken: set[str] = set()
    for section in sections(audit):
        # File names keep to letters that any disk takes.
        plain = re.sub(r"[^A-Za-z0-9]+", "-", "-".join(section.by)).strip("-").lower()[:60]
        name = stem = f"-by-{plain or 'column'}" if section.by else ""
        number = 2
        while name in taken:
            name, number = f"{stem}-{number}", number + 1
        taken.add(name)
        rejected = [group for group in section.groups if group.share_without]
        lucky = [group for group in section.groups if group.cost]
        with plot_style():
            if rejected:
                yield f"without{name}.svg", to_svg(_without(audit, section, rejected))
            if lucky:
                yield f"cost{name}.svg", to_svg(_cost(audit, section, lucky))
                yield f"levers{name}.svg", to_svg(_levers(audit, section, lucky, levers))


def _panel(
    audit: Audit, title: str, groups: Sequence[Group], size: Callable[[Group], tuple[int, bool]]
) -> tuple[Figure, Axes]:
    """Return an empty panel that names the groups from top to bottom, with their size."""
    from matplotlib.figure import Figure

    height = 1.5 + 0.3 * len(groups)
    figure = Figure(figsize=(7.2, height), layout="constrained", facecolor="white")
    panel = figure.subplots()
    told = [cut(clean(text), 90) for text in (title, audit.about.title, source(audit)) if text]
    figure.suptitle("\n".join(told), fontsize=10)
    names = []
    for group in groups:
        n, few = size(group)
        names.append(f"{cut(clean(group.name), _LABEL)} (n = {n:,}{', few' if few else ''})")
    panel.set_yticks(range(len(groups)), names)
    panel.set_ylim(len(groups) - 0.5, -0.5)
    return figure, panel


def _with_scale(panel: Axes, overall: float | None, text: str) -> None:
    if overall is not None:
        panel.axvline(overall, color="0.4", dashes=(4, 3), linewidth=0.9)
    panel.set_xlim(left=0)
    panel.set_xlabel(f"{text}; dashed: everybody")
    panel.grid(axis="x", alpha=0.25)


def _without(audit: Audit, section: Section, groups: Sequence[Group]) -> Figure:
    title = f"No way out found{by(section)}"
    figure, panel = _panel(audit, title, groups, lambda g: (g.people, g.few))
    for y, group in enumerate(groups):
        if told := group.share_without:
            panel.plot([100 * told.low, 100 * told.high], [y, y], color=RED, linewidth=1.4)
            filling = "white" if group.few else RED
            panel.plot([100 * told.value], [y], "o", color=RED, markerfacecolor=filling)
    overall = audit.everybody.share_without
    text = "people rejected without a way out, %, with 95 % intervals"
    _with_scale(panel, 100 * overall.value if overall else None, text)
    return figure


def _cost(audit: Audit, section: Section, groups: Sequence[Group]) -> Figure:
    title = f"The cost of a yes{by(section)}"
    figure, panel = _panel(audit, title, groups, lambda g: (g.with_way_out, g.few_costs))
    for y, group in enumerate(groups):
        if told := group.cost:
            pale = 0.15 if group.few_costs else 0.4
            panel.barh(y, told.high - told.low, left=told.low, height=0.55, color=BLUE, alpha=pale)
            panel.plot([told.median] * 2, [y - 0.3, y + 0.3], color=BLUE, linewidth=2)
    overall = audit.everybody.cost
    text = "distance of the nearest option: median and quartiles"
    _with_scale(panel, overall.median if overall else None, text)
    return figure


def _levers(audit: Audit, section: Section, groups: Sequence[Group], most: int) -> Figure:
    """Draw groups × the levers that help most overall, darker for more people."""
    title = f"Levers{by(section)}"
    figure, panel = _panel(audit, title, groups, lambda g: (g.with_way_out, g.few_costs))
    names = [lever.name for lever in audit.everybody.levers[:most]]
    shares = []
    for group in groups:
        counts = {lever.name: lever.nearest for lever in group.levers}
        shares.append([counts.get(name, 0) / group.with_way_out for name in names])
    panel.imshow(shares, cmap="Greens", vmin=0, vmax=1, aspect="auto")
    for y, row in enumerate(shares):
        for x, share in enumerate(row):
            colour = "white" if share > 0.6 else "black"
            panel.text(x, y, percent(share), ha="center", va="center", color=colour, fontsize=8)
    panel.set_xticks(range(len(names)), [cut(clean(n), 18) for n in names], rotation=20, ha="right")
    panel.set_xlabel("share of the people with a way out whose nearest option moves it")
    return figure
