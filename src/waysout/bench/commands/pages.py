"""``waysout bench table``, ``plot`` and ``report``: tables, pictures, the page of all results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from waysout.bench.commands.look import Places, Queries
from waysout.cli.output import echo_json, printable, say, terminal_width
from waysout.cli.places import check_places

FORMATS = Literal["text", "markdown", "latex", "csv", "html", "json"]
OneLlm = Annotated[str, typer.Option(help="The LLM, if the results have several.")]


def table(
    name: Annotated[
        str,
        typer.Argument(
            help="claims, no-llm, llm-budget, oracle-budget, oracle-budget-published, "
            "reward-weights, reward-paired, pruning-sweep, pruning-best, pruning-heldout, "
            "pruning-paired, readings, compressors, cost; yields, prompts, rules, llm-sizes, "
            "methods, targets, baselines, optimum, limits, going-on, shared, quality."
        ),
    ],
    results: Places = None,
    llm: OneLlm = "",
    queries: Queries = None,
    plan: Annotated[
        str, typer.Option(help="A plan other than the table's own: its name or a TOML file.")
    ] = "",
    format: Annotated[FORMATS, typer.Option(help="The output format.")] = "text",
    out: Annotated[Path | None, typer.Option(help="Write to this file.")] = None,
) -> None:
    """Print a table: our figures, with the paper's beneath. Needs no LLM, data or oracle.

    One too wide for the terminal continues below, its labels repeated; piped, lines are long.

    Every line names its arms (not in text: use another format); waysout bench show ID describes
    an arm.
    """
    from waysout.bench.cell import Cells, llm_meant
    from waysout.bench.render import render
    from waysout.bench.results import results_dir
    from waysout.bench.tables import TABLES, build
    from waysout.errors import InputError, unknown

    if name not in TABLES:  # before anything is read
        raise InputError(unknown("table", name, TABLES))
    places = results or [str(results_dir())]
    check_places({"--out": out}, {"--plan": plan, **{f"--results {p}": p for p in places}})
    cells = Cells.read(places)
    made = build(
        name,
        cells,
        llm=llm_meant(cells.llms, llm) if llm else None,
        queries=queries,
        plan=plan or None,
        places=results or (),
    )
    if not made:
        raise InputError(
            f"too few searches of the plan {TABLES[name].plan} are finished for the table {name} "
            "(of fewer queries: --queries N); see docs/experiments.md, and: waysout bench status "
            f"{TABLES[name].plan}"
        )
    text = render(made, format, None if out else terminal_width())
    if out is not None:
        _write(out, text.encode(errors="replace"))
    elif format == "json":
        echo_json(text)
    else:
        typer.echo(printable(text), nl=False)


def plot(
    name: Annotated[str, typer.Argument(help="trade-off, sweep, yields or paired.")],
    out: Annotated[Path, typer.Option(help="The file, FILE.svg, or a folder.")],
    results: Places = None,
    llm: OneLlm = "",
    arms: Annotated[
        list[str] | None,
        typer.Option(help="Only this arm; may be repeated. Paired needs two: the second minus the "
                     "first."),
    ] = None,
    plan: Annotated[
        str, typer.Option(help="A plan other than the picture's own: its name or a TOML file.")
    ] = "",
) -> None:  # fmt: skip
    """Draw finished searches as SVG. Needs no LLM, data or oracle.

    trade-off: what each arm finds, and how near or at what cost. sweep: pruning by threshold and
    scope. yields: options against calls and rows spent. paired: two arms, query by query.
    """
    from waysout.bench.cell import Cells, one_llm
    from waysout.bench.plots import PICTURES, draw
    from waysout.bench.results import results_dir
    from waysout.errors import InputError, unknown
    from waysout.report.plot import to_svg

    if name not in PICTURES:  # before anything is read
        raise InputError(unknown("picture", name, PICTURES))
    if name == "paired" and len(arms or ()) != 2:
        raise InputError("paired compares two arms: pass --arms A --arms B")
    file = out / f"{name}.svg" if out.is_dir() else out
    if file.suffix != ".svg":
        raise InputError(f"a picture is written to FILE.svg or to an existing folder, not {out}")
    places = results or [str(results_dir())]
    check_places({"--out": file}, {"--plan": plan, **{f"--results {p}": p for p in places}})
    cells = Cells.read(places)
    chosen = one_llm(cells.llms, llm)
    made = draw(name, cells, llm=chosen, plan=plan, arms=arms or (), places=results or ())
    _write(file, to_svg(made))


def report(
    out: Annotated[Path, typer.Option(help="The page, in Markdown.")],
    results: Places = None,
    tables: Annotated[
        Path | None, typer.Option(help="A folder for all tables too, one Markdown file each.")
    ] = None,
) -> None:
    """Write a page of results: what to learn from them, and a verdict on each claim.

    The same results always give the same page. Needs no LLM, data or oracle.
    """
    from waysout.bench.cell import Cells
    from waysout.bench.report import Report
    from waysout.bench.results import results_dir

    places = results or [str(results_dir())]
    check_places({"--out": out}, {f"--results {place}": place for place in places})
    for file, data in Report(Cells.read(places), places, out, tables).files():
        _write(file, data)


def _write(file: Path, data: bytes) -> None:
    from waysout.errors import UnavailableError

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    except OSError as error:
        raise UnavailableError(f"cannot write {file}: {error.strerror}") from None
    say(f"wrote {file}")
