"""Tables the paper does not have: yields against what is spent, prompts, rules, sizes of LLMs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from waysout.bench.cell import Cell
from waysout.bench.stats import non_empty_mean
from waysout.bench.table import Figure, ResultTable, TableLine
from waysout.bench.tables_base import (
    CALLS,
    NON_EMPTY,
    NOVELTY,
    PROXIMITY,
    ROWS,
    SPARSITY,
    UNIQUE,
    VALIDITY,
    ArmSample,
    View,
    llm_words,
    mean_figures,
    title_of,
)
from waysout.search.batches import BATCH

AT_CALLS = (6, 15, 30)
# Whole batches: methods that send 50 rows at a time have no results in between.
AT_ROWS = (BATCH, 2 * BATCH, 3 * BATCH)
_MEASURES = (UNIQUE, PROXIMITY, SPARSITY, NOVELTY, VALIDITY, ROWS, CALLS)


def yields(view: View) -> list[ResultTable]:
    """Return the options that each method has after some numbers of calls and of rows."""
    return [_yields(view, 0, AT_CALLS, "calls"), _yields(view, 1, AT_ROWS, "rows")]


def _yields(view: View, spent: int, limits: Sequence[int], unit: str) -> ResultTable:
    lines = []
    for data in view.plan.datasets:
        for sample in view.samples(data):
            if unit == "calls" and not sample.arm.asks_llm:
                continue
            known = with_curve(sample)
            counts = [
                non_empty_mean(had(cell, spent, limit) for cell in known.cells.values())
                for limit in limits
            ]
            figures = [known.count(), *(Figure(count) for count in counts), known.empty()]
            lines.append(
                TableLine((title_of(data), sample.arm.name), tuple(figures), sample.arm.id)
            )
    columns = ("n", *(f"{limit} {unit}" for limit in limits), "empty at the end")
    whose = "LLM calls" if unit == "calls" else "oracle rows"
    about = (
        f"Mean number of unique valid options found with no more than so many {whose} spent, over "
        "all queries. An option is dated by the end of the batch of rows that it was in; methods "
        f"that ask no LLM mostly ask {BATCH} rows at a time.",
    )
    labels = ("data set", "arm")
    title = f"Unique valid options against {whose}"
    return view.table(f"yields-{unit}", title, labels, columns, lines, about)


def with_curve(sample: ArmSample) -> ArmSample:
    """Return the searches that record when each option was found: imported ones may not."""
    known = {
        q: c for q, c in sample.cells.items() if len(c.found) == (c.value("unique_valid") or 0)
    }
    return replace(sample, cells=known)


def had(cell: Cell, spent: int, limit: int) -> float:
    """Count the options found within a limit of calls (``spent`` 0) or of rows (1)."""
    return float(sum(found[spent] <= limit for found in cell.found))


def prompts(view: View) -> list[ResultTable]:
    """Return the means of each prompt variant, with each LLM and way to sample."""
    free = (
        "An LLM that its backend cannot hold to the format (transformers) answers the constrained "
        "arms like the others: what differs between the two is chance."
    )
    return [_means(view, "prompts", "Prompts and how replies are read", (free,), by_llm=True)]


def rules(view: View) -> list[ResultTable]:
    """Return the means under each rule set."""
    return [_means(view, "rules", "The paper's rules and realistic ones")]


def llm_sizes(view: View) -> list[ResultTable]:
    """Return the means with each LLM that the results have."""
    return [_means(view, "llm-sizes", "LLMs of different sizes", by_llm=True)]


def _means(
    view: View, name: str, title: str, about: Sequence[str] = (), *, by_llm: bool = False
) -> ResultTable:
    lines = []
    for data in view.plan.datasets:
        for arm in [arm for arm in view.plan.arms if arm.data == data]:
            for llm in view.llms if by_llm and not view.llm else (view.llm,):
                sample = replace(view, llm=llm).of(arm)
                if by_llm and not sample.n:
                    continue
                figures = mean_figures(sample, [replace(m, paper="") for m in _MEASURES])
                figures = [sample.count(), *figures, sample.empty()]
                labels = (title_of(data), arm.name, *([llm_words(llm)] if by_llm else []))
                lines.append(TableLine(labels, tuple(figures), arm.id))
    labels = ("data set", "arm", *(["LLM"] if by_llm else []))
    columns = ("n", *(measure.title for measure in _MEASURES), "empty")
    return view.table(name, title, labels, columns, lines, (NON_EMPTY, *about))
