"""`find` and `find_many` from outside: plain, in a running loop, asynchronous."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from run_world import (
    PEOPLE,
    SCHEMA,
    Adder,
    Broken,
    Gate,
    Watched,
    about,
    person,
    problem,
    timeless,
)

import waysout
from waysout.domain.budget import Budget
from waysout.domain.metrics import set_metrics
from waysout.domain.oracle import Answers, Goal
from waysout.domain.pick import pick
from waysout.domain.result import OutcomeKind, ResultData
from waysout.domain.rules import Immutable
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import InputError, OracleError, RowError
from waysout.llm.base import Request
from waysout.report.result import Result
from waysout.run.plan import wording
from waysout.search.base import Case, Method, Search
from waysout.search.comp_mcts import CompMCTS
from waysout.search.work import Work
from waysout.store import Store

SMALL: dict[str, Any] = {"calls": 3, "k": 3, "oracle_rows": 30}


def search(**options: Any) -> list[ResultData]:
    """Search for all people, by index."""
    given = {"llm": Watched(), **SMALL, **options}
    table = given.pop("table", None) or problem()
    rows = given.pop("rows", PEOPLE)
    return sorted(waysout.find_many(table, rows, **given), key=lambda r: r.index)


def test_every_way_of_asking_gives_the_same() -> None:
    plain = waysout.find(problem(), PEOPLE[1], llm=Watched(), **SMALL)
    assert plain.outcome.kind == OutcomeKind.FOUND

    async def notebook() -> ResultData:
        return waysout.find(problem(), PEOPLE[1], llm=Watched(), **SMALL)

    async def awaited() -> ResultData:
        return await waysout.afind(problem(), PEOPLE[1], llm=Watched(), **SMALL)

    async def streamed() -> ResultData:
        found = waysout.afind_many(problem(), [PEOPLE[1]], llm=Watched(), **SMALL)
        [result] = [result async for result in found]
        return result

    for ask in (notebook, awaited, streamed):
        assert timeless(asyncio.run(ask())) == timeless(plain)


def test_a_result_has_ways_and_a_run_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    result = waysout.find(problem(), PEOPLE[1], llm=Watched(), run=path, **SMALL)
    assert result.ways
    assert all(way.stable for way in result.ways)
    assert result.pick(3) == pick(result, 3)
    assert all(way in result.ways for way in result.pick(3))
    with Store.read(path) as store:
        kept = store.finished(0)
    assert kept is not None
    assert kept.ways == result.ways


def test_many_people_come_to_what_each_comes_to_alone() -> None:
    together = search()
    assert [r.index for r in together] == list(range(len(PEOPLE)))
    for result, row in zip(together, PEOPLE, strict=True):
        alone = waysout.find(problem(), row, llm=Watched(), **SMALL)
        assert (result.options, result.metrics, result.outcome) == (
            alone.options, alone.metrics, alone.outcome,
        )  # fmt: skip


@pytest.mark.parametrize(
    "row",
    [
        PEOPLE[1],
        list(PEOPLE[1]),
        person(PEOPLE[1]),
        {**person(PEOPLE[1]), "a": "1", "another": 3},
        pd.Series(person(PEOPLE[1])),
        pd.DataFrame([person(PEOPLE[1])]).iloc[0],
        next(pd.DataFrame([person(PEOPLE[1])]).itertuples(index=False)),
    ],
    ids=["tuple", "list", "mapping", "texts", "series", "frame-row", "named-tuple"],
)
def test_a_row_in_any_form(row: Any) -> None:
    result = waysout.find(problem(), row, llm=Watched(), **SMALL)
    assert result.query == person(PEOPLE[1])
    assert result.options


def test_a_frame_is_its_rows() -> None:
    frame = pd.DataFrame([person(row) for row in PEOPLE])
    assert list(map(timeless, search(rows=frame))) == list(map(timeless, search()))


def test_a_slow_person_holds_nobody_back() -> None:
    gate = Gate()

    async def hold(request: Request, attempt: int) -> None:
        if about(request) == 0:
            await gate(request, attempt)

    found = waysout.find_many(problem(), PEOPLE, llm=Watched(hold), **SMALL)
    others = [next(found).index for _ in PEOPLE[1:]]
    assert sorted(others) == list(range(1, len(PEOPLE)))
    gate.opened.set()
    assert [result.index for result in found] == [0]


def test_people_are_taken_as_there_is_room_for_them() -> None:
    taken = 0

    def endless() -> Iterator[Row]:
        nonlocal taken
        while True:
            yield PEOPLE[taken % len(PEOPLE)]
            taken += 1

    given: dict[str, Any] = {"llm": Watched(parallel=2), **SMALL}
    found = waysout.find_many(problem(), endless(), **given)
    assert taken == 0
    for received in range(1, 30):
        next(found)
        assert taken <= received + 8
    found.close()  # type: ignore[attr-defined]


def test_requests_in_flight_are_bounded() -> None:
    async def breathe(request: Request, attempt: int) -> None:
        await asyncio.sleep(0.001)

    llm = Watched(breathe)
    search(llm=llm, in_flight=3)
    assert llm.most_at_once == 3
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="in_flight"):
            search(in_flight=wrong)


def test_the_rows_of_many_people_share_batches() -> None:
    oracle, llm = Adder(), Watched()
    results = search(table=problem(oracle=oracle), llm=llm, method="comp-mcts")
    asked = sum(r.ledger.oracle_rows for r in results)
    assert asked > 60
    # One by one it would be a batch for each query, each reply and each person's second look.
    assert len(oracle.batches) < llm.requests
    assert oracle.rows <= asked + sum(r.ledger.setup_rows for r in results)


def test_the_oracle_is_never_asked_twice_at_once() -> None:
    busy, clashes = threading.Lock(), list[int]()

    class Alone(Adder):
        def ask(self, rows: Any) -> Answers:
            clashes.extend([len(rows)] * busy.locked())
            with busy:
                threading.Event().wait(0.0005)
                return super().ask(rows)

    assert any(r.options for r in search(table=problem(oracle=Alone())))
    assert clashes == []


# What goes wrong --------------------------------------------------------------------------------


def test_a_row_that_cannot_be_read_fails_alone() -> None:
    bad = [{"a": 1}, {**person(PEOPLE[0]), "c": "q"}, None, {**person(PEOPLE[0]), "a": np.nan}]
    results = search(rows=[bad[0], *PEOPLE[:2], *bad[1:]])
    assert [r.outcome.kind == OutcomeKind.FAILED for r in results] == [1, 0, 0, 1, 1, 1]
    assert "row 3, column 'c'" in results[3].outcome.reason
    assert results[3].query == {"a": "0", "b": "0", "c": "q"}
    for result in results:
        assert ResultData.from_json(result.to_json()) == ResultData(**vars(result))
        assert set(result.metrics) == set(results[1].metrics)
    with pytest.raises(RowError, match="column 'b'"):
        waysout.find(problem(), {"a": 1}, llm=Watched())


@pytest.mark.parametrize("how", ["raises", "nan", "shape"])
def test_an_oracle_that_the_probe_sees_through_is_refused(how: str) -> None:
    llm = Watched()
    with pytest.raises(OracleError):
        search(table=problem(oracle=Broken(how, lambda row: True)), llm=llm)
    assert llm.requests == 0


@pytest.mark.parametrize("how", ["raises", "nan", "shape"])
def test_an_oracle_that_breaks_later_fails_whom_it_concerns(how: str) -> None:
    broken = Broken(how, lambda row: row[1] == 2)  # persons 8 to 11 begin there
    rows = [*PEOPLE[:3], *PEOPLE[8:10]]
    results = search(table=problem(oracle=broken), rows=rows, method="comp-mcts")
    failed = {r.index for r in results if r.outcome.kind == OutcomeKind.FAILED}
    assert {3, 4} <= failed
    assert all(results[i].ledger.llm_calls == 0 for i in (3, 4))
    sound = search(rows=PEOPLE[:3], method="comp-mcts")
    for result in sound:
        if result.index not in failed:
            assert timeless(results[result.index]) == timeless(result)
    assert failed != {0, 1, 2, 3, 4}


def test_a_wavering_oracle_is_flagged() -> None:
    class Wavering(Adder):
        """Says no to whom it has said yes before."""

        def __init__(self) -> None:
            super().__init__()
            self.met: set[Row] = set()

        def ask(self, rows: Any) -> Answers:
            sound = super().ask(rows)
            again = np.array([row in self.met and row[0] > 12 for row in rows], dtype=bool)
            self.met.update(rows)
            return Answers(np.where(again, 0.1, sound.probability), sound.decision & ~again)

    result = waysout.find(problem(oracle=Wavering()), PEOPLE[0], llm=Watched(), calls=8, k=5)
    # As many as set-up has rows for; one row, the query, was all there was to try the model on.
    again = [o for o in result.options if o.stable is not None]
    assert {o.stable for o in again} == {True, False}
    assert all(o.stable == (o.row["a"] <= 12) for o in again)  # type: ignore[operator]
    found = {tuple(o.row.values()): o.stable for o in (*result.ways, *result.options)}
    assert sum(stable is not None for stable in found.values()) == Budget().again_rows


def test_who_needs_no_search_costs_no_call() -> None:
    llm = Watched()
    fixed = problem(Immutable(features=["a", "b", "c"]))
    [approved] = search(rows=[(9, 9, "x")], llm=llm)
    [stuck] = search(rows=PEOPLE[:1], table=fixed, llm=llm)
    [risen] = search(rows=[(9, 9, "x")], table=problem(goal=Goal(rise=0.2)), llm=llm)
    kinds = [r.outcome.kind for r in (approved, stuck, risen)]
    assert kinds == ["already-approved", "infeasible", "infeasible"]
    assert stuck.outcome.binding
    assert llm.requests == 0
    for result in (approved, stuck, risen):
        assert (result.ledger.llm_calls, result.ledger.oracle_rows) == (0, 0)
        assert result.metrics["unique_valid"] == 0
        assert result.settings["query_probability"] is not None


def test_nothing_found_is_told_with_how_near_it_came() -> None:
    class Strict(Adder):
        def ask(self, rows: Any) -> Answers:
            usual = super().ask(rows)
            return Answers(usual.probability * 0.4, np.zeros(len(rows), dtype=np.bool_))

    [result] = search(rows=PEOPLE[:1], table=problem(oracle=Strict()))
    assert result.outcome.kind == OutcomeKind.BUDGET_SPENT
    assert result.options == ()
    best = max(miss.probability for miss in result.near_misses)
    assert result.outcome.best_probability == best > 0


def test_whoever_has_ways_out_is_shown_no_blind_alleys() -> None:
    results = search(calls=8, k=5)
    both = [r for r in results if 0 < (r.metrics["validity_pct"] or 0) < 100]
    assert both
    assert all(r.near_misses == () for r in both)


@pytest.mark.parametrize("goal", [Goal(at_least=0.8), Goal(at_least=0.5, at_most=0.7)], ids=str)
def test_a_goal_in_probability_is_honoured(goal: Goal) -> None:
    [result] = search(rows=PEOPLE[:1], table=problem(goal=goal), calls=10, k=5)
    assert result.options
    low, high = goal.at_least or 0.0, goal.at_most or 1.0
    assert all(low <= o.probability <= high for o in result.options)
    assert all(o.stable is not False for o in result.options)


def test_who_has_a_yes_is_brought_to_the_next_chance_and_told_so() -> None:
    table = problem(goal=Goal(safer=(0.4, 0.7, 0.9)))
    result = waysout.find(table, (6, 5, "x"), oracle_rows=60)
    assert result.settings["goal"] == {
        "at_least": 0.7, "at_most": None, "rise": None, "safer": (0.9,),
    }  # fmt: skip
    assert result.ways
    assert all(way.probability >= 0.7 for way in result.ways)
    assert "A chance of at least 70\u00a0% is reached if" in str(result)
    assert "The model says yes" not in str(result)
    refused = waysout.find(table, (1, 2, "x"), oracle_rows=60)
    assert refused.settings["goal"]["at_least"] is None
    assert all(way.probability >= 0.5 for way in refused.ways)


def test_a_rise_is_measured_from_each_person() -> None:
    results = search(table=problem(goal=Goal(rise=0.3)), calls=6, k=5)
    assert sum(len(r.options) for r in results) > len(PEOPLE)
    for result in results:
        begin = result.settings["query_probability"]
        assert all(o.probability >= begin + 0.3 for o in result.options)
    assert any(o.probability < 0.5 for r in results for o in r.options)


def test_labels_alone_will_do() -> None:
    class Labels(Adder):
        labels_only = True

        def ask(self, rows: Any) -> Answers:
            decision = super().ask(rows).decision
            return Answers(decision.astype(np.float64), decision)

    [result] = search(rows=PEOPLE[:1], table=problem(oracle=Labels()))
    assert result.options
    assert result.settings["labels_only"] is True
    assert {o.probability for o in result.options} == {1.0}


# What a result says -----------------------------------------------------------------------------

CONTRACT = {
    "ledger": {"llm_calls", "attempts", "tokens_in", "tokens_out", "oracle_rows", "setup_rows",
               "seconds"},
    "metrics": {"unique_valid", "valid", "generated", "pruned", "prune_pct", "validity_pct",
                "proximity", "sparsity", "novelty", "lever_sets", "calls_saved"},
    "settings": {"method", "method_settings", "llm", "k", "seed", "budget"},
}  # fmt: skip


def test_the_json_holds_what_is_promised() -> None:
    [result] = search(rows=PEOPLE[:1])
    table = json.loads(result.to_json())
    assert {"outcome", "query", "options", *CONTRACT} <= set(table)
    for part, names in CONTRACT.items():
        assert names <= set(table[part])
    wanted = {"row", "changes", "probability", "proximity", "sparsity", "key", "reasons"}
    for option in table["options"]:
        assert wanted <= set(option)
        for name, (before, after) in option["changes"].items():
            assert (before, after) == (table["query"][name], option["row"][name])
    assert table["metrics"]["unique_valid"] == len(table["options"]) > 0
    assert table["settings"]["llm"] == "simulated:7"
    assert table["settings"]["budget"]["llm_calls"] == 3
    assert waysout.Result.from_json(result.to_json()).to_json() == result.to_json()


def test_known_rows_tell_how_plausible_options_are() -> None:
    rows = [(a, b, "x") for a in range(0, 20, 2) for b in range(0, 20, 3)]
    known = SimpleNamespace(rows=rows, labels=[a + b > 26 for a, b, _ in rows])
    # A method that learns nothing from known rows finds the same with them.
    [with_data] = search(rows=PEOPLE[:1], data=known, method="recombine")
    [without] = search(rows=PEOPLE[:1], method="recombine")
    near = [row for row, yes in zip(rows, known.labels, strict=True) if yes]
    assert 0 < len(near) < len(rows)
    found = [problem().row(option.row) for option in with_data.options]
    wanted = set_metrics(problem(), PEOPLE[0], found, SCHEMA.encode(near))["plausibility"]
    assert with_data.metrics["plausibility"] == wanted is not None
    assert wanted != set_metrics(problem(), PEOPLE[0], found, SCHEMA.encode(rows))["plausibility"]
    assert without.metrics["plausibility"] is None
    assert [o.key for o in with_data.options] == [o.key for o in without.options]
    assert {o.stable for o in with_data.options} == {None}  # the known rows vouch for the model
    assert with_data.ledger.setup_rows > without.ledger.setup_rows


# What is given wrongly, and methods of one's own ------------------------------------------------


def test_wrong_options_are_named_before_anything_happens() -> None:
    with pytest.raises(InputError, match="did you mean 'calls'"):
        waysout.find_many(problem(), PEOPLE, cals=3)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="unknown method 'cmop'"):
        search(method="cmop")
    with pytest.raises(InputError, match="outcome is known"):
        search(method="nearest")
    with pytest.raises(InputError, match="settings"):
        search(method=CompMCTS(), settings={"depth": 2})
    with pytest.raises(InputError, match="k is a whole number"):
        search(k=0)


def test_a_method_without_an_llm_connects_to_none() -> None:
    results = search(method="random", llm="openai:nothing@http://127.0.0.1:9", oracle_rows=20)
    assert {r.ledger.llm_calls for r in results} == {0}
    assert {r.settings["llm"] for r in results} == {None}
    assert {r.ledger.oracle_rows for r in results} == {20}


class _Idle(Search):
    def _next(self) -> Work | None:
        return None

    def _on_answers(self, context: Any, rows: Any, answers: Any) -> None:
        raise AssertionError


class Idler(Method):
    """Neither asks nor ends."""

    name = "idler"

    def start(self, case: Case) -> Search:
        return _Idle(case)


def test_a_method_that_neither_asks_nor_ends_is_named() -> None:
    with pytest.raises(InputError, match="'idler' neither asks nor ends"):
        search(method=Idler())


def test_find_within_find() -> None:
    """A generator of rows, or a callback, may call us itself."""
    inner: list[ResultData] = []

    def people() -> Iterator[Row]:
        for row in PEOPLE[:2]:
            inner.append(waysout.find(problem(), row, method="random", oracle_rows=5))
            yield row

    assert len(search(rows=people())) == 2
    assert len(inner) == 2


SCRIPT = """
import multiprocessing, sys
sys.path.insert(0, {folder!r})
import waysout
from run_world import PEOPLE, problem

def one(row):
    return len(waysout.find(problem(), row, method="random", oracle_rows=50).options)

def all_of_them():
    return [one(row) for row in PEOPLE[:3]]

if __name__ == "__main__":
    {body}
"""


def script(body: str) -> str:
    code = SCRIPT.format(folder=str(Path(__file__).parent), body=body)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="nothing forks there")
def test_a_forked_process_has_a_loop_of_its_own() -> None:
    out = script(
        "here = all_of_them()\n"
        "    with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "        print(pool.map(one, PEOPLE[:3]) == here)"
    )
    assert out.strip() == "True"


def test_a_script_may_end_in_the_middle() -> None:
    out = script(
        "import time\n"
        "    found = waysout.find_many(problem(), PEOPLE * 50, method='random', oracle_rows=50)\n"
        "    next(found)\n"
        "    began = time.monotonic()\n"
        "    import atexit; atexit.register(lambda: print('over'))"
    )
    assert out.strip() == "over"


def test_a_result_brings_the_card_s_words_along() -> None:
    schema = Schema(
        (
            Feature("pay", "integer", range=(0, 20), unit="euros", about="what is earned"),
            Feature("home", "boolean", levels=("rents", "owns"), words={"owns": "has a house"}),
            Feature("plain", "boolean"),
            Feature("insured", "boolean", levels=(0, 1)),
            Feature("branch", "category", levels=(10001, 10002)),
            Feature("rate", "number", decimals=0),
        )
    )
    assert wording(schema) == {
        "insured": {"words": {"0": "no", "1": "yes"}, "true": "1", "coded": True},
        "branch": {"coded": True},
        "rate": {"decimals": 0},
        "pay": {"unit": "euros", "about": "what is earned"},
        "home": {"words": {"owns": "has a house"}, "true": "owns"},
    }
    (result,) = search(rows=PEOPLE[:1])
    assert result.settings["wording"] == {}


def test_a_result_is_drawn_as_it_comes() -> None:
    pytest.importorskip("matplotlib")
    (result,) = search(rows=PEOPLE[:1])
    assert isinstance(result, Result)
    assert result.options
    assert result.plot().get_xlabel()
