"""Reward weights: what each setting yields, and paired comparisons of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from waysout.bench import paper
from waysout.bench.arms import Arm
from waysout.bench.stats import mean_with_zeros, non_empty_mean
from waysout.bench.table import ResultTable, TableLine
from waysout.bench.tables_base import (
    FINE,
    METRIC,
    NON_EMPTY,
    NOVELTY,
    PAIRED,
    PAIRED_COLUMNS,
    PROXIMITY,
    SPARSITY,
    UNIQUE,
    ArmSample,
    Mean,
    Metric,
    View,
    mean_figures,
    paired_line,
    title_of,
)

COMPARISONS = (
    ("BASELINE", "BALANCED"),
    ("BALANCED", "QUALITY"),
    ("BASELINE", "VALIDITY"),
    ("BASELINE", "QUALITY"),
)
_MEASURES = (
    replace(UNIQUE, digits=1, paper="yield"),
    replace(PROXIMITY, digits=4),
    SPARSITY,
    replace(NOVELTY, digits=4),
)
WITH_ZEROS = (
    "Means over all queries: one without an option counts as 0 in proximity, sparsity and novelty "
    "too, as in the paper's tables of reward weights."
)


def reward_weights(view: View) -> list[ResultTable]:
    """Return the means of each setting: as the paper has them, and without the empty queries."""
    theirs = _means(view, "reward-weights", mean_with_zeros, _MEASURES, WITH_ZEROS)
    ours = [replace(measure, paper="") for measure in _MEASURES]
    return [theirs, _means(view, "reward-weights-non-empty", non_empty_mean, ours, NON_EMPTY)]


def _means(view: View, name: str, mean: Mean, measures: Sequence[Metric], how: str) -> ResultTable:
    lines = []
    for data in view.plan.datasets:
        for sample in view.samples(data):
            row = view.row(sample.arm, _mean_row)
            figures = mean_figures(sample, measures, row, mean)
            figures = [sample.count(), *figures, sample.empty()]
            lines.append(
                TableLine((title_of(data), sample.arm.name), tuple(figures), sample.arm.id)
            )
    columns = ("n", *(measure.title for measure in measures), "empty")
    zeros = mean is mean_with_zeros
    title = f"Reward weights, without pruning ({'empties as 0' if zeros else 'non-empty means'})"
    notes = view.unlike(_mean_row) if zeros else []
    return view.table(name, title, ("data set", "setting"), columns, lines, (how,), notes)


def _mean_row(arm: Arm) -> paper.PaperRow:
    setting = arm.paper or arm.name
    return paper.find("reward_weights", dataset=title_of(arm.data), setting=setting)


def reward_paired(view: View) -> list[ResultTable]:
    """Return pairs of settings compared query by query; empty queries count as 0."""
    lines = []
    for data in view.plan.datasets:
        for a, b in COMPARISONS:
            left, right = view.sample(data, a), view.sample(data, b)
            if left is None or right is None:
                continue
            papers = _is(view, left, a) and _is(view, right, b)
            for measure in FINE:
                labels = (title_of(data), f"{a} → {b}", measure.title)
                row = _row(title_of(data), a, b, measure.name) if papers else {}
                lines.append(paired_line(labels, left, right, measure, row, empties_as_zero=True))
    title = "Reward weights, paired (A → B)"
    labels = ("data set", "comparison", METRIC)
    about, notes = (PAIRED, WITH_ZEROS), view.unlike(_mean_row)
    return [view.table("reward-paired", title, labels, PAIRED_COLUMNS, lines, about, notes)]


def _is(view: View, side: ArmSample, name: str) -> bool:
    """Whether an arm is the one that the paper calls so."""
    same = view.papers(side.arm)
    return same is not None and same.name == name


def _row(dataset: str, a: str, b: str, metric: str) -> paper.PaperRow:
    rows = paper.read("reward_weights_paired")
    here = (row for row in rows if (row["dataset"], row["a"], row["b"]) == (dataset, a, b))
    return next((row for row in here if paper.METRICS[row["metric"]] == metric), {})
