from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waysout.domain.card import Card
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import Standing, Way
from waysout.domain.rules import Linear, Never, Rule
from waysout.domain.schema import Row, Value
from waysout.domain.ways import LESS, Asked, Checks, all_are, find_ways, walked_back

CARD = Card.parse(
    """
card = 1
name = "t"
[outcome]
target = "y"
positive = 1
[features.income]
kind = "number"
range = [0, 100]
[features.debt]
kind = "integer"
range = [0, 20]
[features.amount]
kind = "number"
range = [0, 100]
[features.months]
kind = "integer"
[features.delay]
kind = "integer"
range = [-9, 60]
[features.tenure]
kind = "integer"
range = [0, 40]
missing = "fill"
[features.job]
kind = "category"
levels = ["clerk", "cook", "judge"]
[features.school]
kind = "category"
levels = ["none", "first", "second", "third", "fourth"]
ordered = true
[features.years]
kind = "integer"
range = [0, 20]
[features.own]
kind = "integer"
[features.rent]
kind = "integer"
[features.free]
kind = "integer"
[[rules.usual]]
kind = "step"
feature = "amount"
step = 5
[[rules.usual]]
kind = "allowed"
feature = "months"
values = [12, 24, 36, 60]
[[rules.usual]]
kind = "never"
features = ["delay"]
values = [-9, -8, -7]
[[rules.usual]]
kind = "linked"
feature = "school"
sets = "years"
map = { none = 0, first = 4, second = 9, third = 12, fourth = 16 }
[[rules.usual]]
kind = "one-hot"
features = ["own", "rent", "free"]
"""
)
QUERY: Row = (20.0, 10, 50.0, 24, 5, None, "clerk", "none", 0, 1, 0, 0)
Approves = Callable[[dict[str, Any]], bool]
PLAIN = CARD.rules()


class Model:
    """Approves what a function says."""

    name = "model"
    labels_only = True

    def __init__(self, approves: Approves) -> None:
        self.approves = approves

    def ask(self, rows: Sequence[Row]) -> Answers:
        yes = np.array([self.approves(CARD.schema.as_dict(row)) for row in rows], dtype=np.bool_)
        return Answers(yes.astype(np.float64), yes)


def problem(approves: Approves = lambda row: True, *rules: Rule) -> Problem:
    return Problem.from_card(CARD, Model(approves), rules=rules)


def row(**edits: Any) -> Row:
    return PLAIN.apply(QUERY, edits)


def edits(rows: Iterable[Row]) -> list[dict[str, Value]]:
    names = CARD.schema.names
    told = (zip(names, QUERY, made, strict=True) for made in rows)
    return [{name: new for name, old, new in values if new != old} for values in told]


def asked(of: Problem, rows: Iterable[Row]) -> dict[Row, Asked]:
    wanted = list(dict.fromkeys(rows))
    met = of.goal.met(of.oracle.ask(wanted)).tolist()
    return {
        r: Asked(float(yes), yes and not of.violations(QUERY, r) and r != QUERY)
        for r, yes in zip(wanted, met, strict=True)
    }


def checks(*rules: Rule, query: Row = QUERY) -> Checks:
    return Checks(problem(lambda row: True, *rules), query)


def ways_of(approves: Approves, *rows: Row, complete: bool = False) -> tuple[Way, ...]:
    """Return the ways among some rows; ``complete`` asks all that tells of them, too."""
    of, known = problem(approves), dict[Row, Asked]()
    new = list(rows)
    while new:
        known |= asked(of, new)
        found = find_ways(of, QUERY, known)
        look = Checks(of, QUERY)
        told = [tuple(way.row.values()) for way in found] if complete else []
        new = [r for t in told for r in (*look.shorter(t), *look.farther(t), *look.nearer(t))]
        new = [r for r in new if r not in known]
    return find_ways(of, QUERY, known)


# Covers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "covered"),
    [
        ({"income": 30.0}, {"income": 30.0}, True),
        ({"income": 30.0}, {"income": 40.0}, True),
        ({"income": 40.0}, {"income": 30.0}, False),
        ({"income": 30.0}, {"income": 10.0}, False),  # the other direction
        ({"income": 30.0}, {"income": 30.0, "debt": 5}, True),
        ({"income": 30.0, "debt": 5}, {"income": 30.0}, False),
        ({"job": "cook"}, {"job": "cook", "debt": 5}, True),
        ({"job": "cook"}, {"job": "judge"}, False),
        ({"school": "first"}, {"school": "third"}, True),  # ordered, and years follow
        ({"school": "third"}, {"school": "first"}, False),
        ({"rent": 1}, {"rent": 1, "income": 30.0}, True),
        ({"rent": 1}, {"free": 1}, False),  # a group has levels, though both clear `own`
        ({"tenure": 3}, {"tenure": 9}, False),  # it was missing: there is no direction
        ({"months": 36}, {"months": 60}, True),
    ],
)
def test_an_option_covers_another_that_goes_at_least_as_far(
    one: dict[str, Value], other: dict[str, Value], covered: bool
) -> None:
    assert checks().covers(row(**one), row(**other)) is covered


def test_a_code_is_a_level() -> None:
    query = row(delay=-9)
    look, made, more = checks(query=query), row(delay=10), row(delay=20)
    assert not look.covers(made, more)
    assert (look.numbers(made), look.farther(made), look.nearer(made)) == ({}, [], [])


drawn_edits = st.fixed_dictionaries(
    {},
    optional={
        "income": st.sampled_from([5.0, 10.0, 21.0, 30.0, 60.0, 99.0]),
        "debt": st.integers(0, 20),
        "amount": st.sampled_from([0.0, 45.0, 55.0, 90.0]),
        "months": st.sampled_from([12, 36, 60]),
        "tenure": st.sampled_from([3, 9]),
        "job": st.sampled_from(["cook", "judge"]),
        "school": st.sampled_from(["first", "second", "fourth"]),
        "rent": st.just(1),
        "free": st.just(1),
    },
)
drawn_rows = drawn_edits.map(lambda drawn: row(**drawn)).filter(lambda made: made != QUERY)


@given(st.lists(drawn_rows, min_size=1, max_size=6))
def test_covers_is_a_partial_order(rows: list[Row]) -> None:
    covers = checks().covers
    for a in rows:
        assert covers(a, a)
        for b in rows:
            assert not (covers(a, b) and covers(b, a)) or a == b
            for c in rows:
                assert not (covers(a, b) and covers(b, c)) or covers(a, c)


# The rows that tell ------------------------------------------------------------------------------


def test_up_to_four_levers_every_subset_is_looked_at() -> None:
    made = {"income": 30.0, "debt": 5, "job": "cook", "rent": 1}
    found = checks().shorter(row(**made))
    subsets = [part for size in (3, 2, 1) for part in combinations(made, size)]
    assert set(found) == {row(**{name: made[name] for name in part}) for part in subsets}
    assert len(found) == len(subsets) == 14


def test_of_more_levers_each_is_left_out_in_turn() -> None:
    made = {"income": 30.0, "debt": 5, "job": "cook", "school": "first", "months": 36}
    left_out = [{n: v for n, v in made.items() if n != name} for name in made]
    assert set(checks().shorter(row(**made))) == {row(**kept) for kept in left_out}


def test_what_follows_a_lever_goes_with_it() -> None:
    found = edits(checks().shorter(row(school="second", rent=1)))
    assert sorted(found, key=str) == [{"own": 0, "rent": 1}, {"school": "second", "years": 9}]


def test_subsets_that_break_a_rule_are_not_looked_at() -> None:
    found = checks(Linear(that="income >= 2*amount - 80")).shorter(row(income=30.0, amount=55.0))
    assert edits(found) == [{"income": 30.0}]


@pytest.mark.parametrize(
    ("made", "farther"),
    [
        ({"income": 30.0}, [{"income": 31.0}, {"income": 35.0}]),
        ({"income": 10.0}, [{"income": 9.0}, {"income": 5.0}]),
        ({"income": 99.0}, [{"income": 100.0}]),  # the end of the range
        ({"income": 100.0}, []),
        ({"debt": 6}, [{"debt": 4}]),  # a tenth is less than one step
        ({"debt": 9}, [{"debt": 8}]),  # half a step is rounded up, in both directions
        ({"debt": 11}, [{"debt": 12}]),
        ({"amount": 70.0}, [{"amount": 80.0}]),
        ({"months": 36}, []),
        ({"school": "second"}, [{"school": "third", "years": 12}]),
        ({"school": "first"}, [{"school": "second", "years": 9}]),
        ({"job": "cook"}, []),
        ({"rent": 1}, []),
        (
            {"income": 30.0, "debt": 6},
            [{"income": 31.0, "debt": 6}, {"income": 35.0, "debt": 4}],
        ),
    ],
)
def test_numbers_go_a_tenth_and_a_half_farther(
    made: dict[str, Value], farther: list[dict[str, Value]]
) -> None:
    assert edits(checks().farther(row(**made))) == farther


def test_numbers_go_only_as_far_as_a_rule_on_several_allows() -> None:
    bound = Linear(that="income + amount <= 102")
    # 35 and 80 break it. One after the other, the amount goes a half farther and the income stays;
    # for a tenth, the amount is on its grid and the income has room.
    found = edits(checks(bound).farther(row(income=30.0, amount=70.0)))
    assert found == [{"income": 31.0, "amount": 70.0}, {"income": 30.0 + 1.25, "amount": 70.0}]
    # Together, two numbers keep what each alone would break.
    tied = Linear(that="income - debt == 10")
    assert edits(checks(tied).farther(row(income=24.0, debt=14))) == [{"income": 26.0, "debt": 16}]


@pytest.mark.parametrize(
    ("made", "nearer"),
    [
        ({"income": 30.0}, [{"income": 29.0}]),
        ({"debt": 0}, [{"debt": 1}]),
        ({"debt": 6}, [{"debt": 7}]),  # a tenth is less than one step: the next value
        ({"debt": 9}, []),  # one step away
        ({"amount": 70.0}, [{"amount": 65.0}]),
        ({"months": 60}, [{"months": 36}]),
        ({"months": 36}, []),
        ({"school": "fourth"}, [{"school": "third", "years": 12}]),
        ({"job": "cook"}, []),
        ({"tenure": 9}, []),
    ],
)
def test_each_number_is_walked_back_by_a_tenth_or_to_the_next_value(
    made: dict[str, Value], nearer: list[dict[str, Value]]
) -> None:
    assert edits(checks().nearer(row(**made))) == nearer


def test_each_number_is_walked_back_in_turn() -> None:
    found = edits(checks().nearer(row(income=30.0, debt=0)))
    assert found == [{"income": 30.0, "debt": 1}, {"income": 29.0, "debt": 0}]


def test_no_value_is_walked_back_to_a_code() -> None:
    assert walked_back(PLAIN.levers(row(delay=-9))["delay"], 0) is None
    barred = PLAIN.extended([Never(features=["debt"], values=[6, 7])])
    assert walked_back(barred.levers(QUERY)["debt"], 5) == 8  # the next that is admitted


# What the answers say ----------------------------------------------------------------------------


def test_flags_are_null_where_the_rows_did_not_reach() -> None:
    [way] = ways_of(lambda row: row["income"] >= 30, row(income=30.0))
    assert (way.irreducible, way.tight, way.holds) == (True, None, None)
    assert way.standing is Standing.OPEN


def test_flags_are_what_the_model_says_once_all_was_asked() -> None:
    [way] = ways_of(lambda row: row["income"] >= 29.5, row(income=30.0), complete=True)
    assert (way.irreducible, way.tight, way.holds) == (True, True, True)
    [loose] = ways_of(lambda row: row["debt"] <= 9, row(debt=0), row(debt=1))
    assert (loose.row["debt"], loose.holds, loose.tight) == (1, True, None)
    [loose] = ways_of(lambda row: row["debt"] <= 9, row(debt=6), row(debt=7))
    assert (loose.row["debt"], loose.holds, loose.tight) == (7, None, None)


def test_a_lever_that_is_not_needed_is_in_no_way() -> None:
    found = ways_of(lambda row: row["job"] == "cook", row(job="cook", debt=5), complete=True)
    assert [way.levers for way in found] == [("job",)]


def test_one_known_refusal_says_enough() -> None:
    look, income = checks(), row(income=30.0)
    known = {row(income=31.0): False}.get
    assert look.holds(income, known) is False
    assert look.tight(row(income=30.0, debt=5), {row(debt=5): True}.get) is False


def test_a_pocket_does_not_hold_and_is_shown_only_where_nothing_does() -> None:
    def pocket(row: dict[str, Any]) -> bool:
        return bool(row["income"] == 30.0)

    [way] = ways_of(pocket, row(income=30.0), complete=True)
    assert way.holds is False
    assert way.standing is Standing.POCKET

    def or_cook(row: dict[str, Any]) -> bool:
        return bool(row["income"] == 30.0 or row["job"] == "cook")

    found = ways_of(or_cook, row(income=30.0), row(job="cook"), complete=True)
    assert [way.levers for way in found] == [("job",)]


def test_the_cheapest_that_holds_is_the_way_and_pockets_are_no_variants() -> None:
    def islands(row: dict[str, Any]) -> bool:
        return bool(row["income"] >= 60 or 24 <= row["income"] <= 24.3)

    cheap = [row(income=24.0 + i / 100) for i in range(20)]
    asked_too = [far for made in cheap for far in checks().farther(made)]
    [way] = ways_of(islands, *cheap, *asked_too, row(income=60.0), complete=True)
    assert way.row["income"] == 60.0
    assert way.holds
    assert all(variant.row["income"] == 60.0 for variant in way.variants)


def test_other_levels_and_directions_are_variants() -> None:
    found = ways_of(
        lambda row: row["job"] != "clerk" or row["income"] != 20.0,
        row(job="judge"), row(job="cook"), row(income=40.0), row(income=30.0), row(income=5.0),
    )  # fmt: skip
    told = {way.levers: (way, way.variants) for way in found}
    job, others = told["job",]
    assert {job.row["job"], *(v.row["job"] for v in others)} == {"cook", "judge"}
    income, others = told["income",]
    assert income.row["income"] == 30.0
    assert [v.row["income"] for v in others] == [5.0]  # 40 only goes on from 30


def test_more_levers_must_save_a_tenth() -> None:
    def either(row: dict[str, Any]) -> bool:
        income, debt = row["income"], row["debt"]
        return bool(income >= 60 or (income >= 59.5 and debt < 10) or (income >= 30 and debt < 9))

    rows = row(income=60.0), row(income=59.5, debt=9)
    assert [way.levers for way in ways_of(either, *rows, complete=True)] == [("income",)]
    found = ways_of(either, *rows, row(income=30.0, debt=8), complete=True)
    assert {way.levers for way in found} == {("income",), ("debt", "income")}


def test_at_equal_cost_the_named_one_is_the_way() -> None:
    of = problem()
    known = asked(of, [row(job="judge"), row(job="cook")])
    known[row(job="cook")] = Asked(1.0, True, ("cooks are wanted",))
    [way] = find_ways(of, QUERY, known)
    assert way.reasons == ("cooks are wanted",)


def test_no_options_no_ways() -> None:
    assert find_ways(problem(), QUERY, {}) == ()
    assert ways_of(lambda row: False, row(debt=5)) == ()


# In general --------------------------------------------------------------------------------------


@st.composite
def models(draw: st.DrawFn) -> Approves:
    """Draw models of a few conditions on one to three features; some are pockets."""
    conditions: dict[str, st.SearchStrategy[Callable[[Any], bool]]] = {
        "income": st.sampled_from([
            lambda v: v > 28, lambda v: v < 9.5, lambda v: 25 < v < 31, lambda v: v > 50,
        ]),
        "debt": st.integers(0, 9).map(lambda most: lambda v: v <= most),
        "months": st.sampled_from([lambda v: v > 24, lambda v: v == 36]),
        "job": st.sampled_from([lambda v: v == "cook", lambda v: v != "clerk"]),
        "school": st.sampled_from([lambda v: v != "none", lambda v: v == "second"]),
        "rent": st.just(lambda v: v == 1),
        "tenure": st.just(lambda v: v is not None),
    }  # fmt: skip
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        names = draw(st.lists(st.sampled_from(sorted(conditions)), min_size=1, max_size=3))
        parts.append({name: draw(conditions[name]) for name in names})
    return lambda row: any(all(meets(row[n]) for n, meets in part.items()) for part in parts)


@given(models(), st.lists(drawn_rows, min_size=1, max_size=25))
def test_ways_are_few_and_needed(approves: Approves, rows: list[Row]) -> None:
    of = problem(approves)
    known = asked(of, rows)
    found = find_ways(of, QUERY, known)
    assert bool(found) == any(answer.valid for answer in known.values())
    assert len({way.levers for way in found}) == len(found)
    valid = {r for r, answer in known.items() if answer.valid}
    for way in found:
        made = tuple(way.row.values())
        assert made in valid
        assert not valid.intersection(Checks(of, QUERY).shorter(made))
        for other in found:
            if set(other.levers) < set(way.levers) and other.standing == way.standing:
                assert way.cost <= LESS * other.cost
        for variant in way.variants:
            assert PLAIN.moved(QUERY, tuple(variant.row.values())) == set(way.levers)
    assert list(found) == sorted(found, key=lambda way: (way.standing, way.cost))
    pockets = [way.standing is Standing.POCKET for way in found]
    assert all(pockets) or not any(pockets)


@given(models(), st.lists(drawn_rows, min_size=1, max_size=25))
def test_what_is_needed_is_the_same_whether_the_rules_were_put_to_all_parts_or_to_few(
    approves: Approves, rows: list[Row]
) -> None:
    of = problem(approves)
    known = asked(of, rows)

    def valid(row: Row) -> bool | None:
        return known[row].valid if row in known else None

    for row in known:
        few, every = Checks(of, QUERY), Checks(of, QUERY)
        assert few.irreducible(row, valid) == all_are(every.shorter(row), valid, False)


@given(models(), st.lists(drawn_rows, min_size=1, max_size=12))
def test_flags_are_what_the_model_itself_says(approves: Approves, rows: list[Row]) -> None:
    of = problem(approves)
    look = Checks(of, QUERY)
    make = (look.shorter, look.farther, look.nearer)
    telling = [r for made in rows for rows_for in make for r in rows_for(made)]
    known = asked(of, [*rows, *telling])

    def says(made: Row) -> bool:
        return approves(CARD.schema.as_dict(made))

    for way in find_ways(of, QUERY, known):
        made = tuple(way.row.values())
        irreducible = not any(map(says, look.shorter(made)))
        tight = irreducible and not any(map(says, look.nearer(made)))
        told = (way.irreducible, way.tight, way.holds)
        truth = (irreducible, tight, all(map(says, look.farther(made))))
        assert all(flag in (None, true) for flag, true in zip(told, truth, strict=True))
        assert made not in rows or told == truth  # nothing is null where all was asked
