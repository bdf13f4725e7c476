"""``waysout demo``: the main job on a machine with nothing: a table, a model, a person."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waysout.cli import arguments as arg
from waysout.cli.output import JsonFlag, echo, progress_bar, say, tell
from waysout.llm.connect import DEFAULT as SMALL

if TYPE_CHECKING:
    from waysout.datasets.load import Dataset
    from waysout.domain.problem import Problem
    from waysout.run.options import Options

# One of the 30 with several ways out, so that a first look shows what the product is about.
USUAL_APPLICANT = 2
CALLS = 6
ROWS = 150
SECONDS = 150.0
PAGE = Path("waysout-demo.html")


def demo(
    applicant: Annotated[int, typer.Option(
        min=0, help="Which of the 30 rejected applicants, from 0.")] = USUAL_APPLICANT,
    llm: Annotated[str, typer.Option(
        help="An LLM that names values, as for `waysout find`; llamacpp:smollm2-135m is "
        "downloaded (98 MB). Without one, none is asked.")] = "",
    calls: Annotated[int | None, typer.Option(
        help=f"Maximum number of LLM calls (needs --llm); default: {CALLS}.", min=0)] = None,
    seconds: Annotated[float, typer.Option(help="Maximum time in seconds.", min=1)] = SECONDS,
    html: Annotated[Path, typer.Option(help="Where to write the page.")] = PAGE,
    record: arg.Record = None,
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Show a rejected applicant many ways to a yes.

    Makes a synthetic loan table, trains a model on it, and searches. Nothing else is needed, and
    nothing is sent anywhere.
    """
    from waysout.cli import search
    from waysout.cli.places import check_places
    from waysout.datasets.queries import queries
    from waysout.errors import InputError
    from waysout.report.html import standing
    from waysout.report.words import listed
    from waysout.run.find import prepare

    check_places({"--html": html, "--record": record}, {"--llm": llm.partition(":")[2]})
    rows = queries("synthetic")
    if applicant >= len(rows):
        raise InputError(f"there are {len(rows)} applicants, 0 to {len(rows) - 1}; not {applicant}")
    options: Options = {
        "llm": llm or None, "oracle_rows": ROWS, "seconds": seconds, "record": record
    }  # fmt: skip
    if llm or calls is not None:
        options["calls"] = CALLS if calls is None else calls
    prepared = prepare(options)
    with search.Signals(json) as signals:
        if search.check_llm(prepared).partition("?")[0] == SMALL:
            pull_small(quiet=json)
        problem, dataset = demo_problem(quiet=json)
        query, schema = dataset.rows[rows[applicant]], problem.schema
        prepared = replace(prepared, options={**prepared.options, "data": dataset})
        say(search.most_cost(prepared, problem, schema.as_dict(query)))
        ended = search.search(prepared, problem, query, signals)
    if not json:
        # After the search, which has asked for the chance and counted it.
        likely = standing(ended.result)
        known = f" The model gives a yes a chance of {likely}." if likely else ""
        tell(dataset.card.title)
        tell(f"Applicant in row {rows[applicant]}: {problem.no}.{known}")
        levers = problem.rules.levers(query).items()
        fixed = [f"{n} ({lever.blocked})" for n, lever in levers if lever.blocked]
        tell(f"What may change: {listed([n for n, lever in levers if lever.is_open])}.")
        tell(f"What may not: {listed(fixed)}.")
        echo()
    search.hand_over(ended, json=json, html=html)
    if not json:
        tell("The same in a browser, for any of the applicants: waysout serve")
        if not llm:
            tell("With values and reasons named by an LLM: waysout demo --llm openai:MODEL@URL")


def pull_small(quiet: bool) -> None:
    """Download the smallest LLM unless it is here; raise if what runs it is missing."""
    from waysout.errors import MissingExtra
    from waysout.llm import models

    try:
        import xllamacpp  # noqa: F401
    except ImportError as error:
        raise MissingExtra("xllamacpp", "llamacpp") from error
    with progress_bar(quiet) as progress:
        bar = progress.add_task("fetching a small LLM (98 MB, once)", total=None)
        models.pull(
            models.DEFAULT,
            progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )


def demo_problem(quiet: bool) -> tuple[Problem, Dataset]:
    """Return the demo's problem and table; its model is trained if there is none yet."""
    from waysout.datasets.load import load_dataset, training_rows
    from waysout.datasets.manifest import load_oracle, load_oracle_model
    from waysout.datasets.train import TRIALS, train_oracle
    from waysout.domain.problem import Problem
    from waysout.errors import IntegrityError, UnavailableError

    dataset = load_dataset("synthetic")
    try:
        load_oracle_model(dataset.name)
    except (UnavailableError, IntegrityError):
        with progress_bar(quiet) as progress:
            bar = progress.add_task("training a model on synthetic applications", total=TRIALS)
            train_oracle(
                dataset,
                trials=TRIALS,
                progress=lambda done, *_: progress.update(bar, completed=done),
            )
    oracle = load_oracle(dataset.card)
    return Problem.from_card(dataset.card, oracle, training=training_rows(dataset)), dataset
