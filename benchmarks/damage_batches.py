"""Folders of a batch, damaged at random, then audited and resumed: nothing may be silently wrong.

    .venv/bin/python benchmarks/damage_batches.py --folders 100 --seed 0

A small batch without an LLM is run once, into a folder where all is done and into one where some
parts have their answers on file and nothing more, as a kill leaves them. Each trial copies one of
them and damages any file in it. Then the folder must give an audit that is right or says what it
lacks, and a resumed batch the very table of the batch that nothing happened to; or both name what
they refuse. It exits with 1 on anything else, and on any error that is not one of Waysout's.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from batch_runs import rejected

from waysout.audit import audit
from waysout.audit.words import coverage
from waysout.batch.executor import Executor
from waysout.batch.job import BatchJob, BatchTally, PartReport, PartTask
from waysout.batch.marks import files_of, marked, unmark
from waysout.batch.run import BatchRequest, run_batch
from waysout.batch.tables import options, people
from waysout.batch.worker import Worker
from waysout.errors import WaysoutError

PEOPLE, PART_ROWS = 11, 3
OUTCOMES = SAME, TOLD, REFUSED, WRONG, FOREIGN = (
    "same", "told", "refused", "SILENTLY WRONG", "FOREIGN",
)  # fmt: skip


# Damage -----------------------------------------------------------------------------------------


def truncate(file: Path, rng: random.Random) -> None:
    """Cut a file off anywhere."""
    file.write_bytes(file.read_bytes()[: rng.randrange(max(1, file.stat().st_size))])


def empty(file: Path, rng: random.Random) -> None:
    """Leave nothing of a file but its name."""
    file.write_bytes(b"")


def flip(file: Path, rng: random.Random) -> None:
    """Turn one to three bits."""
    data = bytearray(file.read_bytes())
    for _ in range(rng.randint(1, 3) if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


def overwrite(file: Path, rng: random.Random) -> None:
    """Write random bytes over a range."""
    data = bytearray(file.read_bytes())
    first = rng.randrange(max(1, len(data)))
    size = min(len(data) - first, rng.randint(1, 512))
    data[first : first + size] = rng.randbytes(size)
    file.write_bytes(data)


def delete(file: Path, rng: random.Random) -> None:
    """Delete a file."""
    file.unlink()


def swap(file: Path, rng: random.Random, among: Sequence[Path] = ()) -> None:
    """Swap two files."""
    other = rng.choice([path for path in among if path != file])
    data = file.read_bytes()
    file.write_bytes(other.read_bytes())
    other.write_bytes(data)


DAMAGES: dict[str, Callable[..., None]] = {
    "truncated": truncate, "emptied": empty, "bits flipped": flip, "overwritten": overwrite,
    "deleted": delete, "swapped": swap,
}  # fmt: skip


# A batch in this process ------------------------------------------------------------------------


class OneProcess(Executor[Any]):
    """Does each part where it is: a process for each trial would take seconds to start."""

    def __init__(self, job: BatchJob) -> None:
        super().__init__(job, 1, PART_ROWS)
        self._loop = asyncio.new_event_loop()
        self._worker = Worker(job)

    @property
    def room(self) -> int:
        """Take a part at a time."""
        return 1 - len(self._waiting)

    def submit(self, task: PartTask) -> None:
        """Take a part."""
        self._waiting.append(task)

    def wait(self, seconds: float) -> Sequence[PartReport]:
        """Do what was submitted."""
        tasks = [self._waiting.popleft() for _ in range(len(self._waiting))]
        return [self._loop.run_until_complete(self._worker.run(task)) for task in tasks]

    def tally(self) -> BatchTally:
        """Nothing is under way between two calls."""
        return BatchTally()

    def stop(self, reason: str) -> None:
        """Stop the searches of the worker."""
        self._worker.stop(reason)

    def close(self) -> None:
        """End the worker."""
        self._loop.run_until_complete(self._worker.aclose())
        self._loop.close()


@contextmanager
def in_this_process() -> Iterator[None]:
    """Let batches run without processes."""
    with patch("waysout.batch.run.start_executor", lambda batch, job, *_: OneProcess(job)):
        yield


@dataclass
class World:
    """Two folders of a batch, what runs it, and what comes out where nothing is damaged."""

    folders: dict[str, Path]
    request: BatchRequest
    table: list[Any] = field(default_factory=list)
    audits: dict[str, Any] = field(default_factory=dict)


def make_world(folder: Path) -> World:
    """Run the batch that is damaged later; a row of it fails, which keeps a store."""
    found = rejected("synthetic", PEOPLE, folder)
    with Path(found.source.data).open(newline="", encoding="utf-8") as text:
        header, *rows = csv.reader(text)
    with Path(found.source.data).open("w", newline="", encoding="utf-8") as text:
        csv.writer(text).writerows([header, *rows[:4], ["nobody"] * len(header), *rows[4:]])
    done, cut = folder / "done", folder / "under way"
    request = BatchRequest(
        found.source, done, {"calls": 0, "oracle_rows": 12, "seed": 0}, trust=found.trust,
        part_rows=PART_ROWS, workers=1,
    )  # fmt: skip
    run_batch(request)
    run_batch(replace(request, out=cut, keep_stores=True))
    for part in marked(cut)[::2]:
        unmark(cut, part)
        for name in files_of(part):
            (cut / name).unlink()
    world = World({"done": done, "under way": cut}, request, table_of(done))
    world.audits = {name: audit(out).as_dict() for name, out in world.folders.items()}
    return world


def table_of(out: Path) -> list[Any]:
    """Return all that a batch has found, without times."""
    import pyarrow.dataset

    rows = [
        row for tables in (people, options) for table in tables(out) for row in table.to_pylist()
    ]
    # Others read the folder without our marks.
    return [pyarrow.dataset.dataset(out).count_rows()] + [
        {name: cell for name, cell in row.items() if name != "seconds"} for row in rows
    ]


# Trials -----------------------------------------------------------------------------------------


@dataclass
class Trial:
    """What was done to a folder, and what came of it."""

    kind: str
    file: str
    audited: str = ""
    resumed: str = ""
    why: list[str] = field(default_factory=list)

    @property
    def is_bad(self) -> bool:
        """Whether something was silently wrong or not ours to raise."""
        return bool({WRONG, FOREIGN} & {self.audited, self.resumed})


def attempt(world: World, out: Path, rng: random.Random, kind: str) -> Trial:
    """Damage a copy of a folder, audit it and resume it."""
    state = rng.choice(sorted(world.folders))
    shutil.copytree(world.folders[state], out)
    files = sorted(path for path in out.rglob("*") if path.is_file())
    file = rng.choice(files)
    DAMAGES[kind](file, rng, **({"among": files} if kind == "swapped" else {}))
    trial = Trial(kind, f"{state}: {file.relative_to(out)}")
    trial.audited = outcome(trial, lambda: audited(world.audits[state], out))
    trial.resumed = outcome(trial, lambda: resumed(world, out, trial))
    return trial


def outcome(trial: Trial, action: Callable[[], str]) -> str:
    """Return how an action ended, and note why."""
    try:
        return action()
    except WaysoutError as error:
        trial.why.append(str(error))
        return REFUSED if "/" in str(error) else WRONG  # it must name a file
    except Exception as error:
        trial.why.append(f"{type(error).__name__}: {error}")
        return FOREIGN


def audited(wanted: Any, out: Path) -> str:
    """Audit a folder, and compare."""
    found = audit(out)
    if found.as_dict() == wanted:
        return SAME
    lacking = found.rows < wanted["rows"]
    complete = found.as_dict()["everybody"] == wanted["everybody"]
    return TOLD if coverage(found) and (lacking or complete) else WRONG


def resumed(world: World, out: Path, trial: Trial) -> str:
    """Resume the batch of a folder, and compare its table."""
    _, ended = run_batch(replace(world.request, out=out), on_note=trial.why.append)
    if ended.stopped or ended.left:
        trial.why.append(ended.stopped)
        return REFUSED if ended.exit_code and "/" in ended.stopped else WRONG
    same = table_of(out) == world.table and audit(out).as_dict() == world.audits["done"]
    if not same:
        return WRONG
    return TOLD if trial.why and "to be done again" in trial.why[-1] else SAME


def run(folders: int, seed: int) -> list[Trial]:
    """Make as many trials, the kinds of damage in turn."""
    trials = []
    with tempfile.TemporaryDirectory() as place, in_this_process():
        world = make_world(Path(place))
        for number in range(folders):
            kind = list(DAMAGES)[number % len(DAMAGES)]
            out = Path(place) / "trial"
            trials.append(attempt(world, out, random.Random(f"{seed} {number}"), kind))
            shutil.rmtree(out)
    return trials


def main() -> None:
    """Print how many trials of each kind ended how."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folders", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", action="store_true", help="tell of every trial")
    given = parser.parse_args()
    trials = run(given.folders, given.seed)
    for what in ("audited", "resumed"):
        counts = Counter((trial.kind, getattr(trial, what)) for trial in trials)
        print(
            f"{what:<14}" + "".join(f"{how:>16}" for how in (SAME, TOLD, REFUSED, WRONG, FOREIGN))
        )
        for kind in DAMAGES:
            numbers = (counts[kind, how] for how in (SAME, TOLD, REFUSED, WRONG, FOREIGN))
            print(f"{kind:<14}" + "".join(f"{number:>16}" for number in numbers))
    for number, trial in enumerate(trials):
        if trial.is_bad or given.every:
            print(f"{number}: {trial.kind}, {trial.file}: {trial.audited}, {trial.resumed}",
                  *trial.why, sep="\n    ")  # fmt: skip
    sys.exit(any(trial.is_bad for trial in trials))


if __name__ == "__main__":
    main()
