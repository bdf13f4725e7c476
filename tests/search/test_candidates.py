"""Pools of combinations: what is in them, and the fingerprints that tell them apart."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from recombine_world import deciles, library_of, make_problem, numbers

from waysout.domain.schema import Edit
from waysout.search.candidates import fingerprints, make_pool
from waysout.search.library import Combo, EditLibrary


def library(*sizes: int) -> EditLibrary:
    """Return a library with so many choices in each slot."""
    schema = numbers(len(sizes))
    made = library_of(make_problem(schema, bins=deciles(schema)), (0.0,) * len(sizes), own=False)
    for i, size in enumerate(sizes):
        for choice in range(size):
            made.add(Edit(f"n{i}", 15.0 + 10 * choice))
    return made


def pool(
    of: EditLibrary, *parents: Combo, worth: list[float] | None = None, seed: int = 0
) -> list[Combo]:
    found = np.zeros(len(of.tables.slot)) if worth is None else np.array(worth)
    made = make_pool(of.tables, of.padded(parents), found, np.random.default_rng(seed))
    return [tuple(combo) for combo in made[0].tolist()]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=7), st.integers(0, 99))
def test_combinations_are_choices_that_there_are_each_once_and_move_something(
    sizes: list[int], seed: int
) -> None:
    of = library(*sizes)
    worth = np.random.default_rng(seed).normal(size=len(of.tables.slot)).tolist()
    found = pool(of, (), (1,), worth=worth, seed=seed)
    assert all(0 <= c <= size for combo in found for c, size in zip(combo, sizes, strict=True))
    assert len(set(found)) == len(found)
    assert all(any(combo) for combo in found)


def test_neighbours_differ_from_a_parent_in_one_lever() -> None:
    of = library(2, 2, 2, 2, 2, 2)
    parent = (1, 2, 1, 2, 1, 2)
    # Random ones move at most four levers: what moves more comes from the parent.
    near = {combo for combo in pool(of, parent) if sum(c > 0 for c in combo) > 4}
    others = [(*parent[:i], choice, *parent[i + 1 :]) for i in range(6) for choice in range(3)]
    assert near == set(others)


def test_the_ladder_adds_the_best_of_each_lever_the_best_lever_first() -> None:
    of = library(2, 2, 2, 2, 2, 2, 2)
    worth = [0, 1, 6, 0, -1, -2, 0, 5, 4, 0, 3, 1, 0, 2, 2.5, 0, 1, 0, 0, 0.5, 0.1]
    found = pool(of, (), worth=[float(w) for w in worth])
    # The second lever only loses, so it is on no rung.
    assert (2, 0, 1, 1, 2, 1, 0) in found
    assert (2, 0, 1, 1, 2, 1, 1) in found
    assert max(sum(c > 0 for c in combo) for combo in found) == 6


def test_random_ones_prefer_what_seems_better() -> None:
    of = library(3, 3, 3, 3, 3, 3)
    worth = [0.0, 0.0, 3.0, 0.0] * 6
    found = pool(of, worth=worth)
    chosen = np.bincount([c for combo in found for c in combo if c])
    assert chosen[2] > 3 * max(chosen[1], chosen[3])


def test_the_same_draws_give_the_same_pool() -> None:
    of = library(3, 3, 3, 3)
    assert pool(of, (1,), seed=1) == pool(of, (1,), seed=1)
    assert pool(of, (1,), seed=1) != pool(of, (1,), seed=2)


combos = st.lists(st.integers(0, 60), min_size=1, max_size=40)


@given(combos, st.integers(0, 30))
def test_fingerprints_stay_when_slots_are_added(combo: list[int], more: int) -> None:
    short, long = np.array([combo]), np.array([combo + [0] * more])
    assert fingerprints(short).tolist() == fingerprints(long).tolist()


@given(st.lists(st.tuples(*[st.integers(0, 60)] * 6), unique=True, max_size=200))
def test_different_combinations_have_different_fingerprints(found: list[Combo]) -> None:
    prints = fingerprints(np.array(found, dtype=np.int64).reshape(-1, 6))
    assert len(set(prints.tolist())) == len(found)


def test_random_ones_move_up_to_four_levers() -> None:
    found = pool(library(*[3] * 8))
    assert {sum(choice > 0 for choice in combo) for combo in found} == {1, 2, 3, 4}
