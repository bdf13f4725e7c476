"""``waysout bench status``, ``show`` and ``export``: what is on file of plans and arms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waysout.cli.output import JsonFlag, print_json, print_table, say, tell

if TYPE_CHECKING:
    from waysout.bench.cell import Cell
    from waysout.bench.plan import ExperimentPlan

LlmNames = Annotated[
    list[str] | None,
    typer.Option("--llm", help="Ask this LLM instead of the plan's; may be repeated."),
]
OfLlms = Annotated[
    list[str] | None,
    typer.Option("--llm", help="Only with this LLM; may be repeated. Default: the plan's, and all "
                 "that were asked."),
]  # fmt: skip
Only = Annotated[
    list[str] | None,
    typer.Option(help="Only this data set, this arm or DATA/ARM, * for anything; may be repeated."),
]
Queries = Annotated[
    int | None, typer.Option(help="Only the first N queries of each data set.", min=1)
]
Folder = Annotated[
    Path | None,
    typer.Option("--results", help="The folder of results. Default: a folder beside your runs."),
]
Places = Annotated[
    list[str] | None,
    typer.Option(
        "--results",
        metavar="PLACE",
        help="A folder of results, or an export of one; may be repeated. Default: the usual "
        "folder.",
    ),
]


def load_plans(
    names: Sequence[str],
    queries: int | None = None,
    only: Sequence[str] | None = None,
    llms: Sequence[str] | None = None,
) -> list[ExperimentPlan]:
    """Return plans by name or file, cut down by the options."""
    from waysout.bench.arms import cut_all
    from waysout.bench.plan import load_plan

    plans = [load_plan(name) for name in names]
    return cut_all(plans, queries=queries, only=only or (), llms=llms or ())


def results_folder(given: Path | None) -> Path:
    """Return the folder of results: the one given, or the usual one."""
    from waysout.bench.results import results_dir
    from waysout.errors import InputError

    if given is not None and given.is_file():
        raise InputError(f"--results {given} is a file: give a folder")
    return given or results_dir()


def failure_lines(failures: Iterable[tuple[str, str, int]]) -> list[str]:
    """Return one line for each reason of failures, which are given as (arm, reason, count)."""
    reasons: dict[str, Counter[str]] = {}
    for arm, why, count in failures:
        reasons.setdefault(why, Counter())[arm] += count
    lines = []
    for why, arms in reasons.items():
        others = len(arms) - 1
        more = f" and {others:,} more {'arm' if others == 1 else 'arms'}" if others else ""
        lines.append(f"failed: {next(iter(arms))}{more}, {arms.total():,} x: {why}")
    return lines


def status(
    plan: Annotated[
        list[str] | None, typer.Argument(help="Plans. Default: those that were run.")
    ] = None,
    llm: OfLlms = None,
    queries: Queries = None,
    only: Only = None,
    results: Folder = None,
    json: JsonFlag = False,
) -> None:
    """Show how much of a plan is done, arm by arm, what failed and why (also while it runs)."""
    from waysout.bench.arms import cut_all
    from waysout.bench.cell import RESULTS_FILE, Cells
    from waysout.bench.results import Results
    from waysout.bench.status import status_of
    from waysout.errors import InputError

    folder, wanted = results_folder(results), load_plans(plan or ())
    never_run = bool(plan) and not (folder / RESULTS_FILE).exists()
    with nullcontext() if never_run else Results.read(folder) as kept:
        cells, failures = (kept.cells(), kept.failures()) if kept else (Cells(), [])
        replies = kept.replies() if kept else {}
        for one in kept.plans() if kept and not plan else ():
            try:
                one.hash  # noqa: B018 - it makes every arm
            except InputError as error:
                say(f"{one.name}: left out, it was run with another version of Waysout: {error}")
            else:
                wanted.append(one)
    cut = cut_all(wanted, queries=queries, only=only or ())
    found = [(one.name, status_of(one, cells, failures, llm or ())) for one in cut]
    if json:
        print_json([asdict(arm) for _, arms in found for arm in arms])
        return
    columns = ["data set", "arm", "done", "failed", "LLM calls", "paid", "id"]
    for name, arms in found:
        for asked in dict.fromkeys(arm.llm for arm in arms):
            rows = [
                (a.data, a.arm, f"{a.done}/{a.wanted}", sum(a.failures.values()) or "",
                 f"{a.calls:,}", f"{a.paid:,}", a.id) for a in arms if a.llm == asked
            ]  # fmt: skip
            print_table(f"{name}, {f'with {asked}' if asked else 'without an LLM'}", columns, rows)
        done, all_, paid = (sum(getattr(a, n) for a in arms) for n in ("done", "wanted", "paid"))
        tell(f"{name}: {done:,} of {all_:,} searches are done, for {paid:,} paid LLM calls")
        failed = ((f"{arm.data}/{arm.arm}{f' with {arm.llm}' if arm.llm else ''}", why, count)
                  for arm in arms for why, count in arm.failures.items())  # fmt: skip
        for line in failure_lines(failed):
            tell(line)
    for name, count in replies.items():
        tell(f"{count:,} replies of {name} are on file, and will not be asked for again")


# Heads are short enough for a terminal of 80 columns.
_FIGURES = {
    "unique_valid": "unique", "proximity": "prox.", "sparsity": "spar.", "novelty": "nov.",
    "calls": "calls", "from_file": "file", "rows": "rows", "seconds": "secs",
}  # fmt: skip


def show(
    arm: Annotated[str, typer.Argument(help="An arm's id, or its beginning; tables name them.")],
    results: Places = None,
    json: JsonFlag = False,
) -> None:
    """Show what an arm is, and each of its searches: where a line of a table comes from."""
    from waysout.bench.cell import Cells
    from waysout.bench.results import results_dir
    from waysout.errors import InputError, unknown

    every = Cells.read(results or [str(results_dir())])
    ids = sorted({cell.arm for cell in every})
    found = [one for one in ids if arm and one.startswith(arm)]
    if not found:
        raise InputError(f"{unknown('arm', arm, ids)}; `waysout bench status` has their ids")
    if len(found) > 1:
        raise InputError(f"{arm!r} begins the ids of {len(found)} arms: {', '.join(found)}")
    cells = [cell for cell in every if cell.arm == found[0]]
    first = cells[0]
    if json:
        print_json({"arm": first.arm, "spec": first.spec, "cells": list(map(asdict, cells))})
        return
    facts: dict[str, object] = {}
    for name, value in first.spec.items():
        inner = value if isinstance(value, dict) else {}
        facts |= {f"{name}: {key}": part for key, part in inner.items()} or {name: value}
    facts |= {"oracle": first.oracle, "version": first.version, "commit": first.commit or "unknown"}
    print_table(f"Arm {first.arm}", ["of the arm", "value"], list(facts.items()))
    for llm in dict.fromkeys(cell.llm for cell in cells):
        of_llm = [cell for cell in cells if cell.llm == llm]
        from_file = any(cell.value("from_file") for cell in of_llm)
        heads = {name: head for name, head in _FIGURES.items() if from_file or name != "from_file"}
        rows = [[c.query, c.outcome, *(_figure(c, name) for name in heads)] for c in of_llm]
        title = f"With {llm}" if llm else "Without an LLM"
        print_table(title, ["query", "outcome", *heads.values()], rows)
    tell("unique: valid options, each once; prox., spar., nov.: means of their proximity, sparsity "
         "and novelty; file: calls that were answered from file; --json has all of it")  # fmt: skip


def _figure(cell: Cell, name: str) -> str:
    value = cell.value(name)
    if value is None:
        return ""
    if name == "seconds":
        return f"{value:.1f}" if value >= 10 else f"{value:.3f}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3f}"


def export(
    file: Annotated[Path, typer.Argument(help="The file: FILE.jsonl or FILE.jsonl.gz.")],
    plan: Annotated[
        list[str] | None,
        typer.Option("--plan", help="Only the searches of this plan; may be repeated."),
    ] = None,
    llm: Annotated[
        list[str] | None,
        typer.Option("--llm", help="Only searches with this LLM or with none; may be repeated."),
    ] = None,
    results: Places = None,
    json: JsonFlag = False,
) -> None:
    """Write finished searches to one file, from which every table can be made again.

    It holds no row of the data and no reply. The same searches give the same bytes.
    """
    from waysout.bench.cell import Cells, write_cells
    from waysout.bench.results import results_dir
    from waysout.bench.status import llm_name
    from waysout.errors import InputError

    if not file.name.endswith((".jsonl", ".jsonl.gz")):
        raise InputError(f"an export is FILE.jsonl or FILE.jsonl.gz, not {file.name}")
    cells = Cells.read(results or [str(results_dir())])
    names = {llm_name(one) for one in llm or ()}
    ids = {arm.id for one in load_plans(plan or ()) for arm in one.arms}
    chosen = [
        cell
        for cell in cells
        if (not llm or not cell.llm or cell.llm in names) and (not plan or cell.arm in ids)
    ]
    written = write_cells(file, chosen)
    if json:
        print_json({"file": file, "cells": written})
    else:
        tell(f"{written:,} searches: {file}")
