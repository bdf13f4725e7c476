"""``waysout bench``: experiments of many searches, resumable at any point, and their tables."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waysout.bench.commands import look as bench_look
from waysout.bench.commands import report as bench_report
from waysout.bench.commands import table as bench_table
from waysout.bench.commands.look import (
    Folder,
    LlmNames,
    Only,
    Queries,
    failures_told,
    load_plans,
    results_folder,
)
from waysout.bench.commands.watch import PlanSignals, go_on, watched
from waysout.cli.output import JsonFlag, print_json, print_table, printable, say, tell

if TYPE_CHECKING:
    from waysout.bench.plan import ExperimentPlan
    from waysout.bench.progress import PlanSummary
    from waysout.bench.tasks import Backlog, Queue, Task

app = typer.Typer(
    help="Experiments: many searches in a plan, resumable at any point, and the tables made of "
    "them.\n\nStart with: waysout bench plans",
    no_args_is_help=True,
)
FAILED = 1


@app.command()
def plans(
    name: Annotated[
        str | None, typer.Argument(help="Print this plan as it is written, to be copied.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """List the plans that come with Waysout: one for each table, to be run by name.

    One of your own: waysout bench plans llm-budget > mine.toml
    """
    from waysout.bench.plan import load_plan, plan_names

    if name is not None:
        _show_plan(name, json=json)
        return
    found = [_listed(load_plan(name)) for name in plan_names()]
    if json:
        print_json(found)
        return
    rows = [(p["name"], p["title"], ", ".join(p["datasets"]), f"{p['searches']:,}",
             f"{p['llm_calls']:,}") for p in found]  # fmt: skip
    print_table("Plans", ["plan", "what it compares", "data sets", "searches", "LLM calls"], rows)
    tell("Searches and LLM calls (at most) are for one LLM. Run one: waysout bench run PLAN; "
         "see what is in it: waysout bench plans PLAN")  # fmt: skip


def _show_plan(name: str, *, json: bool) -> None:
    """Print a plan's own text, and what it comes to where that is not in the way."""
    from waysout.bench.plan import load_plan, plan_text

    text, listed = plan_text(name), _listed(load_plan(name))
    if json:
        print_json({**listed, "toml": text})
        return
    typer.echo(printable(text), nl=False)
    say(f"{listed['name']}: {len(listed['arms'])} arms on {', '.join(listed['datasets'])}: "
        f"{listed['searches']:,} searches and at most {listed['llm_calls']:,} LLM calls, with one "
        f"LLM; arms: {'; '.join(listed['arms'])}")  # fmt: skip


def _listed(plan: ExperimentPlan) -> dict[str, Any]:
    asking = [arm for arm in plan.arms if arm.asks_llm]
    return {
        "name": plan.name,
        "title": plan.title,
        "datasets": plan.datasets,
        "arms": list(dict.fromkeys(arm.name for arm in plan.arms)),
        "llms": plan.llms,
        "searches": sum(arm.queries for arm in plan.arms),
        "llm_calls": sum(arm.queries * arm.calls for arm in asking),
        "hash": plan.hash,
    }


@app.command()
def run(
    plan: Annotated[
        list[str], typer.Argument(help="A plan of `waysout bench plans`, or a TOML file.")
    ],
    llm: LlmNames = None,
    queries: Queries = None,
    only: Only = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Processes for searches that wait for no LLM; the default: your cores.",
                     min=1),
    ] = None,
    in_flight: Annotated[
        int | None,
        typer.Option(help="LLM requests under way at once; the default: what the LLM takes.",
                     min=1),
    ] = None,
    results: Folder = None,
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Run what there is still to do of some plans.

    Every finished search and every reply of an LLM is kept as it comes. Stop it when you like, and
    run the same command again: nothing on file is done or asked twice.

    Try: waysout bench run reward-weights --queries 3 --only loan
    """
    from waysout.bench.results import Results
    from waysout.bench.runner import run_plans
    from waysout.bench.tasks import backlog_of

    wanted = load_plans(plan, queries, only, llm)
    with Results.open(results_folder(results)) as kept:
        backlog = backlog_of(wanted, kept.done(), in_flight=in_flight)
        _say_work(wanted, backlog)
        with watched(json) as (watch, signals), redirect_stdout(sys.stderr):
            ended = run_plans(
                wanted, backlog, kept, jobs=jobs, progress=watch, stop=signals.stop_all
            )  # fmt: skip
    look = ["waysout", "bench", "status", *plan, *(["--results", str(results)] if results else [])]
    _hand_over(wanted, ended, kept.path.parent, signals, shlex.join(look), json=json)


def _say_work(wanted: Sequence[ExperimentPlan], backlog: Backlog) -> None:
    """Say what there is to do, and what it may cost, before anything is paid."""
    from waysout.report.words import counted

    names = ", ".join(plan.name for plan in wanted)
    todo = counted(backlog.searches, "search", "searches")
    say(f"{names}: {todo} to do, {backlog.on_file:,} on file")
    for queue in backlog.queues:
        for llm in dict.fromkeys(task.llm for task in queue.tasks):
            say(f"  {_words([task for task in queue.tasks if task.llm == llm], llm, queue)}")


def _words(tasks: Sequence[Task], llm: str, queue: Queue) -> str:
    from waysout.report.words import counted

    searches = counted(sum(len(task.queries) for task in tasks), "search", "searches")
    one_by_one = ", one at a time" if queue.alone else ""
    if not llm:
        return f"{searches} without an LLM{one_by_one}"
    if queue.llm is None:
        return f"{searches} with {llm}, a simulated LLM{one_by_one}"
    return f"{searches} with {llm}: at most {counted(queue.most_calls, 'LLM call')}{one_by_one}"


# The end of a run ------------------------------------------------------------------------------


def _hand_over(
    wanted: Sequence[ExperimentPlan],
    ended: PlanSummary,
    folder: Path,
    signals: PlanSignals,
    look: str,
    *,
    json: bool,
) -> None:
    """Say what came of it, and leave with a code that tells."""
    code, message = _code(ended, signals)
    arms = {arm.id: f"{arm.data}/{arm.name}" for plan in wanted for arm in plan.arms}
    if json:
        error = {"error": {"type": _kind(ended, signals), "message": message, "code": code}}
        print_json({**_document(wanted, ended, folder, arms), **(error if code else {})})
    else:
        _tell(ended, folder, look)
    failures = ((f"{arms[f.arm]}{f' with {f.llm}' if f.llm else ''}", f.reason, 1)
                for f in ended.failures)  # fmt: skip
    for line in failures_told(failures):
        say(line)
    if code:
        say(f"error: {message}")
        say(go_on())
        raise typer.Exit(code)


def _code(ended: PlanSummary, signals: PlanSignals) -> tuple[int, str]:
    if signals.caught:
        return 128 + signals.caught, ended.stopped
    if ended.error is not None:
        return ended.error.exit_code, str(ended.error)
    failed = len(ended.failures)
    return (FAILED, f"{failed:,} of {ended.to_do:,} searches failed") if failed else (0, "")


def _kind(ended: PlanSummary, signals: PlanSignals) -> str:
    if signals.caught:
        return "Interrupted"
    return type(ended.error).__name__ if ended.error else "SearchesFailed"


def _document(
    wanted: Sequence[ExperimentPlan], ended: PlanSummary, folder: Path, arms: dict[str, str]
) -> dict[str, Any]:
    return {
        "plans": [plan.name for plan in wanted],
        "results": folder,
        "on_file": ended.on_file,
        "to_do": ended.to_do,
        "done": ended.done,
        "left": ended.left,
        "calls_paid": ended.paid,
        "calls_from_file": ended.from_file,
        "seconds": round(ended.seconds, 3),
        "failures": [{**asdict(f), "name": arms[f.arm]} for f in ended.failures],
    }


def _tell(ended: PlanSummary, folder: Path, look: str) -> None:
    from waysout.report.words import counted

    done = counted(ended.done, "search", "searches")
    paid = f", {counted(ended.paid, 'LLM call')} paid" if ended.paid else ""
    reused = f", {ended.from_file:,} answered from file" if ended.from_file else ""
    tell(f"{done} done in {ended.seconds:.0f} s{paid}{reused}; {ended.on_file:,} were on file")
    # A command is not wrapped: it is there to be copied.
    typer.echo(printable(f"results: {folder}\nsee: {look}"))


# The other commands ----------------------------------------------------------------------------

app.command(name="status")(bench_look.status)
app.command(name="show")(bench_look.show)
app.command(name="export")(bench_look.export)
app.command(name="table")(bench_table.table)
app.command(name="plot")(bench_report.plot)
app.command(name="report")(bench_report.report)
