"""Budgets to the last row, an LLM that fails in every way, and stopping."""

from __future__ import annotations

import asyncio
import gc
import itertools
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_world import (
    PEOPLE,
    Adder,
    Gate,
    Watched,
    a_third_fails,
    about,
    no_waiting,
    problem,
    timeless,
)

import waysout
from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind, ResultData
from waysout.errors import InputError, LLMError, LLMFailure, LLMUnreachable
from waysout.llm.base import Request
from waysout.llm.call import Price
from waysout.run.context import Stop
from waysout.run.progress import Progress
from waysout.search.comp_mcts import CompMCTS
from waysout.search.lats import Lats
from waysout.search.recombine import Recombine

SMALL: dict[str, Any] = {"calls": 4, "k": 3, "oracle_rows": 40}
METHODS = [Recombine(), CompMCTS(), CompMCTS(in_flight=3), Lats(in_flight=2)]


@pytest.fixture(autouse=True)
def _at_once() -> Iterator[None]:
    with no_waiting():
        yield


def search(rows: Any = PEOPLE[:4], **options: Any) -> list[ResultData]:
    given: dict[str, Any] = {"llm": Watched(), **SMALL, **options}
    table = given.pop("table", None) or problem()
    return sorted(waysout.find_many(table, rows, **given), key=lambda r: r.index)


@settings(max_examples=25)
@given(
    st.sampled_from(METHODS), st.integers(0, 5), st.integers(0, 12),
    st.none() | st.integers(0, 20_000), st.booleans(),
)  # fmt: skip
def test_no_budget_is_ever_passed(
    method: Any, calls: int, rows: int, tokens: int | None, faults: bool
) -> None:
    llm, oracle = Watched(a_third_fails if faults else None), Adder()
    results = search(
        PEOPLE[:3], llm=llm, method=method, calls=calls, oracle_rows=rows, tokens=tokens,
        table=problem(oracle=oracle),
    )  # fmt: skip
    spent = [r.ledger for r in results]
    assert all(s.llm_calls <= calls and s.oracle_rows <= rows for s in spent)
    assert sum(s.llm_calls for s in spent) == llm.replied.total()
    assert sum(s.attempts for s in spent) == llm.requests
    assert oracle.rows <= sum(s.oracle_rows + s.setup_rows for s in spent)
    if tokens is not None:
        assert all(s.tokens_in + s.tokens_out <= tokens for s in spent)
    for result in results:
        assert result.metrics["evaluated"] == result.ledger.oracle_rows


def test_a_limit_in_money_needs_a_price_and_holds() -> None:
    with pytest.raises(InputError, match="needs the prices"):
        search(money=1.0)
    price = Price(100.0, 200.0)
    free = search(price=price)
    assert min(r.ledger.money for r in free) > 0
    limit = max(r.ledger.money for r in free) * 0.9
    held = search(price="100/200", money=limit)
    assert all(r.ledger.money <= limit for r in held)
    assert sum(r.ledger.llm_calls for r in held) < sum(r.ledger.llm_calls for r in free)


def test_calls_that_were_granted_still_count_when_one_is_refused() -> None:
    """With three in flight, tokens for some of them: none that is paid for is thrown away."""
    llm = Watched()
    [result] = search(PEOPLE[:1], llm=llm, method=Lats(in_flight=3), tokens=4000, calls=20)
    assert 1 < result.ledger.llm_calls < 20
    assert result.ledger.llm_calls == llm.replied.total() == llm.requests
    assert result.metrics["evaluated"] == result.ledger.oracle_rows
    assert "tokens" in result.outcome.reason


@pytest.mark.parametrize(
    ("limit", "calls"),
    [({"tokens": 5}, 0), ({"tokens": 3000}, 3), ({"money": 0.5, "price": "100/200"}, 4)],
)
@pytest.mark.parametrize("polish", [0, 20])
def test_the_search_goes_on_with_rows_where_calls_cannot_be_paid(
    limit: dict[str, Any], calls: int, polish: int, tmp_path: Path
) -> None:
    run, llm = tmp_path / "a.db", Watched()
    given: dict[str, Any] = {"calls": 6, "oracle_rows": 60, "polish": polish, **limit}
    [result] = search(PEOPLE[:1], llm=llm, run=run, **given)
    assert result.outcome.kind == OutcomeKind.FOUND
    assert result.ledger.llm_calls == llm.requests == calls
    # It ends where nothing more is to be known of the ways.
    assert 20 < result.ledger.oracle_rows <= 60
    assert {(w.irreducible, w.tight, w.holds) for w in result.ways} == {(True, True, True)}
    assert "the limit of tokens or money allowed no further LLM call" in result.outcome.reason
    assert ("polish: " in result.outcome.reason) == bool(polish)
    assert result.metrics["calls_saved"] == 0
    assert "saved" not in str(result)
    assert [timeless(r) for r in search(PEOPLE[:1], run=run, **given)] == [timeless(result)]


@pytest.mark.parametrize("method", ["wayfinder", "recombine"])
@pytest.mark.parametrize("rows", [0, 5, 20, 35])
def test_a_stopped_search_without_calls_goes_on_to_the_same_end(
    rows: int, method: str, tmp_path: Path
) -> None:
    stop, run = Stop(), tmp_path / "a.db"
    given: dict[str, Any] = {"calls": 6, "oracle_rows": 60, "polish": 20, "tokens": 3000}
    given["method"] = method

    def at(now: Progress) -> None:
        if now.oracle_rows >= rows:
            stop("enough")

    [whole] = search(PEOPLE[:1], **given)
    [left] = search(PEOPLE[:1], run=run, stop=stop, progress=at, **given)
    assert left.outcome.kind == OutcomeKind.INTERRUPTED
    [result] = search(PEOPLE[:1], run=run, **given)

    def same(of: ResultData) -> dict[str, Any]:
        plain = timeless(of, attempts=False)
        return {**plain, "ledger": {**plain["ledger"], "setup_rows": 0}}

    assert same(result) == same(whole)
    assert result.metrics["calls_saved"] == 0


def test_calls_that_a_search_does_not_need_are_saved() -> None:
    for result in search(calls=20, oracle_rows=7):
        assert result.outcome.kind in (OutcomeKind.FOUND, OutcomeKind.BUDGET_SPENT)
        saved = 20 - result.ledger.llm_calls
        assert saved > 0
        assert result.metrics["calls_saved"] == saved
        assert f"({saved} saved" in str(result)


def test_calls_that_were_not_to_be_had_are_not_saved() -> None:
    options: list[dict[str, Any]] = [
        {},  # all are spent
        {"calls": None, "oracle_rows": 7},
        {"method": "random"},
        {"tokens": 2500, "calls": 20},
        {"llm": Watched(Gate()), "seconds": 0.1},
        {"rows": [(15, 15, "x")]},
    ]
    for given_options in options:
        results = search(**given_options)
        assert {r.metrics["calls_saved"] for r in results} == {0}
        assert not any("saved" in str(r) for r in results)


# No call at all ---------------------------------------------------------------------------------

NOWHERE = "replay:nowhere.jsonl"


@pytest.mark.parametrize("llm", [None, NOWHERE, Watched()], ids=["usual", "nowhere", "there"])
@pytest.mark.parametrize("method", ["wayfinder", "recombine"])
def test_without_calls_it_needs_no_llm(llm: Any, method: str) -> None:
    result = waysout.find(problem(), PEOPLE[0], llm=llm, calls=0, method=method)
    assert result.outcome.kind == OutcomeKind.FOUND
    assert (result.settings["llm"], result.settings["style"]) == (None, None)
    assert result.settings["budget"]["llm_calls"] == 0
    assert result.settings["budget"]["oracle_rows"] == 150 >= result.ledger.oracle_rows > 40
    assert (result.ledger.llm_calls, result.ledger.attempts) == (0, 0)
    assert result.metrics["calls_saved"] == 0
    assert not isinstance(llm, Watched) or llm.requests == 0


def test_with_a_single_call_the_llm_must_be_there() -> None:
    with pytest.raises(InputError, match="cannot read the recording"):
        waysout.find(problem(), PEOPLE[0], llm=NOWHERE, calls=1)
    llm = Watched()
    assert waysout.find(problem(), PEOPLE[0], llm=llm, calls=1).settings["llm"] == llm.name
    assert llm.requests == 1


@pytest.mark.parametrize("method", ["comp-mcts", "lats"])
def test_without_calls_a_tree_asks_nothing(method: str) -> None:
    llm = Watched()
    for result in search(llm=llm, method=method, calls=0):
        assert result.outcome.kind == OutcomeKind.BUDGET_SPENT
        assert result.outcome.reason == "all 0 LLM calls are spent"
        assert (result.ledger.llm_calls, result.ledger.oracle_rows) == (0, 0)
        assert result.settings["llm"] == llm.name
    assert llm.requests == 0
    with pytest.raises(InputError, match="cannot read the recording"):
        search(llm=NOWHERE, method=method, calls=0)


# Polish -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*METHODS, "random"], ids=str)
def test_rows_for_polishing_are_set_aside(method: Any) -> None:
    oracle = Adder()
    results = search(table=problem(oracle=oracle), method=method, calls=8, polish=9, oracle_rows=24)
    plain = search(method=method, calls=8, oracle_rows=24)
    for result, without in zip(results, plain, strict=True):
        assert result.metrics["evaluated"] == result.ledger.oracle_rows
        assert result.ledger.oracle_rows <= 24
        assert result.settings["polish"] == 9
        assert re.search(r"; polish: \d+ rows?$", result.outcome.reason)
        assert "polish" not in without.settings
        assert "polish" not in without.outcome.reason
    near = [np.mean([max(o.proximity for o in r.options) for r in rs]) for rs in (results, plain)]
    assert near[0] > near[1]


# Time -------------------------------------------------------------------------------------------


def test_a_slow_llm_does_not_pass_the_deadline() -> None:
    gate = Gate()
    results = search(llm=Watched(gate), seconds=0.2)
    assert {r.outcome.kind for r in results} == {OutcomeKind.BUDGET_SPENT}
    assert all("deadline" in r.outcome.reason for r in results)
    assert all(r.ledger.llm_calls == 0 for r in results)


def test_a_slow_oracle_does_not_pass_the_deadline() -> None:
    release = threading.Event()

    class Slow(Adder):
        def ask(self, rows: Any) -> Answers:
            if any(row not in PEOPLE for row in rows):
                release.wait(20)
            return super().ask(rows)

    try:
        [result] = search(PEOPLE[:1], table=problem(oracle=Slow()), seconds=0.2)
    finally:
        release.set()
    assert result.outcome.kind == OutcomeKind.BUDGET_SPENT
    assert "deadline" in result.outcome.reason


def test_no_time_at_all() -> None:
    llm = Watched()
    results = search(llm=llm, seconds=0)
    assert {r.outcome.kind for r in results} == {OutcomeKind.BUDGET_SPENT}
    assert llm.requests == 0


# An LLM that fails ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [CompMCTS(), Lats()], ids=["comp-mcts", "lats"])
def test_faults_change_nothing_but_the_attempts(method: Any) -> None:
    llm = Watched(a_third_fails)
    faulty = search(PEOPLE, llm=llm, method=method, calls=6)
    sound = search(PEOPLE, method=method, calls=6)
    assert [timeless(r, attempts=False) for r in faulty] == [
        timeless(r, attempts=False) for r in sound
    ]
    extra = sum(r.ledger.attempts - r.ledger.llm_calls for r in faulty)
    assert extra == llm.requests - llm.replied.total() > 10
    assert all(r.ledger.attempts == r.ledger.llm_calls for r in sound)


def test_an_llm_that_is_gone_interrupts_everybody() -> None:
    answered = 0

    async def gone(request: Request, attempt: int) -> None:
        nonlocal answered
        answered += 1
        if answered > 6:
            raise LLMFailure("connection refused")

    results: list[ResultData] = []
    with pytest.raises(LLMUnreachable, match="connection refused"):
        results.extend(waysout.find_many(problem(), PEOPLE * 20, llm=Watched(gone), calls=30))
    # Most have not even begun; whoever has is told why.
    assert 8 <= len(results) < 100
    assert {r.outcome.kind for r in results} == {OutcomeKind.INTERRUPTED}
    assert all("connection refused" in r.outcome.reason for r in results)
    assert all(r.metrics["unique_valid"] == len(r.options) for r in results)


def test_a_call_that_fails_for_good_interrupts_one_person() -> None:
    async def bad_day(request: Request, attempt: int) -> None:
        await asyncio.sleep(0)
        if about(request) == 2:
            raise LLMFailure("too long for me", alive=True)

    results = search(PEOPLE[:6], llm=Watched(bad_day), calls=8)
    assert [r.index for r in results if r.outcome.kind == OutcomeKind.INTERRUPTED] == [2]
    assert "too long for me" in results[2].outcome.reason
    assert results[2].ledger.attempts == 4
    assert list(map(timeless, results[:2])) == list(map(timeless, search(PEOPLE[:2], calls=8)))


def test_an_llm_that_is_set_up_wrongly_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def wrong_key(request: Request, attempt: int) -> None:
        raise LLMError("the key is wrong")

    for _ in range(3):
        with pytest.raises(LLMError, match="the key is wrong"):
            search(PEOPLE, llm=Watched(wrong_key))
    gc.collect()
    assert caplog.text == ""  # not a word of tasks that nobody looked after


# Stopping ---------------------------------------------------------------------------------------


def test_stop_ends_with_what_was_found() -> None:
    stop, gate = Stop(), Gate()

    async def hold(request: Request, attempt: int) -> None:
        if request.draw >= 2:
            stop("enough")
            await gate(request, attempt)

    began = time.monotonic()
    results = search(llm=Watched(hold), stop=stop, calls=30)
    assert time.monotonic() - began < 5
    assert {(r.outcome.kind, r.outcome.reason) for r in results} == {
        (OutcomeKind.INTERRUPTED, "enough")
    }
    assert sum(len(r.options) for r in results) > 0
    stop("again")  # the run is over: nothing happens


def test_stop_before_the_beginning() -> None:
    stop, llm = Stop(), Watched()
    stop("changed my mind")
    result = waysout.find(problem(), PEOPLE[0], llm=llm, stop=stop)
    assert (result.outcome.kind, result.outcome.reason) == ("interrupted", "changed my mind")
    assert llm.requests == 0
    result = asyncio.run(waysout.afind(problem(), PEOPLE[0], llm=llm, stop=stop))
    assert result.outcome.kind == OutcomeKind.INTERRUPTED
    stop("the loop of that run is closed by now")


@pytest.mark.parametrize("moment", range(1, 40, 6))
def test_stop_comes_just_as_the_next_people_begin(moment: int) -> None:
    """Between being taken in and beginning there is a moment; whoever is in it has a result."""
    stop, answers = Stop(), itertools.count(1)

    def watch(_: Progress) -> None:
        if next(answers) == moment:
            stop("now")

    results = search(PEOPLE * 3, stop=stop, progress=watch, calls=2)
    assert [r.index for r in results] == list(range(len(results)))
    assert any(r.outcome.reason == "now" for r in results)


def test_whoever_stops_listening_ends_the_searches() -> None:
    llm = Watched()
    given: dict[str, Any] = {**SMALL, "calls": 3}
    found = waysout.find_many(problem(), PEOPLE * 20, llm=llm, **given)
    next(found)
    found.close()  # type: ignore[attr-defined]
    asked = llm.requests
    time.sleep(0.02)
    assert llm.requests == asked < 3 * len(PEOPLE) * 20
