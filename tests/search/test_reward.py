"""The paper's reward formulas, against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waysout.errors import InputError
from waysout.search.reward import PRESETS, Baseline, Evidence, SelfConsistency, Weights, reward

# p = 0.7, d = 1 (proximity 1/2), three changes (sparsity 1/4), novelty 0.2.
SEEN = Evidence(probability=0.7, approved=True, distance=1.0, changes=3, novelty=0.2)
GATE = 1 / (1 + exp(-2))  # (0.7 - 0.5) / 0.1 = 2


@pytest.mark.parametrize(
    ("name", "mean"),
    [
        ("balanced", (0.7 + 0.25 + 0.125 + 0.04) / 2.2),
        ("validity", (1.4 + 0.15 + 0.075 + 0.02) / 2.7),
        ("quality", (0.7 + 0.5 + 0.25 + 0.06) / 3.3),
        ("diversity", (0.7 + 0.25 + 0.125 + 0.2) / 3.0),
        ("equal", (0.7 + 0.5 + 0.25 + 0.2) / 4.0),
        ("3, 1, 0, 0", (2.1 + 0.5) / 4.0),
    ],
)
def test_presets_and_own_weights(name: str, mean: float) -> None:
    assert reward(name)(SEEN) == pytest.approx(GATE * mean)


def test_the_presets_are_the_papers() -> None:
    assert PRESETS == {
        "balanced": (1.0, 0.5, 0.5, 0.2),
        "validity": (2.0, 0.3, 0.3, 0.1),
        "quality": (1.0, 1.0, 1.0, 0.3),
        "diversity": (1.0, 0.5, 0.5, 1.0),
        "equal": (1.0, 1.0, 1.0, 1.0),
    }


@pytest.mark.parametrize(
    ("gain", "expected"),
    [(None, 0.0), (-0.1, 0.0), (0.0, 0.0), (0.3, 0.15), (1.0, 0.5), (1.7, 0.5), (9.0, 0.5)],
)
def test_baseline_gives_a_no_at_most_a_half(gain: float | None, expected: float) -> None:
    no = replace(SEEN, approved=False, gain=gain)
    assert Baseline()(no) == pytest.approx(expected)
    assert Baseline()(replace(no, approved=True)) == 1.0


def test_baselines_scale_divides_the_gain() -> None:
    assert Baseline(scale=2.0)(replace(SEEN, approved=False, gain=1.0)) == pytest.approx(0.25)


def test_self_consistency_adds_its_share() -> None:
    assert SelfConsistency()(replace(SEEN, agreement=0.5)) == pytest.approx(1.15)
    assert SelfConsistency()(replace(SEEN, approved=False, agreement=1.0)) == pytest.approx(0.3)


def test_a_goal_moves_the_gate() -> None:
    strict = reward("equal", threshold=0.9)
    assert strict(SEEN) == pytest.approx(reward("equal")(SEEN) / GATE / (1 + exp(2)))


@given(
    st.floats(0, 1), st.floats(0, 1e6), st.integers(0, 50), st.floats(0, 1),
    st.tuples(*[st.floats(0, 100)] * 4).filter(lambda w: sum(w) > 0),
)  # fmt: skip
def test_rewards_stay_between_0_and_1(
    chance: float, distance: float, changes: int, new: float, weights: tuple[float, ...]
) -> None:
    seen = Evidence(chance, chance >= 0.5, distance, changes, new)
    assert 0.0 <= Weights(*weights)(seen) <= 1.0 + 1e-12


@pytest.mark.parametrize("wrong", ["balancd", "1,2,3", "0,0,0,0", "-1,1,1,1", "1,1,1,nan", ""])
def test_a_wrong_reward_is_refused(wrong: str) -> None:
    with pytest.raises(InputError):
        reward(wrong)


def test_an_unknown_reward_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'balanced'"):
        reward("balancd")
