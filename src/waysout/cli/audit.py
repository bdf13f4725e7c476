"""``waysout audit``: a batch as a population, for everybody and by groups."""

from __future__ import annotations

import io
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
        int, typer.Option(help="Levers to show for each group; CSV and JSON have all.", min=1)
    ] = 5,
    format: Annotated[
        FORMATS | None, typer.Option(help="The format; by default that of --out's suffix, or text.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write to.")] = None,
    plots: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder for pictures (SVG).")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Report who has no way out, what a yes typically costs, and which levers help most.

    It works on any batch, even while it runs, and asks neither the model nor an LLM. The figures
    describe what that search found: if it found no way out, there may still be one.

    Try: waysout audit results --by sex --by age --out audit.html
    """
    from waysout.audit import audit as count
    from waysout.errors import InputError, UnavailableError

    check_places({"--out": out}, {"RESULTS": results})
    for option, folder in (("--out", out and out.parent), ("--plots", plots)):
        # Other files beside the parts would keep the folder from reading as a data set.
        if folder is not None and folder.resolve() == results.resolve():
            raise InputError(
                f"{option} is inside {results}, which may hold only parts: choose another folder"
            )
    if json and format not in (None, "json"):
        raise InputError(f"--json and --format {format} are two formats: give one")
    chosen = "json" if json else format
    chosen = chosen or _SUFFIXES.get(out.suffix.lower() if out else "", "text")
    if plots is not None:
        from waysout.report.plot import check_can_draw

        check_can_draw()  # before anything is read
    made = count(results, by or ())
    if chosen == "text" and out is None:
        _print(made, levers)
    elif out is not None:
        _write(out, _written(made, chosen, levers).encode("utf-8", "replace"))
    elif chosen == "json":
        echo_json(_written(made, chosen, levers))
    else:
        typer.echo(printable(_written(made, chosen, levers)), nl=False)
    if plots is not None:
        from waysout.audit.plots import pictures

        try:
            plots.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnavailableError(f"cannot make the folder {plots}: {error.strerror}") from None
        for name, data in pictures(made, levers):
            _write(plots / name, data)


def _written(made: Audit, format: FORMATS, levers: int) -> str:
    from waysout.audit.render import render

    if format != "text":
        return render(made, format, levers)
    said = io.StringIO()
    with redirect_stdout(said):
        _print(made, levers)
    return said.getvalue()


def _print(made: Audit, levers: int) -> None:
    from waysout.audit import words
    from waysout.audit.render import cells
    from waysout.report.words import clean, cut

    for told in (words.title(made), words.lead(made), words.simulated_note(made),
                 words.source(made)):  # fmt: skip
        if told:
            tell(clean(told))
    for section in words.sections(made):
        for title, frame in words.tables(section, levers).values():
            heads, rows = cells(frame)
            short = [[cut(row[0], _LONGEST), *row[1:]] for row in (heads, *rows)]
            print_table(clean(title), short[0], short[1:])
    for note in words.notes(made):
        tell(f"- {clean(note)}")


def _write(file: Path, data: bytes) -> None:
    from waysout.errors import UnavailableError

    try:
        file.write_bytes(data)
    except OSError as error:
        raise UnavailableError(f"cannot write {file}: {error.strerror}") from None
    say(f"wrote {file}")
