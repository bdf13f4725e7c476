"""``waysout audit``: a batch as a population, for everybody and by groups."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from waysout.cli.output import JsonFlag, echo_json, print_table, printable, say, tell
from waysout.cli.places import check_places

if TYPE_CHECKING:
    from waysout.audit import Audit

FORMATS = Literal["text", "markdown", "csv", "html", "json"]
_SUFFIXES: dict[str, FORMATS] = {
    ".md": "markdown",
    ".csv": "csv",
    ".html": "html",
    ".htm": "html",
    ".json": "json",
}
_LONGEST = 24  # characters of a name, so that a table fits 80 columns


def audit(
    results: Annotated[Path, typer.Argument(help="The folder of a batch (its --out).")],
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Group by this column of the input; may be repeated. A,B groups by both at once.",
        ),
    ] = None,
    levers: Annotated[
        int, typer.Option(help="Levers to show of each group; CSV and JSON have all.", min=1)
    ] = 5,
    format: Annotated[
        FORMATS | None, typer.Option(help="What to write; the default: as --out ends, else text.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write it to.")] = None,
    plots: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder for pictures (SVG).")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Tell who has no way out, what a yes typically costs, and which levers help most.

    Works on any batch, also while it runs; asks no model and no LLM. It tells what that search
    found: that no way out was found does not mean that there is none.

    Try: waysout audit results --by sex --by age --out audit.html
    """
    from waysout.audit import audit as count

    check_places({"--out": out}, {"RESULTS": results})
    _check_outside(results, {"--out": out and out.parent, "--plots": plots})
    if plots is not None:
        from waysout.audit.plots import check_can_draw

        check_can_draw()  # before anything is read
    chosen = _format(format, out, json)
    made = count(results, by or ())
    if chosen == "text" and out is None:
        _print(made, levers)
    else:
        _hand_over(_written(made, chosen, levers), chosen, out)
    if plots is not None:
        _draw(made, plots, levers)


def _check_outside(results: Path, folders: Mapping[str, Path | None]) -> None:
    """Refuse to put anything beside the parts: the folder would read as a data set no more."""
    from waysout.errors import InputError

    for option, folder in folders.items():
        if folder is not None and folder.resolve() == results.resolve():
            raise InputError(f"{option} lies in {results}, which holds parts alone: give another")


def _format(format: FORMATS | None, out: Path | None, json: bool) -> FORMATS:
    from waysout.errors import InputError

    if json and format not in (None, "json"):
        raise InputError(f"--json and --format {format} are two formats: give one")
    if json or format:
        return "json" if json else format or "text"
    return _SUFFIXES.get(out.suffix.lower(), "text") if out else "text"


def _written(made: Audit, format: FORMATS, levers: int) -> str:
    from waysout.audit.render import render

    if format != "text":
        return render(made, format, levers)
    said = io.StringIO()
    with redirect_stdout(said):
        _print(made, levers)
    return said.getvalue()


def _print(made: Audit, levers: int) -> None:
    from waysout.audit.words import (
        lead,
        notes,
        sections,
        simulated_note,
        source,
        tables,
        title,
    )
    from waysout.report.words import clean, cut

    for told in (title(made), lead(made), simulated_note(made), source(made)):
        if told:
            tell(clean(told))
    for section in sections(made):
        for table in tables(section, levers):
            heads, *rows = (
                [cut(clean(name), _LONGEST), *map(clean, rest)]
                for name, *rest in (table.columns, *table.rows)
            )
            print_table(clean(table.title), heads, rows)
    for note in notes(made):
        tell(f"- {clean(note)}")


def _hand_over(text: str, format: FORMATS, out: Path | None) -> None:
    if out is not None:
        _write(out, text.encode("utf-8", "replace"))
    elif format == "json":
        echo_json(text)
    else:
        typer.echo(printable(text), nl=False)


def _write(file: Path, data: bytes) -> None:
    from waysout.errors import UnavailableError

    try:
        file.write_bytes(data)
    except OSError as error:
        raise UnavailableError(f"cannot write {file}: {error.strerror}") from None
    say(f"wrote {file}")


def _draw(made: Audit, folder: Path, levers: int) -> None:
    from waysout.audit.plots import pictures
    from waysout.errors import UnavailableError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"cannot make the folder {folder}: {error.strerror}") from None
    for name, data in pictures(made, levers):
        _write(folder / name, data)
