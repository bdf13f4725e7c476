"""What methods without an LLM find for the same oracle rows, next to the paper's figures.

    python benchmarks/budgets.py run loan heloc --rows 150 1000 --out FILE.jsonl
    python benchmarks/budgets.py table FILE.jsonl [--markdown]
    python benchmarks/budgets.py speed adult --rows 1000

Every arm gets the same queries, rules, seed and rows. `run` writes a line for each search, without
any row of the data. With several jobs, seconds are those of searches side by side; `speed` runs one
arm after the other, each in a process of its own, and tells rows a second and memory. `table` sets
each mean beside the paper's (its table of oracle-budgeted baselines, which comes with the package);
"first after" is the median of the rows asked when the batch with the first option came, queries
without any included. Needs the tables and their trained oracles.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from paired import DATASETS, UNFINISHED, Line, read_lines, show
from yields import load, parse_arm

from waysout.bench import paper
from waysout.datasets.load import Dataset
from waysout.datasets.queries import queries as stored_queries
from waysout.domain.problem import Problem
from waysout.methods import make_method
from waysout.report.result import Result
from waysout.run.find import find

ARMS = (
    "random", "nearest", "dice", "dice:variant=genetic", "dice:variant=kdtree", "growing-spheres",
    "certifai", "cchvae", "tabular-diffusion", "recombine-0",
)  # fmt: skip
PAPER_NAMES = {
    "dice": "DiCE", "growing-spheres": "GrowingSpheres", "certifai": "CERTIFAI",
    "cchvae": "C-CHVAE", "tabular-diffusion": "Tabular Diffusion",
}  # fmt: skip
PEOPLE_A_JOB = 5

Job = tuple[str, str, int, tuple[int, ...]]
"""A data set, an arm, a number of rows and the queries."""


# Running ---------------------------------------------------------------------------------------


@cache
def loaded(name: str) -> tuple[Problem, Dataset]:
    """Load a data set once in each process."""
    return load(name)


def run_job(job: Job) -> list[Line]:
    """Run some queries of one arm, one after the other."""
    data, arm, rows, people = job
    return [search(data, arm, rows, number) for number in people]


def search(data: str, arm: str, rows: int, number: int) -> Line:
    """Run one search and return its line."""
    (problem, known), made, first = loaded(data), parse_arm(arm), list[int]()
    result = find(
        problem,
        known.rows[number],
        method=made.method,
        settings=made.settings,
        calls=0,
        oracle_rows=rows,
        data=known,
        progress=lambda now: first.append(now.oracle_rows) if now.options and not first else None,
    )
    return {
        "data": data, "arm": arm, "query": number, "rows_limit": rows,
        "outcome": str(result.outcome.kind), "reason": result.outcome.reason, **result.metrics,
        **_faults(problem, result), "rows": result.ledger.oracle_rows,
        "first": first[0] if first else None, "seconds": round(result.ledger.seconds, 3),
    }  # fmt: skip


def _faults(problem: Problem, result: Result) -> Line:
    """Return how many options break a rule or are not approved when they are asked once more."""
    query = tuple(result.query.values())
    rows = [tuple(option.row.values()) for option in result.options]
    if not rows:
        return {"violations": 0, "refused": 0}
    broken = sum(bool(problem.violations(query, row)) for row in rows)
    return {"violations": broken, "refused": int((~problem.oracle.ask(rows).decision).sum())}


def jobs_of(
    datasets: Iterable[str],
    arms: Sequence[str],
    limits: Sequence[int],
    queries: int,
    done: set[tuple[str, str, int, int]],
) -> Iterator[Job]:
    """Yield what is to be run and not on file, the longest first."""
    for rows in sorted(limits, reverse=True):
        for data in datasets:
            for arm in arms:
                stored = stored_queries(data)[:queries]
                people = [n for n in stored if (data, arm, rows, n) not in done]
                for start in range(0, len(people), PEOPLE_A_JOB):
                    yield data, arm, rows, tuple(people[start : start + PEOPLE_A_JOB])


def learn_all(datasets: Iterable[str], arms: Iterable[str]) -> None:
    """Learn what has to be learned before the searches, so that no two of them do it at once."""
    for data in datasets:
        problem, known = loaded(data)
        for arm in arms:
            made = parse_arm(arm)
            make_method(made.method, made.settings).learn(problem, known, _tell)


def _tell(what: str, share: float) -> None:
    if share >= 1.0:
        print(what, flush=True)


def run(given: argparse.Namespace) -> None:
    """Run all searches that the file does not hold."""
    arms = given.arms.split(",")
    for arm in arms:
        parse_arm(arm)
    lines = read_lines(given.out) if given.out.exists() else []
    done = {
        (line["data"], line["arm"], line["rows_limit"], line["query"])
        for line in lines
        if line["outcome"] not in UNFINISHED
    }
    learn_all(given.datasets, arms)
    if given.jobs > 1:
        # Each process has a core of its own; libraries that take all of them would only wait.
        os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    work = list(jobs_of(given.datasets, arms, given.rows, given.queries, done))
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run_job, job) for job in work]):
            for line in future.result():
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line, allow_nan=False) + "\n")
                print(
                    f"{line['data']} {line['arm']} {line['rows_limit']} rows, query "
                    f"{line['query']}: {line['unique_valid']} options, {line['seconds']} s",
                    flush=True,
                )


# Telling ---------------------------------------------------------------------------------------

HEAD = (
    "rows", "arm", "unique valid", "paper", "proximity", "paper", "changes", "paper", "novelty",
    "paper", "lever sets", "plausibility", "empty", "first after", "rows spent", "broken",
    "seconds", "as strong",
)  # fmt: skip


def paper_figures() -> dict[tuple[str, str, int], paper.PaperRow]:
    """Return the paper's line for each data set, method of ours and number of rows."""
    ours = {theirs: name for name, theirs in PAPER_NAMES.items()}
    return {
        (row["dataset"].lower(), ours[row["method"]], int(row["n_oracle"])): row
        for row in paper.read("oracle_budget")
    }


def table(files: Sequence[Path], markdown: bool) -> None:
    """Print a table for each data set."""
    found: dict[tuple[str, int, str], dict[int, Line]] = defaultdict(dict)
    for line in (line for file in files for line in read_lines(file)):
        if line["outcome"] not in UNFINISHED:
            found[line["data"], line["rows_limit"], line["arm"]][line["query"]] = line
    theirs = paper_figures()
    for data in dict.fromkeys(data for data, _, _ in found):
        keys = sorted((rows, _place(arm), arm) for d, rows, arm in found if d == data)
        counts = {len(found[data, rows, arm]) for rows, _, arm in keys}
        print(f"\n{data}: {'-'.join(map(str, sorted(counts)))} queries\n")
        body = [
            _cells(rows, arm, list(found[data, rows, arm].values()),
                   theirs.get((data, arm.partition(":")[0], rows), {}))
            for rows, _, arm in keys
        ]  # fmt: skip
        show([HEAD, *body], markdown)


def _place(arm: str) -> int:
    return ARMS.index(arm) if arm in ARMS else len(ARMS)


def _cells(rows: int, arm: str, lines: Sequence[Line], theirs: paper.PaperRow) -> list[str]:
    unique = _mean(lines, "unique_valid")
    first = statistics.median(line["first"] or math.inf for line in lines)
    wanted = float(theirs["unique_valid"]) if theirs else None
    cells = [f"{rows:,}", arm, f"{unique:.1f}", theirs.get("unique_valid", "")]
    for name in ("proximity", "sparsity", "novelty"):
        cells += [_figure(lines, name), theirs.get(name, "")]
    return [
        *cells,
        _figure(lines, "lever_sets", 1),
        _figure(lines, "plausibility"),
        str(sum(not line["unique_valid"] for line in lines)),
        f"{first:g}" if first < math.inf else f"> {rows:,}",
        f"{_mean(lines, 'rows'):.0f}",
        str(sum(line["violations"] + line["refused"] for line in lines)),
        f"{_mean(lines, 'seconds'):.1f}",
        "" if wanted is None else ("yes" if unique >= wanted else "NO"),
    ]


def _mean(lines: Sequence[Line], name: str) -> float:
    return statistics.fmean(float(line[name]) for line in lines)


def _figure(lines: Sequence[Line], name: str, digits: int = 3) -> str:
    """Return a mean over the searches that found something."""
    known = [line[name] for line in lines if line["unique_valid"] and line[name] is not None]
    return f"{statistics.fmean(known):.{digits}f}" if known else ""


# Speed -----------------------------------------------------------------------------------------


def speed(given: argparse.Namespace) -> None:
    """Print rows a second and memory for each arm, each in a fresh process."""
    learn_all([given.dataset], given.arms.split(","))
    told: list[Sequence[str]] = [
        ("arm", "rows", "seconds", "rows a second", "memory (MB)", "of it")
    ]
    for arm in given.arms.split(","):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            job = given.dataset, arm, given.rows, given.queries
            rows, spent, peak, more = pool.submit(_measured, *job).result()
        told.append(
            (
                arm,
                f"{rows:,}",
                f"{spent:.1f}",
                f"{rows / spent:,.0f}",
                f"{peak:.0f}",
                f"+{more:.0f}",
            )
        )
    print(f"{given.dataset}, {given.queries} queries, {given.rows:,} rows each\n")
    show(told, given.markdown)


def _measured(data: str, arm: str, rows: int, queries: int) -> tuple[int, float, float, float]:
    """Return rows asked, seconds, the peak of memory and by how much the searches raised it."""
    people = stored_queries(data)[: queries + 1]
    search(data, arm, min(rows, 100), people[-1])  # packages and models are loaded by now
    before, began = _peak(), time.perf_counter()
    lines = [search(data, arm, rows, number) for number in people[:queries]]
    spent = time.perf_counter() - began
    return sum(line["rows"] for line in lines), spent, _peak(), _peak() - before


def _peak() -> float:
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


# Command line ----------------------------------------------------------------------------------


def main() -> None:
    """Run searches, tell what they found, or how fast they are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="run searches and write a line for each")
    running.add_argument("datasets", nargs="+", choices=DATASETS)
    running.add_argument("--rows", nargs="+", type=int, default=[150, 1000])
    running.add_argument("--queries", type=int, default=30)
    running.add_argument("--out", type=Path, required=True, help="goes on with one that is there")
    running.add_argument("--jobs", type=int, default=1, help="processes side by side")
    telling = commands.add_parser("table", help="print tables")
    telling.add_argument("files", nargs="+", type=Path)
    timing = commands.add_parser("speed", help="rows a second and memory")
    timing.add_argument("dataset", choices=DATASETS)
    timing.add_argument("--rows", type=int, default=1000)
    timing.add_argument("--queries", type=int, default=3)
    for command in (running, timing):
        named = "NAME[:setting=value;…], with commas between"
        command.add_argument("--arms", default=",".join(ARMS), help=named)
    for command in (telling, timing):
        command.add_argument("--markdown", action="store_true")
    given: Any = parser.parse_args()
    if given.command == "table":
        table(given.files, given.markdown)
    else:
        {"run": run, "speed": speed}[given.command](given)


if __name__ == "__main__":
    main()
