"""``waysout find``: ways out for one row of a table, with a model of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waysout.cli.arguments import (
    DEFAULT_METHOD,
    MODEL,
    OUTPUT,
    AtLeast,
    Calls,
    CardFile,
    EditsPerCall,
    FreeForm,
    Inputs,
    LlmName,
    MethodName,
    ModelFile,
    Money,
    OracleRows,
    PaperPrompt,
    Polish,
    PositiveClass,
    Prices,
    Rise,
    RuleSetName,
    Seconds,
    Seed,
    Settings,
    Tokens,
)
from waysout.cli.output import (
    JsonFlag,
    TrustCode,
    TrustPickle,
    TrustTypes,
    print_json,
    print_table,
    say,
)
from waysout.llm.connect import DEFAULT as DEFAULT_LLM

if TYPE_CHECKING:
    from waysout.run.find import Options


def find(
    data: Annotated[
        str,
        typer.Option(
            help="The table: a file, or a data set's name. Also what distances are measured by.",
            rich_help_panel=MODEL,
        ),
    ],
    model: ModelFile = "",
    card: CardFile = "",
    row: Annotated[
        int | None,
        typer.Option(help="Whose case: a row of the table, counted from 0.", min=0,
                     rich_help_panel=MODEL),
    ] = None,
    where: Annotated[
        str,
        typer.Option(help="Or a condition that one row meets, such as 'loan_id == 7'.",
                     rich_help_panel=MODEL),
    ] = "",
    json_row: Annotated[
        Path | None,
        typer.Option(help="Or a JSON file of {column: value} (- reads stdin).",
                     rich_help_panel=MODEL),
    ] = None,
    rules: RuleSetName = "",
    positive_class: PositiveClass = "",
    inputs: Inputs = "auto",
    trust_pickle: TrustPickle = False,
    trust_types: TrustTypes = None,
    trust_code: TrustCode = False,
    at_least: AtLeast = None,
    rise: Rise = None,
    method: MethodName = DEFAULT_METHOD,
    setting: Settings = None,
    llm: LlmName = DEFAULT_LLM,
    calls: Calls = 30,
    k: EditsPerCall = 5,
    oracle_rows: OracleRows = None,
    polish: Polish = 0,
    seconds: Seconds = None,
    tokens: Tokens = None,
    money: Money = None,
    price: Prices = "",
    seed: Seed = 0,
    paper: PaperPrompt = False,
    free: FreeForm = False,
    show: Annotated[
        int, typer.Option(help="How many options to print.", min=1, rich_help_panel=OUTPUT)
    ] = 5,
    html: Annotated[
        Path | None, typer.Option(help="Write a page to this file.", rich_help_panel=OUTPUT)
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write the options to this file.", rich_help_panel=OUTPUT)
    ] = None,
    letter: Annotated[
        Path | None,
        typer.Option(help="Write a letter to the person to this file: a page to print where it "
                     "ends in .html, else plain text.", rich_help_panel=OUTPUT),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(help="Keep the run in this file; the default: `waysout runs list`.",
                     rich_help_panel=OUTPUT),
    ] = None,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Keep no run.", rich_help_panel=OUTPUT)
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(help="Also write the LLM's replies to this recording (see replay:FILE).",
                     rich_help_panel=OUTPUT),
    ] = None,
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Find ways out for one person: many different changes that turn the model's no into a yes.

    Every option was put to the model and breaks no rule of the card. The run is kept, so that
    nothing is paid for twice: `waysout runs resume last` goes on where it stopped.

    Try: waysout find --data synthetic --row 828 --llm simulated:1
    """
    from waysout.cli import search
    from waysout.cli.kept import check_unchanged
    from waysout.cli.places import check_places
    from waysout.cli.signals import Signals
    from waysout.cli.sources import check_chosen, find_row
    from waysout.errors import InputError
    from waysout.run.source import Source, Trust
    from waysout.store import new_run_path

    if no_run and run is not None:
        raise InputError("--run and --no-run contradict each other")
    check_chosen(row, where, json_row)
    read = {"--data": data, "--card": card, "--model": model, "--json-row": json_row,
            "--llm": llm.partition(":")[2], "--run": run}  # fmt: skip
    check_places({"--html": html, "--csv": csv, "--letter": letter, "--record": record}, read)
    options = search_options(
        method=method, setting=setting or [], llm=llm, calls=calls, k=k, oracle_rows=oracle_rows,
        polish=polish, seconds=seconds, tokens=tokens, money=money, price=price, seed=seed,
        paper=paper, free=free,
    )  # fmt: skip
    asked = search.check_llm(options)
    place = None if no_run else run or new_run_path(method)
    if place is not None:
        options["run"] = place
    if record is not None:
        options["record"] = record
    source = Source(data, card, model, rules, positive_class, inputs, at_least, rise)
    trust = Trust(trust_pickle, tuple(trust_types or ()), trust_code)
    with Signals(json, place, asked) as signals:
        if run is not None and run.is_file():
            check_unchanged(run, source)
        ended = search.search_source(
            source, trust, options, lambda table: find_row(table, row, where, json_row), signals
        )
    search.hand_over(
        ended, json=json, most=show, html=html, csv=csv, letter=letter, run=place, llm=asked
    )


def search_options(**given: Any) -> Options:
    """Return the options of a search from those of a command line."""
    from waysout.errors import InputError, shown
    from waysout.prompts.propose import Style

    pairs = [text.partition("=") for text in given["setting"]]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise InputError(f"--set takes NAME=VALUE, not {shown(name)}")
    if given["money"] is not None and not given["price"]:
        raise InputError("a limit in money needs --price IN/OUT, per million tokens")
    style = Style("paper" if given["paper"] else "waysout", constrain=not given["free"])
    options: Options = {
        "method": given["method"],
        "settings": {name.strip(): value.strip() for name, _, value in pairs},
        "llm": given["llm"],
        "calls": given["calls"],
        "k": given["k"],
        "polish": given["polish"],
        "seconds": given["seconds"],
        "tokens": given["tokens"],
        "money": given["money"],
        "seed": given["seed"],
        "style": style,
    }
    if given["oracle_rows"] is not None:
        options["oracle_rows"] = given["oracle_rows"]
    if given["price"]:
        options["price"] = given["price"]
    return options


def methods(json: JsonFlag = False) -> None:
    """List the ways to search, and their settings (--set NAME=VALUE) with what they are now."""
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
    rows = [
        (name, "yes" if m["llm"] else "no",
         f"{m['what']}\n{', '.join(f'{k}={_short(v)}' for k, v in m['settings'].items())}")
        for name, m in found.items()
    ]  # fmt: skip
    print_table("Methods", ["name", "LLM", "what it is, and its settings"], rows)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
