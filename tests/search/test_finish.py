"""Finishing: what a search found becomes ways, within the same rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np
import pytest
from finish_world import GROUPED, GROUPS, Handed, finished, flags, flat, reason_of, shown
from recombine_world import Says, make_case, make_problem, number, numbers
from small_world import QUERY, SCHEMA, Adder, case

from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import Linear, Rule, Step
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import InputError
from waysout.search.archive import Archive
from waysout.search.base import Case
from waysout.search.comp_mcts import CompMCTS
from waysout.search.finish import BATCH, SHOWN, WIDE, Finisher, Finishing, Guess, without_set_aside
from waysout.search.recombine import Recombine
from waysout.search.work import Evaluate, Propose, Work


def small_case(chance: Callable[[Row], bool], *rules: Rule, rows: int = 60) -> Case:
    oracle = Says(lambda row: 0.9 if chance(row) else 0.1)
    return make_case(make_problem(SCHEMA, oracle, *rules), QUERY, rows=rows)


def finisher(given_case: Case, *rows: Row, guess: Guess | None = None) -> Finisher:
    """Return a finisher that knows the answers to some rows."""
    archive = Archive(given_case.problem, given_case.query)
    tell(archive, rows)
    return Finisher(archive, guess)


def tell(archive: Archive, rows: Sequence[Row]) -> None:
    answers = archive.problem.oracle.ask(rows)
    for row, judged in zip(rows, archive.judge(rows, answers), strict=True):
        archive.take(row, archive.problem.key(row), *judged)


def next_rows(found: Finisher, most: int = 99) -> list[Row]:
    return [row for row, _ in found.rows(most)]


# Fewer levers -----------------------------------------------------------------------------------


def test_needless_levers_are_dropped() -> None:
    search, batches = finished(case(), (9, 1, "y"))
    assert set(batches[0]) == {(0, 1, "y"), (9, 0, "y"), (9, 1, "x")}
    assert shown(search) == [(5, 0, "x")]
    assert search.ending is not None
    assert search.ending.kind == OutcomeKind.EXHAUSTED
    assert reason_of(search) == f"all were asked; polish: {len(flat(batches))} rows"


def test_an_option_that_needs_all_costs_what_it_takes_to_see_that() -> None:
    search, batches = finished(case(query=(1, 2, "x")), (2, 3, "x"))
    assert batches == [[(1, 3, "x"), (2, 2, "x")], [(3, 4, "x")]]
    assert list(map(flags, search.archive.ways())) == [(True, True, True)]


@pytest.mark.parametrize("needed", [0, 7, 15])
def test_many_levers_are_dropped_by_halves(needed: int) -> None:
    width = 16
    schema = Schema(tuple(Feature(f"f{i}", "boolean") for i in range(width)))
    oracle = Says(lambda row: 0.9 if row[needed] else 0.1)
    given_case = make_case(make_problem(schema, oracle), (False,) * width)
    search, batches = finished(given_case, (True,) * width)
    assert [sum(map(bool, row)) for row in batches[0]] == [width // 2, width // 2]
    assert shown(search) == [tuple(i == needed for i in range(width))]
    assert len(flat(batches)) < width


def test_few_levers_are_dropped_one_by_one() -> None:
    schema = numbers(WIDE)
    given_case = make_case(make_problem(schema, Says(lambda row: 0.9)), (0.0,) * WIDE)
    found = finisher(given_case, (50.0,) * WIDE)
    assert [sum(map(bool, row)) for row in next_rows(found)] == [WIDE - 1] * WIDE


def test_a_lever_that_was_refused_farther_on_is_not_asked_again() -> None:
    both = small_case(lambda row: number(row[0]) >= 3 and number(row[1]) >= 3)
    assert set(next_rows(finisher(both, (5, 5, "x")))) == {(5, 0, "x"), (0, 5, "x")}
    assert next_rows(finisher(both, (5, 5, "x"), (9, 0, "x"))) == [(0, 5, "x")]


# Shorter ways to go -----------------------------------------------------------------------------


def test_numbers_are_walked_back_and_in_the_end_the_exact_rows_are_asked() -> None:
    search, batches = finished(case(), (9, 0, "x"))
    assert batches[0] == [(4, 0, "x")]  # the middle
    assert set(flat(batches)) > {(4, 0, "x"), (6, 0, "x"), (8, 0, "x")}  # nearer and farther than 5
    assert shown(search) == [(5, 0, "x")]
    assert list(map(flags, search.archive.ways())) == [(True, True, True)]


def test_several_numbers_are_walked_back_at_once() -> None:
    both = small_case(lambda row: min(number(row[0]), number(row[1])) >= 3)
    search, batches = finished(both, (8, 9, "x"))
    assert [(4, 9, "x"), (8, 4, "x")] in [sorted(batch) for batch in batches]
    assert shown(search) == [(3, 3, "x")]


def test_the_way_back_begins_at_what_was_refused() -> None:
    assert next_rows(finisher(case(), (9, 0, "x"), (2, 0, "x"), (6, 0, "x"))) == [(4, 0, "x")]
    assert next_rows(finisher(case(), (9, 0, "x"), (4, 0, "x"), (6, 0, "x"))) == [(5, 0, "x")]
    # What was refused with more of another lever counts too.
    both = small_case(lambda row: number(row[0]) >= 4 and number(row[1]) >= 3)
    known = (6, 3, "x"), (9, 9, "x"), (3, 9, "x"), (6, 0, "x"), (0, 3, "x")
    assert next_rows(finisher(both, *known)) == [(5, 3, "x"), (6, 2, "x")]


def test_the_way_back_has_an_end_where_there_is_always_a_number_between() -> None:
    schema = Schema((Feature("income", "number", range=(0, 1e6)),))
    oracle = Says(lambda row: 0.9 if number(row[0]) >= 77_777.7 else 0.1)
    given_case = make_case(make_problem(schema, oracle), (41_350.5,))
    search, batches = finished(given_case, (900_000.0,))
    (way,) = search.archive.ways()
    assert flags(way) == (True, True, True)
    change = number(way.row["income"]) - 41_350.5
    assert 0.9 * change < 77_777.7 - 41_350.5 <= change
    assert len(flat(batches)) < 20


def test_numbers_keep_to_the_grid_of_a_rule() -> None:
    schema = Schema((Feature("income", "number", range=(0, 200_000)),))
    oracle = Says(lambda row: 0.9 if number(row[0]) >= 52_000 else 0.1)
    grid = Step(feature="income", step=700, start=0)
    search, batches = finished(
        make_case(make_problem(schema, oracle, grid), (41_350.5,)), (90_300.0,)
    )
    assert all(number(row[0]) % 700 == 0 for row in flat(batches))
    assert shown(search) == [(52_500.0,)]


LEVELS = ("none", "first", "second", "third", "fourth")


def school_case(least: int) -> Case:
    schema = Schema((Feature("school", "category", levels=LEVELS, ordered=True),))
    oracle = Says(lambda row: 0.9 if LEVELS.index(str(row[0])) >= least else 0.1)
    return make_case(make_problem(schema, oracle), ("none",))


def test_ordered_levels_are_walked_back_and_pushed_too() -> None:
    search, batches = finished(school_case(2), ("second",))
    assert sorted(flat(batches)) == [("first",), ("third",)]
    assert list(map(flags, search.archive.ways())) == [(True, True, True)]


def test_of_ordered_levels_the_nearest_that_will_do_is_shown() -> None:
    search, _ = finished(school_case(2), ("fourth",))
    assert shown(search) == [("second",)]


# Holding ----------------------------------------------------------------------------------------


def test_an_option_is_pushed_before_it_is_walked_back() -> None:
    found = finisher(case(), (6, 0, "x"))
    farther = next_rows(found)
    assert (9, 0, "x") in farther
    assert all(number(row[0]) > 6 for row in farther)
    tell(found.archive, farther)
    assert next_rows(found) == [(3, 0, "x")]


def test_a_pocket_is_left_for_the_next_option_of_its_levers() -> None:
    pocket = small_case(lambda row: row[0] in (4, 8, 9))
    search, batches = finished(pocket, (4, 0, "x"), (9, 0, "x"))
    assert shown(search) == [(8, 0, "x")]
    assert list(map(flags, search.archive.ways())) == [(True, True, True)]
    only = small_case(lambda row: row[0] == 4)
    search, batches = finished(only, (4, 0, "x"))
    assert batches == [[(6, 0, "x")]]  # it does not hold: nothing more is spent on it
    assert [way.holds for way in search.archive.ways()] == [False]


# What comes first -------------------------------------------------------------------------------


def test_the_cheapest_of_each_set_of_levers_is_finished() -> None:
    for rows in permutations([(5, 0, "y"), (6, 0, "y"), (0, 9, "z")]):
        asked = next_rows(finisher(case(), *rows))
        assert set(asked) == {(5, 0, "x"), (0, 0, "y"), (0, 9, "x"), (0, 0, "z")}


def many_sets() -> tuple[Case, list[Row]]:
    """Return a case with more ways than are shown, and a row for each: dearer from set to set."""
    width = SHOWN + 2
    schema = numbers(width)
    given_case = make_case(make_problem(schema, Says(lambda row: 0.9)), (0.0,) * width)
    return given_case, [tuple(np.diag(30.0 + np.arange(width))[i].tolist()) for i in range(width)]


def test_the_sets_that_are_shown_come_first() -> None:
    given_case, rows = many_sets()
    found = finisher(given_case, *rows)
    levers = [next(i for i, value in enumerate(row) if value) for row in next_rows(found)]
    in_order = list(dict.fromkeys(levers))
    assert set(in_order[:SHOWN]) == set(range(SHOWN))
    assert set(in_order) == set(range(SHOWN + 2))
    assert next_rows(found, most=3) == next_rows(found)[:3]


def test_all_are_improved_before_any_is_proved() -> None:
    # a is at its edge already and only its proof is left; b has a way to go back.
    found = finisher(case(), (5, 0, "x"), (9, 0, "x"), (4, 0, "x"), (0, 9, "x"))
    assert next_rows(found) == [(0, 4, "x"), (6, 0, "x"), (8, 0, "x")]
    assert next_rows(found, most=1) == [(0, 4, "x")]


def test_sets_that_need_not_be_shown_are_left_alone() -> None:
    # With b on top it costs more, so that it is no way; with less of a, it may be one.
    assert all(row[1] == 0 for row in next_rows(finisher(case(), (5, 0, "x"), (5, 1, "x"))))
    assert any(row[1] == 1 for row in next_rows(finisher(case(), (9, 0, "x"), (4, 1, "x"))))


def test_batches_keep_to_their_size() -> None:
    given_case, rows = many_sets()
    _, batches = finished(given_case, *rows)
    assert max(map(len, batches)) == BATCH


# Guesses ----------------------------------------------------------------------------------------


def test_what_seems_hopeless_is_asked_in_the_end_only() -> None:
    both = small_case(lambda row: min(number(row[0]), number(row[1])) >= 3)
    found = finisher(both, (3, 3, "x"), guess=lambda rows: [0.0] * len(rows))
    assert next_rows(found) == [(5, 5, "x")]  # nothing is left out, nothing walked back
    tell(found.archive, [(5, 5, "x")])
    assert set(next_rows(found)) == {(2, 3, "x"), (3, 2, "x")}
    tell(found.archive, next_rows(found))
    assert set(next_rows(found)) == {(3, 0, "x"), (0, 3, "x")}
    tell(found.archive, next_rows(found))
    assert next_rows(found) == []


def test_a_guess_tells_how_far_to_walk_back_and_what_holds() -> None:
    def guess(rows: Sequence[Row]) -> list[float]:
        return [1.0 if number(row[0]) >= 5 else 0.0 for row in rows]

    found = finisher(case(), (6, 0, "x"), guess=guess)
    assert next_rows(found) == [(5, 0, "x")]  # neither is it pushed first, nor is 3 asked


# Rules, labels, reasons -------------------------------------------------------------------------


@pytest.mark.parametrize("border", [13.0, 48.0, 77.0, 95.0])
def test_a_guess_that_is_always_sure_takes_no_more_steps_than_halving(border: float) -> None:
    oracle = Says(lambda row: 0.9 if number(row[0]) >= border else 0.1)
    given_case = make_case(make_problem(numbers(1), oracle), (0.0,))
    found = finisher(given_case, (100.0,), guess=lambda rows: [0.99] * len(rows))
    steps = 0
    while not any(way.tight for way in found.archive.ways()):
        rows = next_rows(found, 1)
        tell(found.archive, rows)
        steps += len(rows)
    assert steps <= 10


@pytest.mark.parametrize("at", [21.0, 25.0])
def test_a_refusal_beyond_a_pocket_says_nothing_of_what_lies_in_it(at: float) -> None:
    oracle = Says(lambda row: 0.9 if 20 <= number(row[0]) <= 30 else 0.1)
    given_case = make_case(make_problem(numbers(2), oracle), (0.0, 0.0))
    found = finisher(given_case, (23.0, 0.0), (60.0, 0.0), (at, 50.0))
    found.order()
    assert (at, 0.0) in found.apart((at, 50.0))


def test_rows_that_break_a_rule_are_not_asked() -> None:
    search, batches = finished(case(Linear(that="a + b >= 6")), (9, 0, "y"))
    assert shown(search) == [(6, 0, "x")]
    assert all(number(row[0]) + number(row[1]) >= 6 for row in flat(batches))


def test_what_follows_a_lever_goes_with_it() -> None:
    oracle = Says(lambda row: 0.9 if row[1] == 12 else 0.1)
    given_case = make_case(make_problem(GROUPED, oracle, *GROUPS), ("basic", 9, True, False))
    search, batches = finished(given_case, ("high", 12, False, True))
    # The group goes back as one, and the school with its years; these are never moved alone.
    assert list(map(set, batches)) == [{("high", 12, True, False), ("basic", 9, False, True)}]
    assert shown(search) == [("high", 12, True, False)]


def test_labels_alone_will_do() -> None:
    oracle = Says(lambda row: number(row[0]) / 10, labels_only=True)
    search, _ = finished(make_case(make_problem(SCHEMA, oracle), QUERY), (9, 0, "y"))
    assert shown(search) == [(5, 0, "x")]


def test_reasons_are_kept_where_they_still_hold() -> None:
    reasons = ("a: more of it", "a: make it 9", "c: a better letter", "like row 7 of your data")
    search, _ = finished(case(), (9, 0, "y"), reasons=reasons)
    by_row = {row: asked.reasons for row, asked in search.archive.answered.items()}
    assert by_row[9, 0, "x"] == ("a: more of it", "a: make it 9", "like row 7 of your data")
    assert by_row[0, 0, "y"] == ("c: a better letter", "like row 7 of your data")
    (way,) = search.archive.ways()
    assert way.changes == {"a": (0, 5)}
    assert way.reasons == ("a: more of it", "like row 7 of your data")


def test_of_equal_options_the_named_one_is_finished_since_it_is_shown() -> None:
    given_case = case(query=(1, 1, "x"))
    archive = Archive(given_case.problem, given_case.query)
    archive.take((2, 3, "x"), "plain", 0.5, valid=True)
    archive.take((3, 2, "x"), "named", 0.5, valid=True, reasons=["a: more of it"])
    found = Finisher(archive)
    assert [found.best(levers) for levers in found.order()] == [(3, 2, "x")]
    assert tuple(archive.ways()[0].row.values()) == (3, 2, "x")


# Rows -------------------------------------------------------------------------------------------


def test_rows_that_the_search_leaves_are_used_too() -> None:
    search, batches = finished(case(rows=7), (9, 9, "y"), aside=1)
    assert len(flat(batches)) == 6
    assert reason_of(search).endswith("polish: 6 rows")


def test_without_a_limit_it_has_its_rows_on_top() -> None:
    search, batches = finished(case(rows=None), (9, 9, "y"), aside=4)
    assert [len(batch) for batch in batches] == [3, 1]
    assert reason_of(search).endswith("polish: 4 rows on top")


def test_nothing_found_is_nothing_to_finish() -> None:
    search, batches = finished(case(), (1, 0, "x"))
    assert batches == []
    assert reason_of(search) == "all were asked; polish: 0 rows"


# The protocol -----------------------------------------------------------------------------------


def test_a_second_answer_changes_nothing_nor_does_a_wrong_one() -> None:
    given_case = case()
    search = Finishing(given_case, Handed(given_case, [(9, 0, "y")]), 30)
    seen: list[Work] = []
    while (work := search.ask()) is not None:
        assert isinstance(work, Evaluate)
        assert search.ask() is None  # until an answer comes
        with pytest.raises(InputError, match="rows were asked"):
            search.tell(work, Answers(np.array([]), np.array([], dtype=bool)))
        answers = given_case.problem.oracle.ask(work.rows)
        search.tell(work, answers)
        before = (search.archive.evaluated, search.archive.options())
        for told in [*seen, work]:
            search.tell(told, answers)
        assert (search.archive.evaluated, search.archive.options()) == before
        seen.append(work)
    assert len(seen) > 3
    with pytest.raises(InputError, match="did not hand out"):
        search.tell(Evaluate(len(seen), ((1, 1, "x"),)), Adder().ask([(1, 1, "x")]))


def test_finishing_follows_a_search_that_goes_on_without_calls() -> None:
    given_case = case(calls=4, rows=40)
    inner = Recombine().start(without_set_aside(given_case, 15))
    search = Finishing(given_case, inner, 15)
    calls = 0
    while (work := search.ask()) is not None:
        if isinstance(work, Propose):
            calls += 1
            assert search.refuse(work)
        else:
            search.tell(work, given_case.problem.oracle.ask(work.rows))
    assert search.done
    assert (calls, search.calls_left, inner.rows_left) == (1, 4, 0)
    assert 25 < search.archive.evaluated <= 40
    assert "allowed no further LLM call" in reason_of(search)
    assert "polish: " in reason_of(search)


def test_a_search_that_needs_its_calls_is_not_kept_going_by_finishing() -> None:
    given_case = case(calls=4, rows=40)
    search = Finishing(given_case, CompMCTS().start(without_set_aside(given_case, 15)), 15)
    work = search.ask()
    assert isinstance(work, Propose)
    assert not search.refuse(work)
    assert search.waiting == 1


def test_an_archive_knows_every_key_it_took_in() -> None:
    search, batches = finished(case(), (9, 0, "y"), (1, 0, "x"))
    key = search.case.problem.key
    assert search.archive.asked == {key(row) for row in [(9, 0, "y"), (1, 0, "x"), *flat(batches)]}
    assert key((9, 0, "y")) in search.archive
    assert key((1, 0, "x")) not in search.archive
