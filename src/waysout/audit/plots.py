"""An audit as pictures: who has no way out, what a yes costs, which levers help whom, as SVG.

Drawn by matplotlib, which is loaded on use. The same audit always gives the same files.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from waysout.audit.figures import Audit, Group, Section
from waysout.audit.words import by, percent, sections, source
from waysout.errors import MissingExtra
from waysout.report.words import clean, cut

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABEL = 32
_RED, _BLUE = "#c0392b", "#1b4f8a"


def pictures(audit: Audit, levers: int = 5) -> Iterator[tuple[str, bytes]]:
    """Yield each picture with the name of its file; those of which nothing is known are not."""
    taken: set[str] = set()
    with _style():
        for section in sections(audit):
            name = _file_name(section, taken)
            for what, figure in _figures(audit, section, levers):
                yield f"{what}{name}.svg", _svg(figure)


def check_can_draw() -> None:
    """Say what to install where pictures cannot be drawn."""
    with _style():
        pass


@contextmanager
def _style() -> Iterator[None]:
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingExtra("matplotlib", "bench") from None
    # Names are untrusted: no mathematics in them.
    look: dict[Any, Any] = {
        "svg.hashsalt": "waysout", "svg.fonttype": "none", "font.family": "DejaVu Sans",
        "text.parse_math": False, "font.size": 9, "axes.titlesize": 10, "axes.spines.top": False,
        "axes.spines.right": False,
    }  # fmt: skip
    with mpl.rc_context(look):
        yield


def _file_name(section: Section, taken: set[str]) -> str:
    """Return how the section's files end: its columns, in letters that any disk takes."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", "-".join(section.by)).strip("-").lower()[:60]
    name = f"-by-{plain or 'column'}" if section.by else ""
    number = 2
    while name in taken:
        name, number = f"-by-{plain or 'column'}-{number}", number + 1
    taken.add(name)
    return name


def _svg(figure: Figure) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings():
        # Letters stay text in the file: whoever shows it has a font for them, or has not.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def _figures(audit: Audit, section: Section, levers: int) -> Iterator[tuple[str, Figure]]:
    rejected = [group for group in section.groups if group.share_without]
    lucky = [group for group in section.groups if group.cost]
    if rejected:
        yield "without", _without(audit, section, rejected)
    if lucky:
        yield "cost", _cost(audit, section, lucky)
        yield "levers", _levers(audit, section, lucky, levers)


def _panel(audit: Audit, title: str, groups: Sequence[Group]) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    height = 1.5 + 0.3 * len(groups)
    figure = Figure(figsize=(7.2, height), layout="constrained", facecolor="white")
    panel = figure.subplots()
    told = [cut(clean(text), 90) for text in (title, audit.about.title, source(audit)) if text]
    figure.suptitle("\n".join(told), fontsize=10)
    return figure, panel


def _rows(panel: Axes, groups: Sequence[Group], counts: Sequence[int], few: Sequence[bool]) -> None:
    """Name the groups from top to bottom, with how many people each has."""
    marks = [", few" if so else "" for so in few]
    names = [
        f"{cut(clean(group.name), _LABEL)} (n = {n:,}{mark})"
        for group, n, mark in zip(groups, counts, marks, strict=True)
    ]
    panel.set_yticks(range(len(groups)), names)
    panel.set_ylim(len(groups) - 0.5, -0.5)


def _without(audit: Audit, section: Section, groups: Sequence[Group]) -> Figure:
    figure, panel = _panel(audit, f"No way out found{by(section)}", groups)
    for y, group in enumerate(groups):
        if told := group.share_without:
            panel.plot([100 * told.low, 100 * told.high], [y, y], color=_RED, linewidth=1.4)
            filling = "white" if group.few else _RED
            panel.plot([100 * told.value], [y], "o", color=_RED, markerfacecolor=filling)
    _rows(panel, groups, [g.people for g in groups], [g.few for g in groups])
    if overall := audit.everybody.share_without:
        panel.axvline(100 * overall.value, color="0.4", dashes=(4, 3), linewidth=0.9)
    panel.set_xlim(left=0)
    panel.set_xlabel("people rejected without a way out, %, with 95 % intervals; dashed: everybody")
    panel.grid(axis="x", alpha=0.25)
    return figure


def _cost(audit: Audit, section: Section, groups: Sequence[Group]) -> Figure:
    figure, panel = _panel(audit, f"The cost of a yes{by(section)}", groups)
    for y, group in enumerate(groups):
        if told := group.cost:
            pale = 0.15 if group.few_costs else 0.4
            panel.barh(y, told.high - told.low, left=told.low, height=0.55, color=_BLUE, alpha=pale)
            panel.plot([told.median] * 2, [y - 0.3, y + 0.3], color=_BLUE, linewidth=2)
    _rows(panel, groups, [g.with_way_out for g in groups], [g.few_costs for g in groups])
    if overall := audit.everybody.cost:
        panel.axvline(overall.median, color="0.4", dashes=(4, 3), linewidth=0.9)
    panel.set_xlim(left=0)
    panel.set_xlabel("distance of the nearest option: median and quartiles; dashed: everybody")
    panel.grid(axis="x", alpha=0.25)
    return figure


def _levers(audit: Audit, section: Section, groups: Sequence[Group], most: int) -> Figure:
    """Draw groups × the levers that help most overall, darker for more people."""
    figure, panel = _panel(audit, f"Levers{by(section)}", groups)
    names = [lever.name for lever in audit.everybody.levers[:most]]
    counts = [{lever.name: lever.nearest for lever in group.levers} for group in groups]
    shares = [
        [count.get(name, 0) / group.with_way_out for name in names]
        for group, count in zip(groups, counts, strict=True)
    ]
    panel.imshow(shares, cmap="Greens", vmin=0, vmax=1, aspect="auto")
    for y, row in enumerate(shares):
        for x, share in enumerate(row):
            colour = "white" if share > 0.6 else "black"
            panel.text(x, y, percent(share), ha="center", va="center", color=colour, fontsize=8)
    panel.set_xticks(range(len(names)), [cut(clean(n), 18) for n in names], rotation=20, ha="right")
    _rows(panel, groups, [g.with_way_out for g in groups], [g.few_costs for g in groups])
    panel.set_xlabel("share of the people with a way out whose nearest option moves it")
    return figure
