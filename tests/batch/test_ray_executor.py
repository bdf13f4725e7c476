"""Actors that do parts: shared out, killed, restarted, stopped and let go.

What they do is scripted in the rows, and all checks share one small instance of Ray; only the last
ones have the real worker, or an instance of their own.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from batch_world import RECORDS, told
from batch_world import job as small_job
from inline_executor import InlineExecutor
from test_local_executor import PART_ROWS, ScriptedWorker, fatal, notes, nothing, pids, task, torn

from waysout.batch import executor as executors
from waysout.batch import ray_executor
from waysout.batch.driver import Driver, cut
from waysout.batch.job import BatchJob, BatchTally, PartReport
from waysout.batch.ray_executor import RayExecutor
from waysout.domain.budget import Spent
from waysout.domain.problem import Problem
from waysout.errors import (
    InputError,
    LLMUnreachable,
    MissingExtra,
    OracleError,
    UnavailableError,
    WaysoutError,
)
from waysout.llm.base import Message, Request
from waysout.llm.simulated import Simulated

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs the extra 'ray'"
)
LONGEST = 60.0
PLACES = os.pathsep.join(place for place in sys.path if place)
"""Where the actors find what is defined here."""
QUESTION = Request((Message("user", "what would help?"),))
LLM = Simulated(3)


class AskingWorker(ScriptedWorker):
    """Asks the LLM too, and notes what it is told."""

    async def do(self, what: str) -> None:
        if what != "question":
            await super().do(what)
            return
        assert self.backend is not None
        reply = await self.backend.complete(QUESTION)
        about = [self.backend.name, self.backend.form, self.backend.parallel]
        (self.job.out / "reply.json").write_text(json.dumps([reply.text, *about]))


class Foreign:
    """Stands for a package that a node does not have."""

    def __call__(self) -> Problem:
        raise AssertionError

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, ("a_package_of_the_driver_alone",)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Have Ray started once, as an executor does that is given no address."""
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("PYTHONPATH", PLACES)
        ray, is_ours = ray_executor.connect_ray("")
        assert is_ours
        assert signal.getsignal(signal.SIGTERM) == handler
        yield ray
        ray.shutdown()


Started = Callable[..., RayExecutor]


@pytest.fixture
def executor(tmp_path: Path, ray: Any) -> Iterator[Started]:
    """Have an executor, which is closed at the end and leaves Ray to the others."""
    made: list[RayExecutor] = []

    def start(workers: int, make: Callable[[], Problem] = nothing, **more: Any) -> RayExecutor:
        job = BatchJob(make, {}, tmp_path, ("do",), trees=PART_ROWS)
        executor = RayExecutor(
            job, workers=workers, part_rows=PART_ROWS, worker=AskingWorker, **more
        )
        made.append(executor)
        return executor

    yield start
    for one in made:
        one.close()
    assert ray.is_initialized()


def ended(executor: RayExecutor, count: int) -> dict[int, PartReport]:
    """Wait for so many reports."""
    began, found = time.monotonic(), list[PartReport]()
    while len(found) < count:
        assert time.monotonic() - began < LONGEST
        found += executor.wait(0.5)
    assert len(found) == count
    return {report.part: report for report in found}


def until(executor: RayExecutor, met: Callable[[], bool]) -> None:
    """Wait for something to be so, while no part ends."""
    began = time.monotonic()
    while not met():
        assert time.monotonic() - began < LONGEST
        assert not executor.wait(0.05)


@needs_ray
@pytest.mark.slow
def test_parts_are_shared_out_the_killed_come_back_and_the_stopped_do_too(
    executor: Started, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hands = executor(2, backend="simulated:3")
    assert hands.room == 4
    for part in range(4):
        hands.submit(task(part, "question", "wait"))
    assert hands.room == 0
    until(hands, lambda: hands.tally().people == 4)
    by_worker = pids(tmp_path, range(4))
    assert len(set(by_worker)) == 2
    assert {note["threads"] for note in notes(tmp_path, *range(4))} == {"1"}
    reply = asyncio.run(LLM.complete(QUESTION))
    told_of = json.loads((tmp_path / "reply.json").read_text())
    assert told_of == [reply.text, LLM.name, LLM.form, LLM.parallel]

    # One is killed: its parts are lost, and the other goes on.
    os.kill(by_worker[0], signal.SIGKILL)
    its = [part for part in range(4) if by_worker[part] == by_worker[0]]
    assert len(its) == 2
    assert ended(hands, 2) == {part: PartReport(part, lost=True) for part in its}
    assert hands.tally().people == 2

    # A part that is done with care has a worker to itself: here the one that was restarted.
    hands.submit(task(its[0], "ok", isolated=True))
    hands.submit(task(its[1], "ok", isolated=True))
    again = ended(hands, 2)
    assert all(report.done for report in again.values())
    assert all(note["alone"] for note in notes(tmp_path, *its))
    assert not set(pids(tmp_path, its)) & set(by_worker)

    hands.stop("enough")
    assert ended(hands, 2) == {
        part: PartReport(part, BatchTally({"found": 1}, spent=Spent(llm_calls=1)), stopped="enough")
        for part in range(4)
        if part not in its
    }
    hands.submit(task(10, "ok"))
    assert ended(hands, 1) == {10: PartReport(10, stopped="enough")}
    assert capfd.readouterr() == ("", "")


@needs_ray
@pytest.mark.slow
def test_an_actor_in_which_the_model_hangs_is_replaced_and_a_silent_one_killed(
    executor: Started, tmp_path: Path
) -> None:
    hands = executor(1)
    hands.submit(task(0, "wear out"))
    assert ended(hands, 1)[0].done
    hands.submit(task(1, "ok"))
    assert ended(hands, 1)[1].done
    before, after = pids(tmp_path, [0, 1])
    assert before != after

    hands.submit(task(2, "hang"))
    until(hands, lambda: (tmp_path / "2.json").exists())
    hands._most_silent = 1.0
    assert ended(hands, 1) == {2: PartReport(2, lost=True)}
    hands._most_silent = LONGEST
    hands.submit(task(2, "ok"))
    assert ended(hands, 1)[2].done
    assert pids(tmp_path, [2]) != [after]


class SlowToStart(ray_executor.WorkerActor):
    """Takes longer to be there than Ray lets a call wait for it."""

    def __init__(self) -> None:
        time.sleep(8.0)


@needs_ray
@pytest.mark.slow
def test_an_actor_that_takes_long_to_be_restarted_is_waited_for(
    executor: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_executor, "WorkerActor", SlowToStart)
    hands = executor(1)
    hands.submit(task(0, "die"))
    assert ended(hands, 1) == {0: PartReport(0, lost=True)}
    until(hands, lambda: hands._workers[0].is_up)
    hands.submit(task(0, "ok"))
    assert ended(hands, 1)[0].done


@needs_ray
@pytest.mark.slow
def test_an_llm_that_is_gone_is_out_of_reach_and_an_unknown_one_is_refused(
    executor: Started, ray: Any
) -> None:
    hands = executor(1, backend="simulated:3")
    hands.submit(task(0, "ok"))
    assert ended(hands, 1)[0].done
    ray.kill(hands._llm)
    hands.submit(task(1, "question"))
    with pytest.raises(LLMUnreachable, match="actor of the LLM is gone"):
        ended(hands, 1)
    hands.close()
    other = executor(1, backend="no-such-llm:1")
    other.submit(task(0, "ok"))
    with pytest.raises(InputError, match="no-such-llm"):
        ended(other, 1)


@needs_ray
@pytest.mark.slow
def test_a_worker_that_cannot_begin_says_why(executor: Started) -> None:
    # All at once: to start an actor takes a while.
    both = [executor(1, torn), executor(1, Foreign())]
    expected = [
        (OracleError, "the model file is torn"),
        (UnavailableError, "No module named 'a_package_of_the_driver_alone'.*installed"),
    ]
    for hands, (kind, message) in zip(both, expected, strict=True):
        hands.submit(task(0, "ok"))
        with pytest.raises(WaysoutError, match=message) as caught:
            ended(hands, 1)
        assert type(caught.value) is kind
        assert caught.value.exit_code == kind.exit_code


@needs_ray
@pytest.mark.slow
def test_workers_that_die_before_anything_is_done_are_given_up(
    executor: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "DEATHS_IN_A_ROW", 0)
    hands = executor(1, fatal)
    hands.submit(task(0, "ok"))
    with pytest.raises(UnavailableError, match=r"2 times in a row.*memory.*single row"):
        ended(hands, 1)


@needs_ray
def test_a_cluster_that_never_has_room_is_given_up(
    executor: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_executor, "_BEGIN_SECONDS", 0.0)
    hands = executor(1)
    hands.submit(task(0, "ok"))
    with pytest.raises(UnavailableError, match=r"no worker has started.*CPUs.*ray status"):
        ended(hands, 1)


@needs_ray
def test_a_job_that_cannot_be_sent_is_refused(executor: Started) -> None:
    with pytest.raises(InputError, match="the job cannot be sent to other processes"):
        executor(1, threading.Lock())


@needs_ray
def test_nobody_at_an_address_is_told_at_once() -> None:
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1'.*ray start --head --port 1`"):
        ray_executor.check_reachable("ray://127.0.0.1:1")
    ray_executor.check_reachable("auto")  # Ray looks itself where that may be


def test_ray_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"waysout\[ray\]"):
        RayExecutor(small_job(tmp_path), workers=1, part_rows=1)


@needs_ray
def test_a_batch_gives_what_it_gives_without_ray(ray: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for name, kind in (("ray", RayExecutor), ("inline", InlineExecutor)):
        out = tmp_path / name
        out.mkdir()
        tasks = cut(RECORDS, 3, total=len(RECORDS))
        start: Any = partial(kind, small_job(out), workers=1, part_rows=3)
        finished = Driver(out, tasks, len(RECORDS)).run(start)
        assert (finished.left, finished.stopped) == (0, "")
    assert told(tmp_path / "ray") == told(tmp_path / "inline")
    assert len(told(tmp_path / "ray")) == len(RECORDS)


def is_running(pid: int) -> bool:
    """Whether a process is there, and not only for want of a parent who takes note of its end."""
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


PARENT = """
    import sys
    from pathlib import Path
    from test_local_executor import PART_ROWS, ScriptedWorker, nothing, task
    from waysout.batch.job import BatchJob
    from waysout.batch.ray_executor import RayExecutor

    if __name__ == "__main__":
        out, *what = sys.argv[1:]
        job = BatchJob(nothing, {}, Path(out), ("do",), trees=PART_ROWS)
        executor = RayExecutor(job, workers=2, part_rows=PART_ROWS, worker=ScriptedWorker)
        for part in range(2):
            executor.submit(task(part, *what))
        left = 2
        while left:
            left -= len(executor.wait(1.0))
        executor.close()
"""


@needs_ray
@pytest.mark.slow
def test_an_instance_of_its_own_is_quiet_and_ends_with_a_driver_that_is_killed(
    tmp_path: Path,
) -> None:
    script = tmp_path / "parent.py"
    script.write_text(textwrap.dedent(PARENT))
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}

    def parent(*what: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, script, tmp_path, *what], text=True,
            env={**environment, "PYTHONPATH": PLACES},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    assert parent("ok").communicate(timeout=LONGEST) == ("", "")
    for part in range(2):
        (tmp_path / f"{part}.json").unlink()
    killed = parent("wait")
    began = time.monotonic()
    while not all((tmp_path / f"{part}.json").exists() for part in range(2)):
        assert killed.poll() is None
        assert time.monotonic() - began < LONGEST
        time.sleep(0.05)
    workers = pids(tmp_path, range(2))
    killed.kill()
    killed.communicate()
    while any(map(is_running, workers)):
        assert time.monotonic() - began < LONGEST
        time.sleep(0.05)
