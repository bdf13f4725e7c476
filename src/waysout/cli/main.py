"""``waysout``: finds the command, and turns every error into a message and an exit code."""

from __future__ import annotations

import io
import json
import os
import sys
from importlib.metadata import entry_points
from typing import Annotated

import typer

from waysout import __version__
from waysout.cli import (
    audit,
    batch,
    card,
    certify,
    data,
    demo,
    doctor,
    find,
    models,
    oracle,
    propose,
    runs,
    serve,
)
from waysout.cli.output import echo_json, say, with_flags
from waysout.errors import WaysoutError

USAGE = 2

app = typer.Typer(
    name="waysout",
    help="Many different, validated, actionable ways from a model's no to a yes.\n\n"
    "Start with: waysout demo",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(name="demo")(demo.demo)
app.command(name="find")(find.find)
app.command(name="batch")(batch.batch)
app.command(name="audit")(audit.audit)
app.command(name="serve")(serve.serve)
app.command(name="methods")(find.methods)
app.command(name="certify")(certify.certify)
app.add_typer(runs.app, name="runs")
app.add_typer(card.app, name="card")
app.add_typer(data.app, name="data")
app.add_typer(models.app, name="models")
app.add_typer(oracle.app, name="oracle")
app.command(name="propose")(propose.propose)
app.command(name="doctor")(doctor.doctor)


def add_commands() -> None:
    """Add the commands of installed packages: entry points of the group ``waysout.commands``.

    Each is a `typer.Typer` (a group of commands) or a function (one). The laboratory's `bench` is
    added the same way. One that cannot be loaded is skipped: it must not stop the others.
    """
    ours = {command.name for command in app.registered_commands}
    ours |= {group.name for group in app.registered_groups}
    for point in entry_points(group="waysout.commands"):
        if point.name in ours:
            continue
        try:
            command = point.load()
        except Exception as error:
            say(f"note: the command {point.name} ({point.value}) cannot be loaded: {error}")
            continue
        ours.add(point.name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=point.name)
        else:
            app.command(name=point.name)(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"waysout {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line. Set WAYSOUT_DEBUG=1 to see tracebacks."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows its number instead.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    add_commands()
    try:
        app()
    except BrokenPipeError:
        # The reader went away (`waysout … | head`): nothing is wrong, and nobody is listening.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except WaysoutError as error:
        _fail(error, error.exit_code, with_flags(str(error)))
    except SystemExit as left:
        if left.code == USAGE:
            _tell_script("UsageError", "wrong usage; stderr says how", USAGE)
        raise
    except Exception as error:
        _fail(error, 1, f"unexpected {type(error).__name__}: {error} (WAYSOUT_DEBUG=1 shows where)")


def _fail(error: Exception, code: int, message: str) -> None:
    if os.environ.get("WAYSOUT_DEBUG"):
        raise error
    _tell_script(type(error).__name__, message, code)
    say(f"error: {message}")
    sys.exit(code)


def _tell_script(kind: str, message: str, code: int) -> None:
    """With --json, stdout is one document whatever happens."""
    if "--json" in sys.argv:
        document = {"error": {"type": kind, "message": message, "code": code}}
        echo_json(json.dumps(document, ensure_ascii=False) + "\n")
