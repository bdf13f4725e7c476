from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waysout.bench import stats
from waysout.bench.stats import (
    Paired,
    best_setting,
    bootstrap_interval,
    deviation,
    halves,
    mean_with_zeros,
    non_empty_mean,
    paired,
)

scipy_stats: Any = pytest.importorskip("scipy.stats", reason="needs scipy (waysout[bench])")

# Thirty queries, as unlike each other as those of a table: skewed, with ties and with gaps.
A = [0, 3, 12, 7, 7, 25, 41, 2, 0, 9, 14, 14, 3, 8, 30, 1, 0, 5, 22, 17, 6, 6, 11, 2, 9, 0, 4, 19,
     13, 8]  # fmt: skip
B = [2, 3, 15, 6, 9, 31, 40, 2, 1, 12, 13, 20, 3, 9, 44, 0, 0, 8, 25, 17, 9, 5, 16, 3, 9, 1, 4, 27,
     12, 11]  # fmt: skip

VALUES = st.integers(-60, 60).map(float)
PAIRS = st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=30)
FEW = settings(max_examples=40)


def apart(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in pairs], [b for _, b in pairs]


def test_worked_out_by_hand() -> None:
    # Differences 2, 2, 3, 3: mean 5/2; each is 1/2 off, so the squares sum to 1 and the deviation
    # is √(1/3). t = (5/2) / (√(1/3)/√4) = 5√3, and d_z = (5/2) / √(1/3) = 5√3/2.
    # With 3 degrees of freedom p = 1 − (2/π)·(arctan(t/√3) + (t/√3)/(1 + t²/3)), and t/√3 = 5.
    # A resample's mean is 2 + B/4, B binomial(4, 1/2): 0 and 4 have 6.25 % each, more than 2.5 %,
    # so the interval is from 2 to 3.
    found = paired([1, 2, 3, 4], [3, 4, 6, 7])
    assert (found.n, found.mean_a, found.mean_b, found.delta) == (4, 2.5, 5.0, 2.5)
    assert (found.low, found.high) == (2.0, 3.0)
    assert found.t == pytest.approx(5 * math.sqrt(3))
    assert found.dz == pytest.approx(2.5 * math.sqrt(3))
    assert found.p == pytest.approx(1 - 2 / math.pi * (math.atan(5) + 5 / 26))


def test_two_pairs_by_hand() -> None:
    # Differences 0 and 4: mean 2, deviation √8, t = 2/(√8/√2) = 1; with one degree of freedom
    # p = 1 − (2/π)·arctan 1 = 1/2. Half of all resamples have mean 2, a quarter 0, a quarter 4.
    found = paired([1, 1], [1, 5])
    assert found.t == pytest.approx(1.0)
    assert found.p == pytest.approx(0.5)
    assert found.dz == pytest.approx(1 / math.sqrt(2))
    assert (found.low, found.high) == (0.0, 4.0)


def test_agrees_with_scipy() -> None:
    found = paired(A, B)
    theirs = scipy_stats.ttest_rel(B, A)
    assert found.t == pytest.approx(theirs.statistic, rel=1e-12)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-12)
    differences = np.subtract(B, A, dtype=float)
    drawn = scipy_stats.bootstrap(
        (differences,), np.mean, n_resamples=10_000, method="percentile",
        random_state=np.random.default_rng(42),
    )  # fmt: skip
    assert found.low == pytest.approx(drawn.confidence_interval.low, abs=1e-12)
    assert found.high == pytest.approx(drawn.confidence_interval.high, abs=1e-12)


def test_agrees_with_numpy_step_by_step() -> None:
    found = paired(A, B)
    differences = np.subtract(B, A, dtype=float)
    error = differences.std(ddof=1) / math.sqrt(30)
    assert found.t == pytest.approx(differences.mean() / error)
    assert found.dz == pytest.approx(differences.mean() / differences.std(ddof=1))
    rng = np.random.default_rng(42)
    means = np.sort([differences[rng.integers(30, size=30)].mean() for _ in range(10_000)])
    # The 2.5 % point lies 0.025 · 9999 = 249.975 steps up, between the 250th and the 251st.
    low = means[249] + 0.975 * (means[250] - means[249])
    assert found.low == pytest.approx(low, abs=1e-12)


def test_gaps_are_dropped_in_pairs() -> None:
    gappy_a, gappy_b = [*A, None, 5, None], [*B, 7, None, None]
    assert paired(gappy_a, gappy_b) == paired(A, B)


def test_samples_of_different_lengths_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired([1, 2], [1])


def test_nothing_is_said_of_nothing() -> None:
    assert paired([], []) == paired([None, 1], [1, None]) == Paired(0)


def test_one_pair_has_means_and_no_test() -> None:
    found = paired([1], [4])
    assert found == Paired(1, 1.0, 4.0, 3.0)


@pytest.mark.parametrize("difference", [0.0, 0.1, -120.0])
def test_equal_differences_leave_nothing_to_test(difference: float) -> None:
    # 0.3 + 0.1 − 0.3 is not quite 0.1 in binary: rounding is no spread.
    found = paired([0.3, 0.7, 150.0], [0.3 + difference, 0.7 + difference, 150.0 + difference])
    assert found.delta == pytest.approx(difference)
    assert found.low == found.high == found.delta
    assert (found.t, found.p, found.dz) == (None, None, None)


def test_small_differences_are_no_rounding() -> None:
    assert paired([0.5, 0.5], [0.5, 0.5 + 1e-9]).t is not None


@FEW
@given(PAIRS)
def test_turned_around_all_signs_change(pairs: list[tuple[float, float]]) -> None:
    a, b = apart(pairs)
    one, other = paired(a, b), paired(b, a)
    assert (one.n, one.mean_a, one.delta) == (other.n, other.mean_b, -(other.delta or 0.0))
    assert one.low == pytest.approx(-(other.high or 0.0), abs=1e-9)
    if one.t is not None:
        assert one.t == pytest.approx(-(other.t or 0.0))
        assert one.p == pytest.approx(other.p)


@FEW
@given(PAIRS, st.randoms(use_true_random=False))
def test_order_of_queries_does_not_matter_to_t(
    pairs: list[tuple[float, float]], random: Any
) -> None:
    mixed = random.sample(pairs, len(pairs))
    one, other = paired(*apart(pairs)), paired(*apart(mixed))
    assert one.delta == pytest.approx(other.delta, abs=1e-9)
    assert (one.t is None) == (other.t is None)
    if one.t is not None:
        assert one.t == pytest.approx(other.t, rel=1e-6, abs=1e-9)


@FEW
@given(PAIRS)
def test_interval_and_effect_fit_the_mean(pairs: list[tuple[float, float]]) -> None:
    found = paired(*apart(pairs))
    differences = [b - a for a, b in pairs]
    assert found.low is not None
    assert found.high is not None
    assert found.delta is not None
    assert min(differences) - 1e-9 <= found.low <= found.delta + 1e-9
    assert found.delta - 1e-9 <= found.high <= max(differences) + 1e-9
    if found.t is not None:
        assert found.dz == pytest.approx(found.t / math.sqrt(found.n))
        assert found.p is not None
        assert 0 <= found.p <= 1


@FEW
@given(PAIRS, st.integers(1, 50).map(float))
def test_a_shift_of_one_side_moves_the_interval(
    pairs: list[tuple[float, float]], shift: float
) -> None:
    a, b = apart(pairs)
    before, after = paired(a, b), paired(a, [value + shift for value in b])
    assert after.low == pytest.approx((before.low or 0.0) + shift, abs=1e-9)
    assert after.high == pytest.approx((before.high or 0.0) + shift, abs=1e-9)


def test_the_interval_is_the_same_every_time() -> None:
    # Written down once: other resamples, another seed or other percentiles give another.
    low, high = bootstrap_interval(np.sqrt(np.arange(9.0)) - 1)
    assert (low, high) == pytest.approx((0.228884985938, 1.326285650747), abs=1e-11)


def test_means_differ_by_what_empties_count_as() -> None:
    assert non_empty_mean([1.0, None, 3.0]) == 2.0
    assert mean_with_zeros([1.0, None, 3.0, None]) == 1.0
    assert mean_with_zeros([None, None]) == 0.0
    assert non_empty_mean([None]) is None
    assert mean_with_zeros([]) is None


def test_deviation_by_hand() -> None:
    # 2, 4, 9: mean 5, squares 9 + 1 + 16 = 26, over n − 1 = 2.
    assert deviation([2, None, 4, 9]) == pytest.approx(math.sqrt(13))
    assert deviation([2.0, None]) is None


def test_volumes_by_hand() -> None:
    end = (1.0, 1.0, 1.0)
    assert stats.hypervolume([], end) == 0.0
    assert stats.hypervolume([(0.5, 0.5, 0.0)], end) == 0.25
    # 0.25 and 0.1, of which (1 − 0.5) × (1 − 0.5) × (1 − 0.9) is in both.
    both = [(0.5, 0.5, 0.0), (0.0, 0.0, 0.9)]
    assert stats.hypervolume(both, end) == pytest.approx(0.25 + 0.1 - 0.025)
    beyond = [*both, (0.6, 0.6, 0.1), (0.0, 1.5, 0.0), (0.5, 0.5, 0.0)]  # dominated, outside, equal
    assert stats.hypervolume(beyond, end) == pytest.approx(0.325)


def test_volumes_agree_with_pymoo() -> None:
    hv = pytest.importorskip("pymoo.indicators.hv").HV(ref_point=np.ones(3))
    points = np.random.default_rng(0).random((5, 3))
    assert stats.hypervolume(points.tolist(), (1, 1, 1)) == pytest.approx(hv(points))


def test_halves_of_thirty() -> None:
    validation, test = halves(30)
    assert validation == (5, 6, 7, 9, 10, 16, 18, 19, 20, 21, 22, 24, 25, 26, 29)
    assert sorted(validation + test) == list(range(30))
    assert len(validation) == len(test) == 15


@pytest.mark.parametrize(("n", "sizes"), [(0, (0, 0)), (1, (0, 1)), (5, (2, 3)), (12, (6, 6))])
def test_halves_of_other_numbers(n: int, sizes: tuple[int, int]) -> None:
    validation, test = halves(n)
    assert (len(validation), len(test)) == sizes
    assert sorted(validation + test) == list(range(n))


def test_choice_and_its_ties() -> None:
    assert best_setting({("global", 0.02): 3.0, ("path", 0.01): 2.0}) == ("global", 0.02)
    assert best_setting({("path", 0.02): 3.0, ("window", 0.01): 3.0}) == ("window", 0.01)
    tied = {("global", 0.01): 3.0, ("window", 0.01): 3.0, ("path", 0.01): 3.0}
    assert best_setting(tied) == ("path", 0.01)
    assert best_setting({("global", 0.01): 3.0, ("window", 0.01): 3.0}) == ("window", 0.01)


def test_missing_scipy_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from waysout.errors import MissingExtra

    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingExtra, match=r"waysout\[bench\]"):
        stats.paired([1, 2], [1, 4])
