"""The ranking: chance × quality × novelty, and what is needless."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waysout.search.candidates import LeanOptions, Ranking, fingerprints
from waysout.search.library import Combo

A, B, AB, A2 = (1, 0, 0), (0, 1, 0), (1, 1, 0), (2, 0, 0)


def lean(*options: Combo) -> LeanOptions:
    made = LeanOptions()
    for option in options:
        made.add(option)
    return made


def ranking(
    combos: Sequence[Combo],
    scores: list[float],
    *,
    novelty: float = 0.0,
    tried: dict[Combo, int] | None = None,
    needless: float = 0.0,
    found: LeanOptions | None = None,
) -> Ranking:
    times = {int(fingerprints(np.array([c]))[0]): n for c, n in (tried or {}).items()}
    return Ranking(
        np.array(combos, dtype=np.int64).reshape(-1, 3), np.array(scores, dtype=np.float64),
        most=5, novelty=novelty, tried=times, needless=needless, lean=found or lean(),
    )  # fmt: skip


def order(of: Ranking) -> list[Combo]:
    found = []
    while (combo := of.pop()) is not None:
        found.append(combo)
    return found


def test_the_best_first_and_each_once() -> None:
    assert order(ranking([A, B, AB], [-2.0, -1.0, -3.0])) == [B, A, AB]
    assert order(ranking([], [])) == []


def test_what_was_taken_makes_its_like_less_new() -> None:
    # After A, its like A2 is at -0.1 - log(2) = -0.79, behind B.
    assert order(ranking([A, A2, B], [0.0, -0.1, -0.5], novelty=1.0)) == [A, B, A2]
    assert order(ranking([A, A2, B], [0.0, -0.1, -0.5], novelty=0.5)) == [A, A2, B]


def test_what_was_tried_before_counts() -> None:
    tried: dict[Combo, int] = {A: 3}  # the levers of A and of A2
    assert order(ranking([A, B], [0.0, -1.0], novelty=1.0, tried=tried)) == [B, A]
    assert order(ranking([A, B], [0.0, -1.5], novelty=1.0, tried=tried)) == [A, B]


def test_needless_edits_cost() -> None:
    combos, scores = [AB, A2], [0.0, -0.3]
    assert order(ranking(combos, scores, needless=0.5, found=lean(A))) == [A2, AB]
    assert order(ranking(combos, scores, needless=0.2, found=lean(A))) == [AB, A2]
    assert order(ranking(combos, scores, needless=0.5)) == [AB, A2]


def test_an_option_that_contains_another_is_not_lean() -> None:
    found = lean(A, AB, (0, 1, 1))
    combos = np.array([AB, A, (2, 1, 0), (2, 1, 1), (0, 1, 1), (1, 1, 1)])
    assert found.within(combos).tolist() == [True, False, False, True, False, True]


def test_a_smaller_option_found_later_takes_over() -> None:
    found = lean(AB, A)
    assert found.within(np.array([(1, 0, 2), AB])).tolist() == [True, True]


combos = st.tuples(*[st.integers(0, 2)] * 4).filter(any)


@pytest.mark.filterwarnings("error")
@given(st.lists(combos, max_size=12), st.lists(combos, min_size=1, max_size=12))
def test_padded_is_what_has_all_edits_of_an_option_and_more(
    options: list[Combo], asked: list[Combo]
) -> None:
    def edits(combo: Combo) -> set[tuple[int, int]]:
        return {(slot, choice) for slot, choice in enumerate(combo) if choice}

    wanted = [any(edits(option) < edits(combo) for option in options) for combo in asked]
    assert lean(*options).within(np.array(asked)).tolist() == wanted


def test_of_very_many_lean_options_the_shortest_are_kept() -> None:
    found = lean(*((0, i, i) for i in range(1, 300)), A)
    assert found.within(np.array([(1, 999, 0)])).all()


def test_what_is_new_is_seen_past_many_of_the_same_levers() -> None:
    many: list[Combo] = [(i, 0, 0) for i in range(1, 30)]
    made = ranking([*many, B], [0.0] * 29 + [-0.1], novelty=1.0)
    assert [made.pop(), made.pop()] == [A, B]
