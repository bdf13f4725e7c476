"""How far each method's best option is from the cheapest way out there is.

    python benchmarks/optimum.py run loan heloc --queries 30 --rows 1000 --out FILE.jsonl
    python benchmarks/optimum.py table FILE.jsonl [--markdown]

For each query `waysout.oracles.certify` proves the least cost, or that there is no way out, in so
many seconds; then each method searches with the same rows and no LLM call, and its cheapest option
is compared in the same cost (the distance, with the mean of the gaps for their RMS). Where the
proof did not end in time, the cheapest row that anybody found stands in for the optimum, and the
table says how often. The file has a line for each query and holds no rows of the data; queries and
methods that are in it are not run again. Needs the tables, their trained oracles and treecf.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paired import DATASETS, Line, read_lines, show
from yields import load, parse_arm

from waysout.datasets.load import Dataset
from waysout.datasets.queries import queries as stored_queries
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.oracles.certify import certify
from waysout.oracles.moves import costs
from waysout.run.find import find

USUAL = ("recombine", "random", "nearest")
PROVED = ("infeasible", "optimal")


@dataclass(frozen=True)
class Setup:
    """What all queries have in common."""

    rows: int = 1000
    seconds: float = 20.0
    seed: int = 0


def certified(problem: Problem, data: Dataset, number: int, setup: Setup) -> Line:
    """Return what is proved of one query."""
    found = certify(problem, data.rows[number], seconds=setup.seconds)
    option = found.option
    return {
        "kind": found.kind,
        "cost": found.cost,
        "bound": found.bound,
        "proximity": None if option is None else option.proximity,
        "changes": None if option is None else option.sparsity,
        "levers": [] if option is None else sorted(option.changes),
        "seconds": round(found.seconds, 2),
        "notes": list(found.notes),
    }


def searched(problem: Problem, data: Dataset, number: int, method: str, setup: Setup) -> Line:
    """Return what a method's cheapest and nearest options are."""
    query, arm = data.rows[number], parse_arm(method)
    result = find(
        problem, query, method=arm.method, settings=arm.settings, calls=0, oracle_rows=setup.rows,
        data=data, seed=setup.seed,
    )  # fmt: skip
    rows: list[Row] = [tuple(option.row.values()) for option in result.options]
    return {
        "options": len(rows),
        "cost": float(costs(problem, query, rows).min()) if rows else None,
        "proximity": max((option.proximity for option in result.options), default=None),
        "rows": result.ledger.oracle_rows,
        "seconds": round(result.ledger.seconds, 2),
    }


def run(names: Iterable[str], methods: Sequence[str], count: int, out: Path, setup: Setup) -> None:
    """Certify and search what is not on file; a query's last line holds all that is known of it."""
    for method in methods:
        parse_arm(method)  # what is not known is said before anything is run
    done = {(line["data"], line["query"]): line for line in _lines(out)} if out.exists() else {}
    for line in done.values():
        found = Setup(line["rows"], line["seconds"], line["seed"])
        if found != setup:
            raise SystemExit(f"{out} is of another set-up ({found}): give a new one")
    for name in names:
        problem, data = load(name)
        for number in stored_queries(name)[:count]:
            line = done.get((name, number)) or {
                "data": name, "query": number, "rows": setup.rows, "seed": setup.seed,
                "seconds": setup.seconds, "methods": {},
                "certificate": certified(problem, data, number, setup),
            }  # fmt: skip
            wanted = [method for method in methods if method not in line["methods"]]
            found = {method: searched(problem, data, number, method, setup) for method in wanted}
            if found or (name, number) not in done:
                line = {**line, "methods": {**line["methods"], **found}}
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line, allow_nan=False) + "\n")
                _say(line)


def _say(line: Line) -> None:
    proof, found = line["certificate"], line["methods"]
    best = ", ".join(f"{name} {_number(told['cost'])}" for name, told in found.items())
    told = f"{proof['kind']} {_number(proof['cost'])} in {proof['seconds']} s"
    print(f"{line['data']} query {line['query']}: {told}; {best}", flush=True)


def _lines(file: Path) -> list[Line]:
    """Return the last line of each query."""
    last = {(line["data"], line["query"]): line for line in read_lines(file)}
    return list(last.values())


# Tables ------------------------------------------------------------------------------------------


def least_cost(line: Line) -> float | None:
    """Return the cost of the cheapest way out known, whoever found it."""
    told = [line["certificate"], *line["methods"].values()]
    return min((one["cost"] for one in told if one["cost"] is not None), default=None)


def proofs(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """Return a row of the table of proofs for each data set."""
    made = []
    for name, some in _by_data(lines).items():
        told = [line["certificate"] for line in some]
        kinds = [sum(one["kind"] == kind for one in told) for kind in (*PROVED, "best found")]
        ended = [one["seconds"] for one in told if one["kind"] in PROVED]
        near = [one["proximity"] for one in told if one["proximity"] is not None]
        few = [one["changes"] for one in told if one["changes"] is not None]
        made.append((
            name, str(len(some)), *map(str, kinds), str(len(some) - sum(kinds)),
            _median(ended, ".1f"), f"{max(ended):.1f}" if ended else "–", _median(near),
            _median(few, ".0f"),
        ))  # fmt: skip
    return made


def gaps(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """Return a row of the table of methods for each data set and method."""
    made = []
    for name, some in _by_data(lines).items():
        open_ = [line for line in some if least_cost(line) is not None]
        proved = sum(line["certificate"]["kind"] == "optimal" for line in open_)
        for method in _methods(some):
            told = [(line["methods"][method], least_cost(line)) for line in open_]
            ratios = [one["cost"] / least for one, least in told if one["cost"] is not None]
            at_best = sum(ratio <= 1 + 1e-9 for ratio in ratios)
            made.append((
                name, method, f"{len(ratios)} of {len(open_)}", _median(ratios, ".2f"),
                f"{max(ratios):.1f}" if ratios else "–", str(at_best), f"{proved} of {len(open_)}",
                _median([one["proximity"] for one, _ in told if one["proximity"] is not None]),
            ))  # fmt: skip
    return made


def _by_data(lines: Sequence[Line]) -> Mapping[str, list[Line]]:
    names = [name for name in DATASETS if any(line["data"] == name for line in lines)]
    return {name: [line for line in lines if line["data"] == name] for name in names}


def _methods(lines: Sequence[Line]) -> list[str]:
    """Return the methods that every query was searched with."""
    first = lines[0]["methods"]
    return [name for name in first if all(name in line["methods"] for line in lines)]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _median(values: Sequence[float], form: str = ".3f") -> str:
    return format(statistics.median(values), form) if values else "–"


PROOFS = (
    "data", "queries", "no way out", "optimum proved", "best found", "unknown", "s to a proof",
    "longest", "proximity", "changes",
)  # fmt: skip
GAPS = (
    "data", "method", "found", "cost / least", "worst", "at the least", "of which proved",
    "nearest option",
)  # fmt: skip


def main() -> None:
    """Run proofs and searches, or tell how far the methods are from the optimum."""
    parser: Any = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="certify and search, a line for each query")
    running.add_argument("datasets", nargs="+", choices=DATASETS)
    running.add_argument("--queries", type=int, default=30)
    running.add_argument("--rows", type=int, default=Setup.rows, help="rows for each method")
    running.add_argument("--seconds", type=float, default=Setup.seconds, help="for each proof")
    running.add_argument("--seed", type=int, default=Setup.seed)
    named = "NAME[:setting=value;…] with commas between; also '' for proofs alone"
    running.add_argument("--methods", default=",".join(USUAL), help=named)
    running.add_argument("--out", type=Path, required=True)
    telling = commands.add_parser("table", help="print the tables")
    telling.add_argument("file", type=Path)
    telling.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    if given.command == "run":
        methods = [name for name in given.methods.split(",") if name]
        setup = Setup(given.rows, given.seconds, given.seed)
        run(given.datasets, methods, given.queries, given.out, setup)
        return
    lines = _lines(given.file)
    show([PROOFS, *proofs(lines)], given.markdown)
    print()
    show([GAPS, *gaps(lines)], given.markdown)


if __name__ == "__main__":
    main()
