"""How `wayfinder` asks an LLM for edits, uses what it says, and goes on without."""

from __future__ import annotations

from dataclasses import replace

import pytest
from recombine_world import (
    Says,
    always_new,
    asked_before_calls,
    make_case,
    make_problem,
    number,
    numbers,
    reason_of,
    simulated,
)
from small_world import QUERY, Adder, case, endless, play, reply
from wayfinder_world import asked_rows, wayfinder, ways, yes_if

from waysout.domain.budget import Budget
from waysout.domain.memory import Past
from waysout.domain.rules import OneHot
from waysout.domain.schema import Edit, Feature, Schema
from waysout.llm.base import Reply, Request
from waysout.search.base import Case
from waysout.search.wayfinder import Wayfinder
from waysout.search.work import Evaluate, Propose


def hopeless(calls: int | None, rows: int) -> Case:
    """Return a case that no row is a way out of."""
    return make_case(make_problem(numbers(4), Says(lambda row: 0.1)), (0.0,) * 4, calls=calls,
                     rows=rows)  # fmt: skip


# What is named ----------------------------------------------------------------------------------


def test_named_values_are_tried_and_bring_their_reasons() -> None:
    played = play(Wayfinder(), case(calls=1, rows=40), [reply("a=5", "b=7")])
    assert isinstance(played.works[0], Propose)
    shown = {tuple(way.changes): way for way in played.search.archive.ways()}
    assert shown["a",].reasons == ("a: because of a",)
    # Whoever asked a row, its named values have their reasons, and no other value has.
    for option in played.search.archive.options():
        wanted = {f"{name}: because of {name}" for name, value in (("a", 5), ("b", 7))
                  if option.row[name] == value}  # fmt: skip
        assert wanted <= set(option.reasons)
        assert all(reason[0] in option.changes for reason in option.reasons)


def test_a_value_between_the_steps_is_tried() -> None:
    schema = numbers(3)
    oracle = yes_if(lambda row: 61.2 <= number(row[0]) <= 61.3)
    given_case = make_case(make_problem(schema, oracle), (0.0,) * 3, calls=1, rows=30)
    search = play(Wayfinder(), given_case, [reply("n0=61.25")]).search
    assert (61.25, 0.0, 0.0) in search.archive.rows
    assert play(Wayfinder(), given_case, [reply("n1=61.25")]).search.archive.rows == []


def test_at_equal_quality_what_was_named_comes_first() -> None:
    schema = Schema((Feature("c", "category", levels=tuple("abcdefgh")), Feature("n", "boolean")))
    given_case = make_case(make_problem(schema, yes_if(lambda row: row[0] != "a")), ("a", False),
                           calls=1, rows=20)  # fmt: skip
    for level in "bgh":
        search = play(Wayfinder(), given_case, [reply(f"c={level}")]).search
        way = search.archive.ways()[0]
        assert (way.row["c"], way.reasons) == (level, ("c: because of c",))


def test_what_is_cheaper_comes_before_what_was_named() -> None:
    search = play(Wayfinder(), case(calls=1, rows=40), [reply("a=9", "b=9")]).search
    assert {way.row["a"] for way in search.archive.ways()} == {0, 5}


def test_what_is_wrong_with_a_reply_is_counted() -> None:
    schema = Schema(
        (Feature("n", "number", range=(0, 100)), *(Feature(n, "boolean") for n in "abc"))
    )
    # Setting b clears a and c, each the first of a group.
    pairs = (OneHot(features=["a", "b"]), OneHot(features=["c", "b"]))
    problem = make_problem(schema, Says(lambda row: 0.2), *pairs)
    given_case = make_case(problem, (5.0, True, False, True), calls=1, rows=10)
    edits = ["n=8", "nobody=1", "b=yes"]
    counts = play(Wayfinder(), given_case, [reply(*edits)]).search.archive.rejections
    assert (counts["unknown feature"], counts["moves two levers at once"]) == (1, 1)


def test_a_simulated_llm_gives_reasons() -> None:
    schema = Schema(tuple(Feature(name, "boolean") for name in "abcd"))
    oracle = Says(lambda row: 0.3 * sum(map(bool, row)))
    given_case = make_case(make_problem(schema, oracle), (False,) * 4, calls=6)
    search = wayfinder(given_case, simulated())
    assert search.named
    assert any(option.reasons for option in search.archive.options())
    assert len(ways(search)) >= 1


def test_edits_named_before_are_named_still() -> None:
    past = Past(edits=[Edit("a", 5, "it is known"), Edit("c", "w"), Edit("b", 0)], calls=3)
    given_case = replace(case(calls=1, rows=40), past=past)
    played = play(Wayfinder(), given_case, [reply("a=5")])
    assert played.requests[0].draw == 3
    shown = {tuple(way.changes): way.reasons for way in played.search.archive.ways()}
    assert shown["a",] == ("a: it is known",)
    assert "a=5" in played.requests[0].messages[0].content


# When it is asked -------------------------------------------------------------------------------


@pytest.mark.parametrize("llm", [True, False], ids=["no calls", "no proposer"])
def test_without_calls_no_llm_is_asked(llm: bool) -> None:
    given_case = case(calls=0, rows=40)
    played = play(Wayfinder(), given_case if llm else replace(given_case, proposer=None), [])
    assert played.requests == []
    assert {tuple(way.changes) for way in played.search.archive.ways()} == {("a",), ("b",)}


def test_calls_are_paced_with_rows() -> None:
    played = play(Wayfinder(), hopeless(3, 30), (reply(f"n0={v}") for v in range(11, 99)))
    assert asked_before_calls(played) == ([0, 10, 20], 30)


@pytest.mark.parametrize("calls", [1, 3])
def test_whoever_waits_until_stuck_has_rows_for_the_last_call(calls: int) -> None:
    played = play(Wayfinder(ask="stuck"), hopeless(calls, 60),
                  (reply(f"n0={value}") for value in range(11, 99)))  # fmt: skip
    before, rows = asked_before_calls(played)
    due = [60 * (i + 1) / (calls + 1) for i in range(calls)]
    assert rows == 60
    assert all(0 <= b - d < 5 * (i + 1) for i, (b, d) in enumerate(zip(before, due, strict=True)))


def test_whoever_waits_until_stuck_asks_nothing_while_options_come() -> None:
    played = play(Wayfinder(ask="stuck"), case(calls=3, rows=30), always_new())
    assert asked_before_calls(played) == ([], 30)


def test_an_llm_that_never_repeats_itself_is_not_asked_for_ever() -> None:
    replies = (reply(f"n0={value / 100}") for value in range(1, 300))
    played = play(Wayfinder(), hopeless(None, 20), replies)
    assert played.search.done
    assert len(played.requests) <= 5


def test_after_replies_in_vain_no_more_are_asked_for() -> None:
    played = play(Wayfinder(), case(calls=30, rows=30), endless("a=5", "b=5"))
    assert len(played.requests) == 1 + 2
    assert reason_of(played.search) == (
        "all 30 oracle rows are spent; 2 LLM calls in a row brought nothing new"
    )


def test_so_many_edits_are_asked_for_with_seed_and_temperature() -> None:
    given_case = replace(case(calls=1, rows=10), seed=7)
    [request] = play(Wayfinder(edits=3, temperature=0.2), given_case, endless("a=5")).requests
    assert (request.k, request.seed, request.temperature) == (3, 7, 0.2)
    assert Wayfinder(edits=3).edits_a_call(5) == 3


def test_it_reminds_of_what_was_named() -> None:
    texts = [r.messages[0].content for r in play(Wayfinder(), case(calls=3, rows=30),
                                                 always_new()).requests]  # fmt: skip
    assert [("a=1" in text, "b=1" in text) for text in texts] == [
        (False, False), (True, False), (True, True),
    ]  # fmt: skip


@pytest.mark.parametrize("after", [0, 2])
def test_it_goes_on_with_rows_where_no_call_can_be_paid(after: int) -> None:
    search, replies = Wayfinder().start(case(calls=6, rows=30)), always_new()
    proposed = 0
    while (work := search.ask()) is not None:
        if isinstance(work, Evaluate):
            assert not search.refuse(work)
            search.tell(work, Adder().ask(work.rows))
            continue
        proposed += 1
        if proposed <= after:
            search.tell(work, next(replies))
        else:
            assert search.refuse(work)
            assert not search.refuse(work)  # once is enough
    assert proposed == after + 1
    assert (search.archive.evaluated, search.calls_left) == (30, 6 - after)
    assert reason_of(search) == (
        "all 30 oracle rows are spent; the limit of tokens or money allowed no further LLM call"
    )


def test_an_llm_that_talks_garbage_changes_nothing() -> None:
    def babble(request: Request) -> Reply:
        return Reply("I'm sorry, as a language model {{{ CANDIDATE CANDIDATE=\nFEATURE")

    given_case = case(calls=20, rows=30)
    alone = wayfinder(replace(given_case, budget=Budget(llm_calls=0, oracle_rows=30)))
    assert ways(wayfinder(given_case, babble)) == ways(alone)


def test_budgets_hold_with_an_llm_too() -> None:
    for calls, rows in ((0, 7), (1, 1), (4, 13), (9, 40)):
        played = play(Wayfinder(), case(calls=calls, rows=rows), always_new())
        found = asked_rows(played)
        assert len(played.requests) <= calls
        assert len(found) == len({*found, QUERY}) - 1 <= rows
