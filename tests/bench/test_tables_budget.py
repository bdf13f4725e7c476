from __future__ import annotations

import math
from pathlib import Path

import pytest
from bench_cells import LLM, cells_of, figures_of, made_cell

from waysout.bench.arms import Arm, ExperimentPlan
from waysout.bench.cell import Cell, Cells
from waysout.bench.plan import load_plan
from waysout.bench.table import Figure, ResultTable, TableLine
from waysout.bench.tables import TABLES, build
from waysout.bench.tables_base import llm_words, short
from waysout.errors import InputError

FOUR = """
title = "four queries"
datasets = ["loan"]
queries = 4
reading = "settled"
style = { template = "paper", constrain = false, strict = false }
[[arms]]
name = "Comp-MCTS"
method = "comp-mcts"
settings = { pruning = "gzip", scope = "window", threshold = 0.001, reward = "balanced" }
[[arms]]
name = "Comp-MCTS, no pruning"
method = "comp-mcts"
settings = { pruning = "none", reward = "balanced" }
[[arms]]
name = "mine"
method = "recombine"
[[arms]]
name = "random"
method = "random"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "four.toml"
    path.write_text(FOUR)
    return path


@pytest.fixture
def plan(file: Path) -> ExperimentPlan:
    return load_plan(str(file))


def some_cells(plan: ExperimentPlan) -> Cells:
    """Comp-MCTS finds 1 2 3 4, without pruning 3 4 6 7, recombine only two of four; random none."""
    unique = {"Comp-MCTS": [1, 2, 3, 4], "Comp-MCTS, no pruning": [3, 4, 6, 7], "mine": [0, 9]}

    def figures(arm: Arm, place: int) -> dict[str, float | int | None] | None:
        found = unique.get(arm.name, [])
        return figures_of(found[place], proximity=0.5 if found[place] else None) \
            if place < len(found) else None  # fmt: skip

    return cells_of(plan, figures)


def line(table: ResultTable, *labels: str) -> TableLine:
    return next(line for line in table.lines if line.labels == labels)


def figure(table: ResultTable, column: str, *labels: str) -> Figure:
    return line(table, *labels).figures[table.columns.index(column)]


def test_every_table_has_a_plan_that_loads() -> None:
    for name, entry in TABLES.items():
        assert load_plan(entry.plan).arms, name


def test_means_and_the_papers_beside_them(plan: ExperimentPlan, file: Path) -> None:
    means, _ = build("llm-budget", some_cells(plan), plan=str(file))
    assert figure(means, "n", "Loan", "Comp-MCTS").ours == 4.0
    found = figure(means, "unique valid", "Loan", "Comp-MCTS")
    assert (found.ours, found.paper) == (2.5, 24.07)
    assert figure(means, "proximity", "Loan", "Comp-MCTS").paper == 0.658
    assert figure(means, "oracle rows", "Loan", "Comp-MCTS").paper == 149.6
    assert figure(means, "calls", "Loan", "Comp-MCTS") == Figure(30.0, None, 1)
    # The paper has no pruning in another table.
    assert figure(means, "unique valid", "Loan", "Comp-MCTS, no pruning").paper == 23.77
    assert not line(means, "Loan", "mine").has_paper
    assert not any("Other settings" in note for note in means.notes)


def test_what_is_only_called_as_the_papers_stands_without_its_figures(file: Path) -> None:
    """The name is anybody's; the searches tell whether an arm is the paper's."""
    file.write_text(FOUR.replace("threshold = 0.001", "threshold = 0.5"))
    means, _ = build("llm-budget", some_cells(load_plan(str(file))), plan=str(file))
    assert not line(means, "Loan", "Comp-MCTS").has_paper
    assert line(means, "Loan", "Comp-MCTS, no pruning").has_paper
    (note,) = [note for note in means.notes if note.startswith("Other settings")]
    assert note.endswith("whose figures are left out: Loan, Comp-MCTS.")


def test_a_plan_like_the_papers_with_fewer_calls_has_none_of_its_figures(file: Path) -> None:
    file.write_text('like = "llm-budget"\ntitle = "fewer"\ncalls = 10\nqueries = 1\n')
    cells = cells_of(load_plan(str(file)))
    means, _ = build("llm-budget", cells, plan=str(file))
    assert not means.has_paper
    (note,) = [note for note in means.notes if note.startswith("Other settings")]
    assert note.endswith("Loan, Comp-MCTS, embedding pruning; 33 more.")
    file.write_text('like = "llm-budget"\ntitle = "the same"\ndatasets = ["loan"]\nqueries = 1\n')
    means, _ = build("llm-budget", cells_of(load_plan(str(file))), plan=str(file))
    assert figure(means, "unique valid", "Loan", "Comp-MCTS").paper == 24.07
    assert means.notes == ()


def test_an_arm_with_the_papers_settings_is_the_papers_under_any_name(file: Path) -> None:
    file.write_text(FOUR.replace('"Comp-MCTS, no pruning"', '"plain"'))
    means, _ = build("llm-budget", cells_of(load_plan(str(file))), plan=str(file))
    assert figure(means, "unique valid", "Loan", "plain").paper == 23.77


def test_searches_that_are_missing_are_said(plan: ExperimentPlan, file: Path) -> None:
    means, pairs = build("llm-budget", some_cells(plan), plan=str(file))
    assert figure(means, "n", "Loan", "mine").ours == "2 of 4"
    assert figure(means, "unique valid", "Loan", "mine").ours == 4.5  # with the empty one
    assert figure(means, "proximity", "Loan", "mine").ours == 0.5  # without it
    assert figure(means, "empty", "Loan", "mine").ours == 1.0
    assert any("fewer searches" in note for note in means.notes)
    nothing = line(means, "Loan", "random")
    assert nothing.figures[0].ours == "not run"
    assert all(figure.ours is None for figure in nothing.figures[1:])
    assert figure(pairs, "n", "Loan", "mine", "unique valid").ours == "2 (2/4 run)"
    assert figure(pairs, "n", "Loan", "mine", "proximity").ours == "1 (2/4 run)"
    # One line for all metrics of a pair that was not run.
    assert figure(pairs, "n", "Loan", "random", "").ours == "not run"
    assert sum(line.labels[1] == "random" for line in pairs.lines) == 1
    assert sum(line.labels[1] == "mine" for line in pairs.lines) == 5


def test_data_sets_that_were_not_run_share_a_line() -> None:
    cells = cells_of(load_plan("llm-budget").cut(queries=2, only=["adult/Comp-MCTS*"]))
    means, pairs = build("llm-budget", cells)
    for table in (means, pairs):
        *_, last = table.lines
        assert (last.labels[0], {*last.labels[1:]}) == ("Loan, Credit, HELOC", {""})
        assert (last.figures[0].ours, last.has_paper, last.runs) == ("not run", False, "")
        assert {line.labels[0] for line in table.lines[:-1]} == {"Adult"}
    assert figure(means, "n", "Adult", "recombine").ours == "not run"
    assert figure(means, "unique valid", "Adult", "LATS standard, K=5").paper is not None


def test_pairs_are_worked_out(plan: ExperimentPlan, file: Path) -> None:
    _, pairs = build("llm-budget", some_cells(plan), plan=str(file))
    labels = ("Loan", "Comp-MCTS, no pruning", "unique valid")
    # The differences 2, 2, 3, 3 are worked out by hand in test_stats.py.
    values = [figure(pairs, c, *labels).ours for c in ("n", "A", "B", "Δ", "low", "high")]
    assert values == [4.0, 2.5, 5.0, 2.5, 2.0, 3.0]
    assert figure(pairs, "t", *labels).ours == pytest.approx(5 * math.sqrt(3))
    same = figure(pairs, "t", "Loan", "Comp-MCTS, no pruning", "oracle rows")
    assert same.ours == "n/a"
    assert any("the same difference" in note for note in pairs.notes)
    assert not any(line.labels[1] == "Comp-MCTS" for line in pairs.lines)


def test_lines_name_the_arms_they_come_from(plan: ExperimentPlan, file: Path) -> None:
    means, pairs = build("llm-budget", some_cells(plan), plan=str(file))
    ids = {arm.name: arm.id for arm in plan.arms}
    assert line(means, "Loan", "mine").runs == ids["mine"]
    labels = ("Loan", "Comp-MCTS, no pruning", "novelty")
    assert line(pairs, *labels).runs == f"{ids['Comp-MCTS']} {ids['Comp-MCTS, no pruning']}"


def test_the_header_says_what_was_measured(plan: ExperimentPlan, file: Path) -> None:
    means, _ = build("llm-budget", some_cells(plan), plan=str(file), places=["a b", "c"])
    told = "\n".join(means.about)
    assert "simulated:1 (simulated: no language model)" in told
    assert "loan d9d321753cfa, accuracy 0.984 (optimistic)" in told
    assert "first 4 stored queries" in told
    assert "commit abcdef012345 (10 searches)" in told
    assert "Gemma-3-12B" in told
    assert means.command == (
        f"waysout bench table llm-budget --results 'a b' --results c --plan {file}"
    )


def test_an_unknown_oracle_has_no_accuracy(plan: ExperimentPlan, file: Path) -> None:
    cells = Cells(
        [made_cell(arm, 0, figures_of(1), oracle="f" * 64, commit="") for arm in plan.arms]
    )
    about = build("llm-budget", cells, plan=str(file))[0].about
    assert "Oracles (LightGBM): loan ffffffffffff" in about
    assert "Code: waysout 0.1 commit unknown (4 searches)" in about


def test_fewer_queries_can_be_asked_for(plan: ExperimentPlan, file: Path) -> None:
    means, _ = build("llm-budget", some_cells(plan), plan=str(file), queries=2)
    assert figure(means, "unique valid", "Loan", "Comp-MCTS").ours == 1.5
    assert figure(means, "n", "Loan", "mine").ours == 2.0
    assert means.command.endswith(f"--queries 2 --plan {file}")


def test_several_llms_must_be_told_apart(plan: ExperimentPlan, file: Path) -> None:
    def figures(arm: Arm, place: int) -> dict[str, float | int | None]:
        return figures_of(1)

    cells = cells_of(plan, figures, llms=[LLM, "openai:big@http://localhost"])
    with pytest.raises(InputError, match=r"  openai:big@http://localhost\n.*simulated:1"):
        build("llm-budget", cells, plan=str(file))
    with pytest.raises(InputError, match=r"did you mean 'simulated:1'"):
        build("llm-budget", cells, plan=str(file), llm="simulated:2")
    means, _ = build("llm-budget", cells, plan=str(file), llm=LLM)
    assert "openai" not in means.about[0]


def test_nothing_there_says_what_to_run(plan: ExperimentPlan, file: Path) -> None:
    with pytest.raises(InputError, match="waysout bench run llm-budget"):
        build("llm-budget", Cells())
    places = ["old.jsonl.gz", "my results"]
    with pytest.raises(InputError, match=r"waysout bench run \S*four.toml --results 'my results'"):
        build("llm-budget", Cells(), plan=str(file), llm=LLM, places=places)
    with pytest.raises(InputError, match="did you mean 'llm-budget'"):
        build("lm-budget", Cells())


def test_words_of_llms_and_commits() -> None:
    assert llm_words("openai:gemma@http://host:1") == "openai:gemma"
    assert short("abcdef01234567+changes") == "abcdef012345+changes"


# Oracle budgets --------------------------------------------------------------------------------


def of_plan(name: str, *names: str, queries: int = 30) -> list[Cell]:
    plan = load_plan(name).cut(queries=queries, only=["loan/*"])
    return [cell for cell in cells_of(plan, lambda arm, place: figures_of(2))
            if cell.arm in {arm.id for arm in plan.arms if arm.name in names}]  # fmt: skip


def test_oracle_budget_by_method_and_rows() -> None:
    cells = Cells(of_plan("oracle-budget", "growing-spheres rows=1000", "random rows=150"))
    (table,) = build("oracle-budget", cells)
    found = figure(table, "unique valid", "Loan", "growing-spheres", "1,000")
    assert (found.ours, found.paper) == (2.0, 3.23)
    assert figure(table, "n", "Loan", "certifai", "150").ours == "not run"
    assert figure(table, "unique valid", "Loan", "certifai", "150").paper == 1.0
    assert not line(table, "Loan", "random", "150").has_paper
    assert "LLM: none is asked" in table.about


def test_as_published_the_papers_figures_and_our_stronger_ones_side_by_side() -> None:
    plan = load_plan("oracle-budget-published").cut(only=["loan/dice*"])
    cells = [*cells_of(plan, lambda arm, place: figures_of(arm.rows // 2500)),
             *of_plan("oracle-budget", "dice rows=150")]  # fmt: skip
    (table,) = build("oracle-budget-published", Cells(cells))

    def told(column: str, rows: str) -> tuple[object, object]:
        found = figure(table, column, "Loan", "dice", rows)
        return found.ours, found.paper

    assert told("unique valid", "150") == (0.0, 0.0)
    assert told("unique valid, strong", "150") == (2.0, None)
    assert told("unique valid", "10,000") == (4.0, 3.10)
    assert told("proximity", "10,000") == (0.7, 0.701)
    assert told("n, strong", "10,000") == ("not run", None)
    assert told("empty", "150") == (30.0, None)
    assert len(line(table, "Loan", "dice", "150").runs.split()) == 2


def test_larger_budgets_are_listed_where_they_were_run() -> None:
    cells = of_plan("oracle-budget", "dice rows=150")
    (table,) = build("oracle-budget", Cells(cells))
    assert not any(line.labels[2] == "10,000" for line in table.lines)
    assert any("waysout bench run oracle-budget-large" in note for note in table.notes)
    large = of_plan("oracle-budget-large", "dice rows=10000")
    (table,) = build("oracle-budget", Cells([*cells, *large]))
    assert figure(table, "unique valid", "Loan", "dice", "10,000").paper == 3.10
    # Next to the other lines of its data set.
    told = dict.fromkeys(line.labels[0] for line in table.lines)
    assert list(told) == ["Loan", "Adult, Credit, HELOC"]
    assert table.lines[-1].figures[0].ours == "not run"
