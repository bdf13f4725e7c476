"""That rules leave nothing is said where it is so, and only there."""

from __future__ import annotations

import random
from itertools import product

import pytest

from waysout.domain.rules import (
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
    RuleSet,
    Step,
)
from waysout.domain.schema import LARGEST, Feature, Row, Schema

SCHEMA = Schema(
    (
        Feature("loan", "integer", range=(0, 500_000)),
        Feature("income", "number", range=(0, 40_000)),
        Feature("debt", "number", missing="keep"),
        Feature("school", "category", levels=("none", "high", "master")),
        Feature("years", "integer", range=(0, 20)),
        Feature("rent", "boolean"),
        Feature("own", "boolean"),
    )
)
QUERY: Row = (120_000, 30_000.0, 5_000.0, "high", 12, True, False)
SUM = Linear(that="loan <= 2*income")
FIXED_LOAN = Immutable(features=["loan"])
LINK = Linked(feature="school", sets="years", map={"none": 8, "high": 12, "master": 17})


def obstacles(*rules: Rule, query: Row = QUERY) -> list[tuple[str, str]]:
    return [(v.rule, v.reason) for v in RuleSet(SCHEMA, rules).obstacles(query)]


UNMET: list[tuple[str, tuple[Rule, ...], str]] = [
    ("an end of a range", (SUM, FIXED_LOAN),
     "loan <= 2*income cannot be met: loan is 120000 and income is at most 40000, which misses it "
     "by 40000"),
    ("a rule's own limit", (SUM, Range(feature="loan", min=90_000)), "loan is at least 90000"),
    ("a direction", (SUM, Direction(features=["loan"], direction="up")),
     "loan is at least 120000"),
    ("a grid", (Linear(that="years >= 19"), Step(feature="years", step=6)),
     "years is at most 18, which misses it by 1"),
    ("a strict limit", (Linear(that="income > 40000"),),
     "income > 40000 cannot be met: income is at most 40000"),
    ("an equation", (Linear(that="loan == income"), Range(feature="loan", min=50_000)),
     "loan is at least 50000 and income is at most 40000, which misses it by 10000"),
    ("what follows", (Linear(that="years >= 18"), LINK), "years is at most 17"),
    ("a boolean", (Linear(that="rent + own >= 3"),),
     "rent is at most 1 and own is at most 1"),
    ("implies", (Implies(when={"loan": {"min": 100_000}}, then={"income": {"min": 30_500}}),
                 FIXED_LOAN, Range(feature="income", max=30_400)),
     "loan >= 100000 cannot be changed, nor income >= 30500 met"),
    ("implies a level", (Implies(when={"school": ["high", "master"]}, then={"years": [19, 20]}),
                         LINK, Never(features=["school"], values=["none"])),
     "school among high, master cannot be changed, nor years among 19, 20 met"),
    ("exclude", (Exclude(values={"school": ["high", "master"], "loan": {"min": 1000}}),
                 FIXED_LOAN, Never(features=["school"], values=["none"])),
     "school among high, master and loan >= 1000 is excluded, and cannot be changed"),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "reason"), [u[1:] for u in UNMET], ids=[u[0] for u in UNMET])
def test_a_rule_that_nothing_within_reach_keeps_is_named_with_its_values(
    rules: tuple[Rule, ...], reason: str
) -> None:
    found = obstacles(*rules)
    assert [name for name, _ in found] == [rules[0].label]
    assert reason in found[0][1]
    if len(rules) > 1:  # otherwise the features' own ranges are in the way
        assert obstacles(rules[0]) == []


MET: list[tuple[str, tuple[Rule, ...]]] = [
    ("just so", (SUM, Range(feature="loan", min=80_000))),
    ("another lever", (SUM, Immutable(features=["income"]))),
    ("no end", (Linear(that="debt >= 1000000000"),)),
    ("what follows", (Linear(that="years >= 17"), LINK)),
    ("a group", (Linear(that="rent == 0"), OneHot(features=["rent", "own"]))),
    ("a grid within limits", (Implies(when={"years": {"min": 12, "max": 12}},
                                      then={"years": {"min": 14, "max": 22}}),
                              Step(feature="years", step=6))),
    ("a far value of no end", (Exclude(values={"debt": {"min": -10**9}}),)),
    ("more values than are listed", (Exclude(values={"years": list(range(5, 21))}),)),
]  # fmt: skip


@pytest.mark.parametrize("rules", [m[1] for m in MET], ids=[m[0] for m in MET])
def test_a_rule_that_some_row_keeps_is_no_obstacle(rules: tuple[Rule, ...]) -> None:
    assert RuleSet(SCHEMA, rules).violations(QUERY, QUERY)
    assert obstacles(*rules) == []


def test_what_is_missing_breaks_no_rule() -> None:
    missing = SCHEMA.replace(QUERY, {"debt": None})
    assert obstacles(Linear(that="debt + loan <= 0"), FIXED_LOAN, query=missing) == []
    held = Immutable(features=["debt", "loan"])
    assert obstacles(Linear(that="debt + loan <= 0"), held) != []


def test_an_interval_without_an_end_has_none() -> None:
    lever = RuleSet(SCHEMA).levers(QUERY)["debt"]
    assert lever.ends() == (-LARGEST, LARGEST)
    assert RuleSet(SCHEMA, (FIXED_LOAN,)).levers(QUERY)["loan"].ends() is None


SMALL = Schema(
    (
        Feature("a", "integer", range=(0, 4)),
        Feature("b", "integer", range=(0, 4)),
        Feature("c", "category", levels=("x", "y", "z")),
        Feature("d", "boolean"),
    )
)
VALUES = (range(5), range(5), ("x", "y", "z"), (False, True))
ROWS: list[Row] = [(a, b, c, d) for a, b, c, d in product(*VALUES)]


def some_rules(rng: random.Random) -> list[Rule]:
    """Draw a rule about several features, and some about one."""
    sign, limit = rng.choice(["<=", ">=", "<", ">"]), rng.randint(-16, 16)
    x, y, z = (rng.randint(-2, 2) or 1 for _ in range(3))
    when = {"a": {"min": rng.randint(0, 2)}, "c": rng.sample(["x", "y", "z"], 2)}
    joint: list[Rule] = [
        Linear(that=f"{x}*a + {y}*b + {z}*d {sign} {limit}"),
        Implies(when=when, then={"b": {"max": rng.randint(0, 3)}, "d": [rng.random() < 0.5]}),
        Exclude(values={**when, "d": [rng.random() < 0.5]}),
    ]
    single: list[Rule] = [
        Immutable(features=rng.sample(["a", "b", "c", "d"], rng.randint(1, 2))),
        Direction(features=["a"], direction=rng.choice(["up", "down"])),
        Never(features=["b"], values=rng.sample(range(5), 2)),
        Never(features=["c"], values=[rng.choice("xyz")]),
        Step(feature="b", step=2),
    ]
    return [rng.choice(joint), *rng.sample(single, rng.randint(1, 3))]


def test_obstacles_are_exactly_the_rules_that_no_row_keeps() -> None:
    rng = random.Random(7)
    told = 0
    for _ in range(1500):
        first, *others = some_rules(rng)
        query = rng.choice(ROWS)
        alone, both = RuleSet(SMALL, tuple(others)), RuleSet(SMALL, (first, *others))
        if not alone.movable(query):
            continue
        kept = [row for row in ROWS if not alone.violations(query, row)]
        possible = any(not both.violations(query, row) for row in kept)
        assert bool(both.obstacles(query)) == (not possible), (first, others, query)
        told += not possible
    assert told > 50


def test_rules_that_only_together_leave_nothing_are_found_by_looking() -> None:
    low, high = Linear(that="a <= b"), Linear(that="a >= b + 1")
    rules, query = RuleSet(SMALL, (low, high)), (3, 1, "x", False)
    assert rules.obstacles(query) == ()
    found = rules.refusals(query)
    assert found is not None
    assert (found.rows, found.complete) == (len(ROWS) - 1, True)
    assert {v.rule for v in found.binding} == {low.label, high.label}
    assert "none of the 149 rows within reach keeps the rules" in found.reason


def test_one_rule_that_refuses_all_is_named_alone() -> None:
    few, needs = MaxChanges(at_most=1), Custom(call=lambda q, c: c["a"] + c["b"] == 8)
    query = (0, 0, "x", False)
    found = RuleSet(SMALL, (few, needs)).refusals(query)
    assert found is not None
    assert len(found.binding) == 2
    never = Custom(name="closed", call=lambda q, c: "we are closed")
    found = RuleSet(SMALL, (MaxChanges(at_most=2), never)).refusals(query)
    assert found is not None
    assert [v.rule for v in found.binding] == ["closed"]
    assert found.reason.endswith("'closed' rules them out")
    assert "we are closed" in found.binding[0].reason


def test_where_a_row_is_left_nothing_is_said() -> None:
    only = Custom(call=lambda q, c: c["a"] == 4 and c["b"] == 2 and c["c"] == "z" and c["d"])
    assert RuleSet(SMALL, (only,)).refusals((0, 0, "x", False)) is None


def test_of_many_rows_some_are_drawn() -> None:
    no = Custom(name="no", call=lambda q, c: False)
    found = RuleSet(SCHEMA, (no,)).refusals(QUERY)
    assert found is not None
    assert (found.complete, found.rows > 1000) == (False, True)
    assert "rows tried within reach keeps the rules: 'no' rules them out" in found.reason
    assert RuleSet(SCHEMA, (Linear(that="loan <= 100000"),)).refusals(QUERY) is None


def test_a_row_that_meets_an_equation_is_found_where_there_is_one() -> None:
    equation = Linear(that="2*income - debt == 60001.5")
    rules = RuleSet(SCHEMA, (equation, FIXED_LOAN))
    assert rules.refusals(QUERY) is None
    held = RuleSet(SCHEMA, (equation, Linear(that="income <= 5"), Linear(that="debt >= 0")))
    assert held.refusals(QUERY) is not None


def test_a_sum_that_no_value_balances_is_looked_for_within_the_largest() -> None:
    # To balance it alone, the income would have to be 3e15.
    rules = RuleSet(SCHEMA, (Linear(that="income + 1e15*years == 3"),))
    assert rules.refusals(QUERY) is None  # years 0 and an income of 3
