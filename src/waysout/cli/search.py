"""What `find`, `demo` and `runs resume` share: a search with progress, signals and its result."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from threading import Timer
from types import FrameType
from typing import TYPE_CHECKING, Any

import typer

from waysout.cli.output import console, print_json, print_table, printable, progress_bar, say

if TYPE_CHECKING:
    from waysout.domain.problem import Problem
    from waysout.domain.result import Option
    from waysout.report.result import Result
    from waysout.run.find import Options
    from waysout.run.office import Stop
    from waysout.run.plan import Plan
    from waysout.run.progress import Progress

SHOWN = 5
INTERRUPTED = 9
FAILED = 4
# How long a stopped search may take to hand over what it has; a model may be thinking.
PATIENCE = 4.0
LONGEST_REASON = 200
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def search(problem: Problem, row: Any, options: Options, *, quiet: bool) -> tuple[Result, int]:
    """Run one search with live progress; returns its result and the exit code."""
    from waysout.run.find import find, make_plan
    from waysout.run.office import Stop

    plan, stop = make_plan(options), Stop()
    asks, budget = plan.method.needs_llm, plan.budget
    total, unit = (budget.llm_calls, "calls") if asks else (budget.oracle_rows, "rows")
    of = "" if total is None else f" of {total}"
    with progress_bar(quiet) as bars, _signals(stop) as caught:
        bar = bars.add_task(f"{plan.name}: starting", total=total)

        def advance(now: Progress) -> None:
            done = now.llm_calls if asks else now.oracle_rows
            ways = f"{now.options} way{'' if now.options == 1 else 's'} out"
            bars.update(bar, completed=done, description=f"{done}{of} {unit}, {ways}")

        watched: Options = {**options, "progress": advance, "stop": stop}
        with redirect_stdout(sys.stderr):  # a model may print, and stdout is the result's
            result = find(problem, row, **watched)
    return result, _exit_code(result, caught)


def _exit_code(result: Result, caught: list[int]) -> int:
    from waysout.domain.result import OutcomeKind

    if caught:
        return 128 + caught[0]
    codes = {OutcomeKind.INTERRUPTED: INTERRUPTED, OutcomeKind.FAILED: FAILED}
    return codes.get(result.outcome.kind, 0)


@contextmanager
def _signals(stop: Stop) -> Iterator[list[int]]:
    """Let Ctrl-C and SIGTERM end the search with what it has; a second one ends the process."""
    caught: list[int] = []
    timers: list[Timer] = []

    def handle(number: int, _: FrameType | None) -> None:
        if caught:
            _end_now(number)
        caught.append(number)
        timers.append(Timer(PATIENCE, _end_now, [number]))
        timers[0].start()
        stop(f"stopped by {signal.Signals(number).name}")

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield caught
    finally:
        for timer in timers:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_now(number: int) -> None:
    """End the process though something in it hangs. What was answered is in the run."""
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar hides it
    message = f"{show_cursor}\nstopped by {signal.Signals(number).name}\n"
    os.write(sys.stderr.fileno(), message.encode())
    os._exit(128 + number)


def most_cost(problem: Problem, row: Any, options: Options) -> str:
    """Say what a search may cost at most, before anything is spent."""
    from waysout.run.find import make_plan

    plan = make_plan(options)
    budget = plan.budget
    rows = "any number of" if budget.oracle_rows is None else f"{budget.oracle_rows:,}"
    parts = [f"{rows} oracle rows"]
    if plan.method.needs_llm:
        calls = "any number of" if budget.llm_calls is None else f"{budget.llm_calls:,}"
        parts.insert(0, f"{calls} LLM calls")
        parts += [f"{budget.tokens:,} tokens"] if budget.tokens is not None else []
        parts += _money(problem, row, plan, options.get("price"))
    parts += [f"{budget.seconds:g} seconds"] if budget.seconds is not None else []
    return f"{plan.name} may cost at most " + ", ".join(parts)


def _money(problem: Problem, row: Any, plan: Plan, price: object) -> list[str]:
    """Say what the calls may cost: the limit if there is one, else by the first prompt."""
    from waysout.llm.call import Price
    from waysout.prompts.propose import Proposer
    from waysout.prompts.render import Topic

    if plan.budget.money is not None:
        return [f"{plan.budget.money:g} in money"]
    if not isinstance(price, str) or plan.budget.llm_calls is None:
        return []
    query = problem.row(row)
    first = Proposer(Topic.of_problem(problem), style=plan.style).request(query, query, k=plan.k)
    if first is None:
        return []
    return [f"about {plan.budget.llm_calls * Price.parse(price).most(first):.2g} in money"]


def hand_over(
    result: Result,
    code: int,
    *,
    json: bool,
    most: int = SHOWN,
    html: Path | None = None,
    csv: Path | None = None,
    run: Path | None = None,
) -> None:
    """Print the result, write it to the files that were asked for, and leave with the code."""
    # Files come first: whoever reads stdout may hang up in the middle (`… | head`).
    notes, failure = _write_files(result, html, csv)
    if json:
        print_json(result.as_dict())
    else:
        show(result, most=most)
    if json and code:
        say(f"error: {result.outcome.kind}: {result.outcome.reason}")
    for note in notes:
        say(note)
    if run is not None:
        say(f"run: {run_name(run)}")
        if result.outcome.kind == "interrupted":
            say(f"go on with: waysout runs resume {run_name(run)}")
    _leave(code or failure)


def run_name(path: Path) -> str:
    """Return the shortest name that `waysout runs` finds a run by."""
    from waysout.store import runs_dir

    return path.stem if path.parent == runs_dir() else str(path)


def _leave(code: int) -> None:
    """Leave with a code. After a signal nothing is waited for: a model may be thinking."""
    if code == 0:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    if code > 128:
        os._exit(code)
    raise typer.Exit(code)


def show(result: Result, *, most: int = SHOWN) -> None:
    """Print a result for a person."""
    from waysout.report import text

    tell(text.sentence(result))
    simulated = text.is_simulated(result)
    options = result.pick(most) if result.options else result.near_misses[:most]
    if options:
        if simulated:
            tell(text.SIMULATED)
        more = len(result.options) - len(options)
        shown = f"The {len(options)} to read first, of {len(result.options)}"
        title = (shown if more > 0 else "Ways out") if result.options else text.NOT_APPROVED
        typer.echo()
        print_table(title, *_option_rows(options, reasons=not simulated))
    tell(text.spent_line(result.ledger))


def tell(words: str) -> None:
    """Print words on stdout, wrapped to the terminal."""
    console().print(printable(words))


def _option_rows(options: Sequence[Option], *, reasons: bool) -> tuple[list[str], list[list[str]]]:
    """Return the table of options with the reasons below the changes: a column is too narrow."""
    from waysout.report.text import option_rows
    from waysout.report.words import cut, reason_text

    columns, rows = option_rows([replace(option, reasons=()) for option in options])
    for row, option in zip(rows, options, strict=True):
        reason = reason_text(option.reasons) if reasons else ""
        row[1] += f"\nReason given: {cut(reason, LONGEST_REASON)}" if reason else ""
    if any("\n" in row[1] for row in rows):
        for row in rows[:-1]:
            row[1] += "\n"  # a blank line between options of several lines
    return columns, rows


def check_places(*places: Path | None) -> None:
    """Refuse files that cannot be written, before anything is spent."""
    from waysout.errors import UnavailableError

    for place in places:
        if place is None:
            continue
        folder = place.parent
        if not folder.is_dir():
            raise UnavailableError(f"cannot write {place}: there is no folder {folder}")
        if place.is_dir() or not os.access(place if place.exists() else folder, os.W_OK):
            raise UnavailableError(f"cannot write {place}: it is a folder, or not ours to write")


def _write_files(result: Result, html: Path | None, csv: Path | None) -> tuple[list[str], int]:
    """Write the files; returns what to say of it and the exit code, and never fails itself."""
    from waysout.errors import UnavailableError

    notes = []
    try:
        if html is not None:
            result.to_html(html)
            notes.append(f"page: {html}")
        if csv is not None:
            result.to_csv(csv)
            notes.append(f"table: {csv}")
    except OSError as error:
        notes.append(f"error: cannot write {error.filename}: {error.strerror}")
        return notes, UnavailableError.exit_code
    return notes, 0
