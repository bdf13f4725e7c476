"""A run on disk: killed anywhere and gone on with, it comes to what it would have come to."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nursery import METHODS, ROWS, moments, options
from run_world import PEOPLE, Adder, Gate, Watched, no_waiting, problem, timeless

import waysout
from waysout.domain.oracle import Answers, Goal
from waysout.domain.result import OutcomeKind, ResultData
from waysout.domain.rules import Immutable
from waysout.errors import (
    InputError,
    IntegrityError,
    LLMFailure,
    LLMUnreachable,
    UnavailableError,
)
from waysout.llm.base import Request
from waysout.llm.simulated import Simulated
from waysout.run.context import Stop
from waysout.run.progress import Progress
from waysout.search.lats import Lats
from waysout.store import Store

KILLS = 10
SMALL: dict[str, Any] = {"calls": 6, "k": 3, "oracle_rows": 40}


def search(rows: Any = ROWS, **given: Any) -> list[ResultData]:
    given = {"llm": Watched(), **SMALL, **given}
    table = given.pop("table", None) or problem()
    return sorted(waysout.find_many(table, rows, **given), key=lambda r: r.index)


def same(results: list[ResultData]) -> list[dict[str, Any]]:
    """Return what is the same though a run was interrupted: each sitting tries the model anew."""
    plain = [timeless(r, attempts=False) for r in results]
    return [{**table, "ledger": {**table["ledger"], "setup_rows": 0}} for table in plain]


# Killed -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.platform == "win32":
        pytest.skip("nothing forks there")
    folder, here = tmp_path_factory.mktemp("killed"), Path(__file__).parent
    command = [sys.executable, str(here / "nursery.py"), str(folder), str(KILLS)]
    subprocess.run(command, check=True, timeout=60)
    return folder


@pytest.mark.parametrize("method", METHODS)
def test_a_killed_run_goes_on_as_if_nothing_had_been(method: str, killed: Path) -> None:
    whole, midway = search(**options(method, killed / f"{method}-whole.db")), 0
    for i in range(KILLS):
        path = killed / f"{method}-{i}.db"
        before, rows_before = recorded(path)
        midway += 0 < before.total() < sum(r.ledger.llm_calls for r in whole)
        llm, oracle = Watched(), Adder()
        results = search(llm=llm, table=problem(oracle=oracle), **options(method, path))
        assert not set(llm.seen) & set(before)
        paid = [r.ledger for r in results]
        assert before.total() + llm.requests == sum(s.llm_calls for s in paid)
        assert oracle.rows <= sum(s.oracle_rows + s.setup_rows for s in paid) - rows_before
        assert all(r.metrics["evaluated"] == r.ledger.oracle_rows for r in results)
        assert all(s.llm_calls <= 6 and s.oracle_rows <= 18 for s in paid)
        if sent := moments(i):  # those that a kill cut off were sent all the same
            assert sum(s.attempts for s in paid) == sum(sent) + llm.requests
        if method == "one-by-one":  # else which reply comes first is a matter of luck
            assert same(results) == same(whole)
        check_file(path, results)
    assert midway >= KILLS // 2


def recorded(path: Path) -> tuple[Counter[str], int]:
    """Return the keys of the requests whose replies are on file, and how many rows are."""
    if not path.exists():  # killed before it had begun
        return Counter(), 0
    with Store.read(path) as store:
        answers = [a for index, _ in store.queries() for a in store.answers(index)]
    keys = Counter(a.request_key for a in answers if a.kind == "propose")
    return keys, sum(len(a.rows) for a in answers)


def check_file(path: Path, results: list[ResultData]) -> None:
    with Store.read(path) as store:
        store.verify()
        assert store.summary().status == "finished"
        assert [timeless(r) for r in store.results()] == list(map(timeless, results))
        for result in results:
            found = [option.key for option in store.options(result.index)]
            assert found == [option.key for option in result.options]


# Interrupted ------------------------------------------------------------------------------------


def stopping_at(moment: int) -> dict[str, Any]:
    stop, seen = Stop(), Counter[str]()

    def watch(_: Progress) -> None:
        seen["answers"] += 1
        if seen["answers"] == moment:
            stop("that will do")

    return {"stop": stop, "progress": watch}


STOPPED: list[dict[str, Any]] = [
    {"method": "wayfinder"},
    {"method": "recombine"},
    {"method": "recombine", "polish": 9},
    {"method": "comp-mcts"},
    {"method": "lats"},
    {"method": "random", "settings": {"batch": 4}},
    {"method": "random", "settings": {"batch": 4}, "polish": 9},
    {"method": "comp-mcts", "polish": 9},
]


@pytest.mark.parametrize("given", STOPPED, ids=lambda g: f"{g['method']}-{g.get('polish', 0)}")
def test_stopped_after_any_answer_it_goes_on(given: dict[str, Any], tmp_path: Path) -> None:
    whole, stopped = search(**given), 0
    for moment in range(2, 20, 4):
        path = tmp_path / f"{moment}.db"
        llm = Watched()
        partial = search(run=path, llm=llm, **given, **stopping_at(moment))
        stopped += any(r.outcome.kind == OutcomeKind.INTERRUPTED for r in partial)
        with Store.read(path) as store:
            assert store.summary().open == 0
        before, _ = recorded(path)
        assert set(before) == set(llm.replied)  # nothing that was paid for is thrown away
        llm = Watched()
        assert same(search(run=path, llm=llm, **given)) == same(whole)
        assert not set(llm.seen) & set(before)
    assert stopped >= 3


def test_without_calls_it_goes_on_without_an_llm(tmp_path: Path) -> None:
    path, given = tmp_path / "run.db", {"calls": 0, "oracle_rows": 18}
    partial = search(run=path, llm="replay:nowhere.jsonl", **given, **stopping_at(7))
    assert {r.outcome.kind for r in partial} == {OutcomeKind.INTERRUPTED}
    with Store.read(path) as store:
        assert (store.manifest["llm"], store.summary().llm_calls) == (None, 0)
    with pytest.raises(InputError, match=r"llm: None → 'simulated:7'.*llm_calls: 0 → 6"):
        search(run=path, oracle_rows=18)
    llm = Watched()
    assert same(search(run=path, llm=llm, **given)) == same(search(**given))
    assert llm.requests == 0


def test_rows_under_way_when_it_ended_are_paid_for_once(tmp_path: Path) -> None:
    """A reply is filed while another's rows are with the oracle: they are not spent yet."""
    with_oracle, release, stop = threading.Event(), threading.Event(), Stop()

    class Slow(Adder):
        def ask(self, rows: Any) -> Answers:
            self.candidates = [r for r in rows if r not in PEOPLE] or getattr(
                self, "candidates", []
            )
            if len(self.batches) > 4:
                with_oracle.set()
                release.wait(20)
            return super().ask(rows)

    async def third_waits(request: Request, attempt: int) -> None:
        if request.draw == 2:
            await in_thread(with_oracle)

    def watch(progress: Progress) -> None:
        if with_oracle.is_set():
            stop("in the middle")

    given: dict[str, Any] = {"method": Lats(in_flight=2), "run": tmp_path / "run.db"}
    given |= {"rows": PEOPLE[:1], "calls": 8}
    slow = problem(oracle=Slow())
    [partial] = search(table=slow, llm=Watched(third_waits), stop=stop, progress=watch, **given)
    release.set()
    assert partial.outcome.kind == OutcomeKind.INTERRUPTED
    with Store.read(tmp_path / "run.db") as store:
        *_, last = store.answers(0)
        assert last.kind == "propose"
        on_file = sum(len(a.rows) for a in store.answers(0))
    assert partial.ledger.oracle_rows > on_file  # else this test tests nothing
    [result] = search(**given)
    assert result.ledger.oracle_rows == result.metrics["evaluated"]
    assert result.ledger.llm_calls == 8


def test_a_full_disk_between_two_replies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two replies come together: the ledger counts both while the first is filed, and only that."""
    given: dict[str, Any] = {"method": Lats(in_flight=2), "run": tmp_path / "run.db", "calls": 8}
    usual, llm = Store.record, Watched()

    def record(store: Store, index: int, asked: int, *args: Any, **kwargs: Any) -> None:
        if llm.requests >= 3 and recorded(store.path)[0].total() == 2:
            raise UnavailableError("the disk is full")
        usual(store, index, asked, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "record", record)
        with pytest.raises(UnavailableError, match="the disk is full"):
            search(PEOPLE[:1], llm=llm, **given)
    with Store.read(tmp_path / "run.db") as store:
        assert (store.spent(0).llm_calls, store.summary().llm_calls) == (3, 2)
    [result] = search(PEOPLE[:1], **given)
    assert recorded(tmp_path / "run.db")[0].total() == result.ledger.llm_calls == 8
    assert result.metrics["evaluated"] == result.ledger.oracle_rows


def test_gone_on_with_and_stopped_at_once_it_keeps_what_it_had(tmp_path: Path) -> None:
    path, llm, stop = tmp_path / "run.db", Watched(), Stop()
    partial = search(run=path, **stopping_at(17))
    stop("not now")
    first, *others = search(run=path, llm=llm, stop=stop)
    assert llm.requests == 0
    assert others == []
    assert (first.outcome.kind, first.outcome.reason) == (OutcomeKind.INTERRUPTED, "not now")
    assert first.options == partial[0].options != ()


async def in_thread(event: threading.Event) -> None:
    await asyncio.to_thread(event.wait, 20)


def test_an_llm_that_was_gone_comes_back(tmp_path: Path) -> None:
    left = 5

    async def gone(request: Request, attempt: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise LLMFailure("connection refused")

    path = tmp_path / "run.db"
    partial: list[ResultData] = []
    with no_waiting(), pytest.raises(LLMUnreachable):
        partial.extend(waysout.find_many(problem(), ROWS, llm=Watched(gone), run=path, **SMALL))
    assert len(partial) == len(ROWS)
    assert {r.outcome.kind for r in partial} == {OutcomeKind.INTERRUPTED}
    with Store.read(path) as store:
        assert [r.outcome.kind for r in store.results()] == [OutcomeKind.INTERRUPTED] * 3
    assert same(search(run=path)) == same(search())


def test_ctrl_c_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    gate, path, once = Gate(), tmp_path / "run.db", [signal.SIGINT]

    async def hold(request: Request, attempt: int) -> None:
        if request.draw == 2:
            if once:
                # To the thread that waits: the system may wake any other one of the process.
                signal.pthread_kill(threading.main_thread().ident or 0, once.pop())
            await gate(request, attempt)

    # What a shell starts in the background ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            search(run=path, llm=Watched(hold))
    finally:
        signal.signal(signal.SIGINT, before)
    check_goes_on(path)


def test_a_consumer_that_breaks_off_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run.db"

    def consume() -> None:
        for _ in waysout.find_many(problem(), ROWS, llm=Watched(), run=path, **SMALL):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consume()
    check_goes_on(path)


def check_goes_on(path: Path) -> None:
    with Store.read(path) as store:
        assert store.summary().queries == len(ROWS)
        assert store.summary().open == 0
    assert same(search(run=path)) == same(search())


def test_options_that_were_not_filed_in_time_are_filed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.db"
    with monkeypatch.context() as patch:
        patch.setattr(Store, "options_found", lambda *_: None)
        search(run=path, **stopping_at(17))
    check_file(path, search(run=path))


# Going on with something else -------------------------------------------------------------------


def test_a_finished_run_is_only_read(tmp_path: Path) -> None:
    path, llm = tmp_path / "run.db", Watched()
    first = search(run=path)
    again = search(run=path, llm=llm)
    assert [r.as_dict() for r in again] == [r.as_dict() for r in first]
    assert llm.requests == 0
    more = search([*ROWS, PEOPLE[5]], run=path, llm=llm)
    assert [r.as_dict() for r in more[:3]] == [r.as_dict() for r in first]
    assert llm.requests == more[3].ledger.llm_calls > 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"k": 4}, r"plan\.k: 3 → 4"),
        ({"seed": 1}, r"plan\.seed: 0 → 1"),
        ({"calls": 7}, r"llm_calls: 6 → 7"),
        ({"polish": 2}, r"plan\.polish: None → 2"),
        ({"method": "lats"}, r"method: 'wayfinder' → 'lats'"),
        ({"settings": {"edits": 2}}, r"edits: \d+ → 2"),
        ({"llm": Simulated(8)}, r"llm: 'simulated:7' → 'simulated:8'"),
        ({"table": problem(goal=Goal(at_least=0.8))}, r"goal\.at_least: None → 0\.8"),
        ({"table": problem(Immutable(features=["c"]))}, "problem.rules"),
    ],
    ids=["k", "seed", "calls", "polish", "method", "settings", "llm", "goal", "rules"],
)
def test_other_settings_are_refused(change: dict[str, Any], named: str, unfinished: Path) -> None:
    with pytest.raises(InputError, match=named):
        search(run=unfinished, **change)


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("unfinished") / "run.db"
    search(run=path, **stopping_at(5))
    yield path
    assert same(search(run=path)) == same(search())  # being refused has changed nothing


def test_other_people_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    search(run=path, **stopping_at(5))
    with pytest.raises(IntegrityError, match=r"query \d is another row"):
        search(PEOPLE[3:6], run=path)
    search(run=path)
    with pytest.raises(IntegrityError, match=r"query \d is another row"):
        search(PEOPLE[3:6], run=path)


def test_a_run_has_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    found: Iterator[ResultData] = waysout.find_many(
        problem(), ROWS, llm=Watched(), run=path, **SMALL
    )
    next(found)
    with pytest.raises(UnavailableError, match="written by another"):
        search(run=path)
    list(found)
