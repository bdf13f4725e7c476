"""``waysout serve``: a page in the browser, and the same over HTTP for programs."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waysout.cli.arguments import (
    DEFAULT_METHOD,
    MODEL,
    SEARCH,
    AtLeast,
    CardFile,
    Inputs,
    MethodName,
    ModelFile,
    PositiveClass,
    Rise,
    RuleSetName,
)
from waysout.cli.output import TrustCode, TrustPickle, TrustTypes, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from waysout.run.find import Options
    from waysout.run.source import Source, Trust
    from waysout.serve.hosts import Hosts
    from waysout.serve.problems import ServedProblem
    from waysout.serve.service import SavedRun

SERVER = "The server"
PORT = 8765


def serve(
    run: Annotated[
        str, typer.Argument(help="A run to open: its name, its file, or last.")
    ] = "",
    data: Annotated[
        str,
        typer.Option(help="The table: a file, or a data set's name. By default the demo's.",
                     rich_help_panel=MODEL),
    ] = "",
    model: ModelFile = "",
    card: CardFile = "",
    rules: RuleSetName = "",
    positive_class: PositiveClass = "",
    inputs: Inputs = "auto",
    trust_pickle: TrustPickle = False,
    trust_types: TrustTypes = None,
    trust_code: TrustCode = False,
    at_least: AtLeast = None,
    rise: Rise = None,
    llm: Annotated[
        str,
        typer.Option(help="The LLM, as for `waysout find`. By default a small one, which the demo "
                     "downloads once (98 MB).", rich_help_panel=SEARCH),
    ] = "",
    method: MethodName = DEFAULT_METHOD,
    calls: Annotated[
        int, typer.Option(help="Maximum number of LLM calls per search.", min=0,
                          rich_help_panel=SEARCH),
    ] = 30,
    oracle_rows: Annotated[
        int, typer.Option(help="Maximum number of model rows per search.", min=1,
                          rich_help_panel=SEARCH),
    ] = 1000,
    searches: Annotated[
        int, typer.Option(help="Maximum number of searches at once.", min=1, max=1000,
                          rich_help_panel=SEARCH),
    ] = 20,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Keep no runs on disk.", rich_help_panel=SEARCH)
    ] = False,
    host: Annotated[
        str,
        typer.Option(help="The address to listen on; all but this machine's own need a token.",
                     rich_help_panel=SERVER),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port; 0 takes any free one.", min=0, max=65535,
                          rich_help_panel=SERVER),
    ] = PORT,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Another name of this server, NAME or NAME:PORT; may be "
                     "repeated.", rich_help_panel=SERVER),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the token that clients must send; or set WAYSOUT_TOKEN.",
                     rich_help_panel=SERVER),
    ] = None,
    open_: Annotated[
        bool, typer.Option("--open", help="Open the page in a browser.", rich_help_panel=SERVER)
    ] = False,
) -> None:  # fmt: skip
    """Show ways out in a browser: choose a case, lock what cannot change, watch options come in.

    Without arguments it serves the demo: a synthetic table, a model trained on it and a small LLM,
    all on this machine. Nothing is sent anywhere. Programs can use the same API: see
    /api/openapi.json.
    """
    from waysout.errors import InputError, MissingExtra

    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtra(error.name or "fastapi", "serve") from error
    from waysout.cli.signals import Signals
    from waysout.run.source import Source, Trust
    from waysout.serve import http_server
    from waysout.serve.app import create_app
    from waysout.serve.hosts import Hosts, url_of
    from waysout.serve.metrics import Metrics
    from waysout.serve.search_session import ServiceLimits
    from waysout.serve.service import Service
    from waysout.serve.tokens import Gate, read_token

    token = read_token(os.environ, token_file)
    kept = max(ServiceLimits().kept, searches)
    limits = ServiceLimits(calls=calls, oracle_rows=oracle_rows, searches=searches, kept=kept)
    source = Source(data, card, model, rules, positive_class, inputs, at_least, rise)
    trust = Trust(trust_pickle, tuple(trust_types or ()), trust_code)
    bare = source == Source("")
    with http_server.open_socket(host, port, token=token is not None) as opened:
        bound = int(opened.getsockname()[1])  # the port, also where any was asked for
        hosts = Hosts.of(host, bound, allow_host or ())
        with Signals(json=False), redirect_stdout(sys.stderr):  # models and custom rules may print
            if run and not bare:
                raise InputError("a run names its own table, model and card: leave the others out")
            if not run and not source.data and not bare:
                raise InputError(
                    "name the table: --data FILE (without any of these, the demo is served)"
                )
            proposer = _Proposer(llm, method, calls)
            if run:
                subject = _from_run(run, trust, proposer)
            else:
                subject = _from_source(source, trust, proposer) if data else _demo(proposer)
        name, metrics = subject.served.problem.name, Metrics()
        service = Service(
            {name: subject.served}, subject.llm, limits=limits, method=method,
            keep_runs=not no_run, listener=metrics, about=subject.about(),
        )  # fmt: skip
        url = url_of(host, bound)
        if subject.run is not None:
            url += f"#search={service.adopt(name, subject.run).id}"
        gate = None if token is None else Gate(token, bound)
        app = create_app(service, hosts, gate=gate, metrics=metrics)
        _announce(subject, host, hosts, token is not None, url)
        if open_:
            from threading import Thread
            from webbrowser import open as open_browser

            Thread(target=open_browser, args=[url], daemon=True).start()
        http_server.run_server(app, opened, service.close)
        say("stopped" + ("" if no_run else "; `waysout runs list` shows what was kept"))


@dataclass(frozen=True)
class _Proposer:
    """The LLM that was asked for, the method, and the maximum number of calls."""

    llm: str
    method: str
    calls: int

    def connection(self, default: Callable[[], str]) -> str | None:
        """Return the LLM, or None if the method needs none and none was named."""
        from waysout.cli import search
        from waysout.run.find import make_plan

        options: Options = {"method": self.method, "calls": self.calls}
        llm = self.llm
        if not llm and make_plan(options).asks_llm:
            llm = default()
        search.check_llm({**options, "llm": llm})
        return llm or None


@dataclass(frozen=True)
class _Subject:
    """What is served: a problem, the LLM if there is one, and a run of it to begin with."""

    served: ServedProblem
    llm: str | None
    source: Source
    run: SavedRun | None = None

    def about(self) -> dict[str, Any]:
        """Return what kept runs record about their source, as those of `waysout find` do."""
        source = self.source
        return {
            **source.as_dict(), "digests": source.digests(), "llm": self.llm or "", "price": ""
        }  # fmt: skip


def _demo(proposer: _Proposer) -> _Subject:
    from waysout.cli.demo import USUAL_APPLICANT, demo_problem, small_llm
    from waysout.datasets.queries import queries
    from waysout.run.source import Source
    from waysout.serve.problems import ServedProblem

    llm = proposer.connection(lambda: small_llm(proposer.calls, quiet=False))
    problem, dataset = demo_problem(quiet=False)
    people = queries("synthetic")
    first = people[USUAL_APPLICANT]
    examples = [first, *(number for number in people if number != first)]
    return _Subject(ServedProblem.of(problem, dataset, examples), llm, Source("synthetic"))


def _from_source(source: Source, trust: Trust, proposer: _Proposer) -> _Subject:
    from waysout.cli.sources import open_source
    from waysout.llm.connect import DEFAULT
    from waysout.serve.problems import ServedProblem

    llm = proposer.connection(lambda: DEFAULT)
    opened = open_source(source, trust)
    return _Subject(ServedProblem.of(opened.problem, opened.known), llm, source)


def _from_run(name: str, trust: Trust, proposer: _Proposer) -> _Subject:
    """Open a saved run; the files it names are listed before any of them is opened."""
    from waysout.cli.kept import check_says_of_what, check_unchanged, made_of, read_kept
    from waysout.cli.places import must_confirm
    from waysout.errors import InputError
    from waysout.report.words import clean
    from waysout.serve.service import SavedRun
    from waysout.store import Store, find_run

    path = find_run(name)
    with Store.read(path) as store:
        try:
            check_says_of_what(store)
        except InputError:
            raise InputError(
                f"{store.path} was not made by `waysout find` or `serve`, so it does not say which "
                "model and table to ask: serve those with --data, --model and --card; `waysout "
                "runs show` and `runs export --format html` show what it holds"
            ) from None
        kept = read_kept(store)
        for what, place in made_of(store).items():
            say(f"the run's {what}: {clean(place)}")
        if not proposer.llm and must_confirm(path, kept.llm):
            raise InputError(
                f"{path} is not in the folder of your runs, and would send rows (and your key, if "
                "there is one) to an address it names: if that is right, confirm it with --llm "
                f"{shlex.quote(kept.llm)}"
            )
        check_unchanged(path, kept.source)
        chosen = replace(proposer, llm=proposer.llm or kept.llm)
        subject = _from_source(kept.source, trust, chosen)
        return replace(subject, run=SavedRun.read(store, subject.served.problem))


def _announce(subject: _Subject, host: str, hosts: Hosts, token: bool, url: str) -> None:
    from waysout.llm.connect import is_simulated
    from waysout.serve.hosts import is_loopback

    llm = subject.llm
    stand_in = " (simulated: a stand-in, not a language model)" if is_simulated(llm) else ""
    say(f"decides: the model {subject.served.problem.oracle.name}")
    say(f"proposes: {llm or 'no LLM'}{stand_in}")
    if token:
        say("a token is needed: the page asks for it; programs send Authorization: Bearer …")
    if not is_loopback(host):
        say(f"answers to {', '.join(hosts.names)}; --allow-host adds a name")
    typer.echo(f"open {url} in a browser; Ctrl-C ends it")
    sys.stdout.flush()
