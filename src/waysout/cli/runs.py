"""``waysout runs``: the searches that were kept; go on with one, show, export or repair it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from waysout.cli.output import (
    JsonFlag,
    TrustCode,
    TrustPickle,
    TrustTypes,
    echo_json,
    print_json,
    print_table,
    say,
    tell,
)
from waysout.cli.places import check_places, must_confirm, resume_hint

if TYPE_CHECKING:
    from waysout.cli.kept import Kept
    from waysout.report.result import Result
    from waysout.run.source import Trust
    from waysout.store import Store
    from waysout.store.repair import RepairReport

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
    from waysout.cli.kept import made_of
    from waysout.cli.search import show as show_result
    from waysout.store import Store, find_run

    with Store.read(find_run(run)) as store:
        summary, results = _summary(store), _results(store)
        if json:
            document = {"run": summary, "manifest": store.manifest}
            print_json({**document, "results": [r.as_dict() for r in results.values()]})
            return
        print_table(f"Run {summary['run']}", ["of the run", "value"], _facts(store, summary))
        for index, result in results.items():
            if summary["queries"] > 1:
                typer.echo(f"Query {index}")
            show_result(result)
        _tell_open(store, set(results))
        names = made_of(store)
        if summary["status"] == "interrupted" and names:
            say(resume_hint(store.path, names.get("llm", "")))


def _results(store: Store) -> dict[int, Result]:
    """Return the results by the store's own numbers: those within could be anything."""
    from waysout.report.result import Result

    kept = ((index, store.finished(index) or store.partial(index)) for index, _ in store.queries())
    return {int(index): Result.of(result) for index, result in kept if result is not None}


def _facts(store: Store, summary: Mapping[str, Any]) -> list[tuple[str, object]]:
    from waysout.cli.kept import made_of

    files = [pair for pair in made_of(store).items() if pair[0] != "llm"]
    names = ("method", "llm", "options", "llm_calls", "oracle_rows")
    return [
        ("file", summary["path"]),
        ("status", _status(summary)),
        ("begun", _moment(summary["created"])),
        ("last written", _moment(summary["updated"])),
        *files,
        *((name.replace("_", " "), summary[name]) for name in names if summary[name] is not None),
    ]


def _moment(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def _tell_open(store: Store, told: set[int]) -> None:
    from waysout.report.words import counted

    for index, _ in store.queries():
        if index not in told:
            ways = counted(sum(1 for _ in store.options(index)), "way out", "ways out")
            typer.echo(f"Query {index}: under way or cut off, {ways} so far")


@app.command()
def resume(
    run: RunName = "last",
    llm: Annotated[
        str,
        typer.Option(help="The run's own LLM again, as your word for it: needed for a run from "
                     "outside our folder of runs that asks a server."),
    ] = "",
    trust_pickle: TrustPickle = False,
    trust_types: TrustTypes = None,
    trust_code: TrustCode = False,
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Go on with a run of `waysout find` that was cut off; nothing on file is asked again."""
    from waysout.cli import search
    from waysout.cli.kept import check_is_of_find, check_unchanged, read_kept
    from waysout.cli.signals import Signals
    from waysout.report.result import Result
    from waysout.run.source import Trust
    from waysout.store import Store, find_run

    path = find_run(run)
    with Store.read(path) as store:
        check_is_of_find(store)
        on_file, finished = store.summary(), store.finished(0)
        if finished is not None:
            say("note: this run is finished; here is its result")
            search.hand_over(search.SearchEnd(Result.of(finished)), json=json, run=path)
            return
        kept = read_kept(store)
    trust = Trust(trust_pickle, tuple(trust_types or ()), trust_code)
    _tell_what_is_named(kept, trust)
    _check_confirmed(path, kept, llm)
    search.check_llm(kept.options)
    counts = f"; {on_file.llm_calls} calls and {on_file.oracle_rows} rows are on file"
    with Signals(json, path, kept.llm) as signals:
        check_unchanged(path, kept.source)
        ended = search.search_source(
            kept.source, trust, kept.options, lambda _: kept.row, signals, counts
        )
    search.hand_over(ended, json=json, run=path, llm=kept.llm)


def _tell_what_is_named(kept: Kept, trust: Trust) -> None:
    """Say what a run's file has us open and ask, before any of it happens."""
    from waysout.report.words import clean

    source = kept.source
    named = {"LLM": kept.llm, "model": source.model, "data": source.data, "card": source.card}
    for what, name in named.items():
        if name:
            say(f"{what}: {clean(name)}")
    if trust.pickle and source.model:
        say(f"note: --trust-pickle runs the code in {clean(source.model)}, which this run names")
    if trust.code and source.card:
        say(f"note: --trust-code runs the code that {clean(source.card)} names")


def _check_confirmed(path: Path, kept: Kept, llm: str) -> None:
    import shlex

    from waysout.errors import InputError, shown

    if llm and kept.llm and llm != kept.llm:
        raise InputError(
            f"{path} was begun with {shown(kept.llm, 200)}, not {shown(llm, 200)}: a run goes on "
            "with its own LLM; start a new one for another"
        )
    if not llm and must_confirm(path, kept.llm):
        raise InputError(
            f"{path} lies outside our folder of runs, and has rows, and your key if there is one, "
            f"sent to an address it names: if that is right, say so: --llm {shlex.quote(kept.llm)}"
        )


@app.command()
def export(
    run: RunName = "last",
    format: Annotated[
        Literal["json", "csv", "html", "letter"], typer.Option(help="What to write.")
    ] = "json",
    out: Annotated[
        Path | None, typer.Option(help="The file (or, for html and letter, the folder).")
    ] = None,
) -> None:
    """Write the results of a run: JSON lines, one table of all options, or a page or letter each.

    Letters are to the person concerned, as text and as a page to print.
    """
    from waysout.errors import InputError, UnavailableError
    from waysout.store import Store, find_run

    write_each = {"html": _write_page, "letter": _write_letter}.get(format)
    if write_each and out is None:
        raise InputError("pages and letters go to a folder: --out FOLDER")
    path = find_run(run)
    if out is not None and not write_each:
        check_places({"--out": out}, {"the run": path})
    with Store.read(path) as store:
        results, day = _results(store), store.summary().created.astimezone().date()
    if not results:
        say(f"note: {path} holds no result yet; `waysout runs show` says what it holds")
    try:
        if write_each and out is not None:
            out.mkdir(parents=True, exist_ok=True)
            for index, result in results.items():
                write_each(result, out / f"query-{index}", day)
        else:
            _export(results, format, out)
    except OSError as error:
        raise UnavailableError(f"cannot write {error.filename}: {error.strerror}") from None


def _export(results: Mapping[int, Result], format: str, out: Path | None) -> None:
    from waysout.report.result import to_csv

    found = list(results.values())
    text = to_csv(found) if format == "csv" else "".join(f"{r.to_json()}\n" for r in found)
    if out is None and format == "json":
        echo_json(text)
    elif out is None:
        typer.echo(text, nl=False)
    else:
        out.write_bytes(text.encode())  # as text, the ends of CSV lines would change on Windows
        say(f"wrote {out}")


def _write_page(result: Result, stem: Path, day: date) -> None:
    page = stem.with_suffix(".html")
    result.to_html(page, when=day)
    say(f"page: {page}")


def _write_letter(result: Result, stem: Path, day: date) -> None:
    for name in ("letter.txt", "letter.html"):
        letter = stem.with_name(f"{stem.name}-{name}")
        result.to_letter(letter, when=day)
        say(f"letter: {letter}")


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
    from waysout.store.repair import repair as repair_run

    report = repair_run(find_run(run), out)
    if json:
        print_json(asdict(report))
    else:
        _tell_repair(report)


def _tell_repair(report: RepairReport) -> None:
    if report.fine:
        tell(f"{report.path} is whole; nothing was changed")
        return
    rows = [(name, t.kept, "unknown" if t.lost is None else t.lost)
            for name, t in report.tables.items()]  # fmt: skip
    print_table(f"Repaired {report.path}", ["table", "kept", "lost"], rows)
    if report.unusable:
        tell(f"{report.unusable} of the lost answers could be read, but one before them is gone")
    tell(f"the damaged file: {report.original}")
    say(resume_hint(report.path, _llm_of(report.path)))


def _llm_of(path: Path) -> str:
    from waysout.cli.kept import made_of
    from waysout.store import Store

    with Store.read(path) as store:
        return made_of(store).get("llm", "")
