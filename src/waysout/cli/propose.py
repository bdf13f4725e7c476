"""``waysout propose``: what an LLM proposes for one row, before any search or model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waysout.cli.output import (
    JsonFlag,
    TrustCode,
    find_card,
    find_table,
    print_json,
    print_table,
    printable,
    progress_bar,
    say,
)
from waysout.llm.connect import DEFAULT

if TYPE_CHECKING:
    from waysout.domain.budget import Spent
    from waysout.domain.schema import Row
    from waysout.llm.base import Reply, Request
    from waysout.prompts.accept import Proposal
    from waysout.prompts.propose import Proposer


def propose(
    table: Annotated[str, typer.Argument(help="A data set's name, or a table file (with --card).")],
    row: Annotated[int, typer.Option(help="Which row, counted from 0.", min=0)] = 0,
    card: Annotated[str, typer.Option(help="The table's card; a data set has its own.")] = "",
    rules: Annotated[str, typer.Option(help="A rule set of the card; the default: its own.")] = "",
    llm: Annotated[
        str,
        typer.Option(
            help="Who is asked: llamacpp:NAME, llamacpp:FILE.gguf, openai:MODEL@URL, replay:FILE "
            "or simulated:SEED."
        ),
    ] = DEFAULT,
    k: Annotated[int, typer.Option("-k", help="How many edits to ask for.", min=1, max=50)] = 5,
    temperature: Annotated[float, typer.Option(min=0.0, max=5.0)] = 0.7,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    paper: Annotated[bool, typer.Option("--paper", help="Use the paper's prompt.")] = False,
    free: Annotated[
        bool, typer.Option("--free", help="Do not hold the model to the format.")
    ] = False,
    record: Annotated[
        Path | None, typer.Option(help="Write the call to this recording (see replay:FILE).")
    ] = None,
    price: Annotated[
        str, typer.Option(help="Token prices per million, IN/OUT or IN/OUT/CACHED.")
    ] = "",
    show_prompt: Annotated[bool, typer.Option("--show-prompt", help="Print the prompt.")] = False,
    trust_code: TrustCode = False,
    json: JsonFlag = False,
) -> None:
    """Ask an LLM once which single changes it would propose for one row.

    Nothing is put to a model yet: this shows what the LLM says, which of it keeps the rules, and
    what it cost. Try `waysout propose synthetic --row 828 --llm simulated:1`.
    """
    from waysout.cli.places import check_places
    from waysout.errors import InputError
    from waysout.llm.connect import connect
    from waysout.prompts.propose import Proposer, Style
    from waysout.prompts.render import Topic

    check_places({"--record": record}, {"the table": table, "--card": card})
    found = find_card(card or _dataset(table), trust_code=trust_code)
    query = _row(found.schema.parse, table, row)
    backend = connect(llm)
    style = Style("paper" if paper else "waysout", constrain=not free)
    proposer = Proposer(Topic.of_card(found, rules or None), backend.form, style)
    request = proposer.request(query, query, k=k, temperature=temperature, seed=seed)
    if request is None:
        raise InputError(f"row {row} of {table}: nothing may be changed under these rules")
    if show_prompt:
        say(request.messages[0].content + "\n")
    with progress_bar(quiet=json) as bars:
        bars.add_task(f"{backend.name}: thinking", total=None)
        reply, spent = _call(backend, request, record, price)
    proposal = proposer.read(reply, query, query, k=k)
    document = _document(proposer, query, request, reply, proposal, spent)
    print_json(document) if json else _print(document)


def _dataset(table: str) -> str:
    """Return the name of a data set, which has a card of its own; any other table needs one."""
    from waysout.datasets import registry
    from waysout.errors import InputError, unknown

    if table in registry.DATASETS:
        return table
    if Path(table).exists():
        raise InputError(f"the table {table} needs its card: --card CARD.toml")
    raise InputError(f"{unknown('data set', table, registry.DATASETS)}, or a table file")


def _row(parse: Callable[[Mapping[str, Any]], Row], table: str, row: int) -> Row:
    from waysout.errors import InputError, RowError

    cells = find_table(table)
    if row >= len(cells):
        raise InputError(f"{table} has {len(cells)} rows, counted from 0; there is no row {row}")
    try:
        return parse(cells.records[row])
    except RowError as error:
        raise error.at(row) from None


def _call(backend: Any, request: Request, record: Path | None, price: str) -> tuple[Reply, Spent]:
    import asyncio

    from waysout.domain.budget import Budget, Ledger
    from waysout.llm.call import Caller, Price
    from waysout.llm.replay import Recorder

    async def ask() -> tuple[Reply, Spent]:
        asked = backend if record is None else Recorder(backend, record)
        ledger = Ledger(Budget(llm_calls=1))
        async with asked:
            caller = Caller(asked, price=Price.parse(price) if price else None)
            return await caller.call(request, ledger), ledger.spent

    return asyncio.run(ask())


def _document(
    proposer: Proposer, query: Row, request: Request, reply: Reply, proposal: Proposal, spent: Spent
) -> dict[str, Any]:
    schema = proposer.topic.rules.schema
    return {
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


def _print(document: dict[str, Any]) -> None:
    rows = [(e["feature"], e["from"], e["to"], e["reason"]) for e in document["edits"]]
    if rows:
        print_table(f"Proposed by {document['llm']}", ["feature", "now", "to", "its reason"], rows)
    else:
        typer.echo(
            printable(f"Nothing to use in what {document['llm']} said:\n{document['reply']}\n")
        )
    for cause, count in document["rejected"].items():
        typer.echo(printable(f"rejected, {cause}: {count}"))
    spent = document["spent"]
    money = f", {spent['money']:.6f} in money" if spent["money"] else ""
    typer.echo(
        f"{len(rows)} of {document['asked']} edits kept, {document['different']} of them "
        f"different; {spent['tokens_in']} tokens in ({spent['cached_tokens']} cached), "
        f"{spent['tokens_out']} out{money}, {document['latency']:.1f} s"
    )
