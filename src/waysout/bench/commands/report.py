"""``waysout bench plot`` and ``waysout bench report``: pictures and the page of all results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waysout.cli.output import say
from waysout.cli.places import check_places

if TYPE_CHECKING:
    pass

Places = Annotated[
    list[str] | None,
    typer.Option(
        "--results",
        metavar="PLACE",
        help="A folder of results, or an export of one; may be repeated. The usual folder unless "
        "given.",
    ),
]


def plot(
    name: Annotated[str, typer.Argument(help="trade-off, sweep, yields or paired.")],
    out: Annotated[Path, typer.Option(help="The file, FILE.svg, or a folder.")],
    results: Places = None,
    llm: Annotated[str, typer.Option(help="The LLM, where results are of several.")] = "",
    arms: Annotated[
        list[str] | None,
        typer.Option(help="Only this arm; may be repeated. Paired needs two: the second less the "
                     "first."),
    ] = None,
    plan: Annotated[
        str, typer.Option(help="Another plan than the picture's own: its name or a TOML file.")
    ] = "",
) -> None:  # fmt: skip
    """Draw searches that are there as SVG: no LLM, data or oracle is needed.

    trade-off: what each arm finds, and how near or at what cost. sweep: pruning by threshold and
    scope. yields: options after so many calls and rows. paired: two arms, query by query.
    """
    from waysout.bench.cell import Cells, one_llm
    from waysout.bench.plots import PICTURES, draw, to_svg
    from waysout.bench.results import results_dir
    from waysout.errors import InputError, unknown

    if name not in PICTURES:  # before anything is read
        raise InputError(unknown("picture", name, PICTURES))
    file = out / f"{name}.svg" if out.is_dir() else out
    if file.suffix != ".svg":
        raise InputError(f"a picture is FILE.svg or goes to a folder that is there, not {out}")
    places = results or [str(results_dir())]
    check_places({"--out": file}, {"--plan": plan, **{f"--results {p}": p for p in places}})
    cells = Cells.read(places)
    asked = one_llm(cells.llms, llm)
    made = draw(name, cells, llm=asked, plan=plan, arms=arms or (), places=results or ())
    _write(file, to_svg(made))


def _write(file: Path, data: bytes) -> None:
    from waysout.errors import UnavailableError

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    except OSError as error:
        raise UnavailableError(f"cannot write {file}: {error.strerror}") from None
    say(f"wrote {file}")


def report(
    out: Annotated[Path, typer.Option(help="The page, in Markdown.")],
    results: Places = None,
    figures: Annotated[
        Path | None, typer.Option(help="A folder for pictures; without one there are none.")
    ] = None,
) -> None:
    """Write a page of all results: what was run, every table, and a verdict on each claim.

    The same results always give the same page. No LLM, data or oracle is needed.
    """
    from waysout.bench.cell import Cells
    from waysout.bench.plots import check_can_draw
    from waysout.bench.report import Report
    from waysout.bench.results import results_dir

    places: Sequence[str] = results or [str(results_dir())]
    check_places({"--out": out}, {f"--results {place}": place for place in places})
    if figures is not None:
        check_can_draw()  # before a page is written that shows them
    made = Report(Cells.read(places), places, out, figures)
    for file, data in made.files():
        _write(file, data)
