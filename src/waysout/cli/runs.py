"""``waysout runs``: stored searches; list, show, resume, export, repair or delete them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from waysout.cli import arguments as arg
from waysout.cli.output import (
    JsonFlag,
    echo,
    echo_json,
    echo_table,
    print_json,
    print_table,
    say,
    tell,
)
from waysout.cli.places import check_confirmed, check_places, whole

if TYPE_CHECKING:
    from waysout.report.result import Result
    from waysout.store import Store

app = typer.Typer(
    help="Stored searches: list, show, resume, export, repair, delete.", no_args_is_help=True
)
RunName = Annotated[str, typer.Argument(help="A run: its name, its file, or last.")]


@app.command("list")
def list_(json: JsonFlag = False) -> None:
    """List the stored runs, newest first."""
    from waysout.errors import IntegrityError, WaysoutError
    from waysout.store import Store, list_runs, runs_dir

    found: list[dict[str, Any]] = []
    for path in list_runs(runs_dir()):
        try:
            with Store.read(path) as store:
                found.append(_summary(store))
        except WaysoutError as error:
            if not path.exists():  # deleted meanwhile
                continue
            status = "damaged" if isinstance(error, IntegrityError) else "unreadable"
            named = {"run": path.stem, "path": path, "status": status}
            found.append({**named, "problem": str(error)})
    if json:
        print_json(found)
        return
    if not found:
        echo(f"there are no runs in {runs_dir()} yet; waysout find makes them")
        return
    rows = []
    for run in found:
        # Without its server and its folder, so that the name fits.
        llm = str(run.get("llm") or "").partition("@")[0].rpartition("/")[2]
        counts = run.get("options", ""), run.get("llm_calls", "")
        rows.append((run["run"], _status(run), llm, *counts))
    print_table(f"Runs in {runs_dir()}", ["run", "status", "LLM", "options", "calls"], rows)
    for run in found:
        if "problem" in run:
            say(f"note: {run['problem']}")


def _summary(store: Store) -> dict[str, Any]:
    llm = store.manifest.get("llm")
    return {"run": store.path.stem, **asdict(store.summary()), "llm": llm}


def _status(run: Mapping[str, Any]) -> str:
    """Return the status of a run, with the number of finished queries if there are several."""
    many = run.get("queries", 1) > 1
    return f"{run['status']} ({run['finished']}/{run['queries']})" if many else run["status"]


@app.command()
def show(run: RunName = "last", json: JsonFlag = False) -> None:
    """Show what a run is, and what it has found so far (also while it is running)."""
    from waysout.cli.kept import how_to_resume, made_of
    from waysout.cli.search import show as show_result
    from waysout.report.words import counted
    from waysout.store import Store, find_run

    with Store.read(find_run(run)) as store:
        _say_what_is_lost(store)
        summary, results = _summary(store), _results(store)
        if json:
            document = {"run": summary, "manifest": store.manifest}
            print_json({**document, "results": [r.as_dict() for r in results.values()]})
            return
        named = made_of(store)
        times = {"begun": summary["created"], "last written": summary["updated"]}
        counts = ("method", "llm", "options", "llm_calls", "oracle_rows")
        facts = [
            ("file", summary["path"]),
            ("status", _status(summary)),
            *((name, f"{at.astimezone():%Y-%m-%d %H:%M:%S}") for name, at in times.items()),
            *((name, file) for name, file in named.items() if name != "llm"),
            *((n.replace("_", " "), summary[n]) for n in counts if summary[n] is not None),
        ]
        print_table(f"Run {summary['run']}", ["of the run", "value"], facts)
        for index, result in results.items():
            if summary["queries"] > 1:
                echo(f"Query {index}")
            show_result(result)
        for index, _ in store.queries():
            if index not in results:
                found = counted(sum(1 for _ in store.options(index)), "option")
                echo(f"Query {index}: running or interrupted, {found} so far")
        if summary["status"] == "interrupted" and (hint := how_to_resume(store)):
            say(hint)


def _say_what_is_lost(store: Store) -> None:
    from waysout.cli.places import command, run_argument
    from waysout.report.words import counted

    if store.lost_entries:
        entries = counted(store.lost_entries, "entry", "entries")
        repair = command("runs", "repair", run_argument(store.path))
        say(
            f"note: the log beside {store.path} is damaged, and the last {entries} in it are left "
            "out: a search that is resumed asks again, and pays again, for what they held. To save "
            f"what can be read of them before that: {repair}"
        )


def _results(store: Store) -> dict[int, Result]:
    """Return the results by the store's own numbers: those in the results could be anything."""
    from waysout.report.result import Result

    kept = ((index, store.finished(index) or store.partial(index)) for index, _ in store.queries())
    return {int(index): Result.of(result) for index, result in kept if result is not None}


@app.command()
def resume(
    run: RunName = "last",
    llm: Annotated[str, typer.Option(
        help="The run's own LLM again, to confirm it: needed for a run from outside our folder "
        "of runs that asks a server.")] = "",
    model: Annotated[str, typer.Option(
        help="The address of the run's own model again, to confirm it: needed for a run from "
        "outside our folder of runs.")] = "",
    trust_pickle: arg.TrustPickle = False,
    trust_types: arg.TrustTypes = None,
    trust_code: arg.TrustCode = False,
    row_seconds: arg.RowSeconds = None,
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Resume a run of `waysout find` that was interrupted; nothing on file is asked again."""
    from waysout.cli import search
    from waysout.cli.kept import (
        check_confirmed_model,
        check_is_of_find,
        check_unchanged,
        read_kept,
        to_resume,
    )
    from waysout.errors import InputError, shown
    from waysout.report.result import Result
    from waysout.report.words import clean
    from waysout.run.find import prepare
    from waysout.run.source import Trust
    from waysout.store import Store, find_run

    path = whole(find_run(run))  # a model may change the folder
    with Store.read(path) as store:
        check_is_of_find(store)
        on_file, finished = store.summary(), store.finished(0)
        if finished is not None:
            say("note: this run is finished; here is its result")
            search.hand_over(search.SearchEnd(Result.of(finished)), json=json, run=path)
            return
        _say_what_is_lost(store)
        kept = read_kept(store)
    trust = Trust(trust_pickle, tuple(trust_types or ()), trust_code)
    prepared, source = prepare(kept.options), replace(kept.source, row_seconds=row_seconds)
    asked = str(prepared.options["llm"]) if prepared.plan.asks_llm else ""
    # Say what the file makes us open and ask, before any of it happens.
    named = {"LLM": asked, "model": source.model, "data": source.data, "card": source.card}
    for what, name in named.items():
        if name:
            say(f"{what}: {clean(name)}")
    if trust.pickle and source.model:
        say(f"note: --trust-pickle runs the code in {clean(source.model)}, which this run names")
    if trust.code and source.card:
        say(f"note: --trust-code runs the code that {clean(source.card)} names")
    if trust.code and source.folder:
        say(f"note: --trust-code runs {clean(source.model)} in {clean(source.folder)}")
    if llm and llm != asked:
        raise InputError(
            f"{path} was started with {shown(asked, 200) if asked else 'no LLM'}, not "
            f"{shown(llm, 200)}: a run is resumed with its own LLM; start a new run for another"
        )
    if not llm:
        check_confirmed(path, asked)
    check_confirmed_model(path, source.model, model)
    search.check_llm(prepared)
    counts = f"; {on_file.llm_calls} calls and {on_file.oracle_rows} rows are on file"
    trusted = to_resume(trust, path, source)
    with search.Signals(json, path, asked, trusted) as signals:
        check_unchanged(path, source)
        ended = search.search_source(prepared, source, trust, lambda _: kept.row, signals, counts)
    search.hand_over(ended, json=json, run=path, llm=asked, trusted=trusted)


@app.command()
def export(
    run: RunName = "last",
    format: Annotated[Literal["json", "csv", "html", "letter"], typer.Option(
        help="What to write.")] = "json",
    out: Annotated[Path | None, typer.Option(
        help="The file (or, for html and letter, the folder).")] = None,
    all_options: arg.AllOptions = False,
) -> None:  # fmt: skip
    """Write the results of a run: JSON lines, one table of all ways, or a page or letter each.

    Letters are to the person concerned, as text and as a page to print.
    """
    from waysout.errors import InputError, UnavailableError
    from waysout.report.result import to_csv
    from waysout.store import Store, find_run

    each = format in ("html", "letter")
    if each and out is None:
        raise InputError("pages and letters go to a folder: --out FOLDER")
    if all_options and format != "csv":
        raise InputError("--all-options is about the table: --format csv")
    path = find_run(run)
    if out is not None and not each:
        check_places({"--out": out}, {"the run": path})
    with Store.read(path) as store:
        results, day = _results(store), store.summary().created.astimezone().date()
    if not results:
        say(f"note: {path} holds no result yet; `waysout runs show` says what it holds")
    found = list(results.values())
    try:
        if out is not None and each:
            out.mkdir(parents=True, exist_ok=True)
            for index, result in results.items():
                stem = out / f"query-{index}"
                if format == "html":
                    result.to_html(stem.with_suffix(".html"), when=day)
                    say(f"page: {stem}.html")
                    continue
                for name in (f"{stem}-letter.txt", f"{stem}-letter.html"):
                    result.to_letter(Path(name), when=day)
                    say(f"letter: {name}")
            return
        text = (
            to_csv(found, all_options=all_options)
            if format == "csv"
            else "".join(f"{result.to_json()}\n" for result in found)
        )
        if out is None:
            echo_json(text) if format == "json" else echo_table(text)
        else:
            out.write_bytes(text.encode())  # as text, CSV line ends would change on Windows
            say(f"wrote {out}")
    except OSError as error:
        raise UnavailableError(f"cannot write {error.filename or out}: {error.strerror}") from None


@app.command()
def repair(
    run: RunName,
    out: Annotated[Path | None, typer.Option(
        help="Write the repaired run here and leave the old one alone.")] = None,
    json: JsonFlag = False,
) -> None:  # fmt: skip
    """Save what can be read of a damaged run; the damaged file is kept beside it."""
    from waysout.cli.kept import how_to_resume
    from waysout.store import Store, find_run
    from waysout.store.repair import repair as repair_run

    report = repair_run(find_run(run), out)
    if json:
        print_json(asdict(report))
        return
    if report.fine:
        tell(f"{report.path} is whole; nothing was changed")
        return
    rows = [(name, t.kept, "unknown" if t.lost is None else t.lost)
            for name, t in report.tables.items()]  # fmt: skip
    print_table(f"Repaired {report.path}", ["table", "kept", "lost"], rows)
    if report.unusable:
        tell(f"{report.unusable} of the lost answers could be read, but one before them is gone")
    tell(f"the damaged file: {report.original}")
    with Store.read(report.path) as store:
        if hint := how_to_resume(store):
            say(hint)


@app.command()
def delete(
    runs: Annotated[list[str], typer.Argument(help="Runs: their names or files, or last.")],
    json: JsonFlag = False,
) -> None:
    """Delete runs for good, with what a repair kept of them; one that is being written stays."""
    from waysout.store import delete_run, find_run

    paths = list(dict.fromkeys(map(find_run, runs)))  # all of them are there, or none goes
    gone = {path.stem: delete_run(path) for path in paths}
    if json:
        print_json({"deleted": gone})
        return
    for name, files in gone.items():
        tell(f"deleted {name}: {len(files)} {'file' if len(files) == 1 else 'files'}")
