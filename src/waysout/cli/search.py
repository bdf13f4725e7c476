"""What `find`, `demo` and `runs resume` share: a search with progress, signals and its result."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from threading import RLock, Timer
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import typer

from waysout.cli.held import ready_for_models
from waysout.cli.output import echo, print_json, print_table, progress_bar, say, tell
from waysout.cli.places import resume_hint, run_name
from waysout.cli.streams import our_stdout_number
from waysout.oracles.watchdog import end_process
from waysout.run.forks import SIGNALS, own_handlers

if TYPE_CHECKING:
    from waysout.datasets.table import Table
    from waysout.domain.problem import Problem
    from waysout.errors import LLMError
    from waysout.report.result import Result
    from waysout.run.find import PreparedRun
    from waysout.run.options import Options
    from waysout.run.progress import Progress
    from waysout.run.source import Source, Trust

SHOWN = 5
INTERRUPTED = 9
FAILED = 4
_CODES = {"interrupted": INTERRUPTED, "failed": FAILED}
# How long a stopped search may take to return what it has, in seconds; a model may be thinking.
# Then the process ends: every answer is on file.
PATIENCE = 4.0
_STDERR = 2


@dataclass
class Signals:
    """Handles Ctrl-C and SIGTERM while it is entered.

    A signal calls ``stop``, so that a search ends with what it has. Without one, or at a second
    signal, the process ends at once; with ``json`` it still prints one document. ``run`` is the
    file that has the answers so far, given by ``llm`` and by files for which the user vouched with
    the options ``trusted``.
    """

    json: bool
    run: Path | None = None
    llm: str = ""
    trusted: Sequence[str] = ()
    stop: Callable[[str], object] | None = None
    caught: int = 0
    _timer: Timer | None = None
    _over: bool = False
    _ending: RLock = field(default_factory=RLock)
    _until_left: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        before = self._until_left.enter_context(own_handlers())
        for number in SIGNALS:
            self._until_left.callback(signal.signal, number, before[number])
        self.take()
        return self

    def take(self) -> None:
        """Handle the signals from now on, whoever has handled or ignored them in the meantime."""
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def __exit__(self, *_: object) -> None:
        with self._ending:
            self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self._until_left.close()

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.caught or self.stop is None:
            self._end_now(number)
        else:
            self.caught = number
            self._timer = Timer(PATIENCE, self._end_now, [number])
            self._timer.start()
            self.stop(f"stopped by {signal.Signals(number).name}")

    def _end_now(self, number: int) -> None:
        """End the process though something in it hangs."""
        message, code = f"stopped by {signal.Signals(number).name}", 128 + number
        with self._ending:
            if self._over:  # the result is about to be printed; or a signal comes while this runs
                return
            self._over = True
            try:
                if self.json:
                    error = {"type": "Interrupted", "message": message, "code": code}
                    _write(our_stdout_number(), f"{json.dumps({'error': error})}\n")
                show_cursor = "\x1b[?25h" if os.isatty(_STDERR) else ""  # a progress bar hides it
                lines = [f"{show_cursor}\n{message}", *self.hints()]
                _write(_STDERR, "".join(f"{line}\n" for line in lines))
            finally:
                end_process(code)

    def hints(self) -> list[str]:
        """Say where the run is, and how to resume it."""
        if self.run is None or not self.run.exists():
            return []
        return [f"run: {run_name(self.run)}", resume_hint(self.run, self.llm, self.trusted)]


def _write(number: int, text: str) -> None:
    """Write to a file past Python, whose streams may be locked by what hangs."""
    with suppress(OSError):  # nobody reads it, or a model has closed it
        os.write(number, text.encode())


@dataclass(frozen=True)
class SearchEnd:
    """A result, and what cut it short: a signal, or the LLM."""

    result: Result
    signal: int = 0
    error: LLMError | None = None

    @property
    def code(self) -> int:
        """The exit code."""
        if self.signal:
            return 128 + self.signal
        if self.error is not None:
            return self.error.exit_code
        return _CODES.get(self.result.outcome.kind, 0)

    def as_dict(self) -> dict[str, Any]:
        """Return the document of `--json`: the result, and what went wrong if something did."""
        document = self.result.as_dict()
        if self.code:
            kind = type(self.error).__name__ if self.error else str(self.result.outcome.kind)
            kind = "Interrupted" if self.signal else kind
            document["error"] = {"type": kind, "message": self.message, "code": self.code}
        return document

    @property
    def message(self) -> str:
        """What went wrong."""
        if self.signal:
            return f"stopped by {signal.Signals(self.signal).name}"
        return str(self.error) if self.error else self.result.outcome.reason


def check_llm(prepared: PreparedRun) -> str:
    """Refuse an unusable LLM before a large model is loaded.

    Returns the LLM's name, or an empty one where none is asked.
    """
    from waysout.llm.connect import connect

    if not prepared.plan.asks_llm:
        return ""
    llm = str(prepared.options["llm"])
    note_reasons(connect(llm).name)
    return llm


def note_reasons(llm: str) -> None:
    """Say that the reasons of an LLM are left out, where they are."""
    from waysout.llm.models import writes_reasons

    if not writes_reasons(llm):
        say(f"note: {llm} names values, but writes nonsense as reasons: they are left out")


def search_source(
    prepared: PreparedRun,
    source: Source,
    trust: Trust,
    row: Callable[[Table], Mapping[str, Any]],
    signals: Signals,
    on_file: str = "",
) -> SearchEnd:
    """Open what a search is made from, say what it may cost, and run it."""
    from waysout.cli.sources import open_source
    from waysout.errors import LLMError

    kept = {**source.as_dict(), "digests": source.digests()}  # a model may change the folder
    ready_for_models()
    opened = open_source(source, trust)
    signals.take()  # what was imported may have set handlers of its own
    query, given = opened.query(row(opened.table)), prepared.options
    # A run stores its row and the digests of its files, to refuse others on resume.
    about = {
        **kept, "llm": given.get("llm") or "", "price": given.get("price", ""), "row": query,
        # Only to say how it is resumed: that asks for the user's word again.
        "trusted": list(signals.trusted),
    }  # fmt: skip
    more: Options = {**given, "about": about}
    if opened.known is not None:
        more["data"] = opened.known
    prepared = replace(prepared, options=more)
    say(most_cost(prepared, opened.problem, query) + on_file)
    try:
        return search(prepared, opened.problem, query, signals)
    except LLMError:
        for hint in signals.hints():
            say(hint)
        raise


def search(prepared: PreparedRun, problem: Problem, row: Any, signals: Signals) -> SearchEnd:
    """Run one search with live progress."""
    from waysout.report.words import counted
    from waysout.run.context import Stop
    from waysout.run.find import only_result

    plan, signals.stop = prepared.plan, Stop()
    asks, budget = plan.asks_llm, plan.budget
    total, unit = (budget.llm_calls, "calls") if asks else (budget.oracle_rows, "rows")
    of = "" if total is None else f" of {total}"
    ready_for_models()
    with progress_bar(signals.json) as bars:
        bar = bars.add_task(f"{plan.name}: starting", total=total)

        def learn(what: str, share: float) -> None:
            bars.update(bar, total=1.0, completed=share, description=what)
            if share >= 1.0:
                bars.update(bar, total=total, completed=0, description=f"{plan.name}: starting")
                say(what)

        def advance(now: Progress) -> None:
            done = now.llm_calls if asks else now.oracle_rows
            found = counted(now.options, "option")
            bars.update(bar, completed=done, description=f"{done}{of} {unit}, {found}")

        watched: Options = {
            **prepared.options, "learning": learn, "progress": advance, "stop": signals.stop
        }  # fmt: skip
        results = replace(prepared, options=watched).results(problem, [row])
        result, error = only_result(results)
    return SearchEnd(result, signals.caught, error)


def most_cost(prepared: PreparedRun, problem: Problem, row: Any) -> str:
    """Say what a search may cost at most, before anything is spent."""
    from waysout.llm.call import Price
    from waysout.oracles.probe import form_told
    from waysout.prompts.propose import Proposer
    from waysout.prompts.render import Topic
    from waysout.report.words import counted

    def limit(most: int | None, one: str) -> str:
        return f"any number of {one}s" if most is None else counted(most, one)

    plan, budget = prepared.plan, prepared.plan.budget
    rows = limit(budget.oracle_rows, "oracle row")
    parts = [f"{rows} for the search and {budget.setup_rows} for set-up{form_told(problem.oracle)}"]
    if plan.asks_llm:
        parts.insert(0, limit(budget.llm_calls, "LLM call"))
        parts += [counted(budget.tokens, "token")] if budget.tokens is not None else []
        price = prepared.options.get("price")
        if budget.money is not None:
            parts.append(f"{budget.money:g} in money")
        elif isinstance(price, str) and budget.llm_calls is not None:
            # By the first prompt: later ones are about as long.
            query, k = problem.row(row), plan.method.edits_a_call(plan.k)
            proposer = Proposer(Topic.of_problem(problem), style=plan.style)
            first = proposer.request(query, query, k=k)
            if first is not None:
                most = budget.llm_calls * Price.parse(price).most(first)
                parts.append(f"about {most:.2g} in money")
    parts += [f"{budget.seconds:g} seconds"] if budget.seconds is not None else []
    return f"{plan.name} may cost at most " + ", ".join(parts)


def hand_over(
    ended: SearchEnd,
    *,
    json: bool,
    most: int = SHOWN,
    html: Path | None = None,
    csv: Path | None = None,
    all_options: bool = False,
    letter: Path | None = None,
    folder: Path = Path(),
    run: Path | None = None,
    llm: str = "",
    trusted: Sequence[str] = (),
) -> None:
    """Print the result, write the files that were asked for, and leave with the exit code.

    ``folder`` is the one that files are named in: a model may have changed it.
    """
    from waysout.errors import UnavailableError

    result, code, notes = ended.result, ended.code, []
    today = datetime.now().astimezone().date()
    # Files come first: the reader of stdout may hang up in the middle (`… | head`).
    files: list[tuple[str, Path | None, Callable[[Path], object]]] = [
        ("page", html, lambda path: result.to_html(path, when=today)),
        ("table", csv, lambda path: result.to_csv(path, all_options=all_options)),
        ("letter", letter, lambda path: result.to_letter(path, when=today)),
    ]
    for kind, path, write in files:
        if path is None:
            continue
        try:
            write(folder / path)
            notes.append(f"{kind}: {path}")
        except OSError as error:
            notes.append(f"error: cannot write {path}: {error.strerror}")
            code = code or UnavailableError.exit_code
    if json:
        print_json(ended.as_dict())
    else:
        show(result, most=most)
    if json and ended.code:
        say(f"error: {ended.message}")
    where = Signals(json, run, llm, trusted).hints()
    for note in [*notes, *(where if ended.result.outcome.kind in _CODES else where[:1])]:
        say(note)
    if code:
        raise typer.Exit(code)


def show(result: Result, *, most: int = SHOWN) -> None:
    """Print a result for people."""
    from waysout.domain.pick import pickable
    from waysout.report import text
    from waysout.report.tipping import TITLE

    tell(text.sentence(result))
    for note in text.note_lines(result):
        tell(note)
    instead = text.stand_in_note(result)
    options = result.pick(most) if result.options else result.near_misses[:most]
    if options:
        if instead:
            tell(instead)
        total = len(pickable(result))
        shown = f"The {len(options)} to read first, of {total}"
        title = (shown if total > len(options) else "Ways out") if total else text.NOT_APPROVED
        echo()
        chances = not result.settings.get("labels_only")
        table = text.option_rows(options, result.settings, reasons=not instead, chances=chances)
        print_table(title, *table)
    columns, tips = text.tip_rows(result)
    if tips:
        print_table(TITLE, columns, tips)
    if ending := text.ending(result):
        tell(ending)
    tell(text.spent(result))
