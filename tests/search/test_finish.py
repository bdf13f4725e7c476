"""Polish: leaner options after any search, within the same rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recombine_world import Says, make_case, make_problem, number, numbers
from small_world import QUERY, SCHEMA, Adder, case

from waysout.domain.distance import Distance
from waysout.domain.key import Key
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import Linear, Linked, MaxChanges, OneHot, Rule, RuleSet, Step
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import InputError
from waysout.llm.simulated import Simulated
from waysout.search.base import Case, Method, Search
from waysout.search.comp_mcts import CompMCTS
from waysout.search.lats import Lats
from waysout.search.nearest import NearestRows
from waysout.search.finish import BATCH, Finishing, without_set_aside
from waysout.search.random import RandomEdits
from waysout.search.recombine import Recombine
from waysout.search.work import Evaluate, Propose, Work


class Handed(Search):
    """Asks some rows and ends."""

    def __init__(self, given_case: Case, rows: Sequence[Row], *reasons: str) -> None:
        super().__init__(given_case)
        self.rows, self.reasons = rows, reasons

    def _next(self) -> Work | None:
        if self.asked == 0 and self.rows:
            return self._evaluate(self.rows)
        if not self.waiting:
            self._end(OutcomeKind.EXHAUSTED, "all were asked")
        return None

    def _on_answers(self, context: Any, rows: Sequence[Row], answers: Answers) -> None:
        problem = self.case.problem
        for row, chance, yes in zip(rows, answers.probability, answers.decision, strict=True):
            valid = self.archive.is_valid(row, bool(yes))
            self.archive.take(row, problem.key(row), float(chance), valid, self.reasons)


def polished(
    given_case: Case, *rows: Row, rows_aside: int = 30, reasons: Sequence[str] = ()
) -> tuple[Finishing, list[list[Row]]]:
    """Polish some rows; returns the search and the batches that polishing asked."""
    inner = Handed(without_set_aside(given_case, rows_aside), rows, *reasons)
    search = Finishing(given_case, inner, rows_aside)
    works = run(search, given_case)
    return search, [list(work.rows) for work in works[1:] if isinstance(work, Evaluate)]


def run(search: Search, given_case: Case, order: Callable[[int], int] = lambda n: 0) -> list[Work]:
    """Drive a search with all it hands out; ``order`` says which of n works is answered next."""
    out: list[Work] = []
    asked: list[Work] = []
    llm = Simulated(3)
    while True:
        while (work := search.ask()) is not None:
            out.append(work)
            asked.append(work)
        if not out:
            return asked
        answer_one(search, out.pop(order(len(out))), given_case, llm)


def answer_one(search: Search, work: Work, given_case: Case, llm: Simulated) -> None:
    if isinstance(work, Propose):
        search.tell(work, asyncio.run(llm.complete(work.request)))
    else:
        search.tell(work, given_case.problem.oracle.ask(work.rows))


def reason_of(search: Search) -> str:
    assert search.ending is not None
    return search.ending.reason


# What it does -----------------------------------------------------------------------------------


def test_needless_changes_are_dropped() -> None:
    search, batches = polished(case(), (5, 0, "y"))
    # Without a, without c; then what was approved has one number, which needs to be 5.
    assert batches == [[(0, 0, "y"), (5, 0, "x")], [(2, 0, "x")], [(4, 0, "x")]]
    assert search.archive.rows == [(5, 0, "y"), (5, 0, "x")]
    assert search.ending is not None
    assert search.ending.kind == OutcomeKind.EXHAUSTED
    assert search.ending.reason == "all were asked; polish: 1 leaner option for 4 rows"


def test_what_became_leaner_is_polished_further() -> None:
    search, batches = polished(case(), (9, 1, "y"))
    assert batches[0] == [(0, 1, "y"), (9, 0, "y"), (9, 1, "x")]
    assert (5, 0, "x") in search.archive.rows


def test_numbers_are_walked_back_by_halves() -> None:
    search, batches = polished(case(), (9, 0, "x"))
    assert batches == [[(4, 0, "x")], [(6, 0, "x")], [(5, 0, "x")]]
    assert search.archive.rows == [(9, 0, "x"), (6, 0, "x"), (5, 0, "x")]


def test_several_numbers_are_walked_back_together() -> None:
    search, batches = polished(case(query=(1, 1, "x")), (3, 3, "x"))
    # Each alone is refused, and so is each half; one step less will do for either.
    assert batches[:2] == [[(1, 3, "x"), (3, 1, "x")], [(2, 3, "x"), (3, 2, "x")]]
    assert search.archive.rows == [(3, 3, "x"), (2, 3, "x"), (3, 2, "x")]


def test_an_option_that_needs_all_costs_what_it_takes_to_see_that() -> None:
    search, batches = polished(case(query=(1, 2, "x")), (2, 3, "x"))
    assert batches == [[(1, 3, "x"), (2, 2, "x")]]
    assert len(search.archive) == 1


def test_a_single_change_is_not_put_back() -> None:
    _, batches = polished(case(query=(4, 0, "x")), (5, 0, "x"))
    assert batches == []


def test_what_was_asked_before_is_taken_as_known() -> None:
    refused, approved = (4, 0, "x"), (7, 0, "x")
    _, batches = polished(case(), (9, 0, "x"), refused, approved)
    # 7 is the better one; 4 was refused, so the way back begins between them.
    assert batches[0] == [(6, 0, "x")]
    _, batches = polished(case(), (9, 0, "y"), (9, 0, "x"), (0, 0, "y"))
    assert all(row[2] == "x" for batch in batches for row in batch)


def test_the_best_of_each_set_of_levers_comes_first() -> None:
    _, batches = polished(case(), (5, 0, "y"), (9, 0, "y"), (0, 5, "z"))
    firsts = [batch[0] for batch in batches if len(batch) == 2]
    assert firsts[:2] == [(0, 0, "y"), (0, 0, "z")]


def test_long_options_are_taken_apart_in_batches() -> None:
    names = [f"f{i}" for i in range(8)]
    schema = Schema(tuple(Feature(name, "boolean") for name in names))

    class AllButOne(Adder):
        def ask(self, rows: Sequence[Row]) -> Answers:
            sums = np.array([sum(map(bool, row)) for row in rows])
            return Answers(sums / 8, sums >= 7)

    made = Problem(schema, RuleSet(schema), Key(schema), Distance(schema, {}), AllButOne())
    given_case = replace(case(), problem=made, query=(False,) * 8)
    _, batches = polished(given_case, (True,) * 8)
    assert [len(batch) for batch in batches[:1]] == [5]
    # All five were approved: the rest is for those, which need all seven.
    assert sum(not row[7] for batch in batches for row in batch if sum(map(bool, row)) == 7) == 0
    _, batches = polished(given_case, (*(True,) * 7, False))
    assert [len(batch) for batch in batches] == [5, 2]


@pytest.mark.parametrize("rows", list(permutations([(5, 0, "y"), (6, 0, "y"), (0, 9, "z")])))
def test_other_levers_come_before_more_of_the_same(rows: tuple[Row, ...]) -> None:
    _, batches = polished(case(), *rows)
    asked = [row for batch in batches for row in batch]
    assert asked.index((0, 0, "z")) < asked.index((6, 0, "x"))


def test_of_two_walks_that_are_approved_the_nearer_goes_on() -> None:
    both = Says(lambda row: 0.9 if min(number(row[0]), number(row[1])) >= 3 else 0.1)
    _, batches = polished(make_case(make_problem(SCHEMA, both), QUERY), (8, 9, "x"))
    assert batches[1:3] == [[(4, 9, "x"), (8, 4, "x")], [(4, 4, "x"), (8, 2, "x")]]


def test_walks_keep_to_the_size_of_a_batch() -> None:
    width = BATCH + 2
    all_high = Says(lambda row: 0.9 if min(map(number, row)) >= 30 else 0.1)
    given_case = make_case(make_problem(numbers(width), all_high), (0.0,) * width, rows=90)
    _, batches = polished(given_case, (90.0,) * width, rows_aside=80)
    assert max(map(len, batches)) == BATCH


# Readable numbers -------------------------------------------------------------------------------


def incomes(*rules: Rule, least: float, step: float | None = None, **feature: Any) -> Case:
    schema = Schema((Feature("income", "number", **feature), Feature("debt", "integer")))
    if step is not None:
        rules = (*rules, Step(feature="income", step=step, start=0))

    class Enough(Adder):
        def ask(self, rows: Sequence[Row]) -> Answers:
            told = np.array([float(row[0] or 0) for row in rows])
            return Answers(np.clip(told / 1e5, 0, 1), told >= least)

    scales = {"income": 1000.0, "debt": 1.0}
    made = Problem(schema, RuleSet(schema, rules), Key(schema), Distance(schema, scales), Enough())
    return replace(case(), problem=made, query=(41_350.5, 0))


def asked_incomes(given_case: Case, start: float) -> list[Any]:
    _, batches = polished(given_case, (start, 0))
    return [row[0] for batch in batches for row in batch]


def test_numbers_are_rounded_to_few_digits() -> None:
    asked = asked_incomes(incomes(least=52_000), 90_000.0)
    assert asked == [70_000.0, 60_000.0, 50_000.0, 55_000.0, 52_000.0]


def test_numbers_keep_to_the_grid_of_a_rule() -> None:
    asked = asked_incomes(incomes(least=52_000, step=700), 90_300.0)
    assert asked
    assert all(value % 700 == 0 for value in asked)


def test_the_way_back_has_an_end_where_there_is_always_a_number_between() -> None:
    asked = asked_incomes(incomes(least=77_777.7), 90_000.0)
    assert len(asked) <= 5


def test_bins_of_the_key_are_the_steps_back() -> None:
    given_case = incomes(least=52_000)
    key = Key(given_case.problem.schema, {"income": [45_000, 55_000, 70_000]})
    binned = replace(given_case, problem=replace(given_case.problem, key=key))
    asked = asked_incomes(binned, 90_000.0)
    assert len({key((value, 0)) for value in asked}) == len(asked)
    assert asked == [70_000.0, 50_000.0]


# Rules, labels, reasons -------------------------------------------------------------------------


def test_no_rule_is_broken_on_the_way_back() -> None:
    search, batches = polished(case(Linear(that="a + b >= 6")), (9, 0, "y"))
    assert (6, 0, "x") in search.archive.rows
    assert all(row[0] + row[1] >= 6 for batch in batches for row in batch)  # type: ignore[operator]


def schooling(oracle: Adder) -> Case:
    schema = Schema(
        (
            Feature("school", "category", levels=("basic", "high")),
            Feature("years", "integer", range=(0, 20)),
            Feature("rents", "boolean"),
            Feature("owns", "boolean"),
        )
    )
    link = Linked(feature="school", sets="years", map={"basic": 9, "high": 12})
    rules = RuleSet(schema, (link, OneHot(features=["rents", "owns"])))
    made = Problem(schema, rules, Key(schema), Distance(schema, {"years": 1.0}), oracle)
    return replace(case(), problem=made, query=("basic", 9, True, False))


class Years(Adder):
    def ask(self, rows: Sequence[Row]) -> Answers:
        enough = np.array([row[1] == 12 for row in rows])
        return Answers(enough * 0.6, enough)


def test_what_follows_a_lever_goes_with_it() -> None:
    search, batches = polished(schooling(Years()), ("high", 12, False, True))
    # The group goes back as a whole, the school with its years, which alone never move.
    assert batches == [[("high", 12, True, False), ("basic", 9, False, True)]]
    assert search.archive.rows[1:] == [("high", 12, True, False)]


def test_labels_alone_will_do() -> None:
    class Labels(Adder):
        labels_only = True

        def ask(self, rows: Sequence[Row]) -> Answers:
            told = super().ask(rows).decision
            return Answers(told.astype(float), told)

    given_case = case()
    labels = replace(given_case, problem=replace(given_case.problem, oracle=Labels()))
    search, _ = polished(labels, (9, 0, "y"))
    assert search.archive.rows[-1] == (5, 0, "x")


def test_reasons_of_what_stands_are_kept() -> None:
    given_reasons = ("a: more of it", "c: a better letter", "like row 7 of your data")
    search, _ = polished(case(), (5, 0, "y"), reasons=given_reasons)
    assert search.archive.options()[1].reasons == ("a: more of it", "like row 7 of your data")


def test_a_reason_that_names_the_old_number_is_not() -> None:
    search, _ = polished(case(), (9, 0, "x"), reasons=("a: more of it", "a: make it 9"))
    assert [option.reasons for option in search.archive.options()] == [
        ("a: more of it", "a: make it 9"), ("a: more of it",), ("a: more of it",),
    ]  # fmt: skip


# Rows -------------------------------------------------------------------------------------------


def test_rows_that_the_search_leaves_are_used_too() -> None:
    search, batches = polished(case(rows=7), (9, 9, "y"), rows_aside=1)
    assert sum(map(len, batches)) == 6
    assert reason_of(search).endswith("for 6 rows")


def test_without_a_limit_it_has_its_rows_on_top() -> None:
    search, batches = polished(case(rows=None), (9, 9, "y"), rows_aside=4)
    assert [len(batch) for batch in batches] == [3, 1]
    assert reason_of(search).endswith("polish: 3 leaner options for 4 rows on top")


def test_nothing_found_is_nothing_to_polish() -> None:
    search, batches = polished(case(), (1, 0, "x"))
    assert batches == []
    assert reason_of(search) == "all were asked; polish: 0 leaner options for 0 rows"


KNOWN = SimpleNamespace(
    rows=[(a, b, c) for a in range(0, 10, 2) for b in range(0, 10, 3) for c in "xyz"],
    labels=[a + b >= 5 for a in range(0, 10, 2) for b in range(0, 10, 3) for _ in "xyz"],
)
METHODS: list[Method] = [
    CompMCTS(), CompMCTS(in_flight=3, depth=2), Lats(), RandomEdits(batch=4), NearestRows(batch=3),
]  # fmt: skip
RULES: list[tuple[Rule, ...]] = [(), (MaxChanges(at_most=2),), (Linear(that="a + b <= 11"),)]


def started(method: Method, given_case: Case, aside: int) -> Polishing:
    return Finishing(given_case, method.start(without_set_aside(given_case, aside)), aside)


@settings(max_examples=60)
@given(
    st.sampled_from(METHODS), st.sampled_from(RULES), st.integers(0, 40), st.integers(0, 30),
    st.booleans(), st.data(),
)  # fmt: skip
def test_after_any_method_budgets_hold_and_options_are_true(
    method: Method,
    rules: tuple[Rule, ...],
    rows: int,
    aside: int,
    binned: bool,
    data: st.DataObject,
) -> None:
    given_case = replace(case(*rules, calls=6, rows=rows, k=3), known=KNOWN)
    problem = given_case.problem
    if binned:
        problem = replace(problem, key=Key(SCHEMA, {"a": (2, 5, 7), "b": (4,)}))
        given_case = replace(given_case, problem=problem)
    search = started(method, given_case, aside)
    works = run(search, given_case, lambda n: data.draw(st.integers(0, n - 1)))
    assert search.done
    assert [work.id for work in works] == list(range(search.asked))
    asked = [work.rows for work in works if isinstance(work, Evaluate)]
    assert sum(map(len, asked)) == search.archive.evaluated <= rows
    own = [row for batch in asked[len(asked) - polish_batches(search) :] for row in batch]
    before = {problem.key(row) for batch in asked for row in batch} - set(map(problem.key, own))
    keys = [problem.key(row) for row in own]
    assert len(set(keys)) == len(keys)
    assert len(before) + len(keys) == len(search.archive.asked)
    assert Adder().ask(search.archive.rows).decision.all()
    for row in [*search.archive.rows, *own]:
        assert problem.violations(QUERY, row) == ()
        assert row != QUERY


def polish_batches(search: Polishing) -> int:
    return search.asked - search._search.asked


@pytest.mark.parametrize("method", METHODS, ids=range(len(METHODS)))
def test_options_become_leaner_after_any_method(method: Method) -> None:
    given_case = replace(case(calls=12, rows=60, k=3), known=KNOWN)
    search = started(method, given_case, 25)
    run(search, given_case)
    least = [sum(map(bool, row[:2])) + (row[2] != "x") for row in search.archive.rows]
    assert min(least) == 1
    assert {(5, 0, "x"), (0, 5, "x")} & set(search.archive.rows)


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


def test_polishing_follows_a_search_that_goes_on_without_calls() -> None:
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
    assert (calls, search.calls_left, search.archive.evaluated) == (1, 4, 40)
    assert "allowed no further LLM call" in reason_of(search)
    assert "polish: " in reason_of(search)


def test_a_search_that_needs_its_calls_is_not_kept_going_by_polishing() -> None:
    given_case = case(calls=4, rows=40)
    search = Finishing(given_case, CompMCTS().start(without_set_aside(given_case, 15)), 15)
    work = search.ask()
    assert isinstance(work, Propose)
    assert not search.refuse(work)
    assert search.waiting == 1


def test_an_archive_knows_every_key_it_took_in() -> None:
    search, batches = polished(case(), (9, 0, "y"), (1, 0, "x"))
    key = search.case.problem.key
    rows = [(9, 0, "y"), (1, 0, "x"), *(row for batch in batches for row in batch)]
    assert search.archive.asked == set(map(key, rows))
    assert key((9, 0, "y")) in search.archive
    assert key((1, 0, "x")) not in search.archive
