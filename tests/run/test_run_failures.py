"""What ends a run, or one person's part of it: nothing found is lost, and nothing is hushed up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from run_world import PEOPLE, Adder, Gate, Watched, no_waiting, problem, timeless

import waysout
from waysout.domain.budget import Budget, Ledger
from waysout.domain.oracle import Answers
from waysout.domain.pick import pick
from waysout.domain.result import OutcomeKind, ResultData
from waysout.domain.rules import Custom
from waysout.domain.schema import Row
from waysout.errors import (
    BudgetSpent,
    IntegrityError,
    LLMError,
    LLMFailure,
    LLMUnreachable,
    OracleError,
    OracleTimeout,
)
from waysout.llm.base import Request
from waysout.oracles.cache import CachedOracle
from waysout.run import options as options_module
from waysout.run.context import CALLS_APART, OracleBatcher, Stop
from waysout.run.progress import Progress
from waysout.store import Store

SMALL: dict[str, Any] = {"calls": 4, "k": 3, "oracle_rows": 40}


@pytest.fixture(autouse=True)
def _at_once() -> Iterator[None]:
    with no_waiting():
        yield


def search(rows: Any = PEOPLE[:3], **given: Any) -> list[ResultData]:
    options = {"llm": Watched(), **SMALL, **given}
    table = options.pop("table", None) or problem()
    return sorted(waysout.find_many(table, rows, **options), key=lambda r: r.index)


def until_raised(rows: Any, error: type[Exception], **given: Any) -> list[ResultData]:
    """Return what came before an error, which must come."""
    found: list[ResultData] = []
    options = {"llm": Watched(), **SMALL, **given}
    table = options.pop("table", None) or problem()
    with pytest.raises(error):
        found.extend(waysout.find_many(table, rows, **options))
    return sorted(found, key=lambda r: r.index)


def told(results: list[ResultData]) -> list[dict[str, Any]]:
    """Return results less what another sitting adds."""
    plain = [timeless(r, attempts=False) for r in results]
    return [{**table, "ledger": {**table["ledger"], "setup_rows": 0}} for table in plain]


def failing(after: int, error: Exception) -> Watched:
    """Return an LLM that answers so many times."""
    left = [after]

    async def before(request: Request, attempt: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise error

    return Watched(before)


# The LLM ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (LLMError("the key is wrong"), LLMError),
        (LLMFailure("connection refused"), LLMUnreachable),
        (RuntimeError("a bug of the backend"), RuntimeError),
    ],
    ids=["set-up", "gone", "bug"],
)
def test_what_ends_a_run_comes_after_all_who_had_begun(
    error: Exception, raised: type[Exception], tmp_path: Path
) -> None:
    path = tmp_path / "run.db"
    found = until_raised(PEOPLE[:3], raised, llm=failing(5, error), run=path)
    assert [r.index for r in found] == [0, 1, 2]
    assert {r.outcome.kind for r in found} == {OutcomeKind.INTERRUPTED}
    assert all(str(error) in r.outcome.reason for r in found)
    assert sum(r.ledger.llm_calls for r in found) == 5
    with Store.read(path) as store:
        assert [timeless(r) for r in store.results()] == list(map(timeless, found))
        assert store.summary().status == "interrupted"
        [reason] = [e.detail["reason"] for e in store.events() if e.kind == "stopped"]
        assert str(error) in reason
    assert told(search(run=path)) == told(search())


@pytest.mark.parametrize("answered", [0, 2])
def test_one_person_has_a_result_once_the_llm_has_answered(answered: int) -> None:
    def plainly(llm: Watched) -> ResultData:
        return waysout.find(problem(), PEOPLE[0], llm=llm, **SMALL)

    def awaited(llm: Watched) -> ResultData:
        return asyncio.run(waysout.afind(problem(), PEOPLE[0], llm=llm, **SMALL))

    for ask in (plainly, awaited):
        llm = failing(answered, LLMError("the key is wrong"))
        if not answered:
            with pytest.raises(LLMError, match="the key is wrong"):
                ask(llm)
            continue
        result = ask(llm)
        assert (result.outcome.kind, result.outcome.reason) == ("interrupted", "the key is wrong")
        assert result.ledger.llm_calls == answered


def test_a_wish_to_stop_raises_nothing() -> None:
    stop = Stop()

    async def both(request: Request, attempt: int) -> None:
        stop("enough")
        await asyncio.sleep(0.01)
        raise LLMError("too late")

    assert {r.outcome.reason for r in search(llm=Watched(both), stop=stop)} == {"enough"}


# Rows -------------------------------------------------------------------------------------------


def test_rows_that_end_in_an_error_lose_nobody(tmp_path: Path) -> None:
    def people() -> Iterator[Row]:
        yield from PEOPLE[:5]
        raise OSError("the table is gone")

    path = tmp_path / "run.db"
    found = until_raised(people(), OSError, run=path)
    assert list(map(timeless, found)) == list(map(timeless, search(PEOPLE[:5])))
    with Store.read(path) as store:
        assert store.summary().finished == 5
        assert store.summary().status == "interrupted"  # nobody knows how many there are


def test_a_run_is_finished_when_all_its_people_are(tmp_path: Path) -> None:
    def status(name: str, rows: Any, most: int) -> str:
        given: dict[str, Any] = {"method": "random", "oracle_rows": 3, "run": tmp_path / name}
        found = waysout.find_many(problem(), rows, **given)
        for _ in range(most):
            next(found, None)
        found.close()  # type: ignore[attr-defined]
        with Store.read(tmp_path / name) as store:
            return store.summary().status

    approved = [(9, 9, "x")] * 40  # done as soon as they are begun
    assert status("list", approved, 1) == "interrupted"
    assert status("list", approved, 41) == "finished"
    assert status("generator", iter(approved), 5) == "interrupted"
    assert status("generator", iter(approved), 41) == "finished"
    assert status("list", [*approved, *approved], 41) == "interrupted"


def test_rows_that_cannot_be_read_are_on_file_and_tried_again(tmp_path: Path) -> None:
    path, rows = tmp_path / "run.db", [{"a": "old"}, PEOPLE[0], None]
    for _ in range(2):
        results = search(rows, run=path)
        assert [str(r.outcome.kind) for r in results] == ["failed", "found", "failed"]
        with Store.read(path) as store:
            assert [timeless(r) for r in store.results()] == list(map(timeless, results))
            assert dict(store.queries())[0] == {"a": "old"}
            found = store.summary()
        assert (found.queries, found.finished, found.open) == (3, 1, 0)
        assert found.status == "interrupted"


def test_with_a_deadline_nobody_begins_who_would_only_wait() -> None:
    taken, gate = 0, Gate()

    def people() -> Iterator[Row]:
        nonlocal taken
        for row in PEOPLE:
            taken += 1
            yield row

    def watch(_: Progress) -> None:
        at_once.append(taken)

    at_once: list[int] = []
    gate.opened.set()
    given: dict[str, Any] = {"in_flight": 2, "progress": watch, **SMALL}
    found = waysout.find_many(problem(), people(), llm=Watched(gate), seconds=1000, **given)
    for received, _ in enumerate(found):
        assert taken <= received + 2
    assert at_once[0] == 2


# The oracle -------------------------------------------------------------------------------------


class Moody(Adder):
    """Falls over once, when it is asked for the n-th time."""

    def __init__(self, falls: int) -> None:
        super().__init__()
        self.falls = falls

    def ask(self, rows: Any) -> Answers:
        if len(self.batches) == self.falls:
            self.falls = -1
            self.batches.append([])
            raise ConnectionError("the model's server is busy")
        return super().ask(rows)


@pytest.mark.parametrize("falls", [3, 4, 6])
def test_a_failure_of_the_model_is_not_the_last_word(falls: int, tmp_path: Path) -> None:
    path, moody = tmp_path / "run.db", problem(oracle=Moody(falls))
    [failed] = search(PEOPLE[:1], run=path, table=moody)
    assert failed.outcome.kind == OutcomeKind.FAILED
    assert "busy" in failed.outcome.reason
    with Store.read(path) as store:
        assert store.summary().status == "interrupted"
    llm = Watched()
    [result] = search(PEOPLE[:1], run=path, llm=llm)
    assert told([result]) == told(search(PEOPLE[:1]))
    assert llm.requests == result.ledger.llm_calls - failed.ledger.llm_calls


def test_a_rule_that_falls_over_concerns_whom_it_meets() -> None:
    def check(query: Any, row: Any) -> bool:
        if query["a"] == 1:
            raise KeyError("a")
        return True

    results = search(table=problem(Custom(call=check)))
    assert [str(r.outcome.kind) for r in results] == ["found", "failed", "found"]


def test_every_row_the_model_is_asked_stands_in_a_ledger(tmp_path: Path) -> None:
    """Whoever is scored first pays for the probe, once; a finished run asks nothing at all."""
    oracle, path = Adder(), tmp_path / "run.db"
    rows = [{"a": "old"}, *PEOPLE[:2]]
    given: dict[str, Any] = {"table": problem(oracle=oracle), "run": path, "method": "random",
                             "oracle_rows": 3, "settings": {"batch": 1}}  # fmt: skip
    results = search(rows, **given)
    setup = [r.ledger.setup_rows for r in results]
    assert setup == [0, 3 + len(results[1].options), 1 + len(results[2].options)]
    with Store.read(path) as store:
        assert [(e.index, e.detail["rows"]) for e in store.events() if e.kind == "probed"] == [
            (1, 2)
        ]
    again = Adder()
    assert list(map(timeless, search(rows, **{**given, "table": problem(oracle=again)}))) == list(
        map(timeless, results)
    )
    assert again.batches == []


def interrupted(path: Path, oracle: Adder | None = None) -> list[ResultData]:
    stop, answers = Stop(), [0]

    def watch(_: Progress) -> None:
        answers[0] += 1
        if answers[0] == 5:
            stop("later")

    table = problem(oracle=oracle or Adder())
    return search(run=path, stop=stop, progress=watch, table=table)


def test_going_on_costs_one_row_each_and_no_second_probe(tmp_path: Path) -> None:
    path, oracle = tmp_path / "run.db", Adder()
    before = interrupted(path)
    assert {r.outcome.kind for r in before} == {OutcomeKind.INTERRUPTED}
    results, whole = search(run=path, table=problem(oracle=oracle)), search()
    extra = [r.ledger.setup_rows - w.ledger.setup_rows for r, w in zip(results, whole, strict=True)]
    assert extra == [1, 1, 1]
    assert set(oracle.batches[0]) <= set(PEOPLE[:3])
    *_, another = search(PEOPLE[:4], run=path)
    assert another.ledger.setup_rows == 1 + Budget().again_rows < 1 + len(another.options)


class Inverted(Adder):
    def ask(self, rows: Any) -> Answers:
        usual = super().ask(rows)
        return Answers(1 - usual.probability, ~usual.decision)


def test_another_model_is_noticed(tmp_path: Path) -> None:
    path, llm = tmp_path / "run.db", Watched()
    interrupted(path)
    assert until_raised(PEOPLE[:3], IntegrityError, run=path, llm=llm,
                        table=problem(oracle=Inverted())) == []  # fmt: skip
    assert llm.requests == 0
    assert told(search(run=path)) == told(search())  # and nothing is spoilt


def test_a_model_that_wavers_anyway_may_go_on(tmp_path: Path) -> None:
    class Wavering(Adder):
        def ask(self, rows: Any) -> Answers:
            usual = super().ask(rows)
            drift = 0.9 * usual.probability + 0.001 * min(len(self.batches), 90)
            return Answers(drift, usual.decision)

    path = tmp_path / "run.db"
    assert {r.outcome.kind for r in interrupted(path, Wavering())} == {OutcomeKind.INTERRUPTED}
    later = Wavering()
    later.batches = [[]] * 50
    kinds = {r.outcome.kind for r in search(run=path, table=problem(oracle=later))}
    assert OutcomeKind.INTERRUPTED not in kinds


def test_a_refused_oracle_is_refused_for_everybody(tmp_path: Path) -> None:
    class Refused(Adder):
        def ask(self, rows: Any) -> Answers:
            raise ValueError("no")

    given: dict[str, Any] = {"table": problem(oracle=Refused()), "run": tmp_path / "run.db"}
    assert until_raised(PEOPLE, OracleError, **given) == []
    assert told(search(run=tmp_path / "run.db")) == told(search())


def test_what_is_not_asked_again_does_not_say_how_firm_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    partial = interrupted(tmp_path / "run.db")
    assert {o.stable for r in partial for o in (*r.options, *r.ways)} == {None}
    assert any(r.ways for r in partial)

    def scarce(**given: Any) -> Budget:
        return Budget(**given, setup_rows=15)  # of 3 for each person, two ask again

    monkeypatch.setattr(options_module, "Budget", scarce)
    [result] = search(PEOPLE[:1], calls=8, method="recombine")
    first = pick(replace(result, ways=[replace(way, stable=None) for way in result.ways]), 3)
    read = {way.key: way.stable for way in result.ways}
    assert [read[way.key] for way in first] == [True, True, None]
    again = [way.row for way in first[:2]]
    assert {o.stable for o in result.options if o.row not in again} == {None}


# The ledger -------------------------------------------------------------------------------------


def test_no_sitting_takes_anything_back(tmp_path: Path) -> None:
    path, price = tmp_path / "run.db", "100/200"
    given: dict[str, Any] = {"rows": PEOPLE[:1], "run": path, "price": price}
    asked = 0

    async def slowly_gone(request: Request, attempt: int) -> None:
        nonlocal asked
        asked += 1
        if asked > 2:
            await asyncio.sleep(0.1)
            raise LLMFailure("connection refused")

    [partial] = until_raised(error=LLMUnreachable, llm=Watched(slowly_gone), **given)
    assert (partial.ledger.llm_calls, partial.ledger.attempts) == (2, 6)
    llm = Watched()
    [result] = search(llm=llm, **given)
    [whole] = search(PEOPLE[:1], price=price)
    assert result.ledger.attempts == 6 + llm.requests
    assert result.ledger.seconds >= partial.ledger.seconds >= 0.4
    assert result.ledger.money == pytest.approx(whole.ledger.money)
    assert whole.ledger.money > 0


# The batcher --------------------------------------------------------------------------------------


def test_batches_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waysout.oracles.pace.FIRST_ROWS", 10)
    oracle = Adder()

    async def ask() -> list[Answers]:
        batcher = OracleBatcher(CachedOracle(oracle))
        parts = [PEOPLE[:4], PEOPLE[4:8], PEOPLE[8:], PEOPLE]
        return list(await asyncio.gather(*(batcher.ask(part, fresh=True) for part in parts)))

    answers = asyncio.run(ask())
    assert [len(batch) for batch in oracle.batches] == [8, 4 + 10, 2]
    for part, answer in zip((PEOPLE[:4], PEOPLE[4:8], PEOPLE[8:], PEOPLE), answers, strict=True):
        np.testing.assert_array_equal(answer.probability, Adder().ask(part).probability)


def test_a_model_that_is_merely_slow_is_asked_each_row_once() -> None:
    """200 rows in one call would take 2 seconds, and may take 1.5."""

    class Slow(Adder):
        row_seconds = 0.5

        def __init__(self) -> None:
            super().__init__()
            self.times: Counter[Row] = Counter()

        def ask(self, rows: Sequence[Row]) -> Answers:
            self.times.update(rows)
            time.sleep(0.01 * len(rows))
            return super().ask(rows)

    oracle = Slow()
    people = [[(a, b, "x") for b in range(10)] for a in range(20)]
    ledgers = [Ledger(Budget()) for _ in people]

    async def ask_all() -> list[Answers]:
        batcher = OracleBatcher(CachedOracle(oracle))
        asked = zip(people, ledgers, strict=True)
        return await asyncio.gather(*(batcher.ask(rows, ledger) for rows, ledger in asked))

    answers = asyncio.run(ask_all())
    assert [len(answer.probability) for answer in answers] == [10] * 20
    assert set(oracle.times.values()) == {1}
    assert len(oracle.times) == 200


def test_a_deadline_passes_while_the_model_is_slow_for_others() -> None:
    class Slow(Adder):
        def ask(self, rows: Any) -> Answers:
            time.sleep(0.3)
            return super().ask(rows)

    async def ask() -> list[Any]:
        batcher = OracleBatcher(CachedOracle(Slow()))
        short, long = (Ledger(Budget(seconds=seconds)) for seconds in (0.1, 9.0))
        asked = [batcher.ask(PEOPLE[:1], short), batcher.ask(PEOPLE[1:2], long)]
        first = asyncio.gather(*asked, return_exceptions=True)
        await asyncio.sleep(0.05)
        # Its call begins when the first has ended, which is too late; slow is no hang.
        later = batcher.ask(PEOPLE[2:3], Ledger(Budget(seconds=0.1)))
        return [*await first, *await asyncio.gather(later, return_exceptions=True)]

    first, second, later = asyncio.run(ask())
    # The call had others in it: whoever is in time for its end has its answer.
    assert (type(first), type(second), type(later)) == (Answers, Answers, BudgetSpent)
    assert "0.1 seconds" in str(later)


def test_time_that_is_given_back_while_a_search_waits_is_its_own() -> None:
    class Slow(Adder):
        def ask(self, rows: Any) -> Answers:
            time.sleep(0.3)
            return super().ask(rows)

    async def ask() -> Answers:
        ledger = Ledger(Budget(seconds=0.1))
        asked = asyncio.create_task(OracleBatcher(CachedOracle(Slow())).ask(PEOPLE[:1], ledger))
        await asyncio.sleep(0)  # it waits, with a timer of 0.1 s
        ledger.return_seconds(60.0)
        return await asked

    np.testing.assert_array_equal(
        asyncio.run(ask()).probability, Adder().ask(PEOPLE[:1]).probability
    )


# A model in trouble ------------------------------------------------------------------------------


class Panic(BaseException):
    """As Rust libraries raise through pyo3."""


class Troubled(Adder):
    """Goes wrong on the very row of one person: hangs until a test ends, or raises anything."""

    row_seconds = 0.5

    def __init__(self, row: Row, trouble: BaseException | threading.Event) -> None:
        super().__init__()
        self.row, self.trouble = row, trouble

    def ask(self, rows: Any) -> Answers:
        if self.row in rows:
            if isinstance(self.trouble, BaseException):
                raise self.trouble
            self.trouble.wait()
        return super().ask(rows)


@pytest.mark.parametrize(
    "trouble",
    [Panic("at src/lib.rs:7"), SystemExit(3), KeyboardInterrupt(), threading.Event()],
    ids=["panic", "exit", "interrupt", "hang"],
)
def test_a_row_that_panics_exits_or_hangs_fails_that_person_alone(trouble: Any) -> None:
    rows, options = PEOPLE[:4], {"llm": None, "calls": 0}
    try:
        found = search(rows, table=problem(oracle=Troubled(rows[2], trouble)), **options)
    finally:
        if isinstance(trouble, threading.Event):
            trouble.set()
    kinds = [result.outcome.kind for result in found]
    assert kinds.count(OutcomeKind.FAILED) == 1
    assert kinds[2] is OutcomeKind.FAILED
    name = type(trouble).__name__
    said = "did not answer a row within 0.505 s" if name == "Event" else f"adder raised {name}"
    assert said in found[2].outcome.reason
    untroubled = search(rows, **options)
    for i in (0, 1, 3):
        assert timeless(found[i]) == timeless(untroubled[i])


def test_a_row_that_hangs_costs_others_nothing_of_their_time() -> None:
    """Its limit is far longer than a search may take; and the hang is over before others'."""
    options = {"llm": None, "calls": 0, "in_flight": 4}
    rows, end = PEOPLE[:4], threading.Event()
    model = Troubled(rows[2], end)
    model.row_seconds = 60.0
    began = time.monotonic()
    try:
        found = search(rows, table=problem(oracle=model), seconds=4, **options)
    finally:
        end.set()
    assert time.monotonic() - began < 30
    assert found[2].outcome.kind in (OutcomeKind.FAILED, OutcomeKind.BUDGET_SPENT)
    assert not found[2].options
    untroubled = search(rows, seconds=60, **options)
    for i in (0, 1, 3):
        assert found[i].outcome == untroubled[i].outcome
        assert found[i].ways == untroubled[i].ways


def test_a_model_that_hangs_while_it_is_tried_ends_with_the_deadline() -> None:
    hangs = threading.Event()
    slow = Troubled(PEOPLE[0], hangs)
    slow.row_seconds = 60.0
    try:
        with pytest.raises(OracleTimeout, match="give a search more time"):
            search(PEOPLE[:1], table=problem(oracle=slow), llm=None, calls=0, seconds=0.2)
    finally:
        hangs.set()


def test_a_row_of_the_table_that_hangs_while_it_is_tried_harms_nobody() -> None:
    table = [
        (a, b, "xyz"[(a + b) % 3]) for a in (1, 5, 9, 13, 17) for b in (1, 3, 6, 10, 11, 14, 18, 19)
    ]
    known = SimpleNamespace(rows=table, labels=[a + b > 20 for a, b, _ in table])
    end, options = threading.Event(), {"llm": None, "calls": 0, "data": known}
    model = Troubled(table[20], end)
    model.row_seconds = 60.0
    try:
        found = search(PEOPLE[:2], table=problem(oracle=model), seconds=4, **options)
    finally:
        end.set()
    untroubled = search(PEOPLE[:2], seconds=60, **options)
    for one, other in zip(found, untroubled, strict=True):
        assert (one.outcome, one.ways) == (other.outcome, other.ways)
        assert "rows tried have no answer: the model did not answer" in " ".join(one.notes)


def test_after_a_stall_rows_of_several_searches_are_asked_together_again() -> None:
    sizes: list[int] = []
    stall = threading.Event()

    class Stalls(Adder):
        row_seconds = 0.2

        def ask(self, rows: Any) -> Answers:
            sizes.append(len(rows))
            if len(sizes) == 1:
                stall.wait()
            return super().ask(rows)

    async def ask_all() -> None:
        batcher = OracleBatcher(CachedOracle(Stalls()))
        with pytest.raises(OracleTimeout):
            await batcher.ask(PEOPLE[:1])
        stall.set()
        for _ in range(CALLS_APART):
            await batcher.ask(PEOPLE[:1], fresh=True)
        await asyncio.gather(*(batcher.ask([row], fresh=True) for row in PEOPLE[:5]))

    asyncio.run(ask_all())
    assert sizes[-1] == 5


def test_a_callback_that_exits_ends_the_run_and_is_raised() -> None:
    def leave(progress: Progress) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        search(PEOPLE[:1], llm=None, calls=0, progress=leave)
    assert search(PEOPLE[:1], llm=None, calls=0), "the next run goes on as ever"
