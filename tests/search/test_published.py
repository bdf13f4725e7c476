"""Methods as published: only what they return counts, and all that they ask is paid for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from baseline_cases import QUERY, make_case, run

from waysout import check_method
from waysout.bench.arms import Arm
from waysout.bench.plan import load_plan
from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import Immutable
from waysout.domain.schema import Feature, Row, Schema
from waysout.search.base import Case, Method, Search
from waysout.search.batches import BatchSearch, Candidate
from waysout.search.certifai import Certifai
from waysout.search.growing_spheres import GrowingSpheres

PLANE = Schema((Feature("x", "number", range=(0, 100)), Feature("y", "number", range=(0, 100))))
SPHERES, RESTARTS = GrowingSpheres(published=True), Certifai(published=True)


class Judge:
    name = "judge"
    labels_only = True

    def __init__(self, approves: Callable[[Row], bool]) -> None:
        self.approves = approves

    def ask(self, rows: Sequence[Row]) -> Answers:
        decision = np.array([self.approves(row) for row in rows], dtype=np.bool_)
        return Answers(decision.astype(np.float64), decision)


def judged(case: Case, approves: Callable[[Row], bool]) -> Case:
    return replace(case, problem=replace(case.problem, oracle=Judge(approves)))


def ended(search: Search) -> tuple[OutcomeKind, str]:
    assert search.ending is not None
    return search.ending.kind, search.ending.reason


@pytest.mark.parametrize(
    "method",
    [GrowingSpheres(published=True, layer=5), Certifai(published=True, population=8)],
    ids=lambda method: method.name,
)
def test_they_keep_the_protocol(method: Method) -> None:
    check_method(method)


class Every(BatchSearch):
    """Asks the same three rows twice, and returns the second of them."""

    def __init__(self, case: Case) -> None:
        super().__init__(case, 3, published=True)
        self.rounds = 0

    def _batch(self, most: int) -> list[Candidate]:
        self.rounds += 1
        rows = [(30.0, *QUERY[1:]), (40.0, *QUERY[1:]), QUERY]
        return [] if self.rounds == 3 else self._candidates(rows, 3)

    def _nothing_left(self) -> str:
        return "two rounds are enough"

    def _learn(
        self, batch: Sequence[Candidate], chances: Sequence[float], valid: Sequence[bool]
    ) -> None:
        assert list(valid) == [True, True, False]
        self._return(batch[1], chances[1])


def test_repeats_are_paid_for_and_only_what_is_returned_is_an_option() -> None:
    search = Every(make_case(rows=100))
    assert len(run(search)) == 6
    assert ended(search) == (OutcomeKind.EXHAUSTED, "two rounds are enough")
    found = search.archive
    assert found.rows == [(40.0, *QUERY[1:])]
    assert (found.evaluated, found.valid, found.best_probability) == (6, 4, 0.9)
    assert [tuple(way.row.values()) for way in found.ways()] == found.rows


def test_a_batch_that_the_rows_do_not_pay_for_is_not_begun() -> None:
    search = Every(make_case(rows=5))
    assert len(run(search)) == 3
    reason = "2 of 5 oracle rows are left, and the next step takes 3"
    assert ended(search) == (OutcomeKind.BUDGET_SPENT, reason)
    assert len(search.archive) == 1


# Growing Spheres -------------------------------------------------------------------------------


def test_a_layer_of_growing_spheres_takes_two_thousand_rows() -> None:
    search = SPHERES.start(make_case(rows=1999))
    assert run(search) == []
    assert ended(search)[0] is OutcomeKind.BUDGET_SPENT
    assert len(run(SPHERES.start(make_case(rows=2000)))) == 2000


def far_enough(row: Row) -> bool:
    return float(row[0] or 0) >= 21.05


def spheres(rows: int = 3000) -> tuple[Search, list[Row]]:
    case = judged(make_case((20.0, 20.0), (), schema=PLANE, rows=rows), far_enough)
    search = GrowingSpheres(published=True, layer=5).start(case)
    return search, run(search)


def test_balls_grow_until_one_holds_a_yes_and_its_nearest_is_made_sparse() -> None:
    search, asked = spheres()
    (option,) = search.archive.rows
    assert far_enough(option)
    assert option[1] == 20.0  # which the nearest of the layer had moved
    assert ended(search)[0] is OutcomeKind.EXHAUSTED
    first = next(i for i, row in enumerate(asked) if far_enough(row))
    whole = first - first % 5 + 5
    assert len(asked) - whole <= 2  # one row for each change that may not be needed
    assert option in asked


def test_the_ball_shrinks_to_a_tenth_once_more_than_needed_and_grows_by_a_tenth_of_that() -> None:
    _, asked = spheres(rows=50)
    far = [max(np.hypot(float(x or 0) - 20, float(y or 0) - 20) / 10 for x, y in asked[i : i + 5])
           for i in range(0, 50, 5)]  # fmt: skip
    assert 0.01 < far[0] <= 0.1
    for layer, reach in enumerate(far[1:], 1):
        assert reach <= 0.01 + 0.001 * layer


# CERTIFAI --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "asked", "options"), [(80, 0, 0), (81, 81, 1), (200, 162, 1), (5000, 243, 1)]
)
def test_generations_have_the_square_of_the_features_and_there_are_three(
    rows: int, asked: int, options: int
) -> None:
    search = RESTARTS.start(make_case(rules=(), rows=rows))
    assert len(run(search)) == asked
    assert len(search.archive) == options
    done = asked == 243
    assert ended(search)[0] is (OutcomeKind.EXHAUSTED if done else OutcomeKind.BUDGET_SPENT)


def test_the_nearest_of_all_generations_is_returned_with_numbers_as_they_are() -> None:
    search = Certifai(published=True).start(make_case(rules=(), rows=1000))
    asked, problem = run(search), search.case.problem
    encoded = problem.schema.encode([QUERY, *asked])
    numeric = [feature.is_numeric for feature in problem.schema]
    gaps = np.abs(encoded[1:] - encoded[0])
    levels = gaps[:, np.logical_not(numeric)]
    apart = 4 * gaps[:, numeric].sum(axis=1) + 5 * (levels != 0).sum(axis=1)
    approved = [i for i, row in enumerate(asked) if row[0] != QUERY[0]]
    assert search.archive.rows == [asked[min(approved, key=lambda i: float(apart[i]))]]


def test_generations_have_nothing_in_common_and_what_is_fixed_stays() -> None:
    rules = [Immutable(features=["job", "debt"])]
    asked = run(RESTARTS.start(make_case(rules=rules, rows=243)))
    assert {row[1] for row in asked} == {QUERY[1]}
    assert {row[3] for row in asked} == {QUERY[3]}
    generations = [asked[:81], asked[81:162], asked[162:]]
    spread = [np.std([float(row[0] or 0) for row in people]) for people in generations]
    assert min(spread) > 15  # none gathers around the best of the one before


def test_the_settings_of_earlier_searches_stay_as_they_were() -> None:
    arms: list[Arm] = [arm for arm in load_plan("oracle-budget").arms if arm.method == "certifai"]
    assert "published" not in arms[0].spec["settings"]
