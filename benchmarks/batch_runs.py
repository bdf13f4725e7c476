"""People for a batch, and a batch in a process of its own that is watched: for `batch.py`."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from waysout.batch.driver import BatchProgress, Driver
from waysout.batch.run import BatchRequest, run_batch
from waysout.datasets import registry
from waysout.datasets.manifest import load_oracle_model
from waysout.datasets.table import open_stream
from waysout.domain.card import Card
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.errors import RowError, UnavailableError
from waysout.llm.simulated import Habits, Simulated
from waysout.prompts.propose import Proposer
from waysout.prompts.render import Topic
from waysout.run.source import Source, Trust, problem_of

REPLIES = 64
_MOST_LAPS = 50
_SECONDS = 0.3
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")

Record = Mapping[str, Any]


# People -----------------------------------------------------------------------------------------


class Formula:
    """Decides about the synthetic table by a formula, where no model is trained."""

    FEATURES = ("credit_score", "savings", "card_use")

    def __init__(self, places: Sequence[int]) -> None:
        self.places = list(places)

    def __call__(self, rows: Any) -> Any:
        """Return the chances of approval."""
        import numpy as np

        score, savings, card_use = np.asarray(rows, dtype=float)[:, self.places].T
        return 1 / (1 + np.exp(-4 * (score / 850 + savings / 65_000 - card_use - 0.7)))


@dataclass(frozen=True)
class People:
    """A table of rejected people, with the model that rejects them; all of it in files."""

    source: Source
    about: str

    @property
    def trust(self) -> Trust:
        """The formula is a pickle of our own."""
        return Trust(pickle=self.source.model.endswith(".pkl"))


def rejected(name: str, rows: int, folder: Path) -> People:
    """Write a table of people of a data set whom its model rejects.

    Where the data set has too few of them they come again, with their numbers changed a little.
    """
    card = registry.card(name)
    model, inputs, positive = _model(card, folder)
    file = folder / f"{name}-{rows}.csv"
    source = Source(str(file), name, str(model), positive_class=positive, inputs=inputs)
    people = People(source, f"{rows:,} rejected people of {name}, {model.suffix[1:]} model")
    problem = problem_of(source, people.trust, card, ())
    table = open_stream(registry.get(name))
    found = [*islice(_rejected(problem, [*table]), rows)]
    if len(found) < rows:
        raise SystemExit(f"{name} has {len(found):,} rejected people; ask for fewer rows")
    with file.open("w", newline="", encoding="utf-8") as text:
        lines = csv.DictWriter(text, table.columns)
        lines.writeheader()
        lines.writerows(found)
    return people


def _model(card: Card, folder: Path) -> tuple[Path, str, str]:
    """Return the trained model of a data set, or the formula; with its inputs and its yes."""
    try:
        import lightgbm  # noqa: F401

        model, manifest = load_oracle_model(card.name)
        return model, "codes", str(manifest.positive_class)
    except (ImportError, UnavailableError):
        if card.name != "synthetic":
            raise
    formula = folder / "formula.pkl"
    places = [card.schema.names.index(name) for name in Formula.FEATURES]
    formula.write_bytes(pickle.dumps(Formula(places)))
    return formula, "codes", ""


def _rejected(problem: Problem, records: Sequence[Record]) -> Iterator[Record]:
    for lap in range(_MOST_LAPS):
        readable = [*_read(problem, records, lap)]
        answers = problem.oracle.ask([row for _, row in readable])
        for (record, _), decision in zip(readable, answers.decision, strict=True):
            if not decision:
                yield record


def _read(problem: Problem, records: Iterable[Record], lap: int) -> Iterator[tuple[Record, Row]]:
    for record in records:
        changed = {**record, **_nudged(problem, record, lap)} if lap else record
        with suppress(RowError):
            yield changed, problem.schema.parse(changed)


def _nudged(problem: Problem, record: Record, lap: int) -> dict[str, Any]:
    """Return a record's whole numbers, each a little larger with every lap."""
    whole = [f.name for f in problem.schema if f.kind == "integer"]
    cells = {name: str(record.get(name) or "").strip() for name in whole}
    return {name: int(cell) + lap for name, cell in cells.items() if cell.isdecimal()}


def write_replies(people: People, file: Path, replies: int = REPLIES) -> Path:
    """Write replies for the scripted server: sound proposals, as JSON, for the first people."""
    card = registry.card(people.source.card)
    problem = problem_of(people.source, people.trust, card, ())
    proposer = Proposer(Topic.of_problem(problem), "json_schema")
    always = Habits(0, 0, 0, 1, 0, 0, 0, 0, 0)
    texts = []
    for number, record in enumerate(islice(open_stream(people.source.data), replies)):
        row = problem.schema.parse(record)
        request = proposer.request(row, row, seed=number)
        if request is not None:
            texts.append(asyncio.run(Simulated(number, always).complete(request)).text)
    file.write_text(json.dumps(texts), "utf-8")
    return file


# A batch in a process of its own ----------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """How a batch went: people, when they were done, and the time of the processors.

    ``begun`` is the moment that the first person was done, ``early`` how many were then.
    """

    people: int
    seconds: float
    calls: int
    left: int
    stopped: str
    begun: float
    early: int
    memory: int = 0

    @property
    def rate(self) -> float:
        """People a second, the start of the workers left out."""
        return (self.people - self.early) / max(self.seconds - self.begun, 1e-9)


class Timed:
    """Notes when the first people were done."""

    def __init__(self) -> None:
        self.begun: tuple[float, int] | None = None
        self.driver: Driver | None = None

    def start(self, driver: Driver) -> None:
        """Keep the driver."""
        self.driver = driver

    def watch(self, progress: BatchProgress) -> None:
        """Note the time and the number of people, once."""
        if self.begun is None and progress.tally.people:
            self.begun = progress.seconds, progress.tally.people


def wanted(people: People, out: Path, options: Mapping[str, Any], **more: Any) -> BatchRequest:
    """Return a batch for these people."""
    return BatchRequest(people.source, out, dict(options), people.trust, **more)  # type: ignore[arg-type]


def run_here(spec: Mapping[str, Any]) -> None:
    """Run a batch as the process that `Batch` starts, and print how it went."""
    source = Source(**spec["source"])
    people, heard = People(source, ""), Timed()
    batch = wanted(people, Path(spec["out"]), spec["options"], **spec["more"])
    summary, ended = run_batch(batch, on_start=heard.start, on_progress=heard.watch)
    begun, early = heard.begun or (ended.seconds, summary.tally.people)
    ran = Ran(
        ended.rows,
        ended.seconds,
        summary.tally.spent.llm_calls,
        ended.left,
        ended.stopped,
        begun,
        early,
    )
    print(json.dumps({k: v for k, v in asdict(ran).items() if k != "memory"}), flush=True)


@dataclass
class Batch:
    """A batch in a process of its own, and what it and its workers take."""

    people: People
    out: Path
    options: Mapping[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict)

    def start(self) -> None:
        """Start it."""
        spec = {"source": asdict(self.people.source), "out": str(self.out),
                "options": dict(self.options), "more": dict(self.more)}  # fmt: skip
        here = Path(__file__).with_name("batch.py")
        command = [sys.executable, str(here), "one", json.dumps(spec)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.watcher = Watcher(self.process.pid)

    def wait(self) -> Ran:
        """Wait for its end."""
        said, _ = self.process.communicate()
        self.watcher.end()
        if self.process.returncode:
            raise SystemExit(f"the batch ended with exit code {self.process.returncode}")
        told = json.loads(said.splitlines()[-1])
        return Ran(**told, memory=self.watcher.peak)

    def run(self) -> Ran:
        """Run it from beginning to end."""
        self.start()
        return self.wait()


class Watcher:
    """Looks at a process and all that it has started, a few times a second."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.peak = 0
        """The most memory at once, in bytes."""
        self._spent: list[tuple[float, float]] = []
        self._processor: dict[tuple[int, str], float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def processor(self, first: float, last: float) -> float:
        """Return the processors' seconds between two moments, of all but the root."""
        before = [spent for when, spent in self._spent if when <= first] or [0.0]
        until = [spent for when, spent in self._spent if when <= last + _SECONDS] or [0.0]
        return until[-1] - before[-1]

    def _watch(self) -> None:
        while not self._over.wait(_SECONDS):
            processes = _processes()
            memory = 0
            for pid in _tree(self.root, processes):
                stat = processes[pid]
                memory += _memory(pid, stat)
                self._processor[pid, stat[19]] = (int(stat[11]) + int(stat[12])) / _TICKS
            self.peak = max(self.peak, memory)
            others = (took for (pid, _), took in self._processor.items() if pid != self.root)
            self._spent.append((time.monotonic(), sum(others)))


def workers_of(root: int) -> list[int]:
    """Return the processes that search, local or of Ray, which a process has started."""
    return [pid for pid in _tree(root, _processes()) if is_worker(pid)]


def _processes() -> dict[int, list[str]]:
    """Return what the system tells of each process: its state, its parent and so on."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            found[int(folder.name)] = (folder / "stat").read_text().rpartition(") ")[2].split()
    return found


def _tree(root: int, processes: Mapping[int, Sequence[str]]) -> list[int]:
    tree = [root] if root in processes else []
    for pid in tree:
        tree += (child for child, stat in processes.items() if int(stat[1]) == pid)
    return tree


def _memory(pid: int, stat: Sequence[str]) -> int:
    """Return a process's memory in bytes; what it shares with others counts by its share."""
    with suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return 1024 * int(text.partition("\nPss:")[2].split()[0])
    return _PAGE * int(stat[21])


def is_worker(pid: int) -> bool:
    """Whether a process lives and searches, local or of Ray."""
    with suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"spawn_main" in command or b"ray::Worker" in command
    return False
