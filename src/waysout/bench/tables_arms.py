"""Arms compared by their means and query by query: methods under one budget, reward weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from waysout.bench import paper
from waysout.bench.arms import Arm
from waysout.bench.plan import load_plan, plan_names
from waysout.bench.stats import mean_with_zeros, non_empty_mean
from waysout.bench.table import ResultTable, TableLine
from waysout.bench.tables_base import (
    CALLS,
    FINE,
    METRIC,
    NON_EMPTY,
    NOVELTY,
    PAIRED,
    PAIRED_COLUMNS,
    PROXIMITY,
    PRUNED,
    ROWS,
    SPARSITY,
    UNIQUE,
    ArmSample,
    Mean,
    Metric,
    View,
    mean_figures,
    mean_line,
    paired_line,
    title_of,
)

BASE = "Comp-MCTS"
STRONG, LARGE, PUBLISHED = "oracle-budget", "oracle-budget-large", "oracle-budget-published"
_LLM_BUDGET = (UNIQUE, PROXIMITY, SPARSITY, NOVELTY, PRUNED, ROWS, CALLS)
_SET_METRICS = (UNIQUE, PROXIMITY, SPARSITY, NOVELTY)
_ROWS_ASKED = replace(ROWS, title="rows asked", paper="")
_ORACLE_BUDGET = (*_SET_METRICS, _ROWS_ASKED)
_ROWS_HEADS = ("data set", "method", "rows allowed")
# The paper has these in its table of pruning only.
_IN_PRUNING_TABLE = ("No pruning", "Embedding")


def llm_budget(view: View) -> list[ResultTable]:
    """Return the means of each arm under the same calls, and each paired against Comp-MCTS."""
    lines, pairs = [], []
    for data in view.plan.datasets:
        base = view.sample(data, BASE)
        for sample in view.samples(data):
            labels = (title_of(data), sample.arm.name)
            row = view.row(sample.arm, llm_budget_row)
            lines.append(mean_line(labels, sample, _LLM_BUDGET, row))
            if base and sample.arm.name != BASE:
                pairs += [paired_line((*labels, measure.title), base, sample, measure)
                          for measure in (*FINE, ROWS)]  # fmt: skip
    columns = ("n", *(m.title for m in _LLM_BUDGET), "empty")
    title = "Methods under the same number of LLM calls"
    about: tuple[str, ...] = (
        NON_EMPTY,
        "Empty: queries for which nothing was found.",
        "The paper's figures of no pruning and of embedding pruning are from its pruning table.",
    )
    heads, notes = ("data set", "arm"), view.unlike(llm_budget_row)
    means = view.table("llm-budget", title, heads, columns, lines, about, notes)
    title = f"Every arm (B) against {BASE} (A), query by query"
    about = (PAIRED, "The paper has no such comparison.")
    paired = view.table("llm-budget-paired", title, (*heads, METRIC), PAIRED_COLUMNS, pairs, about)
    return [means, paired]


def llm_budget_row(arm: Arm) -> paper.PaperRow:
    """Return the paper's line for an arm; those with other pruning are in its pruning table."""
    if arm.paper in _IN_PRUNING_TABLE:
        return paper.selected_row("pruning_best_all30", arm.data, arm.paper)
    setting = arm.paper or arm.name
    return paper.find("llm_budget", dataset=title_of(arm.data), setting=setting)


def oracle_budget(view: View) -> list[ResultTable]:
    """Return the means of methods without an LLM under the same number of oracle rows.

    Arms of the large plan are listed if they were run.
    """
    large: tuple[Arm, ...] = ()
    if view.plan.name == STRONG and LARGE in plan_names():
        large = load_plan(LARGE).cut(queries=view.plan.queries).arms
    ran = [arm for arm in large if view.of(arm).n]
    notes = [] if len(ran) == len(large) else [
        f"Larger budgets that are not listed were not run: waysout bench run {LARGE}"
    ]  # fmt: skip
    datasets, own = view.plan.datasets, view.own or view.plan
    arms = (*view.plan.arms, *(arm for arm in ran if arm.data in datasets))
    arms = tuple(sorted(arms, key=lambda arm: datasets.index(arm.data)))
    papers = replace(own, arms=(*own.arms, *load_plan(LARGE).arms))
    view = replace(view, plan=replace(view.plan, arms=arms), own=papers)
    lines = []
    for arm in arms:
        name = arm.name.removesuffix(f" rows={arm.rows}")
        labels = (title_of(arm.data), name, f"{arm.rows:,}")
        lines.append(mean_line(labels, view.of(arm), _ORACLE_BUDGET, view.row(arm, oracle_row)))
    columns = ("n", *(m.title for m in _ORACLE_BUDGET), "empty")
    title = "Methods that ask no LLM, under the same number of oracle rows"
    notes += view.unlike(oracle_row)
    about = (
        NON_EMPTY,
        "Ours count every valid row they met, the paper's what the public code returns: "
        f"`{PUBLISHED}` has both.",
    )
    return [view.table("oracle-budget", title, _ROWS_HEADS, columns, lines, about, notes)]


def oracle_published(view: View) -> list[ResultTable]:
    """Return the means of methods as published, the paper's, and those of our stronger ones."""
    strong = {
        (arm.data, arm.method, arm.rows): view.of(arm)
        for name in (STRONG, LARGE)
        for arm in load_plan(name).cut(queries=view.plan.queries).arms
    }
    lines = []
    for arm in view.plan.arms:
        published, row = view.of(arm), view.row(arm, oracle_row)
        ours = strong.get((arm.data, arm.method, arm.rows), ArmSample(arm, (), {}))
        pairs = zip(
            mean_figures(published, _SET_METRICS, row), mean_figures(ours, _SET_METRICS),
            strict=True,
        )  # fmt: skip
        figures = (
            published.count(), ours.count(), *chain(*pairs),
            *mean_figures(published, [_ROWS_ASKED]), published.empty(),
        )  # fmt: skip
        labels = (title_of(arm.data), arm.method, f"{arm.rows:,}")
        runs = " ".join(sample.arm.id for sample in (published, ours) if sample.n)
        lines.append(TableLine(labels, figures, runs))
    columns = (
        "n", "n, strong", *(name for m in _SET_METRICS for name in (m.title, f"{m.title}, strong")),
        _ROWS_ASKED.title, "empty",
    )  # fmt: skip
    title = "The paper's methods without an LLM as published, and our stronger versions"
    about = (
        NON_EMPTY,
        "As published, only what the public code returns counts; strong: every valid row met, with "
        "sizes taken from the budget.",
    )
    unlike = view.unlike(oracle_row)
    return [view.table(PUBLISHED, title, _ROWS_HEADS, columns, lines, about, unlike)]


def oracle_row(arm: Arm) -> paper.PaperRow:
    """Return the paper's line for a method under a number of oracle rows."""
    where = {"dataset": title_of(arm.data), "n_oracle": str(arm.rows)}
    return paper.find("oracle_budget", method=arm.paper, **where)


# Reward weights ----------------------------------------------------------------------------------

COMPARISONS = (
    ("BASELINE", "BALANCED"),
    ("BALANCED", "QUALITY"),
    ("BASELINE", "VALIDITY"),
    ("BASELINE", "QUALITY"),
)
_REWARDS = (
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
    """Return the means of each setting: as in the paper, and without the empty queries."""
    theirs = _means(view, "reward-weights", mean_with_zeros, _REWARDS, WITH_ZEROS)
    ours = [replace(measure, paper="") for measure in _REWARDS]
    return [theirs, _means(view, "reward-weights-non-empty", non_empty_mean, ours, NON_EMPTY)]


def _means(view: View, name: str, mean: Mean, measures: Sequence[Metric], how: str) -> ResultTable:
    lines = [
        mean_line((title_of(data), sample.arm.name), sample, measures,
                  view.row(sample.arm, _mean_row), mean)
        for data in view.plan.datasets for sample in view.samples(data)
    ]  # fmt: skip
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
    published = {(row["dataset"], row["a"], row["b"], paper.METRICS[row["metric"]]): row
                 for row in paper.read("reward_weights_paired")}  # fmt: skip
    lines = []
    for data in view.plan.datasets:
        for pair in COMPARISONS:
            a, b = (view.sample(data, name) for name in pair)
            if a is None or b is None:
                continue
            same = [view.papers(side.arm) for side in (a, b)]
            are_papers = tuple(arm.name for arm in same if arm) == pair
            for measure in FINE:
                labels = (title_of(data), " → ".join(pair), measure.title)
                row = published.get((title_of(data), *pair, measure.name), {}) if are_papers else {}
                lines.append(paired_line(labels, a, b, measure, row, empties_as_zero=True))
    title = "Reward weights, paired (A → B)"
    labels = ("data set", "comparison", METRIC)
    about, notes = (PAIRED, WITH_ZEROS), view.unlike(_mean_row)
    return [view.table("reward-paired", title, labels, PAIRED_COLUMNS, lines, about, notes)]
