"""What a batch of many people takes: memory and speed, a fixed latency, a real LLM.

    python benchmarks/batch.py flat --rows 10000 --few 1000
    python benchmarks/batch.py equal --rows 300
    python benchmarks/batch.py latency --trees 256 --ms 50 --servers 2
    python benchmarks/batch.py flight --llm transformers:google/gemma-3-12b-it --seconds 120
    python benchmarks/batch.py against --other ../another-checkout/src

`flat` compares a long batch with a short one, `equal` processes with Ray. `latency` holds the whole
against calls × latency ÷ trees with a scripted server. `flight` counts people per minute with more
and more of them searched for at once. `against` runs the command without an LLM by turns with the
code here and of another checkout. Elsewhere all people are rejected, so that each of them is
searched for; where a table has too few they come again, changed a little. The synthetic table is
decided by an easy formula where no trained oracle is there. Needs Linux, for /proc. What becomes of
a batch that is killed: `kills.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from batch_runs import (
    Batch,
    People,
    Ran,
    Timed,
    rejected,
    run_here,
    wanted,
    write_replies,
)
from batch_server import Stats, serving

from waysout.batch.driver import BatchProgress, Driver
from waysout.batch.run import run_batch
from waysout.batch.tables import options as options_of
from waysout.batch.tables import people as people_of
from waysout.llm.base import Backend, Reply, Request
from waysout.llm.connect import connect
from waysout.run.machine import cores

SIMULATED = "simulated:1"
IN_MEMORY = ("llamacpp", "transformers")
# The targets that the figures are held against.
MOST_SLOWER, MOST_MEMORY, MOST_LATE = 0.2, 1.5, 2.0
LEAST_AGAINST = 0.95  # what is less is not noise


def verdict(good: bool, what: str) -> None:
    """Print whether a target is met."""
    print(f"{'PASS' if good else 'FAIL'}: {what}", flush=True)


def placement(given: argparse.Namespace) -> dict[str, Any]:
    """Return where and how many workers run, as a batch takes it."""
    asked = {"cluster": given.cluster, "workers": given.workers, "in_flight": given.trees}
    return {name: value for name, value in asked.items() if value is not None}


def search(given: argparse.Namespace, llm: str) -> dict[str, Any]:
    """Return what a search is to do."""
    rows = {"oracle_rows": given.oracle_rows} if given.oracle_rows else {}
    return {"method": given.method, "llm": llm, "calls": given.calls, "seed": 0, **rows}


# flat -------------------------------------------------------------------------------------------


def flat(given: argparse.Namespace, work: Path) -> None:
    """Compare a long batch with a short one."""
    ran: dict[int, Ran] = {}
    print(f"{'people':>8} {'seconds':>8} {'rows/s':>8} {'rows/s*':>8} {'calls':>8} {'MB':>7}")
    for rows in (given.few, given.rows):
        people = rejected(given.data, rows, work)
        batch = Batch(people, work / str(rows), search(given, SIMULATED), placement(given))
        ran[rows] = found = batch.run()
        each = (found.people / found.seconds, found.rate)
        print(f"{found.people:8,} {found.seconds:8.1f} {each[0]:8.2f} {each[1]:8.2f} "
              f"{found.calls:8,} {found.memory / 1e6:7.0f}", flush=True)  # fmt: skip
    few, many = ran[given.few], ran[given.rows]
    speed, memory = many.rate / few.rate, many.memory / few.memory
    print("* from the first person on; MB: the most of all processes together")
    verdict(speed >= 1 - MOST_SLOWER, f"rows/s {speed:.2f} × those of the short batch (≥ 0.8)")
    verdict(memory <= MOST_MEMORY, f"memory {memory:.2f} × that of the short batch (≤ 1.5)")


# equal ------------------------------------------------------------------------------------------


def equal(given: argparse.Namespace, work: Path) -> None:
    """Compare the tables that processes and Ray write."""
    people = rejected(given.data, given.rows, work)
    for cluster in ("local", "ray"):
        more = {**placement(given), "cluster": cluster}
        ran = Batch(people, work / cluster, search(given, SIMULATED), more).run()
        print(f"{cluster}: {ran.people:,} people in {ran.seconds:.1f} s", flush=True)
    compare(work / "local", work / "ray", given.rows)


def compare(one: Path, other: Path, rows: int) -> None:
    """Return whether two batches found the same for everybody and hold that number of rows."""
    for name, read in (("people", people_of), ("options", options_of)):
        first, second = [*_lines(read, one)], [*_lines(read, other)]
        differ = sum(a != b for a, b in zip(first, second, strict=False))
        same = len(first) == len(second) and not differ
        verdict(same, f"{name}: {len(first):,} and {len(second):,} rows, {differ:,} differ")
        if name == "people":
            once = [line["row_id"] for line in second] == [*range(rows)]
            verdict(once, f"each of {rows:,} rows is there once")


def _lines(read: Callable[[Path], Iterator[Any]], out: Path) -> Iterator[dict[str, Any]]:
    for table in read(out):
        for line in table.to_pylist():
            yield {name: cell for name, cell in line.items() if name != "seconds"}


# latency ----------------------------------------------------------------------------------------


def latency(given: argparse.Namespace, work: Path) -> None:
    """Hold a batch against the floor that a fixed latency sets."""
    people = rejected(given.data, given.people or 8 * given.trees, work)
    replies = write_replies(people, work / "replies.json")
    workers = _sharing(given.trees, given.workers or cores())
    print(f"{people.about}; {given.method}, {given.calls} calls, {given.trees} trees, "
          f"{workers} workers, {given.servers} servers, {given.ms:g} ms", flush=True)  # fmt: skip
    with serving(replies, given.ms, given.servers) as servers:
        more = {**placement(given), "workers": workers}
        batch = Batch(people, work / "out", search(given, servers.llm), more)
        ran, stats = batch.run(), servers.stats()
    worked = batch.watcher.processor(stats.first, stats.last)
    _tell_latency(given, ran, stats, worked)


def _tell_latency(given: argparse.Namespace, ran: Ran, stats: Stats, worked: float) -> None:
    floor = stats.replies * given.ms / 1000 / given.trees
    at_floor, rate = given.trees / (given.ms / 1000), stats.replies / stats.seconds
    each, ratio = worked / max(ran.calls, 1), stats.seconds / floor
    print(f"calls                         {ran.calls:,} ({stats.replies:,} replies)\n"
          f"first request to last reply   {stats.seconds:.2f} s, {rate:,.0f} calls/s, "
          f"at most {stats.most_at_once} at once\n"
          f"whole run                     {ran.seconds:.2f} s\n"
          f"floor                         {floor:.2f} s, {at_floor:,.0f} calls/s\n"
          f"processor time of workers     {1000 * each:.2f} ms a call\n"
          f"cores that workers need       {at_floor * each:.1f} at the floor, "
          f"{at_floor * each / MOST_LATE:.1f} at twice that; here are {cores()}")  # fmt: skip
    verdict(ratio <= MOST_LATE, f"{ratio:.2f} × the floor (≤ 2)")


def _sharing(trees: int, workers: int) -> int:
    """Return how many workers, no more than these, have the same number of trees each."""
    return max(n for n in range(1, workers + 1) if trees % n == 0)


# flight -----------------------------------------------------------------------------------------


class Kept(Backend):
    """An LLM that several batches use one after the other, and that counts."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.name = inner.name
        self.form = inner.form
        self.parallel = inner.parallel
        self.begin()

    def begin(self) -> None:
        """Count from here."""
        self.first = self.replies = self.read = self.written = 0.0

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        # Workers ask it through the hub: to them it is a name.
        return str, (self.name,)

    async def complete(self, request: Request) -> Reply:
        """Ask."""
        self.first = self.first or time.monotonic()
        reply = await self.inner.complete(request)
        self.replies += 1
        self.read += reply.usage.tokens_in
        self.written += reply.usage.tokens_out
        return reply

    async def aclose(self) -> None:
        """Stay: there is another batch."""


@dataclass
class Size:
    """Figures of a number of trees: people done, and LLM calls."""

    people: int = 0
    seconds: float = 0.0
    calls_each: float = 0.0
    calls: float = 0.0
    read: float = 0.0
    written: float = 0.0


class Counted(Timed):
    """Counts how far a batch has come, and ends it when its time is over."""

    def __init__(self, kept: Kept | None, seconds: float | None) -> None:
        super().__init__()
        self.kept, self.most = kept, seconds
        self.size = Size()
        self.began = 0.0
        if kept is not None:
            kept.begin()

    def start(self, driver: Driver) -> None:
        """Keep the driver, and the time."""
        super().start(driver)
        self.began = time.monotonic()

    def watch(self, pace: BatchProgress) -> None:
        """Count, and stop the batch in time."""
        if self.size.seconds and self.most and self.size.seconds >= self.most:
            return
        began = self.kept.first if self.kept is not None else self.began
        self._note(pace, time.monotonic() - began if began else 0.0)
        if self.most and self.size.seconds >= self.most and self.driver is not None:
            self.driver.stop(f"{self.most:g} s are over")

    def _note(self, pace: BatchProgress, seconds: float) -> None:
        tally, kept = pace.tally, self.kept
        spent = tally.spent
        calls, read, written = spent.llm_calls, spent.tokens_in, spent.tokens_out
        each = calls / max(tally.people, 1)
        seen = (calls, read, written) if kept is None else (kept.replies, kept.read, kept.written)
        self.size = Size(tally.people, seconds, each, *seen)


FLIGHT = ("trees", "workers", "people", "seconds", "people/min", "calls each", "calls/s",
          "people/min by calls", "tokens/s read", "tokens/s written")  # fmt: skip


def flight(given: argparse.Namespace, work: Path) -> None:
    """Count people per minute, with more and more trees in flight."""
    sizes = [int(part) for part in given.trees.split(",")]
    people = rejected(given.data, max(_asked(given, trees) for trees in sizes), work)
    here = given.cluster == "local" and given.llm.partition(":")[0] in IN_MEMORY
    kept = Kept(connect(given.llm)) if here else None
    print(f"{given.llm}; {people.about}; {given.method}, {given.calls} calls")
    began = time.monotonic()
    _flown(given, people, kept, work / "first", 1, {"calls": 1})  # loads the model
    loaded = getattr(kept.inner, "loaded", "") if kept else ""
    print(f"first reply after {time.monotonic() - began:.0f} s {loaded}\n")
    print("| " + " | ".join(FLIGHT) + " |\n" + "|---" * len(FLIGHT) + "|", flush=True)
    for trees in sizes:
        size = _flown(given, people, kept, work / f"{trees}", trees, {})
        workers = _sharing(trees, given.workers or cores())
        print(_flight_line(trees, workers, size, given.calls), flush=True)
    if kept is not None:
        asyncio.run(kept.inner.aclose())


def _asked(given: argparse.Namespace, trees: int) -> int:
    return max(int(given.people_per_tree * trees), 4)


def _flown(
    given: argparse.Namespace, people: People, kept: Kept | None, out: Path, trees: int,
    other: Mapping[str, Any],
) -> Size:  # fmt: skip
    options = {**search(given, given.llm), **({"llm": kept} if kept else {}), **other}
    limit = _asked(given, trees) if not other else 1
    heard = Counted(kept, given.seconds if not other else None)
    workers = _sharing(trees, given.workers or cores())
    more = {"in_flight": trees, "workers": workers, "cluster": given.cluster}
    run_batch(wanted(people, out, options, limit=limit, **more),
              on_start=heard.start, on_progress=heard.watch)  # fmt: skip
    return heard.size


def _flight_line(trees: int, workers: int, size: Size, most_calls: int) -> str:
    seconds = size.seconds or float("nan")
    # Those who have begun and not ended are in the calls, and not among the people.
    by_calls = 60 * size.calls / seconds / (size.calls_each or most_calls)
    cells = [
        str(trees), str(workers), f"{size.people:,}", f"{size.seconds:.0f}",
        f"{60 * size.people / seconds:.1f}", f"{size.calls_each:.1f}",
        f"{size.calls / seconds:.1f}", f"{by_calls:.1f}", f"{size.read / seconds:,.0f}",
        f"{size.written / seconds:,.0f}",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


# against ----------------------------------------------------------------------------------------


def against(given: argparse.Namespace, work: Path) -> None:
    """Compare people a minute with those of another checkout, by turns and without an LLM."""
    code = {"here": Path(__file__).resolve().parents[1] / "src", "there": given.other.resolve()}
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in code}
    print(f"{'turn':>4} {'code':>6} {'people':>7} {'a minute':>9} {'a minute of processor':>22}")
    for turn in range(given.turns):
        for name in sorted(code, reverse=bool(turn % 2)):
            people, seconds, worked = _command(given, code[name], work / f"{name}-{turn}")
            rates[name].append((60 * people / seconds, 60 * people / worked))
            print(f"{turn:4} {name:>6} {people:7,} {rates[name][-1][0]:9.1f} "
                  f"{rates[name][-1][1]:22.1f}", flush=True)  # fmt: skip
    ratios = [median(rate[i] for rate in rates["here"]) / median(rate[i] for rate in rates["there"])
              for i in range(2)]  # fmt: skip
    # Of processor time, because whoever else is busy on the machine takes minutes, and not those.
    verdict(ratios[1] >= LEAST_AGAINST, f"{ratios[1]:.2f} × the people a minute of processor time "
            f"there (≥ 0.95); {ratios[0]:.2f} × a minute")  # fmt: skip


def _command(given: argparse.Namespace, code: Path, out: Path) -> tuple[int, float, float]:
    """Run the command; return the people searched for, its seconds and those of processors."""
    words = ["--data", given.data, "--limit", str(given.rows), "--calls", "0", "--json"]
    words += ["--workers", str(given.workers or cores()), "--out", str(out)]
    before, began = _worked(), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "waysout", "batch", *words],
        env={**os.environ, "PYTHONPATH": str(code)},
        capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    people = int(json.loads(done.stdout)["searched"])
    return people, time.monotonic() - began, _worked() - before


def _worked() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# The command line -------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """Return what can be asked for."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = made.add_subparsers(dest="what", required=True)
    usual = {"calls": 6, "oracle-rows": 60, "data": "synthetic", "method": "recombine"}
    trees = ("trees", int, "searched for at once")
    _add(commands, flat, usual | {"data": "adult"}, {"rows": 10_000, "few": 1_000}, trees)
    _add(commands, equal, usual, {"rows": 300}, trees)
    tree = {"calls": 30, "oracle-rows": 0, "data": "synthetic", "method": "comp-mcts"}
    _add(commands, latency, tree, {"trees": 256, "ms": 50.0, "people": 0, "servers": 1})
    flown = _add(commands, flight, usual, {"trees": "1,30,120,480", "people-per-tree": 4.0})
    flown.add_argument("--llm", required=True)
    flown.add_argument("--seconds", type=float, help="how long with each number of trees")
    other = commands.add_parser("against", help=against.__doc__)
    other.add_argument("--other", type=Path, required=True, help="the src folder of a checkout")
    for name, kind, value in (("data", str, "synthetic"), ("rows", int, 200), ("turns", int, 3)):
        other.add_argument(f"--{name}", type=kind, default=value, help=f"{value}")
    other.add_argument("--workers", type=int, help="the default: as many as there are cores")
    other.set_defaults(do=against, work=None)
    commands.add_parser("one").add_argument("spec", type=json.loads)
    return made


def _add(
    commands: Any, what: Callable[..., None], search: Mapping[str, Any], own: Mapping[str, Any],
    *none: tuple[str, type, str],
) -> argparse.ArgumentParser:  # fmt: skip
    made: argparse.ArgumentParser = commands.add_parser(what.__name__, help=what.__doc__)
    for name, usual in {**search, **own}.items():
        made.add_argument(f"--{name}", type=type(usual), default=usual, help=f"{usual}")
    for name, kind, told in none:
        made.add_argument(f"--{name}", type=kind, help=told)
    made.add_argument("--workers", type=int, help="the default: as many as there are cores")
    made.add_argument("--cluster", choices=["local", "ray"], default="local")
    made.add_argument("--work", type=Path, help="a new folder that is kept")
    made.set_defaults(do=what)
    return made


def main(words: Sequence[str] | None = None) -> None:
    """Run one of the measurements."""
    given = parser().parse_args(words)
    if given.what == "one":
        run_here(given.spec)
        return
    with tempfile.TemporaryDirectory() as folder:
        work = given.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        given.do(given, work)


if __name__ == "__main__":
    main()
