"""``waysout batch``: ways out for everyone in a table, as one Parquet data set."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from waysout.cli import arguments as arg
from waysout.cli.arguments import MODEL, OUTPUT, SEARCH
from waysout.cli.find import search_options
from waysout.cli.output import (
    JsonFlag,
    echo,
    print_json,
    print_table,
    printable,
    progress_bar,
    say,
    tell,
)
from waysout.cli.places import command
from waysout.cli.search import FAILED, INTERRUPTED, Signals
from waysout.cli.streams import models_may_print

if TYPE_CHECKING:
    from waysout.batch.driver import BatchEnd, BatchProgress, Driver
    from waysout.batch.summary import BatchSummary

WORKERS = "Workers"
# Seconds between two lines of progress where there is no terminal for a bar.
LINE_SECONDS = 30.0
_SHOWN = 5
# Fewer than for one person: a batch pays them for everyone.
CALLS = 6


def batch(
    data: Annotated[str, typer.Option(
        help="The people: a CSV or Parquet file of any size, or a data set's name.",
        rich_help_panel=MODEL)],
    out: Annotated[Path, typer.Option(
        help="The folder of the results; an existing batch is resumed.", rich_help_panel=OUTPUT)],
    model: arg.ModelFile = "",
    card: arg.CardFile = "",
    training: Annotated[str, typer.Option(
        help="The table that distances are measured by; default: the people's.",
        rich_help_panel=MODEL)] = "",
    limit: Annotated[int | None, typer.Option(
        help="Only the first N rows; may be raised on resume.", min=1,
        rich_help_panel=MODEL)] = None,
    rules: arg.RuleSetName = "",
    positive_class: arg.PositiveClass = "",
    inputs: arg.Inputs = "auto",
    row_seconds: arg.RowSeconds = None,
    trust_pickle: arg.TrustPickle = False,
    trust_types: arg.TrustTypes = None,
    trust_code: arg.TrustCode = False,
    at_least: arg.SaferLevels = None,
    rise: arg.Rise = None,
    method: arg.MethodName = arg.DEFAULT_METHOD,
    setting: arg.Settings = None,
    llm: arg.LlmName = "",
    calls: Annotated[int | None, typer.Option(
        help="Maximum number of LLM calls per person (needs --llm); default: 6.", min=0,
        rich_help_panel=SEARCH)] = None,
    k: arg.EditsPerCall = 5,
    oracle_rows: arg.OracleRows = None,
    polish: arg.Polish = 0,
    seconds: arg.Seconds = None,
    tokens: arg.Tokens = None,
    money: arg.Money = None,
    price: arg.Prices = "",
    seed: arg.Seed = 0,
    paper: arg.PaperPrompt = False,
    free: arg.FreeForm = False,
    share: Annotated[int, typer.Option(
        help="Search for this many pilots first, and share what the LLM names for them with "
        "everybody like them: fewer calls each (needs --llm). Try 64.", min=0,
        rich_help_panel=SEARCH)] = 0,
    cluster: Annotated[Literal["local", "ray"], typer.Option(
        help="Where the workers are: processes of this machine, or actors of Ray.",
        rich_help_panel=WORKERS)] = "local",
    address: Annotated[str, typer.Option(
        help="The Ray cluster (auto, HOST:PORT, ray://…); default: a small one on this "
        "machine.", rich_help_panel=WORKERS)] = "",
    workers: Annotated[int | None, typer.Option(
        help="How many workers; default: the cores of this machine.", min=1,
        rich_help_panel=WORKERS)] = None,
    in_flight: Annotated[int | None, typer.Option(
        help="Searches at once, of all workers together; default: 64.", min=1,
        rich_help_panel=WORKERS)] = None,
    part_rows: Annotated[int | None, typer.Option(
        help="Rows of the table in one part; default depends on the table size.", min=1,
        rich_help_panel=OUTPUT)] = None,
    all_options: Annotated[bool, typer.Option(
        "--all-options", help="Write a row for each option, that is for each approved row with a "
        "key of its own, and not only for each way; ways are marked.",
        rich_help_panel=OUTPUT)] = False,
    keep_stores: Annotated[bool, typer.Option(
        "--keep-stores", help="Keep every answer of the LLM and of the model, about 400 kB a "
        "person.", rich_help_panel=OUTPUT)] = False,
    retry_failed: Annotated[bool, typer.Option(
        "--retry-failed", help="Search again for failed rows.", rich_help_panel=OUTPUT)] = False,
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Find ways out for everyone in a table whom the model rejects.

    The folder then holds one Parquet data set, part-*.parquet: a row for each way, with the
    number of the person's row, what changes, and how good it is. Whatever stops it, the same
    command resumes it: no row is done twice, and no answer on file is asked again. Limits such as
    --calls, --tokens and --money are for each person, not for the batch.

    Try: waysout batch --data synthetic --limit 100 --out ways

    Then: waysout audit ways --by education
    """
    from waysout.batch.run import BatchRequest, run_batch
    from waysout.cli.search import check_llm
    from waysout.cli.sources import check_source, goal_of
    from waysout.datasets.table import parquet_packages
    from waysout.errors import InputError
    from waysout.llm.connect import stand_in
    from waysout.methods import method_class
    from waysout.report.words import counted
    from waysout.run.find import prepare
    from waysout.run.source import Source, Trust

    # A method that asks no LLM gets its rows by the calls.
    if calls is None and (llm or not method_class(method).needs_llm):
        calls = CALLS
    options = search_options(
        method=method, setting=setting or [], llm=llm, calls=calls, k=k, oracle_rows=oracle_rows,
        polish=polish, seconds=seconds, tokens=tokens, money=money, price=price, seed=seed,
        paper=paper, free=free,
    )  # fmt: skip
    parquet_packages()  # or it would be missed only after the model was tried
    prepared = prepare(options)
    if share and not prepared.plan.asks_llm:
        raise InputError(f"--share {share} shares what an LLM names: give one with --llm")
    check_llm(prepared)
    goal = goal_of(at_least, rise)
    source = Source(
        data, card, model, rules, positive_class, inputs, **goal, row_seconds=row_seconds
    )
    check_source(source)
    request = BatchRequest(
        source=source, out=out, options=options,
        trust=Trust(trust_pickle, tuple(trust_types or ()), trust_code, named=True),
        training=training, limit=limit, share=share, cluster=cluster, address=address,
        workers=workers, in_flight=in_flight, part_rows=part_rows, all_options=all_options,
        keep_stores=keep_stores, retry_failed=retry_failed,
    )  # fmt: skip
    models_may_print()
    with BatchSignals(json) as signals, progress_bar(json) as bars:
        screen = BatchScreen(bars, signals)
        summary, ended = run_batch(
            request, tell=screen.reading, on_cost=screen.opened, on_note=_note,
            on_start=screen.started, on_progress=screen.progress,
        )  # fmt: skip
    code, kind, message = _exit(summary, ended, signals)
    if json:
        rate = round(ended.rows / ended.seconds, 3) if ended.seconds else None
        now = {"rows": ended.rows, "seconds": round(ended.seconds, 3), "rows_per_second": rate}
        error = {"error": {"type": kind, "message": message, "code": code}} if code else {}
        print_json({"results": out, **summary.as_dict(), "stand_in": stand_in(summary.llm),
                    "parts_left": ended.left, "this_sitting": now, **error})  # fmt: skip
    else:
        _print(summary, ended)
        echo(printable(f"results: {out}"))
    if failed := summary.failed.total():
        rows = counted(failed, "row")
        say(f"{rows} failed; the reason for each: {out / '_failed.csv'}")
        again = [word for word in sys.argv[1:] if word != "--retry-failed"]
        say(f"search for them again with: {command(*again, '--retry-failed')}")
    if code:
        say(f"error: {message}")
    if ended.left:
        say(resume_command())
    if code:
        raise typer.Exit(code)


def _note(text: str) -> None:
    say(f"note: {text}")


@dataclass
class BatchSignals(Signals):
    """Stops a batch at a signal, and says how to resume it."""

    def hints(self) -> list[str]:
        """Say how to resume the batch."""
        return [resume_command()]

    def wait(self) -> None:
        """Do not end the process after all: the searches have ended, and are being counted."""
        if self._timer is not None:
            self._timer.cancel()


def resume_command() -> str:
    """Say how to resume what was interrupted."""
    return f"what is done is kept; resume with: {command(*sys.argv[1:])}"


class BatchScreen:
    """Shows the progress of a batch, and lets a signal stop it."""

    def __init__(self, bars: Any, signals: BatchSignals) -> None:
        self.bars = bars
        self.bar = bars.add_task("starting", total=None)
        self.signals = signals
        self.printed = time.monotonic()

    def reading(self, what: str, share: float) -> None:
        """Show what is being read or learned before the searches, and how much of it is done."""
        self.bars.update(self.bar, description=what, total=1.0, completed=share)

    def opened(self, cost: str) -> None:
        """Say what the batch may cost; its model is loaded, and may have set handlers."""
        self.signals.take()
        say(cost)

    def started(self, driver: Driver) -> None:
        """Show that the searches begin; the driver can be stopped from now on."""
        self.signals.stop = driver.stop
        self.bars.reset(self.bar, total=driver.progress.rows, description="starting the workers")

    def progress(self, now: BatchProgress) -> None:
        """Show how many rows are done."""
        from waysout.report.words import duration

        if now.over:
            self.signals.wait()
        tally, left = now.tally, now.seconds_left
        rate = tally.people / now.seconds if now.seconds else 0.0
        failed = tally.outcomes.get("failed", 0)
        words = (
            f"{now.done:,} of {now.rows:,} rows ({rate:.1f}/s), {tally.ways:,} ways"
            + (f", {calls:,} calls" if (calls := tally.spent.llm_calls) else "")
            + (f", {failed:,} failed" if failed else "")
        )
        self.bars.update(self.bar, completed=now.done, description=words)
        if self.bars.disable and time.monotonic() - self.printed >= LINE_SECONDS:
            self.printed = time.monotonic()
            say(words if left is None else f"{words}, {duration(left)} left")


def _exit(summary: BatchSummary, ended: BatchEnd, signals: Signals) -> tuple[int, str, str]:
    """Return the exit code, the kind of error and a message."""
    from waysout.report.words import counted

    left = f"{counted(ended.left, 'part is', 'parts are')} not done"
    reason = f"{ended.stopped}; {left}" if ended.stopped else left
    if signals.caught:
        return 128 + signals.caught, "Interrupted", reason
    if ended.left or ended.stopped:
        return ended.exit_code or INTERRUPTED, "Interrupted", reason
    failed = summary.failed.total()
    if failed and not summary.searched:
        return FAILED, "RowsFailed", f"all {failed:,} searches failed"
    return 0, "", ""


def _print(summary: BatchSummary, ended: BatchEnd) -> None:
    from waysout.llm.connect import stand_in
    from waysout.report.words import counted, duration

    tally, people = summary.tally, max(1, summary.searched)
    if ended.left:
        tell("Figures of the parts that are done; what the others have spent is not counted here:")
    skipped = counted(summary.approved, "row was", "rows were")
    found = (
        f"{summary.found:,} of {summary.searched:,} rejected people have a way out, "
        f"{_found(summary)}"
    )
    if tally.people > summary.approved and not summary.searched:
        found = f"No search came to its end; {counted(tally.ways, 'way')} found before are kept"
    tell(f"{found}; {skipped} approved already.")
    if summary.before_ways:
        tell("An earlier release began this folder: it has a row for each option, and no ways.")
    if summary.empty:
        rows = [(f"{count:,}", why) for why, count in summary.empty.most_common(_SHOWN)]
        print_table(f"Without: {summary.empty.total():,}", ["people", "why"], rows)
    spent, llm = tally.spent + summary.pilots.spent, summary.llm
    calls, money = spent.llm_calls, f", {spent.money:.2f} in money" if spent.money else ""
    by = f" of {llm}, a {stand_in(llm)} LLM" if stand_in(llm) and calls else ""
    asked = (
        f"{counted(calls, 'LLM call')}{by} ({calls / people:.1f} a person; "
        f"{spent.tokens_in:,} tokens in, {spent.tokens_out:,} out), "
    )
    tell(
        f"Spent: {asked if llm else ''}"
        f"{counted(spent.oracle_rows, 'oracle row')} and "
        f"{spent.setup_rows + summary.probe_rows:,} for set-up{money}. This time: "
        f"{counted(ended.rows, 'row')} in {duration(ended.seconds)} "
        f"({ended.rows / max(ended.seconds, 1e-9):.1f}/s)."
    )


def _found(summary: BatchSummary) -> str:
    """Say how many ways there are, and how many of the rows asked were approved."""
    from waysout.report.words import counted

    tally, people = summary.tally, max(1, summary.searched)
    if summary.before_ways:
        return f"{counted(tally.options, 'option')} in all ({tally.options / people:.1f} each)"
    return (
        f"{counted(tally.ways, 'way')} in all ({tally.ways / people:.1f} each; "
        f"{tally.approved_rows:,} of {counted(tally.spent.oracle_rows, 'row')} approved)"
    )
