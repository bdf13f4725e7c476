from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from batch_world import RECORDS, Made, job, record, task, told
from run_world import Adder, Broken, Watched, problem

from waysout.batch.job import BEGUN, BatchJob, BatchTally, PartReport, PartTask
from waysout.batch.tables import PartRows, options, people_done, store_path
from waysout.batch.worker import DIED, Worker
from waysout.domain.budget import Budget
from waysout.domain.oracle import Answers
from waysout.domain.rules import Immutable
from waysout.domain.schema import Row
from waysout.errors import LLMFailure, LLMRefused, LLMUnreachable, UnavailableError
from waysout.llm.base import Backend, Reply, Request
from waysout.oracles.watchdog import hung
from waysout.store import Store
from waysout.store.lock import WriterLock


def run(asked: BatchJob, *tasks: PartTask, backend: Backend | None = None) -> list[PartReport]:
    """Run parts at once on one worker."""

    async def all_of_them() -> list[PartReport]:
        worker = Worker(asked, backend)
        reports = await asyncio.gather(*(worker.run(one) for one in tasks or [task()]))
        await worker.aclose()
        return list(reports)

    return asyncio.run(all_of_them())


def test_everybody_has_a_row_and_whoever_is_rejected_has_options(tmp_path: Path) -> None:
    (report,) = run(job(tmp_path))
    found = told(tmp_path)
    assert report.done
    assert [*found] == [*range(8)]
    kinds = [person["outcome"] for person in found.values()]
    approved = [i for i, kind in enumerate(kinds) if kind == "already-approved"]
    assert (approved, kinds[6]) == ([2, 5], "failed")
    assert "row 6, column 'a'" in found[6]["reason"]
    (table,) = options(tmp_path)
    assert {*table["row_id"].to_pylist()} == {0, 1, 3, 4, 7}
    assert report.tally.outcomes == {"already-approved": 2, "failed": 1, "found": 5}
    assert report.tally.ways == len(table)
    assert report.tally.options == sum(person["options"] for person in found.values())


def test_every_option_is_one_that_the_model_approves(tmp_path: Path) -> None:
    run(job(tmp_path))
    (table,) = options(tmp_path)
    rows = [(r["a"], r["b"], r["c"]) for r in table.to_pylist()]
    assert rows
    assert all(Adder().ask(rows).decision)


def test_whom_one_meets_changes_nothing(tmp_path: Path) -> None:
    parts = [PartTask(i // 2, i, RECORDS[i : i + 2]) for i in range(0, 8, 2)]
    run(job(tmp_path / "one", trees=1))
    run(job(tmp_path / "many", trees=3), *parts)
    run(job(tmp_path / "isolated"), replace(task(), isolated=True))
    assert told(tmp_path / "one") == told(tmp_path / "many") == told(tmp_path / "isolated")


def test_with_care_it_is_on_file_of_whom_the_model_was_asked_last(tmp_path: Path) -> None:
    begun: list[int | None] = []

    class Looking(Adder):
        def ask(self, rows: Sequence[Row]) -> Answers:
            with Store.read(store_path(tmp_path, 0)) as store:
                begun.append([e.index for e in store.events() if e.kind == BEGUN][-1])
            return super().ask(rows)

    model = Looking()
    asked = replace(task(RECORDS[:4]), isolated=True, skip=(1,))
    run(job(tmp_path, Made(model), method="random", calls=0, oracle_rows=3), asked)
    first = {index: model.batches[begun.index(index)] for index in (0, 2, 3)}
    assert begun == sorted(begun, key=begun.index), "one after the other, in whatever order"
    assert first == {0: [(1, 1, "x")], 2: [(9, 9, "x")], 3: [(3, 0, "z")]}


def test_no_more_trees_than_were_asked_for_are_under_way(tmp_path: Path) -> None:
    llm = Watched(before=lambda *_: asyncio.sleep(0.001))
    run(job(tmp_path, trees=2), backend=llm)
    assert llm.most_at_once == 2


def test_approved_people_cost_one_batch_and_are_not_in_the_store(tmp_path: Path) -> None:
    model = Adder()
    rows = [record(9, 9), record(10, 0), record(0, 15)]
    asked = replace(job(tmp_path, Made(model)), keep_stores=True)
    run(asked, task(rows))
    assert len(model.batches) == 1
    with Store.read(store_path(tmp_path, 0)) as store:
        assert [*store.queries()] == []


@pytest.mark.parametrize("steady", [True, False])
def test_every_row_the_model_is_asked_is_counted(tmp_path: Path, steady: bool) -> None:
    """Also after a break: who was asked about in the part's batch is not asked about again."""
    rows = [row for row in RECORDS if row["a"] not in ("9", "10", "many")]
    budget, models = Budget(oracle_rows=20), [Adder(), Adder()]
    given = [replace(job(tmp_path, Made(m), trees=1), steady=steady) for m in models]
    (cut_short,) = run(given[0], task(rows), backend=Dies(3, LLMUnreachable("gone")))
    assert not cut_short.done
    with Store.read(store_path(tmp_path, 0)) as store:
        assert [len([*store.setup(i)]) for i in range(len(rows))] == [1] * len(rows)
    (report,) = run(given[1], task(rows))
    assert report.done
    spent, reached = report.tally.spent, sum(model.rows for model in models)
    assert reached <= spent.oracle_rows + spent.setup_rows
    # The row itself; a check that the model is the same; what was found, if it may waver.
    again = 0 if steady else budget.again_rows
    assert spent.setup_rows <= len(rows) * (1 + again + int(steady))
    assert len(rows) * budget.own_setup_rows >= spent.setup_rows > len(rows)
    assert (spent.setup_rows > 2 * len(rows)) is not steady


@pytest.mark.parametrize("keep", [True, False])
def test_the_store_goes_with_the_part_unless_it_is_wanted(tmp_path: Path, keep: bool) -> None:
    asked = replace(job(tmp_path), keep_stores=keep)
    run(asked, task(RECORDS[:2]))
    assert store_path(tmp_path, 0).exists() is keep
    run(asked, task(RECORDS[6:8], part=1, first=6))
    assert store_path(tmp_path, 1).exists()  # somebody failed, and may be tried again
    run(asked, PartTask(2, 16, RECORDS[:1], cut=True))
    assert store_path(tmp_path, 2).exists()  # more rows may come


class Dies(Watched):
    """Dies after some replies, for good or for everybody."""

    def __init__(self, replies: int, error: Exception) -> None:
        super().__init__(before=self._fail)
        self.left, self.error = replies, error

    async def _fail(self, request: Request, times: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise self.error


def test_a_part_goes_on_where_it_stopped_and_nothing_is_asked_twice(tmp_path: Path) -> None:
    whole, first = Watched(), Dies(6, LLMUnreachable("gone"))
    run(job(tmp_path / "whole"), backend=whole)
    (cut_short,) = run(job(tmp_path / "parts"), backend=first)
    assert (cut_short.done, cut_short.stopped, cut_short.exit_code) == (False, "gone", 9)
    assert people_done(tmp_path / "parts", 0) is None
    second = Watched()
    (report,) = run(job(tmp_path / "parts"), backend=second)
    assert report.done
    apart = ("attempts", "setup_rows")  # what was lost, and asking whether it is the same model
    assert told(tmp_path / "parts", *apart) == told(tmp_path / "whole", *apart)
    assert first.replied.total() + second.requests == whole.requests


def test_one_whose_call_fails_for_good_leaves_the_part_open(tmp_path: Path) -> None:
    class Deaf(Watched):
        async def complete(self, request: Request) -> Reply:
            if self.requests == 1:  # the second who asks, while others wait for their reply
                self.seen["deaf"] += 1
                raise LLMFailure("busy", retry_after=1000.0)
            return await super().complete(request)

    deaf = Deaf(before=lambda *_: asyncio.sleep(0.01))
    (report,) = run(job(tmp_path), backend=deaf)
    assert (report.done, report.stopped, report.tally.people) == (False, "", 7)
    (again,) = run(job(tmp_path), backend=Watched())
    assert (again.done, again.tally.people) == (True, 8)


def test_a_refused_request_is_that_persons_failure(tmp_path: Path) -> None:
    class Picky(Watched):
        refused = 0

        async def complete(self, request: Request) -> Reply:
            if self.refused == 0:
                self.refused += 1
                raise LLMRefused("too long")
            return await super().complete(request)

    (report,) = run(job(tmp_path, trees=1), task(RECORDS[:3]), backend=Picky())
    kinds = {i: (p["outcome"], p["reason"]) for i, p in told(tmp_path).items()}
    assert report.done
    assert kinds[0] == ("failed", "too long")
    assert kinds[1][0] == "found"


def test_a_model_that_breaks_on_a_row_fails_that_person_alone(tmp_path: Path) -> None:
    model = Broken("raises", lambda row: row[2] == "z")
    (report,) = run(job(tmp_path, Made(model), calls=0), task(RECORDS[:4]))
    assert report.done
    assert told(tmp_path)[3]["outcome"] == "failed"
    assert told(tmp_path)[2]["outcome"] == "already-approved"


class Hanging(Adder):
    """Waits for ever on the row of one person."""

    row_seconds = 0.3

    def __init__(self) -> None:
        super().__init__()
        self.event = threading.Event()

    def ask(self, rows: Sequence[Row]) -> Answers:
        if (3, 0, "z") in rows:
            self.event.wait()
        return super().ask(rows)


def test_a_row_that_hangs_fails_that_person_alone_and_wears_the_worker_out(tmp_path: Path) -> None:
    model = Hanging()
    try:
        (report,) = run(job(tmp_path / "hangs", Made(model), calls=0), task())
    finally:
        model.event.set()
    (well,) = run(job(tmp_path / "well", calls=0), task())
    assert (report.done, report.worn, well.worn) == (True, True, False)
    found, untroubled = told(tmp_path / "hangs"), told(tmp_path / "well")
    assert (found[3]["outcome"], untroubled[3]["outcome"]) == ("failed", "found")
    assert "did not answer" in found[3]["reason"]
    del found[3], untroubled[3]
    assert found == untroubled


class HangsOften(Adder):
    """Waits for ever on every row with a z, until it is let go."""

    row_seconds = 0.1

    def __init__(self) -> None:
        super().__init__()
        self.event = threading.Event()

    def ask(self, rows: Sequence[Row]) -> Answers:
        if any(row[2] == "z" for row in rows):
            self.event.wait()
        return super().ask(rows)


def test_where_too_many_hang_a_worker_hands_back_and_nobody_fails_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waysout.batch.worker.MOST_LEFT", 3)
    monkeypatch.setattr("waysout.oracles.watchdog.MOST_HUNG", 6)
    rows = [record(i, 0, c) for i in range(6) for c in "zx"]
    asked, rounds = task(rows), 0

    def made(model: Adder) -> BatchJob:
        fixed = problem(Immutable(features=("c",)), oracle=model)
        return job(tmp_path / type(model).__name__, lambda: fixed, trees=1, calls=0)

    while True:
        model = HangsOften()
        (report,) = run(made(model), asked)
        model.event.set()  # the next one is in a new process, where none is left
        until_none_hangs()
        rounds += 1
        if report.done:
            break
        assert (report.worn, report.stopped, report.lost) == (True, "", False)
        assert len(report.settled) > len(asked.settled)
        asked = replace(asked, settled=report.settled)
    assert rounds > 1
    run(made(Adder()), task(rows))
    found, well = (told(tmp_path / name, "setup_rows") for name in ("HangsOften", "Adder"))
    assert [i for i, person in found.items() if person["outcome"] == "failed"] == [*range(0, 12, 2)]
    assert all("did not answer" in found[i]["reason"] for i in range(0, 12, 2))
    assert all(found[i] == well[i] for i in range(1, 12, 2))


def until_none_hangs() -> None:
    began = time.monotonic()
    while hung():
        assert time.monotonic() - began < 10
        time.sleep(0.01)


def test_a_worker_that_has_given_up_takes_nothing_on(tmp_path: Path) -> None:
    async def late() -> PartReport:
        worker = Worker(job(tmp_path))
        worker._give_up("spoilt")
        return await worker.run(task())

    report = asyncio.run(late())
    assert (report.done, report.stopped, report.worn, report.tally) == (
        False, "", True, BatchTally(),
    )  # fmt: skip


class Spoils(Adder):
    """Has the process write nothing any more, once it was asked about somebody."""

    def __init__(self, spoil: Callable[[], None]) -> None:
        super().__init__()
        self.spoil = spoil

    def ask(self, rows: Sequence[Row]) -> Answers:
        self.spoil()
        return super().ask(rows)


def test_an_error_of_the_process_is_not_the_batchs_until_a_new_one_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise UnavailableError("too many open files")

    model = Spoils(lambda: monkeypatch.setattr(Store, "finish", full))
    (report,) = run(job(tmp_path, Made(model)), replace(task(RECORDS[:2]), isolated=True))
    with Store.read(store_path(tmp_path, 0)) as store:  # it ends with the one it was at
        assert [event.index for event in store.events() if event.kind == BEGUN] == [0]
    assert (report.lost, report.worn, report.stopped, report.exit_code) == (
        True, True, "too many open files", 5,
    )  # fmt: skip
    monkeypatch.undo()
    monkeypatch.setattr(Store, "open", full)
    (report,) = run(job(tmp_path), task(RECORDS[:2]))
    assert (report.lost, report.stopped) == (False, "too many open files")


def test_a_part_that_lacks_people_on_file_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a model has replaced a function that writing uses."""
    real = PartRows.write

    def none(self: PartRows, *given: Any, **more: Any) -> None:
        self._tables.clear()
        real(self, *given, **more)

    monkeypatch.setattr(PartRows, "write", none)
    (report,) = run(job(tmp_path), task(RECORDS[:2]))
    assert (report.done, report.lost) == (False, True)
    assert store_path(tmp_path, 0).exists()
    assert "fewer people" in report.stopped


def test_a_bug_that_a_row_shows_fails_that_person_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before they were searched for alone: a model may have spoilt the process for others."""
    from waysout.search.wayfinder import WayfinderSearch

    real = WayfinderSearch._trials

    def breaks(self: WayfinderSearch) -> object:
        if self.case.query[2] == "y":
            raise ZeroDivisionError("by a row")
        return real(self)

    monkeypatch.setattr(WayfinderSearch, "_trials", breaks)
    rows = [RECORDS[0], RECORDS[1], RECORDS[7]]
    (report,) = run(job(tmp_path), task(rows))
    assert (report.done, report.worn, report.settled) == (False, True, ())
    assert sorted(report.doubted) == [1, 2]
    found: set[int] = set()
    for last in (False, True):  # each ends the worker, so that nobody is searched for after them
        alone = replace(task(rows), isolated=True, settled=report.settled)
        (report,) = run(job(tmp_path), alone)
        assert (report.done, report.worn, len(report.doubted)) == (last, True, 1)
        found |= {*report.doubted}
        assert {*report.settled} == found
    assert found == {1, 2}
    assert told(tmp_path)[1]["reason"] == "unexpected ZeroDivisionError: by a row"
    kinds = [person["outcome"] for person in told(tmp_path).values()]
    assert kinds == ["found", "failed", "failed"]


def test_those_to_be_left_out_are_failures_and_care_is_one_at_a_time(tmp_path: Path) -> None:
    llm = Watched(before=lambda *_: asyncio.sleep(0))
    asked = replace(task(RECORDS[:4]), isolated=True, skip=(1,))
    (report,) = run(job(tmp_path), asked, backend=llm)
    assert (report.done, llm.most_at_once) == (True, 1)
    assert told(tmp_path)[1]["reason"] == DIED
    assert told(tmp_path)[3]["outcome"] == "found"


def test_another_store_under_the_name_is_refused_and_left_alone(tmp_path: Path) -> None:
    run(replace(job(tmp_path), keep_stores=True), task(RECORDS[:2]))
    for file in (tmp_path / "part-000000.parquet", tmp_path / "_people" / "part-000000.parquet"):
        file.unlink()
    (report,) = run(job(tmp_path, calls=2), task(RECORDS[:2]))
    assert not report.done
    assert "holds another run" in report.stopped
    assert report.exit_code == 3
    assert store_path(tmp_path, 0).exists()


def test_a_stop_ends_everything_and_keeps_it(tmp_path: Path) -> None:
    async def stopped() -> PartReport:
        async def slow(*_: object) -> None:
            await asyncio.sleep(0.01)

        worker = Worker(job(tmp_path), Watched(before=slow))
        running = asyncio.create_task(worker.run(task()))
        await asyncio.sleep(0.05)
        worker.stop("enough")
        return await running

    report = asyncio.run(stopped())
    assert (report.done, report.stopped, report.exit_code) == (False, "enough", 0)
    assert people_done(tmp_path, 0) is None
    (again,) = run(job(tmp_path))
    assert again.done


def test_a_store_that_somebody_still_writes_is_waited_for(tmp_path: Path) -> None:
    lock = WriterLock.take(store_path(tmp_path, 0))

    async def let_go() -> PartReport:
        worker = Worker(job(tmp_path))
        running = asyncio.create_task(worker.run(task(RECORDS[:1])))
        await asyncio.sleep(0.1)
        lock.release()
        return await running

    assert asyncio.run(let_go()).done


def test_a_part_that_somebody_has_finished_meanwhile_is_left_as_it_is(tmp_path: Path) -> None:
    run(job(tmp_path), task(RECORDS[:1]))
    lock, llm = WriterLock.take(store_path(tmp_path, 0)), Watched()

    async def let_go() -> PartReport:
        worker = Worker(job(tmp_path), llm)
        running = asyncio.create_task(worker.run(task(RECORDS[:1])))
        await asyncio.sleep(0.1)
        lock.release()
        return await running

    assert asyncio.run(let_go()).done
    assert llm.requests == 0
