"""``waysout bench``: experiments of many searches, resumable at any point, and their tables."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waysout.bench.commands import look, pages
from waysout.bench.commands.estimate import estimate
from waysout.bench.commands.hard import hard
from waysout.bench.commands.look import (
    Folder,
    LlmNames,
    Only,
    Queries,
    failure_lines,
    load_plans,
    results_folder,
)
from waysout.cli.output import (
    JsonFlag,
    print_json,
    print_table,
    printable,
    progress_bar,
    say,
    tell,
)
from waysout.cli.places import command
from waysout.cli.search import Signals

if TYPE_CHECKING:
    from waysout.bench.plan import ExperimentPlan
    from waysout.bench.progress import Outcome, PlanProgress, PlanSummary, Watch
    from waysout.bench.tasks import Queue, Task

app = typer.Typer(
    help="Experiments: many searches in a plan, resumable at any point, and the tables made of "
    "them.\n\nStart with: waysout bench plans",
    no_args_is_help=True,
)
FAILED = 1
# Seconds between progress lines when there is no terminal for a progress bar.
LINE_SECONDS = 30.0


# Plans -----------------------------------------------------------------------------------------


@app.command()
def plans(
    name: Annotated[str | None, typer.Argument(help="Print the TOML of this plan.")] = None,
    json: JsonFlag = False,
) -> None:
    """List the plans that come with Waysout: one for each table, run by name.

    `paper` stands for those of the paper that ask an LLM.

    To write your own: waysout bench plans llm-budget > mine.toml
    """
    from waysout.bench.plan import GROUPS, load_plan, plan_names, plan_text

    if name is not None and name not in GROUPS:
        text, listed = plan_text(name), _listed(load_plan(name))
        if json:
            print_json({**listed, "toml": text})
            return
        typer.echo(printable(text), nl=False)
        say(f"{listed['name']}: {len(listed['arms'])} arms on {', '.join(listed['datasets'])}: "
            f"{listed['searches']:,} searches and at most {listed['llm_calls']:,} LLM calls, with "
            f"one LLM; arms: {'; '.join(listed['arms'])}")  # fmt: skip
        return
    found = [_listed(load_plan(one)) for one in (GROUPS[name] if name else plan_names())]
    if json:
        print_json(found)
        return
    rows = [(p["name"], p["title"], ", ".join(p["datasets"]), f"{p['searches']:,}",
             f"{p['llm_calls']:,}") for p in found]  # fmt: skip
    print_table("Plans", ["plan", "what it compares", "data sets", "searches", "LLM calls"], rows)
    tell("Searches and LLM calls (at most) are for one LLM. Run one: waysout bench run PLAN; "
         "see what is in it: waysout bench plans PLAN; all of the paper's that ask an LLM: waysout "
         "bench run paper")  # fmt: skip


def _listed(plan: ExperimentPlan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "title": plan.title,
        "datasets": plan.datasets,
        "arms": list(dict.fromkeys(arm.name for arm in plan.arms)),
        "llms": plan.llms,
        "searches": sum(arm.queries for arm in plan.arms),
        "llm_calls": sum(arm.queries * arm.calls for arm in plan.arms if arm.asks_llm),
        "hash": plan.hash,
    }


# Running ---------------------------------------------------------------------------------------


@app.command()
def run(
    plan: Annotated[
        list[str], typer.Argument(help="A plan of `waysout bench plans`, `paper`, or a TOML file.")
    ],
    llm: LlmNames = None,
    queries: Queries = None,
    only: Only = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Processes that search; with a real LLM, at most one for every 100 "
                     "searches. Default: the number of cores.", min=1),
    ] = None,
    in_flight: Annotated[
        int | None,
        typer.Option(help="LLM requests at once; where searches are timed, searches. Default: "
                     "the LLM's limit; of the latter, 1.", min=1),
    ] = None,
    results: Folder = None,
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Run the searches of plans that are not done yet.

    Every finished search and every LLM reply is stored at once. Stop at any time and run the same
    command again: it continues where it stopped.

    Try: waysout bench run reward-weights --queries 3 --only loan
    """
    from waysout.bench.results import Results
    from waysout.bench.runner import run_plans
    from waysout.bench.tasks import backlog_of
    from waysout.llm.connect import stand_in
    from waysout.report.words import counted

    wanted = load_plans(plan, queries, only, llm)
    with Results.open(results_folder(results)) as kept:
        backlog = backlog_of(wanted, kept.done(), in_flight=in_flight)
        # Print what there is to do, and what it may cost, before anything is paid.
        names, left = ", ".join(one.name for one in wanted), _searches(backlog.searches)
        stored = kept.replies()
        say(f"{names}: {left} to do, {backlog.on_file:,} on file")
        for queue in backlog.queues:
            for name in dict.fromkeys(task.llm for task in queue.tasks):
                count = sum(len(task.queries) for task in queue.tasks if task.llm == name)
                what = f"with {name}, a {stand_in(name)} LLM" if name else "without an LLM"
                if name and queue.llm is not None:
                    what = f"with {name}: at most {counted(queue.most_calls, 'LLM call')}"
                    if not queue.alone and (known := stored.get(name)):
                        what += f", less what {known:,} replies on file answer"
                wide = queue.in_flight or 1
                many = "one at a time" if wide == 1 else f"{wide} at a time, one of an arm"
                alone = f", {many}" if queue.alone else ""
                say(f"  {_searches(count)} {what}{alone}")
        with watched(json) as (watch, signals), redirect_stdout(sys.stderr):
            ended = run_plans(
                wanted, backlog, kept, jobs=jobs, progress=watch, stop=signals.stop_all
            )  # fmt: skip
    where = ["--results", str(results)] if results else []
    see = shlex.join(["waysout", "bench", "status", *plan, *where])
    _summarise(wanted, ended, kept.path.parent, signals.caught, see, json=json)


def _summarise(
    wanted: Sequence[ExperimentPlan],
    ended: PlanSummary,
    folder: Path,
    signal: int,
    see: str,
    *,
    json: bool,
) -> None:
    """Print what a run did, and exit with a code for what went wrong."""
    from waysout.report.words import counted

    code, kind, message = 0, "", ""
    if signal:
        code, kind, message = 128 + signal, "Interrupted", ended.stopped
    elif ended.error is not None:
        code, kind, message = ended.error.exit_code, type(ended.error).__name__, str(ended.error)
    elif ended.failures:
        code, kind = FAILED, "SearchesFailed"
        message = f"{len(ended.failures):,} of {ended.to_do:,} searches failed"
    arms = {arm.id: f"{arm.data}/{arm.name}" for one in wanted for arm in one.arms}
    if json:
        print_json({
            "plans": [one.name for one in wanted],
            "results": folder,
            "on_file": ended.on_file,
            "to_do": ended.to_do,
            "done": ended.done,
            "left": ended.left,
            "calls_paid": ended.paid,
            "calls_from_file": ended.from_file,
            "seconds": round(ended.seconds, 3),
            "failures": [{**asdict(f), "name": arms[f.arm]} for f in ended.failures],
            **({"error": {"type": kind, "message": message, "code": code}} if code else {}),
        })  # fmt: skip
    else:
        paid = f", {counted(ended.paid, 'LLM call')} paid" if ended.paid else ""
        reused = f", {ended.from_file:,} answered from file" if ended.from_file else ""
        tell(f"{_searches(ended.done)} done in {ended.seconds:.0f} s{paid}{reused}; "
             f"{ended.on_file:,} were on file")  # fmt: skip
        # Commands are not wrapped, so that they can be copied.
        typer.echo(printable(f"results: {folder}\nsee: {see}"))
    failures = ((f"{arms[f.arm]}{f' with {f.llm}' if f.llm else ''}", f.reason, 1)
                for f in ended.failures)  # fmt: skip
    for line in failure_lines(failures):
        say(line)
    if code:
        say(f"error: {message}")
        say(resume_words())
        raise typer.Exit(code)


def _searches(count: int) -> str:
    from waysout.report.words import counted

    return counted(count, "search", "searches")


# Progress and signals --------------------------------------------------------------------------


@dataclass
class PlanSignals(Signals):
    """Stops all searches at a signal, and prints how to resume."""

    def __post_init__(self) -> None:
        from waysout.bench.progress import StopAll

        self.stop = self.stop_all = StopAll()

    def hints(self) -> list[str]:
        """Say how to resume the plan."""
        return [resume_words()]


def resume_words() -> str:
    """Return how to resume an interrupted run."""
    return f"finished searches are stored; resume with: {command(*sys.argv[1:])}"


@contextmanager
def watched(json: bool) -> Iterator[tuple[Watch, PlanSignals]]:
    """Show the progress of searches on stderr, and stop them at a signal."""
    from waysout.bench.progress import PlanProgress, Watch
    from waysout.bench.results import Failure
    from waysout.report.words import duration

    with PlanSignals(json) as signals, progress_bar(json) as bars:
        bar = bars.add_task("starting", total=None)

        class Shown(Watch):
            def begins(self, queue: Queue) -> None:
                self.pace, self.failed, self.printed = PlanProgress(queue), 0, time.monotonic()
                bars.reset(bar, total=self.pace.total, description=_count(self.pace, 0))

            def replied(self) -> None:
                self.pace.reply()
                self.show()

            def searched(self, task: Task, outcome: Outcome) -> None:
                if isinstance(outcome, Failure):
                    self.pace.add(task)
                    self.failed += 1
                else:
                    self.pace.add(task, int(outcome.spent.get("calls", 0)))
                self.show()

            def show(self) -> None:
                pace, now = self.pace, time.monotonic()
                words = _count(pace, self.failed)
                bars.update(bar, completed=pace.done, description=words)
                ended = pace.searched == pace.searches
                is_time = now - self.printed >= LINE_SECONDS or ended
                if bars.disable and is_time:
                    self.printed, left = now, pace.seconds_left
                    say(f"{words}{f', {duration(left)} left' if left else ''}")

            def prepares(self, what: str, share: float = 0.0) -> None:
                bars.update(bar, description=what)
                if share >= 1.0:
                    say(what)

        yield Shown(), signals


def _count(pace: PlanProgress, failed: int) -> str:
    bad = f", {failed:,} failed" if failed else ""
    return f"{pace.searched:,} of {pace.searches:,} searches{bad}"


# The other commands ----------------------------------------------------------------------------

app.command(name="status")(look.status)
app.command(name="show")(look.show)
app.command(name="estimate")(estimate)
app.command(name="export")(look.export)
app.command(name="table")(pages.table)
app.command(name="plot")(pages.plot)
app.command(name="report")(pages.report)
app.command(name="hard")(hard)
