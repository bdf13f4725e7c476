from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waysout.domain.pick import pick
from waysout.domain.result import Option, Outcome, OutcomeKind, ResultData, Way
from waysout.domain.schema import Value
from waysout.errors import InputError

QUERY: dict[str, Value] = {"income": 100.0, "debt": 50, "home": "rent", "car": False}
SETTINGS = {"distance": {"alpha": 0.5, "scales": {"income": 10.0, "debt": 5.0}}}


def option(name: str, proximity: float = 0.5, *, stable: bool = True, **new: Value) -> Option:
    changes = {feature: (QUERY[feature], value) for feature, value in new.items()}
    return Option({**QUERY, **new}, changes, 0.7, proximity, len(new), name, stable=stable)


def result(options: Sequence[Option], settings: dict[str, Any] = SETTINGS) -> ResultData:
    return ResultData(QUERY, Outcome(OutcomeKind.FOUND), tuple(options), settings=settings)


def picked(options: Sequence[Option], n: int, settings: dict[str, Any] = SETTINGS) -> list[str]:
    return [o.key for o in pick(result(options, settings), n)]


def test_the_best_comes_first_few_changes_and_near() -> None:
    options = [
        option("far", 0.3, income=200.0),
        option("two", 0.8, income=120.0, debt=40),  # 0.8 / 3 = 0.27
        option("best", 0.7, debt=40),  # 0.7 / 2 = 0.35
    ]
    assert picked(options, 1) == ["best"]


def test_unstable_options_come_last() -> None:
    options = [option("shaky", 0.9, stable=False, debt=40), option("firm", 0.2, income=200.0)]
    assert picked(options, 2) == ["firm", "shaky"]


def test_other_features_come_before_more_of_the_same() -> None:
    near = [option(f"income {i}", 0.9, income=100.0 + 30 * i) for i in range(1, 5)]
    others = [option("home", 0.3, home="own"), option("both", 0.2, home="none", debt=45)]
    chosen = picked([*near, *others], 4)
    assert set(chosen[1:3]) == {"home", "both"}
    assert chosen[0].startswith("income")
    assert chosen[3].startswith("income")


def test_what_only_adds_to_another_option_comes_last() -> None:
    options = [
        option("less", 0.5, debt=40),
        option("more", 0.9, debt=40, car=True),  # as likely as "less", and more to do
        option("other", 0.1, home="own"),
    ]
    assert picked(options, 3) == ["less", "other", "more"]
    likelier = replace(options[1], probability=0.8)
    assert picked([options[0], likelier, options[2]], 3) == ["more", "less", "other"]


def test_among_the_same_features_the_different_beats_the_similar() -> None:
    # Scores after the first: near 0.5·(1 − 1/1.05) ≈ .024; apart 0.45·(1 − 1/1.71) ≈ .19.
    options = [option("first", 0.9, income=120.0), option("near", 1.0 - 0.11, income=121.0),
               option("apart", 0.6, income=140.0)]  # fmt: skip
    assert picked(options, 3) == ["first", "apart", "near"]


def test_an_outlier_does_not_win_by_its_distance() -> None:
    # ½·RMS over two numbers: 1000 is 45 scales off and has a proximity to match.
    options = [option("first", 0.9, income=110.0), option("outlier", 0.02, income=1000.0),
               option("apart", 0.6, income=130.0)]  # fmt: skip
    assert picked(options, 2) == ["first", "apart"]


def test_distance_is_measured_by_the_noted_scales() -> None:
    options = [option("first", 0.9, income=110.0, debt=51),
               option("income", 0.5, income=140.0, debt=51),
               option("debt", 0.5, income=110.0, debt=60)]  # fmt: skip
    by_income = {"distance": {"alpha": 0.5, "scales": {"income": 1.0, "debt": 100.0}}}
    by_debt = {"distance": {"alpha": 0.5, "scales": {"income": 1000.0, "debt": 1.0}}}
    assert picked(options, 2, by_income) == ["first", "income"]
    assert picked(options, 2, by_debt) == ["first", "debt"]


def test_without_noted_scales_the_spread_among_the_options_counts() -> None:
    options = [option("first", 0.9, income=110.0, debt=51),
               option("near", 0.5, income=110.5, debt=51),
               option("apart", 0.5, income=110.0, debt=90),
               option("other", 0.5, income=111.0, debt=52)]  # fmt: skip
    assert picked(options, 2, {}) == ["first", "apart"]


def test_ties_go_to_the_first_found() -> None:
    options = [option(name, 0.5, income=120.0) for name in "abc"]
    assert picked(options, 3) == ["a", "b", "c"]


def test_missing_values_and_categories_are_compared() -> None:
    options = [option("none", debt=None), option("own", home="own"), option("car", car=True)]
    assert sorted(picked(options, 9)) == ["car", "none", "own"]
    assert sorted(picked(options, 9, {})) == ["car", "none", "own"]


def test_no_options_no_pick() -> None:
    assert pick(result([])) == ()


@pytest.mark.parametrize("n", [0, -1, 2.5, True, "3"])
def test_n_is_a_whole_number_of_one_or_more(n: Any) -> None:
    with pytest.raises(InputError, match="n is a whole number of 1 or more, not"):
        pick(result([option("a", income=1.0)]), n)


# Ways --------------------------------------------------------------------------------------------


def way(
    name: str, cost: float, *levers: str, holds: bool | None = True, stable: bool = True,
    reasons: tuple[str, ...] = (), tight: bool | None = True,
) -> Way:  # fmt: skip
    found = replace(option(name, stable=stable, **dict.fromkeys(levers, 0)), reasons=reasons)
    return Way(**vars(found), levers=levers, cost=cost, irreducible=True, tight=tight, holds=holds)


def picked_ways(*ways: Way, n: int = 5) -> list[str]:
    found = replace(result([option("an option", 1.0, car=True)] * 9), ways=ways)
    return [way.key for way in pick(found, n)]


def test_ways_are_picked_and_never_padded_with_options() -> None:
    assert picked_ways(way("b", 2, "debt"), way("a", 1, "income")) == ["a", "b"]
    assert picked_ways(way("b", 2, "debt"), way("a", 1, "income"), n=1) == ["a"]


def test_what_is_known_to_hold_comes_first_and_what_wavers_last() -> None:
    assert picked_ways(
        way("pocket", 1, "income", holds=False),
        way("unknown", 2, "debt", holds=None),
        way("wavers", 0.5, "car", stable=False),
        way("holds", 3, "home"),
    ) == ["holds", "unknown", "pocket", "wavers"]


def test_what_is_known_to_be_just_enough_comes_before_what_may_be_too_much() -> None:
    assert picked_ways(
        way("a little less would do", 1, "income", tight=False),
        way("not asked", 2, "debt", tight=None),
        way("just enough", 3, "home"),
        way("may be a pocket", 0.5, "car", holds=None),
    ) == ["just enough", "a little less would do", "not asked", "may be a pocket"]


def test_ways_with_other_levers_come_before_cheaper_ones_with_the_same() -> None:
    first, both = way("first", 1.0, "income"), way("both", 1.4, "income", "debt")
    assert picked_ways(first, both, way("other", 2.0, "home")) == ["first", "other", "both"]
    # Half of the levers are shared: 1.4 × 1.5 = 2.1.
    assert picked_ways(first, both, way("other", 2.2, "home")) == ["first", "both", "other"]


def test_at_equal_cost_a_named_way_is_preferred() -> None:
    plain, named = way("plain", 0.1 + 0.2, "debt"), way("named", 0.3, "car", reasons=("why",))
    assert picked_ways(plain, named) == ["named", "plain"]


# In general --------------------------------------------------------------------------------------

values = {
    "income": st.floats(0, 1e6),
    "debt": st.integers(0, 100) | st.none(),
    "home": st.sampled_from(["rent", "own", "none"]),
    "car": st.booleans(),
}
drawn = st.lists(
    st.tuples(st.fixed_dictionaries({}, optional=values), st.floats(0.01, 1), st.booleans()),
    max_size=12,
)


@given(drawn, st.integers(1, 15), st.booleans())
def test_a_pick_is_a_deterministic_choice_without_repeats(
    drawn: list[tuple[dict[str, Value], float, bool]], n: int, noted: bool
) -> None:
    options = [option(str(i), p, stable=s, **new) for i, (new, p, s) in enumerate(drawn)]
    found = result(options, SETTINGS if noted else {})
    chosen = pick(found, n)
    assert len(chosen) == len({o.key for o in chosen}) == min(n, len(options))
    assert pick(ResultData.from_json(found.to_json()), n) == chosen
    assert chosen == pick(found, n + 1)[:n]
    stable = sum(o.stable is not False for o in options)
    told = {frozenset(new.items()) for new, _, _ in drawn}
    lean = [not any(t < frozenset(new.items()) and t for t in told) for new, _, _ in drawn]
    sets = {
        frozenset(o.changes) for o, fits in zip(options, lean, strict=True) if o.stable and fits
    }
    first = chosen[: min(len(sets), n)]
    assert all(o.stable for o in chosen[:stable])
    assert len({frozenset(o.changes) for o in first}) == len(first)


def test_numbers_that_a_table_writes_as_text_are_told_apart() -> None:
    options = [option("near", 0.9, income="12,5 %"), option("far", 0.5, income="80 %")]
    assert picked(options, 2) == ["near", "far"]
