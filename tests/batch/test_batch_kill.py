"""Killed as nothing else kills: the driver, or a worker; the same command then does the rest."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_world import job, record, told
from inline_executor import InlineExecutor
from scripted_server import Exchange, ScriptedServer, ok, serving_apart

from waysout.batch.driver import BatchEnd, BatchProgress, Driver, OnBatchProgress, cut
from waysout.batch.local_executor import LocalExecutor
from waysout.batch.tables import STORES, options
from waysout.llm.base import Reply
from waysout.store import Store
from waysout.store.lock import is_locked

LONGEST = 60.0
WORKERS, TREES, PART_ROWS, CALLS = 2, 3, 4, 4
PEOPLE = [record(i % 6, i // 6, "xyz"[i % 3]) for i in range(20)]
# To be gone on with, a model is asked once more of everybody who was begun.
DIFFERS = ("attempts", "setup_rows")


async def scripted(exchange: Exchange) -> None:
    """Answer with edits that depend on nothing but the question."""
    number = zlib.crc32(exchange.prompt.encode())
    edits = [("a", number % 21), ("b", number // 21 % 21), ("c", "xyz"[number % 3])]
    found = [{"feature": name, "value": value, "reasoning": "scripted"} for name, value in edits]
    await asyncio.sleep(0.02)
    await ok(json.dumps({"candidates": found}))(exchange)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    monkeypatch.delenv("WAYSOUT_API_KEY", raising=False)
    with serving_apart(scripted) as running:
        yield running


def batch(
    out: str | Path, url: str, executor: Any = LocalExecutor, watch: OnBatchProgress | None = None
) -> BatchEnd:
    """Do all that is left of a batch, with processes or without."""
    asked = job(Path(out), llm=f"openai:m@{url}", calls=CALLS, trees=TREES)
    tasks = cut(PEOPLE, PART_ROWS, total=len(PEOPLE))
    driver = Driver(asked.out, tasks, len(PEOPLE), watch)
    return driver.run(lambda: executor(asked, workers=WORKERS, part_rows=PART_ROWS))


def undisturbed(out: Path, url: str) -> tuple[Any, Any]:
    """Return what a batch finds that nobody kills."""
    assert not batch(out, url, InlineExecutor).left
    return found(out)


def found(out: Path) -> tuple[Any, Any]:
    return told(out, *DIFFERS), [line for table in options(out) for line in table.to_pylist()]


def calls(out: Path) -> int:
    return sum(person["llm_calls"] for person in told(out).values())


def on_file(out: Path) -> int:
    """Count the replies that a batch need not ask for again."""
    kept = 0
    for path in sorted((out / STORES).glob("*.db")):
        if (out / path.with_suffix(".parquet").name).exists():
            continue  # its people are in the table
        with Store.read(path) as store:
            answers = (a for index, _ in store.queries() for a in store.answers(index))
            kept += sum(isinstance(recorded.answer, Reply) for recorded in answers)
    return kept + calls(out)


def when(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + LONGEST
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.005)


def wait_for_workers(out: Path) -> None:
    """Wait until the workers of a dead driver have gone, too: nobody holds a store any more."""
    for _ in range(2):  # one may be about to take the next
        when(lambda: not any(map(is_locked, (out / STORES).glob("*.db"))))
        time.sleep(0.2)


def start_driver(out: Path, url: str) -> subprocess.Popen[bytes]:
    script = textwrap.dedent(
        f"""
        from test_batch_kill import batch

        if __name__ == "__main__":
            batch({str(out)!r}, {url!r})
        """
    )
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    return subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": paths})


def test_a_killed_driver_goes_on_where_it_was(tmp_path: Path, server: ScriptedServer) -> None:
    expected = undisturbed(tmp_path / "whole", server.url)
    whole = calls(tmp_path / "whole")
    out, before = tmp_path / "killed", server.requests
    driver = start_driver(out, server.url)
    try:
        when(lambda: server.requests - before >= whole // 3)
    finally:
        driver.kill()
        driver.wait()
    wait_for_workers(out)
    kept, before = on_file(out), server.requests
    assert 0 < kept < whole
    ended = batch(out, server.url, InlineExecutor)
    assert (ended.left, ended.stopped) == (0, "")
    assert server.requests - before == whole - kept  # nothing on file was asked again
    assert found(out) == expected
    assert calls(out) == whole


@pytest.mark.slow
def test_a_killed_worker_loses_no_more_than_it_was_asking(
    tmp_path: Path, server: ScriptedServer
) -> None:
    expected = undisturbed(tmp_path / "whole", server.url)
    killed: list[int] = []

    def kill_one(pace: BatchProgress) -> None:
        if pace.tally.people >= len(PEOPLE) // 3 and not killed:
            pid = multiprocessing.active_children()[0].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    out, before = tmp_path / "killed", server.requests
    ended = batch(out, server.url, watch=kill_one)
    assert killed
    assert (ended.left, ended.stopped) == (0, "")
    assert found(out) == expected
    assert 0 <= server.requests - before - calls(out) <= TREES


def command(*words: str | Path, seconds: float = LONGEST) -> int:
    """Run the command, and kill it when its time is over; returns its exit code."""
    whole = [sys.executable, "-m", "waysout", *map(str, words)]
    try:
        return subprocess.run(whole, timeout=seconds, check=False, capture_output=True).returncode
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL


@pytest.mark.slow
def test_the_command_may_be_killed_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests look for the demo's model in the cache that all share.
    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path / "cache"))
    assert command("oracle", "train", "synthetic", "--trials", "1") == 0
    words = ("batch", "--data", "synthetic", "--llm", "simulated:1", "--limit", "60",
             "--oracle-rows", "40", "--calls", "3", "--workers", "2", "--out")  # fmt: skip
    assert command(*words, tmp_path / "whole") == 0
    out = tmp_path / "killed"
    codes = [command(*words, out, seconds=seconds) for seconds in (1, 3, 4, 5, 6, LONGEST)]
    assert codes[-1] == 0
    assert codes.count(-signal.SIGKILL) >= 2
    assert found(out) == found(tmp_path / "whole")
