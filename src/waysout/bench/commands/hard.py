"""``waysout bench hard``: which hard cases methods solve."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from waysout.cli.output import JsonFlag, print_json, print_table, say, tell


def hard(
    cases: Annotated[
        list[str] | None, typer.Argument(help="Only these cases or tables. Default: all cases.")
    ] = None,
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas; NAME+finish sets rows aside to "
                          "finish its options. Default: ours, and its peers both ways."),
    ] = "",
    rows: Annotated[int, typer.Option(help="Rows for each search.", min=1)] = 150,
    seeds: Annotated[
        int | None, typer.Option(help="Instances of each case, or queries of each table. Default: "
                                 "8 and 20.", min=1),
    ] = None,
    with_data: Annotated[
        bool, typer.Option("--with-data/--without-data",
                           help="Whether methods are given rows whose outcome is known."),
    ] = True,
    tables: Annotated[
        bool, typer.Option("--tables", help="Two tables of scikit-learn instead of the cases.")
    ] = False,
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Count the hard cases that methods solve, without an LLM. Stores nothing.

    Solved: one of the rows found is a yes when the model is asked again, needs each of its changes
    and holds when its numbers go farther.
    """
    from waysout.run.machine import one_thread_each

    # Around the imports too, since numpy and others count cores as they load: on matrices this
    # small their threads wait for each other.
    with one_thread_each():
        from waysout.bench import hard as lab
        from waysout.bench.hard_cases import CASES
        from waysout.bench.hard_tables import TABLES

        wanted = cases or list(TABLES if tables else CASES)
        lab.check_names(wanted)
        arms = [lab.HardArm.parse(name.strip()) for name in methods.split(",") if name.strip()]
        ready, skipped = lab.usable(arms or lab.default_arms(), with_data=with_data)
        for name, reason in skipped.items():
            say(f"{name} is left out: {reason}")
        found = []
        for case in wanted:
            found += lab.run_case(
                case, ready, rows=rows, seeds=seeds, with_data=with_data, tell=say
            )
    if json:
        print_json({"rows": rows, "with_data": with_data, "skipped": skipped,
                    "figures": [asdict(one) for one in found]})  # fmt: skip
        return
    header = ["method", *wanted]
    sizes = " or ".join(str(size) for size in dict.fromkeys(one.searches for one in found))
    print_table(f"Solved of {sizes}, and cost ÷ least (median), with {rows} rows", header,
                lab.grid(found, lab.solved_cell))  # fmt: skip
    print_table("Irreducible and holding lever sets, and ways returned (means)", header,
                lab.grid(found, lab.sets_cell))  # fmt: skip
    tell("The least is worked out by hand; for a table it is the cheapest that any method found.")
    for one in found:
        for reason in dict.fromkeys(one.failed):
            say(f"{one.case}, {one.arm}: {one.failed.count(reason)} failed: {reason}")
