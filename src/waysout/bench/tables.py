"""All tables by name, and how to build one from finished searches."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from waysout.bench import (
    tables_arms,
    tables_claims,
    tables_kinds,
    tables_lead,
    tables_methods,
    tables_other,
    tables_ours,
    tables_pruning,
    tables_quality,
    tables_readings,
)
from waysout.bench.cell import Cells, one_llm
from waysout.bench.plan import load_plan
from waysout.bench.readings import MARK
from waysout.bench.status import plan_llms
from waysout.bench.table import ResultTable
from waysout.bench.tables_base import View, real_first, run_command
from waysout.errors import InputError, unknown


@dataclass(frozen=True)
class TableEntry:
    """A table: the plan whose searches it needs, its builder, and whether it covers all LLMs."""

    plan: str
    build: Callable[[View], list[ResultTable]]
    every_llm: bool = False


TABLES: Mapping[str, TableEntry] = {
    "claims": TableEntry("llm-budget", tables_claims.claims, every_llm=True),
    "no-llm": TableEntry("llm-budget", tables_lead.no_llm, every_llm=True),
    "llm-budget": TableEntry("llm-budget", tables_arms.llm_budget),
    "oracle-budget": TableEntry("oracle-budget", tables_arms.oracle_budget),
    "oracle-budget-published": TableEntry("oracle-budget-published", tables_arms.oracle_published),
    "reward-weights": TableEntry("reward-weights", tables_arms.reward_weights),
    "reward-paired": TableEntry("reward-weights", tables_arms.reward_paired),
    "pruning-sweep": TableEntry("pruning-sweep", tables_pruning.pruning_sweep),
    "pruning-best": TableEntry("pruning-sweep", tables_pruning.pruning_best),
    "pruning-heldout": TableEntry("pruning-heldout", tables_pruning.pruning_heldout),
    "pruning-paired": TableEntry("pruning-sweep", tables_pruning.pruning_paired),
    "readings": TableEntry("pruning-sweep", tables_readings.readings, every_llm=True),
    "compressors": TableEntry("compressors", tables_other.compressors),
    "cost": TableEntry("cost", tables_other.cost),
    "yields": TableEntry("yields", tables_ours.yields),
    "prompts": TableEntry("prompts", tables_ours.prompts, every_llm=True),
    "rules": TableEntry("rules", tables_ours.rules),
    "llm-sizes": TableEntry("llm-sizes", tables_ours.llm_sizes, every_llm=True),
    "methods": TableEntry("methods", tables_methods.methods),
    "targets": TableEntry("methods", tables_methods.targets),
    "baselines": TableEntry("baselines", tables_kinds.baselines),
    "optimum": TableEntry("optimum", tables_kinds.optimum),
    "limits": TableEntry("limits", tables_kinds.limits),
    "going-on": TableEntry("going-on", tables_kinds.going_on),
    "shared": TableEntry("shared", tables_kinds.shared),
    "quality": TableEntry("quality", tables_quality.quality),
}


def build(
    name: str,
    cells: Cells,
    *,
    llm: str | None = None,
    queries: int | None = None,
    plan: str | None = None,
    places: Sequence[str] = (),
) -> list[ResultTable]:
    """Build a table, or a few related ones, from finished searches.

    ``plan`` replaces the table's own plan. ``places`` are where the cells come from; they become
    part of the command shown with each table.
    """
    entry = TABLES.get(name)
    if entry is None:
        raise InputError(unknown("table", name, TABLES))
    chosen = load_plan(plan or entry.plan)
    if queries is not None:
        chosen = chosen.cut(queries=queries)
    llms = real_first(plan_llms(chosen, cells), cells)
    chosen_llm = llm or ""
    if not entry.every_llm or llm:
        chosen_llm = one_llm(llms, llm or "")
    words = ["waysout", "bench", "table", name]
    for place in places:
        words += ["--results", place]
    for option, value in (("--llm", llm), ("--queries", queries), ("--plan", plan)):
        words += [option, str(value)] if value is not None else []
    # The paper's figures stand beside its arms under either reading.
    under = f"{MARK}{chosen.reading}" if chosen.reading else ""
    own = load_plan(f"{entry.plan}{under}") if plan else None
    view = View(chosen, cells, chosen_llm, llms, shlex.join(words), own)
    if not any(view.of(arm).n for arm in chosen.arms) and not (entry.every_llm and llms):
        run = run_command(plan or entry.plan, places)
        raise InputError(
            f"these results contain no search of the plan {chosen.name}; run it with: {run}"
        )
    return [table for table in entry.build(view) if table.lines]
