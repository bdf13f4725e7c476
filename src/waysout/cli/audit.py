"""``waysout audit``: a batch as a population, for everybody and by groups."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from waysout.cli.output import JsonFlag, echo, echo_json, print_table, printable, say, tell
from waysout.cli.places import check_places
from waysout.cli.streams import our_stdout_is

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
    by: Annotated[list[str] | None, typer.Option(
        metavar="COLUMN", help="Group by this column of the input; may be repeated. A,B groups "
        "by both at once.")] = None,
    levers: Annotated[int, typer.Option(
        help="Levers to show of each group; CSV and JSON have all.", min=1)] = 5,
    format: Annotated[FORMATS | None, typer.Option(
        help="What to write; default: as --out ends, else text.")] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write it to.")] = None,
    plots: Annotated[Path | None, typer.Option(
        metavar="DIR", help="A folder for pictures (SVG).")] = None,
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Report who has no way out, what a yes costs, and what helps most.

    It works on any batch, even while it runs, and asks neither the model nor an LLM. The figures
    describe what that search found: if it found no way out, there may still be one.

    Try: waysout audit results --by sex --by age --out audit.html
    """
    from waysout.audit import audit as count
    from waysout.errors import InputError, UnavailableError

    check_places({"--out": out}, {"RESULTS": results})
    for option, folder in (("--out", out and out.parent), ("--plots", plots)):
        # Beside the parts, a file would keep the folder from being read as a data set.
        if folder is not None and folder.resolve() == results.resolve():
            raise InputError(
                f"{option} is inside {results}, which may hold only parts: choose another folder"
            )
    if json and format not in (None, "json"):
        raise InputError(f"--json and --format {format} are two formats: give one")
    if plots is not None:
        from waysout.report.plot import check_can_draw

        check_can_draw()  # before anything is read
    ending: FORMATS = _SUFFIXES.get(out.suffix.lower(), "text") if out else "text"
    chosen: FORMATS = "json" if json else format or ending
    made = count(results, by or ())
    text = _text(made, chosen, levers) if chosen != "text" or out is not None else None
    if text is None:
        _print(made, levers)
    elif out is not None:
        _write(out, text.encode("utf-8", "replace"))
    elif chosen == "json":
        echo_json(text)
    else:
        echo(printable(text), nl=False)
    if plots is not None:
        from waysout.audit.plots import pictures

        try:
            plots.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnavailableError(f"cannot make the folder {plots}: {error.strerror}") from None
        for name, data in pictures(made, levers):
            _write(plots / name, data)


def _text(made: Audit, format: FORMATS, levers: int) -> str:
    from waysout.audit.render import render

    if format != "text":
        return render(made, format, levers)
    printed = io.StringIO()
    with our_stdout_is(printed):
        _print(made, levers)
    return printed.getvalue()


def _print(made: Audit, levers: int) -> None:
    from waysout.audit import words
    from waysout.audit.findings import findings
    from waysout.audit.render import cells
    from waysout.report.words import clean, cut

    heading = (words.title(made), words.lead(made), words.stand_in_note(made), words.source(made))
    for line in heading:
        if line:
            tell(clean(line))
    for finding in findings(made):
        tell("")
        tell(clean(f"{finding.title}. {finding.says}"))
        for item in finding.items:
            tell(f"- {clean(item)}")
        if finding.caveat:
            tell(clean(finding.caveat))
    tell("")
    for section in words.sections(made):
        for title, frame in words.tables(made, section, levers).values():
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
