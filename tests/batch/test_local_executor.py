"""Processes that do parts: shared out, killed, replaced, stopped and let go.

What they do is scripted in the rows; the real worker has its own tests.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from waysout.batch import executor as executors
from waysout.batch import local_executor as local
from waysout.batch.job import BatchJob, BatchTally, PartReport, PartTask
from waysout.batch.local_executor import LocalExecutor
from waysout.batch.worker import Worker
from waysout.domain.budget import Spent
from waysout.domain.problem import Problem
from waysout.errors import InputError, OracleError, UnavailableError, WaysoutError
from waysout.llm.base import Backend, Message, Reply, Request, Usage

LONGEST = 60.0
PART_ROWS = 2


class ScriptedWorker(Worker):
    """Does what each row says, one after the other, and notes down who does it."""

    def __init__(self, job: BatchJob, backend: Backend | None = None) -> None:
        self.job = job
        self.backend = backend
        self.under_way: dict[int, BatchTally] = {}
        self.stopped = asyncio.Event()
        self.reason = ""
        job.make()
        print("this is no result")  # noqa: T201 - as libraries do

    def tally(self) -> BatchTally:
        return sum(self.under_way.values(), BatchTally())

    def stop(self, reason: str) -> None:
        self.reason = reason
        self.stopped.set()

    async def aclose(self) -> None:
        (self.job.out / f"closed {os.getpid()}").touch()

    async def run(self, task: PartTask) -> PartReport:
        self.under_way[task.part] = BatchTally()
        note = {"pid": os.getpid(), "threads": os.environ["OMP_NUM_THREADS"], "alone": True}
        for row in task.rows:
            (self.job.out / f"{task.part}.json").write_text(json.dumps(note))
            await self.do(row["do"])
            note["alone"] = note["alone"] and len(self.under_way) == 1
            if self.reason:
                break
            self.under_way[task.part] += BatchTally({"found": 1}, spent=Spent(llm_calls=1))
        (self.job.out / f"{task.part}.json").write_text(json.dumps(note))
        tally = self.under_way.pop(task.part)
        worn = any(row["do"] == "wear out" for row in task.rows)
        return PartReport(task.part, tally, done=not self.reason, stopped=self.reason, worn=worn)

    def no_tally(self) -> BatchTally:
        del self.tally
        raise MemoryError

    async def do(self, what: str) -> None:
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "fork and die":
            if child := os.fork():
                (self.job.out / "child").write_text(str(child))
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(LONGEST)
            os._exit(0)
        elif what == "wait":
            await self.stopped.wait()
        elif what == "hang":
            time.sleep(LONGEST)
        elif what == "say nothing":  # as one without memory, which it has again later
            self.tally = self.no_tally  # type: ignore[method-assign]
        elif what == "break the loop":  # as one that can open no files any more
            loop = asyncio.get_running_loop()

            def fail() -> None:
                loop.call_soon(fail)
                raise OSError("too many open files")

            loop.call_soon(fail)
            await self.stopped.wait()
        elif what == "hold":  # the interpreter's lock as well
            ctypes.PyDLL(None).sleep(int(LONGEST))
        elif what.startswith("pool"):  # as a model may
            with multiprocessing.Pool(1) as pool:
                assert pool.map(abs, [-1]) == [1]
                if what == "pool and wait":
                    await self.stopped.wait()
        elif what == "break":
            raise OracleError("a worker that breaks its word")
        elif what.startswith("ask"):
            assert self.backend is not None
            reply = await self.backend.complete(Request((Message("user", what),)))
            assert reply.text == f"{self.backend.name}: {what}"


class Llm(Backend):
    """Lives in this process; a question that waits is never answered."""

    name = "llm"

    def __init__(self) -> None:
        self.waiting = 0
        self.cancelled = 0
        self.answered = 0

    async def complete(self, request: Request) -> Reply:
        text = request.messages[0].content
        if text == "ask and wait":
            self.waiting += 1
            try:
                await asyncio.sleep(LONGEST)
            finally:
                self.cancelled += 1
        self.answered += 1
        return Reply(f"llm: {text}", Usage(1, 1))


def nothing() -> Problem:
    return None  # type: ignore[return-value]


def torn() -> Problem:
    raise OracleError("the model file is torn")


def bug() -> Problem:
    raise KeyError("a bug")


def fatal() -> Problem:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def task(part: int, *what: str, isolated: bool = False) -> PartTask:
    rows = [{"do": each, "filling": "x" * 100_000} for each in what]
    return PartTask(part, part * PART_ROWS, rows, isolated=isolated)


Started = Callable[..., LocalExecutor]


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[Started]:
    """Have an executor, which is closed at the end."""
    made: list[LocalExecutor] = []

    def start(workers: int, make: Callable[[], Problem] = nothing, **more: Any) -> LocalExecutor:
        job = BatchJob(make, {}, tmp_path, ("do",), trees=PART_ROWS)
        executor = LocalExecutor(
            job, workers=workers, part_rows=PART_ROWS, worker=ScriptedWorker, **more
        )
        made.append(executor)
        return executor

    yield start
    for one in made:
        one.close()
    assert not multiprocessing.active_children()


def ended(executor: LocalExecutor, count: int) -> dict[int, PartReport]:
    """Wait for so many reports."""
    began, found = time.monotonic(), list[PartReport]()
    while len(found) < count:
        assert time.monotonic() - began < LONGEST
        found += executor.wait(0.5)
    assert len(found) == count
    return {report.part: report for report in found}


def until(executor: LocalExecutor, met: Callable[[], bool]) -> None:
    """Wait for something to be so, while no part ends."""
    began = time.monotonic()
    while not met():
        assert time.monotonic() - began < LONGEST
        assert not executor.wait(0.02)


def notes(folder: Path, *parts: int) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{part}.json").read_text()) for part in parts]


def pids(folder: Path, parts: Sequence[int]) -> list[int]:
    return [note["pid"] for note in notes(folder, *parts)]


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_parts_are_shared_out_the_killed_are_replaced_and_the_stopped_come_back(
    executor: Started, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    llm = Llm()
    hands = executor(2, backend=llm)
    environment = dict(os.environ)
    assert hands.room == 4

    # A worker does two parts at once; who is idle, or not even started, goes first.
    for part in range(4):
        hands.submit(task(part, "ask", "ask"))
    assert hands.room == 0
    assert dict(os.environ) == environment
    done = ended(hands, 4)
    assert done == {
        p: PartReport(p, BatchTally({"found": 2}, spent=Spent(llm_calls=2)), done=True)
        for p in range(4)
    }
    assert (hands.room, hands.tally(), llm.answered) == (4, BatchTally(), 8)
    first, second, *more = pids(tmp_path, range(4))
    assert first != second
    assert set(more) <= {first, second}
    assert {note["threads"] for note in notes(tmp_path, 0, 1)} == {"1"}

    # One is killed: its parts are lost, and so are its questions; the other goes on.
    for part in range(4, 8):
        hands.submit(task(part, "ask", "ask and wait"))
    until(hands, lambda: llm.waiting == 4 and hands.tally().people == 4)
    by_worker = pids(tmp_path, range(4, 8))
    os.kill(by_worker[0], signal.SIGKILL)
    its = [part for part, pid in zip(range(4, 8), by_worker, strict=True) if pid == by_worker[0]]
    lost = ended(hands, 2)
    assert lost == {part: PartReport(part, lost=True) for part in its}
    assert hands.tally().people == 2
    until(hands, lambda: llm.cancelled == 2)

    # A part that is done with care has a worker to itself: here the new one, by and by.
    hands.submit(task(its[0], "ok", isolated=True))
    hands.submit(task(its[1], "ok", isolated=True))
    hands.submit(task(8, "pool", "ok"))
    again = ended(hands, 3)
    assert all(report.done for report in again.values())
    assert all(note["alone"] for note in notes(tmp_path, *its))
    assert not set(pids(tmp_path, its)) & {first, second}

    # To stop is told at once; who is still asking the LLM is let go in the end.
    hands.submit(task(9, "ok", "wait"))
    until(hands, lambda: hands.tally().people == 3)
    hands.stop("enough")
    assert ended(hands, 1) == {
        9: PartReport(9, BatchTally({"found": 1}, spent=Spent(llm_calls=1)), stopped="enough")
    }
    hands.submit(task(10, "ok"))
    assert ended(hands, 1) == {10: PartReport(10, stopped="enough")}
    hands.close()
    assert not any(map(is_there, pids(tmp_path, range(10))))
    assert len(list(tmp_path.glob("closed *"))) == 2
    assert llm.cancelled == 4
    out, err = capfd.readouterr()
    assert out == ""
    # Several processes print at once, and each its line and its end apart.
    assert sorted(err) == sorted("this is no result\n" * 3)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [(torn, OracleError, "the model file is torn"), (bug, WaysoutError, "KeyError: 'a bug'")],
)
def test_a_worker_that_cannot_begin_says_why(
    executor: Started, make: Callable[[], Problem], kind: type[WaysoutError], message: str
) -> None:
    hands = executor(1, make)
    hands.submit(task(0, "ok"))
    with pytest.raises(WaysoutError) as caught:
        ended(hands, 1)
    assert (type(caught.value), str(caught.value)) == (kind, message)
    assert caught.value.exit_code == kind.exit_code


def test_a_job_that_cannot_be_sent_is_refused_before_anything_is_started(executor: Started) -> None:
    with pytest.raises(InputError, match="no lambdas"):
        executor(1, lambda: nothing())


def test_workers_that_die_before_anything_is_done_are_given_up(
    executor: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "DEATHS_IN_A_ROW", 0)
    hands = executor(1, fatal)
    hands.submit(task(0, "ok"))
    assert ended(hands, 1) == {0: PartReport(0, lost=True)}
    hands.submit(task(0, "ok"))
    with pytest.raises(UnavailableError, match=r"2 times in a row.*SIGKILL.*memory.*single row"):
        ended(hands, 1)


def test_deaths_do_not_add_up_while_people_are_done_and_a_worker_that_raises_is_heard(
    executor: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "DEATHS_IN_A_ROW", 0)
    monkeypatch.setattr(local, "_DRAIN_SECONDS", 0.2)
    hands = executor(1)
    # Whoever was forked from a worker keeps its pipes open when it has died.
    for part, death in enumerate(["die", "fork and die", "break the loop", "say nothing"]):
        hands.submit(task(part, "ok", "ok"))
        assert ended(hands, 1)[part].done
        hands.submit(task(part, death))
        assert ended(hands, 1)[part].lost
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    hands.submit(task(4, "break"))
    with pytest.raises(OracleError, match="breaks its word"):
        ended(hands, 1)


def test_whoever_hangs_or_has_not_begun_holds_nobody_up(
    executor: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "EXIT_SECONDS", 0.0)
    hands = executor(2)
    hands.submit(task(0, "hang"))
    until(hands, lambda: (tmp_path / "0.json").exists() and hands._workers[0].is_up)
    hands.submit(task(1, "ok"))
    hands.submit(task(2, "ok"))
    hands.stop("enough")  # the second worker is being started
    assert ended(hands, 1) == {1: PartReport(1, stopped="enough")}
    (pid,) = pids(tmp_path, [0])
    began = time.monotonic()
    hands.close()
    assert time.monotonic() - began < 5
    assert not is_there(pid)


def test_a_worker_in_which_the_model_hangs_is_replaced_and_a_silent_one_killed(
    executor: Started, tmp_path: Path
) -> None:
    hands = executor(1)
    hands.submit(task(0, "wear out"))
    hands.submit(task(1, "ok"))  # it ends what it has
    assert {report.done for report in ended(hands, 2).values()} == {True}
    hands.submit(task(2, "ok"))
    assert ended(hands, 1)[2].done
    before, same, after = pids(tmp_path, [0, 1, 2])
    assert before == same != after
    assert not is_there(before)

    hands.submit(task(3, "hang"))
    until(hands, lambda: (tmp_path / "3.json").exists())
    hands._most_silent = 0.6  # of the worker that hangs alone: no other is there
    assert ended(hands, 1) == {3: PartReport(3, lost=True)}
    hands._most_silent = LONGEST
    assert not is_there(after)
    hands.submit(task(3, "ok"))
    assert ended(hands, 1)[3].done


PARENT = """
    import sys
    from pathlib import Path
    from test_local_executor import PART_ROWS, ScriptedWorker, nothing, task
    from waysout.batch.job import BatchJob
    from waysout.batch.local_executor import LocalExecutor

    if __name__ == "__main__":
        out, *what = sys.argv[1:]
        job = BatchJob(nothing, {}, Path(out), ("do",), trees=PART_ROWS)
        executor = LocalExecutor(job, workers=2, part_rows=PART_ROWS, worker=ScriptedWorker)
        for part in range(2):
            executor.submit(task(part, *what))
        left = 2
        while left:
            left -= len(executor.wait(1.0))
        executor.close()
"""


@pytest.mark.slow
def test_workers_end_with_a_parent_that_is_killed_and_leave_nothing_behind(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(textwrap.dedent(PARENT))
    places = os.pathsep.join(place for place in sys.path if place)

    def parent(*what: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-W", "always", script, tmp_path, *what], text=True,
            env={**os.environ, "PYTHONPATH": places}, stderr=subprocess.PIPE,
        )  # fmt: skip

    _, said = parent("ok").communicate(timeout=LONGEST)
    assert said.splitlines() == ["this is no result"] * 2  # nothing was leaked, and nobody warned
    # The processes of a pool hold on to its stderr as well.
    held = ("hold",) if sys.platform.startswith("linux") else ()
    for what in ("wait", "hang", "pool and wait", *held):
        for part in range(2):
            (tmp_path / f"{part}.json").unlink()
        killed = parent(what)
        began = time.monotonic()
        while not all((tmp_path / f"{part}.json").exists() for part in range(2)):
            assert killed.poll() is None
            assert time.monotonic() - began < LONGEST
            time.sleep(0.01)
        killed.kill()
        killed.communicate(timeout=LONGEST / 2)  # its stderr closes when the last worker has ended
