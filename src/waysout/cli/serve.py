"""``waysout serve``: a page in the browser, and the same over HTTP for programs."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waysout.cli import arguments as arg
from waysout.cli.arguments import MODEL, SEARCH
from waysout.cli.held import ready_for_models
from waysout.cli.output import echo, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from waysout.run.options import Options
    from waysout.run.source import Source, Trust
    from waysout.serve.problems import ServedProblem
    from waysout.serve.saved_run import SavedRun

SERVER = "The server"
PORT = 8765


def serve(
    run: Annotated[str, typer.Argument(help="A run to open: its name, its file, or last.")] = "",
    data: Annotated[str, typer.Option(
        help="The table: a file, or a data set's name; default: the demo's.",
        rich_help_panel=MODEL)] = "",
    model: arg.ModelFile = "",
    card: arg.CardFile = "",
    rules: arg.RuleSetName = "",
    positive_class: arg.PositiveClass = "",
    inputs: arg.Inputs = "auto",
    row_seconds: arg.RowSeconds = None,
    trust_pickle: arg.TrustPickle = False,
    trust_types: arg.TrustTypes = None,
    trust_code: arg.TrustCode = False,
    at_least: arg.SaferLevels = None,
    rise: arg.Rise = None,
    llm: Annotated[str, typer.Option(
        help="An LLM that names values, with reasons, as for `waysout find`. Without one, none is "
        "asked.", rich_help_panel=SEARCH)] = "",
    method: arg.MethodName = arg.DEFAULT_METHOD,
    calls: Annotated[int | None, typer.Option(
        help="Maximum number of LLM calls per search (needs --llm); default: 30.", min=0,
        rich_help_panel=SEARCH)] = None,
    oracle_rows: Annotated[int, typer.Option(
        help="Maximum number of model rows per search, all its parts together.", min=1,
        rich_help_panel=SEARCH)] = 3000,
    searches: Annotated[int, typer.Option(
        help="Maximum number of searches at once.", min=1, max=1000, rich_help_panel=SEARCH)] = 20,
    wait: Annotated[bool, typer.Option(
        "--wait", help="Search only when a button is pressed; models behind an address always "
        "wait.", rich_help_panel=SEARCH)] = False,
    no_run: Annotated[bool, typer.Option(
        "--no-run", help="Store no runs.", rich_help_panel=SEARCH)] = False,
    host: Annotated[str, typer.Option(
        help="The address to listen on; any non-loopback address needs a token.",
        rich_help_panel=SERVER)] = "127.0.0.1",
    port: Annotated[int, typer.Option(
        help="The port; 0 takes any free one.", min=0, max=65535, rich_help_panel=SERVER)] = PORT,
    allow_host: Annotated[list[str] | None, typer.Option(
        help="Another name this server is reached by, NAME or NAME:PORT; may be repeated.",
        rich_help_panel=SERVER)] = None,
    token_file: Annotated[Path | None, typer.Option(
        help="A file with the token that clients must send; or set WAYSOUT_TOKEN.",
        rich_help_panel=SERVER)] = None,
    open_: Annotated[bool, typer.Option(
        "--open", help="Open the page in a browser.", rich_help_panel=SERVER)] = False,
) -> None:  # fmt: skip
    """Show ways out in a browser, and over HTTP for programs.

    Choose a case, lock what cannot change, and watch the ways out appear. Without arguments it
    serves the demo: a synthetic table and a model trained on it, all on this machine; the demo
    sends nothing anywhere. With --llm openai:… prompts about a case go to that server.
    Programs use the same searches: see /api/openapi.json.
    """
    from waysout.errors import MissingExtra

    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtra(error.name or "fastapi", "serve") from error
    from waysout.cli.search import Signals
    from waysout.cli.sources import goal_of
    from waysout.run.source import Source, Trust
    from waysout.serve import http_server
    from waysout.serve.app import create_app
    from waysout.serve.hosts import Hosts, url_of
    from waysout.serve.limits import SETTLING_ROWS, ServiceLimits
    from waysout.serve.metrics import Metrics
    from waysout.serve.service import Service
    from waysout.serve.tokens import Gate, read_token

    token = read_token(os.environ, token_file)
    kept = max(ServiceLimits().kept, searches)
    limits = ServiceLimits(
        oracle_rows=oracle_rows, searches=searches, kept=kept, settling_rows=SETTLING_ROWS
    )
    if calls is not None:
        limits = replace(limits, calls=calls)
    goal = goal_of(at_least, rise)
    source = Source(
        data, card, model, rules, positive_class, inputs, **goal, row_seconds=row_seconds
    )
    trust = Trust(trust_pickle, tuple(trust_types or ()), trust_code, named=True)
    with http_server.open_socket(host, port, token=token is not None) as opened:
        port = opened.getsockname()[1]  # also where any free one was asked for
        hosts, url = Hosts.of(host, port, allow_host or ()), url_of(host, port)
        ready_for_models()
        with Signals(json=False):
            subject = _subject(run, source, trust, _Wish(llm, method, calls))
        problem, metrics = subject.served.problem, Metrics()
        # What stored runs say they were made from, as those of `waysout find` do.
        about = {**subject.source.as_dict(), "digests": subject.source.digests(),
                 "llm": subject.llm or "", "price": ""}  # fmt: skip
        service = Service(
            {problem.name: subject.served}, subject.llm, limits=limits, method=method,
            keep_runs=not no_run, listener=metrics, about=about, wait=wait,
        )  # fmt: skip
        if subject.run is not None:
            url += f"#search={service.adopt(problem.name, subject.run).id}"
        gate = None if token is None else Gate(token, port)
        app = create_app(service, hosts, gate=gate, metrics=metrics)
        _announce(subject, host, hosts.names, url, token=token is not None)
        if open_:
            from threading import Thread
            from webbrowser import open as open_browser

            Thread(target=open_browser, args=[url], daemon=True).start()
        http_server.run_server(app, opened, service.close)
    say("stopped" + ("" if no_run else "; `waysout runs list` shows what was kept"))


@dataclass(frozen=True)
class _Wish:
    """The LLM, the method and the most calls that were asked for."""

    llm: str
    method: str
    calls: int | None


@dataclass(frozen=True)
class _Subject:
    """What is served: a problem, the LLM if it has one, and a stored run to begin with."""

    served: ServedProblem
    llm: str | None
    source: Source
    run: SavedRun | None = None


def _subject(run: str, source: Source, trust: Trust, wish: _Wish) -> _Subject:
    """Return what is served: a stored run, a table with a model, or the demo."""
    from waysout.cli.demo import USUAL_APPLICANT, demo_problem
    from waysout.cli.sources import check_source
    from waysout.datasets.queries import queries
    from waysout.errors import InputError
    from waysout.run.source import Source
    from waysout.serve.problems import ServedProblem

    bare = source == Source("")
    if run and source != Source("", model=source.model):
        raise InputError("a run names its own table, model and card: leave the others out")
    if run:
        return _of_run(run, source.model, replace(trust, named=False), wish)
    if source.data:
        check_source(source)
        return _of_source(source, trust, wish)
    if not bare:
        raise InputError("name the table: --data FILE (without any of these, the demo is served)")
    llm = _proposer(wish)
    problem, dataset = demo_problem(quiet=False)
    people = queries("synthetic")
    first = people[USUAL_APPLICANT]
    examples = [first, *(number for number in people if number != first)]
    return _Subject(ServedProblem.of(problem, dataset, examples), llm, Source("synthetic"))


def _of_source(source: Source, trust: Trust, wish: _Wish) -> _Subject:
    from waysout.cli.sources import open_source
    from waysout.serve.problems import ServedProblem

    llm = _proposer(wish)
    opened = open_source(source, trust)
    served = ServedProblem.of(opened.problem, opened.known, people=opened.rows)
    return _Subject(served, llm, source)


def _of_run(name: str, model: str, trust: Trust, wish: _Wish) -> _Subject:
    """Open a stored run; what its file names is printed before any of it is opened.

    ``model`` is its model once more, where the user has confirmed that.
    """
    from waysout.cli.kept import (
        check_confirmed_model,
        check_unchanged,
        made_of,
        read_kept,
        says_of_what,
    )
    from waysout.cli.places import check_confirmed
    from waysout.errors import InputError
    from waysout.report.words import clean
    from waysout.run.options import make_plan
    from waysout.serve.saved_run import SavedRun
    from waysout.store import Store, find_run

    path = find_run(name)
    with Store.read(path) as store:
        if not says_of_what(store):
            raise InputError(
                f"{path} was not made by `waysout find` or `serve`, so it does not say which "
                "model and table to ask: serve those with --data, --model and --card; `waysout "
                "runs show` and `runs export --format html` show what it holds"
            )
        kept = read_kept(store)
        asked = str(kept.options["llm"]) if make_plan(kept.options).asks_llm else ""
        for what, place in made_of(store).items():
            say(f"the run's {what}: {clean(place)}")
        if not wish.llm:
            check_confirmed(path, asked)
        check_confirmed_model(path, kept.source.model, model)
        check_unchanged(path, kept.source)
        subject = _of_source(kept.source, trust, replace(wish, llm=wish.llm or asked))
        return replace(subject, run=SavedRun.read(store, subject.served.problem))


def _proposer(wish: _Wish) -> str | None:
    """Return the LLM, if one was named; refuse what cannot be before a large model is loaded."""
    from waysout.cli.search import check_llm
    from waysout.run.find import prepare

    options: Options = {"method": wish.method, "llm": wish.llm or None}
    if wish.calls is not None:
        options["calls"] = wish.calls
    check_llm(prepare(options))
    return wish.llm or None


def _announce(subject: _Subject, host: str, names: Sequence[str], url: str, *, token: bool) -> None:
    from waysout.llm.connect import stand_in
    from waysout.serve.hosts import is_loopback

    llm = subject.llm
    instead = f" ({stand_in(llm)}: a stand-in, not a language model)" if stand_in(llm) else ""
    say(f"decides: the model {subject.served.problem.oracle.name}")
    say(f"proposes: {llm or 'no LLM'}{instead}")
    if token:
        say("a token is needed: the page asks for it; programs send Authorization: Bearer …")
    if not is_loopback(host):
        say(f"answers to {', '.join(names)}; --allow-host adds a name")
    echo(f"open {url} in a browser; Ctrl-C ends it")
