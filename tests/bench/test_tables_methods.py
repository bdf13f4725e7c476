"""The tables of methods and targets: what is compared, and on which queries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_cells import figures_of, made_cell

from waysout.bench.arms import Arm, ExperimentPlan
from waysout.bench.cell import Cell, Cells
from waysout.bench.plan import load_plan
from waysout.bench.tables import build
from waysout.bench.tables_methods import compared, described, equal_sets, shortlists, whole_sets
from waysout.errors import InputError

PLAN = load_plan("methods")


def searched(arm: Arm, place: int, unique: int, llm: str = "simulated:1", **more: Any) -> Cell:
    figures = figures_of(unique, irreducible=1, lever_sets=unique, plausibility=0.5, tokens_in=9)
    columns = {
        **{name: [0.5] * unique for name in ("proximity", "sparsity", "plausibility")},
        **{f"shortlist_{name}": [0.5] * min(unique, 10) for name in ("novelty", "lever_sets")},
    }
    return made_cell(arm, place, figures, llm, columns=columns, **more)


def pairs(ours: list[float], theirs: list[float]) -> list[tuple[Cell, Cell]]:
    arm = PLAN.arms[0]
    return [
        (made_cell(arm, 0, {"figure": a}), made_cell(arm, 0, {"figure": b}))
        for a, b in zip(ours, theirs, strict=True)
    ]


def test_a_comparison_is_of_ours_less_theirs_with_a_test() -> None:
    stats = pytest.importorskip("scipy.stats")
    ours, theirs = [3.0, 5.0, 4.0, 8.0], [2.0, 5.5, 1.0, 4.0]
    told = described(compared(pairs(ours, theirs), whole_sets("figure")))
    assert told.startswith("+1.875 [")
    assert told.endswith("d_z = +0.93, n = 4")
    assert f"p = {stats.ttest_rel(ours, theirs).pvalue:.2g}," in told


def test_of_no_pairs_nothing_is_said_and_of_equal_differences_nothing_is_tested() -> None:
    figure = whole_sets("figure")
    assert described(compared([], figure)) == "no query is solved by both"
    told = described(compared(pairs([1.5, 2.5], [1.0, 2.0]), figure))
    assert told == "+0.500 on every query, n = 2"


def test_sets_are_compared_by_as_many_of_their_best_as_the_smaller_has() -> None:
    cell = made_cell(PLAN.arms[0], 0, {})
    large = replace(cell, columns={"proximity": [0.1, 0.9, 0.8], "shortlist_novelty": [0, 1, 2]})
    small = replace(cell, columns={"proximity": [0.5, 0.6], "shortlist_novelty": [0, 3]})
    measure = equal_sets("proximity", by="proximity", highest=True)
    assert measure(large, small) == pytest.approx((0.85, 0.55))
    assert shortlists("novelty", equal=True)(large, small) == (1, 3)
    assert shortlists("novelty", equal=False)(large, small) == (2, 3)


def two_arms(*cells: tuple[str, str, int, int]) -> Cells:
    return Cells(searched(PLAN.arm(data, arm), place, n) for data, arm, place, n in cells)


def test_only_queries_that_every_arm_finished_count() -> None:
    cells = two_arms(
        ("loan", "comp-mcts", 0, 0), ("loan", "recombine", 0, 20), ("loan", "recombine", 1, 99)
    )
    short, means = build("methods", cells)
    assert [line.figures[1].ours for line in short.lines] == ["0.0 / 1.0 / 1", "20.0 / 1.0 / 0"]
    counts = [line.figures[0].ours for line in means.lines if line.was_run]
    assert counts == ["1 of 30", "1 of 30"]


def test_the_short_table_has_a_line_for_each_arm_and_the_mean_of_the_data_sets() -> None:
    cells = two_arms(("loan", "lats", 0, 10), ("loan", "lats", 1, 0), ("heloc", "lats", 0, 9))
    short, _ = build("methods", cells)
    (line,) = short.lines
    told = [figure.ours for figure in line.figures[1:]]
    assert told == ["5.0 / 1.0 / 1", "9.0 / 1.0 / 0", "7.0 / 1.0 / 1"]
    assert short.columns == ("n", "Loan", "HELOC", "together")


def test_targets_are_passed_or_failed() -> None:
    cells = two_arms(
        *(("loan", "comp-mcts", place, 2) for place in range(3)),
        *(("loan", "recombine", place, 20) for place in range(3)),
    )
    (table,) = build("targets", cells)
    told = {line.labels[0]: [figure.ours for figure in line.figures] for line in table.lines}
    assert told["unique valid at least 4 × comp-mcts"] == [3.0, "20.0 to 2.0 (comp-mcts): 10.0 ×",
                                                           "PASS"]  # fmt: skip
    assert told["unique valid at least 100 (an aim)"][-1] == "FAIL"
    assert told["more lever sets"][1] == "+18.000 on every query, n = 3"


def test_what_two_llms_proposed_is_not_compared() -> None:
    arm = PLAN.arm("loan", "recombine")
    cells = Cells(searched(arm, 0, 1, llm=llm) for llm in ("simulated:1", "simulated:2"))
    with pytest.raises(InputError, match="several LLMs"):
        build("methods", cells)


def test_the_ablations_are_a_plan_of_the_same_table(tmp_path: Path) -> None:
    plan: ExperimentPlan = load_plan("ablations")
    cells = Cells(searched(arm, 0, 3) for arm in plan.arms if arm.data == "loan")
    short, _ = build("methods", cells, plan="ablations")
    assert len(short.lines) == 19
