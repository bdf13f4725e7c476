"""``waysout certify``: is there a way out at all, and how near is the nearest? For tree models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waysout.cli.output import (
    JsonFlag,
    TrustCode,
    TrustPickle,
    TrustTypes,
    print_json,
    print_table,
    say,
)

if TYPE_CHECKING:
    from waysout.oracles.certify import Certificate


def certify(
    data: Annotated[str, typer.Option(help="The table: a file, or a data set's name.")],
    model: Annotated[str, typer.Option(help="The model; a data set has its own.")] = "",
    card: Annotated[str, typer.Option(help="The table's card; a data set has its own.")] = "",
    row: Annotated[
        int | None, typer.Option(help="Whose case: a row of the table, counted from 0.", min=0)
    ] = None,
    where: Annotated[str, typer.Option(help="Or a condition that one row meets.")] = "",
    json_row: Annotated[
        Path | None, typer.Option(help="Or a JSON file of {column: value} (- reads stdin).")
    ] = None,
    rules: Annotated[str, typer.Option(help="A rule set of the card.")] = "",
    positive_class: Annotated[str, typer.Option(help="The model's class that means yes.")] = "",
    inputs: Annotated[str, typer.Option(help="How the model gets rows.")] = "auto",
    at_least: Annotated[
        float | None, typer.Option(help="Ask for this probability.", min=0, max=1)
    ] = None,
    rise: Annotated[
        float | None, typer.Option(help="Or for one that much above the present.", min=0, max=1)
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long to look for a proof.", min=0.1)] = 30.0,
    trust_pickle: TrustPickle = False,
    trust_types: TrustTypes = None,
    trust_code: TrustCode = False,
    json: JsonFlag = False,
) -> None:
    """Prove that one person has no way out, or find the cheapest there is (needs treecf).

    For models made of trees, which it opens: `waysout find` never does. Where the proof takes
    longer than it may, it tells the best way out it found.

    Try: waysout certify --data loan --row 401
    """
    from waysout.cli.sources import check_chosen, find_row, open_source
    from waysout.oracles.certify import certify as prove
    from waysout.run.source import Source, Trust

    check_chosen(row, where, json_row)
    source = Source(data, card, model, rules, positive_class, inputs, at_least, rise)
    trust = Trust(trust_pickle, tuple(trust_types or ()), trust_code)
    opened = open_source(source, trust)
    query = opened.problem.row(find_row(opened.table, row, where, json_row))
    found = prove(opened.problem, query, seconds=seconds)
    if json:
        print_json(found.as_dict())
        return
    _show(found)


def _show(found: Certificate) -> None:
    from waysout.report.text import option_rows

    typer.echo(_words(found))
    if found.option is not None:
        print_table("The cheapest way out known", *option_rows([found.option], reasons=False))
    for note in found.notes:
        say(f"note: {note}")


def _words(found: Certificate) -> str:
    """Say what is known, in a sentence."""
    took = f"{found.seconds:.1f} s"
    if found.kind == "infeasible":
        return f"Proved in {took}: no change that the rules allow gets a yes."
    if found.kind == "optimal":
        return f"Proved in {took}: no way out costs less than {found.cost:.4f}."
    least = f"; none costs less than {found.bound:.4f}" if found.bound else ""
    if found.kind == "best found":
        return f"There is a way out, at a cost of {found.cost:.4f}. {took} gave no proof{least}."
    return f"Nothing was proved in {took}: no way out was found, and there may be one{least}."
