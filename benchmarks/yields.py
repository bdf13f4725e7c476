"""What each method yields for the same LLM, oracle, queries and oracle rows.

    python benchmarks/yields.py run loan heloc --llm simulated:1 --queries 30 --out FILE.jsonl
    python benchmarks/yields.py run loan --llm simulated:1 --arms @ablations --out FILE.jsonl
    python benchmarks/yields.py table FILE.jsonl [--short] [--markdown]
    python benchmarks/yields.py plot FILE.jsonl --out docs/figures

Every arm gets k × calls = 150 rows of the oracle and each card's own rules. The file has a line
for each search; it holds no rows of the data, only counts, names of features and hashes of keys.
Seconds are those of searches that run side by side: what a search costs by itself is measured by
`benchmarks/search.py`. Needs the tables and their trained oracles.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
from bisect import bisect_right
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paired import (
    DATASETS,
    UNFINISHED,
    Line,
    Roles,
    Runs,
    llm_words,
    read_lines,
    short_table,
    tables,
)

from waysout.datasets.load import Dataset, load_dataset
from waysout.datasets.manifest import load_oracle
from waysout.datasets.queries import queries as stored_queries
from waysout.datasets.split import training_rows
from waysout.domain.known import approved
from waysout.domain.metrics import irreducible, set_metrics
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.llm.base import Backend
from waysout.llm.connect import connect
from waysout.methods import make_method
from waysout.oracles.cache import CachedOracle
from waysout.report.result import Result
from waysout.run.find import afind_many
from waysout.run.progress import Progress

SHORTLIST = 10


@dataclass(frozen=True)
class Arm:
    """A method with its settings; ``calls`` where it gets another number than the rest."""

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    calls: int | None = None


ARMS: Mapping[str, Arm] = {
    "comp-mcts": Arm("comp-mcts"),
    "comp-mcts-none": Arm("comp-mcts", {"pruning": "none"}),
    "lats": Arm("lats"),
    "lats-high-temp": Arm("lats-high-temp"),
    "lats-diversity": Arm("lats-diversity"),
    "random": Arm("random"),
    "nearest": Arm("nearest"),
    "recombine": Arm("recombine"),
    "recombine-6": Arm("recombine", calls=6),
    "recombine-0": Arm("recombine", calls=0),
}


# What recombine is made of, taken away or changed one by one.
CHANGES = (
    "surrogate=pairwise", "surrogate=trees", "surrogate=none", "draws=1", "draws=0",
    "thompson=true", "own_edits=false", "pruning=gzip", "ask_about=promising", "ask_about=both",
    "edits=5", "edits=20", "remind=false", "quality=0", "novelty=0", "needless=0", "unnamed=0",
)  # fmt: skip

GROUPS: Mapping[str, tuple[str, ...]] = {
    "methods": tuple(arm for arm in ARMS if arm != "recombine-0"),
    "ablations": ("recombine", "recombine-0", *(f"recombine:{change}" for change in CHANGES)),
}


def read_arms(text: str) -> list[str]:
    """Read arms with commas between; ``@ablations`` stands for all of that group."""
    found: list[str] = []
    for part in filter(None, text.split(",")):
        if part.startswith("@") and part[1:] not in GROUPS:
            raise SystemExit(f"there is no group {part}: the groups are @{', @'.join(GROUPS)}")
        found += GROUPS[part[1:]] if part.startswith("@") else [part]
    return list(dict.fromkeys(found))


def parse_arm(text: str) -> Arm:
    """Read an arm: a name of `ARMS` or a method, then calls and settings where they differ.

    ``recombine@6:surrogate=none;thompson=true`` is recombine with six calls and two settings.
    """
    head, _, settings = text.partition(":")
    name, at, calls = head.partition("@")
    arm = ARMS.get(name, Arm(name))
    pairs = (pair.partition("=") for pair in settings.split(";") if pair)
    given = {key.strip(): value.strip() for key, _, value in pairs}
    made = replace(arm, settings={**arm.settings, **given}, calls=int(calls) if at else arm.calls)
    make_method(made.method, made.settings)  # what is not known is said before anything is run
    return made


@dataclass(frozen=True)
class Protocol:
    """What all arms have in common."""

    k: int = 5
    calls: int = 30

    @property
    def rows(self) -> int:
        """The rows of the oracle, also for an arm with fewer calls."""
        return self.k * self.calls


def load(name: str) -> tuple[Problem, Dataset]:
    """Load a data set and its problem; the arms share what the oracle has said."""
    data = load_dataset(name)
    oracle = CachedOracle(load_oracle(data.card))
    return Problem.from_card(data.card, oracle, training=training_rows(data)), data


async def run_arm(
    problem: Problem,
    data: Dataset,
    people: Sequence[int],
    arm: str,
    llm: str | Backend,
    *,
    protocol: Protocol | None = None,
    in_flight: int | None = None,
) -> AsyncGenerator[Line]:
    """Yield a line for each query, given by its row's number, as it is finished."""
    made, common = parse_arm(arm), protocol or Protocol()
    calls = common.calls if made.calls is None else made.calls
    notes: list[list[Progress]] = [[] for _ in people]
    found = afind_many(
        problem,
        [data.rows[number] for number in people],
        method=made.method,
        settings=made.settings,
        llm=llm,
        k=common.k,
        calls=calls,
        oracle_rows=common.rows,
        data=data,
        in_flight=in_flight,
        progress=lambda now: notes[now.index].append(now),
    )
    try:
        async for result in found:
            number, told = people[result.index], notes[result.index]
            limits = {"k": common.k, "calls_limit": calls, "rows_limit": common.rows}
            measured = await asyncio.to_thread(measure, problem, data, result, told)
            yield {"data": data.name, "arm": arm, "query": number, **limits, **measured}
    finally:
        await found.aclose()


def measure(problem: Problem, data: Dataset, result: Result, notes: Sequence[Progress]) -> Line:
    """Return what one search has found and spent, without any row."""
    spent, query = result.ledger, tuple(result.query.values())
    unique = [i for i, o in enumerate(result.options) if o.key != problem.key(query)]
    rows = [_row(result, i) for i in unique]
    needed = irreducible(problem, query, rows)
    return {
        "method": result.settings["method"],
        "llm": result.settings["llm"],
        "outcome": str(result.outcome.kind),
        **result.metrics,
        "irreducible": sum(needed),
        "calls": spent.llm_calls,
        "attempts": spent.attempts,
        "tokens_in": spent.tokens_in,
        "tokens_out": spent.tokens_out,
        "cached_tokens": spent.cached_tokens,
        "rows": spent.oracle_rows,
        "seconds": round(spent.seconds, 3),
        "options": [
            _option(problem, data, result, i) | {"irreducible": firm} | _found_at(i, notes)
            for i, firm in zip(unique, needed, strict=True)
        ],
        "shortlist": _shortlist(problem, query, result),
    }


def _row(result: Result, i: int) -> Row:
    return tuple(result.options[i].row.values())


def _option(problem: Problem, data: Dataset, result: Result, i: int) -> Line:
    option, query, row = result.options[i], tuple(result.query.values()), _row(result, i)
    alone = set_metrics(problem, query, [row], approved(data, problem.schema).matrix)
    return {
        "proximity": option.proximity,
        "sparsity": option.sparsity,
        "plausibility": alone["plausibility"],
        "levers": sorted(problem.rules.moved(query, row)),
        "key": hashlib.sha256(option.key.encode()).hexdigest()[:16],
    }


def _found_at(i: int, notes: Sequence[Progress]) -> Line:
    """Return after how many calls and rows the option was there."""
    now = next((note for note in notes if note.options > i), notes[-1])
    return {"calls": now.llm_calls, "rows": now.oracle_rows}


def _shortlist(problem: Problem, query: Row, result: Result) -> Line:
    """Return how different the options to read first are: the first, the first two, and so on."""
    rows = [tuple(option.row.values()) for option in result.pick(SHORTLIST)]
    told = [set_metrics(problem, query, rows[: n + 1]) for n in range(len(rows))]
    return {name: [metrics[name] for metrics in told] for name in ("novelty", "lever_sets")}


@dataclass(frozen=True)
class Sweep:
    """Every arm on every data set, with one backend and one file."""

    loaded: Mapping[str, tuple[Problem, Dataset]]
    backend: Backend
    queries: int
    file: Path
    protocol: Protocol
    in_flight: int | None
    arms: Sequence[str]

    async def run(self, together: bool) -> None:
        """Run what is not on file."""
        done = _done(self.file, self.backend.name, self.protocol)
        work = (self._arm(name, arm, done) for name in self.loaded for arm in self.arms)
        if not together:
            for one in work:
                await one
            return
        # The others go on when one fails: what they find is on file.
        for error in await asyncio.gather(*work, return_exceptions=True):
            if error is not None:
                raise error

    async def _arm(self, name: str, arm: str, done: Collection[tuple[str, str, int]]) -> None:
        stored = stored_queries(name)[: self.queries]
        people = [number for number in stored if (name, arm, number) not in done]
        if not people:
            return
        lines = run_arm(
            *self.loaded[name], people, arm, self.backend, protocol=self.protocol,
            in_flight=self.in_flight,
        )  # fmt: skip
        async for line in lines:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, allow_nan=False) + "\n")
            told = f"{line['unique_valid']} options, {line['calls']} calls, {line['rows']} rows"
            print(f"{name} {arm} query {line['query']}: {told}, {line['outcome']}", flush=True)


async def run_all(
    datasets: Iterable[str],
    arms: Iterable[str],
    llm: str | Backend,
    queries: int,
    out: str | Path,
    *,
    protocol: Protocol | None = None,
    in_flight: int | None = None,
    together: bool = True,
) -> None:
    """Run every arm on every data set, and append each line to the file as soon as it is there.

    What the file holds already is not run again. All arms share one backend, which has to bound
    what it does at once: each arm alone has up to ``in_flight`` requests under way (without one, as
    many as the backend says it can take). ``together=False`` runs one arm after the other.
    """
    wanted = list(dict.fromkeys(arms))
    for arm in wanted:
        parse_arm(arm)  # what is not known is said before anything is loaded
    loaded = {name: load(name) for name in datasets}
    async with AsyncExitStack() as stack:
        if isinstance(llm, str):
            llm = await stack.enter_async_context(connect(llm))
        common = protocol or Protocol()
        sweep = Sweep(loaded, llm, queries, Path(out), common, in_flight, wanted)
        await sweep.run(together)


def _done(file: Path, llm: str, common: Protocol) -> set[tuple[str, str, int]]:
    """Return the searches that are on file, or refuse to add to those of another set-up."""
    lines = read_lines(file) if file.exists() else []
    for line in lines:
        found = (line["llm"] or llm, line["k"], line["rows_limit"])
        if found != (llm, common.k, common.rows):
            raise SystemExit(f"{file} is of another set-up (LLM, k, rows: {found}): give a new one")
    return {
        (line["data"], line["arm"], line["query"])
        for line in lines
        if line["outcome"] not in UNFINISHED
    }


# Figures ---------------------------------------------------------------------------------------

DASHES = ((), (5, 2), (1, 1.5), (6, 2, 1, 2), (9, 2), (1, 4), (3, 1, 1, 1, 1, 1), (12, 3, 3, 3))
AXES = {"calls": "LLM calls", "rows": "oracle rows"}


def figures(runs: Runs, folder: Path, subject: str) -> None:
    """Write mean unique valid against calls and against rows, a panel a data set, as SVG."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise SystemExit("figures need matplotlib: pip install matplotlib") from None
    folder.mkdir(parents=True, exist_ok=True)
    for spent in AXES:
        # The same file each time: no ids drawn at random, and no date.
        with mpl.rc_context({"svg.hashsalt": "waysout", "svg.fonttype": "none", "font.size": 9}):
            file = folder / f"yield-by-{spent}.svg"
            _figure(runs, spent, subject).savefig(file, metadata={"Date": None, "Creator": None})
        print(file)


def _figure(runs: Runs, spent: str, subject: str) -> Any:
    from matplotlib.figure import Figure

    height = -(-len(runs.lines) // 2)
    figure = Figure(figsize=(8, 1.2 + 2.6 * height), layout="constrained")
    handles: dict[str, Any] = {}
    for place, data in enumerate(runs.lines, 1):
        panel = figure.add_subplot(height, 2, place)
        handles |= _draw(panel, runs, data, spent, subject)
        panel.set(title=data, xlabel=AXES[spent], ylabel="unique valid options")
        panel.set_ylim(bottom=0)
    ordered = [handles[arm] for arm in sorted(handles)]
    figure.legend(handles=ordered, loc="outside lower center", ncols=3, handlelength=5)
    figure.suptitle(f"Ways out found, mean of the queries; LLM: {llm_words(runs.llm)}")
    return figure


def _draw(panel: Any, runs: Runs, data: str, spent: str, subject: str) -> dict[str, Any]:
    """Draw a line for each arm, told apart by its dashes as well; return them by name."""
    every = sorted({arm for arms in runs.lines.values() for arm in arms} - {subject})
    handles = {}
    for arm, lines in runs.lines[data].items():
        limit = max(line[f"{spent}_limit"] for line in lines.values())
        found = sorted(o[spent] for line in lines.values() for o in line["options"])
        means = [bisect_right(found, x) / len(lines) for x in range(limit + 1)]
        number, ours = [subject, *every].index(arm), arm.startswith(subject)
        (handles[arm],) = panel.plot(
            means, label=arm, drawstyle="steps-post", dashes=DASHES[number % len(DASHES)],
            color="black" if ours else f"C{number % 10}", linewidth=2.0 if ours else 1.2,
        )  # fmt: skip
    return handles


# Command line ----------------------------------------------------------------------------------


def main() -> None:
    """Run searches, or tell what they yielded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="run searches and write a line for each")
    running.add_argument("datasets", nargs="+", choices=DATASETS)
    running.add_argument("--llm", required=True, help="a connection string, such as simulated:1")
    running.add_argument("--queries", type=int, default=30)
    running.add_argument("--calls", type=int, default=30)
    running.add_argument("--k", type=int, default=5)
    arms = f"with commas between; @{' and @'.join(GROUPS)} are groups"
    named = f"NAME[@CALLS][:setting=value;…], {arms}"
    running.add_argument("--arms", default="@methods", help=named)
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--resume", action="store_true", help="go on with a file that is there")
    running.add_argument("--jobs", type=int, help="LLM requests in flight for each arm")
    running.add_argument("--together", action="store_true", help="all arms at once")
    for name, what in (("table", "print tables and targets"), ("plot", "draw two figures")):
        telling = commands.add_parser(name, help=what)
        telling.add_argument("files", nargs="+", type=Path)
        telling.add_argument("--arms", default="", help=f"only these, {arms}")
        telling.add_argument("--subject", default=Roles.subject)
        if name == "plot":
            telling.add_argument("--out", type=Path, required=True, help="a folder")
        else:
            telling.add_argument("--few", default=Roles.few, help="the arm with few calls")
            telling.add_argument("--base", default=Roles.base, help="the arm to be compared with")
            telling.add_argument("--markdown", action="store_true")
            telling.add_argument("--short", action="store_true", help="one line an arm, no targets")
    given = parser.parse_args()
    if given.command == "run":
        _run(given)
        return
    runs = Runs.read(given.files, read_arms(given.arms))
    if not runs.lines:
        raise SystemExit("there is no query that all of these arms have finished")
    if given.command == "plot":
        figures(runs, given.out, given.subject)
    elif given.short:
        short_table(runs, given.markdown)
    else:
        tables(runs, Roles(given.subject, given.few, given.base), given.markdown)


def _run(given: argparse.Namespace) -> None:
    if given.out.exists() and not given.resume:
        raise SystemExit(f"{given.out} is there: --resume goes on with it, or give another file")
    work = run_all(
        given.datasets, read_arms(given.arms), given.llm, given.queries, given.out,
        protocol=Protocol(given.k, given.calls), in_flight=given.jobs, together=given.together,
    )  # fmt: skip
    asyncio.run(work)


if __name__ == "__main__":
    main()
