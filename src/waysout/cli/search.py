"""What `find`, `demo` and `runs resume` share: a search with progress, signals and its result."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from waysout.cli.output import print_json, print_table, progress_bar, say, tell
from waysout.cli.places import resume_hint, run_name

if TYPE_CHECKING:
    from waysout.cli.signals import Signals
    from waysout.datasets.table import Table
    from waysout.domain.problem import Problem
    from waysout.errors import LLMError
    from waysout.report.result import Result
    from waysout.run.find import Options
    from waysout.run.plan import Plan
    from waysout.run.progress import Progress
    from waysout.run.source import Source, Trust

SHOWN = 5
INTERRUPTED = 9
FAILED = 4


@dataclass(frozen=True)
class SearchEnd:
    """A result, and what it was cut short by: a signal, or the LLM."""

    result: Result
    signal: int = 0
    error: LLMError | None = None

    @property
    def code(self) -> int:
        """The exit code."""
        from waysout.domain.result import OutcomeKind

        if self.signal:
            return 128 + self.signal
        if self.error is not None:
            return self.error.exit_code
        codes = {OutcomeKind.INTERRUPTED: INTERRUPTED, OutcomeKind.FAILED: FAILED}
        return codes.get(self.result.outcome.kind, 0)

    def as_dict(self) -> dict[str, Any]:
        """Return the document of `--json`: the result, and what went wrong if something did."""
        document = self.result.as_dict()
        if self.code:
            document["error"] = {"type": self.kind, "message": self.message, "code": self.code}
        return document

    @property
    def kind(self) -> str:
        """What kind of thing went wrong."""
        if self.signal:
            return "Interrupted"
        return type(self.error).__name__ if self.error else str(self.result.outcome.kind)

    @property
    def message(self) -> str:
        """What went wrong."""
        if self.signal:
            return f"stopped by {signal.Signals(self.signal).name}"
        return str(self.error) if self.error else self.result.outcome.reason


def check_llm(options: Options) -> str:
    """Refuse an LLM or a price that cannot be, before a large model is loaded.

    Returns the LLM's name, or an empty one where the method asks none.
    """
    from waysout.llm.call import Price
    from waysout.llm.connect import connect
    from waysout.run.find import make_plan

    if "price" in options:
        Price.parse(str(options["price"]))
    if not make_plan(options).asks_llm:
        return ""
    connect(str(options["llm"]))
    return str(options["llm"])


def search_source(
    source: Source,
    trust: Trust,
    options: Options,
    row: Callable[[Table], Mapping[str, Any]],
    signals: Signals,
    on_file: str = "",
) -> SearchEnd:
    """Open what a search is made from, say what it may cost, and run it."""
    from waysout.cli.sources import open_source
    from waysout.errors import LLMError

    with redirect_stdout(sys.stderr):  # models and custom rules may print
        opened = open_source(source, trust)
        query = opened.query(row(opened.table))
        if opened.known is not None:
            options["data"] = opened.known
        options["about"] = {
            **source.as_dict(), "digests": source.digests(), "llm": options["llm"],
            "price": options.get("price", ""), "row": query,
        }  # fmt: skip
        say(most_cost(opened.problem, query, options) + on_file)
    try:
        return search(opened.problem, query, options, signals)
    except LLMError:
        _tell_run(signals.run, signals.llm, resumable=True)
        raise


def search(problem: Problem, row: Any, options: Options, signals: Signals) -> SearchEnd:
    """Run one search with live progress."""
    from waysout.report.words import counted
    from waysout.run.context import Stop
    from waysout.run.find import find_many, make_plan

    plan, signals.stop = make_plan(options), Stop()
    asks, budget = plan.asks_llm, plan.budget
    total, unit = (budget.llm_calls, "calls") if asks else (budget.oracle_rows, "rows")
    of = "" if total is None else f" of {total}"
    # Whoever prints meanwhile: stdout is the result's.
    with progress_bar(signals.json) as bars, redirect_stdout(sys.stderr):
        bar = bars.add_task(f"{plan.name}: starting", total=total)

        def learn(what: str, share: float) -> None:
            bars.update(bar, total=1.0, completed=share, description=what)
            if share >= 1.0:
                bars.update(bar, total=total, completed=0, description=f"{plan.name}: starting")
                say(what)

        def advance(now: Progress) -> None:
            done = now.llm_calls if asks else now.oracle_rows
            ways = counted(now.options, "way out", "ways out")
            bars.update(bar, completed=done, description=f"{done}{of} {unit}, {ways}")

        watched: Options = {
            **options, "learning": learn, "progress": advance, "stop": signals.stop
        }  # fmt: skip
        result, error = _only(find_many(problem, [row], **watched))
    return SearchEnd(result, signals.caught, error)


def _only(results: Iterator[Result]) -> tuple[Result, LLMError | None]:
    """Return the one result and the LLM's error that cut it short.

    Where no call was answered there is nothing to show, and the error is raised.
    """
    from waysout.errors import LLMError

    found: list[Result] = []
    try:
        found.extend(results)
    except LLMError as error:
        if not found or found[0].ledger.llm_calls == 0:
            raise
        return found[0], error
    return found[0], None


def most_cost(problem: Problem, row: Any, options: Options) -> str:
    """Say what a search may cost at most, before anything is spent."""
    from waysout.report.words import counted
    from waysout.run.find import make_plan

    def limit(most: int | None, one: str) -> str:
        return f"any number of {one}s" if most is None else counted(most, one)

    plan = make_plan(options)
    budget = plan.budget
    parts = [limit(budget.oracle_rows, "oracle row")]
    if plan.asks_llm:
        parts.insert(0, limit(budget.llm_calls, "LLM call"))
        parts += [counted(budget.tokens, "token")] if budget.tokens is not None else []
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
    proposer, k = Proposer(Topic.of_problem(problem), style=plan.style), plan.k
    first = proposer.request(query, query, k=plan.method.edits_a_call(k))
    if first is None:
        return []
    return [f"about {plan.budget.llm_calls * Price.parse(price).most(first):.2g} in money"]


def hand_over(
    ended: SearchEnd,
    *,
    json: bool,
    most: int = SHOWN,
    html: Path | None = None,
    csv: Path | None = None,
    letter: Path | None = None,
    run: Path | None = None,
    llm: str = "",
) -> None:
    """Print the result, write it to the files that were asked for, and leave with the code."""
    # Files come first: whoever reads stdout may hang up in the middle (`… | head`).
    notes, failure = _write_files(ended.result, html, csv, letter)
    if json:
        print_json(ended.as_dict())
    else:
        show(ended.result, most=most)
    if json and ended.code:
        say(f"error: {ended.message}")
    for note in notes:
        say(note)
    _tell_run(run, llm, resumable=ended.result.outcome.kind in ("interrupted", "failed"))
    _leave(ended.code or failure)


def _tell_run(run: Path | None, llm: str, *, resumable: bool) -> None:
    if run is not None and run.exists():
        say(f"run: {run_name(run)}")
        if resumable:
            say(resume_hint(run, llm))


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
    simulated = text.simulated_note(result)
    options = result.pick(most) if result.options else result.near_misses[:most]
    if options:
        if simulated:
            tell(simulated)
        more = len(result.options) - len(options)
        shown = f"The {len(options)} to read first, of {len(result.options)}"
        title = (shown if more > 0 else "Ways out") if result.options else text.NOT_APPROVED
        typer.echo()
        chances = not result.settings.get("labels_only")
        table = text.option_rows(options, reasons=not simulated, chances=chances)
        print_table(title, *table)
    if ending := text.ending(result):
        tell(ending)
    tell(text.spent(result))


def _write_files(
    result: Result, html: Path | None, csv: Path | None, letter: Path | None
) -> tuple[list[str], int]:
    """Write the files; returns what to say of it and the exit code, and never fails itself."""
    from waysout.errors import UnavailableError

    notes, today = [], datetime.now().astimezone().date()
    try:
        if html is not None:
            result.to_html(html, when=today)
            notes.append(f"page: {html}")
        if csv is not None:
            result.to_csv(csv)
            notes.append(f"table: {csv}")
        if letter is not None:
            result.to_letter(letter, when=today)
            notes.append(f"letter: {letter}")
    except OSError as error:
        notes.append(f"error: cannot write {error.filename}: {error.strerror}")
        return notes, UnavailableError.exit_code
    return notes, 0
