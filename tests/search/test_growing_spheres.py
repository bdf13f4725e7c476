from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from baseline_cases import QUERY, SCHEMA, Yes, make_case, row, run
from hypothesis import given
from hypothesis import strategies as st

from waysout import check_method
from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import Immutable, Linear
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import InputError
from waysout.search import base
from waysout.search.base import Case
from waysout.search.growing_spheres import GrowingSpheres, Rings, _Hit, _SpheresSearch, ring
from waysout.search.work import Evaluate

TWO = Schema((Feature("job", "category", levels=("cook", "clerk")), Feature("own", "boolean")))


class Judge:
    """Approves what a function of the row approves, and says no more than that."""

    name = "judge"
    labels_only = True

    def __init__(self, approves: Callable[[Row], bool]) -> None:
        self.approves = approves
        self.batches: list[int] = []

    def ask(self, rows: Sequence[Row]) -> Answers:
        self.batches.append(len(rows))
        decision = np.array([self.approves(row) for row in rows], dtype=np.bool_)
        return Answers(decision.astype(np.float64), decision)


def judged(case: Case, approves: Callable[[Row], bool]) -> Case:
    return replace(case, problem=replace(case.problem, oracle=Judge(approves)))


def rich_clerk(row: Row) -> bool:
    return float(row[0] or 0) >= 40 and row[3] == "clerk"


# Rings -----------------------------------------------------------------------------------------


@given(
    st.integers(1, 40), st.floats(0, 5), st.floats(0.01, 5), st.integers(0, 9)
)  # fmt: skip
def test_points_lie_between_the_radii(width: int, inner: float, wide: float, seed: int) -> None:
    points = ring(20, width, inner, inner + wide, np.random.default_rng(seed))
    radii = np.sqrt(np.mean(points**2, axis=1))
    assert points.shape == (20, width)
    assert np.all(radii >= inner - 1e-9)
    assert np.all(radii <= inner + wide + 1e-9)


def test_points_are_spread_evenly_over_a_ring() -> None:
    points = ring(4000, 2, 1.0, 3.0, np.random.default_rng(0))
    squares = np.mean(points**2, axis=1)  # in a plane, areas go with the square of the radius
    assert np.quantile(squares, [0.25, 0.5, 0.75]) == pytest.approx([3, 5, 7], abs=0.2)
    assert np.mean(points, axis=0) == pytest.approx([0, 0], abs=0.1)


def walk(rings: Rings, approved: Sequence[bool]) -> list[tuple[float, float]]:
    found = []
    for yes in approved:
        rings.next(yes)
        found.append((rings.inner, rings.outer))
    return found


def test_the_ball_shrinks_while_it_holds_a_yes_then_rings_grow() -> None:
    rings = Rings(1.0, 2.0, reach=8.0)
    assert (rings.inner, rings.outer) == (0.0, 1.0)
    assert walk(rings, [True, True, False, False]) == [(0, 0.5), (0, 0.25), (0.25, 0.5), (0.5, 1)]


def test_past_the_first_yes_they_start_there_again_and_go_farther_each_time() -> None:
    rings = Rings(1.0, 2.0, reach=100.0)
    assert walk(rings, [False, False, True, True, True, True, True]) == [
        (1, 2), (2, 4), (2, 4), (4, 8), (2, 4), (4, 8), (8, 16),
    ]  # fmt: skip


def test_without_a_yes_they_start_over_past_the_farthest_value() -> None:
    rings = Rings(1.0, 2.0, reach=4.0)
    assert rings.count == 4
    assert walk(rings, [False] * 4) == [(1, 2), (2, 4), (4, 8), (0, 1)]


def test_fifteen_rings_reach_the_farthest_value_however_far() -> None:
    rings = Rings(1.0, 1.5, reach=1e9)
    walk(rings, [False] * 15)
    assert rings.outer == pytest.approx(1e9)
    walk(rings, [False] * (rings.count - 15))
    assert rings.inner == 0.0


def test_a_ring_that_holds_nothing_new_sends_farther_out() -> None:
    rings = Rings(1.0, 2.0, reach=100.0)
    walk(rings, [False, True])
    rings.widen()
    assert walk(rings, [False]) == [(2, 4)]


# The search ------------------------------------------------------------------------------------


def test_it_keeps_the_protocol() -> None:
    check_method(GrowingSpheres())


def test_the_same_seed_gives_the_same_rows() -> None:
    first = run(GrowingSpheres().start(make_case(rows=60)))
    assert run(GrowingSpheres().start(make_case(rows=60))) == first
    assert run(GrowingSpheres().start(make_case(rows=60, seed=1))) != first


def test_a_layer_is_a_twentieth_of_the_rows() -> None:
    case = judged(make_case(rows=200), lambda row: False)
    run(GrowingSpheres().start(case))
    assert isinstance(case.problem.oracle, Judge)
    assert case.problem.oracle.batches == [10] * 20


def test_rows_come_from_near_by_first() -> None:
    case = judged(make_case(rows=60), lambda row: False)
    asked = run(GrowingSpheres(layer=10, sparse=False).start(case))
    distances = [case.problem.distance(QUERY, row) for row in asked]
    means = [float(np.mean(distances[i : i + 10])) for i in range(0, 60, 10)]
    assert means == sorted(means)


def test_approved_rows_lose_all_they_do_not_need() -> None:
    case = judged(make_case(rules=[], rows=300), rich_clerk)
    search = GrowingSpheres(layer=10).start(case)
    run(search)
    moved = [case.problem.rules.moved(QUERY, row) for row in search.archive.unique_rows]
    assert moved.count(frozenset({"income", "job"})) >= 3
    assert all(levers >= {"income", "job"} for levers in moved)


def test_what_is_on_the_way_to_a_sparse_row_is_found_too() -> None:
    sparse, dense = (
        GrowingSpheres(layer=10, sparse=on).start(judged(make_case(rules=[]), rich_clerk))
        for on in (True, False)
    )
    run(sparse)
    run(dense)
    changes = sparse.case.problem.rules.count_changes
    assert {changes(QUERY, row) for row in sparse.archive.unique_rows} >= {2, 3, 4, 5}
    assert min(changes(QUERY, row) for row in dense.archive.unique_rows) > 2
    assert len(sparse.archive) > len(dense.archive)


def test_the_smallest_change_is_put_back_first() -> None:
    case = make_case(rules=[], rows=20)
    search = GrowingSpheres(layer=10).start(case)
    asked = run(search)
    first, trial = asked[0], asked[10]
    assert first[0] != QUERY[0]  # so it was approved
    gaps = {n: abs(float(first[i]) - float(QUERY[i])) / 10  # type: ignore[arg-type]
            for i, n in enumerate(SCHEMA.names[:3])}  # fmt: skip
    gaps |= {n: 1.0 for n in SCHEMA.changed(QUERY, first) if n not in gaps and n != "years"}
    gaps["years"] = abs(float(first[5] or 0) - 9) / 10
    gaps = {n: gap for n, gap in gaps.items() if gap}
    assert SCHEMA.changed(first, trial) == (min(gaps, key=gaps.__getitem__),)


def test_a_row_on_the_way_of_two_is_asked_once_and_tells_both() -> None:
    case = judged(make_case(rules=[]), lambda row: row[3] == "clerk")
    search = GrowingSpheres(layer=10).start(case)
    assert isinstance(search, _SpheresSearch)
    clerk = row(job="clerk")
    one = _Hit(row(job="clerk", term=13), ["term", "job"])
    other = _Hit(row(job="clerk", debt=31.0), ["debt", "job"])
    search._hits = [one, other]
    work = search.ask()
    assert isinstance(work, Evaluate)
    assert work.rows.count(clerk) == 1
    search.tell(work, case.problem.oracle.ask(work.rows))
    assert (one.row, one.levers) == (clerk, ["job"])
    assert other.levers == ["debt", "job"]
    assert search._drawn == 9  # a trial says nothing about the ring
    search.ask()
    assert (other.row, other.levers) == (clerk, [])


def test_many_rows_are_put_back_side_by_side() -> None:
    case = make_case(rows=150)
    run(GrowingSpheres(layer=10).start(case))
    assert isinstance(case.problem.oracle, Yes)
    assert case.problem.oracle.batches == [10] * 15


def test_values_thousands_of_scales_away_are_reached() -> None:
    schema = Schema((Feature("gain", "integer", range=(0, 10**6)), *SCHEMA.features[1:5]))
    case = make_case((0, *QUERY[1:5]), (), schema=schema, rows=200)
    search = GrowingSpheres().start(judged(case, lambda row: int(row[0] or 0) >= 50_000))
    run(search)
    assert len(search.archive) >= 20


def test_a_tiny_space_is_tried_out_and_ends() -> None:
    search = GrowingSpheres().start(make_case(("cook", True), (), schema=TWO))
    assert set(run(search)) == {("clerk", True), ("cook", False), ("clerk", False)}
    assert search.ending is not None
    assert search.ending.kind is OutcomeKind.EXHAUSTED
    assert search.ending.reason == (
        "draws from every ring around the query gave nothing new that the rules allow"
    )


def test_nothing_may_change() -> None:
    fixed = Immutable(features=TWO.names)
    search = GrowingSpheres().start(make_case(("cook", True), [fixed], schema=TWO))
    assert run(search) == []
    assert search.ending is not None
    assert search.ending.reason == "no feature may change"


def test_rules_that_nothing_satisfies_end_the_search() -> None:
    search = GrowingSpheres().start(make_case(rules=[Linear(that="income >= 200")]))
    assert run(search) == []
    assert search.archive.rejections.total() == search.archive.generated > 0


def test_a_single_row_is_spent_and_no_more() -> None:
    assert len(run(GrowingSpheres().start(make_case(rows=1)))) == 1


def test_without_a_row_budget_it_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "ROWS_WITHOUT_LIMIT", 120)
    assert len(run(GrowingSpheres().start(make_case(rows=None)))) == 120


def test_fixed_features_are_the_querys_own() -> None:
    case = make_case(row(debt=30.123456), [Immutable(features=["debt", "job"])])
    asked = run(GrowingSpheres().start(case))
    assert {(r[1], r[3]) for r in asked} == {(30.123456, "cook")}


@pytest.mark.parametrize(
    ("name", "value"), [("layer", -1), ("first_radius", 0), ("growth", 1)]
)  # fmt: skip
def test_settings_have_bounds(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name):
        GrowingSpheres(**{name: value})
