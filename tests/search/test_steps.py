from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recombine_world import make_problem
from steps_world import LEVELS, PROBLEM, QUERY, SCHEMA, people, row, slot, values

from waysout.domain.rules import Immutable, Lever, Never
from waysout.domain.schema import Edit, Feature, Schema
from waysout.search.steps import (
    DOWN,
    FRACTIONS,
    LEVEL,
    MOST_LEVELS,
    QUANTILES,
    UP,
    StepMoves,
    Steps,
    finer_values,
    values_to_try,
)

PEOPLE = people()


def income(now: float | None = 40.0, **feature: Any) -> Lever:
    return Lever.of(Feature("income", "number", **{"range": (0, 100), **feature}), now)


# Which values -----------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [None, np.arange(101.0)], ids=["alone", "others"])
def test_numbers_have_values_on_both_sides(others: Any) -> None:
    found = [float(value) for value in values_to_try(income(), others)]  # type: ignore[arg-type]
    up, down = [v for v in found if v > 40], [v for v in found if v < 40]
    assert len(up) > QUANTILES
    assert len(down) > QUANTILES
    assert (max(up), min(down)) == (100, 0)
    assert 40 < min(up) < 45
    assert 35 < max(down) < 40
    assert len(set(found)) == len(found)
    assert len(found) <= 2 * (QUANTILES + FRACTIONS)


def test_a_side_without_room_has_none() -> None:
    assert all(float(v or 0) > 0 for v in values_to_try(income(0.0)))
    assert all(float(v or 0) < 100 for v in values_to_try(income(100.0)))


def test_values_lie_where_those_of_others_do() -> None:
    others = np.sort(np.concatenate([np.linspace(60, 61, 90), np.linspace(80, 90, 10)]))
    found = values_to_try(income(), others)
    assert sum(60 <= float(v or 0) <= 61 for v in found) >= QUANTILES - 3
    # The end of the range is there besides, as a way may lie beyond all that others have.
    assert not any(62 < float(v or 0) < 80 or 90 < float(v or 0) < 100 for v in found)
    assert found.count(100.0) == 1
    # What lies beyond the range is nobody's aim.
    far = values_to_try(income(), np.array([50.0, 60, 400]))
    assert sorted(float(v or 0) for v in far)[-2:] == [60, 100]


def test_a_column_that_is_mostly_zero_has_few_values_but_all_of_them() -> None:
    gain = Lever.of(Feature("gain", "integer", range=(0, 99_999)), 0)
    others = np.array([0.0] * 900 + [1500.0] * 60 + [5000.0] * 30 + [99_999.0] * 10)
    found = values_to_try(gain, others)
    assert {1500, 5000, 99_999} <= set(found)
    assert len([v for v in found if 0 < float(v or 0) < 1500]) == FRACTIONS - 1
    assert len(found) == FRACTIONS + 2


def test_values_keep_to_grids_and_are_round() -> None:
    on = income(52.0).on(5, 0)
    found = values_to_try(on)
    assert set(found) == {*range(20, 85, 5), 0, 10, 90, 100}
    # From between two values of the grid, 50 is the nearest to some that lie above 52.
    assert values_to_try(on, np.arange(101.0)).count(50.0) == 1


def test_codes_are_no_goal_and_have_no_neighbours() -> None:
    delay = Feature("delay", "integer", range=(-9, 60))
    codes = [-9, -8, -7]
    others = np.array([-9.0] * 50 + [-8.0] * 50 + [0.0, 1.0, 2.0, 3.0, 40.0])
    found = values_to_try(Lever.of(delay, 5).without(codes), others)
    assert not set(codes).intersection(found)
    assert {0, 1, 2, 3, 40} <= set(found)  # the many codes leave none of them out
    # From a code nothing is up or down: it is replaced by what others have.
    now = Lever.of(delay, -9).without(codes)
    assert set(values_to_try(now, np.array([-9.0, 3.0, 8.0, 40.0]))) == {3, 8, 40}
    assert len(values_to_try(now)) == QUANTILES - 1


def test_a_category_has_its_levels_however_many_up_to_a_limit() -> None:
    few = Feature("job", "category", levels=("clerk", "cook", "judge"))
    assert values_to_try(Lever.of(few, "cook")) == ["clerk", "judge"]
    many = Feature("job", "category", levels=tuple(map(str, range(1000))))
    assert len(values_to_try(Lever.of(many, "3"))) == MOST_LEVELS


# A table of all kinds ---------------------------------------------------------------------------


def test_every_lever_has_a_slot_of_its_kind() -> None:
    steps = Steps(PROBLEM, QUERY, PEOPLE)
    ways = {found.lever: set(found.ways) for found in steps.slots}
    assert ways == {
        "income": {UP, DOWN}, "gain": {UP}, "amount": {UP, DOWN}, "months": {UP, DOWN},
        "delay": {UP, DOWN}, "tenure": {LEVEL}, "job": {LEVEL}, "school": {UP}, "own": {LEVEL},
    }  # fmt: skip
    assert values(steps, "months") == [12, 36, 60]
    assert {v % 5 for v in values(steps, "amount")} == {0}
    assert min(values(steps, "delay")) >= -6
    assert {1000, 2900} <= set(values(steps, "gain"))
    assert [e.feature for e in slot(steps, "own").edits] == ["rent", "free"]
    assert slot(steps, "school").at == [1 / 3, 2 / 3, 1.0]
    assert len(set(slot(steps, "tenure").levels)) == len(slot(steps, "tenure").levels)
    assert len(steps) == sum(len(found.edits) for found in steps.slots)


def test_without_others_the_range_is_walked() -> None:
    steps = Steps(PROBLEM, QUERY)
    assert [found.lever for found in steps.slots] == [
        found.lever for found in Steps(PROBLEM, QUERY, PEOPLE).slots
    ]
    assert {min(values(steps, "income")), max(values(steps, "income"))} == {0, 100}


def test_what_is_nearer_comes_earlier_on_the_way() -> None:
    for found in Steps(PROBLEM, QUERY, PEOPLE).slots:
        if LEVEL in found.ways or found.lever == "school":
            continue
        now = float(QUERY[SCHEMA.index(found.lever)] or 0)
        for way in set(found.ways):
            pairs = [
                (abs(float(edit.value or 0) - now), at)
                for edit, at, other in zip(found.edits, found.at, found.ways, strict=True)
                if other == way
            ]
            places = [at for _, at in sorted(pairs)]
            assert places == sorted(set(places))
            assert places[-1] == 1.0
            assert min(places) > 0


def test_a_value_between_two_steps_lies_between_them() -> None:
    steps = Steps(PROBLEM, QUERY)
    up = sorted(v for v in values(steps, "income") if v > 20)
    aims = [up[3], (up[3] + up[4]) / 2, up[4], 20 + (up[0] - 20) / 2, up[0]]
    moves = steps.moves([row(income=aim) for aim in aims])
    at = moves.at[:, 0]
    assert at[0] < at[1] < at[2]
    assert at[1] == pytest.approx((at[0] + at[2]) / 2)
    assert at[3] == pytest.approx(at[4] / 2)
    assert set(moves.way[:, 0].tolist()) == {UP}


def test_named_values_join_the_steps() -> None:
    steps = Steps(PROBLEM, QUERY, PEOPLE)
    before = len(steps)
    number, choice = steps.add(Edit("income", 33.3, "a raise"), named=True) or (-1, -1)
    assert len(steps) == before + 1
    assert steps.slots[number].edits[choice].reason == "a raise"
    assert steps.add(Edit("income", 33.3)) == (number, choice)
    known = values(steps, "income")[0]
    found = steps.add(Edit("income", known, "said so"), named=True)
    assert found == (number, 0)
    assert steps.slots[number].edits[0].reason == "said so"
    tables = steps.tables
    assert (tables.unnamed == 0).sum() == 2 + len(steps.slots)  # leaving alone needs no name
    assert len(steps) == before + 1


# Combinations -----------------------------------------------------------------------------------

OPEN = {
    "income": st.floats(0, 100).map(lambda v: round(v, 2)), "gain": st.integers(0, 99_999),
    "amount": st.integers(0, 20).map(lambda v: 5.0 * v), "months": st.sampled_from([12, 36, 60]),
    "delay": st.integers(-6, 60), "tenure": st.integers(0, 40),
    "job": st.sampled_from(["cook", "judge"]), "school": st.sampled_from(LEVELS[1:]),
    "rent": st.just(1), "free": st.just(1),
}  # fmt: skip
EDITS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({}, optional=OPEN)


def assert_same(one: StepMoves, other: StepMoves) -> None:
    np.testing.assert_array_equal(one.way, other.way)
    np.testing.assert_allclose(one.at, other.at)
    np.testing.assert_array_equal(one.level, other.level)


@given(st.lists(EDITS, min_size=1, max_size=5))
def test_any_row_is_a_combination_and_both_do_the_same(edits: list[dict[str, Any]]) -> None:
    steps = Steps(PROBLEM, QUERY, PEOPLE)
    rows = [row(**given_edits) for given_edits in edits]
    combos = [steps.combo(made) for made in rows]
    found = steps.padded(combo for combo in combos if combo is not None)
    assert len(found) == len(rows)
    assert [steps.row(combo) for combo in found.tolist()] == rows
    tables = steps.tables
    assert_same(tables.moves(found), steps.moves(rows))
    np.testing.assert_array_equal(tables.rows(found, steps.start), SCHEMA.encode(rows))
    np.testing.assert_allclose(tables.costs(found), PROBLEM.costs(QUERY, rows))


@given(st.data())
def test_any_combination_is_a_row(data: st.DataObject) -> None:
    steps = Steps(PROBLEM, QUERY, PEOPLE)
    combo = tuple(data.draw(st.integers(0, len(found.edits))) for found in steps.slots)
    made = steps.row(combo)
    assert PROBLEM.violations(QUERY, made) == ()
    assert steps.combo(made) == combo
    moved = {found.lever for found, choice in zip(steps.slots, combo, strict=True) if choice}
    assert PROBLEM.rules.moved(QUERY, made) == moved


def test_a_row_out_of_reach_is_no_combination() -> None:
    steps = Steps(PROBLEM, QUERY)
    assert steps.combo(QUERY) == (0,) * len(steps.slots)
    older = SCHEMA.replace(QUERY, {"age": 50})
    assert steps.combo(older) is None
    years_alone = SCHEMA.replace(QUERY, {"years": 4})
    assert steps.combo(years_alone) is None


def test_combinations_are_filled_up_where_slots_were_added() -> None:
    steps = Steps(PROBLEM, QUERY)
    found = steps.padded([(1,), (0, 2)])
    assert found.shape == (2, len(steps.slots))
    assert found.sum() == 3
    assert steps.padded([]).shape == (0, len(steps.slots))


def test_nothing_to_move_has_no_steps() -> None:
    held = make_problem(SCHEMA, None, Immutable(features=list(SCHEMA.names)))
    steps = Steps(held, QUERY, PEOPLE)
    assert (len(steps), steps.slots) == (0, [])
    assert len(steps.tables.moves(steps.padded([()]))) == 1


# Finer ------------------------------------------------------------------------------------------


def test_refining_ends_where_every_value_is_a_step() -> None:
    schema = Schema((Feature("hours", "integer", range=(0, 500)),))
    steps = Steps(make_problem(schema, None, Never(features=["hours"], values=[77])), (200,))
    before, rounds = len(steps), 0
    while steps.refine():
        rounds += 1
    assert before < 60
    assert rounds < 30
    assert sorted([77, 200, *values(steps, "hours")]) == [*range(501)]


def test_a_missing_number_is_refined_to_its_ends() -> None:
    assert finer_values(income(None), {30.0}, np.array([20.0, 30.0, 60.0])) == [0, 100, 20, 60]


def test_a_step_is_priced_by_what_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand columns each has some steps: to encode all of all rows would take seconds."""
    made, asked = Feature.encode, []

    def noted(feature: Feature, value: Any) -> float:
        asked.append(feature.name)
        return made(feature, value)

    monkeypatch.setattr(Feature, "encode", noted)
    steps = Steps(PROBLEM, QUERY)
    monkeypatch.undo()
    assert len(asked) < len(SCHEMA) + 3 * len(steps)
    for lever in steps.slots:
        rows = [PROBLEM.rules.apply(QUERY, {edit.feature: edit.value}) for edit in lever.edits]
        assert np.array_equal(lever.encoded, SCHEMA.encode(rows), equal_nan=True)
        assert lever.cost == pytest.approx(PROBLEM.distance.costs(steps.start, SCHEMA.encode(rows)))
