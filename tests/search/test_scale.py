from __future__ import annotations

import math

import numpy as np
import pytest
from recombine_world import Says, make_case, make_problem, numbers

from waysout.domain.oracle import Goal
from waysout.search.surrogate import LogitScale


def scale(chance: float, goal: Goal | None = None, *, labels_only: bool = False) -> LogitScale:
    oracle = Says(lambda row: chance, labels_only=labels_only)
    return LogitScale(make_case(make_problem(numbers(1), oracle, goal=goal), (0.0,)))


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def chance(of: LogitScale, p: float) -> float:
    return float(of.chances(np.array([logit(p)]))[0])


def test_even_chances_lie_where_the_model_decides() -> None:
    made = scale(0.2)
    assert made.start == pytest.approx(logit(0.2))
    assert chance(made, 0.5) == pytest.approx(0.5)
    assert chance(made, 0.2) < 0.05 < 0.95 < chance(made, 0.8)


def test_the_border_is_learnt_from_the_answers() -> None:
    made = scale(0.1)
    made.logit(0.35, yes=True)
    assert chance(made, 0.35) == pytest.approx(0.5)
    other = scale(0.1)
    other.logit(0.7, yes=False)
    assert chance(other, 0.7) == pytest.approx(0.5)


def test_answers_that_contradict_each_other_leave_the_border_where_it_was() -> None:
    made = scale(0.1)
    made.logit(0.3, yes=True)
    made.logit(0.4, yes=False)
    assert chance(made, 0.5) == pytest.approx(0.5)


def test_within_an_interval_the_chance_falls_again_beyond_its_end() -> None:
    made = scale(0.2, Goal(at_least=0.5, at_most=0.75))
    assert chance(made, 0.62) > 2 * chance(made, 0.9)
    assert chance(made, 0.62) > 2 * chance(made, 0.2)
    assert made.logit(0.9, yes=False) > made.logit(0.7, yes=True)


def test_where_less_is_wanted_less_is_likelier() -> None:
    made = scale(0.8, Goal(at_most=0.3))
    # Logits are those of what a probability is worth for the goal.
    assert made.logit(0.2, yes=True) > made.logit(0.6, yes=False)


@pytest.mark.parametrize(("at_least", "told"), [(0.999, (0.998, 0.9995)), (0.003, (0.001, 0.004))])
def test_probabilities_are_told_apart_where_the_goal_lies(
    at_least: float, told: tuple[float, float]
) -> None:
    made = scale(0.0005, Goal(at_least=at_least))
    low, high = (made.logit(p, yes=p >= at_least) for p in told)
    assert low < logit(at_least) < high


def test_certainty_and_labels_have_finite_logits() -> None:
    assert scale(0.0).start == pytest.approx(logit(0.005))
    assert scale(0.0, labels_only=True).start == pytest.approx(logit(0.12))
