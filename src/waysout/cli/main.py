"""``waysout``: finds the command, and turns every error into a message and an exit code."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from waysout import __version__
from waysout.cli.output import echo_json, say, with_flags
from waysout.cli.streams import loss, our_stderr, outlets
from waysout.errors import UnavailableError, WaysoutError, is_ctrl_c

USAGE = 2
_EXIT_SECONDS = 10.0
"""How long a process may take to end when all is said and written."""
# Where each command is (a function, or a `typer.Typer` for a group), and its line in the help.
# fmt: off
COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": ("demo:demo", "Show a rejected applicant many ways to a yes."),
    "find": ("find:find", "Find ways out for one person: what turns the model's no into a yes."),
    "batch": ("batch:batch", "Find ways out for everyone in a table whom the model rejects."),
    "audit": ("audit:audit", "Report who has no way out, what a yes costs, and what helps most."),
    "serve": ("serve:serve", "Show ways out in a browser, and over HTTP for programs."),
    "methods": ("find:methods", "List the search methods, and their settings (--set NAME=VALUE)."),
    "certify": ("certify:certify", "Prove that one person has no way out, or find the cheapest."),
    "runs": ("runs:app", "Stored searches: list, show, resume, export, repair, delete."),
    "card": ("card:app", "Cards describe a table: what each column is and what may change."),
    "data": ("data:app", "The data sets of the paper, and a synthetic one."),
    "models": ("models:app", "LLMs that run on this machine: what is here, how to get the rest."),
    "oracle": ("oracle:app", "The models that say yes or no: train one, or check your own."),
    "propose": ("propose:propose", "Ask an LLM once which changes it would propose for one row."),
    "doctor": ("doctor:doctor", "Say what is installed, cached and missing, and how to get it."),
}
# fmt: on


class Commands(TyperGroup):
    """Our commands and those of installed packages, imported when they are used.

    Other packages add commands by entry points of the group ``waysout.commands``, as the
    laboratory's `bench` does. They are looked for only in the help and for a name that is not ours,
    and one that cannot be loaded does not stop the others.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, (_, line) in COMMANDS.items():
            self.commands[name] = TyperCommand(name, help=line)  # all that the help needs

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, with those of installed packages loaded."""
        from importlib.metadata import entry_points

        for point in entry_points(group="waysout.commands"):
            if point.name in self.commands:
                continue
            try:
                self.commands[point.name] = _command(point.name, point.load())
            except BaseException as error:
                if is_ctrl_c(error):
                    raise
                say(f"note: the command {point.name} ({point.value}) cannot be loaded: {error}")
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command to run, its name and its arguments."""
        name = args[0]
        if name in COMMANDS:
            module, _, attribute = COMMANDS[name][0].partition(":")
            found = getattr(import_module(f"waysout.cli.{module}"), attribute)
            return name, _command(name, found), args[1:]
        self.list_commands(ctx)
        return super().resolve_command(ctx, args)


def _command(name: str, found: Any) -> Any:
    parent = typer.Typer(rich_markup_mode="markdown")
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=name)
    else:
        parent.command(name)(found)
    return typer.main.get_group(parent).commands[name]


app = typer.Typer(
    name="waysout",
    cls=Commands,
    help="Many different, validated, actionable ways from a model's no to a yes.\n\n"
    "Start with: waysout demo",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    # A search's matrices are small: on two cores, threads of numpy's BLAS take twice the processor
    # time to do the same (docs/decisions.md). It is read when numpy loads, which it has not yet.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if os.environ.get("COLUMNS") == "0":  # some say so who have no terminal; nothing would be shown
        del os.environ["COLUMNS"]
    with outlets() as stdout:
        try:
            _run()
        except SystemExit as left:
            code = left.code
            if lost := loss(stdout):
                said = f"standard output could not be written: {lost}; what it holds is cut"
                say(f"error: {said}")
                code = code or UnavailableError.exit_code
            _leave_model_behind(code)
            sys.exit(code)


def _leave_model_behind(code: object) -> None:
    """End the process at once where the model still works on what nobody waits for any more.

    After a deadline or a signal the interpreter would wait for the threads that wait for the model,
    or in which a method thinks. A model may also have threads of its own, or do something at exit:
    these get a moment.
    """
    watchdog = sys.modules.get("waysout.oracles.watchdog")  # else no model was asked
    our_stderr().flush()
    status = code if isinstance(code, int) else 0 if code is None else 1
    end_process = os._exit if watchdog is None else watchdog.end_process
    if status > 128 or (watchdog is not None and watchdog.is_at_work()):
        end_process(status)
    end = threading.Timer(_EXIT_SECONDS, end_process, [status])
    end.daemon = True
    with suppress(RuntimeError):  # no further thread can be had: it ends when it ends
        end.start()


def _run() -> None:
    """Run a command, and leave."""
    try:
        app()
    except SystemExit as left:
        if left.code == USAGE:
            _print_error("UsageError", "wrong usage; stderr says how", USAGE)
        raise
    except Exception as error:
        if os.environ.get("WAYSOUT_DEBUG"):
            raise
        kind, code, message = type(error).__name__, 1, str(error)
        if isinstance(error, WaysoutError):
            code, message = error.exit_code, with_flags(message)
        else:
            message = f"unexpected {kind}: {error} (WAYSOUT_DEBUG=1 shows where)"
        _print_error(kind, message, code)
        say(f"error: {message}")
        sys.exit(code)


def _print_error(kind: str, message: str, code: int) -> None:
    """With --json, stdout is one document whatever happens."""
    if "--json" in sys.argv:
        document = {"error": {"type": kind, "message": message, "code": code}}
        echo_json(json.dumps(document, ensure_ascii=False) + "\n")
