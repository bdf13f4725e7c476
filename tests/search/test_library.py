"""The library of edits: what gets in, what combinations of it are, how far they lead."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recombine_world import Says, deciles, library_of, make_problem, numbers

from strategies import rows, schemas
from waysout.domain.rules import Immutable, Linked, OneHot
from waysout.domain.schema import Edit, Feature, Row, Schema, Value
from waysout.search.library import MOST_CHOICES, MOST_LEVERS, EditLibrary

SCHEMA = Schema(
    (
        Feature("income", "integer", range=(0, 100)),
        Feature("school", "category", levels=("basic", "high", "master")),
        Feature("years", "integer", range=(0, 30)),
        Feature("rents", "boolean"),
        Feature("owns", "boolean"),
        Feature("lodges", "boolean"),
        Feature("married", "boolean"),
    )
)
QUERY: Row = (20, "basic", 9, True, False, False, False)
SCHOOL = Linked(feature="school", sets="years", map={"basic": 9, "high": 12, "master": 17})
HOME = OneHot(features=["rents", "owns", "lodges"])
BINS = {"income": (25.0, 50.0, 75.0)}


def library(*, own: bool = False) -> EditLibrary:
    return library_of(make_problem(SCHEMA, None, SCHOOL, HOME, bins=BINS), QUERY, own=own)


def names(of: EditLibrary) -> dict[str, list[Value]]:
    return {slot.lever: [choice.edit.value for choice in slot.choices] for slot in of.slots}


# What gets in -----------------------------------------------------------------------------------


def test_an_edit_that_is_known_changes_nothing() -> None:
    made = library()
    made.add(Edit("income", 60, "earns more"))
    made.add(Edit("income", 60, "said again"))
    assert [choice.edit for choice in made.slots[0].choices] == [Edit("income", 60, "earns more")]
    assert len(made) == 1


def test_what_was_there_unnamed_gets_the_reason_of_who_names_it() -> None:
    made = library(own=True)
    value = names(made)["income"][0]
    before = len(made)
    made.add(Edit("income", value, "earns more"))
    assert made.edits((1,)) == [Edit("income", value, "earns more")]
    assert len(made) == before


@pytest.mark.parametrize(
    "edit",
    [Edit("income", 24), Edit("income", 20), Edit("school", "basic")],
    ids=["the bin of the query", "its own number", "its own level"],
)
def test_an_edit_that_the_key_does_not_tell_from_the_query_stays_out(edit: Edit) -> None:
    made = library()
    assert made.add(edit) == "in the query's own bin"
    assert len(made) == 0
    assert made.slots == []


def test_two_values_of_one_bin_both_get_in() -> None:
    made = library()
    made.add(Edit("income", 60))
    made.add(Edit("income", 70))
    assert names(made) == {"income": [60, 70]}
    first, second = made.slots[0].choices
    assert set(first.effects) < set(second.effects)


def test_an_edit_that_moves_two_levers_stays_out() -> None:
    # Setting b clears a and c, each the first of a group.
    schema = Schema((Feature("a", "boolean"), Feature("b", "boolean"), Feature("c", "boolean")))
    pairs = (OneHot(features=["a", "b"]), OneHot(features=["c", "b"]))
    made = library_of(make_problem(schema, None, *pairs), (True, False, True), own=False)
    assert made.add(Edit("b", True)) == "moves two levers at once"
    assert len(made) == 0


def decimal(*query: float) -> EditLibrary:
    """Return the own edits of a table of numbers with ten bins each."""
    schema = numbers(len(query))
    return library_of(make_problem(schema, bins=deciles(schema)), query)


def test_what_is_named_later_counts_as_named() -> None:
    made = decimal(0.0, 0.0)
    combos = made.padded([(1,), (1, 1), (0, 0)])
    assert made.unnamed(combos).tolist() == [1, 2, 0]
    assert made.add(made.slots[0].choices[0].edit) is None
    assert made.unnamed(combos).tolist() == [0, 1, 0]


def test_the_present_place_is_among_the_choices() -> None:
    assert decimal(45.0).tables.position[0] == 45.0


def test_drawn_values_are_of_other_bins() -> None:
    assert not decimal(0.0, 0.0).add_drawn(np.random.default_rng(0))  # each bin has its value


def test_levers_of_very_many_are_drawn_from_all() -> None:
    made = decimal(*[0.0] * 200)
    assert max(int(slot.lever[1:]) for slot in made.slots) > 100


def test_what_follows_an_edit_is_no_lever() -> None:
    made = library()
    made.add(Edit("school", "master"))
    assert names(made) == {"school": ["master"]}
    assert made.row((1,)) == (20, "master", 17, True, False, False, False)


def test_a_one_hot_group_is_one_slot() -> None:
    made = library(own=True)
    home = next(slot for slot in made.slots if slot.lever == "rents")
    assert [choice.edit for choice in home.choices] == [Edit("owns", True), Edit("lodges", True)]
    assert "owns" not in names(made)
    at = made.slots.index(home)
    assert made.row((0,) * at + (2,)) == (20, "basic", 9, False, False, True, False)


def test_trees_can_tell_the_choices_of_a_group_apart() -> None:
    made = library(own=True)
    at = next(i for i, slot in enumerate(made.slots) if slot.lever == "rents")
    first = made.tables.start[at]
    assert len(set(made.tables.position[first : first + 3].tolist())) == 3


def test_own_edits_are_of_levers_that_may_move() -> None:
    problem = make_problem(SCHEMA, None, SCHOOL, HOME, Immutable(features=["married"]), bins=BINS)
    made = library_of(problem, QUERY)
    assert names(made) == {
        "income": [30, 60, 80],
        "school": ["high", "master"],
        "rents": [True, True],
    }


# What an edit is made of ------------------------------------------------------------------------


def test_numbers_share_the_effects_of_the_edges_they_pass() -> None:
    made = library(own=True)
    near, farther, farthest = (set(choice.effects) for choice in made.slots[0].choices)
    assert near < farther < farthest
    assert len(farthest) == 1 + len(BINS["income"])


def test_up_and_down_share_nothing() -> None:
    made = library_of(make_problem(SCHEMA, None, bins=BINS), (60, *QUERY[1:]))
    down, up = set(made.slots[0].choices[0].effects), set(made.slots[0].choices[-1].effects)
    assert not down & up


def test_without_bins_nought_is_a_number_like_any_other() -> None:
    schema = Schema((Feature("x", "integer", range=(-4, 4)),))
    made = library_of(make_problem(schema), (-4,))
    sizes = [len(choice.effects) for choice in made.slots[0].choices]
    assert sizes == sorted(set(sizes))


def test_a_missing_value_can_be_filled() -> None:
    schema = Schema((Feature("x", "integer", range=(0, 90), missing="fill"),))
    made = library_of(make_problem(schema, bins={"x": (30.0, 60.0)}), (None,))
    assert len(made) > 2
    assert np.isfinite(made.tables.position).all()
    assert np.isfinite(made.distances(made.padded([(1,)]))).all()


# Combinations -----------------------------------------------------------------------------------


def test_combinations_of_fewer_slots_are_filled_up() -> None:
    made = library(own=True)
    width = len(made.slots)
    assert made.padded([(), (1,), (0, 2)]).tolist() == [
        [0] * width, [1, *[0] * (width - 1)], [0, 2, *[0] * (width - 2)],
    ]  # fmt: skip
    assert made.padded([]).shape == (0, width)


def test_combinations_mean_the_same_after_growing() -> None:
    made = library()
    for edit in (Edit("income", 60), Edit("school", "high")):
        made.add(edit)
    combos = [(1, 0), (0, 1), (1, 1)]
    before = [(made.row(c), made.edits(c)) for c in combos]
    far = made.distances(made.padded(combos))
    effects = made.tables.effects[made.tables.places(made.padded(combos))].sum(axis=1)
    made.add_own(np.random.default_rng(0))
    made.add(Edit("income", 99))
    assert [(made.row(c), made.edits(c)) for c in combos] == before
    assert made.distances(made.padded(combos)).tolist() == far.tolist()
    grown = made.tables.effects[made.tables.places(made.padded(combos))].sum(axis=1)
    assert grown[:, : effects.shape[1]].tolist() == effects.tolist()
    assert not grown[:, effects.shape[1] :].any()


@settings(max_examples=40)
@given(st.data())
def test_distances_are_those_of_the_rows(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    query = data.draw(rows(schema))
    problem = make_problem(schema, Says(lambda row: 0.0))
    made = library_of(problem, query)
    combos = [
        tuple(data.draw(st.integers(0, len(slot.choices))) for slot in made.slots) for _ in range(4)
    ]
    wanted = [problem.distance(query, made.row(combo)) for combo in combos]
    found = made.distances(made.padded(combos))
    assert found == pytest.approx(wanted, rel=1e-9)


@given(st.data())
def test_so_are_they_with_links_and_groups(data: st.DataObject) -> None:
    made = library(own=True)
    combo = tuple(data.draw(st.integers(0, len(slot.choices))) for slot in made.slots)
    wanted = made.problem.distance(QUERY, made.row(combo))
    assert made.distances(made.padded([combo]))[0] == pytest.approx(wanted)


# Caps -------------------------------------------------------------------------------------------


def test_very_many_levels_stay_few_choices() -> None:
    levels = tuple(f"t{i}" for i in range(10_000))
    schema = Schema((Feature("town", "category", levels=levels), Feature("x", "boolean")))
    made = library_of(make_problem(schema), ("t0", False))
    for level in levels[1:500]:
        made.add(Edit("town", level), named=False)
    assert len(made.slots[0].choices) == MOST_CHOICES
    assert made.tables.effects.shape == (MOST_CHOICES + 3, MOST_CHOICES + 1)
    made.add(Edit("town", levels[-1]))
    assert len(made.slots[0].choices) == MOST_CHOICES + 1  # what was paid for is kept


def test_very_many_columns_stay_few_levers() -> None:
    schema = numbers(1000)
    made = library_of(make_problem(schema, bins=deciles(schema)), (0.0,) * 1000)
    assert len(made.slots) == MOST_LEVERS
    assert len(made) == 9 * MOST_LEVERS
    # What is named gets in all the same.
    missing = next(name for name in schema.names if name not in names(made))
    made.add(Edit(missing, 50.0))
    assert made.slots[-1].lever == missing


# Rows as combinations ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edits",
    [{"income": 60}, {"school": "master"}, {"owns": True}, {"income": 90, "lodges": True},
     {"school": "high", "married": True}],
)  # fmt: skip
def test_a_row_is_found_again_as_a_combination(edits: dict[str, Value]) -> None:
    made = library()
    row = made.problem.rules.apply(QUERY, edits)
    combo = made.combo(row)
    assert combo is not None
    assert made.row(combo) == row
    assert {edit.feature: edit.value for edit in made.edits(combo)} == edits


def test_a_row_that_no_edits_make_is_no_combination() -> None:
    made = library()
    assert made.combo((20, "master", 9, True, False, False, False)) is None  # years did not follow
    assert made.combo((21, "basic", 9, True, False, False, True)) is None  # in the query's own bin
