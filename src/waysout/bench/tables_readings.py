"""Both readings of the paper beside its sweep, cell by cell, and how far off each of them is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from waysout.bench import paper
from waysout.bench.plan import load_plan
from waysout.bench.readings import CHOSEN_ON, MARK, READINGS
from waysout.bench.stats import deviation
from waysout.bench.table import NOT_RUN, Figure, ResultTable, TableLine
from waysout.bench.tables_base import ArmSample, View, llm_words, title_of
from waysout.bench.tables_pruning import Sweep, sweep_row
from waysout.errors import InputError

Pair = tuple[ArmSample, ...]
"""The same arm under each reading."""
_LABELS = ("data set", "pruning", "scope", "threshold")
_FROM_PAPER = (
    "The paper's figures are of Gemma-3-12B, with its own oracles, queries and key; ± is the "
    "standard deviation over the queries."
)


def readings(view: View) -> list[ResultTable]:
    """Return how far each reading is from the paper, and every cell of the sweep under both."""
    if view.own is not None:
        raise InputError("readings compares the sweep's own readings: leave --plan out")
    tables = []
    for llm in (view.llm,) if view.llm else view.llms:
        views = [_under(replace(view, llm=llm), name) for name in READINGS]
        if all(any(one.of(arm).complete for arm in one.plan.arms) for one in views):
            tables += [_nearer(views), _distances(views), _by_validity(views), _cells(views)]
    return tables


def _under(view: View, reading: str) -> View:
    plan = load_plan(f"{view.plan.name}{MARK}{reading}").cut(queries=view.plan.queries)
    return replace(view, plan=plan, own=None)


def _pairs(views: Sequence[View], data: str) -> Iterator[tuple[tuple[str, str, str], Pair]]:
    """Yield every setting of the sweep, with its searches under each reading."""
    sweeps = [Sweep.of(view, data) for view in views]
    nones = tuple(sweep.none for sweep in sweeps if sweep.none is not None)
    yield ("none", "", ""), nones
    for family, samples in sweeps[0].ways.items():
        for setting in samples:
            found = tuple(sweep.ways[family][setting] for sweep in sweeps)
            yield (family, setting[0], f"{setting[1]:g}"), found


def _compared(views: Sequence[View], data: str) -> Iterator[tuple[tuple[str, str, str], Pair]]:
    """Yield the settings that prune and have all their searches under both readings."""
    for labels, pair in _pairs(views, data):
        if labels[0] != "none" and all(sample.complete for sample in pair):
            yield labels, pair


def _role(data: str) -> str:
    return "chosen on" if data in CHOSEN_ON else "reported"


def _cells(views: Sequence[View]) -> ResultTable:
    lines = []
    for data in views[0].plan.datasets:
        for labels, pair in _pairs(views, data):
            row = sweep_row(pair[0].arm)
            count = " / ".join(str(sample.n) for sample in pair)
            figures = [Figure(count if any(sample.n for sample in pair) else NOT_RUN)]
            for name, column, digits, spread in (
                ("prune_pct", "prune_pct", 1, False),
                ("rows", "oracle_evals", 1, True),
                ("sparsity", "sparsity", 2, False),
            ):
                theirs = _number(row, column)
                sd = _number(row, f"{column}_sd") if spread else None
                figures.append(Figure(_with_spread(theirs, sd, digits)))
                for sample in pair:
                    sd = deviation(sample.values(name)) if spread else None
                    figures.append(Figure(_with_spread(sample.mean(name), sd, digits)))
            ids = " ".join(dict.fromkeys(sample.arm.id for sample in pair))
            lines.append(TableLine((title_of(data), *labels), tuple(figures), ids))
    columns = ["n"]
    for measure in ("prune %", "rows", "changes"):
        columns += [f"{measure}: paper", *READINGS]
    title = "The sweep under both readings, cell by cell"
    about = (_FROM_PAPER, "n: searches, by reading.")
    return _table(views, "readings-cells", title, _LABELS, columns, lines, about)


def _nearer(views: Sequence[View]) -> ResultTable:
    """Count by data set which reading is nearer to the paper's share of pruned candidates."""
    lines = []
    for data in views[0].plan.datasets:
        counts = dict.fromkeys((*READINGS, "same"), 0)
        for _, pair in _compared(views, data):
            off = [round(_off_by_points(sample), 2) for sample in pair]
            nearest = [name for name, one in zip(READINGS, off, strict=True) if one == min(off)]
            counts[nearest[0] if len(nearest) == 1 else "same"] += 1
        if total := sum(counts.values()):
            figures = (Figure(float(count), digits=0) for count in (total, *counts.values()))
            lines.append(TableLine((title_of(data), _role(data)), tuple(figures)))
    columns = ("settings", *(f"nearer: {name}" for name in READINGS), "the same")
    title = "Which reading prunes more nearly the paper's share"
    labels = ("data set", "used for")
    return _table(views, "readings-nearer", title, labels, columns, lines, (_FROM_PAPER,))


def _distances(views: Sequence[View]) -> ResultTable:
    """Return the mean distance from the paper by data set, way to prune and scope."""
    lines = []
    for data in views[0].plan.datasets:
        parts: dict[tuple[str, str], list[Pair]] = {}
        for (family, scope, _), pair in _compared(views, data):
            parts.setdefault((family, scope), []).append(pair)
        for (family, scope), pairs in parts.items():
            figures = [Figure(float(len(pairs)), digits=0)]
            for distance in (_off_by_points, _off_by_factor):
                for place in range(len(READINGS)):
                    off = [distance(pair[place]) for pair in pairs]
                    figures.append(Figure(fmean(off), digits=1))
            lines.append(TableLine((title_of(data), _role(data), family, scope), tuple(figures)))
    columns = (
        "thresholds",
        *(f"{what}: {name}" for what in ("prune %", "rows") for name in READINGS),
    )
    labels = ("data set", "used for", "pruning", "scope")
    title = "How far each reading is from the paper's sweep"
    about = (
        _FROM_PAPER,
        "prune %: mean distance in points over the thresholds; rows: mean factor between the means "
        "(1.0: the same). Patience was chosen on HELOC and Credit.",
    )
    return _table(views, "readings", title, labels, columns, lines, about)


_CLASSES = ((0, 10), (10, 30), (30, 60), (60, 100))
_STRONG = ("global", 0.02)


def _by_validity(views: Sequence[View]) -> ResultTable:
    """Return the rows of the strongest global pruning by how many proposals are valid unpruned."""
    lines = []
    for data in views[0].plan.datasets:
        sweeps = [Sweep.of(view, data) for view in views]
        none = sweeps[0].none
        strong = [sweep.ways["compression"].get(_STRONG) for sweep in sweeps]
        if none is None or not none.complete:
            continue
        shares = {query: cell.value("validity_pct") or 0.0 for query, cell in none.cells.items()}
        for low, high in _CLASSES:
            top = math.inf if high == 100 else high
            queries = [query for query, share in shares.items() if low <= share < top]
            rows = [
                [sample.cells[q].value("rows") or 0.0 for q in queries]
                for sample in strong
                if sample is not None and sample.complete
            ]
            if queries and len(rows) == len(strong):
                means = (Figure(fmean(values), digits=1) for values in rows)
                count = Figure(float(len(queries)), digits=0)
                figures = (count, *means, Figure(None), Figure(None))
                lines.append(TableLine((title_of(data), f"{low} to {high}"), figures))
        row = paper.selected_row("pruning_heldout", data, "No pruning")
        theirs = paper.find("pruning_sweep24", dataset=title_of(data), method="Compression",
                            scope="Global", threshold="0.02")  # fmt: skip
        told = _with_spread(_number(theirs, "oracle_evals"), _number(theirs, "oracle_evals_sd"), 1)
        valid = Figure(_number(row, "validity_pct"), digits=0)
        figures = (Figure(30.0, digits=0), *[Figure(None)] * len(strong), Figure(told), valid)
        lines.append(TableLine((title_of(data), "the paper"), figures))
    columns = ("queries", *(f"rows: {name}" for name in READINGS), "rows: paper", "its validity %")
    title = "Rows at global θ = 0.02 by validity"
    about = (
        _FROM_PAPER,
        "Validity %: of the rows that the same query's search without pruning asks, those that are "
        "approved. The paper's is the mean over its 15 held-out queries.",
    )
    return _table(
        views, "readings-validity", title, ("data set", "validity %"), columns, lines, about
    )


def _off_by_points(sample: ArmSample) -> float:
    theirs = _number(sweep_row(sample.arm), "prune_pct") or 0.0
    return abs((sample.mean("prune_pct") or 0.0) - theirs)


def _off_by_factor(sample: ArmSample) -> float:
    theirs = _number(sweep_row(sample.arm), "oracle_evals") or 1.0
    ours = max(sample.mean("rows") or 0.0, 1.0)
    return max(ours / theirs, theirs / ours)


def _table(
    views: Sequence[View],
    name: str,
    title: str,
    labels: Sequence[str],
    columns: Sequence[str],
    lines: list[TableLine],
    about: Sequence[str],
) -> ResultTable:
    """Return a table whose header counts the searches of both readings."""
    arms = tuple({arm.id: arm for view in views for arm in view.plan.arms}.values())
    both = replace(views[0], plan=replace(views[0].plan, arms=arms, reading=" and ".join(READINGS)))
    llm = llm_words(both.llm)
    return both.table(name, f"{title}, {llm}", labels, columns, lines, about)


def _number(row: paper.PaperRow, column: str) -> float | None:
    value = paper.number(row, column)
    return value if isinstance(value, float) else None


def _with_spread(mean: float | None, spread: float | None, digits: int) -> str | None:
    if mean is None or spread is None:
        return None if mean is None else Figure(None, digits=digits).write(mean)
    return " ± ".join(Figure(None, digits=digits).write(value) for value in (mean, spread))
