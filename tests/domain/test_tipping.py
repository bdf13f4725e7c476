"""Tipping points are read off what was asked: intervals, limits, and what was never asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_ways import QUERY, Approves, Model, asked, checks, problem, row

from waysout.domain.distance import Distance
from waysout.domain.key import Key
from waysout.domain.problem import Problem
from waysout.domain.result import Interval, Tip, TipStatus
from waysout.domain.rules import Immutable, Linear, Rule, RuleSet
from waysout.domain.schema import Feature, Row, Schema
from waysout.domain.tipping import DOWN, TO, UP, Line, Lines, tipping_points
from waysout.domain.ways import Asked, Checks


def tips(approves: Approves, rows: Iterable[Row], *rules: Rule) -> dict[tuple[str, str], Tip]:
    of = problem(approves, *rules)
    found = tipping_points(Checks(of, QUERY), asked(of, rows))
    return {(name, tip.move): tip for name, told in found.items() for tip in told}


def line(name: str, move: str, *rules: Rule, query: Row = QUERY) -> Line:
    [found] = [a for a in Lines(checks(*rules, query=query)).by_lever[name] if a.move == move]
    return found


def test_yeses_without_a_refusal_between_are_one_interval() -> None:
    def says(values: dict[str, Any]) -> bool:
        return bool(45 <= values["income"] <= 70 or values["income"] > 90)

    incomes = (100.0, 42.0, 45.0, 30.0, 60.0, 80.0)  # in no order
    found = tips(says, [row(income=income) for income in incomes])["income", UP]
    assert found.status is TipStatus.TURNS
    assert found.refused == (30.0, 42.0, 80.0)
    assert found.limit == 100.0
    assert found.intervals == (
        Interval(45.0, 60.0, 2, 42.0, 80.0, sharp=False),  # a tenth of 25 short of it is 42.5
        Interval(100.0, 100.0, 1, 80.0, None, sharp=False),
    )
    assert not found.goes_on


def test_where_it_turns_is_sharp_if_a_tenth_less_or_the_next_value_is_a_no() -> None:
    def first(feature: str, *values: float) -> Interval:
        rows = [row(**{feature: value}) for value in values]
        move = UP if values[0] > {"debt": 10, "income": 20}[feature] else DOWN
        return tips(lambda r: r[feature] == values[-1], rows)[feature, move].intervals[0]

    assert first("income", 37.9, 38.0, 40.0).sharp
    assert not first("income", 37.9, 40.0).sharp
    assert first("debt", 7, 6).sharp
    assert not first("debt", 8, 6).sharp
    assert first("debt", 9).sharp  # nothing lies between


def test_from_here_on_takes_five_values_beyond_and_the_limit() -> None:
    def goes_on(*incomes: float) -> bool:
        rows = [row(income=income) for income in incomes]
        return tips(lambda r: r["income"] not in (30.0, 55.0), rows)["income", UP].goes_on

    assert goes_on(30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 100.0)
    assert not goes_on(30.0, 40.0, 50.0, 60.0, 70.0, 100.0)
    assert not goes_on(30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0)
    assert not goes_on(40.0, 50.0, 55.0, 60.0, 70.0, 80.0, 90.0, 95.0, 100.0)


def test_where_there_are_fewer_values_all_of_them_will_do() -> None:
    def months(*values: int) -> Tip:
        return tips(lambda r: r["months"] >= 36, [row(months=m) for m in values])["months", UP]

    assert months(36, 60).goes_on
    assert not months(36).goes_on
    school = tips(lambda r: r["years"] >= 9, [row(school=s) for s in ("first", "second", "fourth")])
    assert not school["school", UP].goes_on
    assert school["school", UP].intervals == (Interval("second", "fourth", 2, "first"),)


def test_not_up_to_the_limit_is_said_where_the_limit_was_asked() -> None:
    found = tips(lambda r: False, [row(income=30.0), row(income=100.0), row(debt=4)])
    assert found["income", UP].status is TipStatus.NOT_UP_TO
    assert found["income", UP].limit == 100.0
    assert found["debt", DOWN].status is TipStatus.NOT_ASKED
    assert found["debt", DOWN].refused == (4,)
    assert found["debt", UP].status is TipStatus.NOT_ASKED
    assert found["debt", UP].refused == ()


def test_levels_without_an_order_are_told_one_by_one() -> None:
    both = tips(lambda r: r["job"] == "judge", [row(job="cook"), row(job="judge")])["job", TO]
    assert (both.status, both.limit) == (TipStatus.TURNS, None)
    assert both.intervals == (Interval("judge", "judge", 1),)
    assert both.refused == ("cook",)
    assert tips(lambda r: False, [row(job="cook")])["job", TO].status is TipStatus.NOT_ASKED
    every = tips(lambda r: False, [row(job="cook"), row(job="judge")])["job", TO]
    assert every.status is TipStatus.NOT_UP_TO


def test_a_one_hot_group_is_one_lever_whose_values_are_its_features() -> None:
    found = tips(lambda r: r["free"] == 1, [row(rent=1), row(free=1)])
    assert found["own", TO].intervals == (Interval("free", "free", 1),)
    assert found["own", TO].refused == ("rent",)
    assert not {name for name, _ in found} & {"rent", "free"}
    group = line("own", TO)
    assert tuple(group.levels()) == ("rent", "free")
    assert [group.value(group.row(name)) for name in group.levels()] == ["rent", "free"]


def test_what_follows_a_lever_goes_with_it_and_other_levers_do_not() -> None:
    rows = [row(school="second"), row(school="third", income=50.0)]
    found = tips(lambda r: r["years"] >= 9, rows)["school", UP]
    assert found.intervals == (Interval("second", "second", 1, "none", sharp=False),)
    assert row(school="second")[8] == 9


def test_a_value_from_nowhere_has_no_direction() -> None:
    found = tips(lambda r: r["tenure"] is not None, [row(tenure=3)])
    assert ("tenure", UP) not in found
    assert ("tenure", DOWN) not in found


def test_the_limit_is_what_all_rules_allow() -> None:
    assert line("amount", DOWN).limit == 0.0
    assert line("months", UP).limit == 60
    assert line("school", UP).limit == "fourth"
    assert line("delay", DOWN).limit == -6  # the codes below are barred by name
    tied = Linear(that="income + amount <= 90")
    limit = line("income", UP, tied).limit
    assert isinstance(limit, float)
    assert 39.0 < limit <= 40.0
    assert "income" not in Lines(checks(Immutable(features=("income",)))).by_lever


def test_the_present_value_at_its_end_has_no_line_there() -> None:
    at_the_end = replace_value("debt", 20)
    moves = [found.move for found in Lines(checks(query=at_the_end)).by_lever["debt"]]
    assert moves == [DOWN]


def replace_value(name: str, value: Any) -> Row:
    names = list(checks().levers)
    return tuple(value if n == name else old for n, old in zip(names, QUERY, strict=True))


@given(
    st.lists(st.integers(1, 80), min_size=1, max_size=25, unique=True),
    st.sets(st.integers(1, 80)),
)
def test_every_asked_value_is_told_once_and_truly(steps: list[int], yes: set[int]) -> None:
    incomes = {20.0 + step: step in yes for step in steps}
    found = tips(lambda r: incomes[r["income"]], [row(income=i) for i in incomes])["income", UP]
    assert set(found.refused) == {income for income, approved in incomes.items() if not approved}
    assert sum(interval.asked for interval in found.intervals) == sum(incomes.values())
    for interval in found.intervals:
        assert isinstance(interval.first, float)
        assert isinstance(interval.last, float)
        inside = [a for i, a in incomes.items() if interval.first <= i <= interval.last]
        assert all(inside)
        assert len(inside) == interval.asked
        assert interval.before == max(
            (i for i, a in incomes.items() if not a and i < interval.first), default=20.0
        )
        assert interval.after == min(
            (i for i, a in incomes.items() if not a and i > interval.last), default=None
        )
    if found.goes_on:
        assert found.intervals[0].last == 100.0
        assert len(found.intervals) == 1
        assert found.intervals[0].asked > 5


def test_the_goal_decides_what_turns() -> None:
    of = problem(lambda r: r["income"] > 50)
    known = asked(of, [row(income=60.0)])
    refused = {r: replace(answer, valid=False) for r, answer in known.items()}
    [tip] = [t for t in tipping_points(Checks(of, QUERY), refused)["income"] if t.move == UP]
    assert tip.status is TipStatus.NOT_ASKED


@pytest.mark.parametrize("move", [UP, DOWN])
def test_values_behind_the_present_one_are_on_the_other_line(move: str) -> None:
    found = line("income", move)
    ahead, behind = (30.0, 10.0) if move == UP else (10.0, 30.0)
    assert found.is_ahead(ahead)
    assert not found.is_ahead(behind)
    assert found.nearest(behind) is None


def test_what_a_rule_forbids_is_no_refusal_of_the_model() -> None:
    found = tips(lambda r: True, [row(income=60.0)], Linear(that="income + amount <= 90"))
    assert found["income", UP].refused == ()


def test_without_an_end_nothing_goes_on() -> None:
    card = Schema((Feature("a", "number"),))
    of = Problem(card, RuleSet(card), Key(card), Distance.fit(card, ()), Model(lambda r: True))
    known: dict[Row, Asked] = {
        (value,): Asked(0.9, True) for value in (6.0, 7.0, 8.0, 9.0, 12.0, 13.0, 14.0, 15.0)
    }
    [up, _] = tipping_points(Checks(of, (5.0,)), known)["a"]
    assert up.limit == up.intervals[0].last == 15.0
    assert not up.goes_on
