"""``waysout propose``: what an LLM proposes for one row, before any search or model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waysout.cli import arguments as arg
from waysout.cli.output import JsonFlag, echo, print_json, print_table, printable, progress_bar, say
from waysout.cli.search import note_reasons
from waysout.cli.sources import find_table
from waysout.llm.connect import DEFAULT

if TYPE_CHECKING:
    from waysout.domain.budget import Spent
    from waysout.llm.base import Reply


def propose(
    table: Annotated[str, typer.Argument(help="A data set's name, or a table file (with --card).")],
    row: Annotated[int, typer.Option(help="Which row, counted from 0.", min=0)] = 0,
    card: arg.CardFile = "",
    rules: arg.RuleSetName = "",
    llm: arg.LlmName = DEFAULT,
    k: Annotated[int, typer.Option("-k", help="How many edits to ask for.", min=1, max=50)] = 5,
    temperature: Annotated[float, typer.Option(min=0.0, max=5.0)] = 0.7,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    paper: arg.PaperPrompt = False,
    free: arg.FreeForm = False,
    record: arg.Record = None,
    price: arg.Prices = "",
    show_prompt: Annotated[bool, typer.Option("--show-prompt", help="Print the prompt.")] = False,
    trust_code: arg.TrustCode = False,
    json: JsonFlag = False,
) -> None:
    """Ask an LLM once which changes it would propose for one row.

    Nothing is put to a model yet: this shows what the LLM says, which of it keeps the rules, and
    what it cost. Try `waysout propose synthetic --row 828 --llm simulated:1`.
    """
    from waysout.cli.places import check_places
    from waysout.domain.budget import Budget, Ledger
    from waysout.errors import InputError, RowError
    from waysout.llm.call import Caller, Price
    from waysout.llm.connect import connect
    from waysout.llm.replay import Recorder
    from waysout.prompts.propose import Proposer, Style
    from waysout.prompts.render import Topic
    from waysout.run.source import Source, Trust, card_of

    check_places({"--record": record}, {"the table": table, "--card": card})
    if not card and Path(table).is_file():
        raise InputError(f"the table {table} needs its card: --card CARD.toml")
    found = card_of(Source(table, card), Trust(code=trust_code))
    schema, cells = found.schema, find_table(table)
    if row >= len(cells):
        raise InputError(f"{table} has {len(cells)} rows, counted from 0; there is no row {row}")
    try:
        query = schema.parse(cells.records[row])
    except RowError as error:
        raise error.at(row) from None
    backend = connect(llm)
    style = Style("paper" if paper else "waysout", constrain=not free)
    proposer = Proposer(Topic.of_card(found, rules or None), backend.form, style)
    request = proposer.request(query, query, k=k, temperature=temperature, seed=seed)
    if request is None:
        raise InputError(f"row {row} of {table}: nothing may be changed under these rules")
    if show_prompt:
        say(request.messages[0].content + "\n")

    async def ask() -> tuple[Reply, Spent]:
        ledger = Ledger(Budget(llm_calls=1))
        async with backend if record is None else Recorder(backend, record) as asked:
            caller = Caller(asked, price=Price.parse(price) if price else None)
            return await caller.call(request, ledger), ledger.spent

    with progress_bar(quiet=json) as bars:
        bars.add_task(f"{backend.name}: thinking", total=None)
        reply, spent = asyncio.run(ask())
    proposal = proposer.read(reply, query, query, k=k)
    note_reasons(reply.model)
    document = {
        "llm": reply.model,
        "edits": [
            {"feature": e.feature, "from": schema[e.feature].raw(query[schema.index(e.feature)]),
             "to": schema[e.feature].raw(e.value), "reason": e.reason}
            for e in proposal.edits
        ],
        "asked": request.k,
        "different": len({(e.feature, e.value) for e in proposal.edits}),
        "rejected": proposal.counts(),
        "finish": reply.finish,
        "latency": round(reply.latency, 3),
        "spent": spent.as_dict(),
        "reply": reply.text,
    }  # fmt: skip
    print_json(document) if json else _print(document)


def _print(document: dict[str, Any]) -> None:
    rows = [(e["feature"], e["from"], e["to"], e["reason"]) for e in document["edits"]]
    if rows:
        print_table(f"Proposed by {document['llm']}", ["feature", "now", "to", "its reason"], rows)
    else:
        echo(printable(f"Nothing to use in what {document['llm']} said:\n{document['reply']}\n"))
    for cause, count in document["rejected"].items():
        echo(printable(f"rejected, {cause}: {count}"))
    spent = document["spent"]
    money = f", {spent['money']:.6f} in money" if spent["money"] else ""
    echo(
        f"{len(rows)} of {document['asked']} edits kept, {document['different']} of them "
        f"different; {spent['tokens_in']} tokens in ({spent['cached_tokens']} cached), "
        f"{spent['tokens_out']} out{money}, {document['latency']:.1f} s"
    )
