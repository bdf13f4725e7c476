from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from baseline_cases import QUERY, SCHEMA, make_case, row, run

from waysout import check_method
from waysout.domain.oracle import Answers, Goal
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import Immutable, Linear
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import InputError
from waysout.search import base, certifai
from waysout.search.base import Case, Method, Search
from waysout.search.certifai import Certifai
from waysout.search.random import RandomEdits

TWO = Schema((Feature("job", "category", levels=("cook", "clerk")), Feature("own", "boolean")))
NUMBERS = Schema(tuple(Feature(f"x{i}", "number", range=(0, 1000)) for i in range(6)))
GRADES = Schema(tuple(Feature(f"grade{i}", "category", levels=tuple("abcd")) for i in range(10)))


class Judge:
    """Approves from a chance of 0.5 on; may keep the chance to itself."""

    name = "judge"

    def __init__(self, chance: Callable[[Row], float], labels_only: bool = False) -> None:
        self.chance = chance
        self.labels_only = labels_only
        self.batches: list[int] = []

    def ask(self, rows: Sequence[Row]) -> Answers:
        self.batches.append(len(rows))
        chances = np.array([self.chance(row) for row in rows])
        decision = chances >= 0.5
        return Answers(decision.astype(np.float64) if self.labels_only else chances, decision)


def judged(case: Case, chance: Callable[[Row], float], *, labels_only: bool = False) -> Case:
    return replace(case, problem=replace(case.problem, oracle=Judge(chance, labels_only)))


def numbers_case(rows: int) -> Case:
    """Return a case whose yes wants 200 in all, of six numbers that are 0."""
    case = make_case((0.0,) * 6, (), schema=NUMBERS, rows=rows)
    return judged(case, lambda row: sum(float(value or 0) for value in row) / 400)


def right(row: Row) -> int:
    return row[:6].count("d")


def grades_case(rows: int = 400, seed: int = 0) -> Case:
    """Return a case whose yes wants six grades to be d, and whose chance tells how many are."""
    case = make_case(("a",) * 10, (), schema=GRADES, rows=rows, seed=seed)
    return judged(case, lambda row: right(row) / 11.9)


def found(method: Method, case: Case) -> Search:
    search = method.start(case)
    run(search)
    return search


def test_it_keeps_the_protocol() -> None:
    check_method(Certifai())


def test_the_same_seed_gives_the_same_rows() -> None:
    first = run(Certifai().start(make_case(rows=60)))
    assert run(Certifai().start(make_case(rows=60))) == first
    assert run(Certifai().start(make_case(rows=60, seed=1))) != first


def test_approved_rows_come_nearer_from_generation_to_generation() -> None:
    case = numbers_case(600)
    search = found(Certifai(population=30), case)
    rows = search.archive.unique_rows
    distances = [case.problem.distance(case.query, row) for row in rows]
    parts = [float(np.mean(part)) for part in np.array_split(distances, 4)]
    assert parts == sorted(parts, reverse=True)
    assert parts[-1] < parts[0] / 2


def test_it_beats_random_where_a_yes_needs_many_features_together() -> None:
    floor = RandomEdits(most_changes=10)
    bred = [len(found(Certifai(), grades_case(seed=seed)).archive) for seed in range(3)]
    drawn = [len(found(floor, grades_case(seed=seed)).archive) for seed in range(3)]
    assert min(bred) > 2 * max(drawn)


def test_without_evolution_it_does_not() -> None:
    one_generation = found(Certifai(population=400), grades_case())
    assert len(found(Certifai(), grades_case()).archive) > 2 * len(one_generation.archive)


def test_refused_rows_climb_by_their_chance() -> None:
    case = grades_case(rows=200)
    hopeless = replace(case.problem, goal=Goal(at_least=0.99))
    search = Certifai(population=20).start(replace(case, problem=hopeless))
    counts = [right(row) for row in run(search)]
    assert np.mean(counts[-60:]) > np.mean(counts[:20]) + 1.5
    assert len(search.archive) == 0


def test_where_less_is_wanted_less_is_fitter() -> None:
    case = grades_case(rows=200)
    query = ("d",) * 10
    problem = replace(case.problem, goal=Goal(at_most=0.05))
    search = Certifai(population=20).start(replace(case, query=query, problem=problem))
    counts = [right(row) for row in run(search)]
    assert np.mean(counts[-60:]) < np.mean(counts[:20]) - 1.5


def test_labels_alone_are_enough_for_an_easy_yes() -> None:
    case = judged(
        make_case(rules=[]), lambda row: float(row[3] == "clerk" and row[0] != 20.0),
        labels_only=True,
    )  # fmt: skip
    assert len(found(Certifai(), case).archive) >= 30


def test_the_population_is_the_root_of_the_rows() -> None:
    case = judged(make_case(rows=410), lambda row: 0.0)
    run(Certifai().start(case))
    assert isinstance(case.problem.oracle, Judge)
    assert case.problem.oracle.batches == [20] * 20 + [10]


def test_the_first_generation_moves_few_and_many_levers_near_and_far() -> None:
    case = make_case((0.0,) * 6, (), schema=NUMBERS, rows=100)
    asked = np.array(run(Certifai(population=100).start(case)), dtype=float)
    assert set(np.count_nonzero(asked, axis=1)) == {1, 2, 3, 4, 5, 6}
    far = np.mean(asked[asked > 0] > 60)  # six scales
    assert 0.15 < far < 0.6


def test_where_nothing_is_drawn_near_by_all_values_are_equally_likely() -> None:
    case = make_case((0.0,) * 6, (), schema=NUMBERS, rows=200)
    asked = np.array(run(Certifai(population=200, nearby=0).start(case)), dtype=float)
    quartiles = np.quantile(asked[asked > 0], [0.25, 0.5, 0.75])
    assert quartiles == pytest.approx([250, 500, 750], abs=60)


def test_numbers_are_mutated_to_the_mean_of_two_and_levels_to_one_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(certifai, "_REDRAWN", 0.0)
    search = Certifai(query_share=0).start(make_case(rules=[]))
    assert isinstance(search, certifai._Evolution)
    search._people = SCHEMA.encode([row(income=30.0, job="none"), row(income=60.0, job="clerk")])
    mutated = search._mutations(100)
    assert set(mutated[:, 0]) == {30, 45, 60}
    assert set(mutated[:, 3]) == {0, 2}


def test_the_query_as_a_parent_makes_rows_sparser() -> None:
    with_query, without = (
        found(Certifai(query_share=share), numbers_case(600)) for share in (0.5, 0.0)
    )
    changes = [
        np.mean([option.sparsity for option in search.archive.options()])
        for search in (with_query, without)
    ]
    assert changes[0] < changes[1] - 0.5


def test_a_tiny_space_is_tried_out_and_ends() -> None:
    search = Certifai().start(make_case(("cook", True), (), schema=TWO))
    assert set(run(search)) == {("clerk", True), ("cook", False), ("clerk", False)}
    assert search.ending is not None
    assert search.ending.kind is OutcomeKind.EXHAUSTED
    assert search.ending.reason == (
        "neither breeding nor drawing gave anything new that the rules allow"
    )


def test_nothing_may_change() -> None:
    fixed = Immutable(features=TWO.names)
    search = Certifai().start(make_case(("cook", True), [fixed], schema=TWO))
    assert run(search) == []
    assert search.ending is not None
    assert search.ending.reason == "no feature may change"


def test_rules_that_nothing_satisfies_end_the_search() -> None:
    search = Certifai().start(make_case(rules=[Linear(that="income >= 200")]))
    assert run(search) == []
    assert search.archive.rejections.total() == search.archive.generated > 0


def test_fixed_features_are_the_querys_own_in_every_generation() -> None:
    case = make_case(row(debt=30.123456), [Immutable(features=["debt", "job"])])
    asked = run(Certifai().start(case))
    assert len(asked) == 150
    assert {(r[1], r[3]) for r in asked} == {(30.123456, "cook")}


def test_missing_values_are_bred_with_the_rest() -> None:
    schema = Schema(
        (
            Feature("x", "number", range=(0, 100), missing="fill"),
            Feature("job", "category", levels=("cook", "clerk"), missing="fill"),
        )
    )
    asked = run(Certifai().start(make_case((None, None), (), schema=schema, rows=100)))
    assert len(asked) == 100
    assert {type(r[0]) for r in asked} == {float, type(None)}
    assert {r[1] for r in asked} == {None, "cook", "clerk"}


def test_a_single_row_is_spent_and_no_more() -> None:
    assert len(run(Certifai().start(make_case(rows=1)))) == 1


def test_without_a_row_budget_it_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "ROWS_WITHOUT_LIMIT", 120)
    assert len(run(Certifai().start(make_case(QUERY, schema=SCHEMA, rows=None)))) == 120


@pytest.mark.parametrize(
    ("name", "value"),
    [("population", -1), ("crossover", 2), ("mutation", -1), ("query_share", 2), ("nearby", 2)],
)
def test_settings_have_bounds(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name):
        Certifai(**{name: value})
