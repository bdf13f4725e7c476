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
    import socket
    from collections.abc import Callable

    from waysout.run.find import Options
    from waysout.run.source import Source, Trust
    from waysout.serve.adopted import Adopted
    from waysout.serve.hosts import Hosts
    from waysout.serve.limits import ServiceLimits
    from waysout.serve.served import Served
    from waysout.serve.service import Service
    from waysout.store import Store

SERVER = "The server"
PORT = 8765


def serve(
    run: Annotated[
        str, typer.Argument(help="A run to open: its name, its file, or last.")
    ] = "",
    data: Annotated[
        str,
        typer.Option(help="The table: a file, or a data set's name; the default: the demo's.",
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
        typer.Option(help="Who proposes, as for `waysout find`; the default: a small LLM, which "
                     "the demo downloads once (98 MB).", rich_help_panel=SEARCH),
    ] = "",
    method: MethodName = DEFAULT_METHOD,
    calls: Annotated[
        int, typer.Option(help="At most so many LLM calls a search.", min=0, rich_help_panel=SEARCH)
    ] = 30,
    oracle_rows: Annotated[
        int, typer.Option(help="At most so many rows a search for the model.", min=1,
                          rich_help_panel=SEARCH),
    ] = 1000,
    searches: Annotated[
        int, typer.Option(help="At most so many searches at once.", min=1, max=1000,
                          rich_help_panel=SEARCH),
    ] = 20,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Keep no runs.", rich_help_panel=SEARCH)
    ] = False,
    host: Annotated[
        str,
        typer.Option(help="The address to listen on; any but this machine's own needs a token.",
                     rich_help_panel=SERVER),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port; 0 takes any free one.", min=0, max=65535,
                          rich_help_panel=SERVER),
    ] = PORT,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Another name this server is reached by, NAME or NAME:PORT; may be "
                     "repeated.", rich_help_panel=SERVER),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the token that lets people in; or set WAYSOUT_TOKEN.",
                     rich_help_panel=SERVER),
    ] = None,
    open_: Annotated[
        bool, typer.Option("--open", help="Open the page in a browser.", rich_help_panel=SERVER)
    ] = False,
) -> None:  # fmt: skip
    """Show ways out in a browser: choose a case, lock what cannot change, watch them come.

    Without arguments it serves the demo: a synthetic table, a model trained on it and a small LLM,
    all on this machine. Nothing is sent anywhere. Programs use the same searches: see
    /api/openapi.json.
    """
    _need_packages()
    from waysout.cli.signals import Signals
    from waysout.run.source import Source, Trust
    from waysout.serve.hosts import Hosts
    from waysout.serve.limits import ServiceLimits
    from waysout.serve.server import open_socket
    from waysout.serve.tokens import read_token

    token = read_token(os.environ, token_file)
    kept = max(ServiceLimits().kept, searches)
    limits = ServiceLimits(calls=calls, oracle_rows=oracle_rows, searches=searches, kept=kept)
    source = Source(data, card, model, rules, positive_class, inputs, at_least, rise)
    trust = Trust(trust_pickle, tuple(trust_types or ()), trust_code)
    with open_socket(host, port, token=token is not None) as opened:
        hosts = Hosts.of(host, opened.getsockname()[1], allow_host or ())
        with Signals(json=False), redirect_stdout(sys.stderr):  # models and custom rules may print
            subject = _subject(run, source, trust, _Wish(llm, method, calls))
        _serve(subject, limits, method, not no_run, _Site(host, opened, hosts, token), open_)


@dataclass(frozen=True)
class _Wish:
    """Who is to propose, by which method, and how often at most."""

    llm: str
    method: str
    calls: int


@dataclass(frozen=True)
class _Subject:
    """What is served: a problem, who proposes (if somebody does), and a run of it to begin with."""

    served: Served
    llm: str | None
    source: Source
    adopted: Adopted | None = None

    def about(self) -> dict[str, Any]:
        """Return what kept runs say they were made from, as those of `waysout find` do."""
        source = self.source
        return {
            **source.as_dict(), "digests": source.digests(), "llm": self.llm or "", "price": ""
        }  # fmt: skip


@dataclass(frozen=True)
class _Site:
    """Where it is served: an open socket, the names it goes by, and who may come in."""

    host: str
    opened: socket.socket
    hosts: Hosts
    token: str | None

    @property
    def port(self) -> int:
        """The port, also where any was asked for."""
        return int(self.opened.getsockname()[1])


def _need_packages() -> None:
    from waysout.errors import MissingExtra

    try:
        import fastapi  # noqa: F401
        import jinja2  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtra(error.name or "fastapi", "serve") from error


def _subject(run: str, source: Source, trust: Trust, wish: _Wish) -> _Subject:
    from waysout.errors import InputError
    from waysout.run.source import Source

    bare = source == Source("")
    if run and not bare:
        raise InputError("a run names its own table, model and card: leave the others out")
    if run:
        return _of_run(run, trust, wish)
    if source.data:
        return _of_source(source, trust, wish)
    if not bare:
        raise InputError("name the table: --data FILE (without any of these, the demo is served)")
    return _of_demo(wish)


def _of_demo(wish: _Wish) -> _Subject:
    from waysout.cli.demo import USUAL_APPLICANT, demo_problem, small_llm
    from waysout.datasets.queries import queries
    from waysout.run.source import Source
    from waysout.serve.served import served

    llm = _proposer(wish, lambda: small_llm(wish.calls, quiet=False))
    problem, dataset = demo_problem(quiet=False)
    people = queries("synthetic")
    first = people[USUAL_APPLICANT]
    examples = [first, *(number for number in people if number != first)]
    return _Subject(served(problem, dataset, examples), llm, Source("synthetic"))


def _of_source(source: Source, trust: Trust, wish: _Wish) -> _Subject:
    from waysout.cli.sources import open_source
    from waysout.llm.connect import DEFAULT
    from waysout.serve.served import served

    llm = _proposer(wish, lambda: DEFAULT)
    opened = open_source(source, trust)
    return _Subject(served(opened.problem, opened.known), llm, source)


def _of_run(name: str, trust: Trust, wish: _Wish) -> _Subject:
    """Open a run where its file says it was made; what it names is told before it is opened."""
    from waysout.cli.kept import check_unchanged, made_of, read_kept
    from waysout.report.words import clean
    from waysout.serve.adopted import read_run
    from waysout.store import Store, find_run

    path = find_run(name)
    with Store.read(path) as store:
        _check_says_of_what(store)
        kept = read_kept(store)
        for what, place in made_of(store).items():  # before any of it is opened
            say(f"the run's {what}: {clean(place)}")
        llm = wish.llm or _confirmed_llm(path, kept.llm)
        check_unchanged(path, kept.source)
        subject = _of_source(kept.source, trust, replace(wish, llm=llm))
        return replace(subject, adopted=read_run(store, subject.served.problem))


def _check_says_of_what(store: Store) -> None:
    from waysout.cli.kept import check_says_of_what
    from waysout.errors import InputError

    try:
        check_says_of_what(store)
    except InputError:
        raise InputError(
            f"{store.path} was not made by `waysout find` or `serve`, so it does not say which "
            "model and table to ask: serve those with --data, --model and --card; `waysout runs "
            "show` and `runs export --format html` show what it holds"
        ) from None


def _confirmed_llm(path: Path, llm: str) -> str:
    """Return a run's own LLM; one at an address that only a stranger's file names is refused."""
    from waysout.cli.places import must_confirm
    from waysout.errors import InputError

    if must_confirm(path, llm):
        raise InputError(
            f"{path} lies outside our folder of runs, and has rows, and your key if there is one, "
            f"sent to an address it names: if that is right, say so: --llm {shlex.quote(llm)}"
        )
    return llm


def _proposer(wish: _Wish, usual: Callable[[], str]) -> str | None:
    """Return the LLM, or none where the method asks none and nobody named one."""
    from waysout.cli import search
    from waysout.run.find import make_plan

    options: Options = {"method": wish.method, "calls": wish.calls}
    llm = wish.llm
    if not llm and make_plan(options).asks_llm:
        llm = usual()
    search.check_llm({**options, "llm": llm})
    return llm or None


def _serve(
    subject: _Subject, limits: ServiceLimits, method: str, keep_runs: bool, site: _Site, show: bool
) -> None:
    from waysout.serve.app import create_app
    from waysout.serve.hosts import url_of
    from waysout.serve.metrics import Metrics
    from waysout.serve.server import run_server
    from waysout.serve.service import Service
    from waysout.serve.tokens import Gate

    name, metrics = subject.served.problem.name, Metrics()
    service = Service(
        {name: subject.served}, subject.llm, limits=limits, method=method, keep_runs=keep_runs,
        watcher=metrics, about=subject.about(),
    )  # fmt: skip
    url = url_of(site.host, site.port)
    if subject.adopted is not None:
        url += _adopt(service, name, subject.adopted)
    gate = None if site.token is None else Gate(site.token, site.port)
    app = create_app(service, site.hosts, gate=gate, metrics=metrics)
    _tell(subject, site, url)
    if show:
        from threading import Thread
        from webbrowser import open as open_browser

        Thread(target=open_browser, args=[url], daemon=True).start()
    run_server(app, site.opened, service.close)
    say("stopped" + ("; `waysout runs list` shows what was kept" if keep_runs else ""))


def _adopt(service: Service, name: str, adopted: Adopted) -> str:
    """Give a run to the service, and return what leads the page to it."""
    search = service.adopt(name, adopted)
    return f"#search={search.id}"


def _tell(subject: _Subject, site: _Site, url: str) -> None:
    from waysout.llm.connect import is_simulated
    from waysout.serve.hosts import is_loopback

    llm = subject.llm
    stand_in = " (simulated: a stand-in, not a language model)" if is_simulated(llm) else ""
    say(f"decides: the model {subject.served.problem.oracle.name}")
    say(f"proposes: {llm or 'no LLM'}{stand_in}")
    if site.token is not None:
        say("the token is needed: the page asks for it; programs send Authorization: Bearer …")
    if not is_loopback(site.host):
        say(f"answers to {', '.join(site.hosts.names)}; --allow-host adds a name")
    typer.echo(f"open {url} in a browser; Ctrl-C ends it")
    sys.stdout.flush()
