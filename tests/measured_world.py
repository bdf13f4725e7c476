"""Whole plans finished by hand, to judge, draw and report: no search is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random

from bench_cells import figures_of, made_cell

from waysout.bench.arms import Arm
from waysout.bench.cell import Cell, Cells
from waysout.bench.judge import known_plan

LLM = "openai:some-model@http://localhost:8000/v1"
SIMULATED = "simulated:1"
Value = Callable[[Arm, int], Mapping[str, float]]


def cells_of(
    plan: str, value: Value, *, llm: str = LLM, queries: int = 6, datasets: tuple[str, ...] = ()
) -> Iterator[Cell]:
    """Yield a cell for each arm and query; ``value`` gives figures by arm and query's place."""
    for arm in known_plan(plan).arms:
        if not datasets or arm.data in datasets:
            for place in range(min(queries, arm.queries)):
                yield _cell(arm, place, value(arm, place), llm)


def _cell(arm: Arm, place: int, given: Mapping[str, float], llm: str) -> Cell:
    usual = {"calls": arm.calls, "rows": arm.rows, "prune_pct": 0.0}
    figures = {**figures_of(given.get("unique_valid", 5), **usual), **given}
    count = int(figures["unique_valid"] or 0)
    steps = tuple((min(arm.calls, i // 5 + 1), min(arm.rows, 3 * i + 3)) for i in range(count))
    return made_cell(arm, place, figures, llm, spec=arm.spec, found=steps)


def all_of(value: Value, *plans: str, llm: str = LLM, queries: int = 6) -> Cells:
    """Return the cells of several plans."""
    return Cells(cell for plan in plans for cell in cells_of(plan, value, llm=llm, queries=queries))


def lively(arm: Arm, place: int) -> Mapping[str, float]:
    """Return figures that differ by arm and query, the same each time."""
    draw = Random(f"{arm.data} {arm.name} {place}")
    level = {"recombine": 110, "random": 25, "lats": 22}.get(arm.method, 18)
    level = level // 5 if arm.k == 1 else level
    per_threshold = 3000 if arm.settings.get("pruning") == "gzip" else 600
    pruned = min(95.0, per_threshold * float(arm.settings.get("threshold", 0.0)))
    count = max(1, round(draw.gauss(level, level / 4) * (1 - pruned / 150)))
    return {
        "unique_valid": count, "prune_pct": pruned, "proximity": draw.uniform(0.5, 0.8),
        "sparsity": draw.uniform(2, 4), "rows": arm.rows * (1 - pruned / 100),
    }  # fmt: skip
