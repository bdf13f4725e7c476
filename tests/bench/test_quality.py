"""What is measured of ways, against values worked out by hand on a table of three columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_cells import made_cell
from bench_world import in_bench, plan, trained_cache  # noqa: F401

from waysout.bench.arms import Arm, ExperimentPlan
from waysout.bench.cell import Cell, Cells
from waysout.bench.lasting import NEIGHBOURS, Successors, nearest
from waysout.bench.plan import load_plan
from waysout.bench.quality import verdicts
from waysout.bench.results import Results
from waysout.bench.runner import run_plan
from waysout.bench.table import ResultTable
from waysout.bench.tables import build
from waysout.bench.tables_quality import parts_of, volume
from waysout.bench.yardsticks import Enumeration, grid_values
from waysout.datasets.queries import queries
from waysout.domain.card import Card
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.rules import Immutable
from waysout.domain.schema import Row
from waysout.errors import InputError

CARD = Card.parse(
    """
card = 1
name = "t"
[outcome]
target = "y"
positive = 1
[features.income]
kind = "integer"
range = [0, 100]
scale = 10
[features.debt]
kind = "integer"
range = [0, 100]
scale = 10
[features.job]
kind = "category"
levels = ["none", "some"]
codes = { none = 0, some = 1 }
"""
)
QUERY: Row = (20, 60, "none")


class Lender:
    """Approves an income of 50; one of 30, and no other below; or a job with a debt of 20."""

    name = "lender"
    labels_only = False

    def ask(self, rows: Sequence[Row]) -> Answers:
        yes = np.array([i >= 50 or i == 30 or (d <= 20 and j == "some") for i, d, j in rows])  # type: ignore[operator]
        return Answers(np.where(yes, 0.9, 0.1), yes)


PROBLEM = Problem.from_card(CARD, Lender())


def test_ways_are_judged_by_asking_again() -> None:
    rows: list[Row] = [
        (50, 60, "none"),  # just enough
        (70, 60, "none"),  # more than enough: 65 would do
        (30, 60, "none"),  # a pocket: 31 and 35 are a no
        (20, 20, "some"),  # both are needed
        (50, 20, "some"),  # the first alone would do
        (40, 60, "none"),  # a no
    ]
    found = verdicts(PROBLEM, QUERY, rows)
    flags = [(v.valid, v.irreducible, v.tight, v.holds, v.firm) for v in found]
    yes, no = True, False
    assert flags == [
        (yes, yes, yes, yes, yes),
        (yes, yes, no, yes, yes),
        (yes, yes, yes, no, no),
        (yes, yes, yes, yes, yes),
        (yes, no, no, yes, no),
        (no, no, no, no, no),
    ]
    # Half of the mean of the two scaled gaps, and half of the share of categories.
    assert [v.cost for v in found] == [0.75, 1.25, 0.25, 1.5, 2.25, 0.5]
    assert found[3].levers == {"debt", "job"}


def test_what_breaks_a_rule_is_no_way() -> None:
    ruled = PROBLEM.with_rules([Immutable(features=["income"])])
    (found,) = verdicts(ruled, QUERY, [(50, 60, "none")])
    assert not found.valid
    assert not found.firm
    assert verdicts(PROBLEM, QUERY, []) == []


TRAINING: list[Row] = [(i, d, "none") for i in range(0, 101, 5) for d in range(0, 101, 5)]


def test_an_enumeration_finds_the_two_ways_there_are() -> None:
    found = Enumeration(PROBLEM, QUERY, TRAINING, rows=10_000)
    ways = found.ways()
    assert [way.levers for way in ways] == [{"income"}, {"debt", "job"}]
    assert ways[0].cost == 0.75  # not the pocket, which is nearer
    assert ways[1].cost >= 1.5
    assert not found.cut
    assert found.asked < 10_000


def test_an_enumeration_says_that_it_was_cut_short() -> None:
    found = Enumeration(PROBLEM, QUERY, TRAINING, rows=10)
    assert found.ways() == []
    assert found.cut


def test_values_lie_on_both_sides_near_and_far() -> None:
    lever = PROBLEM.rules.levers(QUERY)["income"]
    found = grid_values(lever, [row[0] for row in TRAINING])
    assert {0, 5, 15, 25, 100} <= set(found)
    assert 20 not in found
    assert sum(isinstance(value, int) and value > 20 for value in found) >= 16
    assert grid_values(PROBLEM.rules.levers(QUERY)["job"], []) == ["some"]


class Always:
    """Stands for a booster or a tree that gives the same chance to everybody."""

    def __init__(self, chance: float) -> None:
        self.chance = chance
        self.tree_, self.estimators_ = self, [self]

    def predict(self, matrix: Any, **_: Any) -> Any:
        chance = np.full(len(matrix), self.chance)
        return np.column_stack([1 - chance, chance]) if self.trees else chance

    trees = False


class Tree(Always):
    trees = True


def test_lasting_is_the_share_of_models_that_approve() -> None:
    boosters, forests = [Always(0.4), Always(0.5), Always(0.9)], [Tree(0.9), Tree(0.2)]
    rows: list[Row] = [QUERY, (50, 60, "none")]
    for positive, share in ((1, 2 / 3), (0, 2 / 3)):  # 1 − 0.5 is a yes as well
        successors = Successors(CARD.schema, positive, boosters, forests)
        again, trees = successors.shares(rows)
        assert again == pytest.approx([share, share])
        assert trees == [0.5, 0.5]
    assert successors.shares([]) == ([], [])


def test_the_nearest_rows_are_by_the_problems_distance() -> None:
    rows: list[Row] = [(20 + i, 60, "none") for i in (9, 1, 8, 2, 7, 3, 6)]
    encoded = CARD.schema.encode([QUERY, *rows])
    found = nearest(PROBLEM.distance, encoded[0], encoded[1:])
    assert found.tolist() == [1, 3, 5, 6, 4]
    assert len(found) == NEIGHBOURS


# Tables ------------------------------------------------------------------------------------------

SMALL = """
title = "Small"
kind = "quality"
datasets = ["synthetic"]
query_sets = ["stored", "others"]
queries = 60
calls = 0
rules = "realistic"
"""
ARMS = """
[[arms]]
name = "wayfinder"
method = "random"
grid = { rows = [150, 1000] }

[[arms]]
name = "peer"
method = "nearest"
grid = { rows = [150, 1000], polish = [0.0, 0.33] }
"""


@pytest.fixture
def small(tmp_path: Path) -> ExperimentPlan:
    return plan(tmp_path, ARMS, head=SMALL)


def shown(*points: tuple[float, float, float]) -> dict[str, list[float]]:
    names = ("shown_cost", "shown_lasts", "shown_ynn")
    return {name: [point[i] for point in points] for i, name in enumerate(names)}


def cell(arm: Arm, query: int, firm: float | None = 0.2, sets: int = 3, **more: float) -> Cell:
    figures = {
        "ways": 4, "firm_sets": sets, "cheapest": 0.15, "cheapest_firm": firm, "shown": 5,
        "enumerated_whole": 1, "least_proved": 1, "least_cost": 0.1, "reference_cost": 0.4,
        "shown_real": 0.57, "processor_ms": 80.0, "rows": 150, **more,
    }  # fmt: skip
    # So many sets of one lever each, and one of two levers that costs too much to be a way.
    singles = {
        "way_levers": [*(2.0**place for place in range(sets)), 3.0],
        "way_cost": [0.5] * (sets + 1),
        "way_firm": [1.0] * (sets + 1),
    }
    columns = {**shown((0.2, 1.0, 0.4)), **singles}
    return made_cell(arm, 0, figures, query=query, columns=columns)


def test_the_volume_of_what_is_shown(small: ExperimentPlan) -> None:
    arm = small.arms[0]

    def of(*points: tuple[float, float, float]) -> float:
        return volume(made_cell(arm, 0, {"reference_cost": 0.4}, columns=shown(*points)))

    # (1 − 0.2/0.4) × (1 + 0.1) × (0.4 + 0.1), of 1.1².
    assert of((0.2, 1.0, 0.4)) == pytest.approx(0.5 * 1.1 * 0.5 / 1.21)
    # Another one that is cheaper and does not last adds what the first does not dominate.
    both = of((0.2, 1.0, 0.4), (0.1, 0.5, 0.4))
    assert both == pytest.approx((0.5 * 1.1 * 0.5 + 0.25 * 0.6 * 0.5) / 1.21)
    assert of((0.5, 1.0, 1.0)) == 0.0  # dearer than becoming someone who was approved
    assert of() == 0.0


def test_queries_are_split_into_those_chosen_on_and_those_reported(small: ExperimentPlan) -> None:
    stored, others = queries("synthetic"), queries("synthetic", "others")
    assert small.arms[0].query_rows == (*stored, *others)
    assert not set(stored) & set(others)
    assert parts_of("synthetic", [stored[0], stored[15], others[3]]) == {
        "chosen on": [stored[0]], "other half": [stored[15]], "other rows": [others[3]],
    }  # fmt: skip


def figure(table: ResultTable, column: str, *labels: str) -> Any:
    line = next(line for line in table.lines if line.labels == labels)
    return line.figures[table.columns.index(column)].ours


def test_a_table_compares_with_the_best_that_anybody_found(
    small: ExperimentPlan, tmp_path: Path
) -> None:
    first = queries("synthetic")[:2]
    arms = {arm.name: arm for arm in small.arms}
    cells = Cells(
        [
            cell(arms["wayfinder rows=150"], first[0], 0.2),
            cell(arms["wayfinder rows=150"], first[1], None, ways=0, shown=0),
            cell(arms["peer rows=150 polish=0.0"], first[0], 0.3, sets=5),
            cell(arms["peer rows=150 polish=0.33"], first[0], 0.25),
            cell(arms["peer rows=1000 polish=0.0"], first[0], 0.16),
            cell(arms["wayfinder rows=1000"], first[1], 0.5),
        ]
    )
    tables = build("quality", cells, plan=str(tmp_path / "small.toml"))
    assert [table.name for table in tables] == [
        "quality-targets", "quality-synthetic-realistic-chosen-on",
        "quality-paired-synthetic-realistic-chosen-on",
    ]  # fmt: skip
    _, table, paired = tables
    assert figure(table, "÷ known", "150", "wayfinder") == "none"  # 0.2 / 0.16, and nothing
    assert figure(table, "÷ known", "150", "peer, finished") == pytest.approx(0.25 / 0.16)
    assert figure(table, "÷ proved", "150", "peer") == pytest.approx(1.5)
    assert figure(table, "five %", "150", "wayfinder") == 100.0  # the peer found five of the first
    assert figure(table, "empty", "150", "wayfinder") == 1.0
    assert figure(table, "ms", "150", "peer") == 80.0
    assert any("Five ways are known for 1;" in note for note in table.notes)
    assert figure(paired, "n", "150", "peer, finished") == 1.0
    assert figure(paired, "beats", "150", "peer") == "no"


@pytest.mark.parametrize(
    ("cost", "sets", "verdict"),
    [(0.1, 3, "cost"), (0.3, 9, "sets"), (0.3, 2, "no"), (0.2, 3, "no")],
)
def test_a_peer_beats_ours_where_the_interval_says_so(
    small: ExperimentPlan, tmp_path: Path, cost: float, sets: int, verdict: str
) -> None:
    ours, peer = (next(a for a in small.arms if a.name.startswith(n)) for n in ("way", "peer"))
    some = queries("synthetic")[15:] + queries("synthetic", "others")[:5]
    cells = [cell(ours, query, 0.2 + 0.001 * (i % 3)) for i, query in enumerate(some)]
    cells += [cell(peer, query, cost + 0.001 * (i % 2), sets) for i, query in enumerate(some)]
    if cost == 0.2:
        cells = [cell(arm, query) for arm in (ours, peer) for query in some]
    *_, paired = build("quality", Cells(cells), plan=str(tmp_path / "small.toml"))
    assert paired.name == "quality-paired-synthetic-realistic-reported"
    assert figure(paired, "n", "150", "peer") == 20.0
    assert figure(paired, "beats", "150", "peer") == verdict


def test_targets_that_are_missed_are_marked(small: ExperimentPlan, tmp_path: Path) -> None:
    first = queries("synthetic")[:5]
    arms = {arm.name: arm for arm in small.arms}
    five = {"shown_irreducible": 5, "shown_hold": 4, "shown_tight": 4.5, "shown_lasts": 0.5}
    cells = [cell(arms["wayfinder rows=150"], query, 0.21, 5, **five) for query in first]
    cells += [cell(arms["wayfinder rows=1000"], query, 0.2) for query in first]
    cells += [cell(arms["peer rows=1000 polish=0.0"], query, 0.3, 4) for query in first]
    targets, *_ = build("quality", Cells(cells), plan=str(tmp_path / "small.toml"))
    (line,) = targets.lines
    assert line.labels == ("synthetic", "realistic", "chosen on")
    assert [figure.ours for figure in line.figures] == [
        "5 of 15", "100", "80*", "90", "100", "1.05", "1.00", "0.50*", 0.57, 80.0, "1*",
    ]  # fmt: skip
    beaten = "synthetic, realistic, chosen on: beaten by peer at 1,000 (sets)."
    assert beaten in targets.notes


# Plans -------------------------------------------------------------------------------------------


def test_rows_are_set_aside_as_a_share(small: ExperimentPlan) -> None:
    aside = {arm.name: arm.polish for arm in small.arms}
    assert aside["peer rows=150 polish=0.33"] == 50
    assert aside["peer rows=1000 polish=0.33"] == 330
    plain, finished = small.arms[2], small.arms[3]
    assert "polish" not in plain.spec
    assert finished.spec["polish"] == 50
    assert plain.id != finished.id


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("polish = 1", "polish is the share of the rows"),
        ("polish = true", "polish is the share of the rows"),
        ('query_sets = ["other"]', "unknown query set 'other'; did you mean 'others'"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said(tmp_path: Path, said: str, wrong: str) -> None:
    head = SMALL.replace('query_sets = ["stored", "others"]\n', "").replace("60", "30")
    with pytest.raises(InputError, match=wrong):
        plan(tmp_path, ARMS, head=f"{head}{said}\n")


def test_a_grid_leaves_out_rules_that_a_table_does_not_have() -> None:
    rules = {data: {arm.rules for arm in load_plan("quality").arms if arm.data == data}
             for data in ("loan", "synthetic")}  # fmt: skip
    assert rules == {"loan": {"paper", "realistic"}, "synthetic": {"realistic"}}


# One search from beginning to end ----------------------------------------------------------------


@pytest.fixture
def results(in_bench: Path) -> Iterator[Results]:  # noqa: F811
    with Results.open(in_bench / "results") as opened:
        yield opened


@pytest.mark.slow
def test_a_search_is_judged_and_its_yardsticks_are_kept(
    results: Results,
    tmp_path: Path,
    trained_cache: Path,  # noqa: F811
) -> None:
    pytest.importorskip("treecf")
    pytest.importorskip("skops")
    arms = '[[arms]]\nname = "random"\nmethod = "random"\ngrid = { rows = [40, 60] }\n'
    made = plan(tmp_path, arms, head=SMALL.replace("queries = 60", "queries = 1"))
    ended = run_plan(made, results, jobs=1)
    assert [failure.reason for failure in ended.failures] == []
    for one in results.cells():
        costs, firm = one.columns["way_cost"], one.columns["way_firm"]
        assert one.metrics["ways"] == len(costs) == len(set(one.columns["way_levers"]))
        assert one.metrics["firm_sets"] == sum(map(int, firm))  # type: ignore[arg-type]
        least = one.value("least_cost")
        assert least is not None
        assert min(map(float, costs), default=least) >= least - 1e-9  # type: ignore[arg-type]
        assert all(0 <= share <= 1 for share in one.columns["shown_lasts"])  # type: ignore[operator]
        assert one.value("processor_ms")
    # Both arms of the query use the same.
    kept = [path.name.rpartition("-")[0] for path in (trained_cache / "bench").rglob("*.json")]
    assert sorted(kept) == ["least-20", "ways-100000"]
