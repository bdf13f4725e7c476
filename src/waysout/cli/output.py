"""What commands share: JSON on stdout, messages and progress on stderr, tables by Rich."""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waysout.cli.streams import our_stderr, our_stderr_is, our_stdout

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def echo(text: object = "", *, nl: bool = True) -> None:
    """Print on stdout: that of `sys` may be a model's."""
    typer.echo(text, file=our_stdout(), nl=nl)


def print_json(document: Any) -> None:
    """Print one JSON document."""
    from waysout.domain.result import plain

    echo_json(json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def echo_json(text: str) -> None:
    """Print JSON, in ASCII where stdout might turn other characters into invalid JSON."""
    encoding = our_stdout().encoding
    if encoding is None or codecs.lookup(encoding).name != "utf-8":
        text = re.sub(r"[^\x00-\x7f]", lambda found: json.dumps(found[0])[1:-1], text)
    echo(text, nl=False)


def echo_table(text: str) -> None:
    """Print a table: as it is to a file or a program, without control characters to a terminal."""
    if our_stdout().isatty():
        echo(printable(text.replace("\r\n", "\n")), nl=False)
    else:
        our_stdout().write(text)  # typer would take out what looks like a colour


def say(text: str = "") -> None:
    """Print a message for people on stderr, which scripts do not read."""
    typer.echo(printable(text), file=our_stderr())


# The library's errors name keywords of Python.
FLAGS = {
    "trust_pickle=True": "--trust-pickle", "trusted_types=[…]": "--trust-types",
    "trust_code=True": "--trust-code", "positive_class=…": "--positive-class", "data=…": "--data",
    "features=[…]": "--features a,b,c", "give the model": "--model FILE",
    "llm=…": "--llm", "calls=…": "--calls", "record=…": "--record",
}  # fmt: skip


def with_flags(message: str) -> str:
    """Return an error of the library with the flags of the command line in place of keywords."""
    for keyword, flag in FLAGS.items():
        message = message.replace(keyword, flag)
    return message


def tell(text: str) -> None:
    """Print text on stdout, wrapped to the terminal."""
    console().print(printable(text))


def terminal_width() -> int | None:
    """Return how many columns stdout has; None where it is no terminal."""
    return console().width if our_stdout().isatty() else None


def console() -> Console:
    """Return a console on stdout that shows text as it is, without markup or guesses."""
    from rich.console import Console

    return Console(file=our_stdout(), markup=False, highlight=False, emoji=False)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table whose cells are untrusted text."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    heading = Text(printable(title))
    table = Table(title=heading, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(Text(printable(column)), overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console().print(table)


def printable(cell: object) -> str:
    """Return text without the control characters a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\u00a0" else "�" for c in str(cell))


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Progress]:
    """Show progress on stderr, where it cannot spoil what a script reads."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    shown = Console(file=our_stderr(), stderr=True)
    off = quiet or not shown.is_terminal  # else it leaves a blank line behind
    with Progress(*columns, console=shown, disable=off, transient=True) as progress:
        above = our_stderr() if off else sys.stderr  # Rich's: else the bar would be written over
        with our_stderr_is(above):
            yield progress
