"""A search that the rules leave nothing to ask says so, and names them."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import waysout
from waysout.domain.card import Card
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind, ResultData

CARD = """
card = 1
name = "loans"
[outcome]
target = "status"
positive = "yes"
[features.loan]
kind = "integer"
range = [1000, 200000]
[features.income]
kind = "integer"
range = [0, 40000]
[features.years]
kind = "integer"
range = [8, 17]
[features.school]
kind = "category"
levels = ["none", "high", "master"]
[features.rent]
kind = "boolean"
[features.own]
kind = "boolean"
"""
PERSON = {"loan": 120000, "income": 30000, "years": 12, "school": "high", "rent": True,
          "own": False}  # fmt: skip

HOLD = '[[rules.main]]\nkind = "immutable"\nfeatures = {}\n'
JOINT: dict[str, tuple[str, str, str]] = {
    "linear": (
        '[[rules.main]]\nkind = "linear"\nthat = "loan <= 2*income"\n' + HOLD.format('["loan"]'),
        "loan <= 2*income",
        "loan <= 2*income cannot be met: loan is 120000 and income is at most 40000",
    ),
    "implies": (
        '[[rules.main]]\nkind = "implies"\nwhen = { loan = { min = 100000 } }\n'
        "then = { income = { min = 35000 } }\n"
        '[[rules.main]]\nkind = "direction"\nfeatures = ["income"]\ndirection = "down"\n'
        + HOLD.format('["loan"]'),
        "loan >= 100000 implies income >= 35000",
        "loan >= 100000 cannot be changed, nor income >= 35000 met",
    ),
    "exclude": (
        '[[rules.main]]\nkind = "exclude"\nname = "no such loans"\n'
        "values = { loan = { min = 100000 }, income = { max = 40000 } }\n"
        + HOLD.format('["loan"]'),
        "no such loans",
        "loan >= 100000 and income <= 40000 is excluded, and cannot be changed",
    ),
    "one-hot": (
        '[[rules.main]]\nkind = "one-hot"\nfeatures = ["rent", "own"]\n'
        '[[rules.main]]\nkind = "linear"\nthat = "rent + own == 2"\n',
        "rent + own == 2",
        "'rent + own == 2' rules them out",
    ),
    "max-changes": (
        '[[rules.main]]\nkind = "max-changes"\nat_most = 1\n'
        '[[rules.main]]\nkind = "linear"\nthat = "income >= 31000"\n'
        '[[rules.main]]\nkind = "linear"\nthat = "years >= 13"\n',
        "at most 1 changes",
        "keeps the rules",
    ),
    "linked": (
        '[[rules.main]]\nkind = "linked"\nfeature = "school"\nsets = "years"\n'
        "map = { none = 8, high = 12, master = 16 }\n"
        '[[rules.main]]\nkind = "linear"\nthat = "years >= 17"\n',
        "years >= 17",
        "years >= 17 cannot be met: years is at most 16, which misses it by 1",
    ),
}


def never(frame: pd.DataFrame) -> Any:
    return 0.1 + frame["income"] / 200_000


def found(rules: str, **options: Any) -> tuple[ResultData, int]:
    """Search under some rules; return the result, and how many rows were asked for it."""
    card = Card.parse(CARD + rules)
    problem = Problem.from_card(card, waysout.as_oracle(never, card))
    result = waysout.find(problem, PERSON, oracle_rows=40, **options)
    return result, result.ledger.oracle_rows


@pytest.mark.parametrize("kind", JOINT)
@pytest.mark.parametrize("method", ["wayfinder", "recombine", "random", "growing-spheres"])
def test_rules_that_leave_nothing_are_named(kind: str, method: str) -> None:
    rules, name, reason = JOINT[kind]
    options = {"calls": 0} if method == "recombine" else {}
    result, rows = found(rules, method=method, **options)
    assert (result.outcome.kind, rows) == (OutcomeKind.INFEASIBLE, 0)
    assert reason in result.outcome.reason
    assert name in [v.rule for v in result.outcome.binding]
    assert "every combination" not in result.outcome.reason
    assert reason in " ".join(str(result).split())


def test_all_was_tried_is_said_only_where_something_was() -> None:
    few = HOLD.format('["loan", "income", "years", "rent", "own"]')
    result, rows = found(few)
    assert (result.outcome.kind, rows) == (OutcomeKind.EXHAUSTED, 2)
    assert result.outcome.reason == "every combination within reach was asked"


def test_a_result_that_names_rules_survives_a_file() -> None:
    result, _ = found(JOINT["max-changes"][0])
    assert ResultData.from_json(result.to_json()).outcome == result.outcome
