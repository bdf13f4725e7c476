"""``waysout certify``: is there a way out at all, and how near is the nearest? For tree models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from waysout.cli import arguments as arg
from waysout.cli.held import ready_for_models
from waysout.cli.output import JsonFlag, echo, print_json, print_table, say

if TYPE_CHECKING:
    from waysout.oracles.certify import Certificate


def certify(
    data: arg.DataName,
    model: arg.ModelFile = "",
    card: arg.CardFile = "",
    row: arg.RowNumber = None,
    where: arg.Where = "",
    json_row: arg.JsonRow = None,
    rules: arg.RuleSetName = "",
    positive_class: arg.PositiveClass = "",
    inputs: arg.Inputs = "auto",
    at_least: arg.AtLeast = None,
    rise: arg.Rise = None,
    seconds: Annotated[float, typer.Option(help="Maximum seconds for a proof.", min=0.1)] = 30.0,
    trust_pickle: arg.TrustPickle = False,
    trust_types: arg.TrustTypes = None,
    trust_code: arg.TrustCode = False,
    json: JsonFlag = False,
) -> None:
    """Prove that one person has no way out, or find the cheapest.

    Needs treecf. For models made of trees, which it opens: `waysout find` never does. If there is
    no proof in time, it shows the best way out it found.

    Try: waysout certify --data loan --row 401
    """
    from waysout.cli.sources import check_chosen, check_source, find_row, open_source
    from waysout.oracles.certify import certify as prove
    from waysout.report.text import option_rows
    from waysout.run.plan import goal_told, wording
    from waysout.run.source import Source, Trust

    check_chosen(row, where, json_row)
    source = Source(data, card, model, rules, positive_class, inputs, at_least, rise)
    check_source(source)
    trust = Trust(trust_pickle, tuple(trust_types or ()), trust_code, named=True)
    ready_for_models()
    opened = open_source(source, trust)
    query = opened.problem.row(find_row(opened.table, row, where, json_row))
    found = prove(opened.problem, query, seconds=seconds)
    if json:
        print_json(found.as_dict())
        return
    echo(sentence(found))
    if found.option is not None:
        told = {"wording": wording(opened.problem.schema), "goal": goal_told(opened.problem.goal)}
        table = option_rows([found.option], told, reasons=False)
        print_table("The cheapest way out known", *table)
    for note in found.notes:
        say(f"note: {note}")


def sentence(found: Certificate) -> str:
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
