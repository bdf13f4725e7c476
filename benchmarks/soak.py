"""A soak of `serve` and `batch` under faults: memory stays level, no row is lost.

    .venv/bin/python benchmarks/soak.py --minutes 10 --seed 0

`waysout serve` answers decisions, searches, event streams that are cut, and bad requests, on a
model that raises, panics, answers nonsense, is slow or hangs at random, with an LLM server that
fails at random too. Meanwhile one process runs batch after batch over the same people, whose
workers are killed now and then. Some people's rows fail each time: these people must be failed.
Everyone else must get what they get of the untroubled model, unless their search met a fault and
says so.

It prints the resident memory of the server and of the driver of the batches in the first and in the
last third of the time after the warm-up, and exits with 1 on a lost or a wrong row, a status of
500, memory that grew by more than 15 %, or a server that does not say that it is well.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soak_load import BadLLM, Load, QuietServer

from waysout.batch.run import BatchRequest, run_batch
from waysout.batch.tables import options, people
from waysout.datasets import registry
from waysout.datasets.table import open_stream
from waysout.run.source import Source, Trust

ROW_SECONDS = 2.0
PEOPLE, MARKED, POOL, PART_ROWS, ORACLE_ROWS = 240, 12, 40, 20, 24
# Searches begin with a few of the people: the rows that are remembered are then few, too.
SAMPLE_SECONDS, WARM_UP, MOST_GROWTH = 5.0, 0.15, 1.15
WAYSOUT = Path(sys.executable).with_name("waysout")

MODEL = '''
import json, multiprocessing, os, random, threading, time
from math import exp, nan
from pathlib import Path

MARKED, ROW_SECONDS = json.loads((Path(__file__).parent / "marked.json").read_text())
RATE = float(os.environ.get("SOAK_RATE", "0"))
# The driver of a batch tries the model once for all: what it sees there is no fault of a person.
TROUBLED = RATE and (multiprocessing.parent_process() is not None or "SOAK_SERVE" in os.environ)
rng = random.Random(f"{os.environ.get('SOAK_SEED')} {os.getpid()}")

class PanicException(BaseException):
    """As Rust libraries raise through pyo3."""

def chance(row):
    score = row["credit_score"] / 850 + row["savings"] / 65_000 - row["card_use"] - 0.7
    return 1 / (1 + exp(-4 * score))

def spin():
    until = time.monotonic() + 5 * ROW_SECONDS
    while time.monotonic() < until:
        pass

def go_wrong(kind, found):
    if kind == "raises":
        raise ValueError("at random")
    if kind == "panics":
        raise PanicException("at src/lib.rs:7")
    if kind == "exits":
        raise SystemExit(3)
    if kind == "nonsense":
        return rng.choice([None, [nan] * len(found), found[:-1], [1.5] * len(found)])
    if kind == "slow":
        time.sleep(0.1 * ROW_SECONDS)
    if kind == "hangs":
        time.sleep(5 * ROW_SECONDS)
    if kind == "spins":
        spin()
    return found

KINDS = ["raises", "panics", "exits", "nonsense", "slow", "hangs", "spins"]
WEIGHTS = [20, 20, 10, 20, 24, 4, 2]

def score(rows):
    found = [chance(row) for row in rows]
    for row in rows:
        if TROUBLED and json.dumps(row) in MARKED:
            return go_wrong(MARKED[json.dumps(row)], found)
    if TROUBLED and rng.random() < RATE:
        return go_wrong(rng.choices(KINDS, WEIGHTS)[0], found)
    return found
'''
ALWAYS = ("raises", "panics", "exits", "nonsense", "hangs")
"""What the rows of the marked people do to the model."""


@dataclass
class World:
    """The people, of whom some are marked, and where everything is."""

    folder: Path
    seed: int
    rows: list[dict[str, Any]]
    marked: set[int]

    @property
    def env(self) -> dict[str, str]:
        """The environment of every process."""
        return os.environ | {"SOAK_SEED": str(self.seed), "WAYSOUT_RUNS": str(self.folder / "runs")}


def make_world(folder: Path, seed: int) -> World:
    """Write the model and the table."""
    (folder / "soaked.py").write_text(MODEL, encoding="utf-8")
    (folder / "marked.json").write_text(json.dumps([{}, ROW_SECONDS]), encoding="utf-8")
    sys.path.insert(0, str(folder))
    import soaked

    card, table = registry.card("synthetic"), open_stream(registry.get("synthetic"))
    records = [*table]
    typed = [card.schema.raw(card.schema.parse(record)) for record in records]
    chosen = [i for i, row in enumerate(typed) if soaked.chance(row) < 0.5][:PEOPLE]
    marked = set(random.Random(seed).sample(range(len(chosen)), MARKED))
    rest = [i for i in range(len(records)) if i not in chosen][:400]
    for name, those in (("people", chosen), ("training", rest)):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as text:
            lines = csv.DictWriter(text, table.columns)
            lines.writeheader()
            lines.writerows(records[i] for i in those)
    rows = [typed[i] for i in chosen]
    told = {json.dumps(rows[i]): ALWAYS[n % len(ALWAYS)] for n, i in enumerate(sorted(marked))}
    (folder / "marked.json").write_text(json.dumps([told, ROW_SECONDS]), encoding="utf-8")
    return World(folder, seed, rows, marked)


# Batches, in a process of their own -------------------------------------------------------------


def run_batches(folder: str, said: Any) -> None:
    """Run batches for ever: the first untroubled, and tell what came of each."""
    place = Path(folder)
    wanted, _ = table_of(place, place / "first")
    said.send(("wanted", len(wanted), ""))
    os.environ["SOAK_RATE"] = os.environ["SOAK_BATCH_RATE"]
    number = 0
    while True:
        out, number = place / f"batch-{number}", number + 1
        try:
            found, is_steady = table_of(place, out)
        except Exception as error:
            said.send(("error", number, f"{type(error).__name__}: {error}"))
            continue
        finally:
            shutil.rmtree(out, ignore_errors=True)
        said.send(("batch", *compare(wanted, found, place, is_steady)))


def table_of(folder: Path, out: Path) -> tuple[dict[int, Any], bool]:
    """Run a batch; return each person's row and ways, without times, and if it was steady."""
    source = Source(
        str(folder / "people.csv"), "synthetic", "soaked:score", inputs="dicts",
        folder=str(folder), row_seconds=ROW_SECONDS,
    )  # fmt: skip
    request = BatchRequest(
        source, out, {"calls": 0, "oracle_rows": ORACLE_ROWS, "seed": 0}, Trust(named=True),
        training=str(folder / "training.csv"), workers=2, part_rows=PART_ROWS,
    )  # fmt: skip
    _, ended = run_batch(request)
    if ended.stopped or ended.left:
        raise RuntimeError(f"the batch stopped: {ended.stopped}")
    found: dict[int, Any] = {}
    for rows in (people(out), options(out)):
        for table in rows:
            for row in table.to_pylist():
                for name in ("seconds", "setup_rows"):  # a resumed part asks each row once more
                    row.pop(name, None)
                found.setdefault(row["row_id"], []).append(row)
    manifest = json.loads((out / "_manifest.json").read_text(encoding="utf-8"))
    return found, bool(manifest["probed"]["stable"])


def compare(
    wanted: dict[int, Any], found: dict[int, Any], folder: Path, is_steady: bool
) -> tuple[Counter[str], list[str]]:
    """Count the people of a batch by what became of them; tell of those who are wrong.

    Where a fault came while the model was asked again on trial, nobody knows whether it wavers, so
    what is found is asked again (`stable`).
    """
    marked = set(json.loads((folder / "marked rows.json").read_text(encoding="utf-8")))
    counts: Counter[str] = Counter()
    wrong = []
    if not is_steady:
        counts["batches on trial in doubt"] += 1
        wanted, found = undoubted(wanted), undoubted(found)
    for i, rows in wanted.items():
        if i not in found:
            counts["lost"] += 1
        elif found[i][0]["outcome"] == "failed":
            counts["failed, marked" if i in marked else "failed"] += 1
        elif i in marked or found[i] != rows:
            counts["wrong"] += 1
            wrong.append(f"person {i}: {found[i][0]!s:.300} instead of {rows[0]!s:.300}")
        else:
            counts["same"] += 1
    counts["lost"] += len(found.keys() - wanted.keys())
    return counts, wrong


def undoubted(table: dict[int, Any]) -> dict[int, Any]:
    """Leave out what is said only of a model that was in doubt on trial, unless it is a no."""
    return {
        i: [{k: v for k, v in row.items() if k != "stable" or v is False} for row in rows]
        for i, rows in table.items()
    }


def children(pid: int) -> list[int]:
    """Return the worker processes of the driver of a batch."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            line = (stat.parent / "cmdline").read_bytes()
            if parent == pid and b"spawn_main" in line:
                found.append(int(stat.parent.name))
    return found


# The server --------------------------------------------------------------------------------------


@contextmanager
def server(world: World, rate: float, llm: int) -> Iterator[tuple[int, int]]:
    """Run `waysout serve`; yield its process and its port."""
    line = [str(WAYSOUT), "serve", "--data", "training.csv", "--card", "synthetic", "--model",
            "soaked:score", "--inputs", "dicts", "--row-seconds", f"{ROW_SECONDS:g}", "--port", "0",
            "--llm", f"openai:m@http://127.0.0.1:{llm}/v1?seconds=5", "--calls", "3"]  # fmt: skip
    env = world.env | {"SOAK_RATE": str(rate), "SOAK_SERVE": "1"}
    process = subprocess.Popen(line, cwd=world.folder, env=env, text=True,
                               stderr=subprocess.STDOUT, stdout=subprocess.PIPE)  # fmt: skip
    assert process.stdout is not None
    said = []
    try:
        for text in process.stdout:
            said.append(text)
            ports = [int(port) for port in re.findall(r"http://127\.0\.0\.1:(\d+)", text)]
            if ports and ports[0] != llm:  # it tells where the LLM is, too
                break
        else:
            raise SystemExit(f"the server did not start: {''.join(said)[-500:]}")
        threading.Thread(target=drain, args=[process.stdout], daemon=True).start()
        yield process.pid, ports[0]
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()


def drain(lines: Any) -> None:
    """Pass on what the server says of tracebacks, and nothing else."""
    for line in lines:
        if "Traceback" in line or "Error" in line:
            print(f"  server: {line.rstrip():.300}", flush=True)


# The soak ---------------------------------------------------------------------------------------


def resident(pid: int) -> float:
    """Return the resident memory of a process, in MB."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def level(samples: list[float]) -> tuple[float, float, bool]:
    """Return the medians of the first and the last third after the warm-up, and if it is level."""
    warm = samples[int(WARM_UP * len(samples)) :]
    third = max(1, len(warm) // 3)
    first, last = statistics.median(warm[:third]), statistics.median(warm[-third:])
    return first, last, last <= MOST_GROWTH * first


@dataclass
class Batches:
    """What the process that runs batches told."""

    counts: Counter[str] = field(default_factory=Counter)
    done: int = 0
    killed: int = 0
    faults: list[str] = field(default_factory=list)

    def take(self, said: Any) -> None:
        """Take in what it said by now."""
        while said.poll():
            kind, counts, more = said.recv()
            if kind == "error":
                self.faults.append(more)
            elif kind == "batch":
                print(f"  batch {self.done}: {dict(counts)}", flush=True)
                self.done += 1
                self.counts += counts
                self.faults += more


def soak(world: World, minutes: float, rate: float) -> tuple[Load, Batches, dict[str, list[float]]]:
    """Run everything side by side, and take samples."""
    llm = QuietServer(("127.0.0.1", 0), BadLLM)
    threading.Thread(target=llm.serve_forever, daemon=True).start()
    os.environ |= {"SOAK_SEED": str(world.seed), "SOAK_BATCH_RATE": str(rate / 4)}
    marked = world.folder / "marked rows.json"
    marked.write_text(json.dumps(sorted(world.marked)), encoding="utf-8")
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    driver = context.Process(target=run_batches, args=(str(world.folder), theirs))
    driver.start()
    assert driver.pid is not None
    rng, batches = random.Random(world.seed), Batches()
    samples: dict[str, list[float]] = {"serve": [], "batch driver": []}
    with server(world, rate, llm.server_port) as (pid, port):
        load = Load(world.rows[:POOL], world.seed, port, time.monotonic() + 60 * minutes)
        clients = [(load.decide, 0.3, "decide"), (load.search, 0.5, "search 1"),
                   (load.search, 0.5, "search 2"), (load.search, 0.5, "search 3"),
                   (load.be_bad, 0.5, "bad"), (load.check_health, 2.0, "health")]  # fmt: skip
        threads = [threading.Thread(target=load.run, args=client) for client in clients]
        for thread in threads:
            thread.start()
        while time.monotonic() < load.until and driver.is_alive():
            time.sleep(SAMPLE_SECONDS)
            samples["serve"].append(resident(pid))
            samples["batch driver"].append(resident(driver.pid))
            batches.take(ours)
            if batches.done and rng.random() < 0.15 and (workers := children(driver.pid)):
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(workers), signal.SIGKILL)
                    batches.killed += 1
        for thread in threads:
            thread.join()
        if not resident(pid):
            load.faults.append("the server ended")
    if not driver.is_alive():
        batches.faults.append(f"the driver ended: {driver.exitcode}")
    batches.take(ours)
    driver.kill()
    driver.join()
    llm.shutdown()
    return load, batches, samples


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.02, help="share of calls that go wrong")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        world = make_world(Path(folder), given.seed)
        load, batches, samples = soak(world, given.minutes, given.rate)
    faults = [*load.faults, *batches.faults]
    print("requests:", ", ".join(f"{n:,} {status}" for status, n in sorted(load.statuses.items())))
    print("searches:", ", ".join(f"{n:,} {how}" for how, n in sorted(load.outcomes.items())))
    print(f"health answered within {load.slowest_health:.2f} s")
    people_told = ", ".join(f"{n:,} {how}" for how, n in sorted(batches.counts.items()))
    print(f"batches: {batches.done}, {batches.killed} workers killed; people: {people_told}")
    for name, taken in samples.items():
        first, last, is_level = level(taken)
        print(f"memory of {name}: {first:.0f} MB in the first third, {last:.0f} MB in the last")
        faults += [] if is_level else [f"the memory of {name} grew"]
    faults += [f"{batches.counts['lost']} rows lost"] if batches.counts["lost"] else []
    faults += [] if batches.done else ["no batch was done"]
    print(*[f"FAULT {fault}" for fault in faults[:30]], f"{len(faults)} faults", sep="\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
