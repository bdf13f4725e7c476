"""Killed in the middle of a plan and run again: the same results, and no call is repeated."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from bench_world import (  # noqa: F401
    LIBRARY,
    RANDOM,
    TREE,
    environment,
    in_bench,
    plan_file,
    scripted_reply,
    timeless,
    trained_cache,
)

# The scripted server lies with the tests of the backends.
from scripted_server import Exchange, ok, serving_apart

from waysout.bench.cell import Cell
from waysout.bench.plan import load_plan
from waysout.bench.results import Results
from waysout.bench.runner import run_plan
from waysout.errors import WaysoutError

IN_FLIGHT = 3
LONGEST = 60.0
FREE = "[style]\nconstrain = false\n"  # so that the script can answer in the plain format


def bench(plan: Path, cache: Path, *more: str) -> subprocess.Popen[str]:
    """Run a plan on a command line of its own."""
    words = [sys.executable, "-m", "waysout", "bench", "run", str(plan), "--results", "results"]
    return subprocess.Popen(
        [*words, *more], env=environment(cache, plan.parent), cwd=plan.parent, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def until(met: Callable[[], bool], child: subprocess.Popen[str]) -> None:
    """Wait for something to be so while a process runs."""
    began = time.monotonic()
    while not met():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() - began < LONGEST
        time.sleep(0.005)


def cells(folder: Path) -> list[Cell]:
    with Results.read(folder / "results") as results:
        return [timeless(cell) for cell in results.cells()]


@pytest.mark.slow
def test_no_reply_on_file_is_asked_for_again_after_a_kill(
    in_bench: Path,  # noqa: F811
    trained_cache: Path,  # noqa: F811
) -> None:
    seen: Counter[str] = Counter()

    async def answer(exchange: Exchange) -> None:
        seen[f"{exchange.body.get('seed')} {exchange.prompt}"] += 1
        await asyncio.sleep(0.02)
        await ok(scripted_reply(exchange.prompt))(exchange)

    made = plan_file(in_bench, FREE, TREE, LIBRARY)
    with serving_apart(answer) as server:
        llm = f"openai:scripted@{server.url}"
        with Results.open(in_bench / "whole") as whole:
            run_plan(load_plan(str(made)), whole, llms=[llm], in_flight=IN_FLIGHT)
            expected = [timeless(cell) for cell in whole.cells()]
        all_of_them = len(seen)
        seen.clear()
        asked = ("--llm", llm, "--in-flight", str(IN_FLIGHT))
        killed = bench(made, trained_cache, *asked)
        until(lambda: seen.total() >= all_of_them // 2, killed)
        killed.send_signal(signal.SIGKILL)
        killed.communicate(timeout=LONGEST)
        with Results.read(in_bench / "results") as results:
            on_file, done = results.replies()[llm], len(results.cells())
        assert 0 < on_file < all_of_them
        assert done < len(expected)
        assert seen.total() - on_file <= IN_FLIGHT  # those under way
        before = seen.copy()
        resumed = bench(made, trained_cache, *asked)
        _, said = resumed.communicate(timeout=LONGEST)
    assert resumed.returncode == 0, said
    assert (seen - before).total() == all_of_them - on_file
    assert (before & (seen - before)).total() <= IN_FLIGHT
    assert cells(in_bench) == expected
    assert any(cell.metrics["unique_valid"] for cell in expected)


def finished(folder: Path) -> int:
    try:
        with Results.read(folder / "results") as results:
            return len(results.done())
    except WaysoutError:  # it is being made
        return 0


@pytest.mark.slow
def test_processes_that_search_end_with_their_parent_killed_or_stopped(
    in_bench: Path,  # noqa: F811
    trained_cache: Path,  # noqa: F811
) -> None:
    endless = "grid = { rows = [10, 90_000_000] }\nqueries = 1\n"
    made = plan_file(in_bench, TREE, RANDOM, endless)
    killed = bench(made, trained_cache, "--jobs", "2")
    until(lambda: finished(in_bench) > 0, killed)
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=LONGEST)  # its pipes close when the last of its processes has ended
    before = finished(in_bench)
    assert 0 < before < 5
    stopped = bench(made, trained_cache, "--jobs", "2")
    until(lambda: finished(in_bench) == 4, stopped)
    stopped.send_signal(signal.SIGINT)
    out, said = stopped.communicate(timeout=LONGEST)
    assert stopped.returncode == 130, said
    assert f"{4 - before} " in out.partition("done")[0]
    assert f"{before} were on file" in out
    assert "error: stopped by SIGINT" in said
    assert " waysout bench run" in said
    assert "failed" not in said
