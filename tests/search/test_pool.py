from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from steps_world import PROBLEM, QUERY, people

from waysout.search import pool
from waysout.search.pool import around, distinct, farthest, random_combos, singles
from waysout.search.steps import LEVEL, Combos, Steps, StepTables

STEPS = Steps(PROBLEM, QUERY, people())
TABLES = STEPS.tables
WIDTH = len(STEPS.slots)
NAMES = [slot.lever for slot in STEPS.slots]


def combo(**choices: int) -> Combos:
    return STEPS.padded([[choices.get(name, 0) for name in NAMES]])


def nth(lever: str, share: float, way: int) -> int:
    """Return the choice of a lever that lies nearest to a share of its way."""
    slot = STEPS.slots[NAMES.index(lever)]
    gaps = [
        abs(at - share) if other == way else np.inf
        for at, other in zip(slot.at, slot.ways, strict=True)
    ]
    return 1 + int(np.argmin(gaps))


def neighbours(parents: Combos, seed: int = 0) -> Combos:
    return around(TABLES, parents, np.random.default_rng(seed))


def is_valid(combos: Combos, tables: StepTables = TABLES) -> bool:
    return bool((combos >= 0).all() and (combos < tables.sizes).all())


def test_singles_are_every_choice_alone() -> None:
    found = singles(TABLES)
    assert len(found) == len(STEPS) == len({tuple(c) for c in found.tolist()})
    assert ((found > 0).sum(axis=1) == 1).all()
    assert is_valid(found)
    assert found.max(axis=0).tolist() == [len(slot.edits) for slot in STEPS.slots]


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_neighbours_differ_in_one_lever_or_are_walked_back_together(seed: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    parent = random_combos(TABLES, rng, 1, 1, most)
    found = neighbours(parent, seed)
    assert is_valid(found)
    differ = (found != parent).sum(axis=1)
    together = found[differ > 1]
    # Nothing is added or dropped when all go back; levels stay, numbers keep their direction.
    assert ((together > 0) == (parent > 0)).all()
    before, after = TABLES.moves(parent), TABLES.moves(together)
    assert (after.way == before.way).all()
    assert (after.at <= before.at + 0.1).all()
    levels = before.way[0] == LEVEL
    assert (together[:, levels] == parent[:, levels]).all()


def test_every_lever_is_dropped_and_walked_back_in_turn() -> None:
    parent = combo(income=nth("income", 0.6, 0), job=1, months=3)
    found = {tuple(c) for c in neighbours(parent).tolist()}
    for name in ("income", "job", "months"):
        dropped = parent.copy()
        dropped[0, NAMES.index(name)] = 0
        assert tuple(dropped[0].tolist()) in found
    at = {TABLES.moves(STEPS.padded([c])).at[0, 0] for c in found}
    assert any(0.25 < share < 0.35 for share in at)  # half of it
    assert min(share for share in at if share) < 0.2  # a quarter
    assert len([share for share in at if 0.4 < share < 0.8]) >= 5  # and the steps beside it


def test_walked_back_together_means_a_share_of_each() -> None:
    parent = combo(income=nth("income", 0.9, 0), delay=nth("delay", 0.9, 0), job=2)
    found = neighbours(parent)
    both = found[((found > 0) == (parent > 0)).all(axis=1) & ((found != parent).sum(axis=1) > 1)]
    at = TABLES.moves(both).at[:, [NAMES.index("income"), NAMES.index("delay")]]
    assert len(both) >= 3
    assert np.abs(at[:, 0] - at[:, 1]).max() < 0.15
    assert (both[:, NAMES.index("job")] == 2).all()


def test_nobody_has_no_neighbours() -> None:
    assert len(neighbours(STEPS.padded([]))) == 0
    nothing = neighbours(STEPS.padded([()]))
    assert ((nothing > 0).sum(axis=1) <= 1).all()


@pytest.mark.parametrize(("fewest", "most"), [(1, 1), (2, 4), (3, 99), (99, 99)])
def test_random_combinations_move_as_many_levers_as_said(fewest: int, most: int) -> None:
    found = random_combos(TABLES, np.random.default_rng(0), 400, fewest, most)
    moved = (found > 0).sum(axis=1)
    assert is_valid(found)
    assert {int(moved.min()), int(moved.max())} == {min(fewest, WIDTH), min(most, WIDTH)}
    assert ((found > 0).any(axis=0)).all()
    again = random_combos(TABLES, np.random.default_rng(0), 400, fewest, most)
    assert (found == again).all()


def test_every_choice_may_be_drawn() -> None:
    found = random_combos(TABLES, np.random.default_rng(0), 3000, WIDTH, WIDTH)
    for slot, size in enumerate(TABLES.sizes.tolist()):
        assert set(found[:, slot].tolist()) == set(range(1, size))


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), max_size=30))
def test_each_combination_is_kept_once_in_order(combos: list[list[int]]) -> None:
    given_combos = np.array(combos, dtype=np.int32).reshape(len(combos), 3)
    wanted = [c for c in dict.fromkeys(map(tuple, combos)) if any(c)]
    assert list(map(tuple, distinct(given_combos).tolist())) == wanted


def test_the_farthest_go_to_the_end_of_each_direction_and_keep_levels() -> None:
    drawn = random_combos(TABLES, np.random.default_rng(0), 200, 1, WIDTH)
    found = farthest(TABLES, drawn)
    before, after = TABLES.moves(drawn), TABLES.moves(found)
    assert (before.way == after.way).all()
    levels = (before.way == LEVEL) | (before.way < 0)
    assert (found[levels] == drawn[levels]).all()
    assert (after.at[~levels] == 1.0).all()
    assert (farthest(TABLES, found) == found).all()


def test_of_a_wide_table_some_neighbours_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = random_combos(TABLES, np.random.default_rng(3), 9, 2, 4)
    every = neighbours(parents)
    monkeypatch.setattr(pool, "_MOST_CELLS", 20 * WIDTH)
    some = neighbours(parents)
    assert is_valid(some)
    assert 9 + 20 <= len(some) < len(every)
    drawn = some[9 : 9 + 20]
    assert ((drawn[:, None] != parents).sum(axis=2).min(axis=1) <= 1).all()
    assert len({tuple(moved) for moved in drawn.tolist()}) > 10
