"""A model that goes wrong on one person's row: that person fails within the limit, and alone.

    .venv/bin/python benchmarks/troubled_models.py [--only hangs,panics] [--places find,serve]

The model answers everybody by a formula, and on the very row of one person it hangs, panics,
exits, crashes, lies, is slow or answers nonsense. It is asked by `find`, by `batch` (local workers,
Ray, and one that tries the model on that row first) and by `serve`. That person's search
must fail within the limit of a call (row_seconds, and a hundredth of it for each row of the batch;
a batch first asks a whole part, then its rows alone), and what everybody else gets must be what
they get of the untroubled model, to the last byte but for seconds.

No process survives a crash, and none answers while a call holds the interpreter's lock. There a
worker of a batch, or the process of its trial, is replaced, and that person fails alone; `find` and
`serve` end (or must be killed), and what they had must be on file: the same command on the mended
model goes on, and ends as if nothing had happened. It exits with 1 on anything else.
"""

from __future__ import annotations

import argparse
import csv
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from waysout.batch.run import BatchRequest, run_batch
from waysout.batch.tables import options, people
from waysout.datasets import registry
from waysout.datasets.table import open_stream
from waysout.oracles.watchdog import batch_seconds
from waysout.run.source import Source, Trust

ROW_SECONDS = 2.0
SILENT_SECONDS = 3.0
"""Instead of the half minute that a worker may be silent for beyond the limit of its calls."""
TRIES = 4
"""How often a part is tried whose worker dies each time with the same person."""
PART_ROWS, OTHERS, TRAINING, ORACLE_ROWS = 3, 9, 120, 24
SLACK = 30.0
"""Seconds that a busy machine may take for everything but the model."""
WAYSOUT = Path(sys.executable).with_name("waysout")

MODEL = '''
import ctypes, json, os, re, sys, threading, time
from math import exp, inf, nan
from pathlib import Path

PERSON, ROW_SECONDS = json.loads((Path(__file__).parent / "person.json").read_text())
MENDED = "TROUBLED_MENDED" in os.environ
asked = {}

class PanicException(BaseException):
    """As Rust libraries raise through pyo3."""

def chance(row):
    score = row["credit_score"] / 850 + row["savings"] / 65_000 - row["card_use"] - 0.7
    return 1 / (1 + exp(-4 * score))

def troubled(act):
    def score(rows):
        found = [chance(row) for row in rows]
        if PERSON in rows and not MENDED:
            return act(found, rows.index(PERSON))
        return found
    return score

def answering(value):
    return troubled(lambda found, i: [*found[:i], value, *found[i + 1:]])

def raising(error):
    def act(found, i):
        raise error
    return troubled(act)

def spin(found, i):
    while True:
        pass

def spin_on(found, i):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass

def lie(found, i):
    asked[0] = asked.get(0, 0) + 1
    return [*found[:i], (0.2, 0.9, 0.4, 0.7)[asked[0] % 4], *found[i + 1:]]

def wavers(rows):
    found = [chance(row) for row in rows]
    for i, row in enumerate(rows):
        key = tuple(row.values())
        asked[key] = asked.get(key, 0) + 1
        if asked[key] % 2 == 0 and not MENDED:
            found[i] = 1 - found[i]
    return found

well = troubled(lambda found, i: found)
slow = troubled(lambda found, i: time.sleep(0.4 * ROW_SECONDS) or found)
hangs = troubled(lambda found, i: threading.Event().wait())
sleeps = troubled(lambda found, i: time.sleep(10**6))
spins, spins_on = troubled(spin), troubled(spin_on)
holds_the_lock = troubled(lambda found, i: ctypes.PyDLL(None).sleep(10**6))
expression = troubled(lambda found, i: re.match("(a+)+$", "a" * 60 + "b"))
raises, panics = raising(ValueError("no")), raising(PanicException("at src/lib.rs:7"))
exits, interrupts = raising(SystemExit(3)), raising(KeyboardInterrupt())
stops, recurs = raising(StopIteration()), raising(RecursionError("deep"))
no_memory, generator_exit = raising(MemoryError()), raising(GeneratorExit())
aborts = troubled(lambda found, i: os.abort())
faults = troubled(lambda found, i: ctypes.string_at(0))
leaves = troubled(lambda found, i: os._exit(0))
lies = troubled(lie)
shorter, longer = troubled(lambda found, i: found[:-1]), troubled(lambda found, i: [*found, 0.5])
nested = troubled(lambda found, i: [[[p]] for p in found])
nothing = troubled(lambda found, i: None)
not_a_number, none, text = answering(nan), answering(None), answering("maybe")
imaginary, infinite, beyond, below = (
    answering(0.7 + 0.1j), answering(inf), answering(1.5), answering(-0.1))
'''

FAILS, ENDS, HOLDS, WAVERS, WELL = "fails", "ends", "holds", "wavers", "well"
TROUBLES = {
    "slow": WELL, "hangs": FAILS, "sleeps": FAILS, "spins": FAILS, "spins_on": FAILS,
    "holds_the_lock": HOLDS, "expression": HOLDS, "raises": FAILS, "panics": FAILS, "exits": FAILS,
    "interrupts": FAILS, "stops": FAILS, "recurs": FAILS, "no_memory": FAILS,
    "generator_exit": FAILS, "aborts": ENDS, "faults": ENDS, "leaves": ENDS, "lies": WAVERS,
    "wavers": WAVERS, "shorter": FAILS, "longer": FAILS, "nested": FAILS,
    "nothing": FAILS, "not_a_number": FAILS, "none": FAILS, "text": FAILS, "imaginary": FAILS,
    "infinite": FAILS, "beyond": FAILS, "below": FAILS,
}  # fmt: skip
"""What is wrong with the model, and what must come of it; ENDS and HOLDS end a process."""

Outcomes = dict[str, Any]


# People -----------------------------------------------------------------------------------------


@dataclass
class World:
    """The people, the model that knows one of them, and what comes of it where it is well."""

    folder: Path
    person: dict[str, Any]
    other: dict[str, Any]
    well: dict[str, Outcomes] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def place(self, name: str) -> Path:
        """Return a folder for one cell."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / name).mkdir()
        return self.folder / name


def make_world(folder: Path) -> World:
    """Write the model, the table of a batch (which has the person) and one that has not."""
    (folder / "troubled.py").write_text(MODEL, encoding="utf-8")
    (folder / "person.json").write_text(json.dumps([{}, ROW_SECONDS]), encoding="utf-8")
    with folder_on_path(folder):
        import troubled
    card, table = registry.card("synthetic"), open_stream(registry.get("synthetic"))
    records = [*table]
    typed = [card.schema.raw(card.schema.parse(record)) for record in records]
    rejected = [i for i, row in enumerate(typed) if troubled.chance(row) < 0.5]
    person = rejected[0]
    # Nobody else is of the person's age, which cannot change: no search meets the person's rows.
    others = [i for i in rejected if typed[i]["age"] != typed[person]["age"]][:OTHERS]
    rest = [i for i, row in enumerate(typed)
            if i not in others and row["age"] != typed[person]["age"]][:TRAINING]  # fmt: skip
    asked = [*others[: OTHERS // 2], person, *others[OTHERS // 2 :]]
    for name, chosen in (("people", asked), ("training", rest)):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as text:
            lines = csv.DictWriter(text, table.columns)
            lines.writeheader()
            lines.writerows(records[i] for i in chosen)
    told = [typed[person], ROW_SECONDS]
    (folder / "person.json").write_text(json.dumps(told), encoding="utf-8")
    return World(folder, typed[person], typed[others[0]])


@contextmanager
def folder_on_path(folder: Path) -> Iterator[None]:
    """Import from a folder."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def timeless(found: Any) -> Any:
    """Return a document without times, names of models and files."""
    left_out = ("seconds", "oracle", "model", "run", "id", "created", "when")
    if isinstance(found, dict):
        return {name: timeless(value) for name, value in found.items() if name not in left_out}
    return [timeless(value) for value in found] if isinstance(found, list) else found


def command(world: World, what: str, *more: str) -> list[str]:
    """Return a command of Waysout on a model."""
    return [str(WAYSOUT), *what.split(), "--data", "training.csv", "--card", "synthetic",
            "--inputs", "dicts", "--row-seconds", f"{ROW_SECONDS:g}", *more]  # fmt: skip


def environment(world: World, *, mended: bool = False) -> dict[str, str]:
    """Return the environment of a command: its runs are kept in the folder."""
    named = {"WAYSOUT_RUNS": str(world.folder / "runs")}
    return os.environ | named | ({"TROUBLED_MENDED": "1"} if mended else {})


def ran(
    world: World, line: list[str], seconds: float, *, mended: bool = False
) -> tuple[int | None, str, str]:
    """Run a command; return its exit status (None if it had to be killed) and what it printed."""
    process = subprocess.Popen(
        line, cwd=world.folder, env=environment(world, mended=mended), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=seconds)
        return process.returncode, out, err
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return None, out, err


# Places -----------------------------------------------------------------------------------------


@dataclass
class Cell:
    """What one model did in one place: what was wrong about it, and how long the person took."""

    seconds: float = 0.0
    ended: bool = False
    """Whether the process ended, or had to be ended."""
    wrong: list[str] = field(default_factory=list)
    said: str = ""

    def check(self, holds: bool, otherwise: str) -> None:
        """Note what does not hold."""
        if not holds:
            self.wrong.append(otherwise[:300])


def find(world: World, trouble: str, cell: Cell) -> Outcomes:
    """Search for the person and for another by `waysout find`."""
    place, limit = world.place("find"), batch_seconds(1, ROW_SECONDS)
    found: Outcomes = {}
    for name, row in (("person", world.person), ("other", world.other)):
        (place / f"{name}.json").write_text(json.dumps(row), encoding="utf-8")
        line = command(world, "find", "--model", f"troubled:{trouble}", "--json-row",
                       str(place / f"{name}.json"), "--calls", "0", "--oracle-rows",
                       str(ORACLE_ROWS), "--run", str(place / f"{name}.db"), "--json")  # fmt: skip
        began = time.monotonic()
        code, out, err = ran(world, line, 2 * limit + SLACK)
        seconds = time.monotonic() - began
        if name == "person":
            cell.seconds = seconds
        if code is None or code < 0 or (TROUBLES.get(trouble) == ENDS and not out):
            cell.ended, cell.said = True, "had to be killed" if code is None else f"exit {code}"
            code, out, err = ran(world, line, 2 * limit + SLACK, mended=True)
            cell.check(code == 0, f"{name} cannot be resumed: {code} {err[-200:]}")
        try:
            found[name] = json.loads(out)
        except ValueError:
            cell.check(False, f"{name}: no document, exit {code}: {err[-200:]}")
    return found


def batch(
    world: World, trouble: str, cell: Cell, cluster: str = "local", tried_on: str = "training"
) -> Outcomes:
    """Run a batch in this process, whose model is tried on others."""
    out = world.place(f"batch-{cluster}-{tried_on}") / "ways"
    source = Source(
        str(world.folder / "people.csv"), "synthetic", f"troubled:{trouble}", inputs="dicts",
        folder=str(world.folder), row_seconds=ROW_SECONDS,
    )  # fmt: skip
    request = BatchRequest(
        source, out, {"calls": 0, "oracle_rows": ORACLE_ROWS, "seed": 0}, Trust(named=True),
        training=str(world.folder / f"{tried_on}.csv"), cluster=cluster,  # type: ignore[arg-type]
        workers=2, part_rows=PART_ROWS,
    )  # fmt: skip
    sys.modules.pop("troubled", None)  # it counts what it was asked
    began = time.monotonic()
    with (
        patch("waysout.batch.executor.SILENT_SECONDS", SILENT_SECONDS),
        patch("waysout.batch.apart.SILENT_SECONDS", SILENT_SECONDS),
    ):
        _, ended = run_batch(request)
    cell.seconds = time.monotonic() - began
    cell.check(not ended.stopped and not ended.left, f"the batch stopped: {ended.stopped}")
    return table_of(out)


def on_ray(world: World, trouble: str, cell: Cell) -> Outcomes:
    """Run a batch on the Ray instance of this run."""
    return batch(world, trouble, cell, "ray")


def tried(world: World, trouble: str, cell: Cell) -> Outcomes:
    """Run a batch whose model is tried on that very person first."""
    return batch(world, trouble, cell, tried_on="people")


def table_of(out: Path) -> Outcomes:
    """Return what a batch found, by person: the first rejected half is before the person."""
    persons = [row for table in people(out) for row in table.to_pylist()]
    for row in persons:  # a part whose worker died asks about each person once more
        del row["setup_rows"]
    found = [row for table in options(out) for row in table.to_pylist()]
    return {
        "person" if i == OTHERS // 2 else f"other {i}": {
            **row, "ways": [way for way in found if way["row_id"] == row["row_id"]]
        }
        for i, row in enumerate(persons)
    }  # fmt: skip


def serve(world: World, trouble: str, cell: Cell) -> Outcomes:
    """Decide about the person and search, then the same for another, all by one server."""
    shutil.rmtree(world.folder / "runs", ignore_errors=True)
    found: Outcomes = {}
    with server(world, trouble) as service:
        try:
            _ask_server(service, world, found, cell)
            return found
        except (OSError, http.client.HTTPException) as error:
            cell.ended, cell.said = True, f"{type(error).__name__}; exit {service.process.poll()}"
    with server(world, trouble, mended=True) as service:
        if "other" in found:  # what it had found is there after a restart
            kept = service.ask("GET", f"/api/searches/{found['other id']}/result.json")
            had = [way["row"] for way in found["other"]["options"]]
            now = [way["row"] for way in kept.get("options", ())]
            cell.check(all(row in now for row in had), f"an earlier search is lost: {kept!s:.200}")
        _ask_server(service, world, found, cell)
    return found


def _ask_server(service: Server, world: World, found: Outcomes, cell: Cell) -> None:
    # A search by another beforehand: is it there after a restart?
    order = (("other", world.other), ("person", world.person), ("other after", world.other))
    for name, row in order:
        began = time.monotonic()
        decided = service.ask("POST", "/api/problems/synthetic/decide", {"row": row})
        decided_in = time.monotonic() - began
        made = service.ask("POST", "/api/searches", {"problem": "synthetic", "row": row, "calls": 0,
                                                     "oracle_rows": ORACLE_ROWS})  # fmt: skip
        view = service.ended(made["id"])
        if name == "person":
            cell.seconds = time.monotonic() - began
            limit = batch_seconds(1, ROW_SECONDS) + SLACK
            cell.check(decided_in < limit, f"a decision took {decided_in:.1f} s")
            found["decided"] = decided
        result = service.ask("GET", f"/api/searches/{made['id']}/result.json")
        found[name] = timeless(result) if "outcome" in result else {"outcome": view.get("outcome")}
        found[f"{name} id"] = made["id"]
    cell.check(service.ask("GET", "/api/health").get("status") == "ok", "it is not in health")


@dataclass
class Server:
    """A server, and questions to it."""

    process: subprocess.Popen[str]
    port: int

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request and return its JSON, with the status where it is an error."""
        patience = batch_seconds(1, ROW_SECONDS) + SLACK
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        found = json.loads(text) if text else {}
        return found if answer.status < 400 else {"status": answer.status, "error": found}

    def ended(self, id: str) -> Any:
        """Wait for the end of a search; return it."""
        until = time.monotonic() + 3 * batch_seconds(1, ROW_SECONDS) + 2 * SLACK
        while (view := self.ask("GET", f"/api/searches/{id}"))["status"] == "running":
            if time.monotonic() > until:
                raise TimeoutError(f"a search did not end: {view}")
            time.sleep(0.05)
        return view


@contextmanager
def server(world: World, trouble: str, *, mended: bool = False) -> Iterator[Server]:
    """Run `waysout serve` on a free port."""
    line = command(world, "serve", "--model", f"troubled:{trouble}", "--port", "0")
    process = subprocess.Popen(
        line, cwd=world.folder, env=environment(world, mended=mended), text=True,
        stderr=subprocess.STDOUT, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    said = []
    try:
        for text in process.stdout:
            said.append(text)
            if named := re.search(r"http://127\.0\.0\.1:(\d+)", text):
                threading.Thread(target=process.stdout.read, daemon=True).start()
                yield Server(process, int(named[1]))
                return
        raise SystemExit(f"the server did not start: {''.join(said)[-500:]}")
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()


PLACES: dict[str, Callable[[World, str, Cell], Outcomes]] = {
    "find": find, "batch": batch, "ray": on_ray, "tried": tried, "serve": serve,
}  # fmt: skip


# Verdicts ---------------------------------------------------------------------------------------


def judge(world: World, trouble: str, place: str) -> Cell:
    """Run a model in a place, and hold what came of it against what must."""
    cell, kind = Cell(), TROUBLES.get(trouble, WELL)
    try:
        found = PLACES[place](world, trouble, cell)
    except Exception as error:
        cell.check(False, f"{type(error).__name__}: {error}")
        return cell
    if trouble == "well":
        world.well[place], world.seconds[place] = found, cell.seconds
        return cell
    wanted, dies = world.well[place], kind in (ENDS, HOLDS)
    recovers = place in ("batch", "ray", "tried")
    cell.check(cell.ended is (dies and not recovers), f"the process: {cell.said or 'lived'}")
    # Where the trial has seen it, everybody's options say so.
    wavers = trouble == "wavers" or (kind == WAVERS and place == "tried")
    names = [name for name in wanted if name.startswith("other") and not name.endswith("id")]
    for name in names:
        same = timeless(found.get(name)) == timeless(wanted[name])
        cell.check(same or wavers, f"{name} differs: {found.get(name)!s:.200}")
    person = found.get("person", {})
    if kind == WELL or cell.ended:
        cell.check(timeless(person) == timeless(wanted["person"]), f"the person: {person!s:.200}")
    elif kind == WAVERS:
        check_lies(world, trouble, person, cell)
    else:
        cell.check(person.get("outcome") == "failed", f"the person: {person!s:.200}")
        if place == "serve":
            status = found["decided"].get("status")
            cell.check(status == 502, f"a decision: {found['decided']!s:.200}")
    calls = {"find": 1, "serve": 2, "batch": 2, "ray": 2, "tried": 4}[place]
    limit = world.seconds[place] + calls * batch_seconds(OTHERS + 1, ROW_SECONDS) + SLACK
    if dies and recovers:
        tries = TRIES + 2 * (place == "tried")  # the trial asks together, then alone
        limit += tries * (SILENT_SECONDS + batch_seconds(OTHERS + 1, ROW_SECONDS) + SLACK / 2)
    cell.check(cell.ended or cell.seconds < limit, f"{cell.seconds:.1f} s, above {limit:.1f} s")
    return cell


def check_lies(world: World, trouble: str, person: Outcomes, cell: Cell) -> None:
    """Check that no way is shown as firm which the model refuses when it is asked again.

    A model is asked again where it wavered on trial; `stable` is null where it was not, and a model
    that lies about one person's surroundings alone is believed.
    """
    if person.get("outcome") == "failed":
        return
    firm = [way for way in person.get("ways", ()) if way.get("stable") is not False]
    if trouble == "lies":  # about the person as they are, and no way leads there
        cell.check(all(not way.get("unchanged") for way in firm), f"{firm!s:.200}")
        return
    cell.check(not firm, f"{len(firm)} ways are shown as firm, and refused when asked again")


def main() -> None:
    """Print what each model did in each place."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(TROUBLES), help="models, with commas")
    parser.add_argument("--places", default=",".join(PLACES), help="places, with commas")
    given = parser.parse_args()
    places, wrong = given.places.split(","), False
    with tempfile.TemporaryDirectory() as folder, ray_for(places):
        world = make_world(Path(folder))
        print(f"{'':<16}" + "".join(f"{place:>14}" for place in places), flush=True)
        for trouble in ("well", *given.only.split(",")):
            print(f"{trouble:<16}", end="", flush=True)
            told = []
            for place in places:
                cell = judge(world, trouble, place)
                said = "WRONG" if cell.wrong else "ends" if cell.ended else "ok"
                print(f"{said:>7}{cell.seconds:5.1f} s", end="", flush=True)
                told += [f"  {place}: {why}" for why in cell.wrong]
            print("", *told, sep="\n" if told else "", flush=True)
            wrong |= bool(told)
    sys.exit(wrong)


@contextmanager
def ray_for(places: list[str]) -> Iterator[None]:
    """Start one small Ray for all batches on it."""
    if "ray" not in places:
        yield
        return
    from waysout.batch.ray_executor import connect_ray

    ray, _ = connect_ray("")
    try:
        yield
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
