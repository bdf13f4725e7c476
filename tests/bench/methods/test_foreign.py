from __future__ import annotations

import gc
import random
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from baseline_cases import QUERY, Yes, make_case, row, run
from hypothesis import given, settings
from hypothesis import strategies as st

import waysout
from waysout.bench.methods.foreign import Evaluator, ForeignSearch, Run
from waysout.domain.memory import Past
from waysout.domain.oracle import Answers, Goal
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import Range
from waysout.domain.schema import Row
from waysout.search.base import Case, Method, Search
from waysout.search.work import Evaluate

FOREIGN = "waysout-foreign"


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == FOREIGN]


@pytest.fixture(autouse=True)
def _no_thread_outlives_its_search() -> Iterator[None]:
    yield
    assert threads() == []


def incomes(*values: float) -> list[Row]:
    return [row(income=value) for value in values]


def start(code: Run, case: Case | None = None, patience: float = 30.0) -> ForeignSearch:
    return ForeignSearch(case or make_case(), code, who="the tool", patience=patience)


def ended(search: Search) -> tuple[OutcomeKind, str]:
    assert search.ending is not None
    return search.ending.kind, search.ending.reason


def next_rows(search: Search) -> tuple[Evaluate, tuple[Row, ...]]:
    work = search.ask()
    assert isinstance(work, Evaluate)
    return work, work.rows


def tell(search: Search, work: Evaluate) -> None:
    search.tell(work, search.case.problem.oracle.ask(work.rows))


# Questions and answers --------------------------------------------------------------------------


def test_it_asks_what_the_code_asks_and_tells_it_the_answers() -> None:
    heard = []

    def code(evaluate: Evaluator) -> str:
        heard.append(evaluate([*incomes(50.0, 60.0), row(term=24)]).tolist())
        heard.append(evaluate(incomes(70.0)).tolist())
        return "that was all"

    search = start(code)
    assert run(search) == [*incomes(50.0, 60.0), row(term=24), *incomes(70.0)]
    yes, no = 0.51 + 0.49 * 0.9, 0.49 * 0.1
    assert heard == [[yes, yes, no], [yes]]
    assert search.archive.rows == incomes(50.0, 60.0, 70.0)
    assert ended(search) == (OutcomeKind.EXHAUSTED, "that was all")
    assert search.thinks


def test_the_code_stands_still_until_it_is_waited_for() -> None:
    steps = []

    def code(evaluate: Evaluator) -> str:
        for income in (50.0, 60.0):
            steps.append(income)
            evaluate(incomes(income))
        steps.append(0.0)
        return "done"

    search = start(code)
    assert steps == []
    work, _ = next_rows(search)
    assert search.ask() is None
    assert steps == [50.0]
    tell(search, work)
    assert steps == [50.0]
    tell(search, next_rows(search)[0])
    assert steps == [50.0, 60.0]
    assert search.ask() is None
    assert steps == [50.0, 60.0, 0.0]


def test_what_is_known_or_forbidden_costs_no_row() -> None:
    heard = []

    def code(evaluate: Evaluator) -> str:
        evaluate(incomes(50.0))
        heard.append(evaluate([row(income=90.0), QUERY, *incomes(50.0, 50.0)]).tolist())
        heard.append([float(evaluate.asked)])
        return "done"

    case = replace(make_case(rules=[Range(feature="income", max=80)]), probability=0.3)
    search = start(code, case)
    assert run(search) == incomes(50.0)
    yes = 0.51 + 0.49 * 0.9
    assert heard == [[0.0, 0.49 * 0.3, yes, yes], [1.0]]
    assert search.archive.generated == 5
    assert search.archive.rejections == {
        "breaks rule: range income": 1, "no change": 1, "repeated": 2,
    }  # fmt: skip


def test_only_what_the_oracle_is_asked_counts() -> None:
    counts = []

    def code(evaluate: Evaluator) -> str:
        for rows in ([*incomes(50.0, 60.0, 50.0), QUERY], incomes(60.0, 70.0)):
            evaluate(rows)
            counts.append(evaluate.asked)
        return "done"

    assert run(start(code)) == incomes(50.0, 60.0, 70.0)
    assert counts == [2, 3]


def test_rows_of_one_key_are_asked_once() -> None:
    heard = []

    def code(evaluate: Evaluator) -> str:
        heard.append(evaluate(incomes(50.0, 60.0, 50.0)).tolist())
        return "done"

    search = start(code)
    assert run(search) == incomes(50.0, 60.0)
    assert len(heard[0]) == 3


def test_rows_of_one_key_are_told_apart_where_the_code_says_so() -> None:
    heard = []

    def code(evaluate: Evaluator) -> str:
        heard.append(evaluate(incomes(50.0, 51.0), by_row=True).tolist())
        heard.append(evaluate(incomes(51.0, 52.0), by_row=True).tolist())
        heard.append(evaluate(incomes(53.0)).tolist())
        return "done"

    case = make_case()
    key = replace(case.problem.key, bins={"income": (40.0, 60.0)})
    search = start(code, replace(case, problem=replace(case.problem, key=key)))
    assert run(search) == incomes(50.0, 51.0, 52.0)
    assert [len(scores) for scores in heard] == [2, 2, 1]
    assert {score > 0.5 for scores in heard for score in scores} == {True}
    assert search.archive.rows == incomes(50.0)


def test_what_an_earlier_search_learned_scores_as_it_was_answered() -> None:
    heard = []

    def code(evaluate: Evaluator) -> str:
        heard.extend(evaluate([*incomes(50.0), row(term=24)]).tolist())
        return "done"

    chances = {incomes(50.0)[0]: (0.9, True), row(term=24): (0.1, False)}
    search = start(code, replace(make_case(), past=Past(chances)))
    assert run(search) == []
    assert heard == [0.51 + 0.49 * 0.9, 0.49 * 0.1]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_first_rows_are_asked_and_then_the_budget_is_spent(limit: int) -> None:
    went_on = []

    def code(evaluate: Evaluator) -> str:
        evaluate(incomes(40.0))
        evaluate(incomes(50.0, 40.0, 60.0, 70.0))
        went_on.append(True)
        return "done"

    search = start(code, make_case(rows=limit))
    assert run(search) == incomes(40.0, 50.0, 60.0)[:limit]
    assert ended(search) == (OutcomeKind.BUDGET_SPENT, f"all {limit} oracle rows are spent")
    assert went_on == []
    assert threads() == []


def test_without_a_row_nothing_is_run() -> None:
    search = start(spin, make_case(rows=0))
    assert run(search) == []
    assert ended(search)[0] is OutcomeKind.BUDGET_SPENT


@settings(max_examples=40)
@given(
    chance=st.floats(0, 1),
    decision=st.booleans(),
    goal=st.sampled_from(
        [Goal(), Goal(at_least=0.8), Goal(at_most=0.2), Goal(at_least=0.3, at_most=0.6)]
    ),
)
def test_a_score_is_above_a_half_exactly_for_an_option(
    chance: float, decision: bool, goal: Goal
) -> None:
    heard = []

    def code(evaluate: Evaluator) -> str:
        heard.extend(evaluate(incomes(50.0)).tolist())
        return "done"

    case = make_case()
    search = start(code, replace(case, problem=replace(case.problem, goal=goal)))
    work, _ = next_rows(search)
    answers = Answers(np.array([chance]), np.array([decision]))
    search.tell(work, answers)
    assert search.ask() is None
    assert abs(heard[0] - 0.5) >= 0.01 - 1e-9
    assert 0 <= heard[0] <= 1
    assert (heard[0] > 0.5) == bool(goal.met(answers)[0]) == bool(search.archive.rows)


# Ends -------------------------------------------------------------------------------------------


def test_an_error_ends_the_search_by_name_and_keeps_what_was_found() -> None:
    def code(evaluate: Evaluator) -> str:
        evaluate(incomes(50.0))
        raise ValueError("No counterfactuals\nfound " + "!" * 500)

    search = start(code)
    run(search)
    kind, reason = ended(search)
    assert kind is OutcomeKind.EXHAUSTED
    assert reason.startswith("the tool failed: ValueError: No counterfactuals found !!!")
    assert len(reason) < 300
    assert search.archive.rows == incomes(50.0)


def test_code_that_catches_everything_it_should_is_unwound_all_the_same() -> None:
    def code(evaluate: Evaluator) -> str:
        for income in range(30, 90):
            try:
                evaluate(incomes(float(income)))
            except Exception:
                continue
        return "done"

    search = start(code, make_case(rows=3))
    assert len(run(search)) == 3
    assert threads() == []


def spin(evaluate: Evaluator) -> str:
    evaluate(incomes(50.0))
    while True:
        time.sleep(0.001)


@pytest.mark.slow
def test_code_that_asks_nothing_is_given_up() -> None:
    search = start(spin, patience=2)
    assert run(search) == incomes(50.0)
    reason = "the tool made no oracle request for 2 s and was abandoned"
    assert ended(search) == (OutcomeKind.EXHAUSTED, reason)
    assert search.archive.rows == incomes(50.0)
    assert threads() == []


def test_code_that_asks_only_what_it_knows_is_given_up() -> None:
    def code(evaluate: Evaluator) -> str:
        while True:
            evaluate([QUERY])

    search = start(code, patience=0.05)
    assert run(search) == []
    assert "made no oracle request" in ended(search)[1]
    assert threads() == []


def test_code_that_cannot_be_reached_ends_as_soon_as_it_can() -> None:
    release, went_on = threading.Event(), []

    def code(evaluate: Evaluator) -> str:
        release.wait(30)
        went_on.append(True)
        return "done"

    search = start(code, patience=0.01)
    assert run(search) == []
    assert "abandoned" in ended(search)[1]
    release.set()
    for thread in threading.enumerate():
        if thread.name == FOREIGN:
            thread.join(30)
    assert went_on == []


def test_close_ends_it_while_somebody_waits() -> None:
    running = threading.Event()

    def code(evaluate: Evaluator) -> str:
        running.set()
        while True:
            time.sleep(0.001)

    search = start(code)
    asked: list[object] = []
    waiting = threading.Thread(target=lambda: asked.append(search.ask()))
    waiting.start()
    assert running.wait(30)
    search.close()
    waiting.join(30)
    assert asked == [None]
    assert threads() == []
    search.close()


def test_close_ends_it_while_it_waits_for_an_answer() -> None:
    search = start(spin)
    next_rows(search)
    assert threads() == [FOREIGN]
    search.close()
    assert threads() == []


def test_a_search_that_is_dropped_takes_its_thread_along() -> None:
    search = start(spin)
    next_rows(search)
    del search
    gc.collect()
    assert threads() == []


@dataclass(frozen=True)
class Spinning(Method):
    name: ClassVar[str] = "spinning"

    def start(self, case: Case) -> Search:
        return start(spin, case)


def test_a_deadline_holds_though_the_code_asks_nothing() -> None:
    case = make_case()
    found = waysout.find(case.problem, QUERY, method=Spinning(), seconds=0.3)
    assert found.outcome.reason == "the deadline of 0.3 seconds has passed"
    assert threads() == []


# What it does to the process --------------------------------------------------------------------


def drawing(evaluate: Evaluator) -> str:
    """Ask of rows drawn from both global generators."""
    for _ in range(4):
        evaluate(incomes(round(float(np.random.uniform(0, 100)), 6), random.uniform(0, 100)))
    return "done"


def test_the_same_seed_gives_the_same_draws_whatever_the_user_draws() -> None:
    np.random.seed(1)
    first = run(start(drawing))
    np.random.seed(2)
    random.seed(3)
    assert run(start(drawing)) == first
    assert run(start(drawing, make_case(seed=1))) != first


def test_the_users_generators_are_left_alone() -> None:
    np.random.seed(5)
    random.seed(6)
    before = np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    run(start(drawing))
    assert np.random.get_state()[1].tolist() == before[0]  # type: ignore[index]
    assert random.getstate() == before[1]


def test_draws_go_on_where_the_last_turn_left_them() -> None:
    drawn: list[tuple[float, float]] = []

    def code(evaluate: Evaluator) -> str:
        for income in (50.0, 60.0, 70.0):
            drawn.append((float(np.random.uniform()), random.random()))
            evaluate(incomes(income))
        return "done"

    run(start(code))
    assert [len(set(draws)) for draws in zip(*drawn, strict=True)] == [3, 3]


def test_one_foreign_code_runs_at_a_time() -> None:
    began, together = threading.Event(), []

    def second(evaluate: Evaluator) -> str:
        began.set()
        return "done"

    other = threading.Thread(target=run, args=(start(second),))

    def first(evaluate: Evaluator) -> str:
        other.start()
        together.append(began.wait(0.2))
        return "done"

    run(start(first))
    other.join(30)
    assert together == [False]
    assert began.is_set()


def test_two_searches_in_turns_do_not_disturb_each_other() -> None:
    cases = [make_case(seed=seed) for seed in (0, 1)]
    alone = [run(start(drawing, case)) for case in cases]
    searches = [start(drawing, case) for case in cases]
    asked: list[list[Row]] = [[], []]
    while not all(search.done for search in searches):
        for search, rows in zip(searches, asked, strict=True):
            work = search.ask()
            if isinstance(work, Evaluate):
                rows += work.rows
                tell(search, work)
    assert asked == alone


def test_what_the_code_says_is_not_heard_and_others_are(capsys: pytest.CaptureFixture[str]) -> None:
    def code(evaluate: Evaluator) -> str:
        sys.stdout.write("noise")
        sys.stderr.write("noise")
        other = threading.Thread(target=lambda: sys.stdout.write("a user's words"))
        other.start()
        other.join()
        return "done"

    streams = sys.stdout, sys.stderr
    run(start(code))
    assert (sys.stdout, sys.stderr) == streams
    assert capsys.readouterr() == ("a user's words", "")


def test_a_stream_that_is_not_there_is_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    search = start(lambda evaluate: "done")
    run(search)
    assert sys.stdout is None
    assert ended(search)[1] == "done"


def test_rows_go_to_the_oracle_in_the_batches_they_were_asked_in() -> None:
    rows = incomes(*(float(i) for i in range(30, 70)))

    def code(evaluate: Evaluator) -> str:
        evaluate(rows[:30])
        evaluate(rows[20:])
        return "done"

    case = make_case()
    run(start(code, case))
    assert isinstance(case.problem.oracle, Yes)
    assert case.problem.oracle.batches == [30, 10]
