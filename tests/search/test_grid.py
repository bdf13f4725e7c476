"""Values to try: one for each bin, near, round, and allowed."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waysout.domain.rules import Allowed, Direction, Never, Range, Rule, RuleSet, Step
from waysout.domain.rules.base import Lever
from waysout.domain.schema import Feature, Schema, Value
from waysout.search.library import MOST_VALUES, values_to_try

INCOME = Feature("x", "integer", range=(0, 900))
EDGES = (100, 250, 400, 800)


def lever(feature: Feature, now: Value, *rules: Rule) -> Lever:
    return RuleSet(Schema((feature,)), rules).levers((now,))[feature.name]


def number(low: float, high: float, decimals: int | None = None) -> Feature:
    return Feature("x", "number", range=(low, high), decimals=decimals)


@pytest.mark.parametrize(
    ("of", "edges", "expected"),
    [
        # Upwards the near end of (250, 400] is 251: 300 is the first round number from there.
        (lever(INCOME, 240), EDGES, [100, 300, 500, 810]),
        # Downwards it is the edge itself.
        (lever(INCOME, 900), EDGES, [100, 200, 400, 800]),
        (lever(INCOME, 0), EDGES, [200, 300, 500, 810]),
        (lever(number(0, 1), 0.0), (0.2, 0.6), [0.3, 0.7]),
        (lever(number(-50, 50), 0.0), (-20, 20), [-20.0, 30.0]),
        (lever(number(0, 1, decimals=2), 0.0), (0.25, 0.5), [0.3, 0.6]),
    ],
    ids=["amid", "down", "up", "small", "below nought", "decimals"],
)
def test_one_round_value_near_the_present_one_for_each_other_bin(
    of: Lever, edges: tuple[float, ...], expected: list[float]
) -> None:
    assert values_to_try(of, edges) == pytest.approx(expected)


def test_whole_numbers_stay_whole() -> None:
    assert {type(value) for value in values_to_try(lever(INCOME, 240), EDGES)} == {int}


def test_a_bin_too_narrow_for_a_round_number_has_its_own() -> None:
    assert values_to_try(lever(INCOME, 0), (131, 132, 133)) == [132, 133, 200]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Range(feature="x", max=300), [100, 260]),
        (Range(feature="x", min=120, max=399), [300]),
        (Direction(features=["x"], direction="up"), [300, 500, 810]),
        (Direction(features=["x"], direction="down"), [100]),
        (Never(features=["x"], values=[300]), [100, 260, 500, 810]),
        (Allowed(feature="x", values=[90, 255, 399, 640]), [90, 255, 640]),
    ],
    ids=["range", "narrow range", "up", "down", "never", "allowed"],
)
def test_rules_are_kept(rule: Rule, expected: list[int]) -> None:
    assert values_to_try(lever(INCOME, 240, rule), EDGES) == expected


def test_a_range_beyond_which_there_are_edges() -> None:
    narrow = Feature("x", "integer", range=(300, 350))
    assert values_to_try(lever(narrow, 310), EDGES) == []
    assert values_to_try(lever(narrow, 900), EDGES) == [350]


@pytest.mark.parametrize(
    ("step", "now", "edges", "expected"),
    [
        (100, 0, (250, 320, 800), [300, 400, 900]),
        (50, 0, (110, 190, 260), [150, 200, 300]),
        (100, 900, (250, 320, 800), [200, 300, 800]),
    ],
    ids=["narrower than a step", "between two", "downwards"],
)
def test_no_bin_that_holds_a_step_is_left_out(
    step: int, now: int, edges: tuple[float, ...], expected: list[int]
) -> None:
    rule = Step(feature="x", step=step)
    assert values_to_try(lever(INCOME, now, rule), edges) == expected


def test_edges_between_whole_numbers() -> None:
    assert values_to_try(lever(Feature("x", "integer", range=(0, 9)), 0), (2.5, 3.2, 5.5)) == [
        3, 4, 6,
    ]  # fmt: skip


@pytest.mark.parametrize("now", [250.5, 251.0, 260.0, 400.0])
def test_the_present_bin_has_no_value(now: float) -> None:
    found = values_to_try(lever(number(0, 900), now), (250, 400))
    assert [bisect_left((250, 400), value) for value in found] == [0, 2]  # type: ignore[type-var]


def test_a_list_of_numbers_far_from_the_present_one() -> None:
    listed = Allowed(feature="x", values=[5, 1000, 3000, 5000])
    assert values_to_try(lever(Feature("x", "integer"), 5, listed), (100, 2000)) == [1000, 3000]


def test_edges_tell_how_far_a_number_without_a_range_goes() -> None:
    found = values_to_try(lever(Feature("x", "number"), 5.0), (100, 200, 300))
    bins = [bisect_left((100, 200, 300), value) for value in found]  # type: ignore[type-var]
    assert bins == [1, 2, 3]


@pytest.mark.parametrize(
    ("feature", "now"),
    [
        (Feature("x", "integer", range=(0, 900), missing="fill"), None),
        (INCOME, 240),
    ],
    ids=["missing", "no bins"],
)
def test_without_a_present_value_or_bins_values_are_spread(feature: Feature, now: Value) -> None:
    edges = EDGES if now is None else ()
    found = values_to_try(lever(feature, now), edges)
    assert found == [0, 112, 225, 337, 450, 562, 675, 787, 900]


def test_a_missing_value_that_stays_missing_has_none() -> None:
    assert values_to_try(lever(Feature("x", "integer", missing="keep"), None), EDGES) == []


def test_categories_and_booleans_give_what_they_have() -> None:
    job = Feature("x", "category", levels=("cook", "clerk", "none"))
    assert values_to_try(lever(job, "clerk")) == ["cook", "none"]
    assert values_to_try(lever(Feature("x", "boolean"), True)) == [False]


def test_of_very_many_levels_some_are_tried() -> None:
    town = Feature("x", "category", levels=tuple(f"t{i}" for i in range(10_000)))
    found = values_to_try(lever(town, "t0"))
    assert len(found) == len(set(found)) == MOST_VALUES


edge_lists = st.lists(st.integers(-500, 500), min_size=1, max_size=9, unique=True).map(sorted)


@st.composite
def levers(draw: st.DrawFn) -> Lever:
    low = draw(st.integers(-400, 400))
    high = low + draw(st.integers(1, 600))
    kind = draw(st.sampled_from(["integer", "number"]))
    decimals = draw(st.none() | st.integers(0, 3)) if kind == "number" else None
    bounds = draw(st.sampled_from([(low, high), None]))
    feature = Feature("x", kind, range=bounds, decimals=decimals)  # type: ignore[arg-type]
    rules: list[Rule] = draw(
        st.lists(
            st.sampled_from(
                [
                    Step(feature="x", step=draw(st.integers(1, 90)), start=draw(st.integers(0, 9))),
                    Never(features=["x"], values=[*range(low, low + 30, 3)]),
                    Direction(features=["x"], direction=draw(st.sampled_from(["up", "down"]))),
                    Allowed(feature="x", values=[*range(low, high + 1, 7)]),
                ]
            ),
            max_size=2,
            unique_by=lambda rule: rule.kind,
        )
    )
    # The present value may lie outside of what is allowed.
    now = draw(st.integers(-600, 900))
    return lever(feature, now if kind == "integer" else float(now), *rules)


@given(levers(), edge_lists)
def test_every_value_is_admitted_and_no_two_lie_in_one_bin(of: Lever, edges: list[float]) -> None:
    found = values_to_try(of, edges)
    assert all(of.admits(value) for value in found)
    bins = [bisect_left(edges, value) for value in found]  # type: ignore[type-var]
    assert len(set(bins)) == len(bins)
    assert len(bins) <= len(edges)


@given(st.integers(0, 60), edge_lists, st.integers(1, 40))
def test_every_bin_that_can_be_reached_has_a_value(now: int, edges: list[float], step: int) -> None:
    of = lever(Feature("x", "integer", range=(-60, 60)), now, Step(feature="x", step=step))
    here = bisect_left(edges, now)
    reached = {bisect_left(edges, v) for v in range(-60, 61) if of.admits(v)} - {here}
    found = values_to_try(of, edges)
    assert {bisect_left(edges, value) for value in found} == reached  # type: ignore[type-var]
