from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

pytest.importorskip("fastapi", reason="needs fastapi (waysout[serve])")

import waysout
from test_asked_again import Judge, demo_cases, nearer, parts
from waysout.domain.budget import Budget, Ledger
from waysout.domain.memory import Memory, Past
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.errors import OracleError
from waysout.report.result import Result
from waysout.serve.settling import settled
from waysout.serve.strips import Strips

MOST = 300


def settle(
    problem: Problem, query: Row, past: Past, found: Result, most: int, *stop: Callable[[], bool]
) -> tuple[Result, int]:
    """Return what is settled, and with how many rows."""
    ledger = Ledger(Budget(oracle_rows=most))
    return settled(problem, query, past, found, ledger, *stop), ledger.spent.oracle_rows


def test_what_is_shown_is_exact_and_agrees_with_the_strips() -> None:
    problem, dataset, rows = demo_cases(0)
    cheaper = exact = 0
    for query in rows[:5]:
        memory, judge = Memory(), Judge(problem, query)
        found = waysout.find(problem, query, data=dataset, memory=memory)
        past = memory.of(problem, query)
        asked = len(past.answered)
        result, used = settle(problem, query, past, found, MOST)
        assert 0 < used <= MOST
        assert len(past.answered) == asked + used
        strips = Strips(problem, query, query, problem.schema.names).answer()["strips"]
        known = {strip["feature"]: strip["asked"] for strip in strips}
        before = {way.levers: way.cost for way in found.ways}
        cheaper += sum(way.cost < before.get(way.levers, 0) for way in result.ways)
        for way in result.pick(5):
            exact += 1
            changes = {name: new for name, (_, new) in way.changes.items()}
            assert judge.is_yes(changes)
            assert not any(map(judge.is_yes, parts(changes)))
            assert not any(map(judge.is_yes, nearer(judge, changes)))
            if len(changes) == 1:  # no value of its strip that is a yes lies nearer
                [(name, (now, new))] = way.changes.items()
                yes = [point["value"] for point in known[name] if point["approved"]]
                assert new in yes
                if isinstance(new, (int, float)) and isinstance(now, (int, float)):
                    assert not [v for v in yes if min(now, new) < v < max(now, new)]
    assert exact >= 12
    assert cheaper >= 5  # else there would be nothing to settle


def test_nothing_is_asked_where_nothing_may_be() -> None:
    problem, dataset, rows = demo_cases(0)
    memory = Memory()
    found = waysout.find(problem, rows[0], data=dataset, memory=memory, oracle_rows=40)
    past = memory.of(problem, rows[0])
    before = dict(past.answered)
    assert settle(problem, rows[0], past, found, 0) == (found, 0)
    stopped = replace(found, outcome=replace(found.outcome, kind=OutcomeKind.INTERRUPTED))
    assert settle(problem, rows[0], past, stopped, MOST) == (stopped, 0)
    assert past.answered == before
    for most in (1, 7, 50):
        known = replace(past, answered=dict(before))
        _, used = settle(problem, rows[0], known, found, most)
        assert used <= most


def test_rows_on_which_the_model_fails_count_and_its_answers_stay() -> None:
    problem, dataset, rows = demo_cases(0)
    memory = Memory()
    found = waysout.find(problem, rows[0], data=dataset, memory=memory, oracle_rows=40)
    past = memory.of(problem, rows[0])
    sent: list[Row] = []

    class Failing:
        """Answers one batch of new rows."""

        name, labels_only = problem.oracle.name, False

        def ask(self, asked: Sequence[Row]) -> Answers:
            new = [row for row in asked if row != rows[0]]
            if new and sent:
                sent.extend(new)
                raise OracleError("it falls over")
            sent.extend(new)
            return problem.oracle.ask(asked)

    before = set(past.answered)
    failing = replace(problem, oracle=Failing())
    assert settle(failing, rows[0], past, found, MOST) == (found, len(sent))
    kept = set(past.answered) - before
    assert 0 < len(kept) < len(sent)
    assert kept < set(sent)
    assert not before & set(sent), "what is known is not asked"


def test_a_stop_ends_it_before_the_next_batch() -> None:
    problem, dataset, rows = demo_cases(0)
    memory = Memory()
    found = waysout.find(problem, rows[0], data=dataset, memory=memory, oracle_rows=40)
    past = memory.of(problem, rows[0])
    before = set(past.answered)
    batches: list[int] = []

    class Counted:
        """Counts its batches."""

        name, labels_only = problem.oracle.name, False

        def ask(self, asked: Sequence[Row]) -> Answers:
            batches.append(len(asked))
            return problem.oracle.ask(asked)

    counted = replace(problem, oracle=Counted())
    result, used = settle(counted, rows[0], past, found, MOST, lambda: len(batches) == 3)
    assert (result, len(batches)) == (found, 3)
    assert used == len(set(past.answered) - before) > 0


def test_a_strip_may_find_what_the_search_did_not() -> None:
    problem, _, rows = demo_cases(0)
    for query in rows:
        memory = Memory()
        found = waysout.find(problem, query, method="random", memory=memory, oracle_rows=1)
        if not found.options:
            break
    result, _ = settle(problem, query, memory.of(problem, query), found, MOST)
    assert (found.ways, result.outcome.kind) == ((), OutcomeKind.FOUND)
    news = [{name: new for name, (_, new) in way.changes.items()} for way in result.ways]
    assert news
    assert all(map(Judge(problem, query).is_yes, news))
