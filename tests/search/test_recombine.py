"""`recombine`, one work at a time: what it asks, in which order, and why it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recombine_world import (
    Says,
    always_new,
    asked_before_calls,
    deciles,
    make_case,
    make_problem,
    number,
    numbers,
    reason_of,
    recombine,
    simulated,
    unique,
)
from small_world import QUERY, Adder, Played, case, drive, endless, play, reply

from waysout.domain.oracle import Goal
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import Implies, Linear, MaxChanges, OneHot
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import InputError
from waysout.llm.base import Reply, Request
from waysout.search import base
from waysout.search.base import Case, Search
from waysout.search.recombine import Recombine, RecombineSearch
from waysout.search.work import Evaluate, Propose

PLAIN = Recombine(
    own_edits=False, surrogate="none", draws=0, thompson=False, novelty=0.0, needless=0.0,
    batch=1,
)  # fmt: skip


def asked_rows(played: Played) -> list[Row]:
    return [row for work in played.works if isinstance(work, Evaluate) for row in work.rows]


def prompts(played: Played) -> list[str]:
    return [request.messages[0].content for request in played.requests]


# A run by hand ----------------------------------------------------------------------------------


def test_a_small_run() -> None:
    played = play(PLAIN, case(calls=1), [reply("a=5", "b=4")])
    assert [type(work) for work in played.works] == [Propose, Evaluate, Evaluate, Evaluate]
    # With nothing expected the nearest and fewest come first: 4 before 5, one before two.
    assert asked_rows(played) == [(0, 4, "x"), (5, 0, "x"), (5, 4, "x")]
    assert played.search.archive.rows == [(5, 0, "x"), (5, 4, "x")]
    assert played.search.ending == base.Ending(
        OutcomeKind.EXHAUSTED, "no new combination of the known edits was left that the rules allow"
    )


def test_what_was_learnt_leads_on() -> None:
    method = replace(PLAIN, surrogate="linear", batch=3)
    replies = [reply("a=1", "a=8", "b=1", "b=8", "c=y", "c=z")]
    played = play(method, case(calls=1, rows=12), replies)
    rows = asked_rows(played)
    sums = [number(a) + number(b) for a, b, _ in rows]
    # Of all 26 combinations, those with an 8 are approved; most of what is asked has one.
    assert len(rows) == 12
    assert sum(total >= 5 for total in sums[6:]) >= 5


def test_the_nearest_of_single_edits_come_first() -> None:
    edits = [f"a={v}" for v in (7, 2, 9, 4, 1, 8, 3, 6, 5)]
    rows = asked_rows(play(replace(PLAIN, edits=9), case(calls=1), [reply(*edits)]))
    assert [row[0] for row in rows] == list(range(1, 10))


def test_reasons_are_kept() -> None:
    played = play(PLAIN, case(calls=1), [reply("a=5", "b=4")])
    assert [option.reasons for option in played.search.archive.options()] == [
        ("a: because of a",),
        ("a: because of a", "b: because of b"),
    ]


def test_reasons_are_kept_for_values_that_were_there_unnamed() -> None:
    played = play(replace(PLAIN, own_edits=True), case(calls=1), [reply("a=5")])
    found = {option.row["a"]: option.reasons for option in played.search.archive.options()
             if len(option.changes) == 1 and "a" in option.changes}  # fmt: skip
    assert found[5] == ("a: because of a",)
    assert found[6] == ()


def test_what_is_wrong_with_a_reply_is_counted() -> None:
    played = play(PLAIN, case(calls=1), [reply("a=5", "nobody=1", "c=w", "b=0")])
    counts = played.search.archive
    assert counts.generated == 4
    assert sum(counts.rejections.values()) == 3
    assert counts.rejections["unknown feature"] == 1


def test_edits_that_cannot_be_combined_are_counted_by_name() -> None:
    schema = Schema(
        (Feature("n", "number", range=(0, 100)), *(Feature(n, "boolean") for n in "abc"))
    )
    # Setting b clears a and c, each the first of a group.
    pairs = (OneHot(features=["a", "b"]), OneHot(features=["c", "b"]))
    problem = make_problem(schema, Says(lambda row: 0.2), *pairs, bins={"n": (50.0,)})
    given_case = make_case(problem, (5.0, True, False, True), calls=1)
    played = play(replace(PLAIN, edits=4), given_case, [reply("n=8", "n=9", "b=yes", "n=70")])
    assert played.search.archive.generated == 4
    assert played.search.archive.rejections == {
        "in the query's own bin": 2,
        "moves two levers at once": 1,
    }
    assert asked_rows(played) == [(70.0, True, False, True)]


# What always holds ------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    calls=st.none() | st.integers(0, 6),
    rows=st.integers(0, 40),
    batch=st.integers(1, 12),
    own=st.booleans(),
)
def test_budgets_are_never_passed_and_no_key_is_asked_twice(
    calls: int | None, rows: int, batch: int, own: bool
) -> None:
    given_case = case(MaxChanges(at_most=2), Linear(that="a <= b + 6"), calls=calls, rows=rows)
    played = play(Recombine(batch=batch, own_edits=own), given_case, always_new())
    found, problem = asked_rows(played), given_case.problem
    assert calls is None or len(played.requests) <= calls
    assert len(found) <= rows
    keys = [problem.key(row) for row in [QUERY, *found]]
    assert len(set(keys)) == len(keys)
    assert not any(problem.violations(QUERY, row) for row in found)
    assert played.search.done


def test_without_any_limit_it_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "ROWS_WITHOUT_LIMIT", 40)
    played = play(Recombine(), case(calls=None, rows=None), endless("a=5", "c=y"))
    assert len(asked_rows(played)) == 40
    assert reason_of(played.search).startswith("all 40 oracle rows are spent")


def test_an_llm_that_never_repeats_itself_is_not_asked_for_ever() -> None:
    problem = make_problem(numbers(2), Says(lambda row: 0.1))
    search = Recombine().start(make_case(problem, (0.0, 0.0), calls=None, rows=20))
    count = 0
    while (work := search.ask()) is not None and count < 300:
        count += 1
        if isinstance(work, Propose):
            search.tell(work, reply(f"n0={count * 0.01:.2f}"))
        else:
            search.tell(work, problem.oracle.ask(work.rows))
    assert search.done


def test_no_rows_is_an_end_before_it_begins() -> None:
    played = play(Recombine(), case(rows=0), endless("a=5"))
    assert played.works == []
    assert reason_of(played.search) == "all 0 oracle rows are spent"


def test_rules_that_only_whole_rows_can_break_are_counted() -> None:
    rule = Implies(name="pairs", when={"a": {"min": 1}}, then={"c": "y"})
    played = play(replace(PLAIN, own_edits=True), case(rule, calls=0, rows=30), [])
    assert asked_rows(played)
    assert all(row[2] == "y" for row in asked_rows(played) if row[0])
    assert played.search.archive.rejections["breaks rule: pairs"] > 0


def test_values_of_one_bin_are_one_key_and_asked_once() -> None:
    schema = numbers(2)
    problem = make_problem(schema, Says(lambda row: 0.2), bins=deciles(schema))
    given_case = make_case(problem, (5.0, 5.0), calls=2)
    replies = [reply("n0=61", "n0=64", "n0=67", "n1=31", "n1=35"), reply("n0=69", "n1=38")]
    rows = asked_rows(play(Recombine(own_edits=False), given_case, replies))
    keys = [problem.key(row) for row in rows]
    assert len(keys) == len(set(keys)) == 3


def test_batches_grow_with_what_was_asked() -> None:
    problem = make_problem(numbers(6), Says(lambda row: 0.1))
    played = play(Recombine(), make_case(problem, (0.0,) * 6, rows=400), [])
    sizes = [len(work.rows) for work in played.works if isinstance(work, Evaluate)]
    before = np.cumsum([0, *sizes])[:-1].tolist()
    assert sizes[:-1] == [max(5, asked // 20) for asked in before][:-1]
    assert max(sizes) > 15


def test_nothing_is_handed_out_while_an_answer_is_awaited() -> None:
    search = Recombine().start(case())
    assert search.ask() is not None
    assert search.ask() is None
    assert not search.done


# Calls ------------------------------------------------------------------------------------------


def test_calls_are_paced_with_rows() -> None:
    played = play(Recombine(), case(calls=3, rows=30), always_new())
    assert asked_before_calls(played) == ([0, 10, 20], 30)


def test_after_replies_in_vain_no_more_are_asked_for() -> None:
    played = play(Recombine(patience=3), case(calls=30, rows=40), endless("a=5", "b=5"))
    assert len(played.requests) == 1 + 3
    assert reason_of(played.search) == (
        "all 40 oracle rows are spent; 3 LLM calls in a row brought nothing new"
    )


def test_something_new_makes_patient_again() -> None:
    replies = [reply("a=5"), reply("a=5"), reply("b=5"), reply("a=5"), reply("b=5"), reply("c=y")]
    played = play(Recombine(patience=2), case(calls=30, rows=80), replies)
    assert len(played.requests) == 5


def hopeless(calls: int | None, rows: int) -> Case:
    """Return a case that no row is a way out of."""
    schema = numbers(4)
    made = make_problem(schema, Says(lambda row: 0.1), bins=deciles(schema))
    return make_case(made, (0.0,) * 4, calls=calls, rows=rows)


def test_calls_are_held_back_while_options_come() -> None:
    played = play(Recombine(ask="stuck"), case(calls=3, rows=30), always_new())
    assert asked_before_calls(played) == ([], 30)
    assert unique(played.search) > 10


@pytest.mark.parametrize("calls", [1, 3, 5])
def test_whoever_is_stuck_spends_all_calls_and_has_rows_for_the_last(calls: int) -> None:
    replies = (reply(f"n0={value}") for value in range(11, 99, 10))
    played = play(Recombine(ask="stuck"), hopeless(calls, 60), replies)
    due = [60 * (i + 1) / (calls + 1) for i in range(calls)]
    before, rows = asked_before_calls(played)
    assert rows == 60
    # A batch is of five rows: it may be under way when the time has come.
    assert [0 <= b - d < 5 * (i + 1) for i, (b, d) in enumerate(zip(before, due, strict=True))] == (
        [True] * calls
    )


def test_an_option_gives_new_hope() -> None:
    # Only n1 leads out, and only from 90 on: what was tried before is in vain, then no longer.
    schema = numbers(2)
    oracle = Says(lambda row: 0.9 if number(row[1]) >= 90 else 0.1)
    made = make_case(
        make_problem(schema, oracle, bins=deciles(schema)), (0.0, 0.0), calls=9, rows=60
    )
    played = play(Recombine(ask="stuck", own_edits=False, surrogate="none", batch=1), made, [
        reply("n0=15", "n0=25", "n0=35", "n0=45", "n0=55", "n0=65"), reply("n1=95"),
        *(reply("n0=75") for _ in range(9)),
    ])  # fmt: skip
    before, _ = asked_before_calls(played)
    # At once where nothing is known, after 60 / (9 + 1) refusals, and not again while options come,
    # which is until all is combined.
    assert before[:3] == [0, 6, 13]


def test_nothing_to_combine_is_stuck_too() -> None:
    played = play(replace(PLAIN, ask="stuck"), case(calls=2), [reply("a=5", "b=4"), reply("a=6")])
    assert asked_before_calls(played)[0] == [0, 3]


def test_without_a_limit_of_calls_each_barren_batch_is_followed_by_one() -> None:
    replies = (reply(f"n{i % 4}={value}") for i, value in enumerate(range(11, 99, 2)))
    played = play(Recombine(ask="stuck"), hopeless(None, 30), replies)
    before, rows = asked_before_calls(played)
    assert (before, rows) == ([5, 10, 15, 20, 25], 30)


def test_an_ending_without_vain_calls_speaks_of_none() -> None:
    played = play(Recombine(), case(calls=2, rows=10), always_new())
    assert reason_of(played.search) == "all 10 oracle rows are spent"


def test_without_edits_it_says_so() -> None:
    played = play(PLAIN, case(calls=30), endless("nonsense=1"))
    assert played.search.ending is not None
    assert played.search.ending.kind == OutcomeKind.EXHAUSTED
    assert reason_of(played.search) == (
        "no edit is known; 2 LLM calls in a row brought nothing new"
    )
    assert len(played.requests) == 2


def test_so_many_edits_are_asked_for_and_taken() -> None:
    edits = [f"a={i}" for i in range(1, 6)]
    played = play(replace(PLAIN, edits=3), case(calls=1), [reply(*edits)])
    assert played.requests[0].k == 3
    assert {row[0] for row in asked_rows(played)} == {1, 2, 3}
    assert played.search.archive.rejections == {"beyond k": 2}


def test_seed_and_temperature_go_with_the_request() -> None:
    given_case = replace(case(calls=1), seed=7)
    [request] = play(Recombine(temperature=0.2), given_case, endless("a=5")).requests
    assert (request.seed, request.temperature) == (7, 0.2)


def refusing(search: Search, after: int) -> list[object]:
    """Drive a search whose calls are refused after so many; returns the kinds of its works."""
    kinds: list[object] = []
    replies = always_new()
    while (work := search.ask()) is not None:
        kinds.append(type(work))
        if isinstance(work, Evaluate):
            assert not search.refuse(work)
            search.tell(work, Adder().ask(work.rows))
        elif kinds.count(Propose) > after:
            assert search.refuse(work)
            assert not search.refuse(work)  # once is enough
        else:
            search.tell(work, next(replies))
    return kinds


@pytest.mark.parametrize("after", [0, 2])
def test_it_goes_on_with_rows_where_no_call_can_be_paid(after: int) -> None:
    search = Recombine().start(case(calls=6, rows=40))
    assert refusing(search, after).count(Propose) == after + 1
    assert search.done
    assert (search.archive.evaluated, search.calls_left) == (40, 6 - after)
    assert reason_of(search) == (
        "all 40 oracle rows are spent; the limit of tokens or money allowed no further LLM call"
    )


@pytest.mark.parametrize("remind", [True, False])
def test_it_reminds_of_what_was_named(remind: bool) -> None:
    played = play(Recombine(remind=remind), case(calls=3, rows=30), always_new())
    texts = prompts(played)
    assert [("a=1" in text, "b=1" in text) for text in texts] == [
        (False, False), (remind, False), (remind, remind),
    ]  # fmt: skip
    # Whatever it says, no request is one that was made before.
    assert len({request.key("any") for request in played.requests}) == 3


def about(played: Played) -> list[bool]:
    """Return for each prompt whether it is about the query itself."""
    return ['"a": 0, "b": 0, "c": "x"' in text for text in prompts(played)]


@pytest.mark.parametrize(
    ("ask_about", "expected"),
    [
        ("query", [True, True, True, True]),
        ("promising", [True, False, False, False]),
        ("both", [True, False, True, False]),
    ],
)
def test_what_the_llm_is_asked_about(
    ask_about: Literal["query", "promising", "both"], expected: list[bool]
) -> None:
    method = Recombine(ask_about=ask_about, remind=False)
    played = play(method, case(calls=4, rows=40), always_new())
    assert about(played) == expected


def test_the_most_promising_row_works_with_the_fewest_changes() -> None:
    method = replace(PLAIN, ask_about="promising", batch=5)
    played = play(method, case(calls=2, rows=10), [reply("a=5", "b=4", "c=y"), reply("a=9")])
    assert '"a": 5, "b": 0, "c": "x"' in prompts(played)[1]


# Chance -----------------------------------------------------------------------------------------


def works(method: Recombine, seed: int) -> list[object]:
    given_case = replace(case(calls=4, rows=40), seed=seed)
    return list(play(method, given_case, always_new()).works)


def test_the_same_seed_is_the_same_search() -> None:
    assert works(Recombine(), 3) == works(Recombine(), 3)
    assert works(Recombine(), 3) != works(Recombine(), 4)


@pytest.mark.parametrize("talks", [True, False], ids=["a call before each batch", "no calls"])
def test_every_second_batch_is_bold_until_something_is_found(
    talks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bold: list[bool] = []
    asked: Callable[[RecombineSearch], bool] = RecombineSearch._is_bold

    def noted(search: RecombineSearch) -> bool:
        bold.append(asked(search))
        return bold[-1]

    monkeypatch.setattr(RecombineSearch, "_is_bold", noted)
    problem = make_problem(numbers(3), Says(lambda row: 0.1))
    given_case = make_case(problem, (0.0,) * 3, calls=6 if talks else 0, rows=30)
    count = iter(range(1, 99))
    drive(
        Recombine(thompson=True).start(given_case),
        lambda _: reply(f"n0={next(count) * 1.01}"),
        given_case,
    )
    assert bold == [True, False] * 3
    bold.clear()
    recombine(given_case, lambda _: reply(f"n0={next(count) * 1.01}"), thompson=False)
    assert not any(bold)


# Learning and ranking ---------------------------------------------------------------------------


def easy() -> Case:
    """Return a case where one lever alone is enough, whatever else moves."""
    schema = numbers(5)
    oracle = Says(lambda row: 0.9 if number(row[0]) > 50 else 0.2)
    return make_case(make_problem(schema, oracle, bins=deciles(schema)), (0.0,) * 5)


def count_padded(method: Recombine) -> int:
    """Return how many rows have all edits of an option that was asked before, and more."""
    found: list[set[tuple[int, object]]] = []
    count = 0
    for row in asked_rows(play(method, easy(), [])):
        edits: set[tuple[int, object]] = {(i, value) for i, value in enumerate(row) if value}
        count += any(option < edits for option in found)
        found += [edits] if number(row[0]) > 50 else []
    return count


def test_needless_edits_are_put_off() -> None:
    few, many = (count_padded(Recombine(needless=needless, batch=1)) for needless in (5.0, 0.0))
    assert few < many / 2


def test_sets_of_levers_that_were_asked_give_way_in_later_batches() -> None:
    method = replace(PLAIN, own_edits=True, quality=0.0, unnamed=0.0, novelty=1.0)
    rows = asked_rows(play(method, easy(), []))
    assert len({tuple(bool(value) for value in row) for row in rows[:15]}) == 15


def test_what_changes_nothing_is_learnt_as_nothing() -> None:
    schema = numbers(3)
    problem = make_problem(schema, Says(lambda row: 0.1), bins=deciles(schema))
    search = recombine(make_case(problem, (0.0,) * 3))
    guess = search._surrogate.guess(0, np.random.default_rng(0))
    assert guess(search.library.padded([(1, 1, 1), (9, 9, 9)])) == pytest.approx(0.0)


# Settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pruning", ["gzip", "rlbwt", "repair"])
def test_pruning_counts_what_it_drops(pruning: str) -> None:
    given_case = case(calls=0, rows=30)
    strict = recombine(given_case, pruning=pruning, threshold=0.2)
    assert strict.archive.pruned > 0
    assert strict.archive.evaluated < 30
    assert recombine(given_case, pruning="none", threshold=9).archive.pruned == 0


@pytest.mark.parametrize("kind", ["linear", "pairwise", "trees", "none"])
@pytest.mark.parametrize("draws", [0, 4])
def test_every_surrogate_searches(kind: str, draws: int) -> None:
    search = recombine(case(calls=0, rows=40), surrogate=kind, draws=draws)
    assert search.archive.evaluated == 40
    assert unique(search) > 0


@pytest.mark.parametrize(
    ("setting", "value"),
    [("edits", 0), ("patience", 0), ("draws", -1), ("batch", 0), ("surrogate", "magic"),
     ("ask_about", "me"), ("ask", "often"), ("quality", -0.1)],
)  # fmt: skip
def test_settings_are_checked(setting: str, value: object) -> None:
    with pytest.raises(InputError, match=setting):
        Recombine(**{setting: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("setting", "most"), [("edits", 50), ("draws", 1000)])
def test_some_settings_have_an_upper_end(setting: str, most: int) -> None:
    assert Recombine(**{setting: str(most)}).settings()[setting] == most  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"^{setting} is at most {most}, not {most + 1}$"):
        Recombine(**{setting: most + 1})  # type: ignore[arg-type]


# Goals ------------------------------------------------------------------------------------------


def graded(goal: Goal, query: Row, border: float = 0.5) -> Case:
    """Return a case of an oracle whose chance is the mean of the first two of four numbers."""
    schema = numbers(4)
    oracle = Says(lambda row: (number(row[0]) + number(row[1])) / 200, border=border)
    return make_case(make_problem(schema, oracle, bins=deciles(schema), goal=goal), query)


@pytest.mark.parametrize(
    ("goal", "query", "least"),
    [
        (Goal(at_least=0.8), (0.0,) * 4, 5),
        (Goal(at_most=0.2), (90.0, 90.0, 0.0, 0.0), 5),
        (Goal(rise=0.6), (5.0, 5.0, 0.0, 0.0), 10),
        (Goal(at_least=0.4, at_most=0.5), (0.0,) * 4, 10),
    ],
    ids=["at least", "at most", "rise", "interval"],
)
def test_goals_are_met(goal: Goal, query: Row, least: int) -> None:
    given_case = graded(goal, query)
    search = recombine(given_case)
    rows = search.archive.unique_rows
    wanted = given_case.problem.goal
    assert len(rows) >= least
    for chance in given_case.problem.oracle.ask(rows).probability:
        assert (wanted.at_least or 0.0) <= chance <= (1.0 if wanted.at_most is None
                                                      else wanted.at_most)  # fmt: skip


@pytest.mark.parametrize("border", [0.2, 0.75])
def test_a_model_that_decides_elsewhere_than_at_one_half(border: float) -> None:
    # Of several classes, the wanted one may win with less than one half, or lose with more.
    search = recombine(graded(Goal(), (0.0,) * 4, border))
    assert unique(search) >= 40 if border < 0.5 else unique(search) >= 8
    assert all(number(a) + number(b) >= 200 * border for a, b, *_ in search.archive.unique_rows)


def test_a_simulated_llm_fills_the_library() -> None:
    given_case = graded(Goal(), (0.0,) * 4)
    given_case = replace(given_case, budget=replace(given_case.budget, llm_calls=6))
    asked: list[Request] = []

    def talk(request: Request) -> Reply:
        asked.append(request)
        return simulated()(request)

    search = recombine(given_case, talk, own_edits=False)
    assert asked
    assert unique(search) > 10
    assert all(option.reasons for option in search.archive.options())
