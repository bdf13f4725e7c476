"""What experiments have on file: how far plans are, single arms, and exports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waysout.cli.output import JsonFlag, print_json, print_table, tell

if TYPE_CHECKING:
    from waysout.experiments.cell import Cell, Cells
    from waysout.experiments.plan import Plan
    from waysout.experiments.results import Results
    from waysout.experiments.status import ArmStatus

LlmNames = Annotated[
    list[str] | None,
    typer.Option("--llm", help="Ask this LLM instead of the plan's; may be repeated."),
]
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
) -> list[Plan]:
    """Return plans by name or file, cut down as the options say."""
    from waysout.experiments.plan import load_plan

    return [
        load_plan(name).cut(queries=queries, only=only or (), llms=llms or ()) for name in names
    ]


def status(
    plan: Annotated[
        list[str] | None, typer.Argument(help="Plans; the default: those that were run.")
    ] = None,
    llm: LlmNames = None,
    queries: Queries = None,
    only: Only = None,
    results: Folder = None,
    json: JsonFlag = False,
) -> None:
    """Show how much of a plan is done, arm by arm, what failed and why (also while it runs)."""
    from waysout.experiments.cell import Cells
    from waysout.experiments.results import results_dir
    from waysout.experiments.status import status_of

    folder = results or results_dir()
    with _opened(folder, needed=not plan) as kept:
        cells, failures = (kept.cells(), kept.failures()) if kept else (Cells(), [])
        replies = kept.replies() if kept else {}
        wanted = load_plans(plan) if plan else kept.plans() if kept else []
    cut = [p.cut(queries=queries, only=only or ()) for p in wanted]
    found = [(one, status_of(one, cells, failures, llm or ())) for one in cut]
    if json:
        print_json([asdict(arm) for _, arms in found for arm in arms])
        return
    for one, arms in found:
        _show_status(one, arms)
    for name, count in replies.items():
        tell(f"{count:,} replies of {name} are on file, and will not be asked for again")


@contextmanager
def _opened(folder: Path, *, needed: bool) -> Iterator[Results | None]:
    from waysout.experiments.cell import RESULTS_FILE
    from waysout.experiments.results import Results

    if not needed and not (folder / RESULTS_FILE).exists():
        yield None  # nothing was run yet, and all is to be done
        return
    with Results.read(folder) as kept:
        yield kept


def _show_status(plan: Plan, arms: Sequence[ArmStatus]) -> None:
    for llm in dict.fromkeys(arm.llm for arm in arms):
        asked = f"with {llm}" if llm else "without an LLM"
        rows = [(a.data, a.arm, f"{a.done}/{a.wanted}", sum(a.failures.values()) or "",
                 f"{a.calls:,}", f"{a.paid:,}", a.id) for a in arms if a.llm == llm]  # fmt: skip
        columns = ["data set", "arm", "done", "failed", "LLM calls", "paid", "id"]
        print_table(f"{plan.name}, {asked}", columns, rows)
    done, wanted, paid = (sum(getattr(a, n) for a in arms) for n in ("done", "wanted", "paid"))
    tell(f"{plan.name}: {done:,} of {wanted:,} searches are done, for {paid:,} paid LLM calls")
    for arm in arms:
        for why, count in arm.failures.items():
            asked = f" with {arm.llm}" if arm.llm else ""
            tell(f"failed: {arm.data}/{arm.arm}{asked}, {count} x: {why}")


def show(
    arm: Annotated[str, typer.Argument(help="An arm's id, or how it begins; tables name them.")],
    results: Places = None,
    json: JsonFlag = False,
) -> None:
    """Show what an arm is, and each of its searches: where a line of a table comes from."""
    from waysout.experiments.cell import Cells
    from waysout.experiments.results import results_dir

    cells = _of_arm(arm, Cells.read(results or [results_dir()]))
    if json:
        print_json({"arm": cells[0].arm, "spec": cells[0].spec, "cells": list(map(asdict, cells))})
        return
    print_table(f"Arm {cells[0].arm}", ["of the arm", "value"], _facts(cells[0]))
    for llm in dict.fromkeys(cell.llm for cell in cells):
        title = f"With {llm}" if llm else "Without an LLM"
        print_table(title, _COLUMNS, [_row(cell) for cell in cells if cell.llm == llm])


_METRICS = ("unique_valid", "proximity", "sparsity", "novelty")
_SPENT = ("calls", "from_file", "rows", "seconds")
_COLUMNS = ["query", "outcome", *(name.replace("_", " ") for name in _METRICS + _SPENT)]


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


def _row(cell: Cell) -> list[object]:
    figures = [cell.value(name) for name in _METRICS + _SPENT]
    told = ["" if f is None else f"{f:,.0f}" if f == int(f) else f"{f:,.3f}" for f in figures]
    return [cell.query, cell.outcome, *told]


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
    from waysout.errors import InputError
    from waysout.experiments.cell import Cells, write_cells
    from waysout.experiments.results import results_dir
    from waysout.experiments.status import llm_name

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
