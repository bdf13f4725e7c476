"""`wayfinder` without an LLM: what it finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recombine_world import Says, make_case, make_problem, number, numbers
from small_world import play
from wayfinder_world import (
    EVERY_ROW,
    START,
    all_ways_cost,
    asked_again,
    asked_rows,
    grid_case,
    known_of,
    levers,
    logistic,
    people,
    scored,
    wayfinder,
    ways,
    yes_if,
)

from waysout.domain.oracle import Goal
from waysout.domain.rules import (
    Direction,
    Linear,
    Linked,
    MaxChanges,
    Never,
    OneHot,
    Rule,
)
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import InputError
from waysout.search.base import Case
from waysout.search.random import RandomEdits
from waysout.search.wayfinder import Wayfinder
from waysout.search.work import Evaluate

SIX = numbers(6)
NOUGHT: Row = (0.0,) * 6


# What it finds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_the_first_way_is_the_cheapest_there_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights, levels = rng.uniform(0.05, 0.8, 3), dict(zip("yz", rng.uniform(-2, 3, 2), strict=True))
    sides = (weights[0], weights[1], -weights[2])
    oracle = Says(
        lambda row: logistic(
            sum(w * number(v) for w, v in zip(sides, row, strict=False))
            + levels.get(str(row[3]), 0.0)
            - 4
        )
    )
    given_case = grid_case(oracle, seed=seed)
    search = wayfinder(given_case)
    best = all_ways_cost(given_case.problem, START, EVERY_ROW)
    found = [way.cost for way in search.archive.ways()]
    assert found[0] == pytest.approx(best[0])
    assert search.archive.evaluated == 60 < len(EVERY_ROW) / 40


MIXED = Schema(
    (
        Feature("n", "number", range=(0, 50)),
        Feature("c", "category", levels=("x", "y", "z")),
        Feature("d", "integer", range=(-20, 20)),
        Feature("school", "category", levels=("none", "first", "second"), ordered=True),
        Feature("owns", "boolean"),
    )
)
SOMEBODY: Row = (8.0, "x", 5, "none", False)
EXTRA: list[tuple[Rule, ...]] = [
    (), (MaxChanges(at_most=2),), (Linear(that="n <= 2 * d + 60"),),
    (Direction(features=["n"], direction="up"),),
]  # fmt: skip


@st.composite
def monotone_cases(draw: st.DrawFn) -> Case:
    """Draw a model of 3 to 5 levers for which farther in one direction is never worse."""
    count = draw(st.integers(3, 5))
    weights = draw(st.tuples(*[st.integers(0, 3)] * count))
    worth = dict(zip("xyz", draw(st.tuples(*[st.integers(0, 4)] * 3)), strict=True))
    bias, seed = draw(st.integers(4, 16)), draw(st.integers(0, 3))
    steps = {"none": 0.0, "first": 2.0, "second": 4.0}

    def chance(row: Row) -> float:
        n, c, d, school, owns = (*row, None, None)[:5]
        parts = (number(n) / 5, worth[str(c)], (5 - number(d)) / 5, steps.get(str(school), 0.0),
                 3.0 if owns else 0.0)  # fmt: skip
        return logistic((float(np.dot(weights, parts[:count])) - bias) / 2)

    schema = Schema(MIXED.features[:count])
    oracle = Says(chance, labels_only=draw(st.booleans()))
    problem = make_problem(schema, oracle, *draw(st.sampled_from(EXTRA)))
    return make_case(problem, SOMEBODY[:count], rows=120, seed=seed)


@settings(max_examples=30)
@given(monotone_cases())
def test_the_first_ways_are_irreducible_hold_and_are_tight(given_case: Case) -> None:
    problem, query, oracle = given_case.problem, given_case.query, given_case.problem.oracle
    assert isinstance(oracle, Says)
    if bool(oracle.ask([query]).decision[0]):
        return  # nobody would search
    oracle.asked.clear()
    search = wayfinder(given_case)
    assert len(oracle.asked) == len(set(oracle.asked)) == search.archive.evaluated <= 120
    assert not any(problem.violations(query, row) for row in oracle.asked)
    shown = search.archive.ways()
    assert bool(shown) == (search.archive.valid > 0)
    for place, way in enumerate(shown):
        again = asked_again(problem, query, problem.row(way.row))
        flags = (way.irreducible, way.tight, way.holds)
        assert all(flag in (None, truth) for flag, truth in zip(flags, again, strict=True))
        assert place >= 2 or flags == (True, True, True)


@pytest.mark.parametrize("real", [0, 1], ids=["the same lever", "another lever"])
def test_a_pocket_does_not_hide_the_real_way(real: int) -> None:
    oracle = yes_if(lambda row: 20 <= number(row[0]) <= 24 or number(row[real]) >= 60)
    [way] = wayfinder(make_case(make_problem(SIX, oracle), NOUGHT, rows=80)).archive.ways()
    assert way.levers == (f"n{real}",)
    assert 60 <= number(way.row[f"n{real}"]) <= 60 / 0.9
    assert (way.irreducible, way.tight, way.holds) == (True, True, True)


def test_where_there_is_nothing_but_a_pocket_it_is_shown_for_what_it_is() -> None:
    oracle = yes_if(lambda row: 20 <= number(row[0]) <= 28)
    search = wayfinder(make_case(make_problem(SIX, oracle), NOUGHT, rows=120))
    assert levers(search) == [("n0",)]
    assert search.archive.ways()[0].holds is False


def test_few_rows_go_to_what_only_adds_to_a_pocket() -> None:
    def both(row: Row) -> float:
        return 0.52 if 20 <= number(row[0]) <= 50 else 0.3 + (number(row[1]) + number(row[2])) / 800

    search = wayfinder(make_case(make_problem(SIX, Says(both)), NOUGHT, rows=150))
    pocket = [row for row in search.archive.answered if 20 <= number(row[0]) <= 50]
    assert pocket
    assert sum(any(row[1:]) for row in pocket) < search.archive.evaluated / 4
    assert ("n1", "n2") in levers(search)


def three(row: Row) -> bool:
    return min(number(row[i]) for i in (1, 3, 6)) >= 60


@pytest.mark.parametrize("labels_only", [False, True], ids=["chances", "labels"])
@pytest.mark.parametrize(
    ("data", "students"), [(True, True), (True, False), (False, True)],
    ids=["students", "known rows", "nothing known"],
)  # fmt: skip
def test_three_levers_that_only_work_together(
    data: bool, students: bool, labels_only: bool
) -> None:
    schema = numbers(8)
    problem = make_problem(schema, yes_if(three, labels_only=labels_only))
    given_case = make_case(problem, (0.0,) * 8, rows=100)
    if data:
        given_case = replace(given_case, known=known_of(people(schema, 600), three))
    search = wayfinder(given_case, students=students)
    assert levers(search) == [("n1", "n3", "n6")]
    assert search.archive.ways()[0].holds is True
    assert all(60 <= number(value) <= 85 for value in ways(search)[0].values())


def test_rows_that_move_many_levers_are_asked_only_where_nothing_was_found() -> None:
    def widest(oracle: Says) -> int:
        rows = asked_rows(play(Wayfinder(), make_case(make_problem(SIX, oracle), NOUGHT), []))
        return max(sum(value != 0.0 for value in row) for row in rows)

    assert widest(yes_if(lambda row: number(row[0]) > 50)) <= 4
    assert widest(yes_if(lambda row: False)) > 4


@pytest.mark.parametrize("students", [True, False])
def test_a_column_that_is_mostly_nought(students: bool) -> None:
    schema = Schema(
        (
            Feature("gain", "integer", range=(0, 99_999)),
            Feature("n", "number", range=(0, 100)),
            Feature("c", "category", levels=("x", "y", "z")),
        )
    )
    rng = np.random.default_rng(0)
    gains = [int(g) for g in rng.choice([3000, 5000, 7000, 15_000], 400) * (rng.random(400) < 0.08)]
    rows: list[Row] = [(g, float(rng.integers(0, 100)), "xyz"[i % 3]) for i, g in enumerate(gains)]
    oracle = yes_if(lambda row: number(row[0]) >= 5000)
    known = known_of(rows, lambda row: number(row[0]) >= 5000)
    given_case = make_case(make_problem(schema, oracle), (0, 20.0, "x"), rows=40)
    assert ways(wayfinder(replace(given_case, known=known), students=students)) == [{"gain": 5000}]


def test_students_of_other_labels_than_the_models_cost_little() -> None:
    oracle = scored((0.05, 0.03, 0.02), -4)
    given_case = make_case(make_problem(SIX, oracle), NOUGHT)
    wrong = known_of(people(SIX, 300), lambda row: number(row[5]) > 50)
    misled = wayfinder(replace(given_case, known=wrong))
    assert misled.archive.ways()[0].cost <= 1.1 * wayfinder(given_case).archive.ways()[0].cost


@pytest.mark.parametrize(
    ("count", "least"), [(0, 50), (39, 50), (60, 0), (60, 101)],
    ids=["no rows", "too few", "all yes", "all no"],
)  # fmt: skip
def test_labels_that_teach_nothing(count: int, least: float) -> None:
    known = known_of(people(SIX, count), lambda row: number(row[5]) >= least)
    oracle = yes_if(lambda row: number(row[2]) >= 70)
    search = wayfinder(replace(make_case(make_problem(SIX, oracle), NOUGHT), known=known))
    assert levers(search) == [("n2",)]


@pytest.mark.parametrize("least", [40, 90])
def test_a_way_beyond_all_that_others_have(least: int) -> None:
    others: list[Row] = [tuple(0.3 * number(v) for v in row) for row in people(SIX, 60)]
    oracle = yes_if(lambda row: min(number(row[0]), number(row[2])) >= least)
    given_case = make_case(make_problem(SIX, oracle), (5.0,) * 6, rows=120)
    search = wayfinder(replace(given_case, known=known_of(others, lambda row: False)))
    assert levers(search) == [("n0", "n2")]


# Values -----------------------------------------------------------------------------------------

CODED = Schema(
    (
        Feature("delay", "integer", range=(-9, 60)),
        Feature("tenure", "integer", range=(0, 40), missing="fill"),
        Feature("n", "number", range=(0, 100)),
    )
)
CODES = (-9, -8, -7)


@pytest.mark.parametrize("query", [(-9, None, 10.0), (30, None, 10.0), (30, 5, 10.0)], ids=str)
def test_missing_values_and_codes_are_left_and_never_aimed_at(query: Row) -> None:
    def chance(row: Row) -> float:
        late = 0.0 if row[0] in CODES else 20 - number(row[0])
        return logistic(0.1 * number(row[1] or 0) + 0.1 * late + 0.03 * number(row[2]) - 2.5)

    oracle = Says(chance)
    problem = make_problem(CODED, oracle, Never(features=["delay"], values=list(CODES)))
    search = wayfinder(make_case(problem, query, rows=80))
    assert {row[0] for row in oracle.asked}.intersection(CODES) <= {query[0]}
    assert query[1] is None or all(row[1] is not None for row in oracle.asked)
    assert len(search.archive.ways()) >= 2
    assert any("tenure" in way.levers for way in search.archive.ways())
    assert search.archive.ways()[0].holds is True


def test_what_belongs_together_moves_together() -> None:
    schema = Schema(
        (
            Feature("school", "category", levels=("basic", "high")),
            Feature("years", "integer", range=(0, 20)),
            *(Feature(name, "boolean") for name in ("rents", "owns", "free")),
        )
    )
    rules = (
        Linked(feature="school", sets="years", map={"basic": 9, "high": 12}),
        OneHot(features=["rents", "owns", "free"]),
    )
    oracle = yes_if(lambda row: row[1] == 12 and row[3] is True)
    problem = make_problem(schema, oracle, *rules)
    search = wayfinder(make_case(problem, ("basic", 9, True, False, False), rows=30))
    assert levers(search) == [("rents", "school")]
    assert search.archive.ways()[0].irreducible is True


# Goals ------------------------------------------------------------------------------------------


def halves(row: Row) -> float:
    return (number(row[0]) + number(row[1])) / 200


@pytest.mark.parametrize(
    ("goal", "query"),
    [
        (Goal(at_least=0.8), (0.0, 0.0)),
        (Goal(at_most=0.2), (90.0, 90.0)),
        (Goal(rise=0.6), (5.0, 5.0)),
        (Goal(at_least=0.4, at_most=0.5), (0.0, 0.0)),
    ],
    ids=["at least", "at most", "rise", "interval"],
)
def test_goals_are_met(goal: Goal, query: Row) -> None:
    given_case = make_case(make_problem(numbers(4), Says(halves), goal=goal), (*query, 0.0, 0.0))
    shown = wayfinder(given_case).archive.ways()
    wanted = given_case.problem.goal
    for way in shown:
        assert (wanted.at_least or 0.0) <= way.probability <= (wanted.at_most or 1.0)
    assert (shown[0].tight, shown[0].holds) == (True, True)


@pytest.mark.parametrize("at_most", [0.55, 0.7])
def test_a_narrow_interval_is_hit_and_not_passed(at_most: float) -> None:
    problem = make_problem(numbers(4), scored((0.1, 0.07, 0.04), -5), goal=Goal(0.5, at_most))
    given_case = make_case(problem, (0.0,) * 4, rows=80)
    floor = RandomEdits().start(given_case)
    while (work := floor.ask()) is not None:
        assert isinstance(work, Evaluate)
        floor.tell(work, problem.oracle.ask(work.rows))
    assert wayfinder(given_case).archive.valid >= max(6, 3 * floor.archive.valid)


@pytest.mark.parametrize("border", [0.2, 0.75])
def test_a_model_that_decides_elsewhere_than_at_one_half(border: float) -> None:
    oracle = Says(halves, border=border)
    [way, *_] = wayfinder(make_case(make_problem(numbers(4), oracle), (0.0,) * 4)).archive.ways()
    assert way.tight is True
    assert border <= way.probability <= 1.1 * border


# Settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value"),
    [("quality", -1), ("levers", -0.1), ("tried", -1), ("finish", 0.95), ("finish", -0.1),
     ("hold", -1), ("batch", 0), ("edits", 0), ("edits", 51), ("ask", "often")],
)  # fmt: skip
def test_settings_are_checked(setting: str, value: object) -> None:
    with pytest.raises(InputError, match=setting):
        Wayfinder(**{setting: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "method", [Wayfinder(finish=0.0), Wayfinder(hold=0), Wayfinder(finish=0.9), Wayfinder(batch=1)],
    ids=["no finish", "no hold", "mostly finish", "one at a time"],
)  # fmt: skip
def test_every_setting_searches(method: Wayfinder) -> None:
    given_case = grid_case(scored((0.6, 0.5, -0.4), -4), rows=50)
    played = play(method, given_case, [])
    best = all_ways_cost(given_case.problem, START, EVERY_ROW)
    assert len(asked_rows(played)) == 50
    assert played.search.archive.ways()[0].cost <= 1.3 * best[0]


def test_what_is_learned_of_the_labels_is_learned_once() -> None:
    told: list[str] = []
    known = known_of(people(SIX, 100), lambda row: number(row[0]) > 50)
    problem = make_problem(SIX, Says(lambda row: 0.1))

    def tell(what: str, share: float) -> None:
        told.append(what)

    Wayfinder().learn(problem, known, tell)
    Wayfinder().learn(problem, None, tell)
    Wayfinder(students=False).learn(problem, known, tell)
    assert told == ["learning from the known outcomes"]
    search = Wayfinder().start(replace(make_case(problem, NOUGHT), known=known))
    again = Wayfinder().start(replace(make_case(problem, NOUGHT), known=known))
    assert search._students is again._students is not None  # type: ignore[attr-defined]


def test_dummies_of_a_dropped_level_may_all_be_cleared() -> None:
    flags = [Feature(f"job_{name}", "boolean", levels=(0, 1)) for name in ("cook", "clerk")]
    schema = Schema((*flags, Feature("a", "integer", range=(0, 9))))
    group = OneHot(features=[flag.name for flag in flags], or_none=True)
    baseline = yes_if(lambda row: not row[0] and not row[1])
    problem = make_problem(schema, baseline, group)
    found = ways(wayfinder(make_case(problem, (True, False, 3))))
    assert found == [{"job_cook": False}]
    clerks = make_problem(schema, yes_if(lambda row: bool(row[1])), group)
    for start in ((True, False, 3), (False, False, 3)):
        (way,) = ways(wayfinder(make_case(clerks, start)))
        assert way == {name: on for name, on in way.items() if on or start[0]}
        assert way["job_clerk"] == 1
    assert not any(row[0] and row[1] for row in (*baseline.asked, *clerks.oracle.asked))  # type: ignore[attr-defined]
