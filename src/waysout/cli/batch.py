"""``waysout batch``: ways out for everybody in a table, as one Parquet data set."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waysout.cli.arguments import (
    DEFAULT_METHOD,
    MODEL,
    OUTPUT,
    AtLeast,
    Calls,
    CardFile,
    EditsPerCall,
    FreeForm,
    Inputs,
    LlmName,
    MethodName,
    ModelFile,
    Money,
    OracleRows,
    PaperPrompt,
    Polish,
    PositiveClass,
    Prices,
    Rise,
    RuleSetName,
    Seconds,
    Seed,
    Settings,
    Tokens,
)
from waysout.cli.find import search_options
from waysout.cli.output import (
    JsonFlag,
    TrustCode,
    TrustPickle,
    TrustTypes,
    print_json,
    print_table,
    printable,
    progress_bar,
    say,
    tell,
)
from waysout.cli.signals import Signals
from waysout.llm.connect import DEFAULT as DEFAULT_LLM

if TYPE_CHECKING:
    from waysout.batch.driver import BatchEnd, BatchProgress
    from waysout.batch.summary import BatchSummary

CREW = "Who does the work"
INTERRUPTED = 9
FAILED = 4
# Where nobody watches, a line so often.
LINE_SECONDS = 30.0
_SHOWN = 5


class Cluster(StrEnum):
    """Where the workers are."""

    LOCAL = "local"
    RAY = "ray"


def batch(
    data: Annotated[
        str,
        typer.Option(help="The people: a CSV or Parquet file of any size, or a data set's name.",
                     rich_help_panel=MODEL),
    ],
    out: Annotated[
        Path,
        typer.Option(help="The folder of the results; one that is there is gone on with.",
                     rich_help_panel=OUTPUT),
    ],
    model: ModelFile = "",
    card: CardFile = "",
    training: Annotated[
        str,
        typer.Option(help="The table that distances are measured by; the default: the people's.",
                     rich_help_panel=MODEL),
    ] = "",
    limit: Annotated[
        int | None,
        typer.Option(help="Only the first so many rows of the table; may grow later.", min=1,
                     rich_help_panel=MODEL),
    ] = None,
    rules: RuleSetName = "",
    positive_class: PositiveClass = "",
    inputs: Inputs = "auto",
    trust_pickle: TrustPickle = False,
    trust_types: TrustTypes = None,
    trust_code: TrustCode = False,
    at_least: AtLeast = None,
    rise: Rise = None,
    method: MethodName = DEFAULT_METHOD,
    setting: Settings = None,
    llm: LlmName = DEFAULT_LLM,
    calls: Calls = 6,
    k: EditsPerCall = 5,
    oracle_rows: OracleRows = None,
    polish: Polish = 0,
    seconds: Seconds = None,
    tokens: Tokens = None,
    money: Money = None,
    price: Prices = "",
    seed: Seed = 0,
    paper: PaperPrompt = False,
    free: FreeForm = False,
    share: Annotated[
        int,
        typer.Option(help="Search for so many pilots first, and share what the LLM names for them "
                     "with everybody like them: fewer calls each. Try 64.", min=0,
                     rich_help_panel=CREW),
    ] = 0,
    cluster: Annotated[
        Cluster,
        typer.Option(help="Where the workers are: processes of this machine, or actors of Ray.",
                     rich_help_panel=CREW),
    ] = Cluster.LOCAL,
    address: Annotated[
        str,
        typer.Option(help="The Ray cluster (auto, HOST:PORT, ray://…); the default: a small one "
                     "on this machine.", rich_help_panel=CREW),
    ] = "",
    workers: Annotated[
        int | None,
        typer.Option(help="How many workers; the default: the cores of this machine.", min=1,
                     rich_help_panel=CREW),
    ] = None,
    in_flight: Annotated[
        int | None,
        typer.Option(help="People who are searched for at once, by all workers; the default: 64.",
                     min=1, rich_help_panel=CREW),
    ] = None,
    part_rows: Annotated[
        int | None,
        typer.Option(help="Rows of the table in one part; the default goes by their number.",
                     min=1, rich_help_panel=OUTPUT),
    ] = None,
    keep_stores: Annotated[
        bool,
        typer.Option("--keep-stores", help="Keep every answer of the LLM and of the model, some "
                     "400 kB a person.", rich_help_panel=OUTPUT),
    ] = False,
    retry_failed: Annotated[
        bool,
        typer.Option("--retry-failed", help="Search once more for those who failed.",
                     rich_help_panel=OUTPUT),
    ] = False,
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Find ways out for everybody in a table whom the model turns down.

    The folder then holds one Parquet data set, part-*.parquet: a row for each option, with the
    number of the person's row, what changes, and how good it is. Whatever stops it, the same
    command goes on: no row is done twice, and no answer on file is asked again. Limits such as
    --calls, --tokens and --money are for each person, not for the batch.

    Try: waysout batch --data synthetic --llm simulated:1 --limit 100 --out ways

    Then: waysout audit ways --by education
    """
    from waysout.batch.run import BatchRequest, run_batch
    from waysout.cli import search
    from waysout.run.source import Source, Trust

    options = search_options(
        method=method, setting=setting or [], llm=llm, calls=calls, k=k, oracle_rows=oracle_rows,
        polish=polish, seconds=seconds, tokens=tokens, money=money, price=price, seed=seed,
        paper=paper, free=free,
    )  # fmt: skip
    search.check_llm(options)
    wanted = BatchRequest(
        source=Source(data, card, model, rules, positive_class, inputs, at_least, rise),
        out=out, options=options, trust=Trust(trust_pickle, tuple(trust_types or ()), trust_code),
        training=training, limit=limit, share=share, cluster=cluster.value, address=address,
        workers=workers, in_flight=in_flight, part_rows=part_rows, keep_stores=keep_stores,
        retry_failed=retry_failed,
    )  # fmt: skip
    with BatchSignals(json) as signals, progress_bar(json) as bars, redirect_stdout(sys.stderr):
        summary, ended = run_batch(wanted, _listener(bars, signals))
    _hand_over(summary, ended, out, signals, json=json)


@dataclass
class BatchSignals(Signals):
    """Stops a batch at a signal, and says how to go on."""

    def _where(self) -> list[str]:
        return [go_on()]

    def wait(self) -> None:
        """Let it take its time: the searches have ended, and are being counted."""
        if self._timer is not None:
            self._timer.cancel()


def go_on() -> str:
    """Say how to go on with what was cut short."""
    return f"what is done is kept; go on with: {shlex.join(['waysout', *sys.argv[1:]])}"


def _listener(bars: Any, signals: BatchSignals) -> Any:
    """Return who shows how far a batch has come, and lets a signal stop it."""
    from waysout.batch.driver import Driver, Watch
    from waysout.batch.run import Listener

    bar = bars.add_task("starting", total=None)

    class Shown(Listener):
        said = time.monotonic()

        def reads(self, what: str, share: float) -> None:
            bars.update(bar, description=what, total=1.0, completed=share)

        def begins(self, told: str, driver: Driver) -> None:
            say(told)
            signals.stop = driver.stop
            bars.reset(bar, total=driver.pace.rows, description="starting the workers")

        def goes(self) -> Watch:
            return self._show

        def _show(self, pace: BatchProgress) -> None:
            if pace.over:
                signals.wait()
            words = _words(pace)
            bars.update(bar, completed=pace.done, description=words)
            if bars.disable and time.monotonic() - self.said >= LINE_SECONDS:
                self.said = time.monotonic()
                say(f"{words}{_left(pace)}")

    return Shown()


def _words(pace: BatchProgress) -> str:
    tally = pace.tally
    rate = tally.people / pace.seconds if pace.seconds else 0.0
    failed = tally.outcomes.get("failed", 0)
    bad = f", {failed:,} failed" if failed else ""
    return (
        f"{pace.done:,} of {pace.rows:,} rows ({rate:.1f}/s), {tally.options:,} ways out, "
        f"{tally.llm_calls:,} calls{bad}"
    )


def _left(pace: BatchProgress) -> str:
    from waysout.report.words import duration

    seconds = pace.seconds_left
    return "" if seconds is None else f", {duration(seconds)} left"


# The end ---------------------------------------------------------------------------------------


def _hand_over(
    summary: BatchSummary, ended: BatchEnd, out: Path, signals: Signals, *, json: bool
) -> None:
    """Say what came of it, and leave with a code that tells."""
    from waysout.report.words import counted

    code, kind, message = _code(summary, ended, signals)
    if json:
        error = {"error": {"type": kind, "message": message, "code": code}} if code else {}
        print_json({**_document(summary, ended, out), **error})
    else:
        _tell(summary, ended)
        typer.echo(printable(f"results: {out}"))
    if summary.failed:
        failed = counted(summary.failed.total(), "row")
        say(f"{failed} failed; each with its reason: {out / '_failed.csv'}")
    if code:
        say(f"error: {message}")
    if ended.left:
        say(go_on())
    if code:
        raise typer.Exit(code)


def _code(summary: BatchSummary, ended: BatchEnd, signals: Signals) -> tuple[int, str, str]:
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


def _document(summary: BatchSummary, ended: BatchEnd, out: Path) -> dict[str, Any]:
    from waysout.llm.connect import is_simulated

    return {
        "results": out,
        **summary.as_dict(),
        "simulated": is_simulated(summary.llm),
        "parts_left": ended.left,
        "this_sitting": {
            "rows": ended.rows,
            "seconds": round(ended.seconds, 3),
            "rows_per_second": round(ended.rows / ended.seconds, 3) if ended.seconds else None,
        },
    }


def _tell(summary: BatchSummary, ended: BatchEnd) -> None:
    from waysout.llm.connect import is_simulated
    from waysout.report.words import counted, duration

    tally, people = summary.tally, max(1, summary.searched)
    if ended.left:
        tell("Of the parts that are done; what the others have spent is on file, not counted here:")
    skipped = counted(summary.approved, "row was", "rows were")
    tell(
        f"{summary.found:,} of {summary.searched:,} rejected people have a way out, "
        f"{counted(tally.options, 'way', 'ways')} in all ({tally.options / people:.1f} each); "
        f"{skipped} approved already."
    )
    if summary.empty:
        rows = [(f"{count:,}", why) for why, count in summary.empty.most_common(_SHOWN)]
        print_table(f"Without: {summary.empty.total():,}", ["people", "why"], rows)
    spent, llm = tally + summary.pilots, summary.llm
    calls = spent.llm_calls
    by = f" of {llm}, a simulated LLM" if is_simulated(llm) and calls else ""
    tell(
        f"Spent: {counted(calls, 'LLM call')}{by} ({calls / people:.1f} a person; "
        f"{spent.tokens_in:,} tokens in, {spent.tokens_out:,} out), "
        f"{counted(spent.oracle_rows, 'oracle row')}{_money(spent.money)}. This time: "
        f"{counted(ended.rows, 'row')} in {duration(ended.seconds)} "
        f"({ended.rows / max(ended.seconds, 1e-9):.1f}/s)."
    )


def _money(money: float) -> str:
    return f", {money:.2f} in money" if money else ""
