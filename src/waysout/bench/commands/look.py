"""What experiments have on file: how far plans are, single arms, and exports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waysout.cli.output import JsonFlag, print_json, print_table, say, tell

if TYPE_CHECKING:
    from waysout.bench.cell import Cell, Cells
    from waysout.bench.plan import ExperimentPlan
    from waysout.bench.results import Results
    from waysout.bench.status import ArmStatus

LlmNames = Annotated[
    list[str] | None,
    typer.Option("--llm", help="Ask this LLM instead of the plan's; may be repeated."),
]
OfLlms = Annotated[
    list[str] | None,
    typer.Option("--llm", help="Only with this LLM; the default: the plan's, and all that were "
                 "asked. May be repeated."),
]  # fmt: skip
Only = Annotated[
    list[str] | None,
    typer.Option(help="Only this data set, this arm or DATA/ARM, * for anything; may be repeated."),
]
Queries = Annotated[int | None, typer.Option(help="Only so many queries of each data set.", min=1)]
Folder = Annotated[
    Path | None,
    typer.Option("--results", help="The folder of results; the default lies beside your runs."),
]
Places = Annotated[
    list[Path] | None,
    typer.Option("--results", help="A folder of results, or an export; may be repeated."),
]


def load_plans(
    names: Sequence[str],
    queries: int | None = None,
    only: Sequence[str] | None = None,
    llms: Sequence[str] | None = None,
) -> list[ExperimentPlan]:
    """Return plans by name or file, cut down as the options say."""
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


def failures_told(failures: Iterable[tuple[str, str, int]]) -> list[str]:
    """Say why searches of some arms failed so many times: what has one reason in one line."""
    reasons: dict[str, Counter[str]] = {}
    for arm, why, count in failures:
        reasons.setdefault(why, Counter())[arm] += count
    return [
        f"failed: {next(iter(arms))}{_more(len(arms) - 1)}, {arms.total():,} x: {why}"
        for why, arms in reasons.items()
    ]


def _more(others: int) -> str:
    return f" and {others:,} more {'arm' if others == 1 else 'arms'}" if others else ""


def status(
    plan: Annotated[
        list[str] | None, typer.Argument(help="Plans; the default: those that were run.")
    ] = None,
    llm: OfLlms = None,
    queries: Queries = None,
    only: Only = None,
    results: Folder = None,
    json: JsonFlag = False,
) -> None:
    """Show how much of a plan is done, arm by arm, what failed and why (also while it runs)."""
    from waysout.bench.arms import cut_all
    from waysout.bench.cell import Cells
    from waysout.bench.status import status_of

    with _opened(results_folder(results), needed=not plan) as kept:
        cells, failures = (kept.cells(), kept.failures()) if kept else (Cells(), [])
        replies = kept.replies() if kept else {}
        wanted = load_plans(plan) if plan else _usable(kept.plans()) if kept else []
    cut = cut_all(wanted, queries=queries, only=only or ())
    found = [(one, status_of(one, cells, failures, llm or ())) for one in cut]
    if json:
        print_json([asdict(arm) for _, arms in found for arm in arms])
        return
    for one, arms in found:
        _show_status(one, arms)
    for name, count in replies.items():
        tell(f"{count:,} replies of {name} are on file, and will not be asked for again")


def _usable(plans: Sequence[ExperimentPlan]) -> list[ExperimentPlan]:
    """Return the plans whose arms can still be made, and name the others."""
    from waysout.errors import InputError

    usable = []
    for plan in plans:
        try:
            plan.hash  # noqa: B018 - it makes every arm
        except InputError as error:
            say(f"{plan.name}: left out, it was run with another version of Waysout: {error}")
        else:
            usable.append(plan)
    return usable


@contextmanager
def _opened(folder: Path, *, needed: bool) -> Iterator[Results | None]:
    from waysout.bench.cell import RESULTS_FILE
    from waysout.bench.results import Results

    if not needed and not (folder / RESULTS_FILE).exists():
        yield None  # nothing was run yet, and all is to be done
        return
    with Results.read(folder) as kept:
        yield kept


def _show_status(plan: ExperimentPlan, arms: Sequence[ArmStatus]) -> None:
    for llm in dict.fromkeys(arm.llm for arm in arms):
        asked = f"with {llm}" if llm else "without an LLM"
        rows = [(a.data, a.arm, f"{a.done}/{a.wanted}", sum(a.failures.values()) or "",
                 f"{a.calls:,}", f"{a.paid:,}", a.id) for a in arms if a.llm == llm]  # fmt: skip
        columns = ["data set", "arm", "done", "failed", "LLM calls", "paid", "id"]
        print_table(f"{plan.name}, {asked}", columns, rows)
    done, wanted, paid = (sum(getattr(a, n) for a in arms) for n in ("done", "wanted", "paid"))
    tell(f"{plan.name}: {done:,} of {wanted:,} searches are done, for {paid:,} paid LLM calls")
    failures = ((f"{arm.data}/{arm.arm}{f' with {arm.llm}' if arm.llm else ''}", why, count)
                for arm in arms for why, count in arm.failures.items())  # fmt: skip
    for line in failures_told(failures):
        tell(line)


def show(
    arm: Annotated[str, typer.Argument(help="An arm's id, or how it begins; tables name them.")],
    results: Places = None,
    json: JsonFlag = False,
) -> None:
    """Show what an arm is, and each of its searches: where a line of a table comes from."""
    from waysout.bench.cell import Cells
    from waysout.bench.results import results_dir

    cells = _of_arm(arm, Cells.read(results or [results_dir()]))
    if json:
        print_json({"arm": cells[0].arm, "spec": cells[0].spec, "cells": list(map(asdict, cells))})
        return
    print_table(f"Arm {cells[0].arm}", ["of the arm", "value"], _facts(cells[0]))
    for llm in dict.fromkeys(cell.llm for cell in cells):
        _show_searches(llm, [cell for cell in cells if cell.llm == llm])
    tell("unique: valid options, each once; prox., spar., nov.: means of their proximity, sparsity "
         "and novelty; file: calls that were answered from file; --json has all of it")  # fmt: skip


def _show_searches(llm: str, cells: Sequence[Cell]) -> None:
    from_file = any(cell.value("from_file") for cell in cells)
    heads = {name: head for name, head in _FIGURES.items() if from_file or name != "from_file"}
    title = f"With {llm}" if llm else "Without an LLM"
    rows = [[cell.query, cell.outcome, *(_told(cell, name) for name in heads)] for cell in cells]
    print_table(title, ["query", "outcome", *heads.values()], rows)


# Heads are short enough for a terminal of 80 columns.
_FIGURES = {
    "unique_valid": "unique", "proximity": "prox.", "sparsity": "spar.", "novelty": "nov.",
    "calls": "calls", "from_file": "file", "rows": "rows", "seconds": "secs",
}  # fmt: skip


def _of_arm(beginning: str, cells: Cells) -> list[Cell]:
    """Return the cells of the one arm whose id begins so."""
    from waysout.errors import InputError, unknown

    ids = sorted({cell.arm for cell in cells})
    found = [one for one in ids if beginning and one.startswith(beginning)]
    if not found:
        raise InputError(f"{unknown('arm', beginning, ids)}; `waysout bench status` has their ids")
    if len(found) > 1:
        raise InputError(f"{beginning!r} begins the ids of {len(found)} arms: {', '.join(found)}")
    return [cell for cell in cells if cell.arm == found[0]]


def _facts(cell: Cell) -> list[tuple[str, object]]:
    flat: dict[str, object] = {}
    for name, value in cell.spec.items():
        inner = value if isinstance(value, dict) else {}
        flat |= {f"{name}: {key}": said for key, said in inner.items()} or {name: value}
    return [*flat.items(), ("oracle", cell.oracle), ("version", cell.version),
            ("commit", cell.commit or "unknown")]  # fmt: skip


def _told(cell: Cell, name: str) -> str:
    value = cell.value(name)
    if value is None:
        return ""
    if name == "seconds":
        return f"{value:.1f}" if value >= 10 else f"{value:.3f}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3f}"


def export(
    file: Annotated[Path, typer.Argument(help="Where to: FILE.jsonl or FILE.jsonl.gz.")],
    plan: Annotated[
        list[str] | None,
        typer.Option("--plan", help="Only the searches of this plan; may be repeated."),
    ] = None,
    llm: Annotated[
        list[str] | None,
        typer.Option("--llm", help="Only this LLM, and those without any; may be repeated."),
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
    cells = Cells.read(results or [results_dir()])
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
