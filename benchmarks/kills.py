"""Kills (-9) at random: what is resumed ends as if nothing had happened, and asks nothing again.

    python benchmarks/kills.py --kills 200 --seed 0 [--only find,driver,worker,...]

`waysout find` and `waysout runs resume` (with an LLM and without), the driver and the workers of
`waysout batch` (processes, and actors of Ray) and `waysout serve` are killed at moments chosen by
what the model and the LLM have been asked so far; then the same is resumed, killed again, and at
last left to end. A kill counts if the process was alive and had begun to ask.

The model and the LLM server write down all that they are asked. After each kill the files are read
as they lie there: what is in them may not be asked once more; what was asked and is not in them was
in flight and may be, once for each kill. Set-up rows have an allowance for each process: whoever
goes on asks the model again about the person as they are. A server also asks options again before
it shows a search of earlier times.

The result must be that of a run that nobody killed, but for seconds and set-up rows. A search of
`serve` goes on in a new part, which is another search that knows what the first one knew: what was
on file must be in its result, and no set of levers may be missing or cost more. It prints what was
in flight, and exits with 1 on anything else. Needs Linux, for /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from batch_runs import rejected, workers_of, write_replies
from batch_server import serving
from kills_world import (
    BEFORE,
    FINISHING,
    MIDDLE,
    Log,
    Session,
    Tally,
    Trial,
    World,
    make_world,
    read_copy,
)
from troubled_models import Server, table_of, timeless

from waysout.batch.job import BEGUN
from waysout.batch.marks import DONE
from waysout.batch.tables import STORES
from waysout.serve.limits import SETTLING_ROWS
from waysout.store.tables import remove

SEARCHED = 3
"""How many of the people are searched for by `find` and by `serve`."""
FIND_ROWS, BATCH_ROWS, PART_ROWS = 60, 30, 2
MOST_DEATHS = 3
"""Of a part's workers: after five the batch ends, and some parts die before they ask anything."""
OF_BEGUN = f"WHERE kind = '{BEGUN}' ORDER BY id"
LLM_MS = 40.0
MAY_DIFFER = ("setup_rows", "attempts")
"""Of a ledger: a resumed run asks about somebody again, and what was in flight was sent."""


# find, and runs resume --------------------------------------------------------------------------


def find_words(world: World, person: int, llm: bool, run: Path) -> list[str]:
    """Return the command that searches for somebody."""
    budget = ["--llm", world.llm, "--calls", "6"] if llm else ["--calls", "0"]
    return ["find", "--data", "training.csv", "--json-row", f"person-{person}.json", *budget,
            "--oracle-rows", str(FIND_ROWS), "--run", str(run), "--json"]  # fmt: skip


def document(said: str) -> Any:
    """Return the document that a command printed, without what a resume may change."""
    found = timeless(json.loads(said[said.index("{") : said.rindex("}") + 1]))
    found["ledger"] = {k: v for k, v in found["ledger"].items() if k not in MAY_DIFFER}
    return found


def attempts(said: str) -> int:
    """Return how many requests a search has sent, by its own word."""
    found = json.loads(said[said.index("{") : said.rindex("}") + 1])
    return int(found["ledger"]["attempts"])


def find(world: World, rng: random.Random, tallies: dict[str, Tally], kills: int) -> None:
    """Kill `find`, then `find` again or `runs resume`, and let it end."""
    person, llm = rng.randrange(SEARCHED), rng.random() < 0.5
    run = world.folder / "runs" / f"killed-{rng.getrandbits(40):x}.db"
    name, more = f"find {person} {llm}", ", LLM" if llm else ""
    trial = Trial(world, rng, tallies, lambda: [run] if run.exists() else [], lambda *_: person)
    words = find_words(world, person, llm, run)
    if name not in world.wanted:
        _, said = world.start(*words).end()
        world.wanted[name] = document(said), Counter(trial.on_file().keys.values())
        remove(run)
        trial.forget()
    wanted, trial.total = world.wanted[name]

    def start() -> tuple[str, Session]:
        if trial.killed and trial.killed[-1][3].keys and rng.random() < 0.6:
            resume = ("runs", "resume", str(run), "--trust-code", "--json")
            return f"resume{more}", world.start(*resume, model=False)
        return f"find{more}", world.start(*words)

    for _ in range(min(kills, rng.randint(2, 4))):
        kind, session = start()
        if not trial.kill(kind, session):
            break
    else:
        kind, session = start()
    code, said = session.end()
    trial.judge(kind, code == 0 and document(said) == wanted, f"exit {code}: {said}")
    if code == 0:
        sent = sum(not one.pid for one in trial.asked)
        # They are on file before they go out, and a kill may come in between.
        if not sent <= attempts(said) <= sent + len(trial.killed):
            tallies[kind].faults.append(f"{sent} requests, and {attempts(said)} attempts")
    remove(run)


# batch ------------------------------------------------------------------------------------------


def batch(
    world: World, rng: random.Random, tallies: dict[str, Tally], kills: int, *, kind: str
) -> None:
    """Kill the driver of a batch, or its workers, on Ray or not, and let it end."""
    out = world.folder / "batch"
    words = ["batch", "--data", "people.csv", "--training", "training.csv", "--llm", world.llm,
             "--calls", "2", "--oracle-rows", str(BATCH_ROWS), "--part-rows", str(PART_ROWS),
             "--workers", "2", "--in-flight", "4", "--out", str(out), "--json"]  # fmt: skip

    def done() -> set[int]:
        parts = [int(re.sub(r"\D", "", mark.stem)) for mark in (out / DONE).glob("*.json")]
        return {i for part in parts for i in range(part * PART_ROWS, (part + 1) * PART_ROWS)}

    trial = Trial(
        world, rng, tallies, lambda: (out / STORES).glob("*.db"), lambda _, i: i, marks=done
    )
    shutil.rmtree(out, ignore_errors=True)
    if "batch" not in world.wanted:
        code, said = world.start(*words, "--keep-stores").end()
        if code:
            raise SystemExit(f"the batch without kills: exit {code}: {said[-500:]}")
        world.wanted["batch"] = found_by(out), Counter(trial.on_file().keys.values())
        shutil.rmtree(out)
        trial.forget()
    if kind.startswith("Ray"):
        words += ["--cluster", "ray", "--address", world.ray]
    wanted, trial.total = world.wanted["batch"]
    if kind.endswith("driver"):
        for _ in range(min(kills, rng.randint(2, 5))):
            session = world.start(*words)
            if not trial.kill(kind, session):
                break
        else:
            session = world.start(*words)
    else:
        session = world.start(*words)
        kill_workers(trial, kind, session, min(kills, rng.randint(3, 6)))
    code, said = session.end()
    equal = code == 0 and found_by(out) == wanted
    trial.judge(kind, equal, f"exit {code}: {said}")


def found_by(out: Path) -> Any:
    """Return what a batch found."""
    return {
        whose: {name: value for name, value in row.items() if name not in MAY_DIFFER}
        for whose, row in timeless(table_of(out)).items()
    }


def kill_workers(trial: Trial, kind: str, session: Session, kills: int) -> None:
    """Kill workers of a batch at random, one after the other."""
    deaths: Counter[int] = Counter()
    moments = sorted(trial.rng.sample(range(sum(trial.total.values())), kills))
    for moment in moments:
        while session.lives and len({one.key for one in trial.look() if not one.setup}) < moment:
            time.sleep(0.003)
        while session.lives and not _kill_worker(trial, kind, deaths):
            time.sleep(0.02)


def _kill_worker(trial: Trial, kind: str, deaths: Counter[int]) -> bool:
    """Kill a worker that is at work; whether there was one."""
    asked = trial.look()
    done, gone = trial.marks(), {pid for _, pids, *_ in trial.killed for pid in pids}
    parts: dict[int, set[int]] = {}
    for one in asked:
        if one.person is not None and one.person not in done and one.pid not in gone:
            parts.setdefault(one.pid, set()).add(one.person // PART_ROWS)
    alive = {*workers_of(os.getpid())} & parts.keys()
    able = [pid for pid in sorted(alive) if all(deaths[part] < MOST_DEATHS for part in parts[pid])]
    if not able or any(map(is_suspected, trial.runs())):
        return False
    pid = trial.rng.choice(able)
    os.kill(pid, signal.SIGKILL)
    deaths.update(parts[pid])
    mine = {one.key for one in trial.look() if one.pid == pid and not one.setup}
    trial.note(kind, [pid], mine)
    return True


def is_suspected(run: Path) -> bool:
    """Whether somebody who is searched for alone is there for the second time.

    With one more death they would be taken for the one who kills the workers, and fail.
    """
    begun = [person for (person,) in read_copy(run, f"SELECT query FROM events {OF_BEGUN}")]
    return begun.count(begun[-1]) > 1 if begun else False


# serve ------------------------------------------------------------------------------------------


def serve(world: World, rng: random.Random, tallies: dict[str, Tally], kills: int) -> None:
    """Kill a server while it searches, start it again, and let its searches go on and end."""
    ids: dict[int, str] = {}

    def whose(run: Path, _: int) -> int:
        return next((person for person, id in ids.items() if id in run.stem), -1)

    folder = world.folder / "runs"
    trial = Trial(world, rng, tallies, lambda: folder.glob("*-part*.db"), whose)
    if "serve" not in world.wanted:
        with server(world, ids) as session:
            results = ended(session, ids)
            world.wanted["serve"] = results, Counter(trial.on_file().keys.values())
        clear(world, ids)
        trial.forget()
    wanted, trial.total = world.wanted["serve"]
    due, found = min(kills, rng.randint(2, 4)), None
    while found is None:
        with server(world, ids) as session:
            if len(trial.killed) == due or not trial.kill("serve", session):
                found = ended(session, ids)
    options = {key for *_, file in trial.killed for key in file.options}
    kept = {world.key(option["row"]) for one in found.values() for option in one["options"]}
    wrong = [f"an option is lost: {key}" for key in options - kept]
    wrong += [told for i in wanted for told in differences(wanted[i], found[i])]
    trial.judge("serve", not wrong, "; ".join(wrong))
    clear(world, ids)


def differences(wanted: Any, found: Any) -> Iterator[str]:
    """Yield what a search has not, or not as cheap, that was found where nobody killed."""
    if found["part"] == 1 and timeless(found) != timeless(wanted):
        # A kill while what is shown is settled leaves the rows set aside for that as spent.
        spent = found["ledger"]["oracle_rows"] - SETTLING_ROWS
        settled = {**found, "ledger": {**found["ledger"], "oracle_rows": spent}}
        if timeless(settled) != timeless(wanted):
            yield "another result"
    costs = {frozenset(way["levers"]): way["cost"] for way in found["ways"]}
    for way in wanted["ways"]:
        cost = costs.get(frozenset(way["levers"]))
        if cost is None or cost > way["cost"] * 1.000001:
            yield f"{way['levers']} for {cost} instead of {way['cost']}"


def ended(session: Session, ids: Mapping[int, str]) -> dict[int, Any]:
    """Wait for the searches, and return what they found."""
    found = {}
    for person, id in ids.items():
        part = session.server.ended(id)["part"]
        result = session.server.ask("GET", f"/api/searches/{id}/result.json")
        found[person] = {**result, "part": part}
    return found


def clear(world: World, ids: dict[int, str]) -> None:
    """Delete the runs of a server."""
    ids.clear()
    for run in (world.folder / "runs").glob("*-part*"):
        run.unlink()


@contextmanager
def server(world: World, ids: dict[int, str]) -> Iterator[Session]:
    """Run `waysout serve`, and begin its searches or let them go on."""
    session = world.start("serve", "--data", "training.csv", "--port", "0", "--llm", world.llm)
    try:
        while not (port := re.search(r"open http://127\.0\.0\.1:(\d+)", session.said())):
            if not session.lives:
                raise SystemExit(f"the server did not start: {session.said()[-500:]}")
            time.sleep(0.02)
        session.server = Server(session.process, int(port[1]))  # type: ignore[arg-type]
        ask = session.server.ask
        for person in range(SEARCHED):
            path = f"/api/searches/{ids.get(person)}"
            view = ask("GET", path) if person in ids else {}
            if "id" not in view:  # it was killed before anything was on file
                body = {"problem": "synthetic", "row": world.rows[person], "calls": 3}
                ids[person] = ask("POST", "/api/searches", body)["id"]
            elif view["outcome"] == "interrupted":
                ask("POST", f"{path}/continue", {})
        session.idle = lambda: all(
            ask("GET", f"/api/searches/{id}")["status"] == "ended" for id in ids.values()
        )
        yield session
    finally:
        session.process.kill()
        session.process.wait()


KINDS: dict[str, tuple[float, Callable[..., None]]] = {
    "find": (0.3, find),
    "driver": (0.16, partial(batch, kind="driver")),
    "worker": (0.22, partial(batch, kind="worker")),
    "ray-driver": (0.07, partial(batch, kind="Ray driver")),
    "ray-actor": (0.11, partial(batch, kind="Ray actor")),
    "serve": (0.14, serve),
}


def run(kills: int, seed: int, only: Sequence[str]) -> dict[str, Tally]:
    """Kill so often in all; return what became of each kind of work."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    whole = sum(KINDS[name][0] for name in only)
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        stack.enter_context(patch.dict(os.environ))
        world = make_world(folder)
        replies = write_replies(rejected("synthetic", 64, folder), folder / "replies.json")
        requests = folder / "requests.log"
        servers = stack.enter_context(serving(replies, LLM_MS, log=requests))
        world.llm = servers.llm
        world.logs = [Log(folder / "asked.log", world.row), Log(requests, world.call)]
        if any(name.startswith("ray") for name in only):
            world.ray = stack.enter_context(a_ray())
        left, due = kills, 0.0
        for name in only:
            share, work = KINDS[name]
            due += kills * share / whole
            wanted = round(due) - (kills - left)
            draw = random.Random(f"{seed} {name}")
            while wanted > 0:
                before = landed(tallies)
                work(world, draw, tallies, wanted)
                wanted -= (new := landed(tallies) - before)
                left -= new
                seconds, faults = time.monotonic() - began, faults_of(tallies)
                print(f"{seconds:5.0f} s, {landed(tallies):3} kills, {name}, {len(faults)} faults",
                      *faults[-1:], flush=True)  # fmt: skip
    return tallies


@contextmanager
def a_ray() -> Iterator[str]:
    """Run one small Ray for all batches on it; yield its address."""
    from waysout.batch.ray_executor import connect_ray

    ray, _ = connect_ray("")
    try:
        yield ray.get_runtime_context().gcs_address
    finally:
        ray.shutdown()


def landed(tallies: Mapping[str, Tally]) -> int:
    """Count the kills."""
    return sum(tally.kills.total() for tally in tallies.values())


def faults_of(tallies: Mapping[str, Tally]) -> list[str]:
    """Return all faults."""
    return [f"{kind}: {fault}" for kind, tally in tallies.items() for fault in tally.faults]


def main() -> None:
    """Print what became of each kind of work."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds of work, with commas")
    given = parser.parse_args()
    tallies = run(given.kills, given.seed, given.only.split(","))
    show(tallies)
    sys.exit(bool(faults_of(tallies)))


def show(tallies: Mapping[str, Tally]) -> None:
    """Print the table, and the faults."""
    names = ("kills", BEFORE, MIDDLE, FINISHING, "rows in flight", "asked again",
             "calls in flight", "asked again", "ended", "equal", "faults")  # fmt: skip
    print(f"{'':14}" + "".join(f" {name:>{max(7, len(name))}}" for name in names))
    lines = {
        kind: [
            tally.kills.total(), *(tally.kills[phase] for phase in (BEFORE, MIDDLE, FINISHING)),
            tally.flight["rows"], tally.again["rows"], tally.flight["calls"],
            tally.again["calls"], tally.runs, tally.equal, len(tally.faults),
        ] for kind, tally in tallies.items()
    }  # fmt: skip
    lines["all"] = [sum(column) for column in zip(*lines.values(), strict=True)]
    for kind, line in lines.items():
        cells = zip(names, line, strict=True)
        print(f"{kind:14}" + "".join(f" {n:{max(7, len(name))}}" for name, n in cells))
    for fault in faults_of(tallies)[:50]:
        print(f"FAULT {fault}")


if __name__ == "__main__":
    main()
