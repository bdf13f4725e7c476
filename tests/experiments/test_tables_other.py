from __future__ import annotations

import pytest

from bench_cells import LLM, Figures, cells_of, figures_of, made_cell
from waysout.experiments.arms import Arm
from waysout.experiments.cell import Cells
from waysout.experiments.plan import load_plan
from waysout.experiments.table import Figure, Table
from waysout.experiments.tables import build


def figure(table: Table, column: str, *labels: str) -> Figure:
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
def cost() -> list[Table]:
    return build("cost", cells_of(load_plan("cost"), timed))


def test_seconds_are_medians(cost: list[Table]) -> None:
    seconds = figure(cost[0], "seconds per query", "Loan", "compression")
    assert (seconds.ours, seconds.paper) == (22.0, 356.0)
    per_call = figure(cost[0], "seconds per call", "Loan", "compression")
    assert per_call.ours == pytest.approx(22 / 30)
    assert per_call.paper == "10.5-14.5"
    assert figure(cost[0], "LLM share %", "Loan", "compression").ours == pytest.approx(50.0)
    assert figure(cost[0], "seconds per query", "Adult", "compression").paper == "316-434"
    assert figure(cost[0], "seconds per query", "Loan", "none").paper == 350.0
    assert figure(cost[0], "seconds per query", "Adult", "none").paper is None
    assert figure(cost[0], "n", "HELOC", "none").ours == "not run"


def test_replies_from_a_file_tell_no_times(cost: list[Table]) -> None:
    assert figure(cost[0], "n", "Loan", "LATS K=1").ours == "20 of 30"
    seconds = figure(cost[0], "seconds per query", "Loan", "LATS K=1")
    assert (seconds.ours, seconds.paper) == (9.0, "72-100")


def test_pruning_against_none(cost: list[Table]) -> None:
    ratio = figure(cost[1], "ratio", "Loan")
    assert ratio.ours == pytest.approx(1.1)
    assert ratio.paper == pytest.approx(356 / 350)
    assert figure(cost[1], "ratio", "Adult").ours == pytest.approx(1.1)
    assert figure(cost[1], "ratio", "Adult").paper is None
    assert figure(cost[1], "n", "Loan").ours == 30.0
    assert figure(cost[1], "n", "HELOC").ours == "not run"
    assert figure(cost[1], "ratio", "HELOC").ours is None


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
            made_cell(random, 0, figures_of(2), found=((0, 1), (0, 76))),
        ]
    )
    calls, rows = build("yields", cells, queries=3)
    mcts_line, random_line = ("Loan", "comp-mcts"), ("Loan", "random")
    at = [figure(calls, column, *mcts_line).ours for column in calls.columns]
    assert at == ["2 of 3", 0.5, 1.0, 1.5, 1.0]
    assert [figure(rows, f"{n} rows", *mcts_line).ours for n in (30, 75, 150)] == [0.5, 1.0, 1.5]
    assert [figure(rows, f"{n} rows", *random_line).ours for n in (30, 75, 150)] == [1, 1, 2]
    assert not any(line.labels == random_line for line in calls.lines)


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
    assert {line.labels[2] for line in one.lines} == {"llamacpp:a"}
