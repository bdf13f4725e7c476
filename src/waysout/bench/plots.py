"""Pictures of experiments, as SVG: trade-offs, sweeps, yields, and paired differences.

Drawn by matplotlib, which is loaded on use. Arms differ in shape or dashes as well as in colour, so
that nothing is lost in grey. The same cells always give the same file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

from waysout.bench import paper
from waysout.bench.cell import Cells
from waysout.bench.plan import load_plan
from waysout.bench.stats import paired
from waysout.bench.tables_base import ArmSample, View, llm_words, run_command, title_of
from waysout.bench.tables_ours import with_curve
from waysout.bench.tables_pruning import sweep_row
from waysout.errors import InputError, unknown
from waysout.report.plot import plot_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = "osD^vP<>hpd8"
DASHES = ((), (5, 2), (1, 1.5), (6, 2, 1, 2), (9, 2), (1, 4), (3, 1, 1, 1, 1, 1), (12, 3, 3, 3))
COLOURS = (
    "#1b4f8a", "#c0392b", "#2e7d32", "#7b3fa0", "#b9770e", "#117a8b", "#a0527a", "#5d6d2e",
    "#d35400", "#34495e", "#8e6e53", "#00796b",
)  # fmt: skip
OURS = "recombine"
SCOPES = ("global", "path", "window")
YIELD, NEARNESS, ROWS = "unique valid options", "proximity (1: as things stand)", "oracle rows"


@dataclass(frozen=True)
class Picture:
    """One kind of picture: the plan whose arms it shows, and a draw function."""

    plan: str
    draw: Callable[[View, Sequence[str]], Figure]


def draw(
    name: str,
    cells: Cells,
    *,
    llm: str,
    plan: str = "",
    arms: Sequence[str] = (),
    places: Sequence[str] = (),
) -> Figure:
    """Draw a picture by its name, of all the plan's arms or of some.

    ``places`` are where the cells come from; an error names them.
    """
    if name not in PICTURES:
        raise InputError(unknown("picture", name, PICTURES))
    picture = PICTURES[name]
    run = run_command(plan or picture.plan, places)
    own = load_plan(picture.plan) if plan else None
    view = View(load_plan(plan or picture.plan), cells, llm, (llm,), run, own)
    known = {arm.name for arm in view.plan.arms}
    for arm in arms:
        if arm not in known:
            raise InputError(f"{view.plan.name}: {unknown('arm', arm, sorted(known))}")
    with plot_style():
        return picture.draw(view, arms)


# What the pictures share -----------------------------------------------------------------------


def _arms(view: View, data: str, only: Sequence[str]) -> list[ArmSample]:
    """Return the arms to draw that were run, in the plan's order."""
    return [sample for sample in view.samples(data)
            if sample.n and (not only or sample.arm.name in only)]  # fmt: skip


def _titled(view: View, data: str, only: Sequence[str], of: str = "") -> str:
    """Return a panel's title, with the number of queries of its arms."""
    counts = sorted({sample.n for sample in _arms(view, data, only)}) or [0]
    n = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{title_of(data)}{of} (n = {n})"


def _datasets(view: View, only: Sequence[str]) -> list[str]:
    found = [data for data in view.plan.datasets if _arms(view, data, only)]
    if not found:
        named = f" of {view.plan.name} with {llm_words(view.llm) or 'no LLM'}"
        raise InputError(f"there are no searches{named} to draw: {view.command}")
    return found


def _looks(view: View) -> dict[str, dict[str, Any]]:
    """Return each arm's colour, marker and dashes: the same in all panels.

    Arms that differ in K alone look alike but for their filling. Ours are black, the first solid.
    """
    names = list(dict.fromkeys(arm.name for arm in view.plan.arms))
    kinds = {name: name.partition(", K=")[0] for name in names}
    others = dict.fromkeys(kind for name, kind in kinds.items() if not name.startswith(OURS))
    parts = zip(cycle(COLOURS), cycle(MARKERS), cycle(DASHES[1:]), strict=True)
    looks = dict(zip(others, parts, strict=False))
    own = [name for name in names if name.startswith(OURS)]
    looks |= dict(zip(own, zip(cycle(["black"]), cycle("*X"), cycle(DASHES)), strict=False))
    return {name: dict(zip(("color", "marker", "dashes"), looks[kind], strict=True))
            for name, kind in kinds.items()}  # fmt: skip


def _figure(columns: int, rows: int, width: float = 8.4, height: float = 2.5) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 1.3 + height * rows), layout="constrained", facecolor="white")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _finish(
    figure: Figure, view: View, title: str, handles: Mapping[str, Any], columns: int = 3
) -> Figure:
    order = [arm.name for arm in view.plan.arms]
    names = sorted(handles, key=lambda name: order.index(name) if name in order else len(order))
    if names:
        figure.legend(
        handles=[handles[name] for name in names], labels=names, loc="outside lower center",
        ncols=columns, handlelength=4,
    )  # fmt: skip
    figure.suptitle(f"{title}\nLLM: {llm_words(view.llm) or 'none is asked'}", fontsize=10)
    return figure


# Trade-offs ------------------------------------------------------------------------------------

_TICKS = (0, 1, 3, 10, 30, 100)


def _trade_off(view: View, only: Sequence[str]) -> Figure:
    """Draw the mean yield of each arm against how near its options are and what rows it asked."""
    from matplotlib.ticker import NullLocator

    datasets, looks = _datasets(view, only), _looks(view)
    figure, panels = _figure(2, len(datasets))
    handles: dict[str, Any] = {}
    against = (("proximity", NEARNESS), ("rows", ROWS))
    for row, data in zip(panels, datasets, strict=True):
        for panel, (metric, label) in zip(row, against, strict=True):
            for sample in _arms(view, data, only):
                x, y, name = sample.mean(metric), sample.mean("unique_valid"), sample.arm.name
                if x is None or y is None:
                    continue
                marker, color = looks[name]["marker"], looks[name]["color"]
                (handles[name],) = panel.plot(
                    [x], [y], linestyle="none", marker=marker, color=color, markersize=6.5,
                    markerfacecolor="none" if "K=1" in name else color, alpha=0.9, clip_on=False,
                )  # fmt: skip
            panel.set(title=_titled(view, data, only), xlabel=label, ylabel=YIELD)
            panel.margins(0.08)
            panel.set_yscale("symlog", linthresh=1, linscale=0.35)
            panel.set_ylim(0, 1.3 * panel.get_ylim()[1])
            panel.set_yticks(_TICKS, [str(tick) for tick in _TICKS])
            panel.yaxis.set_minor_locator(NullLocator())
            panel.grid(alpha=0.25)
    return _finish(figure, view, "What each arm finds, and how near or at what cost", handles)


# Sweeps ----------------------------------------------------------------------------------------


def _sweep(view: View, only: Sequence[str]) -> Figure:
    """Draw yield and share pruned against the threshold, a line a scope, and the paper's marks."""
    datasets = _datasets(view, only)
    figure, panels = _figure(4, len(datasets), width=11)
    handles: dict[str, Any] = {}
    for row, data in zip(panels, datasets, strict=True):
        places = iter(row)
        for method, symbol in (("compression", "θ"), ("embedding", "τ")):
            names = [arm.name for arm in view.plan.arms if arm.name.startswith(f"{method} ")]
            samples = [sample for sample in view.samples(data) if sample.arm.name in names]
            title = _titled(view, data, names or [method], f", {method}")
            for metric, label in (("unique_valid", "unique valid"), ("prune_pct", "pruned, %")):
                panel = next(places)
                handles |= _curves(panel, view, data, samples, metric)
                panel.set(title=title, xlabel=symbol, ylabel=label)
    return _finish(figure, view, "Pruning: thresholds and scopes", handles, 4)


def _curves(
    panel: Axes, view: View, data: str, samples: Sequence[ArmSample], metric: str
) -> dict[str, Any]:
    from matplotlib.ticker import NullFormatter

    handles: dict[str, Any] = {}
    base = view.sample(data, "none")
    if base is not None and base.n:
        level = base.mean(metric) or 0.0
        handles["no pruning"] = panel.axhline(level, color="0.3", linewidth=0.8)
    for scope, color, marker, dashes in zip(SCOPES, COLOURS, MARKERS, DASHES, strict=False):
        ours, theirs = list[tuple[float, float]](), list[tuple[float, float]]()
        for sample in samples:
            if sample.arm.settings.get("scope") == scope and sample.n:
                threshold = float(sample.arm.settings["threshold"])
                mean = sample.mean(metric)
                published = paper.number(view.row(sample.arm, sweep_row), metric)
                ours += [(threshold, mean)] if mean is not None else []
                theirs += [(threshold, published)] if isinstance(published, float) else []
        if not ours:
            continue
        (handles[scope],) = panel.plot(
            *zip(*sorted(ours), strict=True), markersize=4.5, color=color, marker=marker,
            dashes=dashes,
        )  # fmt: skip
        if theirs:
            (handles[f"{scope}, the paper's"],) = panel.plot(
                *zip(*sorted(theirs), strict=True), color="0.55", markerfacecolor="none",
                linewidth=0.7, markersize=4, dashes=(1, 3), marker=marker,
            )  # fmt: skip
        thresholds = [threshold for threshold, _ in sorted(ours)]
        panel.set_xscale("log")
        panel.set_xticks(thresholds, [f"{t:g}" for t in thresholds], fontsize=8)
        panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.25)
    return handles


# Yields ----------------------------------------------------------------------------------------


def _yields(view: View, only: Sequence[str]) -> Figure:
    """Draw the mean number of options against the calls and the rows spent."""
    datasets, looks = _datasets(view, only), _looks(view)
    figure, panels = _figure(2, len(datasets))
    handles: dict[str, Any] = {}
    for row, data in zip(panels, datasets, strict=True):
        for place, (panel, label) in enumerate(zip(row, ("LLM calls", ROWS), strict=True)):
            for sample in _arms(view, data, only):
                arm, cells = sample.arm, list(with_curve(sample).cells.values())
                if not cells or (label != ROWS and not arm.asks_llm):
                    continue
                found = sorted(at[place] for cell in cells for at in cell.found)
                limit = arm.rows if label == ROWS else arm.calls
                means = [bisect_right(found, x) / len(cells) for x in range(limit + 1)]
                look, width = looks[arm.name], 2.2 if arm.name.startswith(OURS) else 1.2
                (handles[arm.name],) = panel.plot(
                    means, drawstyle="steps-post", dashes=look["dashes"], color=look["color"],
                    linewidth=width,
                )  # fmt: skip
            panel.set(title=_titled(view, data, only), xlabel=label, ylabel=YIELD)
            panel.set_ylim(bottom=0)
            panel.set_xlim(left=0)
    return _finish(figure, view, "Ways out found so far, mean of the queries", handles)


# Paired differences ----------------------------------------------------------------------------


def _paired(view: View, only: Sequence[str]) -> Figure:
    """Draw the difference of two arms for each query, sorted, and their mean with its interval."""
    if len(only) != 2:
        raise InputError(f"paired compares two arms, not {len(only)}")
    datasets = [data for data in _datasets(view, only) if len(_arms(view, data, only)) == 2]
    if not datasets:
        raise InputError(f"no data set has searches of both {only[0]!r} and {only[1]!r}")
    figure, panels = _figure(min(2, len(datasets)), -(-len(datasets) // 2))
    for panel in list(panels.flat)[len(datasets) :]:
        panel.set_axis_off()
    handles: dict[str, Any] = {}
    for panel, data in zip(panels.flat, datasets, strict=False):
        sides = sorted(_arms(view, data, only), key=lambda sample: only.index(sample.arm.name))
        both = [query for query in sides[0].wanted if all(query in s.cells for s in sides)]
        values = [[s.cells[q].value("unique_valid") or 0.0 for q in both] for s in sides]
        found, differences = paired(*values), sorted(y - x for x, y in zip(*values, strict=True))
        places = range(1, len(differences) + 1)
        stems = panel.vlines(places, 0, differences, color="0.6", linewidth=1)
        (dots,) = panel.plot(
            places, differences, linestyle="none", marker="o", markersize=4, color="black"
        )
        panel.axhline(0, color="0.2", linewidth=0.8)
        handles["a query"] = (stems, dots)
        mean = ""
        if found.delta is not None:
            handles["mean"] = panel.axhline(
                found.delta, color=COLOURS[0], dashes=(5, 2), linewidth=1.4
            )
            mean = f": {found.delta:+.1f}"
        if found.low is not None and found.high is not None:
            band = panel.axhspan(found.low, found.high, color=COLOURS[0], alpha=0.18, linewidth=0)
            handles["95 % interval of the mean"] = band
        panel.set(title=f"{title_of(data)}{mean} (n = {found.n})", xlabel="queries, sorted",
                  ylabel="difference")  # fmt: skip
        panel.set_xticks([])
    return _finish(figure, view, f"{only[1]} less {only[0]}: {YIELD}, query by query", handles)


PICTURES: Mapping[str, Picture] = {
    "trade-off": Picture("llm-budget", _trade_off),
    "sweep": Picture("pruning-sweep", _sweep),
    "yields": Picture("yields", _yields),
    "paired": Picture("llm-budget", _paired),
}
