from __future__ import annotations

import pickle
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import rows, schemas, values
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
    RuleSet,
    Step,
    Transitions,
    rule_from_table,
)
from waysout.domain.rules.base import Lever
from waysout.domain.rules.comparison import parse_comparison
from waysout.domain.schema import Feature, Row, Schema, Value
from waysout.errors import RuleError

SCHEMA = Schema(
    (
        Feature("age", "integer", range=(18, 99)),
        Feature("income", "number", range=(0, 1e6)),
        Feature("debt", "number", range=(0, 1e6), missing="fill"),
        Feature("school", "category", levels=("none", "high", "master"), ordered=True),
        Feature("years", "integer", range=(0, 20)),
        Feature("job", "category", levels=("cook", "clerk", "retired"), missing="keep"),
        Feature("rent", "boolean"),
        Feature("own", "boolean"),
    )
)
QUERY: Row = (40, 5000.0, 2000.0, "high", 12, "cook", True, False)


def after(**edits: Value) -> Row:
    return SCHEMA.replace(QUERY, edits)


def broken(rule: Rule, candidate: Row, query: Row = QUERY) -> list[str]:
    return [v.rule for v in RuleSet(SCHEMA, (rule,)).violations(query, candidate)]


# One line per kind: a rule, edits it must refuse, edits it must let pass.
CASES: list[tuple[Rule, list[dict[str, Value]], list[dict[str, Value]]]] = [
    (Immutable(features=["age", "job"]), [{"age": 41}, {"job": "clerk"}], [{"income": 1.0}, {}]),
    (Range(feature="income", min=100, max=6000), [{"income": 6001.0}], [{"income": 100.0}]),
    (Range(feature="debt", max=2000), [{"debt": 2000.1}], [{"debt": 2000.0}, {"debt": 0.0}]),
    (Step(feature="income", step=500), [{"income": 5001.0}], [{"income": 5500.0}, {}]),
    (Step(feature="income", step=0.1, start=0.05), [{"income": 0.1}], [{"income": 0.35}]),
    (Allowed(feature="job", values=["cook", "clerk"]), [{"job": "retired"}], [{"job": "clerk"}]),
    (Never(features=["age", "years"], values=[18, 19]), [{"years": 19}, {"age": 18}],
     [{"age": 20}]),
    (Direction(features=["age"], direction="up"), [{"age": 39}], [{"age": 41}, {}]),
    (Direction(features=["debt"], direction="down"), [{"debt": 2001.0}], [{"debt": 0.0}]),
    (Direction(features=["school"], direction="up"), [{"school": "none"}], [{"school": "master"}]),
    (Direction(features=["own"], direction="down"), [{"own": True}], [{}]),
    (Transitions(feature="job", forbid={"cook": ["retired"]}), [{"job": "retired"}],
     [{"job": "clerk"}]),
    (Transitions(feature="school", forbid={"*": ["none"]}), [{"school": "none"}],
     [{"school": "master"}]),
    (Linked(feature="school", sets="years", map={"none": 0, "high": 12, "master": 18}),
     [{"school": "master"}, {"years": 13}, {"school": "master", "years": 12}],
     [{"school": "master", "years": 18}, {}]),
    (OneHot(features=["rent", "own"]), [{"own": True}, {"rent": False}],
     [{"rent": False, "own": True}, {}]),
    (Linear(that="debt <= 0.5*income"), [{"debt": 2500.5}, {"income": 3999.0}],
     [{"debt": 2500.0}]),
    (Linear(that="age - years >= 6"), [{"age": 18, "years": 13}], [{"age": 18}]),
    (Implies(when={"job": "retired"}, then={"age": {"min": 50}}), [{"job": "retired"}],
     [{"job": "retired", "age": 50}, {"age": 30}]),
    (Implies(when={"school": ["none", "high"]}, then={"job": ["cook"]}), [{"job": "clerk"}],
     [{"job": "clerk", "school": "master"}]),
    (Exclude(values={"income": {"min": 6000}, "own": True}), [{"income": 6000.0, "own": True}],
     [{"income": 5999.0, "own": True}, {"income": 7000.0}, {}]),
    (Exclude(values={"job": ["clerk", "retired"]}), [{"job": "clerk"}], [{"age": 41}]),
    (Custom(call=lambda q, c: c["income"] <= 2 * q["income"]), [{"income": 10001.0}],
     [{"income": 10000.0}]),
    (MaxChanges(at_most=1), [{"age": 41, "income": 1.0}], [{"age": 41}, {}]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "refused", "passed"), CASES, ids=lambda case: None)
def test_each_kind_refuses_what_it_must(
    rule: Rule, refused: list[dict[str, Value]], passed: list[dict[str, Value]]
) -> None:
    for edits in refused:
        assert broken(rule, after(**edits)) == [rule.label], edits
    for edits in passed:
        assert broken(rule, after(**edits)) == [], edits


def test_what_is_missing_meets_no_condition_of_an_exclusion() -> None:
    rule = Exclude(values={"debt": {"min": 5}, "income": {"min": 6000}})
    query = SCHEMA.replace(after(), {"debt": None})
    assert RuleSet(SCHEMA, (rule,)).violations(query, SCHEMA.replace(query, {"income": 7e3})) == ()
    assert broken(rule, after(debt=7.0, income=7000.0)) == [rule.label]


def test_every_kind_stands_in_the_table_above() -> None:
    assert {type(rule) for rule, *_ in CASES} == set(RULE_KINDS.values())


def test_reasons_are_plain_sentences() -> None:
    rules = RuleSet(SCHEMA, (Direction(features=["age"], direction="up"), MaxChanges(at_most=1)))
    found = rules.violations(QUERY, after(age=30, job="clerk"))
    assert [str(v) for v in found] == [
        "age only up: age goes from 40 to 30; it may only go up",
        "at most 1 changes: 2 features change",
    ]
    assert found[0].features == ("age",)


def test_what_leaves_a_features_own_domain_is_named() -> None:
    rules = RuleSet(SCHEMA)
    assert [v.rule for v in rules.violations(QUERY, after(age=17))] == ["domain"]
    assert [v.rule for v in rules.violations(QUERY, after(job=None))] == ["domain"]
    outside = SCHEMA.replace(QUERY, {"age": 110})
    assert rules.violations(outside, outside) == ()


def test_queries_that_are_equal_but_for_a_type_are_told_apart() -> None:
    schema = Schema((Feature("own", "boolean"), Feature("years", "integer")))
    rules = RuleSet(schema)
    whole: Row = (True, 1)
    typed_wrong: Row = (True, True)
    assert whole == typed_wrong
    assert [v.features for v in rules.violations(whole, typed_wrong)] == [("years",)]
    assert rules.violations(typed_wrong, typed_wrong) == ()
    assert [v.features for v in rules.violations(whole, typed_wrong)] == [("years",)]


def test_state_rules_name_what_the_query_already_breaks() -> None:
    rules = RuleSet(SCHEMA, (Range(feature="age", max=30), Immutable(features=["job"])))
    assert [v.rule for v in rules.violations(QUERY, QUERY)] == ["range age"]
    stuck = rules.extended([Immutable(features=["age"])]).obstacles(QUERY)
    assert [v.rule for v in stuck] == ["range age"]
    assert rules.obstacles(QUERY) == ()


def test_a_group_in_disorder_is_an_obstacle_only_where_all_of_it_is_held() -> None:
    schema = Schema((Feature("a", "boolean"), Feature("b", "boolean"), Feature("x", "integer")))
    rules = RuleSet(schema, (OneHot(features=["a", "b"]),))
    both: Row = (True, True, 0)
    assert rules.violations(both, (True, False, 0)) == ()
    assert rules.obstacles(both) == ()
    held = rules.extended([Immutable(features=["a", "b"])])
    assert [v.rule for v in held.obstacles(both)] == ["one-hot a b"]


def test_a_group_may_be_allowed_to_have_none_set() -> None:
    schema = Schema((Feature("a", "boolean"), Feature("b", "integer", range=(0, 1))))
    rules = RuleSet(schema, (OneHot(features=["a", "b"], or_none=True),))
    start: Row = (True, 0)
    none: Row = (False, 0)
    assert rules.violations(start, none) == ()
    assert rules.violations(start, (False, 1)) == ()
    assert [v.reason for v in rules.violations(start, (True, 1))] == [
        "at most one of a, b must be true; a, b is"
    ]
    assert rules.levers(start)["a"].choices() == (False,)
    assert rules.levers(start)["b"].choices() == (1,)
    assert rules.apply(start, {"b": 1}) == (False, 1)
    assert rules.moved(start, none) == {"a"}
    with pytest.raises(RuleError, match="or_none is true or false, not 1"):
        RuleSet(schema, (OneHot(features=["a", "b"], or_none=1),))  # type: ignore[arg-type]


def test_everything_fixed_is_an_obstacle() -> None:
    rules = RuleSet(SCHEMA, (Immutable(features=SCHEMA.names),))
    assert rules.actionable(QUERY) == ()
    (obstacle,) = rules.obstacles(QUERY)  # one reason, told once
    assert obstacle.features == SCHEMA.names


def test_links_and_groups_follow_an_edit_as_one_change() -> None:
    link = Linked(feature="school", sets="years", map={"none": 0, "high": 12, "master": 18})
    rules = RuleSet(SCHEMA, (link, OneHot(features=["rent", "own"]), MaxChanges(at_most=2)))
    moved = rules.apply(QUERY, {"school": "master", "own": True})
    assert moved == after(school="master", years=18, own=True, rent=False)
    assert rules.count_changes(QUERY, moved) == 2
    assert rules.violations(QUERY, moved) == ()
    assert rules.levers(QUERY)["years"].describe() == "fixed: set by school"


def test_links_can_be_chained() -> None:
    schema = Schema(tuple(Feature(n, "category", levels=("1", "2")) for n in "abc"))
    same = {"1": "1", "2": "2"}
    rules = RuleSet(
        schema,
        (Linked(feature="b", sets="c", map=same), Linked(feature="a", sets="b", map=same)),
    )
    query: Row = ("1", "1", "1")
    assert rules.apply(query, {"a": "2"}) == ("2", "2", "2")
    assert rules.count_changes(query, ("2", "2", "2")) == 1
    assert rules.count_changes(("1", "2", "1"), ("2", "2", "2")) == 1


def test_a_lever_is_put_back_with_what_followed_it() -> None:
    link = Linked(feature="school", sets="years", map={"none": 0, "high": 12, "master": 18})
    rules = RuleSet(SCHEMA, (link, OneHot(features=["rent", "own"])))
    row = rules.apply(QUERY, {"age": 41, "school": "master", "own": True})
    levers = rules.moved(QUERY, row)
    assert levers == {"age", "school", "rent"}
    assert [rules.put_back(QUERY, row, lever) for lever in ("age", "school", "rent")] == [
        after(school="master", years=18, own=True, rent=False),
        after(age=41, own=True, rent=False),
        after(age=41, school="master", years=18),
    ]
    for lever in levers:
        row = rules.put_back(QUERY, row, lever)
    assert row == QUERY


def test_in_a_chain_of_links_all_that_followed_is_put_back() -> None:
    schema = Schema(tuple(Feature(n, "category", levels=("1", "2")) for n in "abcd"))
    same = {"1": "1", "2": "2"}
    rules = RuleSet(
        schema,
        (Linked(feature="b", sets="c", map=same), Linked(feature="a", sets="b", map=same)),
    )
    query: Row = ("1",) * 4
    assert rules.put_back(query, ("2",) * 4, "a") == ("1", "1", "1", "2")
    assert rules.put_back(query, ("2",) * 4, "d") == ("2", "2", "2", "1")


def test_of_two_edits_in_a_group_the_last_one_stands() -> None:
    rules = RuleSet(SCHEMA, (OneHot(features=["rent", "own"]),))
    moved = rules.apply(QUERY, {"own": True, "rent": True})
    assert rules.violations(QUERY, moved) == ()
    assert moved == QUERY


def test_a_group_of_integers_is_moved_by_a_typed_one() -> None:
    schema = Schema(tuple(Feature(n, "integer", range=(0, 1)) for n in "abc"))
    rules = RuleSet(schema, (OneHot(features=list("abc")),))
    query: Row = (1, 0, 0)
    (value,) = rules.levers(query)["b"].sample(3)
    assert type(value) is int
    moved = rules.apply(query, {"b": value})
    assert (moved, rules.violations(query, moved)) == ((0, 1, 0), ())
    assert rules.actionable(query) == ("b", "c")


@given(st.data())
def test_whatever_a_lever_offers_is_of_the_features_type(data: st.DataObject) -> None:
    rules = RuleSet(SCHEMA, (data.draw(single_rules()), OneHot(features=["rent", "own"])))
    for lever in rules.levers(QUERY).values():
        offered = (*lever.sample(5), *(lever.choices() or ()))
        assert all(lever.feature.fits(value) and lever.admits(value) for value in offered)


def test_a_group_can_be_moved_by_its_other_members() -> None:
    rules = RuleSet(SCHEMA, (OneHot(features=["rent", "own"]), Allowed(feature="rent", values=[0])))
    assert rules.obstacles(QUERY) == ()


def test_values_of_the_wrong_type_never_pass() -> None:
    rules = RuleSet(SCHEMA, (Direction(features=["school", "age"], direction="up"),))
    for edits in ({"age": 40.5}, {"age": "41"}, {"age": True}, {"school": "phd"}, {"rent": 0},
                  {"own": 1}, {"income": float("nan")}, {"income": 1e300}):  # fmt: skip
        assert [v.rule for v in rules.violations(QUERY, after(**edits))] == ["domain"], edits


def test_decimals_bind_what_is_proposed() -> None:
    schema = Schema((Feature("x", "number", decimals=2),))
    rules = RuleSet(schema)
    assert rules.violations((0.123456,), (0.123456,)) == ()
    assert rules.violations((0.123456,), (0.13,)) == ()
    assert [v.rule for v in rules.violations((0.123456,), (0.131,))] == ["domain"]


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        (Step(feature="x", step=0.01), 10000000.005),
        (Step(feature="x", step=5), 1e10 + 3),
        (Linear(that="x <= 1e10"), 1e10 + 9),
        (Range(feature="x", max=1e-10), 9e-10),
    ],
)
def test_tolerance_does_not_grow_into_a_loophole(rule: Rule, value: float) -> None:
    rules = RuleSet(Schema((Feature("x", "number"),)), (rule,))
    assert rules.violations((0.0,), (value,)) != ()


def test_every_broken_feature_is_named() -> None:
    rules = RuleSet(SCHEMA, (Immutable(name="who", features=["age", "job", "rent"]),))
    found = rules.violations(QUERY, after(age=41, job="clerk"))
    assert [(v.rule, v.features) for v in found] == [("who", ("age",)), ("who", ("job",))]


def test_rule_sets_travel_between_processes() -> None:
    rules = RuleSet(SCHEMA, (Immutable(features=["age"]), Range(feature="income", max=6000)))
    back = pickle.loads(pickle.dumps(rules))
    assert back == rules
    assert back.violations(QUERY, after(age=41)) == rules.violations(QUERY, after(age=41))


def test_ten_thousand_levels_are_no_burden() -> None:
    schema = Schema((Feature("zip", "category", levels=tuple(range(10_000))),))
    rules = RuleSet(schema, (Never(features=["zip"], values=list(range(5000))),))
    lever = rules.levers(("7",))["zip"]
    assert len(lever.choices() or ()) == 5000
    assert lever.sample(3) == ("5000", "6666", "8333")


def test_thousands_of_choices_are_looked_up_and_not_gone_through() -> None:
    compared = 0

    class Counted(int):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return int(self) == other

        __hash__ = int.__hash__

    values = [Counted(i) for i in range(1000)]
    lever = Lever.of(Feature("n", "integer", range=(0, 10_000)), 5000).only(values)
    assert sum(map(lever.admits, range(2000))) == 1000
    assert lever.towards(1200) == 999
    assert compared < 20_000


def test_levers_say_what_is_left() -> None:
    rules = RuleSet(
        SCHEMA,
        (
            Direction(features=["age", "school"], direction="up"),
            Step(feature="income", step=500),
            Range(feature="income", max=9000),
            Never(features=["job"], values=["retired"]),
            Immutable(features=["rent"], why="a fact of the lease"),
        ),
    )
    shown = {name: lever.describe() for name, lever in rules.levers(QUERY).items()}
    assert shown == {
        "age": "40 to 99",
        "income": "0 to 9000 in steps of 500",
        "debt": "0 to 1000000",
        "school": "master",
        "years": "0 to 20",
        "job": "clerk",
        "rent": "fixed: a fact of the lease",
        "own": "True",
    }
    assert rules.actionable(QUERY) == ("age", "income", "debt", "school", "years", "job", "own")


def test_a_lever_names_the_numbers_it_leaves_out() -> None:
    few = RuleSet(SCHEMA, (Never(features=["age"], values=[20, 19, 7]),))
    assert few.levers(QUERY)["age"].describe() == "18 to 99, never 19, 20"
    many = RuleSet(SCHEMA, (Never(features=["age"], values=list(range(20, 30))),))
    assert many.levers(QUERY)["age"].describe() == "18 to 99, never 20, …, 29"


def test_a_lever_offers_values_to_try() -> None:
    rules = RuleSet(SCHEMA, (Step(feature="income", step=500), Immutable(features=["age"])))
    levers = rules.levers(QUERY)
    assert levers["income"].sample(3) == (0.0, 500_000.0, 1_000_000.0)
    assert levers["job"].sample(1) == ("clerk",)
    assert levers["age"].sample(3) == ()
    assert levers["years"].sample(100) == tuple(y for y in range(21) if y != 12)


@pytest.mark.parametrize(
    ("now", "rule", "is_open"),
    [
        (99, Direction(features=["age"], direction="up"), False),
        (98, Direction(features=["age"], direction="up"), True),
        (40, Range(feature="age", min=40, max=40), False),
        (40, Step(feature="age", step=50, start=40), True),
        (40, Step(feature="age", step=500, start=40), False),
        (98, Never(features=["age"], values=list(range(18, 98))), True),
        (99, Never(features=["age"], values=list(range(18, 99))), False),
    ],
)
def test_a_lever_with_no_value_left_is_closed(now: int, rule: Rule, is_open: bool) -> None:
    query = SCHEMA.replace(QUERY, {"age": now})
    assert RuleSet(SCHEMA, (rule,)).levers(query)["age"].is_open is is_open


@pytest.mark.parametrize(
    ("table", "fragment"),
    [
        ({"kind": "imutable", "features": ["age"]}, "did you mean 'immutable'"),
        ({"kind": "immutable"}, "needs the field 'features'"),
        ({"kind": "immutable", "features": ["agee"]}, "did you mean 'age'"),
        ({"kind": "immutable", "features": "age"}, "list of names"),
        ({"kind": "immutable", "features": []}, "list of names"),
        ({"kind": "immutable", "features": ["age", "age"]}, "listed twice"),
        ({"kind": "immutable", "features": [["age"]]}, "named by text"),
        ({"kind": "immutable", "features": ["age"], "because": "x"}, "unknown field 'because'"),
        ({"kind": "immutable", "features": ["age"], "why": 3}, "why must be a string"),
        ({"kind": "range", "feature": "age"}, "set min, max or both"),
        ({"kind": "range", "feature": "age", "min": 9, "max": 1}, "is empty"),
        ({"kind": "range", "feature": "age", "min": 200}, "nothing of its range"),
        ({"kind": "range", "feature": "age", "min": "9"}, "finite number"),
        ({"kind": "range", "feature": "age", "min": float("nan")}, "finite number"),
        ({"kind": "range", "feature": "job", "min": 1}, "need a number"),
        ({"kind": "step", "feature": "age", "step": 0}, "above 0"),
        ({"kind": "step", "feature": "age", "step": 0.5}, "is an integer"),
        ({"kind": "step", "feature": "job", "step": 1}, "needs a number"),
        ({"kind": "allowed", "feature": "job", "values": ["pilot"]}, "unknown value 'pilot'"),
        ({"kind": "allowed", "feature": "age", "values": []}, "list of values"),
        ({"kind": "allowed", "feature": "age", "values": ["x"]}, "not a number"),
        ({"kind": "never", "features": ["job"], "values": [None]}, "missing value"),
        ({"kind": "direction", "features": ["age"], "direction": "upp"}, "did you mean 'up'"),
        ({"kind": "direction", "features": ["job"], "direction": "up"}, "ordered = true"),
        ({"kind": "transitions", "feature": "job", "forbid": {"pilot": ["cook"]}}, "'pilot'"),
        ({"kind": "transitions", "feature": "job", "forbid": ["cook"]}, "is a table"),
        ({"kind": "linked", "feature": "job", "sets": "job", "map": {"cook": 2}}, "to itself"),
        ({"kind": "linked", "feature": "age", "sets": "years", "map": {"1": 2}}, "needs levels"),
        ({"kind": "linked", "feature": "school", "sets": "years", "map": {"x": 2}}, "'x'"),
        ({"kind": "linked", "feature": "own", "sets": "years", "map": {"True": 2}}, "lacks"),
        (
            {"kind": "linked", "feature": "own", "sets": "years", "map": {"True": 2, "False": 99}},
            "outside its range",
        ),
        ({"kind": "linked", "feature": "school", "sets": "years", "map": {}}, "is a table"),
        ({"kind": "one-hot", "features": ["rent"]}, "at least two"),
        ({"kind": "one-hot", "features": ["rent", "job"]}, "not true/false"),
        ({"kind": "linear", "that": "age + years"}, "exactly one of"),
        ({"kind": "linear", "that": "age * years <= 3"}, "multiplies two features"),
        ({"kind": "linear", "that": "age <= "}, "one side is empty"),
        ({"kind": "linear", "that": "age + <= 3"}, "is missing"),
        ({"kind": "linear", "that": "age years <= 3"}, "operator is missing"),
        ({"kind": "linear", "that": "age - age <= 3"}, "no feature that matters"),
        ({"kind": "linear", "that": "age <= 3; import os"}, "cannot read"),
        ({"kind": "linear", "that": "job <= 3"}, "is a category"),
        ({"kind": "linear", "that": 7}, "must be a string such as"),
        ({"kind": "linear", "that": "1e308*age <= 3"}, "the coefficient of 'age' is 1e+308, and"),
        ({"kind": "linear", "that": "1e400*age <= 3"}, "divide or multiply both sides"),
        ({"kind": "linear", "that": "1e9*1e9*age <= 3"}, "the coefficient of 'age' is 1e+18"),
        ({"kind": "linear", "that": "9e14*age + 9e14*age <= 3"}, "the coefficient of 'age' is"),
        ({"kind": "linear", "that": "age <= 1e300"}, "a constant is 1e+300"),
        ({"kind": "linear", "that": "1e-300*age <= 3"}, "the coefficient of 'age' is 1e-300"),
        ({"kind": "linear", "that": "age + 1e-400*years <= 3"}, "the coefficient of 'years' is 0"),
        ({"kind": "step", "feature": "age", "step": 1e-320}, "step must be at least 1e-100"),
        ({"kind": "implies", "when": {}, "then": {"age": 3}}, "when is a table"),
        ({"kind": "implies", "when": {"age": {"mn": 3}}, "then": {"age": 3}}, "condition 'mn'"),
        ({"kind": "implies", "when": {"agee": 3}, "then": {"age": 3}}, "'agee'"),
        ({"kind": "custom", "call": "os:system"}, "trust_code=True"),
        ({"kind": "max-changes", "at_most": 0}, "at least 1"),
        ({"kind": "max-changes", "at_most": True}, "at least 1"),
    ],
)
def test_a_wrong_rule_fails_when_it_is_made(table: Mapping[str, Any], fragment: str) -> None:
    with pytest.raises(RuleError) as caught:
        RuleSet(SCHEMA, (rule_from_table(table),))
    assert fragment in str(caught.value)


def test_links_in_a_circle_and_two_grids_are_refused() -> None:
    schema = Schema(tuple(Feature(n, "category", levels=("1", "2")) for n in "abc"))
    same = {"1": "1", "2": "2"}
    there, back = (Linked(feature=a, sets=b, map=same) for a, b in ("ab", "ba"))
    with pytest.raises(RuleError, match="circle"):
        RuleSet(schema, (there, back))
    with pytest.raises(RuleError, match="set by two"):
        RuleSet(schema, (there, Linked(feature="c", sets="b", map=same)))
    with pytest.raises(RuleError, match="two step rules"):
        RuleSet(SCHEMA, (Step(feature="age", step=2), Step(feature="age", step=3)))


@pytest.mark.parametrize("verdict", [None, True, np.True_, 1, ""])
def test_custom_verdicts_that_pass(verdict: object) -> None:
    assert broken(Custom(call=lambda q, c: verdict), QUERY) == []  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("verdict", [False, np.False_, 0, "no good"])
def test_custom_verdicts_that_do_not(verdict: object) -> None:
    assert broken(Custom(name="x", call=lambda q, c: verdict), QUERY) == ["x"]  # type: ignore[arg-type,return-value]


class Panic(BaseException):
    """As Rust libraries raise through pyo3."""


class NoVerdict:
    """What a rule may return by mistake."""

    def __bool__(self) -> bool:
        raise SystemExit(0)


def test_a_verdict_that_breaks_is_a_rule_that_breaks() -> None:
    with pytest.raises(RuleError, match=r"custom rule .* broke: SystemExit"):
        broken(Custom(call=lambda q, c: NoVerdict()), QUERY)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("error", [KeyError("nope"), SystemExit(3), Panic("at src/lib.rs:7")])
def test_a_custom_rule_that_breaks_says_which(error: BaseException) -> None:
    def my_rule(query: dict[str, Value], candidate: dict[str, Value]) -> None:
        raise error

    with pytest.raises(RuleError, match="custom rule 'my_rule' broke"):
        RuleSet(SCHEMA, (Custom(call=my_rule),)).violations(QUERY, QUERY)


def test_a_custom_rule_is_imported_only_when_trusted() -> None:
    rule = Custom(call="operator:eq")
    assert broken(rule.trusted(), after(age=41)) == ["operator:eq"]
    with pytest.raises(RuleError, match="cannot be imported"):
        Custom(call="no.such.module:f").trusted()


@pytest.mark.parametrize(
    ("text", "terms", "constant"),
    [
        ("a<=3", (("a", 1.0),), -3.0),
        ("-a + 2*3*b.c > `x y` - 1e2", (("a", -1.0), ("b.c", 6.0), ("x y", -1.0)), 100.0),
        ("größe * 2 == 5 + 1", (("größe", 2.0),), -6.0),
        ("- - a < .5", (("a", 1.0),), -0.5),
        ("0.1*a + 0.2*a + 1000.7 < 0.1*3*b + 1000.8", (("a", 0.3), ("b", -0.3)), -0.1),
        ("0.1*a + 0.2*a + b <= 0.3*a", (("b", 1.0),), 0.0),
    ],
)
def test_comparisons_are_read(
    text: str, terms: tuple[tuple[str, float], ...], constant: float
) -> None:
    parsed = parse_comparison(text)
    assert (parsed.terms, parsed.constant) == (terms, constant)


def test_a_missing_value_leaves_a_linear_rule_nothing_to_judge() -> None:
    query = SCHEMA.replace(QUERY, {"debt": None})
    assert broken(Linear(that="debt <= 0"), query, query) == []


NUMBERS = Schema(tuple(Feature(n, "number") for n in "abc"))


@pytest.mark.parametrize(
    ("that", "row"),
    [
        ("a + b <= c", (0.1, 0.2, 0.3)),
        ("0.1*a + 0.2*b <= 0.3*c", (1, 1, 1)),
        ("0.1*a + 0.2*b == 0.3*c", (1e15, 1e15, 1e15)),
        ("0.7*a + 0.1*b == 0.8*c", (1e12 + 1, 1e12 + 1, 1e12 + 1)),
        ("a - b == 0.1", (1000.3, 1000.2, 0)),
        ("a + 1000.7 <= 1000.8", (0.1, 0, 0)),
        ("0.1*3*a == 0.3*b", (7, 7, 0)),
        ("a + b == c", (0.1, 0.7, 0.1 + 0.7)),
        ("a - b - c == 0", (0.1 + 0.2, 0.1, 0.2)),
        ("3*a == b", (100 / 3, 100, 0)),
        ("a + b <= c", (0.0012345678901234567, 1e6, 0.0012345678901234567 + 1e6)),
        ("0.3333333333333333*a == 10", (30, 0, 0)),
    ],
)
def test_rounding_noise_does_not_break_a_linear_rule(that: str, row: Row) -> None:
    assert RuleSet(NUMBERS, (Linear(that=that),)).violations(row, row) == ()


@pytest.mark.parametrize(
    ("that", "row"),
    [
        ("1e15*a - 1e15*b + c <= 5", (50, 50, 6)),
        ("1e15*a - 1e15*b + c <= 5", (0.25, 0.25, 5.000001)),
        ("1e12*a - 1e12*b + c <= 5", (10.0, 10.0, 5.012345678901234)),
        ("0.5*a - 0.5*b + c < 5", (1e15, 1e15, 5)),
        ("1e15*a + c == 1e15*b", (3, 3, 0.1)),
        ("c >= 1e15*a - 1e15*b", (7, 7, -1e-9)),
    ],
)
def test_what_cancels_hides_no_broken_linear_rule(that: str, row: Row) -> None:
    assert RuleSet(NUMBERS, (Linear(that=that),)).violations(row, row) != ()


@pytest.mark.parametrize("that", ["a + b == c", "a == c - b", "2*c <= 2*a + 2*b", "c - a >= b"])
def test_a_value_that_was_computed_from_others_balances_them(that: str) -> None:
    rng, rules = random.Random(7), RuleSet(NUMBERS, (Linear(that=that),))
    for _ in range(300):
        a, b = rng.uniform(-1, 1), round(rng.uniform(-1e6, 1e6), rng.randint(0, 9))
        row: Row = (a, b, a + b)
        assert rules.violations(row, row) == ()


@st.composite
def single_rules(draw: st.DrawFn) -> Rule:
    """Draw a rule about single features of SCHEMA."""
    number = draw(st.sampled_from(["age", "income", "debt", "years"]))
    low = draw(st.integers(18, 20))
    level = st.sampled_from(["cook", "clerk", "retired"])
    return draw(
        st.sampled_from(
            [
                Immutable(features=[draw(st.sampled_from(SCHEMA.names))]),
                Range(feature=number, min=low, max=low + draw(st.integers(0, 100))),
                Step(feature=number, step=draw(st.integers(1, 7)), start=low),
                Allowed(feature="job", values=draw(st.lists(level, min_size=1))),
                Never(features=["job"], values=draw(st.lists(level, min_size=1))),
                Never(features=[number], values=[low, low + 1]),
                Direction(
                    features=[draw(st.sampled_from([number, "school", "own"]))],
                    direction=draw(st.sampled_from(["up", "down"])),
                ),
                Transitions(feature="job", forbid={draw(level): [draw(level)]}),
            ]
        )
    )


def test_equal_rows_of_other_types_and_other_queries_are_judged_anew() -> None:
    schema = Schema((Feature("a", "boolean"), Feature("n", "integer")))
    rules = RuleSet(schema, (Direction(features=["n"], direction="up"),))
    right, wrong = (True, 3), (1, 3)
    assert right == wrong
    for _ in range(2):
        assert rules.violations((False, 2), right) == ()
        assert [v.features for v in rules.violations((False, 2), wrong)] == [("a",)]
        assert [v.features for v in rules.violations((False, 4), right)] == [("n",)]


@given(st.data())
def test_a_lever_admits_exactly_what_no_rule_refuses(data: st.DataObject) -> None:
    rule = data.draw(single_rules())
    name = data.draw(st.sampled_from(SCHEMA.names))
    value = data.draw(st.integers(0, 120) if SCHEMA[name].is_numeric else values(SCHEMA[name]))
    rules = RuleSet(SCHEMA, (rule,))
    candidate = after(**{name: value})
    if candidate == QUERY:
        return
    refused = [v for v in rules.violations(QUERY, candidate) if name in v.features]
    assert rules.levers(QUERY)[name].admits(candidate[SCHEMA.index(name)]) == (not refused)


@given(st.data())
def test_the_query_breaks_no_rule_about_moves(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    query = data.draw(rows(schema))
    moves = RuleSet(schema, (Immutable(features=schema.names), MaxChanges(at_most=1)))
    assert moves.violations(query, query) == ()
    candidate = data.draw(rows(schema))
    assert bool(moves.violations(query, candidate)) == (query != candidate)
