"""Damages run files at random, and asks `waysout runs` about each of them.

    python benchmarks/damage_runs.py --files 400 --seed 0

Each file is a copy of one of four runs (finished, stopped, of several people, and killed with its
log beside it) that is cut, zeroed, overwritten and so on. Then the functions behind `waysout runs
list`, `show`, `export`, `resume` and `repair` must each either show what the whole run shows or
name the damage; what is repaired must be part of what there was, and a repaired run must come to
the same end. Where the log itself is damaged SQLite goes back to the last moment before, so less
may be shown there. It prints what happened by kind of damage, and leaves with 1 if anything was
shown that is not true (wrong) or if an error was not one of ours (foreign).
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import waysout as ways
from waysout.cli.main import app
from waysout.errors import IntegrityError, WaysoutError
from waysout.store import Store, tables

PAGE = tables.PAGE_SIZE
OUTCOMES = ("unharmed", "less", "repaired", "refused", "wrong", "foreign")
SHOWN = ("list", "show", "export")
CARD = """
card = 1
name = "loans"
[outcome]
target = "status"
positive = "approved"
[features.income]
kind = "integer"
range = [10, 90]
[features.debt]
kind = "integer"
range = [0, 40]
[features.job]
kind = "category"
levels = ["none", "part-time", "full-time"]
"""
MODEL = """
def approve(table):
    job = table["job"].astype(str).map({"none": 0, "part-time": 8, "full-time": 15})
    score = table["income"] - table["debt"] + job.astype(float)
    return 1 / (1 + 2.718281828 ** (-(score - 35) / 8))
"""
ROWS = [
    {"income": 30 + i, "debt": 20, "job": ("none", "part-time", "full-time")[i % 3]}
    for i in range(4)
]
FIND = ("--model", "scoring:approve", "--data", "loans.csv", "--card", "loans.toml")
BUDGET = ("--llm", "simulated:1", "--calls", "8", "--oracle-rows", "40")


class Wrong(Exception):
    """Something was shown that is not true, or refused without a word on why."""


# Damage -----------------------------------------------------------------------------------------


def _truncate(data: bytearray, draw: random.Random) -> None:
    del data[draw.randrange(len(data)) :]


def _zero_page(data: bytearray, draw: random.Random) -> None:
    at = draw.randrange(max(1, len(data) // PAGE)) * PAGE
    data[at : at + PAGE] = bytes(len(data[at : at + PAGE]))


def _flip_bits(data: bytearray, draw: random.Random) -> None:
    for _ in range(draw.choice([1, 1, 4, 32])):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _flip_beginning(data: bytearray, draw: random.Random) -> None:
    """Change header, schema and the first small tables: few bits, and all of them matter."""
    for _ in range(draw.choice([1, 1, 2])):
        data[draw.randrange(min(len(data), 4 * PAGE))] ^= 1 << draw.randrange(8)


def _schema_byte(data: bytearray, draw: random.Random) -> None:
    data[draw.randrange(100, min(len(data), PAGE))] = draw.randrange(0x80, 0x100)


def _overwrite(data: bytearray, draw: random.Random) -> None:
    for _ in range(draw.choice([1, 3])):
        at = draw.randrange(len(data))
        length = len(data[at : at + draw.choice([1, 16, 300, PAGE, 3 * PAGE])])
        data[at : at + length] = draw.randbytes(length)


def _append(data: bytearray, draw: random.Random) -> None:
    data += draw.randbytes(draw.choice([1, 100, PAGE, 5 * PAGE]))


def _empty(data: bytearray, _: random.Random) -> None:
    data.clear()


def _swap_pages(data: bytearray, draw: random.Random) -> None:
    one, other = (PAGE * n for n in draw.sample(range(max(2, len(data) // PAGE)), 2))
    page = data[one : one + PAGE]
    data[one : one + PAGE], data[other : other + PAGE] = data[other : other + PAGE], page


DAMAGE: Mapping[str, Callable[[bytearray, random.Random], None]] = {
    "truncated": _truncate,
    "zeroed page": _zero_page,
    "flipped bits": _flip_bits,
    "flipped beginning": _flip_beginning,
    "schema byte": _schema_byte,
    "overwritten": _overwrite,
    "appended": _append,
    "empty": _empty,
    "swapped pages": _swap_pages,
}


# Whole runs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Whole:
    """A run that nothing has happened to: what is shown of it, its rows, and where it ends."""

    path: Path
    listed: Any
    shown: Any
    exported: Any
    end: Any
    rows: frozenset[tuple[Any, ...]]


def make_whole(folder: Path) -> dict[str, Whole]:
    """Make the runs that are damaged, in the current folder."""
    Path("loans.toml").write_text(CARD)
    Path("scoring.py").write_text(MODEL)
    lines = [",".join(map(str, row.values())) + ",refused" for row in ROWS]
    lines += [f"{income},{income % 40},full-time,approved" for income in range(50, 90)]
    Path("loans.csv").write_text("\n".join(["income,debt,job,status", *lines]))
    folder.mkdir()
    runs = {name: folder / f"{name}.db" for name in ("finished", "stopped", "killed", "several")}
    find = ("find", *FIND, *BUDGET, "--trust-code", "--row", "0", "--json", "--run")
    with copied_at(4, runs["stopped"]):
        asked(*find, str(runs["finished"]))
    Store.open(runs["stopped"]).close()  # folds its log in
    again = Path(shutil.copy(runs["stopped"], folder / "again"))
    with copied_at(6, runs["killed"]):  # of which some is in the file, and more in the log
        asked("runs", "resume", str(again), "--trust-code", "--json")
    again.unlink()
    card = ways.Card.load(Path("loans.toml"))
    problem = ways.Problem.from_card(card, ways.as_oracle(_approve(), card))
    list(ways.find_many(problem, ROWS, llm="simulated:1", calls=4, run=runs["several"]))
    return {name: _whole(path) for name, path in runs.items()}


@contextmanager
def copied_at(answer: int, to: Path) -> Iterator[None]:
    """Copy a run as a kill would leave it once it holds so many answers."""
    append = Store._append

    def copy(store: Store, index: int, *rest: Any) -> None:
        append(store, index, *rest)
        if store.spent(index).llm_calls == answer and not to.exists():
            shutil.copy(store.path, to)
            shutil.copy(f"{store.path}-wal", f"{to}-wal")

    with patch.object(Store, "_append", copy):
        yield


def _approve() -> Any:
    code: dict[str, Any] = {}
    exec(MODEL, code)
    return code["approve"]


def _whole(path: Path) -> Whole:
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(path, Path(folder))
        listed, shown, exported = (said(what, copy) for what in ("list", "show", "export"))
        rows, end = rows_of(copy), said("resume", copy)
    if isinstance(end, WaysoutError) != (path.stem == "several"):
        raise RuntimeError(f"the whole run {path} cannot be resumed: {end}")
    return Whole(path, listed, shown, exported, end, rows)


def copied(run: Path, folder: Path) -> Path:
    """Copy a run and its log to a folder, under a name that says nothing."""
    folder.mkdir(exist_ok=True)
    for file in (run, run.with_name(f"{run.name}-wal")):
        if file.exists():
            shutil.copy(file, folder / file.name.replace(run.name, "run.db"))
    return folder / "run.db"


def rows_of(run: Path) -> frozenset[tuple[Any, ...]]:
    """Return every row in a run's tables but the totals, without its number."""
    with closing(tables.connect(run)) as db:
        return frozenset(
            (table, *row)
            for table, columns in tables.COLUMNS.items()
            for row in db.execute(f"SELECT {', '.join(columns)} FROM {table}")
        )


# Commands ---------------------------------------------------------------------------------------


def said(what: str, run: Path) -> Any:
    """Return what a command says of a run, or our error, if it refuses; others are raised."""
    os.environ["WAYSOUT_RUNS"] = str(run.parent)
    more = {"list": ["--json"], "export": [str(run)], "resume": [str(run), "--trust-code"]}
    words = more.get(what, [str(run)])
    if what in ("show", "resume", "repair"):
        words = [*words, "--json"]
    try:
        text = asked("runs", what, *words)
        if what == "show":
            asked("runs", "show", str(run))
    except WaysoutError as error:
        return error
    if what == "export":
        return [_timeless(json.loads(line)) for line in text.splitlines()]
    found = _timeless(json.loads(text))
    if what == "list":
        problem = next(iter(found)).get("problem")
        return IntegrityError(problem) if problem else found
    return found


def asked(*words: str) -> str:
    """Run a command in this process; return what it prints."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        code = app(list(words), standalone_mode=False)
    if code:
        raise RuntimeError(f"waysout {shlex.join(words)} left with {code}")
    return out.getvalue()


def _timeless(value: Any) -> Any:
    """Leave out what differs when the same is done again."""
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in ("seconds", "path")}
    return [_timeless(each) for each in value] if isinstance(value, list) else value


# Judging ----------------------------------------------------------------------------------------


def judge(whole: Whole, damaged: Path, *, log: bool) -> str:
    """Return what became of a damaged run; raise `Wrong` where something untrue was shown.

    ``log`` says that its log is damaged: then it may hold less than the whole run.
    """
    with tempfile.TemporaryDirectory() as folder:
        parts = {what: copied(damaged, Path(folder) / what) for what in (*SHOWN, "resume")}
        found = {what: said(what, run) for what, run in parts.items()}
        truth = {"list": whole.listed, "show": whole.shown, "export": whole.exported,
                 "resume": whole.end}  # fmt: skip
        refused = {what for what, told in found.items() if isinstance(told, WaysoutError)}
        for what in refused:
            if "run.db" not in str(found[what]) and not isinstance(truth[what], WaysoutError):
                raise Wrong(f"{what} is refused without a name: {found[what]}")
        other = {what for what in truth if what not in refused and found[what] != truth[what]}
        if other and not (log and _is_part(found, whole)):
            raise Wrong(f"{', '.join(sorted(other))}: shown otherwise")
        if "resume" not in refused and isinstance(
            again := said("list", parts["resume"]), Exception
        ):
            raise Wrong(f"damaged once it was resumed: {again}")
        run = copied(damaged, Path(folder) / "repair")
        report = said("repair", run)
        if isinstance(report, WaysoutError):
            if not refused:
                raise Wrong(f"it is shown, and not repaired: {report}")
            return "refused"
        # A lost manifest is replaced by one that says so.
        new = [row for row in rows_of(run) - whole.rows if '"lost":true' not in str(row)]
        if new:
            raise Wrong("rows that were not there are kept")
        expected = {what for what, told in truth.items() if isinstance(told, WaysoutError)}
        if report["fine"]:
            if refused > expected:
                raise Wrong(f"whole, and refused: {[str(found[what]) for what in refused]}")
            return "less" if other else "unharmed"
        _judge_repaired(whole, run)
        return "repaired"


def _is_part(found: Mapping[str, Any], whole: Whole) -> bool:
    """Whether less is shown than of the whole run, and the same search goes on to the same end."""
    counts = ("queries", "finished", "options", "llm_calls", "oracle_rows")
    kept = {what: told for what, told in found.items() if not isinstance(told, WaysoutError)}
    [listed], [all_] = kept.get("list", whole.listed), whole.listed
    fewer = all(listed[name] <= all_[name] for name in counts)
    same = _found(kept.get("resume", whole.end)) == _found(whole.end)
    return fewer and same and all(result in whole.exported for result in kept.get("export", ()))


def _found(result: Any) -> Any:
    """Leave out what it cost: what was lost is asked again."""
    return {name: value for name, value in result.items() if name != "ledger"}


def _judge_repaired(whole: Whole, run: Path) -> None:
    for what in SHOWN:
        told = said(what, run)
        if isinstance(told, WaysoutError):
            raise Wrong(f"{what} is refused after a repair: {told}")
        if what == "export" and not all(result in whole.exported for result in told):
            raise Wrong("another result after a repair")
    end = said("resume", run)
    if not isinstance(end, WaysoutError) and _found(end) != _found(whole.end):
        raise Wrong("another end after a repair")


def damage_runs(files: int, seed: int) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Damage some files; return the outcomes by kind of damage, and what was wrong."""
    counts: Counter[tuple[str, str]] = Counter()
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder, chdir(folder), patch.dict(os.environ):
        whole = make_whole(Path("whole"))
        for number in range(files):
            draw = random.Random(f"{seed}/{number}")
            kind = list(DAMAGE)[number % len(DAMAGE)]
            name = draw.choice(list(whole))
            run = copied(whole[name].path, Path(f"damaged-{number}"))
            file = Path(f"{run}-wal") if name == "killed" and draw.random() < 0.5 else run
            log = file is not run
            data = bytearray(file.read_bytes())
            DAMAGE[kind](data, draw)
            file.write_bytes(data)
            try:
                outcome = judge(whole[name], run, log=log)
            except Wrong as error:
                outcome = "wrong"
                problems.append(f"{number} {name} {kind}{' of the log' * log}: {error}")
            except Exception as error:
                outcome = "foreign"
                problems.append(f"{number} {name} {kind}{' of the log' * log}: {error!r}")
            counts[f"{kind}{', log' * log}", outcome] += 1
            shutil.rmtree(run.parent)
    return counts, problems


def main() -> None:
    """Print the outcomes by kind of damage."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts, problems = damage_runs(given.files, given.seed)
    print(f"{'':24}" + "".join(f"{outcome:>10}" for outcome in OUTCOMES))
    for kind in sorted({kind for kind, _ in counts}):
        print(f"{kind:24}" + "".join(f"{counts[kind, o]:10}" for o in OUTCOMES))
    print(f"{'all':24}" + "".join(
        f"{sum(n for (_, o), n in counts.items() if o == outcome):10}" for outcome in OUTCOMES
    ))  # fmt: skip
    for problem in problems:
        print(problem)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
