"""What an edit library shared between similar applicants saves, and what it costs in quality.

    python benchmarks/shared.py run --llm simulated:1 --out FILE.jsonl
    python benchmarks/shared.py run --llm simulated:1 --only-named --out FILE.jsonl --resume
    python benchmarks/shared.py table FILE.jsonl --markdown

Every arm searches for the same rejected, held-out applicants of Adult, at 150 and at 60 rows of the
oracle. With `--only-named`, nothing but what an LLM named is combined (`own_edits=false`). The file
has a line for each search and one for the pilots of each arm that has some; it holds no rows of the
data, only counts and shares. `--work` keeps libraries, so that a run that was cut short can go on
(`--resume`) with the same ones. Needs the table and its trained oracle.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from paired import Line, llm_words, read_lines, show
from yields import load

from waysout.batch.shared_edits import SharedEdits, SharedLibrary, library_in, sharing
from waysout.bench.stats import paired
from waysout.datasets.load import Dataset
from waysout.datasets.split import split
from waysout.domain.edit import Edit
from waysout.domain.memory import Memory, Past
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.llm.base import Backend
from waysout.llm.connect import connect
from waysout.report.result import Result
from waysout.run.find import Options, find_many
from waysout.run.sync import wait_for

DATA = "adult"
BASE = "throughout"
MANY = 10_000


@dataclass(frozen=True)
class Arm:
    """Whether the LLM is asked at all, only by those who are stuck, and how many pilots share."""

    asks: bool = True
    stuck: bool = False
    pilots: int = 0


ARMS: Mapping[str, Arm] = {
    BASE: Arm(),
    "stuck": Arm(stuck=True),
    "no calls": Arm(asks=False),
    "16 pilots": Arm(stuck=True, pilots=16),
    "64 pilots": Arm(stuck=True, pilots=64),
    "128 pilots": Arm(stuck=True, pilots=128),
}


# Running ----------------------------------------------------------------------------------------


@dataclass
class Kept(Memory):
    """Keeps what was named for each person: first the shared edits, then the LLM's own."""

    inner: SharedEdits | None
    pasts: dict[Row, Past] = field(default_factory=dict)
    shared: dict[Row, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def of(self, problem: Problem, query: Row) -> Past:
        """Return what is shared with a person."""
        past = Past() if self.inner is None else self.inner.of(problem, query)
        self.pasts[query], self.shared[query] = past, len(past.edits)
        return past


@dataclass(frozen=True)
class Bench:
    """The same people for every arm."""

    problem: Problem
    data: Dataset
    people: Sequence[int]
    backend: Backend
    calls: int
    work: Path
    own_edits: bool = True
    in_flight: int | None = None

    def lines(self, name: str, rows: int) -> Iterator[Line]:
        """Search for everybody as an arm does, and yield a line for each."""
        arm = ARMS[name]
        options: Options = {
            "llm": self.backend,
            "calls": self.calls if arm.asks else 0,
            "oracle_rows": rows,
            "settings": {"own_edits": self.own_edits},
            "in_flight": self.in_flight,
        }
        limits = {"rows_limit": rows, "calls_limit": self.calls, "own_edits": self.own_edits}
        common: Line = {"arm": name, "llm": self.backend.name, **limits}
        library = self._library(name, rows, options) if arm.pilots else None
        pilots = {pilot.row for pilot in library.pilots} if library else set()
        if library:
            yield common | {"pilots": len(pilots), "calls": library.tally.llm_calls}
        kept = Kept(SharedEdits(library) if library else None)
        queries = [self.data.rows[number] for number in self.people]
        options = {**(sharing(options) if arm.stuck else options), "memory": kept}
        for result in find_many(self.problem, queries, **options):
            query = queries[result.index]
            about = {"query": self.people[result.index], "pilot": query in pilots}
            yield common | about | measure(self.problem, query, result, kept)

    def _library(self, name: str, rows: int, options: Options) -> SharedLibrary:
        kind = "own" if self.own_edits else "named"
        folder = self.work / f"{name}-{rows}-{kind}".replace(" ", "-")
        people = [self.data.rows[number] for number in self.people]
        found = library_in(folder, self.problem, people, options, ARMS[name].pilots)
        assert found is not None  # nobody stops it
        return found


def measure(problem: Problem, query: Row, result: Result, kept: Kept) -> Line:
    """Return what one search has found and spent, without any row."""
    own_key = problem.key(query)
    rows = [tuple(o.row.values()) for o in result.options if o.key != own_key]
    edits, shared = kept.pasts[query].edits, kept.shared[query]
    names = ("unique_valid", "proximity", "sparsity", "lever_sets")
    return {
        "outcome": str(result.outcome.kind),
        **{name: result.metrics[name] for name in names},
        "calls": result.ledger.llm_calls,
        "rows": result.ledger.oracle_rows,
        "named": named_share(problem, query, rows, edits),
        "own": named_share(problem, query, rows, edits[shared:]),
    }


def named_share(
    problem: Problem, query: Row, rows: Sequence[Row], edits: Sequence[Edit]
) -> float | None:
    """Return the share of options that are made of such edits alone."""
    known = {(edit.feature, edit.value) for edit in edits}

    def is_named(row: Row) -> bool:
        changes = {name: new for name, (_, new) in problem.changes(query, row).items()}
        named = {name: new for name, new in changes.items() if (name, new) in known}
        return problem.rules.apply(query, named) == row  # with what follows from them

    return statistics.fmean(map(is_named, rows)) if rows else None


def rejected(problem: Problem, data: Dataset, count: int) -> list[int]:
    """Draw held-out rows that the oracle rejects, none twice."""
    _, held_out = split(data)
    answers = problem.oracle.ask([data.rows[i] for i in held_out])
    drawn = np.random.default_rng(42).permutation(held_out[~answers.decision]).tolist()
    first = {data.rows[number]: number for number in reversed(drawn)}
    return [number for number in drawn if first[data.rows[number]] == number][:count]


def run(args: argparse.Namespace) -> None:
    """Run every arm that is not on file."""
    lines = read_lines(args.out) if args.out.exists() else []
    if lines and not args.resume:
        raise SystemExit(f"{args.out} is there: give --resume to go on with it, or a new file")
    backend = connect(args.llm)  # one for all arms: a model in memory is loaded once
    if any((line["llm"], line["calls_limit"]) != (backend.name, args.calls) for line in lines):
        raise SystemExit(f"{args.out} is of another set-up: give a new file")
    problem, data = load(DATA)
    people = rejected(problem, data, args.people)
    with ExitStack() as stack:
        work = args.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        own = not args.only_named
        stack.callback(lambda: wait_for(backend.aclose()))
        bench = Bench(problem, data, people, backend, args.calls, work, own, args.jobs)
        done = {(line["own_edits"], line["rows_limit"], line["arm"]) for line in lines}
        for rows in args.rows:
            for arm in args.arms:
                if (own, rows, arm) not in done:
                    _run_arm(bench, arm, rows, args.out)


def _run_arm(bench: Bench, arm: str, rows: int, out: Path) -> None:
    """Run an arm whole, then write: of an arm that was cut short, nothing is on file."""
    lines = list(bench.lines(arm, rows))
    with out.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line, allow_nan=False) + "\n" for line in lines)
    print(f"{arm}, {rows} rows: {sum(line['calls'] for line in lines)} calls", flush=True)


# Telling ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told:
    """The lines of one arm: those of people by their number, and what its pilots cost."""

    people: Mapping[int, Line]
    pilot_calls: int

    @classmethod
    def of(cls, lines: Sequence[Line]) -> Told:
        """Sort an arm's lines."""
        people = {line["query"]: line for line in lines if "query" in line}
        return cls(people, sum(line["calls"] for line in lines if "pilots" in line))

    @property
    def later_calls(self) -> float:
        """Calls of a person who is no pilot: those of all others in a larger batch."""
        return _mean([line["calls"] for line in self.people.values() if not line["pilot"]])

    def calls_each(self, people: int) -> float:
        """Return the calls per person of a batch of so many, pilots' calls included."""
        if people == len(self.people):
            return self.pilot_calls / people + self.mean("calls")
        return self.pilot_calls / people + self.later_calls

    def mean(self, name: str) -> float:
        """Return a mean over everybody who has a value."""
        values: list[float | None] = [line[name] for line in self.people.values()]
        return _mean(values)

    @property
    def named_options(self) -> float:
        """Options per person that are made of named edits alone."""
        return _mean([x["unique_valid"] * (x["named"] or 0.0) for x in self.people.values()])


def _mean(values: Sequence[float | None]) -> float:
    there = [value for value in values if value is not None]
    return statistics.fmean(there) if there else math.nan


COLUMNS: Mapping[str, int] = {
    "unique_valid": 1, "proximity": 3, "sparsity": 2, "lever_sets": 1, "named": 3, "own": 3,
}  # fmt: skip
WORDS: Mapping[str, str] = {
    "unique_valid": "unique valid", "lever_sets": "lever sets", "named": "named share",
    "own": "named for this person",
}  # fmt: skip


def table(files: Sequence[Path], markdown: bool) -> None:
    """Print what each arm spends and yields, and how it differs from asking throughout."""
    lines = [line for file in files for line in read_lines(file)]
    print(f"LLM: {llm_words(lines[0]['llm'])}, at most {lines[0]['calls_limit']} calls a person")
    parts: dict[tuple[bool, int], dict[str, list[Line]]] = {}
    for line in lines:
        part = parts.setdefault((line["own_edits"], line["rows_limit"]), {})
        part.setdefault(line["arm"], []).append(line)
    for (own, rows), found in sorted(parts.items(), reverse=True):
        arms = {arm: Told.of(found[arm]) for arm in ARMS if arm in found}
        count = len(next(iter(arms.values())).people)
        edits = "own and named edits" if own else "named edits alone"
        print(f"\n{rows} oracle rows, {edits}, {count} people\n")
        show(_levels(arms, count), markdown)
        if BASE in arms:
            _differences(arms, markdown)


def _levels(arms: Mapping[str, Told], count: int) -> list[list[str]]:
    words = [WORDS.get(name, name) for name in COLUMNS]
    head = ["arm", "calls each", f"of {MANY:,}", "empty", *words, "named options a call"]
    found = [head]
    for arm, told in arms.items():
        calls = told.calls_each(MANY)
        empty = sum(not line["unique_valid"] for line in told.people.values())
        means = ((told.mean(name), digits) for name, digits in COLUMNS.items())
        cells = ["–" if math.isnan(mean) else f"{mean:.{digits}f}" for mean, digits in means]
        gained = f"{told.named_options / calls:.1f}" if calls else "–"
        spent = [f"{told.calls_each(count):.2f}", f"{calls:.2f}", str(empty)]
        found.append([arm, *spent, *cells, gained])
    return found


def _differences(arms: Mapping[str, Told], markdown: bool) -> None:
    """Compare on those who are no pilots in any arm: pilots find their own edits again."""
    everybody = arms[BASE].people
    pilots = {n for told in arms.values() for n, line in told.people.items() if line["pilot"]}
    others = [n for n in everybody if n not in pilots]
    print(f"\nLess {BASE!r}, on the {len(others)} who are pilots in no arm; 95 % intervals\n")
    rows = [["arm", "calls", *(WORDS.get(name, name) for name in COLUMNS)]]
    for arm, told in arms.items():
        if arm != BASE:
            pairs = [(everybody[n], told.people[n]) for n in others]
            rows.append([arm, *(_said(pairs, name) for name in ("calls", *COLUMNS))])
    show(rows, markdown)


def _said(pairs: Sequence[tuple[Line, Line]], name: str) -> str:
    found = paired([base[name] for base, _ in pairs], [arm[name] for _, arm in pairs])
    if found.delta is None:
        return "–"
    if found.low is None or found.constant:
        return f"{found.delta:+.3f}"
    return f"{found.delta:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def _arms(text: str) -> list[str]:
    found = [name.strip() for name in text.split(",")]
    unknown = [name for name in found if name not in ARMS]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no arm {unknown[0]!r}: {', '.join(ARMS)}")
    return found


def main() -> None:
    """Run searches, or tell what they yielded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="run searches and write a line for each")
    running.add_argument("--llm", default="simulated:1", help="a connection string")
    running.add_argument("--people", type=int, default=300)
    running.add_argument("--calls", type=int, default=6)
    running.add_argument("--rows", type=int, nargs="+", default=[150, 60])
    running.add_argument("--only-named", action="store_true", help="combine no edits of our own")
    running.add_argument("--arms", type=_arms, default=list(ARMS), help=", ".join(ARMS))
    running.add_argument("--jobs", type=int, help="LLM requests in flight")
    running.add_argument("--work", type=Path, help="a folder that keeps libraries")
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--resume", action="store_true", help="go on with a file that is there")
    telling = commands.add_parser("table", help="print tables")
    telling.add_argument("files", nargs="+", type=Path)
    telling.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    if args.command == "run":
        run(args)
    else:
        table(args.files, args.markdown)


if __name__ == "__main__":
    main()
