from __future__ import annotations

import numpy as np
import pytest
from baseline_cases import QUERY, SCHEMA, make_case, row, rule_lists
from hypothesis import given
from hypothesis import strategies as st

from strategies import rows, schemas
from waysout.domain.rules import Direction, Immutable, Never, Range, Rule, Step
from waysout.domain.schema import Feature, Row, Schema
from waysout.search.space import Coordinates, Space


def space(query: Row = QUERY, *rules: Rule, schema: Schema = SCHEMA) -> Space:
    problem = make_case(query, rules, schema=schema).problem
    return Space(problem, query)


def moved(made: Space, **coordinates: float) -> Row:
    """Return the row at a point; a number is given by name, a level as ``feature_level``."""
    names: list[str] = []
    for lever in made.levers.values():
        name, choices = lever.feature.name, lever.choices()
        own = ["now", *map(str, choices)] if choices is not None else []
        names += [f"{name}_{choice}" for choice in own] or [name]
    assert set(coordinates) <= set(names)
    points = np.array([[coordinates.get(name, 0.0) for name in names]])
    return made.rows(Coordinates(made).encoded(points))[0]


def test_the_origin_is_the_query() -> None:
    made = space()
    assert Coordinates(made).width == 4 + 3 + 2 + 3 * 2
    assert moved(made) == QUERY


def test_numbers_move_by_scales_up_to_their_bounds() -> None:
    made = space(QUERY, Direction(features=["debt"], direction="up"))
    assert moved(made, income=1.5, debt=0.123, term=-0.96) == row(income=35.0, debt=31.2, term=2)
    assert moved(made, income=1e9, debt=-3.0, term=-1e9) == row(income=100.0, term=1)


def test_categories_flip_only_where_another_level_gets_ahead() -> None:
    made = space()
    assert moved(made, job_clerk=0.9, rents_False=0.9) == QUERY
    assert moved(made, job_clerk=1.1) == row(job="clerk")
    assert moved(made, job_clerk=0.6, job_now=-0.5, owns_True=1.2) == row(job="clerk", owns=True)


def test_levels_that_are_not_allowed_have_no_coordinate() -> None:
    barred = Never(features=["job"], values=["none"])
    assert Coordinates(space(QUERY, barred)).width == Coordinates(space()).width - 1


def test_missing_values_stay_missing_near_by() -> None:
    schema = Schema(
        (
            Feature("x", "number", range=(0, 100), missing="fill"),
            Feature("job", "category", levels=("cook", "clerk"), missing="fill"),
        )
    )
    made = space((None, None), schema=schema)
    assert moved(made, x=0.9, job_cook=0.9) == (None, None)
    assert moved(made, x=-1.5, job_clerk=1.1) == (45.0, "clerk")
    assert moved(made, x=1.0) == (50.0, None)  # the middle of what is allowed comes first


def test_reach_is_the_farthest_value_in_scales() -> None:
    numbers = Immutable(features=["job", "school", "rents", "owns", "lodges"])
    assert Coordinates(space(QUERY, numbers)).reach == 8.0
    assert Coordinates(space(QUERY, numbers, Range(feature="income", max=60))).reach == 7.0


def test_what_did_not_change_is_the_querys_own_to_the_last_digit() -> None:
    query = row(debt=30.123456)
    made = space(query)
    assert moved(made, income=1.0) == SCHEMA.replace(query, {"income": 30.0})
    assert moved(made, debt=1.0) == row(debt=40.1)


def test_sizes_are_in_scales_and_one_for_all_else() -> None:
    sizes = space().sizes(row(income=45.0, term=8, job="clerk"))
    assert [sizes[SCHEMA.index(name)] for name in ("income", "debt", "term")] == [2.5, 0.0, 0.4]
    assert sizes[SCHEMA.index("job")] == 1.0


def test_draws_come_from_all_that_is_allowed() -> None:
    made = space(QUERY, Range(feature="income", min=60, max=80), Immutable(features=["term"]))
    drawn = made.drawn(300, np.random.default_rng(0))
    incomes = drawn[:, SCHEMA.index("income")]
    assert (incomes.min(), incomes.max()) == pytest.approx((60, 80), abs=0.5)
    assert set(drawn[:, SCHEMA.index("term")]) == {12.0}
    assert set(drawn[:, SCHEMA.index("job")]) == {0.0, 2.0}


def test_rows_off_the_grid_are_put_on_it() -> None:
    made = space(QUERY, Step(feature="income", step=25))
    assert moved(made, income=5.3) == row(income=75.0)


@given(st.data())
def test_rows_keep_the_rules_wherever_they_lie(data: st.DataObject) -> None:
    schema = data.draw(st.just(SCHEMA) | schemas())
    query = QUERY if schema is SCHEMA else data.draw(rows(schema))
    case = make_case(query, data.draw(rule_lists(schema)), schema=schema)
    made, rng = Space(case.problem, query), np.random.default_rng(data.draw(st.integers(0, 9)))
    coordinates = Coordinates(made)
    points = data.draw(st.sampled_from([0.1, 2.0, 1e6])) * rng.normal(size=(5, coordinates.width))
    broken = {violation.rule for violation in case.problem.violations(query, query)}
    for found in made.rows(np.concatenate([coordinates.encoded(points), made.drawn(5, rng)])):
        assert {v.rule for v in case.problem.violations(query, found)} <= broken
