"""What `wayfinder` does with rows that are left once all its steps were asked, and what it says."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recombine_world import Says, make_case, make_problem, number, numbers, recombine
from small_world import play
from wayfinder_world import asked_rows, wayfinder, ways, yes_if

import waysout
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import Implies, Linear, MaxChanges, Rule
from waysout.domain.schema import Feature, Row, Schema
from waysout.search.base import Ending
from waysout.search.wayfinder import Wayfinder

ALL = "every combination within reach was asked"
HOURS = pd.DataFrame({"hours": np.random.default_rng(0).integers(0, 1000, 2000)})


# Values between the steps -----------------------------------------------------------------------


@pytest.mark.parametrize(("low", "wide"), [(412, 3), (5, 15), (290, 15), (777, 15)])
def test_a_range_that_no_step_meets_is_found(low: int, wide: int) -> None:
    def model(frame: Any) -> Any:
        return np.where(frame.hours.between(low, low + wide - 1), 0.9, 0.2)

    result = waysout.find(model, {"hours": 200}, data=HOURS)
    assert result.outcome.kind == OutcomeKind.FOUND
    [way] = result.ways
    assert low <= number(way.changes["hours"][1]) < low + wide
    assert result.ledger.oracle_rows <= 150


def test_where_there_is_nothing_all_rows_are_spent_and_it_says_so() -> None:
    result = waysout.find(lambda frame: np.full(len(frame), 0.2), {"hours": 200}, data=HOURS)
    assert result.outcome.kind == OutcomeKind.BUDGET_SPENT
    assert result.outcome.reason == "all 150 oracle rows are spent"
    assert result.ledger.oracle_rows == 150


def test_values_that_others_hold_come_before_any_other() -> None:
    schema = Schema((Feature("hours", "integer", range=(0, 999)),))
    held = HOURS.hours[:300].tolist()
    known = SimpleNamespace(rows=[(hours,) for hours in held], labels=[i % 2 == 0 for i in held])
    given_case = make_case(make_problem(schema, Says(lambda row: 0.2)), (200,), rows=400)
    played = play(Wayfinder(), replace(given_case, known=known), [])
    nobodys = [hours not in held for (hours,) in asked_rows(played)]
    assert len(nobodys) - sum(nobodys) == len(set(held) - {200})
    # Near the person some steps are nobody's. What is asked after them is somebody's, to the last.
    last = len(nobodys) - nobodys[::-1].index(False)
    assert sum(nobodys[:last]) <= 16
    assert last < 300


def test_every_level_of_a_long_list_is_asked() -> None:
    levels = tuple(f"l{i}" for i in range(900))
    schema = Schema((Feature("town", "category", levels=levels),))
    problem = make_problem(schema, yes_if(lambda row: row[0] == "l777"))
    assert ways(wayfinder(make_case(problem, ("l0",), rows=900))) == [{"town": "l777"}]


def test_without_others_gaps_are_halved() -> None:
    problem = make_problem(numbers(1), yes_if(lambda row: 61 <= number(row[0]) <= 61.4))
    search = wayfinder(make_case(problem, (0.0,), rows=300))
    assert [61 <= number(way["n0"]) <= 61.4 for way in ways(search)] == [True]


def test_what_does_not_hold_is_no_reason_to_stop() -> None:
    def says(row: Row) -> bool:
        return row[0] == 100.0 or 61 <= number(row[0]) <= 80  # a step, and what lies before it

    pocket = Says(lambda row: 0.9 if row[0] in (3.0, 4.0) or 61 <= number(row[0]) <= 61.9 else 0.1)
    search = wayfinder(make_case(make_problem(numbers(1), pocket), (0.0,), rows=200))
    assert search.archive.evaluated == 200
    search = wayfinder(make_case(make_problem(numbers(1), yes_if(says)), (0.0,), rows=200))
    assert search.archive.ways()[0].holds is True


# What is said -----------------------------------------------------------------------------------


LEVERS = st.lists(st.integers(1, 6), min_size=1, max_size=3)
RULES: dict[str, tuple[Rule, ...]] = {
    "none": (),
    "one change": (MaxChanges(at_most=1),),
    "a limit": (Linear(that="n0 <= 3"),),
    "a condition": (Implies(when={"n0": {"min": 2}}, then={"c": ["y"]}),),
}


def finite(sizes: list[int]) -> tuple[Schema, list[Row]]:
    """Return a table of a few values in each column, and all of its rows."""
    features = [Feature(f"n{i}", "integer", range=(0, size)) for i, size in enumerate(sizes)]
    schema = Schema((*features, Feature("c", "category", levels=("x", "y", "z"))))
    return schema, list(itertools.product(*(range(s + 1) for s in sizes), ("x", "y", "z")))


@settings(max_examples=25, deadline=None)
@given(
    sizes=LEVERS,
    rule=st.sampled_from(sorted(RULES)),
    rows=st.sampled_from([20, 150, 2000]),
    yes=st.integers(-400, 400),
    seed=st.integers(0, 3),
)
def test_that_all_was_asked_is_said_only_where_it_was(
    sizes: list[int], rule: str, rows: int, yes: int, seed: int
) -> None:
    schema, every = finite(sizes)
    query = every[0]
    target = every[yes] if 0 < yes < len(every) else None
    problem = make_problem(schema, yes_if(lambda row: row == target), *RULES[rule])
    played = play(Wayfinder(), make_case(problem, query, rows=rows, seed=seed), [])
    admitted = {row for row in every[1:] if not problem.violations(query, row)}
    asked, ending = set(asked_rows(played)), played.search.ending
    assert ending is not None
    assert (ending.reason == ALL) == (asked == admitted and len(asked) < rows)
    if rows == 2000 and target not in admitted:
        assert ending == Ending(OutcomeKind.EXHAUSTED, ALL)
    if rows == 2000 and target in admitted:
        assert target in asked


def test_more_combinations_than_can_be_counted_are_not_said_to_be_asked() -> None:
    schema = Schema(tuple(Feature(f"n{i}", "integer", range=(0, 9)) for i in range(6)))
    problem = make_problem(schema, Says(lambda row: 0.2), MaxChanges(at_most=1))
    search = wayfinder(make_case(problem, (0,) * 6, rows=400))
    assert search.archive.evaluated == 6 * 9
    assert search.ending == Ending(
        OutcomeKind.EXHAUSTED,
        "every value tried of 6 features was asked, not every combination there is",
    )


def test_other_methods_say_it_only_where_it_is_so() -> None:
    schema, every = finite([2, 2])
    few = make_case(make_problem(schema, Says(lambda row: 0.2)), every[0], rows=200)
    search = recombine(few)
    assert search.archive.evaluated == len(every) - 1
    assert search.ending == Ending(OutcomeKind.EXHAUSTED, ALL)
    bins = {"hours": (50.0,)}  # rows of one bin are one row to it
    hours = Schema((Feature("hours", "integer", range=(0, 100)),))
    coarse = make_problem(hours, Says(lambda row: 0.2), bins=bins)
    search = recombine(make_case(coarse, (0,), rows=200))
    assert search.archive.evaluated < 100
    assert search.ending is not None
    assert (
        search.ending.reason
        == "no new combination of the known edits was left that the rules allow"
    )
