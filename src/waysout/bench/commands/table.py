"""``waysout bench table``: a table of the paper, or of ours, from the searches that are there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from waysout.cli.output import echo_json, printable, say
from waysout.cli.places import check_places

FORMATS = Literal["text", "markdown", "latex", "csv", "html", "json"]


def table(
    name: Annotated[
        str,
        typer.Argument(
            help="llm-budget, oracle-budget, reward-weights, reward-paired, pruning-sweep, "
            "pruning-best, pruning-heldout, pruning-paired, compressors, cost; yields, prompts, "
            "rules, llm-sizes, methods, targets, baselines, optimum, limits, going-on, shared."
        ),
    ],
    results: Annotated[
        list[str] | None,
        typer.Option(
            help="A folder of results, or an export of one; may be repeated. The usual folder "
            "unless given.",
            metavar="PLACE",
        ),
    ] = None,
    llm: Annotated[str, typer.Option(help="The LLM, where results are of several.")] = "",
    queries: Annotated[
        int | None, typer.Option(help="Only the first so many queries of each data set.", min=1)
    ] = None,
    plan: Annotated[
        str, typer.Option(help="Another plan than the table's own: its name or a TOML file.")
    ] = "",
    format: Annotated[FORMATS, typer.Option(help="What to write.")] = "text",
    out: Annotated[Path | None, typer.Option(help="The file to write it to.")] = None,
) -> None:
    """Print a table: our figures, and the paper's beneath them; no LLM, data or oracle is needed.

    Every line names the arms that it comes from (in text, use another format to see them):
    waysout bench show ID tells what was run.
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
    _hand_over(render(made, format), format, out)


def _hand_over(text: str, format: str, out: Path | None) -> None:
    from waysout.errors import UnavailableError

    if out is None and format == "json":
        echo_json(text)
    elif out is None:
        typer.echo(printable(text), nl=False)
    else:
        try:
            out.write_text(text, encoding="utf-8", errors="replace", newline="\n")
        except OSError as error:
            raise UnavailableError(f"cannot write {out}: {error.strerror}") from None
        say(f"wrote {out}")
