"""Going on: what was paid for in one search is there in the next, under other rules."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_world import PEOPLE, SCHEMA, Adder, Watched, person, problem, timeless

import waysout
from waysout.domain.memory import Memory
from waysout.domain.oracle import Goal
from waysout.domain.rules import Exclude, Immutable, Range
from waysout.domain.schema import Row
from waysout.errors import InputError
from waysout.llm.base import Request
from waysout.run.progress import Progress
from waysout.run.recall import memory_of
from waysout.store import Store

QUERY: Row = (1, 2, "x")


def asked(oracle: Adder, since: int = 0) -> list[Row]:
    return [row for batch in oracle.batches[since:] for row in batch]


def go(adder: Adder, *rules: Any, **options: Any) -> waysout.Result:
    return waysout.find(problem(*rules, oracle=adder), person(QUERY), **options)


def rows_of(result: waysout.Result) -> set[Row]:
    return {tuple(option.row[f.name] for f in SCHEMA) for option in result.options}


def test_a_lock_keeps_what_still_holds_and_asks_nothing_again() -> None:
    adder, llm, memory = Adder(), Watched(), Memory()
    common: dict[str, Any] = {"llm": llm, "memory": memory, "method": "recombine"}
    first = go(adder, calls=2, oracle_rows=30, **common)
    before, batches = set(asked(adder)), len(adder.batches)
    second = go(adder, Immutable(features=["b"]), calls=1, oracle_rows=10, **common)
    kept = {row for row in rows_of(first) if row[1] == QUERY[1]}
    assert kept
    assert kept < rows_of(second)
    assert all(row[1] == QUERY[1] for row in rows_of(second))
    new = asked(adder, batches)
    candidates = [row for row in new if row != QUERY and row not in rows_of(second)]
    assert not set(candidates) & before
    assert second.ledger.oracle_rows <= 10
    assert second.ledger.llm_calls <= 1


def test_a_model_that_answered_before_is_not_tried_again() -> None:
    adder, memory = Adder(), Memory()
    table = SimpleNamespace(rows=PEOPLE, labels=[False] * len(PEOPLE))
    common: dict[str, Any] = {"calls": 0, "memory": memory, "data": table, "method": "recombine"}
    first, second = go(adder, oracle_rows=5, **common), go(adder, oracle_rows=0, **common)
    assert first.ledger.setup_rows > len(PEOPLE)
    assert second.options
    assert {option.stable for option in second.options} == {None}  # it did not waver then
    assert second.ledger.setup_rows == 1


def test_nor_where_it_was_only_tried() -> None:
    adder, memory = Adder(), Memory()
    lock = Immutable(features=["a", "b", "c"])
    table = SimpleNamespace(rows=PEOPLE, labels=[False] * len(PEOPLE))
    first, second = (go(adder, lock, calls=0, memory=memory, data=table) for _ in range(2))
    assert (first.outcome.kind, second.outcome.kind) == ("infeasible", "infeasible")
    assert first.ledger.setup_rows > second.ledger.setup_rows == 1


def test_a_second_look_is_judged_by_the_goal_of_today() -> None:
    adder, memory = Adder(), Memory()
    go(adder, calls=0, oracle_rows=30, memory=memory)
    stricter = replace(problem(oracle=adder), goal=Goal(at_least=0.8))
    found = waysout.find(stricter, person(QUERY), calls=0, oracle_rows=0, memory=memory)
    assert found.options
    assert all(option.probability >= 0.8 for option in found.options)
    assert all(way.stable for way in found.ways)


def test_reasons_survive() -> None:
    adder, llm, memory = Adder(), Watched(), Memory()
    given: dict[str, Any] = {"method": "recombine", "memory": memory}  # most of it is named
    first = go(adder, llm=llm, calls=3, oracle_rows=30, **given)
    again = go(adder, calls=0, oracle_rows=0, **given)
    assert {o.key: o.reasons for o in again.options} == {o.key: o.reasons for o in first.options}
    assert any(o.reasons for o in again.options)
    assert again.ledger.oracle_rows == 0


def test_the_llm_is_told_what_it_named_and_draws_anew() -> None:
    adder, memory = Adder(), Memory()
    first, second = Watched(), Watched()
    go(adder, llm=first, calls=2, oracle_rows=20, memory=memory)
    go(adder, llm=second, calls=2, oracle_rows=20, memory=memory)
    assert first.requests
    assert second.requests
    assert not set(first.seen) & set(second.seen)


def test_named_edits_are_combined_again_without_a_call() -> None:
    adder, memory = Adder(), Memory()
    bare: dict[str, Any] = {"method": "recombine", "settings": {"own_edits": False}}
    go(adder, llm=Watched(), calls=3, oracle_rows=5, memory=memory, **bare)
    again = go(adder, calls=0, oracle_rows=20, memory=memory, **bare)
    assert again.ledger.oracle_rows > 5  # without a library there would be nothing to combine
    assert {row[0] for row in rows_of(again)} - {QUERY[0]}


def test_loosened_rules_go_on_too() -> None:
    adder, memory = Adder(), Memory()
    tight = go(adder, Range(feature="a", max=9), calls=0, oracle_rows=20, memory=memory)
    loose = go(adder, calls=0, oracle_rows=20, memory=memory)
    assert rows_of(tight) < rows_of(loose)


def test_an_excluded_option_is_gone_and_so_is_all_beyond_it() -> None:
    adder, memory = Adder(), Memory()
    # Wayfinder would not look at what goes farther than it must.
    given: dict[str, Any] = {"method": "recombine", "calls": 0, "oracle_rows": 40}
    first = go(adder, memory=memory, **given)
    assert any(row[0] >= 9 and row[1] >= 5 for row in rows_of(first))  # type: ignore[operator]
    rule = Exclude(values={"a": {"min": 9}, "b": {"min": 5}})
    second = go(adder, rule, memory=memory, **given)
    assert second.options
    assert not any(row[0] >= 9 and row[1] >= 5 for row in rows_of(second))  # type: ignore[operator]


@pytest.mark.parametrize("method", ["wayfinder", "recombine", "comp-mcts", "lats", "random"])
def test_every_kind_of_method_keeps_the_options(method: str) -> None:
    adder, memory = Adder(), Memory()
    common: dict[str, Any] = {"method": method, "memory": memory, "calls": 10}
    first = go(adder, llm=Watched(), **common)
    second = go(adder, llm=Watched(), **common)
    assert first.options
    assert rows_of(first) <= rows_of(second)
    keys = [option.key for option in second.options]
    assert len(keys) == len(set(keys))


def test_what_memory_brings_is_told_first() -> None:
    adder, memory, told = Adder(), Memory(), list[Progress]()
    first = go(adder, calls=0, oracle_rows=20, memory=memory)
    go(adder, calls=0, oracle_rows=5, memory=memory, progress=told.append)
    assert {o.key for o in told[0].found} == {o.key for o in first.options}
    assert told[0].spent.oracle_rows == 0


def test_progress_tells_each_option_once() -> None:
    adder, told = Adder(), list[Progress]()
    result = go(adder, llm=Watched(), calls=3, oracle_rows=30, progress=told.append)
    assert [o.key for p in told for o in p.found] == [o.key for o in result.options]
    assert told[-1].oracle_rows == result.ledger.oracle_rows


def test_a_run_that_began_with_a_memory_resumes_as_it_began(tmp_path: Path) -> None:
    def sitting(file: Path, memory: Memory | None, rows: int) -> waysout.Result:
        return go(Adder(), llm=Watched(), calls=2, oracle_rows=rows, memory=memory, run=file)

    memory = Memory()
    go(Adder(), llm=Watched(), calls=2, oracle_rows=10, memory=memory)
    whole = sitting(tmp_path / "whole", memory, 20)

    memory, stop = Memory(), waysout.Stop()
    go(Adder(), llm=Watched(), calls=2, oracle_rows=10, memory=memory)

    def cut(now: Progress) -> None:
        if now.oracle_rows >= 10:
            stop("enough")

    file = tmp_path / "cut"
    half = go(Adder(), llm=Watched(), calls=2, oracle_rows=20, memory=memory, run=file,
              progress=cut, stop=stop)  # fmt: skip
    assert half.outcome.kind == "interrupted"
    with Store.read(file) as store:
        assert [e.kind for e in store.events()].count("remembered") == 1
    resumed = sitting(file, None, 20)  # the run itself knows what was known
    assert timeless(resumed)["options"] == timeless(whole)["options"]
    assert resumed.ledger.oracle_rows == whole.ledger.oracle_rows


def test_a_run_on_file_is_a_memory(tmp_path: Path) -> None:
    adder, memory = Adder(), Memory()
    go(adder, llm=Watched(), calls=2, oracle_rows=10, memory=memory)
    told = go(adder, llm=Watched(), calls=2, oracle_rows=20, memory=memory, run=tmp_path / "run")
    with Store.read(tmp_path / "run") as store:
        again = memory_of(store, problem())
        with pytest.raises(InputError, match="no query 3"):
            memory_of(store, problem(), 3)
    kept, lived = again.of(problem(), QUERY), memory.of(problem(), QUERY)
    assert kept.answered == lived.answered
    assert kept.calls == lived.calls
    assert {(e.feature, e.value) for e in kept.edits} <= {(e.feature, e.value) for e in lived.edits}
    assert any(edit.reason for edit in kept.edits)
    back = go(Adder(), calls=0, oracle_rows=0, memory=again)
    assert {o.key: o.reasons for o in back.options} == {o.key: o.reasons for o in told.options}


@pytest.mark.parametrize("method", ["wayfinder", "recombine", "random", "growing-spheres"])
def test_batches_hold_nothing_that_is_known(method: str) -> None:
    memory = Memory()
    common: dict[str, Any] = {"method": method, "memory": memory, "calls": 0, "oracle_rows": 30}
    go(Adder(), **common)
    known = len(memory.of(problem(), QUERY).answered)
    again = go(Adder(), **common)
    # Had a row that is known been asked, more were paid for than are new.
    new = len(memory.of(problem(), QUERY).answered) - known
    assert new == again.ledger.oracle_rows > 10


@pytest.mark.parametrize(
    "settings",
    [{"method": "comp-mcts"}, {"method": "recombine", "settings": {"remind": False}}],
)
def test_the_same_question_is_another_draw(settings: dict[str, Any]) -> None:
    memory, first, second = Memory(), Watched(), Watched()
    go(Adder(), llm=first, calls=1, oracle_rows=10, memory=memory, **settings)
    go(Adder(), llm=second, calls=1, oracle_rows=10, memory=memory, **settings)
    assert first.requests == second.requests == 1
    assert not set(first.seen) & set(second.seen)


def test_the_llm_is_reminded_of_what_it_named_before() -> None:
    asked: list[str] = []

    async def listen(request: Request, attempt: int) -> None:
        asked.append(request.messages[-1].content)

    memory = Memory()
    for _ in range(2):
        go(Adder(), llm=Watched(listen), calls=1, oracle_rows=5, memory=memory)
    assert "already" not in asked[0].lower()
    assert "already" in asked[1].lower()


@pytest.mark.parametrize("options", [{"method": "comp-mcts"}, {"polish": 2}])
def test_whoever_asks_an_llm_remembers_its_edits(options: dict[str, Any]) -> None:
    memory, settings = Memory(), {"own_edits": False}
    go(Adder(), llm=Watched(), calls=3, oracle_rows=12, memory=memory, **options)
    assert any(edit.reason for edit in memory.of(problem(), QUERY).edits)
    bare = Memory()
    bare.of(problem(), QUERY).edits += memory.of(problem(), QUERY).edits
    again = go(Adder(), calls=0, oracle_rows=10, method="recombine", settings=settings, memory=bare)
    assert again.ledger.oracle_rows > 1


def test_each_edit_is_remembered_once_a_reply() -> None:
    memory, counts = Memory(), [0]

    def count(now: Progress) -> None:
        counts.append(len(memory.of(problem(), QUERY).edits))

    go(Adder(), llm=Watched(), calls=4, oracle_rows=8, settings={"edits": 3}, memory=memory,
       progress=count)  # fmt: skip
    assert counts[-1] > 3
    assert all(after - before <= 3 for before, after in pairwise(counts))


def test_edits_of_a_locked_feature_are_left_out() -> None:
    memory, llm = Memory(), Watched()
    go(Adder(), llm=llm, calls=3, oracle_rows=10, memory=memory)
    assert {edit.feature for edit in memory.of(problem(), QUERY).edits} >= {"a", "b"}
    locked = go(Adder(), Immutable(features=["b"]), calls=0, oracle_rows=20, memory=memory)
    assert not [why for why in locked.rejections if "immutable" in why]


def test_what_was_answered_teaches_from_the_start() -> None:
    memory, told = Memory(), list[Progress]()
    common: dict[str, Any] = {"calls": 0, "memory": memory, "method": "recombine"}
    go(Adder(), oracle_rows=160, **common)
    go(Adder(), oracle_rows=20, progress=told.append, **common)
    # A batch is a twentieth of all that was learned from, and five rows where that was little.
    assert told[1].oracle_rows - told[0].oracle_rows == 8


def test_another_goal_is_judged_anew() -> None:
    memory = Memory()
    first = go(Adder(), calls=0, oracle_rows=40, memory=memory)
    asked_more = problem(goal=waysout.Goal(at_least=0.8))
    second = waysout.find(asked_more, person(QUERY), calls=0, oracle_rows=0, memory=memory)
    assert second.options
    assert {o.key for o in second.options} == {
        o.key for o in first.options if o.probability >= 0.8
    }  # fmt: skip


def test_rows_that_break_a_new_rule_are_no_near_misses() -> None:
    memory, unreachable = Memory(), waysout.Goal(at_least=0.99)
    rules = [Range(feature="b", max=10)]
    free = problem(*rules, goal=unreachable)
    go_on = problem(*rules, Immutable(features=["a"]), goal=unreachable)
    common: dict[str, Any] = {"calls": 0, "oracle_rows": 8, "memory": memory}
    waysout.find(free, person(QUERY), **common)
    second = waysout.find(go_on, person(QUERY), **common)
    assert not second.options
    assert second.near_misses
    assert all("a" not in miss.changes for miss in second.near_misses)
    assert second.outcome.best_probability == max(o.probability for o in second.near_misses)


def test_a_run_that_is_resumed_fills_a_memory(tmp_path: Path) -> None:
    lived, stop, file = Memory(), waysout.Stop(), tmp_path / "run"

    def cut(now: Progress) -> None:
        if now.oracle_rows >= 10:
            stop("enough")

    common: dict[str, Any] = {"llm": Watched(), "calls": 2, "oracle_rows": 20, "run": file}
    go(Adder(), llm=Watched(), calls=1, oracle_rows=10, memory=lived)
    go(Adder(), memory=lived, progress=cut, stop=stop, **common)
    fresh = Memory()
    resumed = go(Adder(), memory=fresh, **common)
    past, before = fresh.of(problem(), QUERY), lived.of(problem(), QUERY)
    assert past.answered.keys() > before.answered.keys()
    assert past.calls == before.calls == 1 + resumed.ledger.llm_calls
    assert past.edits[: len(before.edits)] == before.edits
    assert past.reasons.items() >= before.reasons.items()


def test_a_run_of_many_remembers_each_for_themselves(tmp_path: Path) -> None:
    memory, file = Memory(), tmp_path / "run"
    people = [person(row) for row in PEOPLE[:2]]
    common: dict[str, Any] = {"calls": 0, "oracle_rows": 10, "memory": memory}
    list(waysout.find_many(problem(), people, **common))
    list(waysout.find_many(problem(), people, run=file, **common))
    with Store.read(file) as store:
        kept = [memory_of(store, problem(), i).of(problem(), PEOPLE[i]) for i in range(2)]
    assert [past.answered for past in kept] == [
        memory.of(problem(), row).answered for row in PEOPLE[:2]
    ]


def test_a_run_on_file_knows_the_edits_and_reasons_it_began_with(tmp_path: Path) -> None:
    memory, file, lock = Memory(), tmp_path / "run", Immutable(features=["a"])
    first = go(Adder(), llm=Watched(), calls=3, oracle_rows=20, memory=memory)
    began = list(memory.of(problem(), QUERY).edits)
    go(Adder(), lock, calls=0, oracle_rows=5, memory=memory, run=file)
    with Store.read(file) as store:
        kept = memory_of(store, problem())
    past = kept.of(problem(), QUERY)
    assert [edit for edit in dict.fromkeys(began) if edit not in past.edits] == []
    assert len(past.edits) == len(set(past.edits))
    assert not [e for e in past.edits if e.reason.startswith(f"{e.feature}: ")]
    back = {o.key: o.reasons for o in go(Adder(), calls=0, oracle_rows=0, memory=kept).options}
    assert back.items() >= {o.key: o.reasons for o in first.options}.items()


def test_the_edits_of_a_run_are_known_by_their_reasons_alone(tmp_path: Path) -> None:
    given: dict[str, Any] = {"method": "recombine", "calls": 3, "oracle_rows": 30}
    go(Adder(), llm=Watched(), run=tmp_path / "run", **given)
    with Store.read(tmp_path / "run") as store:
        edits = memory_of(store, problem()).of(problem(), QUERY).edits
    assert edits
    assert len(edits) == len(set(edits))
    assert all(e.reason and not e.reason.startswith(f"{e.feature}: ") for e in edits)


@settings(max_examples=25, deadline=None)
@given(
    parts=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), min_size=1, max_size=4),
    locked=st.lists(st.sampled_from(["a", "b", "c"]), max_size=4),
)
def test_parts_never_pass_their_budgets_nor_break_a_rule(
    parts: list[tuple[int, int]], locked: list[str]
) -> None:
    adder, memory = Adder(), Memory()
    for i, (calls, rows) in enumerate(parts):
        rules = [Immutable(features=[locked[i]])] if i < len(locked) else []
        result = go(adder, *rules, llm=Watched(), calls=calls, oracle_rows=rows, memory=memory)
        assert result.ledger.llm_calls <= calls
        assert result.ledger.oracle_rows <= rows
        bound = problem(*rules)
        for row in rows_of(result):
            assert not bound.violations(QUERY, row)
            assert row[0] + row[1] >= 10  # type: ignore[operator]


def test_a_memory_is_a_memory() -> None:
    with pytest.raises(InputError, match="memory is a Memory"):
        waysout.find(problem(), person(QUERY), memory={}, calls=0)  # type: ignore[arg-type]
