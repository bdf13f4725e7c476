"""What `wayfinder` asks: within rules and budgets, nothing twice, and why it ends."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recombine_world import Says, make_case, make_problem, number, numbers
from small_world import case, play
from wayfinder_world import (
    asked_rows,
    levers,
    scored,
    wayfinder,
    ways,
    yes_if,
)

from waysout.domain.memory import Past
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import (
    Immutable,
    Implies,
    Linear,
    MaxChanges,
    Rule,
)
from waysout.domain.schema import Row
from waysout.domain.ways import LESS
from waysout.search import wayfinder as source
from waysout.search.base import Search
from waysout.search.wayfinder import Wayfinder
from waysout.search.work import Evaluate

SIX = numbers(6)
NOUGHT: Row = (0.0,) * 6


def reason_of(search: Search) -> str:
    assert search.ending is not None
    return search.ending.reason


# Rules and budgets ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "query"),
    [
        ((Linear(that="n0 + n1 + n2 <= 20"), Linear(that="n3 <= n0")), (15.0, 5.0, *NOUGHT[2:])),
        ((MaxChanges(at_most=1),), NOUGHT),
        ((Implies(when={"n0": {"min": 1}}, then={"n1": {"min": 50}}),), NOUGHT),
    ],
    ids=["sums", "one change", "one needs another"],
)
def test_nothing_asked_breaks_a_rule_and_rows_are_used(rules: tuple[Rule, ...], query: Row) -> None:
    problem = make_problem(SIX, scored((0.02, 0.01, 0.02, 0.02), -9), *rules)
    found = asked_rows(play(Wayfinder(), make_case(problem, query, rows=80), []))
    assert not any(problem.violations(query, row) for row in found)
    assert len(found) == len({*found, query}) - 1 == 80


def test_a_person_whom_a_rule_asks_to_move_far() -> None:
    problem = make_problem(SIX, scored((0.05,) * 6, -5), Linear(that="n0 + n1 >= n2 + 150"))
    [way, *_] = wayfinder(make_case(problem, (10.0, 5.0, *NOUGHT[2:]))).archive.ways()
    assert way.levers == ("n0", "n1")
    assert not problem.violations(problem.row(way.row), problem.row(way.row))


def test_rules_that_forbid_all_end_it() -> None:
    never = Linear(name="too much", that="n0 + n1 >= 900")
    search = wayfinder(make_case(make_problem(SIX, Says(lambda row: 0.2), never), NOUGHT))
    assert search.archive.evaluated == 0
    assert search.ending is not None
    assert search.ending.kind == OutcomeKind.EXHAUSTED
    assert search.archive.rejections["breaks rule: too much"] > 0


def test_where_nothing_may_change_it_says_so() -> None:
    problem = make_problem(SIX, Says(lambda row: 0.2), Immutable(features=list(SIX.names)))
    search = wayfinder(make_case(problem, NOUGHT))
    assert search.archive.evaluated == 0
    assert reason_of(search) == "no edit is known"


@settings(max_examples=25)
@given(rows=st.integers(0, 60), batch=st.integers(1, 12), seed=st.integers(0, 9), yes=st.booleans())
def test_budgets_are_never_passed_and_all_rows_are_used(
    rows: int, batch: int, seed: int, yes: bool
) -> None:
    oracle = scored((0.05, 0.03, -0.02), -4 if yes else -20)
    given_case = make_case(make_problem(SIX, oracle), (0.0, 0.0, 40.0, 0.0, 0.0, 0.0), rows=rows,
                           seed=seed)  # fmt: skip
    played = play(Wayfinder(batch=batch), given_case, [])
    found = asked_rows(played)
    assert len(found) == len({*found, given_case.query}) - 1 == rows
    assert reason_of(played.search) == f"all {rows} oracle rows are spent"


def test_where_no_row_is_worth_asking_the_rest_is_saved() -> None:
    search = wayfinder(case(calls=0, rows=1000))
    assert ways(search) in ([{"a": 5}, {"b": 5}], [{"b": 5}, {"a": 5}])
    assert search.archive.evaluated < 100
    assert reason_of(search) == "no other row seemed worth asking"


def test_without_any_limit_it_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waysout.search.base.ROWS_WITHOUT_LIMIT", 40)
    search = wayfinder(make_case(make_problem(SIX, Says(lambda row: 0.1)), NOUGHT, rows=None))
    assert search.archive.evaluated == 40


def test_batches_grow_to_a_twentieth_of_what_was_asked() -> None:
    given_case = make_case(make_problem(SIX, Says(lambda row: 0.1)), NOUGHT, rows=400)
    played = play(Wayfinder(), given_case, [])
    sizes = [len(work.rows) for work in played.works if isinstance(work, Evaluate)]
    before = np.cumsum([0, *sizes])[:-1].tolist()
    assert all(size <= max(5, asked // 20) for size, asked in zip(sizes, before, strict=True))
    assert max(sizes) > 15
    assert sum(sizes) == 400


def test_however_many_rows_the_answers_learned_at_once_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source, "_MOST_LEARNED", 60)
    oracle = scored((0.05, 0.03, 0.02), -4)
    search = Wayfinder().start(make_case(make_problem(SIX, oracle), NOUGHT, rows=10_000))
    learned = []
    while (work := search.ask()) is not None and search.archive.evaluated < 500:
        assert isinstance(work, Evaluate)
        search.tell(work, oracle.ask(work.rows))
        learned.append(len(search._process))  # type: ignore[attr-defined]
    assert max(learned) <= 60
    assert any(later < earlier for earlier, later in pairwise(learned))
    assert search.archive.evaluated >= 500
    assert search.archive.ways()[0].holds is True


# Answers ----------------------------------------------------------------------------------------


def test_the_same_seed_and_answers_are_the_same_search() -> None:
    def works(seed: int) -> list[object]:
        problem = make_problem(SIX, scored((0.05, 0.03, 0.02), -4))
        return list(play(Wayfinder(), make_case(problem, NOUGHT, seed=seed), []).works)

    assert works(3) == works(3)
    assert works(3) != works(4)


def test_a_second_answer_changes_nothing() -> None:
    def rows(times: int) -> list[tuple[Row, ...]]:
        oracle = scored((0.05, 0.03, 0.02), -4)
        search, found = Wayfinder().start(make_case(make_problem(SIX, oracle), NOUGHT)), []
        while (work := search.ask()) is not None:
            assert isinstance(work, Evaluate)
            assert search.ask() is None  # while an answer is awaited
            answers = oracle.ask(work.rows)
            for _ in range(times):
                search.tell(work, answers)
            found.append(work.rows)
        assert search.archive.evaluated == sum(map(len, found))
        return found

    assert rows(1) == rows(2)


@pytest.mark.parametrize("labels_only", [False, True], ids=["chances", "labels"])
def test_nothing_known_from_before_is_asked_again(labels_only: bool) -> None:
    oracle = yes_if(lambda row: number(row[0]) + number(row[1]) >= 70, labels_only=labels_only)
    first = make_case(make_problem(SIX, oracle), NOUGHT, rows=60)
    rows = asked_rows(play(Wayfinder(), first, []))
    past = Past()
    past.add_answers(rows, oracle.ask(rows))
    played = play(Wayfinder(), replace(first, past=past), [])
    again = asked_rows(played)
    assert len(again) == 60
    assert not set(again).intersection(rows)
    assert played.search.archive.evaluated == 60
    once, twice = wayfinder(first), played.search
    # One that does with fewer levers may cost a little more.
    assert twice.archive.ways()[0].cost <= once.archive.ways()[0].cost / LESS


def test_what_rules_of_today_forbid_is_not_remembered() -> None:
    oracle = yes_if(lambda row: number(row[0]) >= 40 or number(row[1]) >= 60)
    first = make_case(make_problem(SIX, oracle), NOUGHT, rows=60)
    rows = asked_rows(play(Wayfinder(), first, []))
    past = Past()
    past.add_answers(rows, oracle.ask(rows))
    today = make_case(make_problem(SIX, oracle, Immutable(features=["n0"])), NOUGHT, rows=30)
    assert levers(wayfinder(replace(today, past=past))) == [("n1",)]
