"""Going on: what was paid for in one search is there in the next, under other rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_world import SCHEMA, Adder, Watched, person, problem, timeless

import waysout
from waysout.domain.memory import Memory
from waysout.domain.rules import Exclude, Immutable, Range
from waysout.domain.schema import Row
from waysout.errors import InputError
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
    first = go(adder, llm=llm, calls=2, oracle_rows=30, memory=memory)
    before, batches = set(asked(adder)), len(adder.batches)
    second = go(adder, Immutable(features=["b"]), llm=llm, calls=1, oracle_rows=10, memory=memory)
    kept = {row for row in rows_of(first) if row[1] == QUERY[1]}
    assert kept
    assert kept < rows_of(second)
    assert all(row[1] == QUERY[1] for row in rows_of(second))
    new = asked(adder, batches)
    candidates = [row for row in new if row != QUERY and row not in rows_of(second)]
    assert not set(candidates) & before
    assert second.ledger.oracle_rows <= 10
    assert second.ledger.llm_calls <= 1


def test_reasons_survive() -> None:
    adder, llm, memory = Adder(), Watched(), Memory()
    first = go(adder, llm=llm, calls=3, oracle_rows=30, memory=memory)
    again = go(adder, calls=0, oracle_rows=0, memory=memory)
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
    settings = {"own_edits": False}
    go(adder, llm=Watched(), calls=3, oracle_rows=5, settings=settings, memory=memory)
    again = go(adder, calls=0, oracle_rows=20, settings=settings, memory=memory)
    assert again.ledger.oracle_rows > 5  # without a library there would be nothing to combine
    assert {row[0] for row in rows_of(again)} - {QUERY[0]}


def test_loosened_rules_go_on_too() -> None:
    adder, memory = Adder(), Memory()
    tight = go(adder, Range(feature="a", max=9), calls=0, oracle_rows=20, memory=memory)
    loose = go(adder, calls=0, oracle_rows=20, memory=memory)
    assert rows_of(tight) < rows_of(loose)


def test_an_excluded_option_is_gone_and_so_is_all_beyond_it() -> None:
    adder, memory = Adder(), Memory()
    first = go(adder, calls=0, oracle_rows=40, memory=memory)
    assert any(row[0] >= 9 and row[1] >= 5 for row in rows_of(first))  # type: ignore[operator]
    rule = Exclude(values={"a": {"min": 9}, "b": {"min": 5}})
    second = go(adder, rule, calls=0, oracle_rows=40, memory=memory)
    assert second.options
    assert not any(row[0] >= 9 and row[1] >= 5 for row in rows_of(second))  # type: ignore[operator]


@pytest.mark.parametrize("method", ["recombine", "comp-mcts", "lats", "random"])
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
    assert told[0].tried == ()
    assert told[0].spent.oracle_rows == 0


def test_progress_tells_each_option_and_each_row_once() -> None:
    adder, told = Adder(), list[Progress]()
    result = go(adder, llm=Watched(), calls=3, oracle_rows=30, progress=told.append)
    assert [o.key for p in told for o in p.found] == [o.key for o in result.options]
    tried = [tried for p in told for tried in p.tried]
    assert len(tried) == result.ledger.oracle_rows
    approved = {t.row for t in tried if t.approved}
    assert rows_of(result) <= approved
    assert all(t.probability == min((t.row[0] + t.row[1]) / 20, 1) for t in tried)  # type: ignore[operator]


def test_a_tree_search_tells_where_a_row_came_from() -> None:
    adder, told = Adder(), list[Progress]()
    go(adder, method="comp-mcts", llm=Watched(), calls=6, k=3, polish=2, progress=told.append)
    tried = [tried for p in told for tried in p.tried if tried.came_from is not None]
    assert {t.came_from for t in tried} > {QUERY}
    for t in tried:
        assert t.came_from is not None
        assert len(SCHEMA.changed(t.came_from, t.row)) <= 1


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
