"""Finished searches made up by hand, to make tables of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from waysout.bench.arms import Arm, ExperimentPlan
from waysout.bench.cell import Cell, Cells
from waysout.datasets.queries import query_list

LLM = "simulated:1"
Figures = Mapping[str, float | int | None]


def made_cell(arm: Arm, place: int, figures: Figures, llm: str = LLM, **more: Any) -> Cell:
    """Return the search of an arm for the query at that place of the stored order.

    Of the figures, those that are spent go there; ``more`` replaces fields of the cell.
    """
    spent = ("calls", "rows", "seconds", "llm_seconds", "from_file", "at_once")
    stored = query_list(arm.data)
    fields: dict[str, Any] = {
        "arm": arm.id,
        "llm": llm if arm.asks_llm else "",
        "query": stored.rows[place],
        "data": arm.data,
        "oracle": stored.oracle_sha256,
        "outcome": "complete",
        "spec": arm.spec,
        "metrics": {name: value for name, value in figures.items() if name not in spent},
        "spent": {name: value for name, value in figures.items() if name in spent},
        "version": "0.1",
        "commit": "abcdef0123456789",
        "at": "2026-01-01T00:00:00Z",
    }
    return Cell(**(fields | more))


def figures_of(unique: float, **more: float | None) -> dict[str, float | int | None]:
    """Return the figures of a search; one that found nothing has no means of options."""
    some = {"proximity": 0.7, "sparsity": 2.5, "novelty": 0.1}
    of_options = some if unique else dict.fromkeys(some)
    return {
        "unique_valid": unique, "valid": 2 * unique, "prune_pct": 10.0, "validity_pct": 50.0,
        "calls": 30, "rows": 150, "seconds": 60.0, "llm_seconds": 57.0, "from_file": 0,
        **of_options, **more,
    }  # fmt: skip


def cells_of(
    plan: ExperimentPlan,
    figures: Callable[[Arm, int], Figures | None] = lambda arm, place: figures_of(place),
    llms: Iterable[str] = (LLM,),
) -> Cells:
    """Return a search of every arm, query and LLM for which there are figures."""
    return Cells(
        made_cell(arm, place, found, llm)
        for llm in llms
        for arm in plan.arms
        for place in range(arm.queries)
        if (found := figures(arm, place)) is not None
    )
