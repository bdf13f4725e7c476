"""``waysout demo``: the whole idea on a machine with nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from waysout.cli.output import JsonFlag, print_json, print_table, progress_bar, say

if TYPE_CHECKING:
    from waysout.datasets.load import Dataset
    from waysout.domain.problem import Problem
    from waysout.domain.schema import Row

VALUES_TRIED = 8
# One of the 30 with several ways out, so that a first look shows what the product is about.
USUAL_APPLICANT = 2


def demo(
    applicant: Annotated[
        int, typer.Option(min=0, help="Which of the 30 rejected applicants, from 0.")
    ] = USUAL_APPLICANT,
    json: JsonFlag = False,
) -> None:
    """Train a model on a synthetic loan table and show a rejected applicant what may change."""
    from waysout.datasets.queries import queries
    from waysout.errors import InputError

    problem, dataset = _problem(quiet=json)
    rows = queries("synthetic")
    if applicant >= len(rows):
        raise InputError(f"there are {len(rows)} applicants, 0 to {len(rows) - 1}; not {applicant}")
    query = dataset.rows[rows[applicant]]
    report = _report(problem, query)
    if json:
        print_json({"table": dataset.card.title, "row": rows[applicant], **report})
        return
    _show(problem, dataset, rows[applicant], report)


def _problem(quiet: bool) -> tuple[Problem, Dataset]:
    from waysout.datasets.load import load_dataset
    from waysout.datasets.manifest import load_oracle
    from waysout.datasets.split import training_rows
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


def _report(problem: Problem, query: Row) -> dict[str, Any]:
    levers = problem.rules.levers(query)
    features = [
        {"name": f.name, "now": f.format(v), "unit": f.unit, "lever": levers[f.name].describe()}
        for f, v in zip(problem.schema, query, strict=True)
    ]
    return {"features": features, **_single(problem, query)}


def _single(problem: Problem, query: Row) -> dict[str, Any]:
    """Ask of the query and of single changes; keep each feature's smallest yes, else its best."""
    edits = [
        (name, problem.rules.apply(query, {name: value}))
        for name, lever in problem.rules.levers(query).items()
        for value in lever.sample(VALUES_TRIED)
    ]
    edits = [(name, row) for name, row in edits if not problem.violations(query, row)]
    answers = problem.oracle.ask([query, *(row for _, row in edits)])
    met = problem.goal.met(answers)
    best: dict[str, dict[str, Any]] = {}
    judged = zip(edits, answers.probability[1:], met[1:], strict=True)
    for (name, row), probability, approved in judged:
        option = problem.option(query, row, probability)
        found = {**option.as_dict(), "approved": bool(approved)}
        if name not in best or _worth(found) > _worth(best[name]):
            best[name] = found
    options = sorted(best.values(), key=_worth, reverse=True)
    return {"probability": answers.probability[0], "approved": met[0], "options": options}


def _worth(option: dict[str, Any]) -> tuple[bool, float]:
    return option["approved"], option["proximity" if option["approved"] else "probability"]


def _show(problem: Problem, dataset: Dataset, row: int, report: dict[str, Any]) -> None:
    decision = problem.yes if report["approved"] else problem.no
    typer.echo(dataset.card.title)
    typer.echo(
        f"Applicant in row {row}: {decision}. "
        f"The model gives a yes a chance of {report['probability']:.0%}."
    )
    now = [(f["name"], f"{f['now']} {f['unit']}", f["lever"]) for f in report["features"]]
    print_table("What may change", ["feature", "now", "may become"], now)
    steps = [
        (_changes(problem, option), f"{option['probability']:.0%}",
         problem.yes if option["approved"] else problem.no)
        for option in report["options"]
    ]  # fmt: skip
    print_table("What one change alone would do", ["change", "chance", "decision"], steps)
    say("Combining changes is the search's work; it comes with the next release.")


def _changes(problem: Problem, option: dict[str, Any]) -> str:
    words = (
        f"{name}: {problem.schema[name].format(before)} → {problem.schema[name].format(after)}"
        for name, (before, after) in option["changes"].items()
    )
    return ", ".join(words)
