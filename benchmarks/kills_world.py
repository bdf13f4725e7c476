"""The world of `kills.py`: people, a model and an LLM that write down what they are asked.

After a kill the files are read as they lie there, and at the end all that was asked is held against
what was on file at each of the kills.
"""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from batch_runs import is_worker, workers_of
from damage_runs import copied

from waysout.batch.resume import ASKED_AGAIN
from waysout.datasets import registry
from waysout.datasets.table import open_stream
from waysout.llm.base import Message, Request
from waysout.store import tables
from waysout.store.records import unpack

PEOPLE, TRAINING = 16, 200
MODEL_SECONDS, LONGEST = 0.02, 120.0
SETUP_ROWS = 60
"""For each person, trying the model included: what `find` says before it begins."""
BEFORE, MIDDLE, FINISHING = "before the first answer", "in the middle", "while finishing"
MODEL = f"""
import json, os, time
from math import exp

LOG = os.open(os.environ["KILLS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

def chance(row):
    score = row["credit_score"] / 850 + row["savings"] / 65_000 - row["card_use"] - 0.7
    return 1 / (1 + exp(-4 * score))

def score(rows):
    lines = [json.dumps([os.getpid(), list(row.values())]) for row in rows]
    os.write(LOG, "".join(f"{{line}}\\n" for line in lines).encode())
    time.sleep({MODEL_SECONDS} + len(rows) / 500)
    return [chance(row) for row in rows]
"""
Whose = Callable[[Path, int], int]
"""Says whom a query of a run is about."""


def make_world(folder: Path) -> World:
    """Write the model, and tables of people of whom no two have the same age."""
    (folder / "killed.py").write_text(MODEL, encoding="utf-8")
    (folder / "runs").mkdir()
    os.environ |= {"KILLS_LOG": str(folder / "asked.log"), "WAYSOUT_RUNS": str(folder / "runs")}
    sys.path.insert(0, str(folder))
    import killed

    card, table = registry.card("synthetic"), open_stream(registry.get("synthetic"))
    records = [*table]
    typed = [card.schema.raw(card.schema.parse(record)) for record in records]
    first: dict[Any, int] = {}
    for i, row in enumerate(typed):
        if killed.chance(row) < 0.5:
            first.setdefault(row["age"], i)
    ages = [*first][:PEOPLE]
    rest = [i for i, row in enumerate(typed) if row["age"] not in ages][:TRAINING]
    for name, those in (("people", [first[age] for age in ages]), ("training", rest)):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as text:
            lines = csv.DictWriter(text, table.columns)
            lines.writeheader()
            lines.writerows(records[i] for i in those)
    rows = [typed[first[age]] for age in ages]
    for i, row in enumerate(rows):
        (folder / f"person-{i}.json").write_text(json.dumps(row), encoding="utf-8")
    return World(folder, rows, card.schema)


# What was asked, and what is on file ------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A row that the model was asked, by a process, or a request to the LLM (of process 0)."""

    key: str
    pid: int = 0
    person: int | None = None
    """Whose row it is: nobody else has this age, and it may not change."""
    setup: bool = False
    """Whether it is somebody as they are: a row of the table, and none of a search."""


@dataclass(frozen=True)
class OnFile:
    """What was answered and is on file, for whom, and the people who have their result."""

    keys: Mapping[str, int]
    done: frozenset[int]
    options: frozenset[str]
    ways: frozenset[str]
    """Their rows."""


class Log:
    """The end of a file that others append lines to."""

    def __init__(self, path: Path, read: Callable[[Any], Asked]) -> None:
        path.touch()
        self._file, self._read, self._rest = path.open("rb"), read, b""

    def new(self) -> Iterator[Asked]:
        """Yield what was added."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        return (self._read(json.loads(line)) for line in lines)


@dataclass
class World:
    """The people, the model and the LLM, and what comes of them undisturbed."""

    folder: Path
    rows: list[dict[str, Any]]
    schema: Any
    llm: str = ""
    ray: str = ""
    logs: Sequence[Log] = ()
    wanted: dict[str, Any] = field(default_factory=dict)
    """The results, and how much was asked for whom."""
    callers: dict[str, int] = field(default_factory=dict)
    """For whom a request to the LLM was."""

    def start(self, *words: str, model: bool = True) -> Session:
        """Start a command."""
        about = ("--model", "killed:score", "--card", "synthetic", "--inputs", "dicts")
        line = [sys.executable, "-m", "waysout", *words, *(about if model else ())]
        out = self.folder / "said.txt"
        with out.open("wb") as text:
            process = subprocess.Popen(line, cwd=self.folder, stdout=text, stderr=text)
        return Session(process, out)

    def row(self, line: Sequence[Any]) -> Asked:
        """Read a line of the model's log."""
        pid, values = line
        person = self._ages.get(values[self.schema.names.index("age")])
        query = person is not None and values == [*self.rows[person].values()]
        return Asked(json.dumps(values), pid, person, person is None or query)

    def call(self, body: Mapping[str, Any]) -> Asked:
        """Read a line of the LLM server's log."""
        messages = [[message["role"], message["content"]] for message in body["messages"]]
        return Asked(request_key(messages, body["seed"]))

    @cached_property
    def _ages(self) -> dict[Any, int]:
        return {row["age"]: i for i, row in enumerate(self.rows)}

    def on_file(self, runs: Iterable[Path], whose: Whose) -> OnFile:
        """Read the runs as a kill has left them."""
        keys: dict[str, int] = {}
        done: set[int] = set()
        found: set[str] = set()
        ways: set[str] = set()
        for run in runs:
            answers = read_copy(run, "SELECT query, kind, question FROM answers")
            options = read_copy(run, "SELECT body FROM options")
            ended = read_copy(run, "SELECT query, body FROM results WHERE final")
            for query, kind, question in answers:
                told, person = unpack(question), whose(run, query)
                if kind == "propose":
                    key = request_key(told["messages"], sampling_seed(told))
                    keys[key] = self.callers[key] = person
                elif kind == "evaluate":
                    keys |= {self.key(self.schema.raw(tuple(row))): person for row in told}
            found |= {self.key(unpack(body)["row"]) for (body,) in options}
            for query, body in ended:
                done.add(whose(run, query))
                ways |= {self.key(way["row"]) for way in unpack(body)["ways"]}
        return OnFile(keys, frozenset(done), frozenset(found), frozenset(ways))

    def key(self, row: Mapping[str, Any]) -> str:
        """Return what tells a row from others."""
        return json.dumps([*row.values()])


def read_copy(run: Path, query: str) -> list[Any]:
    """Return what a copy of a run says: reading must neither mend a run nor hold up its writer."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with closing(tables.connect(copied(run, Path(folder)))) as db:
                return [*db.execute(query)]
        except (sqlite3.Error, OSError):  # it had been begun, and no more, or has gone meanwhile
            return []


def request_key(messages: Sequence[Sequence[str]], seed: int) -> str:
    """Return what tells a request to the LLM from others."""
    return json.dumps([messages, seed])


def sampling_seed(told: Mapping[str, Any]) -> int:
    """Return the seed that a recorded request went out with."""
    messages = tuple(Message(*message) for message in told["messages"])
    return Request(messages, k=told["k"], seed=told["seed"], draw=told["draw"]).sampling_seed


@dataclass
class Session:
    """A process that works."""

    process: subprocess.Popen[bytes]
    out: Path
    idle: Callable[[], bool] = lambda: False
    """Whether it lives, and has nothing to do."""
    server: Any = None
    """For questions, if it is one."""

    @property
    def lives(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def said(self) -> str:
        """Return what it has printed."""
        return self.out.read_text(encoding="utf-8")

    def end(self) -> tuple[int, str]:
        """Wait for its end; return its exit status and what it has printed."""
        return self.process.wait(LONGEST), self.said()


# Kills ------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What became of one kind of work."""

    kills: Counter[str] = field(default_factory=Counter)
    flight: Counter[str] = field(default_factory=Counter)
    again: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    equal: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass
class Trial:
    """One run of some work, killed some times; all that was asked for it."""

    world: World
    rng: random.Random
    tallies: dict[str, Tally]
    runs: Callable[[], Iterable[Path]]
    whose: Whose
    """Whom a query of a run is about."""
    total: Mapping[int, int] = field(default_factory=dict)
    """How much is asked for whom where nobody kills."""
    marks: Callable[[], set[int]] = set
    """The people who are done without a run on file."""
    asked: list[Asked] = field(default_factory=list)
    began: int = 0
    killed: list[tuple[str, frozenset[int], int, OnFile]] = field(default_factory=list)
    """The kind of work, the processes that went, how much had been asked, and what was on file."""

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin to listen."""
        self.look()
        self.asked.clear()

    def look(self) -> list[Asked]:
        """Take in what was asked meanwhile, and return what the present session asked."""
        for log in self.world.logs:
            self.asked += log.new()
        return self.asked[self.began :]

    def on_file(self) -> OnFile:
        """Return what is on file now."""
        marked = self.marks()  # first: a run is deleted once its part is marked
        found = self.world.on_file([*self.runs()], self.whose)
        return replace(found, done=found.done | marked)

    def left(self, file: OnFile) -> int:
        """Return how much is left to ask."""
        kept = Counter(file.keys.values())
        return sum(max(0, n - kept[i]) for i, n in self.total.items() if i not in file.done)

    def wait(self, session: Session) -> bool:
        """Wait for a moment at random in what is left to do; whether it came."""
        left = max(1, self.left(self.on_file()))
        draw = self.rng.random()
        early, late = draw < 0.15, draw > 0.85
        target = 1 if early else left if late else self.rng.randint(1, left)
        jitter = self.rng.uniform(0, 0.3 if late else 0.1 if early else MODEL_SECONDS * 2)
        seen, heard = 0, time.monotonic()
        while (count := sum(early or not one.setup for one in self.look())) < target:
            seen, heard = count, time.monotonic() if count > seen else heard
            silent = time.monotonic() - heard
            if not session.lives or silent > LONGEST or (silent > 0.5 and session.idle()):
                return False
            time.sleep(0.003)
        time.sleep(jitter)
        return session.lives

    def note(self, kind: str, pids: Iterable[int], mine: Set[str]) -> None:
        """Note a kill that has landed; ``mine`` is what was asked by those who are gone."""
        now, gone = self.on_file(), frozenset(pids)
        self.look()
        phase = FINISHING if not self.left(now) else MIDDLE if mine & now.keys.keys() else BEFORE
        self.tallies[kind].kills[phase] += 1
        self.killed.append((kind, gone, len(self.asked), now))

    def kill(self, kind: str, session: Session) -> bool:
        """Kill a session at random, and with it what it has started; whether that succeeded."""
        self.look()
        self.began = len(self.asked)
        if not self.wait(session):
            return False
        workers = workers_of(os.getpid())
        session.process.kill()
        if session.process.wait() != -signal.SIGKILL:
            return False
        until = time.monotonic() + LONGEST
        while any(map(is_worker, workers)):
            if time.monotonic() > until:
                raise TimeoutError("workers live on, though their driver was killed")
            time.sleep(0.05)
        mine = {one.key for one in self.look() if not one.setup}
        self.note(kind, [session.process.pid, *workers], mine)
        return True

    def judge(self, kind: str, equal: bool, otherwise: str) -> None:
        """Hold all that was asked against what was on file at each kill."""
        self.look()
        tally = self.tallies[self.killed[-1][0] if self.killed else kind]
        tally.runs, tally.equal = tally.runs + 1, tally.equal + equal
        if not equal:
            tally.faults.append(f"another result: {otherwise[-400:]}")
        allowed: Counter[str] = Counter()
        for name, gone, at, file in self.killed:
            flying = {
                one.key: one for i, one in enumerate(self.asked)
                if not one.setup and one.key not in file.keys
                and (self.world.callers.get(one.key, one.person) not in file.done
                     or name == "serve")  # strips are asked after the end, and not on file
                and (one.pid in gone or (not one.pid and i < at))
            }  # fmt: skip
            allowed.update(flying.keys())
            after = {one.key for one in self.asked[at:]}
            for key, one in flying.items():
                what = "rows" if one.pid else "calls"
                self.tallies[name].flight[what] += 1
                self.tallies[name].again[what] += key in after
            if name == "serve":
                allowed.update(file.options | file.ways)
                continue
            late = [one for one in self.asked[at:] if one.person in file.done]
            tally.faults += [f"done, and asked again: {x.key[:200]}" for x in late if not x.setup]
            # A batch asks whether the model is still the one that it was.
            for pid, n in Counter(one.pid for one in late if one.setup).items():
                if n > ASKED_AGAIN:
                    tally.faults.append(f"process {pid} asked {n} rows of people who are done")
        for pid in {one.pid for one in self.asked}:
            mine = [one for one in self.asked if one.pid == pid]
            beside = sum(one.setup for one in mine)
            if beside > SETUP_ROWS * max(1, len({one.person for one in mine} - {None})):
                tally.faults.append(f"{beside} rows for set-up")
        times = Counter(one.key for one in self.asked if not one.setup)
        tally.faults += [
            f"on file, and asked {n} times: {key[:200]}"
            for key, n in times.items() if n > 1 + allowed[key]
        ]  # fmt: skip
