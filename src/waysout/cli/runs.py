"""``waysout runs``: the searches that were kept; go on with one, show, export or repair it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from waysout.cli.output import JsonFlag, TrustCode, print_json, print_table, say

if TYPE_CHECKING:
    from waysout.report.result import Result
    from waysout.run.find import Options
    from waysout.store import RepairReport, Store

app = typer.Typer(
    help="The searches that were kept: list, show, resume, export, repair.", no_args_is_help=True
)
RunName = Annotated[str, typer.Argument(help="A run: its name, its file, or last.")]


@app.command("list")
def list_(json: JsonFlag = False) -> None:
    """List the runs that were kept, the newest first."""
    from waysout.store import list_runs, runs_dir

    found = [_listed(path) for path in list_runs(runs_dir())]
    if json:
        print_json(found)
        return
    if not found:
        typer.echo(f"there are no runs in {runs_dir()} yet; waysout find makes them")
        return
    rows = [(run["run"], _status(run), _llm_name(run), run.get("options", ""),
             run.get("llm_calls", "")) for run in found]  # fmt: skip
    print_table(f"Runs in {runs_dir()}", ["run", "status", "LLM", "ways out", "calls"], rows)
    for run in found:
        if "problem" in run:
            say(f"note: {run['problem']}")


def _listed(path: Path) -> dict[str, Any]:
    from waysout.errors import WaysoutError
    from waysout.store import Store

    try:
        with Store.read(path) as store:
            return _summary(store)
    except WaysoutError as error:
        return {"run": path.stem, "path": path, "status": "unreadable", "problem": str(error)}


def _summary(store: Store) -> dict[str, Any]:
    llm = store.manifest.get("llm")
    return {"run": store.path.stem, **asdict(store.summary()), "llm": llm}


def _status(run: Mapping[str, Any]) -> str:
    """Say where a run stands, with how many of its queries are done if there are several."""
    many = run.get("queries", 1) > 1
    return f"{run['status']} ({run['finished']}/{run['queries']})" if many else run["status"]


def _llm_name(run: Mapping[str, Any]) -> str:
    """Return an LLM's name short enough for a table: without its server and its folder."""
    return str(run.get("llm") or "").partition("@")[0].rpartition("/")[2]


@app.command()
def show(run: RunName = "last", json: JsonFlag = False) -> None:
    """Show what a run is, and what it has found so far (also while it is under way)."""
    from waysout.cli.search import run_name
    from waysout.cli.search import show as show_result
    from waysout.report.result import Result
    from waysout.store import Store, find_run

    with Store.read(find_run(run)) as store:
        summary, results = _summary(store), [Result.of(r) for r in store.results()]
        if json:
            document = {"run": summary, "manifest": store.manifest}
            print_json({**document, "results": [r.as_dict() for r in results]})
            return
        print_table(f"Run {summary['run']}", ["of the run", "value"], _facts(store, summary))
        for result in results:
            if summary["queries"] > 1:
                typer.echo(f"Query {result.index}")
            show_result(result)
        _tell_open(store, {result.index for result in results})
        if summary["status"] == "interrupted" and store.manifest.get("about"):
            say(f"go on with: waysout runs resume {run_name(store.path)}")


def _facts(store: Store, summary: Mapping[str, Any]) -> list[tuple[str, object]]:
    about = store.manifest.get("about") or {}
    made_of = [(name, about[name]) for name in ("model", "data", "card") if about.get(name)]
    names = ("method", "llm", "options", "llm_calls", "oracle_rows")
    return [
        ("file", summary["path"]),
        ("status", _status(summary)),
        ("begun", _moment(summary["created"])),
        ("last written", _moment(summary["updated"])),
        *made_of,
        *((name.replace("_", " "), summary[name]) for name in names if summary[name] is not None),
    ]


def _moment(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def _tell_open(store: Store, told: set[int]) -> None:
    for index, _ in store.queries():
        if index not in told:
            count = sum(1 for _ in store.options(index))
            ways = f"{count} way{'' if count == 1 else 's'} out"
            typer.echo(f"Query {index}: under way or cut off, {ways} so far")


@app.command()
def resume(
    run: RunName = "last",
    llm: Annotated[
        str, typer.Option(help="The same LLM under another address; the default: the run's own.")
    ] = "",
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Unpickle the model: this runs its code.")
    ] = False,
    trust_types: Annotated[
        list[str] | None, typer.Option(help="A type a skops file may hold; may be repeated.")
    ] = None,
    trust_code: TrustCode = False,
    json: JsonFlag = False,
) -> None:
    """Go on with a run of `waysout find` that was cut off; nothing on file is asked again."""
    from waysout.cli import search
    from waysout.cli.sources import Source, Trust, check_unchanged, open_source
    from waysout.store import Store, find_run

    path = find_run(run)
    with Store.read(path) as store:
        about, on_file = _about(store), store.summary()
        plan = store.manifest["plan"]
    if on_file.status == "finished":
        say("note: this run is finished; here is its result")
    source = Source(**{name: about[name] for name in Source.__annotations__})
    check_unchanged(path, source)
    opened = open_source(source, Trust(trust_pickle, tuple(trust_types or ()), trust_code))
    options = _options(plan, llm or about["llm"], about["price"])
    options["run"] = path
    if opened.known is not None:
        options["data"] = opened.known
    cost = search.most_cost(opened.problem, about["row"], options)
    say(f"{cost}; {on_file.llm_calls} calls and {on_file.oracle_rows} rows are on file")
    result, code = search.search(opened.problem, about["row"], options, quiet=json)
    search.hand_over(result, code, json=json, run=path)


def _about(store: Store) -> dict[str, Any]:
    """Return what a run was made from."""
    from waysout.errors import InputError

    about: dict[str, Any] = store.manifest.get("about") or {}
    if "row" not in about:
        raise InputError(
            f"{store.path} was not made by `waysout find`: resume it where it was made, with the "
            "same problem and run=…"
        )
    return about


def _options(plan: Mapping[str, Any], llm: str, price: str) -> Options:
    from waysout.prompts.propose import Style

    budget = plan["budget"]
    options: Options = {
        "method": plan["method"],
        "settings": plan["method_settings"],
        "llm": llm,
        "calls": budget["llm_calls"],
        "k": plan["k"],
        "oracle_rows": budget["oracle_rows"],
        "seconds": budget["seconds"],
        "tokens": budget["tokens"],
        "money": budget["money"],
        "seed": plan["seed"],
    }
    if plan["style"]:
        options["style"] = Style(**plan["style"])
    if price:
        options["price"] = price
    return options


@app.command()
def export(
    run: RunName = "last",
    format: Annotated[Literal["json", "csv", "html"], typer.Option(help="What to write.")] = "json",
    out: Annotated[Path | None, typer.Option(help="The file (or, for html, the folder).")] = None,
) -> None:
    """Write the results of a run: JSON lines, one table of all options, or a page each."""
    from waysout.errors import InputError, UnavailableError
    from waysout.report.result import Result
    from waysout.store import Store, find_run

    if format == "html" and out is None:
        raise InputError("pages go to a folder: --out FOLDER")
    path = find_run(run)
    with Store.read(path) as store:
        results = [Result.of(result) for result in store.results()]
    if not results:
        say(f"note: {path} holds no result yet; `waysout runs show` says what it holds")
    try:
        _export(results, format, out)
    except OSError as error:
        raise UnavailableError(f"cannot write {error.filename}: {error.strerror}") from None


def _export(results: list[Result], format: str, out: Path | None) -> None:
    from waysout.report.result import to_csv

    if out is not None and format == "html":
        _write_pages(results, out)
        return
    text = to_csv(results) if format == "csv" else "".join(f"{r.to_json()}\n" for r in results)
    if out is None:
        typer.echo(text, nl=False)
    else:
        out.write_bytes(text.encode())  # as text, the ends of CSV lines would change on Windows
        say(f"wrote {out}")


def _write_pages(results: Iterable[Result], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for result in results:
        page = out / f"query-{result.index}.html"
        result.to_html(page)
        say(f"page: {page}")


@app.command()
def repair(
    run: RunName,
    out: Annotated[
        Path | None, typer.Option(help="Write the repaired run here and leave the old one alone.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Save what can be read of a damaged run; the damaged file is kept beside it."""
    from waysout.store import find_run
    from waysout.store import repair as repair_run

    report = repair_run(find_run(run), out)
    if json:
        print_json(asdict(report))
    else:
        _tell_repair(report)


def _tell_repair(report: RepairReport) -> None:
    from waysout.cli.search import run_name, tell

    if report.fine:
        tell(f"{report.path} is whole; nothing was changed")
        return
    rows = [(name, t.kept, "unknown" if t.lost is None else t.lost)
            for name, t in report.tables.items()]  # fmt: skip
    print_table(f"Repaired {report.path}", ["table", "kept", "lost"], rows)
    if report.unusable:
        tell(f"{report.unusable} of the lost answers could be read, but one before them is gone")
    tell(f"the damaged file: {report.original}")
    say(f"go on with: waysout runs resume {run_name(report.path)}")
