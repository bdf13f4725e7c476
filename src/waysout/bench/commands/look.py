"""``waysout bench status``, ``show`` and ``export``: stored results of plans and arms."""

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
    typer.Option("--llm", help="Use this LLM instead of the plan's; may be repeated."),
]
OfLlms = Annotated[
    list[str] | None,
    typer.Option("--llm", help="Only with this LLM; may be repeated. Default: all that were used, "
                 "else the plan's."),
]  # fmt: skip
Only = Annotated[
    list[str] | None,
    typer.Option(help="Only this data set, arm or DATA/ARM; * is a wildcard; may be repeated."),
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
        help="A folder of results, or an export of one; 'FOLDER/*.jsonl.gz' is all of them there; "
        "may be repeated. Default: the usual folder.",
    ),
]


def load_plans(
    names: Sequence[str],
    queries: int | None = None,
    only: Sequence[str] | None = None,
    llms: Sequence[str] | None = None,
) -> list[ExperimentPlan]:
    """Return plans by name or file, each once, cut down by the options."""
    from waysout.bench.arms import cut_all
    from waysout.bench.plan import load_plan, plans_meant

    each = dict.fromkeys(plan for name in names for plan in plans_meant(name))
    plans = [load_plan(name) for name in each]
    return cut_all(plans, queries=queries, only=only or (), llms=llms or ())


def results_folder(given: Path | None) -> Path:
    """Return the folder of results: the one given, or the usual one."""
    from waysout.bench.results import results_dir
    from waysout.errors import InputError

    if given is not None and given.is_file():
        raise InputError(f"--results {given} is a file, not a folder")
    return given or results_dir()


def failure_lines(failures: Iterable[tuple[str, str, int]]) -> list[str]:
    """Return one line per failure reason; ``failures`` are (arm, reason, count)."""
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
                one.hash  # noqa: B018 - it builds every arm
            except InputError as error:
                say(f"{one.name}: skipped, it was run with another version of Waysout: {error}")
            else:
                wanted.append(one)
    cut = cut_all(wanted, queries=queries, only=only or ())
    found = [(one.name, status_of(one, cells, failures, llm or ())) for one in cut]
    if json:
        print_json([asdict(arm) for _, arms in found for arm in arms])
        return
    columns = ["data set", "arm", "done", "failed", "LLM calls", "from file", "id"]
    for name, arms in found:
        for llm_used in dict.fromkeys(arm.llm for arm in arms):
            rows = [
                (a.data, a.arm, f"{a.done}/{a.wanted}", sum(a.failures.values()) or "",
                 f"{a.calls:,}", f"{a.from_file:,}", a.id) for a in arms if a.llm == llm_used
            ]  # fmt: skip
            with_llm = f"with {llm_used}" if llm_used else "without an LLM"
            print_table(f"{name}, {with_llm}", columns, rows)
        done, all_ = (sum(getattr(arm, n) for arm in arms) for n in ("done", "wanted"))
        tell(f"{name}: {done:,} of {all_:,} searches are done")
        failed = ((f"{arm.data}/{arm.arm}{f' with {arm.llm}' if arm.llm else ''}", why, count)
                  for arm in arms for why, count in arm.failures.items())  # fmt: skip
        for line in failure_lines(failed):
            tell(line)
    for name, count in replies.items():
        tell(f"{count:,} replies of {name} were paid for; they are stored and will be reused")


# Heads are short enough for a terminal of 80 columns.
_FIGURES = {
    "unique_valid": "unique", "proximity": "prox.", "sparsity": "spar.", "novelty": "nov.",
    "calls": "calls", "from_file": "file", "rows": "rows", "seconds": "secs",
}  # fmt: skip


def show(
    arm: Annotated[str, typer.Argument(help="An arm's id or a prefix of it, as shown in tables.")],
    results: Places = None,
    json: JsonFlag = False,
) -> None:
    """Show an arm's settings and each of its searches: where a line of a table comes from."""
    from waysout.bench.cell import Cells
    from waysout.bench.results import results_dir
    from waysout.errors import InputError, unknown
    from waysout.run.plan import as_now

    every = Cells.read(results or [str(results_dir())])
    ids = sorted({cell.arm for cell in every})
    found = [one for one in ids if arm and one.startswith(arm)]
    if not found:
        raise InputError(f"{unknown('arm', arm, ids)}; `waysout bench status` lists their ids")
    if len(found) > 1:
        raise InputError(f"{arm!r} matches the ids of {len(found)} arms: {', '.join(found)}")
    cells = [cell for cell in every if cell.arm == found[0]]
    first = cells[0]
    if json:
        print_json({"arm": first.arm, "spec": first.spec, "cells": list(map(asdict, cells))})
        return
    facts: dict[str, object] = {}
    # What an arm of an earlier release did where its method has a setting more today.
    settings = as_now(first.spec.get("method", ""), first.spec.get("settings", {}))
    for name, value in {**first.spec, "settings": settings}.items():
        inner = value if isinstance(value, dict) else {}
        facts |= {f"{name}: {key}": part for key, part in inner.items()} or {name: value}
    facts |= {"oracle": first.oracle, "version": first.version, "commit": first.commit or "unknown"}
    print_table(f"Arm {first.arm}", ["setting", "value"], list(facts.items()))
    for llm in dict.fromkeys(cell.llm for cell in cells):
        of_llm = [cell for cell in cells if cell.llm == llm]
        from_file = any(cell.value("from_file") for cell in of_llm)
        heads = {name: head for name, head in _FIGURES.items() if from_file or name != "from_file"}
        rows = [[c.query, c.outcome, *(_figure(c, name) for name in heads)] for c in of_llm]
        title = f"With {llm}" if llm else "Without an LLM"
        print_table(title, ["query", "outcome", *heads.values()], rows)
    tell("unique: distinct valid options; prox., spar., nov.: means of their proximity, sparsity "
         "and novelty; file: calls answered from stored replies; --json has all")  # fmt: skip


def _figure(cell: Cell, name: str) -> str:
    value = cell.value(name)
    if value is None:
        return ""
    if name == "seconds":
        return f"{value:.1f}" if value >= 10 else f"{value:.3f}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3f}"


def export(
    file: Annotated[Path, typer.Argument(help="Output file: FILE.jsonl or FILE.jsonl.gz.")],
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
    """Write finished searches to one file, from which all tables can be rebuilt.

    It contains no data rows and no replies. The same searches give the same bytes.
    """
    from waysout.bench.cell import Cells, write_cells
    from waysout.bench.results import results_dir
    from waysout.bench.status import llm_name
    from waysout.errors import InputError

    if not file.name.endswith((".jsonl", ".jsonl.gz")):
        raise InputError(f"an export must be named FILE.jsonl or FILE.jsonl.gz, not {file.name}")
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
