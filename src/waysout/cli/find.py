"""``waysout find``: ways out for one row of a table, with a model of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from waysout.cli import arguments as arg
from waysout.cli.arguments import OUTPUT
from waysout.cli.output import JsonFlag, print_json, print_table, say

if TYPE_CHECKING:
    from waysout.prompts.render import Template
    from waysout.run.options import Options


def find(
    data: arg.DataName,
    model: arg.ModelFile = "",
    card: arg.CardFile = "",
    row: arg.RowNumber = None,
    where: arg.Where = "",
    json_row: arg.JsonRow = None,
    rules: arg.RuleSetName = "",
    positive_class: arg.PositiveClass = "",
    inputs: arg.Inputs = "auto",
    row_seconds: arg.RowSeconds = None,
    trust_pickle: arg.TrustPickle = False,
    trust_types: arg.TrustTypes = None,
    trust_code: arg.TrustCode = False,
    at_least: arg.SaferLevels = None,
    rise: arg.Rise = None,
    method: arg.MethodName = arg.DEFAULT_METHOD,
    setting: arg.Settings = None,
    llm: arg.LlmName = "",
    calls: arg.Calls = None,
    k: arg.EditsPerCall = 5,
    oracle_rows: arg.OracleRows = None,
    polish: arg.Polish = 0,
    seconds: arg.Seconds = None,
    tokens: arg.Tokens = None,
    money: arg.Money = None,
    price: arg.Prices = "",
    seed: arg.Seed = 0,
    paper: arg.PaperPrompt = False,
    free: arg.FreeForm = False,
    show: Annotated[int, typer.Option(
        help="How many ways to print.", min=1, rich_help_panel=OUTPUT)] = 5,
    html: Annotated[Path | None, typer.Option(
        help="Write a page to this file.", rich_help_panel=OUTPUT)] = None,
    csv: Annotated[Path | None, typer.Option(
        help="Write the ways to this file, as a table.", rich_help_panel=OUTPUT)] = None,
    all_options: arg.AllOptions = False,
    letter: Annotated[Path | None, typer.Option(
        help="Write a letter to the person to this file: a page to print where it ends in .html, "
        "else plain text.", rich_help_panel=OUTPUT)] = None,
    run: Annotated[Path | None, typer.Option(
        help="Store the run in this file; default: a new file, see `waysout runs list`.",
        rich_help_panel=OUTPUT)] = None,
    no_run: Annotated[bool, typer.Option(
        "--no-run", help="Store no run.", rich_help_panel=OUTPUT)] = False,
    record: arg.Record = None,
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Find ways out for one person: what turns the model's no into a yes.

    Every option was put to the model and breaks no rule of the card. The run is stored, so that
    nothing is paid for twice: `waysout runs resume last` resumes it.

    Try: waysout find --data synthetic --row 828

    Your own: waysout find --data loans.csv --card loans.toml --model model.txt --where "id == 7"
    """
    from waysout.cli import search
    from waysout.cli.kept import to_resume
    from waysout.cli.places import check_places, whole
    from waysout.cli.sources import check_chosen, check_source, find_row, goal_of
    from waysout.errors import InputError
    from waysout.run.find import prepare
    from waysout.run.source import Source, Trust
    from waysout.store import new_run_path

    if no_run and run is not None:
        raise InputError("--run and --no-run contradict each other")
    if all_options and csv is None:
        raise InputError("--all-options is about the table: name its file with --csv")
    check_chosen(row, where, json_row)
    read = {"--data": data, "--card": card, "--model": model, "--json-row": json_row,
            "--llm": llm.partition(":")[2], "--run": run}  # fmt: skip
    check_places({"--html": html, "--csv": csv, "--letter": letter, "--record": record}, read)
    # Before any code of a model is run, which may change the folder.
    folder, json_row = whole(Path()), whole(json_row)
    place = None if no_run else whole(run or new_run_path(method))
    options = search_options(
        method=method, setting=setting or [], llm=llm, calls=calls, k=k, oracle_rows=oracle_rows,
        polish=polish, seconds=seconds, tokens=tokens, money=money, price=price, seed=seed,
        paper=paper, free=free,
    )  # fmt: skip
    prepared = prepare({**options, "run": place, "record": whole(record)})
    asked = search.check_llm(prepared)
    goal = goal_of(at_least, rise)
    source = Source(
        data, card, model, rules, positive_class, inputs, **goal, row_seconds=row_seconds
    )
    check_source(source)
    trust = Trust(trust_pickle, tuple(trust_types or ()), trust_code, named=True)
    trusted = [] if place is None else to_resume(trust, place, source)
    with search.Signals(json, place, asked, trusted) as signals:
        if run is not None and run.is_file():
            from waysout.cli.kept import check_unchanged

            check_unchanged(run, source)
        ended = search.search_source(
            prepared, source, trust, lambda table: find_row(table, row, where, json_row), signals
        )
    search.hand_over(
        ended, json=json, most=show, html=html, csv=csv, all_options=all_options, letter=letter,
        folder=folder, run=place, llm=asked, trusted=trusted,
    )  # fmt: skip


def search_options(*, setting: list[str], price: str, **given: Any) -> Options:
    """Return the options of a search from those of a command line."""
    from waysout.errors import InputError, shown
    from waysout.prompts.propose import Style

    pairs = [text.partition("=") for text in setting]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise InputError(f"--set takes NAME=VALUE, not {shown(name)}")
    if given["money"] is not None and not price:
        raise InputError("a limit in money needs --price IN/OUT, per million tokens")
    template: Template = "paper" if given.pop("paper") else "waysout"
    style = Style(template, constrain=not given.pop("free"))
    settings = {name.strip(): value.strip() for name, _, value in pairs}
    for name in ("calls", "oracle_rows"):  # None would be no limit
        if given[name] is None:
            del given[name]
    given["llm"] = given["llm"] or None
    return cast("Options", {**given, "settings": settings, "price": price or None, "style": style})


def methods(json: JsonFlag = False) -> None:
    """List the search methods, and their settings (--set NAME=VALUE)."""
    from waysout.errors import UnavailableError
    from waysout.methods import about, all_methods, make_method

    found: dict[str, dict[str, Any]] = {}
    for name in all_methods():
        try:
            made = make_method(name)
        except UnavailableError as error:  # another package's, which must not hide the others
            say(f"note: {error}")
            continue
        found[name] = {"what": about(name), "llm": made.needs_llm, "settings": made.settings()}
    if json:
        print_json(found)
        return
    rows = []
    for name, m in found.items():
        settings = (f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}"
                    for k, v in m["settings"].items())  # fmt: skip
        what = f"{m['what']}\n{', '.join(settings)}"
        rows.append((name, "yes" if m["llm"] else "no", what))
    print_table("Methods", ["name", "LLM", "what it is, and its settings"], rows)
