"""Methods compared: under the same number of LLM calls, and under the same number of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from waysout.bench import paper
from waysout.bench.arms import Arm, ExperimentPlan
from waysout.bench.plan import load_plan, plan_names
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
    View,
    mean_figures,
    paired_line,
    title_of,
)

BASE = "Comp-MCTS"
LARGE = "oracle-budget-large"
_LLM_BUDGET = (UNIQUE, PROXIMITY, SPARSITY, NOVELTY, PRUNED, ROWS, CALLS)
_ORACLE_BUDGET = (UNIQUE, PROXIMITY, SPARSITY, NOVELTY, replace(ROWS, title="rows asked", paper=""))
# The paper has these in its table of pruning only.
_IN_PRUNING_TABLE = ("No pruning", "Embedding")


def llm_budget(view: View) -> list[ResultTable]:
    """Return what each arm makes of the same calls, and each paired against Comp-MCTS."""
    return [_means(view), _paired(view)]


def _means(view: View) -> ResultTable:
    lines = []
    for data in view.plan.datasets:
        for sample in view.samples(data):
            row = view.row(sample.arm, llm_budget_row)
            figures = mean_figures(sample, _LLM_BUDGET, row)
            figures = [sample.count(), *figures, sample.empty()]
            lines.append(
                TableLine((title_of(data), sample.arm.name), tuple(figures), sample.arm.id)
            )
    columns = ("n", *(m.title for m in _LLM_BUDGET), "empty")
    title = "Methods under the same number of LLM calls"
    about = (
        NON_EMPTY,
        "Empty: queries for which nothing was found.",
        "The paper's figures of no pruning and of embedding pruning are from its pruning table.",
    )
    notes = view.unlike(llm_budget_row)
    return view.table("llm-budget", title, ("data set", "arm"), columns, lines, about, notes)


def llm_budget_row(arm: Arm) -> paper.PaperRow:
    """Return the paper's line for an arm; those with other pruning are in its pruning table."""
    if arm.paper in _IN_PRUNING_TABLE:
        return paper.best("pruning_best_all30", arm.data, arm.paper)
    setting = arm.paper or arm.name
    return paper.find("llm_budget", dataset=title_of(arm.data), setting=setting)


def _paired(view: View) -> ResultTable:
    measures = (*FINE, ROWS)
    lines = []
    for data in view.plan.datasets:
        base = view.sample(data, BASE)
        others = [sample for sample in view.samples(data) if sample.arm.name != BASE]
        for other in others if base else ():
            for measure in measures:
                labels = (title_of(data), other.arm.name, measure.title)
                lines.append(paired_line(labels, base, other, measure))
    title = f"Every arm (B) against {BASE} (A), query by query"
    about = (PAIRED, "The paper has no such comparison.")
    labels = ("data set", "arm", METRIC)
    return view.table("llm-budget-paired", title, labels, PAIRED_COLUMNS, lines, about)


def oracle_budget(view: View) -> list[ResultTable]:
    """Return what methods without an LLM make of the same number of oracle rows."""
    notes = _larger(view)
    own = view.own or view.plan
    papers = replace(own, arms=(*own.arms, *load_plan(LARGE).arms))
    arms = sorted(_oracle_arms(view), key=lambda arm: view.plan.datasets.index(arm.data))
    view = replace(view, plan=replace(view.plan, arms=tuple(arms)), own=papers)
    lines = []
    for arm in arms:
        sample, rows = view.of(arm), str(arm.rows)
        row = view.row(arm, _oracle_row)
        figures = [sample.count(), *mean_figures(sample, _ORACLE_BUDGET, row), sample.empty()]
        labels = (title_of(arm.data), arm.name.removesuffix(f" rows={rows}"), f"{arm.rows:,}")
        lines.append(TableLine(labels, tuple(figures), arm.id))
    columns = ("n", *(m.title for m in _ORACLE_BUDGET), "empty")
    title = "Methods that ask no LLM, under the same number of oracle rows"
    labels = ("data set", "method", "rows allowed")
    notes += view.unlike(_oracle_row)
    return [view.table("oracle-budget", title, labels, columns, lines, (NON_EMPTY,), notes)]


def _oracle_row(arm: Arm) -> paper.PaperRow:
    where = {"dataset": title_of(arm.data), "n_oracle": str(arm.rows)}
    return paper.find("oracle_budget", method=arm.paper, **where)


def _oracle_arms(view: View) -> Iterator[Arm]:
    """Yield the plan's arms; those of the large plan only as far as they were run."""
    yield from view.plan.arms
    for arm in _large_plan(view).arms:
        if arm.data in view.plan.datasets and view.of(arm).n:
            yield arm


def _large_plan(view: View) -> ExperimentPlan:
    known = view.plan.name == "oracle-budget" and LARGE in plan_names()
    plan = load_plan(LARGE) if known else replace(view.plan, arms=())
    return plan.cut(queries=view.plan.queries) if known else plan


def _larger(view: View) -> list[str]:
    arms = _large_plan(view).arms
    if not arms or all(view.of(arm).n for arm in arms):
        return []
    return [f"Larger budgets that are not listed were not run: waysout bench run {LARGE}"]
