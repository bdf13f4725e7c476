"""Finishing after any method and for any model that rewards more of the same."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from finish_world import GROUPED, GROUPS, finished, flags, flat, run, shown
from hypothesis import given, settings
from hypothesis import strategies as st
from recombine_world import Says, make_case, make_problem, number
from small_world import QUERY, SCHEMA, Adder, case

from waysout.domain.key import Key
from waysout.domain.rules import Direction, Linear, MaxChanges, Rule, Step
from waysout.domain.schema import Feature, Row, Schema
from waysout.search.base import Case, Method
from waysout.search.comp_mcts import CompMCTS
from waysout.search.finish import Finishing, without_set_aside
from waysout.search.lats import Lats
from waysout.search.nearest import NearestRows
from waysout.search.random import RandomEdits
from waysout.search.work import Evaluate

WORLD = Schema(
    (
        Feature("a", "integer", range=(0, 9)),
        Feature("b", "number", range=(0, 50)),
        Feature("d", "integer", range=(-20, 20)),
        Feature("c", "category", levels=("x", "y", "z")),
        *GROUPED,
    )
)
START: Row = (2, 8.0, 5, "x", "basic", 9, True, False)
EXTRA: list[tuple[Rule, ...]] = [
    (), (MaxChanges(at_most=3),), (Linear(that="a + b <= 30"),), (Linear(that="a + b >= 12"),),
    (Step(feature="b", step=5),), (Direction(features=["a"], direction="up"),),
]  # fmt: skip


@st.composite
def monotone_cases(draw: st.DrawFn) -> Case:
    """Draw a model for which more of a and b and less of d is never worse."""
    weights = draw(st.lists(st.integers(0, 3), min_size=6, max_size=6))
    worth = dict(zip("xyz", draw(st.tuples(*[st.integers(0, 3)] * 3)), strict=True))
    least, together = draw(st.integers(1, 40)), draw(st.booleans())

    def approves(row: Row) -> bool:
        a, b, d, c, _, years, rents, _ = row
        parts = [number(a), number(b) / 5, (20 - number(d)) / 4, worth[str(c)], number(years) - 9,
                 0.0 if rents else 3.0]  # fmt: skip
        if together:  # all that counts must be there
            return all(part * 4 >= least / 2 for part, w in zip(parts, weights, strict=True) if w)
        return bool(np.dot(weights, parts) >= least)

    oracle = Says(lambda row: 0.9 if approves(row) else 0.1)
    rules = draw(st.sampled_from(EXTRA))
    return make_case(make_problem(WORLD, oracle, *GROUPS, *rules), START, rows=400)


@st.composite
def rows_of(draw: st.DrawFn, given_case: Case) -> list[Row]:
    """Draw rows that keep the rules."""
    rules, found = given_case.problem.rules, dict[Row, None]()
    values: dict[str, st.SearchStrategy[Any]] = {
        "a": st.integers(0, 9), "b": st.integers(0, 500).map(lambda tenths: tenths / 10),
        "d": st.integers(-20, 20), "c": st.sampled_from("xyz"),
        "school": st.just("high"), "owns": st.just(True),
    }  # fmt: skip
    for _ in range(draw(st.integers(1, 12))):
        names = draw(st.sets(st.sampled_from(sorted(values)), min_size=1))
        edits = {name: draw(values[name]) for name in sorted(names)}
        levers = rules.levers(START)
        row = rules.apply(START, {n: v for n, v in edits.items() if levers[n].admits(v)})
        if row != START and not rules.violations(START, row):
            found[row] = None
    return list(found)


@settings(max_examples=120)
@given(st.data())
def test_with_rows_enough_every_way_is_as_good_as_it_can_be(data: st.DataObject) -> None:
    given_case = data.draw(monotone_cases())
    problem, oracle = given_case.problem, given_case.problem.oracle
    assert isinstance(oracle, Says)
    if bool(oracle.ask([START]).decision[0]) and not problem.violations(START, START):
        return  # nobody would search
    rows = data.draw(rows_of(given_case))
    reasons = data.draw(st.sampled_from([(), ("a: more of it",)]))
    oracle.asked.clear()
    search, batches = finished(given_case, *rows, aside=380, reasons=reasons)
    assert oracle.asked == [*rows, *flat(batches)]
    assert len(set(oracle.asked)) == len(oracle.asked) < 400
    assert not any(problem.violations(START, row) for row in oracle.asked)
    assert {flags(way) for way in search.archive.ways()} <= {(True, True, True)}
    assert bool(search.archive.ways()) == bool(oracle.ask(rows).decision.any())
    again, same = finished(given_case, *rows, aside=380, reasons=reasons)
    assert same == batches
    assert again.archive.ways() == search.archive.ways()


KNOWN = SimpleNamespace(
    rows=[(a, b, c) for a in range(0, 10, 2) for b in range(0, 10, 3) for c in "xyz"],
    labels=[a + b >= 5 for a in range(0, 10, 2) for b in range(0, 10, 3) for _ in "xyz"],
)
METHODS: list[Method] = [
    CompMCTS(), CompMCTS(in_flight=3, depth=2), Lats(), RandomEdits(batch=4), NearestRows(batch=3),
]  # fmt: skip
RULES: list[tuple[Rule, ...]] = [(), (MaxChanges(at_most=2),), (Linear(that="a + b <= 11"),)]


def started(method: Method, given_case: Case, aside: int) -> Finishing:
    return Finishing(given_case, method.start(without_set_aside(given_case, aside)), aside)


@settings(max_examples=60)
@given(
    st.sampled_from(METHODS), st.sampled_from(RULES), st.integers(0, 40), st.integers(0, 30),
    st.booleans(), st.data(),
)  # fmt: skip
def test_after_any_method_budgets_hold_and_ways_are_true(
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
    own = flat([work.rows for work in works[search._search.asked :] if isinstance(work, Evaluate)])
    before = flat(asked)[: search.archive.evaluated - len(own)]
    assert len(set(own)) == len(own)
    assert not set(own).intersection(before)
    assert Adder().ask([*search.archive.rows, *shown(search)]).decision.all()
    for row in [*shown(search), *own]:
        assert problem.violations(QUERY, row) == ()
        assert row != QUERY


@pytest.mark.parametrize("method", METHODS, ids=range(len(METHODS)))
def test_after_any_method_ways_are_as_lean_as_can_be(method: Method) -> None:
    given_case = replace(case(calls=12, rows=60, k=3), known=KNOWN)
    search = started(method, given_case, 30)
    run(search, given_case)
    assert shown(search)
    assert set(shown(search)) <= {(5, 0, "x"), (0, 5, "x")}
    assert {flags(way) for way in search.archive.ways()} == {(True, True, True)}
