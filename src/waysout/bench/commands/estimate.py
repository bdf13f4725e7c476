"""``waysout bench estimate``: what plans will take, before they are run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from waysout.bench.commands.look import Folder, Only, Queries, load_plans, results_folder
from waysout.cli.output import JsonFlag, print_json, printable, terminal_width

if TYPE_CHECKING:
    from waysout.bench.estimate import Measured, PlanWork, Timing
    from waysout.llm.call import Price


def estimate(
    plan: Annotated[
        list[str], typer.Argument(help="A plan of `waysout bench plans`, `paper`, or a TOML file.")
    ],
    llm: Annotated[str, typer.Option(help="The LLM that they will ask.")] = "",
    measured: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLACE",
            help="Searches to take the tokens of a call from: a folder of results, or an export; "
            "may be repeated. Default: those in --results.",
        ),
    ] = None,
    speed: Annotated[
        str,
        typer.Option(help="Tokens a second that the LLM writes, all requests together: OUT, or "
                     "IN/OUT if reading takes time of its own. Default: the pace on file."),
    ] = "",
    price: Annotated[
        str, typer.Option(help="Token prices per million, IN/OUT or IN/OUT/CACHED.")
    ] = "",
    queries: Queries = None,
    only: Only = None,
    results: Folder = None,
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Say what plans will ask of an LLM: calls, tokens, hours and cost. Nothing is asked.

    The tokens of a call are measured, on searches that are on file: those of another LLM
    (--measured FILE), or of this one after a short run (waysout bench run PLAN --queries 1).

    Try: waysout bench estimate paper --measured
    benchmarks/results/bench-qwen2.5-coder-1.5b.jsonl.gz
    """
    from waysout.bench.cell import RESULTS_FILE, Cells
    from waysout.bench.estimate import (
        Measured,
        Speed,
        Timing,
        estimate_table,
        most_measured,
        work_of,
    )
    from waysout.bench.render import render
    from waysout.bench.status import llm_name
    from waysout.llm.call import Price

    wanted = load_plans(plan, queries, only)
    folder, name = results_folder(results), llm_name(llm) if llm else ""
    asked_price = Price.parse(price) if price else None
    asked_speed = Speed.parse(speed) if speed else None
    own = Cells.read([folder]) if (folder / RESULTS_FILE).exists() else Cells()
    source = Cells.read(measured) if measured else own
    by = name if name in source.llms else most_measured(wanted, source)
    of = Measured.of(source, by, wanted)
    parts = work_of(wanted, of, name or by, {cell.key for cell in own})
    timing = Timing.of(own, name)
    timing = replace(timing, speed=asked_speed) if asked_speed else timing
    if json:
        print_json(_told(parts, of, timing, asked_price))
        return
    made = estimate_table(parts, of, timing, asked_price)
    typer.echo(printable(render([made], "text", terminal_width())), nl=False)


def _told(
    parts: Sequence[PlanWork], of: Measured, timing: Timing, price: Price | None
) -> Mapping[str, object]:
    plans = [
        {
            "plan": part.plan, "arms": part.arms, "alone": part.alone, **vars(part.work),
            "seconds": timing.seconds(part), "cost": price and price.of(part.work.usage),
        }
        for part in parts
    ]  # fmt: skip
    return {"measured": {"llm": of.llm, "searches": of.searches}, "plans": plans}
