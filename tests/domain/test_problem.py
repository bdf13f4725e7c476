from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from waysout.domain.card import Card
from waysout.domain.oracle import Answers, Goal
from waysout.domain.problem import Problem
from waysout.domain.result import Outcome, OutcomeKind
from waysout.domain.rules import Immutable, Range
from waysout.domain.schema import Row
from waysout.errors import CardError, InputError

CARD_TEXT = """
card = 1
name = "t"
[outcome]
target = "y"
positive = 1
yes = "hired"
[features.score]
kind = "number"
range = [0, 10]
bins = [5]
[features.degree]
kind = "category"
levels = ["no", "yes"]
[features.years]
kind = "integer"
range = [0, 20]
[[rules.usual]]
kind = "linked"
feature = "degree"
sets = "years"
map = { no = 10, yes = 15 }
"""
CARD = Card.parse(CARD_TEXT)


class Ramp:
    """Approves by score: the probability is score / 10."""

    name = "ramp"
    labels_only = False

    def ask(self, rows: Sequence[Row]) -> Answers:
        probability = np.array([float(row[0] or 0) / 10 for row in rows])
        return Answers(probability, probability >= 0.5)


class Labels(Ramp):
    labels_only = True


QUERY: Row = (2.0, "no", 10)


def settle(problem: Problem, query: Row) -> Outcome | None:
    return problem.settled(query, problem.oracle.ask([query]))


def test_an_option_shows_what_changes() -> None:
    problem = Problem.from_card(CARD, Ramp())
    row = problem.rules.apply(QUERY, {"score": 6.0, "degree": "yes"})
    option = problem.option(QUERY, row, 0.6, ["study"])
    assert option.changes == {"score": (2.0, 6.0), "degree": ("no", "yes"), "years": (10, 15)}
    assert option.sparsity == 2
    assert option.key == '{"degree":"yes","score":1,"years":15}'
    # numbers: (4/2.5)² and (5/5)², categories: 1 of 1
    assert option.proximity == pytest.approx(1 / (1 + 0.5 * np.sqrt((2.56 + 1) / 2) + 0.5))


def test_already_approved_is_known_before_any_search() -> None:
    settled = settle(Problem.from_card(CARD, Ramp()), (7.0, "no", 10))
    assert settled is not None
    assert settled.kind is OutcomeKind.ALREADY_APPROVED
    assert settled.reason == "hired already"


def test_an_approved_row_that_breaks_a_rule_is_not_settled() -> None:
    problem = Problem.from_card(CARD, Ramp(), rules=[Range(feature="score", max=6)])
    assert settle(problem, (7.0, "no", 10)) is None


def test_infeasible_names_the_binding_rule() -> None:
    fixed = Immutable(name="as is", features=["score", "degree", "years"])
    settled = settle(Problem.from_card(CARD, Ramp(), rules=[fixed]), QUERY)
    assert settled is not None
    assert settled.kind is OutcomeKind.INFEASIBLE
    assert settled.best_probability == 0.2
    assert [v.features for v in settled.binding] == [("score", "degree"), ("years",)]
    assert {v.rule for v in settled.binding} == {"as is", "degree sets years"}
    assert settled.reason.startswith("score, degree are fixed: may not change; ")


def test_a_broken_rule_that_cannot_be_mended_is_named() -> None:
    rules = [Range(feature="score", min=5), Immutable(features=["score"])]
    settled = settle(Problem.from_card(CARD, Ramp(), rules=rules), QUERY)
    assert settled is not None
    assert settled.reason == "score is 2, must be 5 or more, but may not change"


def test_a_follower_that_another_edit_moves_is_no_obstacle() -> None:
    problem = Problem.from_card(CARD, Ramp(), rules=[Range(feature="years", min=12)])
    assert settle(problem, QUERY) is None
    assert problem.violations(QUERY, problem.rules.apply(QUERY, {"degree": "yes"})) == ()


def test_a_rise_beyond_certainty_is_infeasible() -> None:
    problem = Problem.from_card(CARD, Ramp(), goal=Goal(rise=0.2))
    assert settle(problem, (7.0, "no", 10)) is None
    settled = settle(problem, (9.0, "no", 10))
    assert settled is not None
    assert settled.kind is OutcomeKind.INFEASIBLE
    assert "cannot rise by 0.2" in settled.reason


def test_a_function_is_not_yet_an_oracle() -> None:
    with pytest.raises(InputError, match="as_oracle"):
        Problem.from_card(CARD, len)  # type: ignore[arg-type]


def test_an_ordinary_rejection_is_left_to_the_search() -> None:
    assert settle(Problem.from_card(CARD, Ramp()), QUERY) is None


def test_scales_come_from_training_rows() -> None:
    training: list[Row] = [(float(i), "no", i % 3) for i in range(100)]
    problem = Problem.from_card(CARD, Ramp(), training=training)
    assert problem.distance.scales["score"] == 25.0


def test_a_scale_that_the_card_states_holds_also_beside_training_rows() -> None:
    stated = CARD_TEXT.replace("bins = [5]", "bins = [5]\nscale = 4")
    training: list[Row] = [(float(i), "no", i % 3) for i in range(100)]

    def scales(text: str, rows: Sequence[Row]) -> Mapping[str, float]:
        return Problem.from_card(Card.parse(text), Ramp(), training=rows).distance.scales

    assert scales(stated, ()) == {"score": 4.0, "years": 5.0}
    assert scales(stated, training) == {"score": 4.0, "years": 1.0}
    left = stated.replace('name = "t"', 'name = "t"\nscales = "training"')
    assert scales(left, ()) == {"score": 4.0, "years": 5.0}
    assert scales(left, training) == {"score": 25.0, "years": 1.0}
    with pytest.raises(CardError, match="unknown source of scales 'trainig'; did you mean"):
        Card.parse(left.replace('"training"', '"trainig"'))


def test_fit_bins_come_from_training_rows() -> None:
    training: list[Row] = [(float(i), "no", i % 3) for i in range(100)]
    problem = Problem.from_card(CARD, Ramp(), training=training, binning="fit")
    assert problem.key.bins == {"score": (9.0, 19.0, 29.0, 39.0, 49.0, 59.0, 69.0, 79.0, 89.0)}
    with pytest.raises(InputError, match="training rows"):
        Problem.from_card(CARD, Ramp(), binning="fit")


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (Goal(), [False, True, True]),
        (Goal(at_least=0.8), [False, False, True]),
        (Goal(at_least=0.3, at_most=0.7), [False, True, False]),
        (Goal(rise=0.3).for_query(0.2), [False, True, True]),
    ],
)
def test_goals(goal: Goal, met: list[bool]) -> None:
    answers = Ramp().ask([(2.0,), (6.0,), (9.0,)])
    assert list(goal.met(answers)) == met


def test_goals_that_cannot_be() -> None:
    wrong: list[dict[str, Any]] = [
        {"at_least": 1.5}, {"rise": -0.1}, {"at_least": 0.7, "at_most": 0.2},
        {"rise": 0.1, "at_least": 0.5}, {"safer": (0.8, 1.2)}, {"at_most": 0.4, "safer": (0.8,)},
    ]  # fmt: skip
    for given in wrong:
        with pytest.raises(InputError):
            Goal(**given)
    with pytest.raises(InputError, match="labels only"):
        Problem.from_card(CARD, Labels(), goal=Goal(at_least=0.8))
    with pytest.raises(InputError, match="for_query"):
        Goal(rise=0.1).met(Ramp().ask([QUERY]))
