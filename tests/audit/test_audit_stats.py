from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waysout.audit.stats import (
    SEED,
    median_difference,
    medians,
    share,
    share_difference,
    spread,
)


def test_wilsons_interval() -> None:
    # Newcombe (1998), Statistics in Medicine 17, 857-872: 81 of 263, method 3.
    told = share(81, 263)
    assert told is not None
    assert (round(told.low, 4), round(told.high, 4)) == (0.2553, 0.3662)


def test_newcombes_interval() -> None:
    # Newcombe (1998), Statistics in Medicine 17, 873-890: 56/70 against 48/80, method 10.
    told = share_difference(56, 70, 48, 80)
    assert told is not None
    assert (round(told.low, 4), round(told.high, 4)) == (0.0524, 0.3339)
    assert told.leaves_out_zero


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_intervals_hold_their_figure_and_mirror(a: int, b: int, c: int, d: int) -> None:
    told, mirrored = share_difference(a, a + b, c, c + d), share_difference(c, c + d, a, a + b)
    if told is None or mirrored is None:
        assert not (a + b and c + d)
        return
    assert -1 <= told.low <= told.value <= told.high <= 1
    assert (told.low, told.high) == pytest.approx((-mirrored.high, -mirrored.low))


@pytest.mark.parametrize("n", [2, 7, 8, 41])
def test_medians_are_those_of_real_resamples(n: int) -> None:
    ordered = np.sort(np.random.default_rng(n).gamma(2.0, 1.0, n))
    drawn = medians(ordered, np.random.default_rng(1), 40_000)
    places = np.random.default_rng(2).integers(n, size=(40_000, n))
    real = np.median(ordered[places], axis=1)
    at = (0.025, 0.25, 0.5, 0.75, 0.975)
    width = np.ptp(ordered)
    assert np.quantile(drawn, at) == pytest.approx(np.quantile(real, at), abs=0.04 * width)
    assert drawn.mean() == pytest.approx(real.mean(), abs=0.01 * width)


def test_a_difference_of_medians_is_found_and_noise_is_not() -> None:
    rng = np.random.default_rng(3)
    one, other = rng.normal(1.0, 1.0, 2_000), rng.normal(0.0, 1.0, 2_000)
    told, none = median_difference(one, other), median_difference(other[:1_000], other[1_000:])
    assert told is not None
    assert none is not None
    assert told.leaves_out_zero
    assert told.low < 1.0 < told.high
    assert not none.leaves_out_zero


def test_intervals_of_medians_hold_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(SEED)
    held = 0
    for _ in range(200):
        told = median_difference(rng.exponential(1.0, 60), rng.exponential(1.0, 200))
        held += told is not None and told.low <= 0 <= told.high
    assert 180 <= held <= 200


def test_the_order_of_people_changes_nothing() -> None:
    numbers = np.random.default_rng(4).random(50)
    assert median_difference(numbers[:20], numbers[20:]) == median_difference(
        numbers[19::-1], numbers[:19:-1]
    )


def test_nothing_is_said_of_nothing() -> None:
    none = np.array([])
    assert spread(none) is None
    assert median_difference(none, np.ones(5)) is None
    assert median_difference(np.ones(1), np.ones(5)) is None
    assert share_difference(0, 0, 1, 2) is None


def test_what_floats_add_is_no_difference() -> None:
    told = median_difference(np.full(50, 0.1 + 0.2), np.full(50, 0.3))
    assert told is not None
    assert (told.value, told.leaves_out_zero) == (0.0, False)
