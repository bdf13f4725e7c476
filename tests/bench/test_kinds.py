"""Kinds of plans: what they measure besides the search, on the synthetic data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_world import HEAD, LIBRARY, in_bench, plan, trained_cache  # noqa: F401
from run_world import Watched

from waysout.bench.cell import Cell
from waysout.bench.irreducible import irreducible
from waysout.bench.measure import environment
from waysout.bench.plan import ExperimentPlan, load_plan
from waysout.bench.results import Results
from waysout.bench.runner import run_plan
from waysout.bench.tables import build
from waysout.datasets.queries import queries
from waysout.errors import InputError
from waysout.run.find import find

ROWS = HEAD.replace("calls = 4", "calls = 0\nrows = 40").replace("queries = 3", "queries = 2")


@pytest.fixture
def results(in_bench: Path) -> Iterator[Results]:  # noqa: F811
    with Results.open(in_bench / "results") as opened:
        yield opened


def of_kind(folder: Path, kind: str, *parts: str, head: str = ROWS) -> ExperimentPlan:
    return plan(folder, LIBRARY, *parts, head=f'{head}kind = "{kind}"\n', name=kind)


def cells_of(made: ExperimentPlan, results: Results) -> list[Cell]:
    ended = run_plan(made, results, jobs=1)
    assert [failure.reason for failure in ended.failures] == []
    assert run_plan(made, results, jobs=1).to_do == 0  # all of it is on file
    return list(results.cells())


def test_every_option_is_measured(results: Results, tmp_path: Path) -> None:
    made = of_kind(tmp_path, "options")
    for cell in cells_of(made, results):
        place = environment("synthetic")
        problem, query = place.problem("realistic"), place.data.rows[cell.query]
        found = find(
            problem, query, method="recombine", calls=0, oracle_rows=40, data=place.data, k=2
        )
        rows = [problem.row(option.row) for option in found.options]
        assert cell.metrics["irreducible"] == sum(irreducible(problem, query, rows))
        assert list(cell.columns["proximity"]) == [option.proximity for option in found.options]
        assert len(cell.columns["plausibility"]) == cell.metrics["unique_valid"] == len(cell.found)
        assert len(cell.columns["shortlist_novelty"]) == len(found.pick(10))
        assert Cell.from_json(cell.to_json()).columns == cell.columns
    short, means = build("methods", results.cells(), plan=str(tmp_path / "options.toml"))
    assert [line.labels for line in short.lines] == [("library",)]
    assert means.lines[0].figures[0].ours == 2.0


@pytest.mark.slow
def test_options_are_checked_once_more(results: Results, tmp_path: Path) -> None:
    for cell in cells_of(of_kind(tmp_path, "checked"), results):
        assert (cell.metrics["violations"], cell.metrics["refused"]) == (0, 0)
    (table,) = build("baselines", results.cells(), plan=str(tmp_path / "checked.toml"))
    assert table.lines[0].figures[table.columns.index("broken")].ours == 0.0


@pytest.mark.slow
def test_the_cheapest_option_is_compared_with_a_proof(results: Results, tmp_path: Path) -> None:
    pytest.importorskip("treecf")
    for cell in cells_of(of_kind(tmp_path, "optimum"), results):
        least, cost = cell.value("least_cost"), cell.value("cost")
        assert least is not None
        assert cost is None or cost >= least - 1e-9
    proofs, gaps = build("optimum", results.cells(), plan=str(tmp_path / "optimum.toml"))
    assert proofs.lines[0].figures[0].ours == 2.0
    assert gaps.lines[0].labels == ("synthetic", "library")


@pytest.mark.slow
def test_ways_out_are_enumerated(results: Results, tmp_path: Path) -> None:
    made = of_kind(tmp_path, "limits", head=ROWS + "kind_settings = { levers = 2 }\n")
    for cell in cells_of(made, results):
        figures = cell.metrics
        assert figures["combinations"] >= figures["possible"] >= figures["ways_out"]  # type: ignore[operator]
        assert figures["ways_out"] >= figures["among_ways"] >= figures["among_irreducible"]  # type: ignore[operator]
    (table,) = build("limits", results.cells(), plan=str(tmp_path / "limits.toml"))
    assert sorted(line.labels for line in table.lines) == [("synthetic", "0"), ("synthetic", "1")]


@pytest.mark.slow
def test_after_a_lock_what_is_known_helps(results: Results, tmp_path: Path) -> None:
    for cell in cells_of(of_kind(tmp_path, "going-on"), results):
        figures = cell.metrics
        assert figures["going_on"] >= figures["kept"] >= 0  # type: ignore[operator]
        assert {"anew", "with_lock"} <= figures.keys()
    (table,) = build("going-on", results.cells(), plan=str(tmp_path / "going-on.toml"))
    assert table.columns == ("n", "kept", "going on", "half anew", "all with the lock")


SHARED = """
rows = 40
rows_of = { synthetic = ROWS }

[[arms]]
name = "throughout"
method = "recombine"
grid = { own_edits = [false] }

[[arms]]
name = "2 pilots"
method = "recombine"
settings = { ask = "stuck" }
kind_settings = { pilots = 2 }
grid = { own_edits = [false] }
"""


@pytest.mark.parametrize("real", [True, False])
def test_a_library_is_shared_with_all_people(results: Results, tmp_path: Path, real: bool) -> None:
    listed = SHARED.replace("ROWS", str(queries("synthetic")[:3]))
    made = plan(tmp_path, listed, head=f'{HEAD}kind = "shared"\n', name="shared")
    llm = Watched() if real else "simulated:7"
    ended = run_plan(made, results, llms=[llm], jobs=1)
    assert [failure.reason for failure in ended.failures] == []
    base, pilots = (results.cells().of(arm, "simulated:7") for arm in made.arms)
    assert sum(cell.metrics["pilot"] or 0 for cell in pilots.values()) == 2
    assert all(cell.metrics["pilot_calls"] == 0 for cell in base.values())
    for query, cell in pilots.items():
        assert cell.metrics["pilot_calls"] > 0  # type: ignore[operator]
        assert cell.metrics["named"] in (None, 1.0)
        assert (cell.value("calls") or 0) <= (base[query].value("calls") or 0)
    cut = made.cut(queries=1).arms
    assert [arm.id for arm in cut] == [arm.id for arm in made.arms]
    levels, paired = build("shared", results.cells(), plan=str(tmp_path / "shared.toml"))
    assert [line.labels[1] for line in levels.lines] == ["throughout", "2 pilots"]
    assert [line.figures[0].ours for line in paired.lines] == [1.0]


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ('kind = "optimal"', "unknown kind 'optimal'; did you mean 'optimum'"),
        ('kind = "limits"\nkind_settings = { lever = 2 }', "unknown setting 'lever'"),
        (
            'kind = "limits"\nkind_settings = { levers = -1 }',
            "levers must be a number of at least 0",
        ),
        ("rows_of = { synthetic = [1, 1] }", "must be a list of distinct row numbers"),
        ("rows_of = { synthetic = [1] }", "3 queries requested, but only 1 stored"),
    ],
)
def test_what_is_wrong_with_a_kind_is_said(tmp_path: Path, said: str, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        plan(tmp_path, LIBRARY, head=f"{HEAD}{said}\n")


def test_rows_that_a_plan_lists_are_its_queries(tmp_path: Path) -> None:
    made = plan(tmp_path, LIBRARY, head=f"{HEAD}rows_of = {{ synthetic = [7, 3, 5, 1] }}\n")
    assert made.arms[0].query_rows == (7, 3, 5)
    assert made.cut(queries=1).arms[0].query_rows == (7,)
    assert len(set(load_plan("shared").arms[0].query_rows)) == 300
