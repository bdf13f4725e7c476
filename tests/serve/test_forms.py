from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest
from serve_world import Adder, problem

from waysout.domain.card import Card
from waysout.domain.distance import Distance
from waysout.domain.key import Key
from waysout.domain.problem import Problem
from waysout.domain.result import Interval, Outcome, OutcomeKind, ResultData, Tip, TipStatus
from waysout.domain.rules import Direction, Immutable, Range, RuleSet, Step
from waysout.domain.schema import Feature, Row, Schema, Value
from waysout.errors import RuleError
from waysout.serve.forms import (
    form_row,
    lever_forms,
    lever_tips,
    lock_rules,
    method_forms,
    problem_form,
)
from waysout.serve.models import FeatureForm, LeverForm, Locks

QUERY: Row = (4, 0, "x")
CARD = """
card = 1
name = "loans"
title = "Loans"
[outcome]
target = "status"
positive = 1
yes = "the loan is approved"
no = "the loan is refused"
[features.income]
kind = "number"
range = [0.5, 90]
decimals = 2
unit = "thousand a year"
about = "before tax"
missing = "keep"
[features.job]
kind = "category"
levels = [1, 2]
ordered = true
words = { 1 = "part-time", 2 = "full-time" }
[features.married]
kind = "boolean"
[features.cosigner]
kind = "boolean"
levels = ["none", "one"]
[[rules.main]]
kind = "step"
feature = "income"
step = 0.5
why = "pay grades"
"""


def loans() -> Problem:
    return Problem.from_card(Card.parse(CARD), problem().oracle)


def form(table: Problem, name: str) -> dict[str, Any]:
    found = next(f for f in problem_form(table)["features"] if f["name"] == name)
    FeatureForm.model_validate(found)
    return dict(found)


def locked(given: Problem, query: Row = QUERY, **locks: Any) -> Problem:
    return given.with_rules(lock_rules(given, query, Locks(**locks)))


def keeps(given: Problem, row: Row, query: Row = QUERY) -> bool:
    return not given.violations(query, row)


def test_a_form_tells_what_a_number_is() -> None:
    assert form(loans(), "income") == {
        "name": "income", "kind": "number", "unit": "thousand a year", "about": "before tax",
        "levels": None, "range": [0.5, 90.0], "decimals": 2, "step": 0.5, "may_be_missing": True,
        "ordered": False, "label": "",
    }  # fmt: skip
    assert form(problem(), "a")["step"] == 1.0


def test_levels_have_the_words_of_the_card_and_the_values_of_the_table() -> None:
    levels = {name: form(loans(), name)["levels"] for name in ("job", "married", "cosigner")}
    assert levels == {
        "job": [{"value": 1, "words": "part-time"}, {"value": 2, "words": "full-time"}],
        "married": [{"value": False, "words": "no"}, {"value": True, "words": "yes"}],
        "cosigner": [{"value": "none", "words": "none"}, {"value": "one", "words": "one"}],
    }
    assert form(loans(), "job")["ordered"] is True


def test_a_form_tells_rules_and_the_goal() -> None:
    told = problem_form(loans())
    [rule] = told["rules"]
    assert rule["words"].endswith("(pay grades)")
    assert told["goal_words"] == "Goal: approval."
    assert (told["title"], told["yes"], told["goal"]) == (
        "Loans", "the loan is approved", "the model's own yes",
    )  # fmt: skip


def test_methods_that_cannot_run_here_are_not_offered() -> None:
    everything = {method["name"] for method in method_forms(True, True)}
    without_llm = {method["name"] for method in method_forms(False, True)}
    without_table = {method["name"] for method in method_forms(True, False)}
    assert everything - without_llm >= {"comp-mcts", "lats"}
    assert everything - without_table >= {"nearest"}
    assert {"wayfinder", "recombine"} <= without_llm & without_table


def test_levers_tell_intervals_lists_and_why_nothing_moves() -> None:
    levers = lever_forms(problem(Immutable(features=["b"], why="it is so")), QUERY)
    for lever in levers.values():
        LeverForm.model_validate(lever)
    assert levers["a"] == {"open": True, "says": "0 to 20", "why": "", "low": 0.0, "high": 20.0,
                           "step": 1.0, "choices": None}  # fmt: skip
    assert levers["b"]["why"] == "fixed: it is so"
    assert (levers["b"]["open"], levers["b"]["low"]) == (False, None)
    assert levers["c"]["choices"] == ["y", "z"]


def test_a_slider_begins_and_ends_on_the_grid() -> None:
    table = problem(Step(feature="a", step=3, start=1), Range(feature="a", min=2, max=15))
    lever = lever_forms(table, QUERY)["a"]
    assert (lever["low"], lever["high"], lever["step"]) == (4.0, 13.0, 3)


def test_locks_hold() -> None:
    table = locked(
        problem(), fixed=["b", "b"], ranges={"a": {"min": 2, "max": 9}}, choices={"c": ["z"]}
    )
    assert keeps(table, (9, 0, "z"))
    assert keeps(table, (9, 0, "x"))  # where it is now, it may stay
    for row in ((10, 0, "x"), (1, 0, "x"), (9, 1, "x"), (9, 0, "y")):
        assert not keeps(table, row)
    levers = lever_forms(table, QUERY)
    assert levers["b"]["says"] == "fixed: ruled out by you"
    assert (levers["a"]["low"], levers["a"]["high"]) == (2.0, 9.0)
    assert levers["c"]["choices"] == ["z"]


def test_an_excluded_option_takes_along_what_goes_as_far() -> None:
    table = locked(problem(), excluded=[{"a": [4, 8], "c": ["x", "y"]}])
    for row in ((8, 0, "y"), (9, 5, "y")):
        assert not keeps(table, row)
    for row in ((7, 0, "y"), (20, 5, "z"), (2, 0, "y"), (4, 0, "x")):
        assert keeps(table, row)
    down = locked(problem(), excluded=[{"a": [4, 2]}])
    assert [a for a in range(21) if keeps(down, (a, 0, "x"))] == list(range(3, 21))


def test_the_direction_is_that_from_the_own_value_whatever_was_sent() -> None:
    table = locked(problem(), excluded=[{"a": [19, 8]}])
    assert [a for a in range(21) if keeps(table, (a, 0, "x"))] == list(range(8))


def test_a_number_that_was_missing_is_excluded_as_it_is() -> None:
    table = loans()
    query = table.row({"income": None, "job": 1, "married": False, "cosigner": False})
    excluded: Any = [{"income": [None, 40.0], "married": [False, True]}]
    rules = lock_rules(table, query, Locks(excluded=excluded))
    assert [getattr(rule, "values", None) for rule in rules] == [
        {"income": {"min": 40.0, "max": 40.0}, "married": True}
    ]


@pytest.mark.parametrize(
    ("locks", "named"),
    [
        ({"fixed": ["d"]}, "unknown feature 'd'"),
        ({"ranges": {"d": {"min": 1}}}, "unknown feature 'd'"),
        ({"ranges": {"a": {}}}, "'a': set min, max or both"),
        ({"ranges": {"a": {"min": 5, "max": 3}}}, "the range 5.0 to 3.0 is empty"),
        ({"ranges": {"a": {"min": 50}}}, "nothing of its range"),
        ({"ranges": {"c": {"min": 1}}}, "'c' is a category"),
        ({"choices": {"d": ["x"]}}, "unknown feature 'd'"),
        ({"choices": {"c": ["w"]}}, "unknown value 'w'"),
        ({"excluded": [{"d": [1, 2]}]}, "unknown feature 'd'"),
        ({"excluded": [{"c": ["x", "w"]}]}, "unknown value 'w'"),
        ({"excluded": [{"a": [1, "much"]}]}, "'much' is not a number"),
        ({"excluded": [{"a": [1, 4]}]}, "'a' does not change when it is 4"),
        ({"excluded": [{"a": [4, None]}]}, "missing"),
    ],
)
def test_locks_that_cannot_be_say_so_by_name(locks: dict[str, Any], named: str) -> None:
    with pytest.raises(RuleError, match=re.escape(named)):
        locked(problem(), **locks)


def test_no_lock_loosens_what_the_card_says() -> None:
    given = problem(Immutable(features=["c"]), Direction(features=["a"], direction="up"))
    locks: list[dict[str, Any]] = [
        {}, {"fixed": ["b"]}, {"ranges": {"a": {"min": 0, "max": 20}}}, {"choices": {"c": ["z"]}},
        {"choices": {"a": [0, 1]}}, {"excluded": [{"b": [0, 1]}]},
    ]  # fmt: skip
    rows: list[Row] = list(product((0, 4, 9), (0, 3), ("x", "z")))
    broken = [row for row in rows if not keeps(given, row)]
    assert broken
    for lock in locks:
        assert not any(keeps(locked(given, **lock), row) for row in broken)


def test_locks_refuse_what_they_do_not_know() -> None:
    wrongs: list[Any] = [{"fix": ["a"]}, {"ranges": {"a": {"least": 1}}}, {"excluded": [{}]}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="validation error"):
            Locks.model_validate(wrong)


def test_a_slider_begins_on_the_grid_though_numbers_are_not_exact() -> None:
    schema = Schema((Feature("x", "number", range=(0.07, 30.0), decimals=2),))
    world = Problem(schema, RuleSet(schema), Key(schema), Distance.fit(schema, ()), Adder())
    form = lever_forms(world, (2.0,))["x"]
    assert (form["low"], form["high"]) == (0.07, 30.0)  # 0.07 / 0.01 is a little more than 7


@pytest.mark.parametrize(
    ("interval", "goes_on", "said"),
    [
        (Interval(90, 200, 6, before=89), True, "from 90 on (89 is a no"),
        (Interval(90, 200, 3, before=89), False, "from 90 to 200 (89 is a no"),
        (Interval(90, 120, 9, before=89, after=130), False, "from 90 to 120 (89 and 130 are a no"),
        (Interval(90, 90, 1, before=89), False, "at 90 (89 is a no"),
        (Interval(90, 200, 6, before=50), True, "from 90 on"),  # 50 is the present value
    ],
)
def test_what_a_lever_does_alone_claims_no_more_than_was_asked(
    interval: Interval, goes_on: bool, said: str
) -> None:
    refused = tuple(v for v in (interval.before, interval.after) if v not in (None, 50))
    tips = (Tip("up", TipStatus.TURNS, (interval,), refused, 200, goes_on),)
    (told,) = lever_tips(result_with(savings=tips))
    assert told["feature"] == "savings"
    assert told["moves"] == [tips[0].as_dict()]
    assert told["said"][0].startswith(f"Savings alone: a yes {said}")


def test_levers_that_turn_the_decision_come_first() -> None:
    income = (
        Tip("up", TipStatus.NOT_UP_TO, (), (60, 80, 90), 90),
        Tip("down", TipStatus.NOT_ASKED, limit=0),
    )
    savings = (Tip("up", TipStatus.TURNS, (Interval(70, 70, 1, 50),), (), 200),)
    told = lever_tips(
        result_with(job=(Tip("to", TipStatus.NOT_ASKED),), income=income, savings=savings)
    )
    assert [tips["feature"] for tips in told] == ["savings", "income", "job"]
    far, near = told[1]["said"]
    assert far == "Income alone: not enough up to 90."
    assert near.startswith("Income alone: not asked")
    assert told[2]["said"][0].startswith("Job alone: not asked")


def result_with(**tipping: tuple[Tip, ...]) -> ResultData:
    query: dict[str, Value] = {"savings": 50, "income": 50, "job": "none"}
    return ResultData(query, Outcome(OutcomeKind.FOUND), tipping=tipping)


def test_rows_levers_and_locks_have_the_values_of_the_table() -> None:
    table = loans()
    query = table.row({"income": 10.5, "job": 1, "married": True, "cosigner": "none"})
    assert form_row(table.schema, query) == {
        "income": 10.5, "job": 1, "married": True, "cosigner": "none",
    }  # fmt: skip
    levers = lever_forms(table, query)
    assert [levers[name]["choices"] for name in ("job", "cosigner")] == [[2], ["one"]]
    for values in ([2], ["2"]):  # as the table has it, and as earlier releases did
        assert keeps(locked(table, query, choices={"job": values}), query, query)
    without = locked(table, query, excluded=[{"job": [1, 2], "cosigner": ["none", "one"]}])
    assert not keeps(without, table.schema.replace(query, {"job": "2", "cosigner": True}), query)
    assert keeps(without, table.schema.replace(query, {"cosigner": True}), query)
    assert problem_form(table)["limits_of_chance"] == [0.5]
