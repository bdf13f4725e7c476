"""Rules as a person reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from waysout.domain.rules import (
    RULE_KINDS,
    Allowed,
    Custom,
    Direction,
    Exclude,
    Immutable,
    Implies,
    Linear,
    Linked,
    MaxChanges,
    Never,
    OneHot,
    Range,
    Rule,
    Step,
    Transitions,
)
from waysout.domain.rules.comparison import parse_comparison
from waysout.report.rules import comparison_words, limits_in_words, rule_words
from waysout.report.words import Wording

WORDING = Wording({
    "income": {"unit": "euros a year"},
    "job": {"words": {"cook": "a cook", "idle": "out of work"}},
    "rate": {"unit": "%"},
    "own_home": {"label": "a home of one's own"},
})  # fmt: skip


def twice_the_income(query: Any, candidate: Any) -> bool:
    return bool(candidate["income"] <= 2 * query["income"])


# One line for each kind: a rule, and its words.
SAID: list[tuple[Rule, str]] = [
    (Immutable(features=["age"]), "Age stays as it is"),
    (Immutable(features=["age", "own_home"], why="ruled out by you"),
     "Age and a home of one's own stay as they are (ruled out by you)"),
    (Range(feature="income", min=100, max=6000), "Income is 100 to 6,000 euros a year"),
    (Range(feature="income", min=100), "Income is at least 100 euros a year"),
    (Range(feature="rate", max=5), "Rate is at most 5\u00a0%"),
    (Step(feature="income", step=500), "Income: a new value is a multiple of 500 euros a year"),
    (Step(feature="term", step=12, start=6, why="half years"),
     "Term: a new value is 6 plus a multiple of 12 (half years)"),
    (Allowed(feature="job", values=["cook", "idle"]), "Job is a cook or out of work"),
    (Never(features=["job"], values=["idle"]), "Job is never set to out of work"),
    (Never(features=["a_1", "a_2"], values=[-2, -1]), "A 1 and a 2 are never set to -2 or -1"),
    (Never(features=["income"], values=[-2, -1]),
     "Income is never set to -2 or -1 euros a year"),
    (Never(features=["income", "term"], values=[-2, -1]),
     "Income and term are never set to -2 or -1"),  # the unit is that of one of them
    (Never(features=["term"], values=list(range(10, 0, -1))),
     "Term is never set to 10, 9, 8, 7, 6, 5, 4, 3 or 2 others"),
    (Never(features=[f"a{i}" for i in range(11)], values=[0]),
     "A0, a1, a2, a3, a4, a5, a6, a7 and 3 others are never set to 0"),
    (Immutable(features=[f"a{i}" for i in range(11)]),
     "A0, a1, a2, a3, a4, a5, a6, a7, a8, a9 and a10 stay as they are"),
    (Direction(features=["income"], direction="up", why="to work for"),
     "Income may only go up (to work for)"),
    (Transitions(feature="job", forbid={"*": ["idle"], "cook": ["clerk", "baker"]}),
     "Job never changes to out of work and from a cook to clerk or baker"),
    (Linked(feature="school", sets="years", map={"none": 0}), "Years follows school"),
    (OneHot(features=["rent", "own"]), "Exactly one of rent and own is yes"),
    (OneHot(features=["rent", "own"], or_none=True), "At most one of rent and own is yes"),
    (Linear(that="12*age + term <= 840"), "12 × age plus term is at most 840"),
    (Linear(that="12*age + term <= 840", name="repaid by 70"), "Repaid by 70"),
    (Linear(that="12*age + term <= 840", why="repaid by 70"), "Repaid by 70"),
    (Implies(when={"job": "idle"}, then={"income": {"max": 900}}),
     "If job is out of work, then income is at most 900 euros a year"),
    (Exclude(values={"job": ["cook", "idle"], "income": {"min": 5}}, why="ruled out by you"),
     "Not allowed: job is a cook or out of work and income is at least 5 euros a year "
     "(ruled out by you)"),
    (Custom(call=twice_the_income), "Twice_the_income"),
    (Custom(call=twice_the_income, name="no leaps", why="it takes years"),
     "No leaps (it takes years)"),
    (MaxChanges(at_most=1), "At most 1 thing may change"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "said"), SAID, ids=lambda case: getattr(case, "kind", None))
def test_each_kind_has_its_words(rule: Rule, said: str) -> None:
    assert rule_words(rule, WORDING) == said


def test_every_kind_stands_in_the_table_above() -> None:
    assert {type(rule) for rule, _ in SAID} == set(RULE_KINDS.values())


def test_a_rule_of_ones_own_says_what_it_says_itself() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Even(Rule):
        kind: ClassVar[str] = "even"
        feature: str

    assert rule_words(Even(feature="term"), WORDING) == "Even term"
    assert rule_words(Even(feature="term", name="pairs", why="so"), WORDING) == "Pairs (so)"


@pytest.mark.parametrize(
    ("that", "said"),
    [
        ("debts <= 0.5*income + 100", "debts is at most 0.5 × income plus 100"),
        ("a - b > 3", "a is more than b plus 3"),
        ("-a <= -5", "a is at least 5"),
        ("a < b", "a is less than b"),
        ("a + 5 >= b", "a plus 5 is at least b"),
        ("a == 0", "a is exactly 0"),
        ("b1 >= b2 - p1", "b1 plus p1 is at least b2"),
    ],
)
def test_a_comparison_in_words(that: str, said: str) -> None:
    assert comparison_words(parse_comparison(that), Wording()) == said


def test_limits_are_said_once_and_alike_grids_together() -> None:
    grids = [Step(feature=name, step=100, why="round amounts") for name in ("b1", "b2", "b3")]
    rules = [grids[0], Linear(that="b1 >= b2", why="bills fall"), *grids[1:],
             Linear(that="b2 >= b3", why="bills fall"), Step(feature="term", step=12)]  # fmt: skip
    assert limits_in_words(rules, Wording()) == [
        "B1, b2 and b3: a new value is a multiple of 100 (round amounts)",
        "Bills fall",
        "Term: a new value is a multiple of 12",
    ]


def test_what_a_rule_quotes_is_cleaned() -> None:
    rule = Immutable(features=["a\u202eb"], why="line\nline\x1b[31m")
    assert rule_words(rule, Wording()) == "Ab stays as it is (line line[31m)"
