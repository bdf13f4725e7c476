"""Rows for tipping points, and for variants that are safer: what is asked, and what comes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recombine_world import Says, make_case, make_problem, number, numbers
from wayfinder_world import logistic, wayfinder

from waysout.domain.oracle import Goal
from waysout.domain.result import Tip, TipStatus
from waysout.domain.schema import Feature, Row, Schema, Value
from waysout.search.archive import Archive
from waysout.search.tips import Tips
from waysout.search.wayfinder import WayfinderSearch

THREE = numbers(3)
START: Row = (0.0, 0.0, 0.0)


def ramp(row: Row) -> float:
    """Turn at 40 with the first number, at 70 with the second; the third does nothing."""
    return 0.9 if number(row[0]) >= 40 or number(row[1]) >= 70 else 0.2


def tips_of(search: WayfinderSearch) -> dict[tuple[str, str], Tip]:
    found = search.archive.tipping()
    return {(name, tip.move): tip for name, told in found.items() for tip in told}


def single(name: str, value: Value) -> Row:
    return tuple(value if f.name == name else 0.0 for f in THREE)


# Tipping points ----------------------------------------------------------------------------------


def test_each_lever_alone_is_told_with_where_it_turns() -> None:
    problem = make_problem(THREE, Says(ramp))
    found = tips_of(wayfinder(make_case(problem, START, rows=150)))
    for name, border in (("n0", 40.0), ("n1", 70.0)):
        tip = found[name, "up"]
        [interval] = tip.intervals
        assert tip.goes_on
        assert interval.sharp
        assert interval.last == 100.0
        assert border <= number(interval.first) < border / 0.9
        assert 0.9 * border <= number(interval.before) < border
    assert found["n2", "up"].status is TipStatus.NOT_UP_TO


def test_without_tips_only_what_the_search_asks_is_told() -> None:
    problem = make_problem(THREE, Says(lambda row: ramp(row) if row[1] == 0 else 0.1))
    asked = {
        share: tips_of(wayfinder(make_case(problem, START, rows=60), tips=share))
        for share in (0.0, 0.2)
    }
    unknown = [
        sum(t.status is TipStatus.NOT_ASKED for t in told.values()) for told in asked.values()
    ]
    assert unknown[1] == 0
    assert unknown[0] >= unknown[1]


def archive_of(*answered: tuple[Row, bool]) -> Archive:
    archive = Archive(make_problem(THREE, Says(ramp)), START)
    for row, yes in answered:
        archive.take(row, str(row), 0.9 if yes else 0.2, yes)
    return archive


def stages(archive: Archive, left: int = 20, first: tuple[str, ...] = ("n0",)) -> list[list[Row]]:
    tips = Tips(archive, lambda _: [10.0 * i for i in range(1, 11)], left)
    return [list(rows) for rows in tips.stages(first) if rows]


def test_the_levers_of_the_ways_come_first_and_their_ends_before_all_else() -> None:
    rows = stages(archive_of(), first=("n1",))
    assert rows == [[single("n1", 100.0)], [single("n0", 100.0), single("n2", 100.0)]]


def test_where_it_turns_is_halved_until_a_tenth_is_left() -> None:
    known = [(single("n0", 100.0), True)]
    for asked in (50.0, 25.0, 37.5, 43.75):
        assert stages(archive_of(*known))[0] == [single("n0", asked)]
        known.append((single("n0", asked), asked >= 40))
    # From 43.75 on it is a yes, and 37.5 is within reach of what makes it sharp.
    assert stages(archive_of(*known))[0] == [single("n0", 39.375)]
    known.append((single("n0", 39.375), False))
    beyond = stages(archive_of(*known))[0]
    assert beyond[:3] == [single("n0", value) for value in (48.125, 65.625, 60.0)]
    known += [(row, True) for row in beyond]
    assert all(row[0] == 0.0 for rows in stages(archive_of(*known)) for row in rows)


def test_beyond_a_refusal_nothing_more_is_asked() -> None:
    known = [(single("n0", 40.0), True), (single("n0", 37.0), False), (single("n0", 60.0), False)]
    assert all(row[0] == 0.0 for rows in stages(archive_of(*known)) for row in rows)


def test_levels_are_asked_one_by_one_but_not_dozens() -> None:
    schema = Schema((Feature("c", "category", levels=tuple("abcdefghijkl")),))
    archive = Archive(make_problem(schema, Says(lambda row: 0.1)), ("a",))
    [rows] = [list(found) for found in Tips(archive, lambda _: (), 20).stages(["c"]) if found]
    assert rows == [(level,) for level in "bcdefg"]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 12), st.integers(1, 60), st.integers(0, 100), st.integers(0, 3))
def test_never_more_rows_than_the_share(tenths: int, rows: int, border: int, seed: int) -> None:
    oracle = Says(lambda row: 0.9 if number(row[0]) + number(row[1]) / 2 >= border + 1 else 0.1)
    case = make_case(make_problem(THREE, oracle), START, rows=rows, seed=seed)
    share = min(0.5, tenths / 10)
    search = wayfinder(case, tips=share)
    assert search.archive.evaluated <= rows
    assert search._finisher._tips is not None
    assert search._finisher._tips.left >= 0
    assert len(set(oracle.asked)) == len(oracle.asked)  # nothing twice


# Safer variants ----------------------------------------------------------------------------------


def slope(row: Row) -> float:
    return logistic((number(row[0]) + number(row[1]) - 40) / 10)


@pytest.mark.parametrize("levels", [(0.8,), (0.7, 0.9)])
def test_each_way_is_carried_on_to_the_chance_asked_for(levels: tuple[float, ...]) -> None:
    problem = replace(make_problem(THREE, Says(slope)), goal=Goal(safer=levels))
    found = wayfinder(make_case(problem, START, rows=150)).archive.ways()
    assert {way.levers for way in found} >= {("n0",), ("n1",)}
    for way in found:
        assert way.probability >= 0.5
        assert tuple(safer.at_least for safer in way.safer) == levels
        for safer in way.safer:
            assert set(safer.changes) == set(way.changes)
            row = tuple(safer.row.values())
            assert safer.probability == pytest.approx(slope(row))
            assert safer.probability >= safer.at_least
            least = replace_scaled(row, 1 / 1.15)  # near enough to the least that will do
            assert slope(least) < safer.at_least


def replace_scaled(row: Row, share: float) -> Row:
    return tuple(share * number(value) for value in row)


def test_what_cannot_be_reached_with_its_levers_has_no_such_variant() -> None:
    def flat(row: Row) -> float:
        return 0.6 if number(row[0]) >= 40 else 0.95 if number(row[1]) >= 50 else 0.1

    problem = replace(make_problem(THREE, Says(flat)), goal=Goal(safer=(0.8,)))
    found = {w.levers: w for w in wayfinder(make_case(problem, START, rows=150)).archive.ways()}
    assert found["n0",].safer == ()
    [safer] = found["n1",].safer
    assert safer.row == found["n1",].row  # it has it already


def test_who_is_approved_already_is_brought_to_the_next_chance() -> None:
    goal = Goal(safer=(0.7, 0.9))
    assert goal.for_query(0.6, approved=True) == Goal(at_least=0.7, safer=(0.9,))
    assert goal.for_query(0.8, approved=True) == Goal(at_least=0.9)
    assert goal.for_query(0.95, approved=True) == Goal()
    assert goal.for_query(0.2, approved=False) == goal
    assert Goal(rise=0.3, safer=(0.4, 0.9)).for_query(0.2) == Goal(at_least=0.5, safer=(0.9,))
    assert Goal.of_levels([]) == Goal()
    assert Goal(safer=(0.9, 0.8, 0.9)) == Goal(safer=(0.8, 0.9))


def test_a_safer_variant_pushes_no_number_that_it_need_not() -> None:
    def both(row: Row) -> float:
        if min(number(row[0]), number(row[1])) < 10:
            return 0.1
        return 0.55 + min(number(row[0]) - 10, 40) / 100

    problem = replace(make_problem(THREE, Says(both)), goal=Goal(safer=(0.8,)))
    [way] = wayfinder(make_case(problem, START, rows=150)).archive.ways()
    assert way.levers == ("n0", "n1")
    [safer] = way.safer
    assert safer.row["n1"] == way.row["n1"]
    assert number(safer.row["n0"]) > number(way.row["n0"])
