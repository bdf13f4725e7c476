from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bench_cells import LLM, Figures, cells_of, figures_of, made_cell

from waysout.bench.arms import Arm
from waysout.bench.cell import Cells
from waysout.bench.plan import load_plan
from waysout.bench.table import Figure, ResultTable
from waysout.bench.tables import build
from waysout.bench.tables_base import ArmSample, View
from waysout.bench.tables_ours import AT_ROWS
from waysout.search.batches import BATCH


def figure(table: ResultTable, column: str, *labels: str) -> Figure:
    line = next(line for line in table.lines if line.labels == labels)
    return line.figures[table.columns.index(column)]


def test_compressors_of_the_first_query_and_of_all() -> None:
    plan = load_plan("compressors")
    (table,) = build("compressors", cells_of(plan, lambda arm, place: figures_of(4 + place)))
    first = figure(table, "unique valid, first query", "Loan", "rlbwt")
    assert (first.ours, first.paper) == (4.0, 12.0)
    assert figure(table, "valid, first query", "Loan", "gzip") == Figure(8.0, 66.0, 0)
    assert figure(table, "unique valid, mean", "Loan", "gzip") == Figure(4 + 14.5, None, 2)
    assert figure(table, "prune %, first query", "Loan", "repair").paper == 71.0


# Compression takes 11 s, 22 s or 99 s; no pruning 20 s; a third of LATS was read from a file.
def timed(arm: Arm, place: int) -> Figures | None:
    if arm.data not in ("loan", "adult"):
        return None
    if arm.name == "LATS K=1":
        read = place % 3 == 0
        return figures_of(1, seconds=0.0 if read else 9.0, llm_seconds=0.0, from_file=30 * read)
    seconds = (11.0, 22.0, 99.0)[place % 3] if arm.name == "compression" else 20.0
    return figures_of(1, seconds=seconds, llm_seconds=seconds / 2, calls=30)


@pytest.fixture(scope="module")
def cost() -> list[ResultTable]:
    return build("cost", cells_of(load_plan("cost"), timed))


def test_seconds_are_medians(cost: list[ResultTable]) -> None:
    seconds = figure(cost[0], "seconds per query", "Loan", "compression")
    assert (seconds.ours, seconds.paper) == (22.0, 356.0)
    per_call = figure(cost[0], "seconds per call", "Loan", "compression")
    assert per_call.ours == pytest.approx(22 / 30)
    assert per_call.paper == "10.5-14.5"
    assert figure(cost[0], "LLM share %", "Loan", "compression").ours == pytest.approx(50.0)
    assert figure(cost[0], "seconds per query", "Adult", "compression").paper == "316-434"
    assert figure(cost[0], "seconds per query", "Loan", "none").paper == 350.0
    assert figure(cost[0], "seconds per query", "Adult", "none").paper is None
    assert figure(cost[0], "n", "Credit, HELOC", "").ours == "not run"


def test_other_settings_have_no_times_of_the_papers(tmp_path: Path) -> None:
    file = tmp_path / "cost.toml"
    file.write_text('like = "cost"\ntitle = "short"\ndatasets = ["loan"]\ncalls = 5\nqueries = 1\n')
    seconds, ratio = build("cost", cells_of(load_plan(str(file)), timed), plan=str(file))
    assert not seconds.has_paper
    assert not ratio.has_paper
    assert "Loan, compression; Loan, none; Loan, LATS K=1." in seconds.notes[0]


def test_other_compressors_than_the_papers(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('like = "compressors"\ntitle = "short"\ncalls = 5\nqueries = 1\n')
    (table,) = build("compressors", cells_of(load_plan(str(file))), plan=str(file))
    assert not table.has_paper
    assert "Loan, gzip; Loan, rlbwt; Loan, repair." in table.notes[0]


def test_replies_from_a_file_tell_no_times(cost: list[ResultTable]) -> None:
    assert figure(cost[0], "n", "Loan", "LATS K=1").ours == "20 of 30"
    seconds = figure(cost[0], "seconds per query", "Loan", "LATS K=1")
    assert (seconds.ours, seconds.paper) == (9.0, "72-100")


def test_how_many_searches_ran_at_once_is_said(cost: list[ResultTable]) -> None:
    assert not any("at once" in line for line in cost[0].about)
    many = cells_of(load_plan("cost"), lambda arm, place: figures_of(1, at_once=12))
    (told,) = (line for line in build("cost", many)[0].about if "at once" in line)
    assert told.startswith("Up to 12 searches ran at once")


def test_pruning_against_none(cost: list[ResultTable]) -> None:
    ratio = figure(cost[1], "ratio", "Loan")
    assert ratio.ours == pytest.approx(1.1)
    assert ratio.paper == pytest.approx(356 / 350)
    assert figure(cost[1], "ratio", "Adult").ours == pytest.approx(1.1)
    assert figure(cost[1], "ratio", "Adult").paper is None
    assert figure(cost[1], "n", "Loan").ours == 30.0
    assert figure(cost[1], "n", "Credit, HELOC").ours == "not run"
    assert figure(cost[1], "ratio", "Credit, HELOC").ours is None


def test_pruning_is_held_against_none_on_the_queries_both_have_timed() -> None:
    def figures(arm: Arm, place: int) -> Figures | None:
        if arm.data != "loan" or arm.name == "LATS K=1":
            return None
        # Slow queries come first; compression has no time of them.
        read = arm.name == "compression" and place < 10
        return figures_of(1, seconds=100.0 if place < 10 else 20.0 + place, from_file=int(read))

    _, ratios = build("cost", cells_of(load_plan("cost"), figures))
    line = [figure(ratios, column, "Loan").ours for column in ratios.columns]
    assert line == ["20 of 30", 39.5, 39.5, 1.0]


def test_yields_count_what_was_there_by_then() -> None:
    plan = load_plan("yields").cut(only=["loan/comp-mcts", "loan/random"], queries=3)
    arms = {arm.name: arm for arm in plan.arms}
    mcts, random = arms["comp-mcts"], arms["random"]
    cells = Cells(
        [
            made_cell(mcts, 0, figures_of(3), found=((6, 30), (7, 31), (30, 150))),
            made_cell(mcts, 1, figures_of(0)),
            # An import that does not tell when its options were found.
            made_cell(mcts, 2, figures_of(5)),
            made_cell(random, 0, figures_of(2), found=((0, 50), (0, 100))),
        ]
    )
    calls, rows = build("yields", cells, queries=3)
    mcts_line, random_line = ("Loan", "comp-mcts"), ("Loan", "random")
    at = [figure(calls, column, *mcts_line).ours for column in calls.columns]
    assert at == ["2 of 3", 0.5, 1.0, 1.5, 1.0]
    assert [figure(rows, f"{n} rows", *mcts_line).ours for n in (50, 100, 150)] == [1, 1, 1.5]
    assert [figure(rows, f"{n} rows", *random_line).ours for n in (50, 100, 150)] == [1, 2, 2]
    assert not any(line.labels == random_line for line in calls.lines)


def test_yields_are_counted_where_batches_end() -> None:
    assert AT_ROWS == (BATCH, 2 * BATCH, 3 * BATCH)
    plan = load_plan("yields").cut(only=["loan/random"], queries=1)
    _, rows = build("yields", cells_of(plan), queries=1)
    assert any("dated by the end of the batch" in text for text in rows.about)


def test_what_needs_no_search_is_said_to_count_as_nothing() -> None:
    plan = load_plan("rules").cut(queries=2)
    arms = plan.arms[:3]
    odd = [
        made_cell(arms[0], 0, figures_of(0), outcome="infeasible"),
        made_cell(arms[1], 0, figures_of(0), outcome="infeasible"),
        made_cell(arms[2], 1, figures_of(0), outcome="already-approved"),
    ]
    (table,) = build("rules", Cells(odd), queries=2)
    assert table.notes[-1] == (
        "Queries with nothing to search for count as a yield of 0: 1 already-approved, "
        "2 infeasible."
    )
    usual = Cells([made_cell(arms[0], 0, figures_of(0), outcome="budget-spent")])
    assert not any("yield of 0" in note for note in build("rules", usual, queries=2)[0].notes)


def test_an_arm_may_have_fewer_queries_than_its_plan() -> None:
    plan = load_plan("rules")
    arm = replace(plan.arms[0], queries=4)
    view = View(replace(plan, arms=(arm,)), cells_of(replace(plan, arms=(arm,))), LLM, (LLM,))
    assert (len(view.of(arm).wanted), view.of(arm).complete) == (4, True)
    fewer = View(replace(plan, queries=3), view.cells, LLM, (LLM,))
    assert len(fewer.of(arm).wanted) == 3


def test_approved_rows_that_are_no_options_leave_a_query_empty() -> None:
    # All that was approved has the key of the query itself.
    arm = load_plan("rules").arms[0]
    found = {
        place: made_cell(arm, place, figures_of(unique, valid=7))
        for place, unique in enumerate((0, 0, 3))
    }
    assert ArmSample(arm, (0, 1, 2), found).empty().ours == 2.0


@pytest.mark.parametrize("name", ["prompts", "rules"])
def test_arms_of_our_own_plans(name: str) -> None:
    plan = load_plan(name).cut(queries=2)
    (table,) = build(name, cells_of(plan, lambda arm, place: figures_of(3)), queries=2)
    assert len(table.lines) == len(plan.arms)
    assert not table.has_paper
    assert {line.figures[1].ours for line in table.lines} == {3.0}


def test_sizes_have_a_line_for_each_llm() -> None:
    plan = load_plan("llm-sizes").cut(queries=2, only=["loan"])
    llms = ("llamacpp:a", "llamacpp:b@x", LLM)

    def figures(arm: Arm, place: int) -> Figures:
        return figures_of(1)

    cells = cells_of(plan, figures, llms)
    (table,) = build("llm-sizes", cells, queries=2)
    of_mcts = [line.labels for line in table.lines if line.labels[:2] == ("Loan", "comp-mcts")]
    named = [labels[2] for labels in of_mcts]
    assert named == ["llamacpp:a", "llamacpp:b", "simulated:1 (simulated: no language model)"]
    assert table.about[0].startswith("LLM: llamacpp:a; llamacpp:b; simulated:1")
    (one,) = build("llm-sizes", cells, queries=2, llm="llamacpp:a")
    assert {line.labels[2] for line in one.lines if line.was_run} == {"llamacpp:a"}
