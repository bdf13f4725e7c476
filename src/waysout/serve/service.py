"""The service itself: its problems, its LLM, and the searches that run and ran."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Self, get_type_hints

from waysout import __version__
from waysout.domain.budget import SETUP_ROWS
from waysout.errors import InputError, UnavailableError, WaysoutError, shown, unknown
from waysout.llm.base import Backend
from waysout.llm.connect import connect, stand_in
from waysout.methods import DEFAULT as DEFAULT_METHOD
from waysout.methods import make_method, method_class
from waysout.oracles.watchdog import MOST_HUNG, hung
from waysout.serve.concurrency import PacedExecutor, SharedBackend, in_thread_apart
from waysout.serve.errors import Full, NotFound, TooMany
from waysout.serve.forms import method_forms, problem_form, problem_line
from waysout.serve.limits import ServiceLimits
from waysout.serve.models import ContinueRequest, SearchRequest
from waysout.serve.problems import ServedProblem
from waysout.serve.saved_run import (
    SavedRun,
    delete_marked,
    delete_saved,
    find_saved,
    mark_deleted,
    unmark_deleted,
)
from waysout.serve.search_session import (
    SearchListener,
    SearchSession,
    ServiceContext,
)

SUGGESTED_CALLS = 6
# Other text settings name files and devices of this machine, which a request may not choose.
_OPEN_TEXTS = ("reward",)
# The largest number a request may set: this many times the default, or this number.
_MOST_TIMES, _LEAST_CEILING = 10, 100
# Threads in which searches compute, besides those in which they wait for the model.
_MORE_THREADS = 12
_LAST_EVENTS_SECONDS = 1.0
_CLOSING = "the service is shutting down"
# How long somebody who deletes a search waits for its end, as a model may hang.
_DELETING_SECONDS = 1.0

_log = logging.getLogger(__name__)


class Service:
    """Runs searches for many people at once. Use it as an asynchronous context manager.

    ``llm`` is a connection string, a backend (which the caller closes) or ``None``, for methods
    that can do without one. It is opened when the first search needs it; if that fails, the search
    ends with the reason, and the next one tries again. A page begins searches by itself, unless it
    is to ``wait`` for a button, or the model is behind an address.

    >>> import waysout
    >>> from waysout.serve import ServedProblem, Service, ServiceLimits
    >>> people = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, people.card)
    >>> problem = waysout.Problem.from_card(people.card, oracle, training=people.rows)
    >>> served = ServedProblem.of(problem, people)
    >>> service = Service({"loans": served}, limits=ServiceLimits(searches=5))
    >>> list(service.problems), service.method
    (['loans'], 'wayfinder')
    """

    def __init__(
        self,
        problems: Mapping[str, ServedProblem],
        llm: str | Backend | None = None,
        *,
        limits: ServiceLimits | None = None,
        method: str = DEFAULT_METHOD,
        keep_runs: bool = False,
        listener: SearchListener | None = None,
        about: Mapping[str, Any] | None = None,
        wait: bool = False,
    ) -> None:
        limits = limits or ServiceLimits()
        self.problems = dict(problems)
        self.limits = replace(limits, calls=0) if llm is None else limits
        self.method = method
        self.wait = wait
        self.llm_name = _name_of(llm)
        self.searches: dict[str, SearchSession] = {}
        """The searches that are kept, by id, the oldest first."""
        self.subscribers = 0
        """The number of open event streams, including those of deleted searches."""
        self._llm = llm
        self._backend: Backend | None = None
        self._slots = asyncio.Semaphore(1)  # as many as the backend takes, once it is open
        self._turn = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._tasks: dict[asyncio.Task[None], SearchSession] = {}  # a deleted search's, too
        self._erasing: dict[str, asyncio.Task[bool]] = {}
        self._restoring = asyncio.Lock()
        self._forgotten: set[str] = set()
        self._closing = False
        self._context = ServiceContext(
            self.limits, self._open_llm, self.llm_name, keep_runs, listener, about or {},
            # One each: whoever looks at a search waits for the model with no other.
            ThreadPoolExecutor(self.limits.kept, "search"),
        )  # fmt: skip
        self._check_method(method, {})

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        # A call that a search was stopped in goes on, one for each model.
        waiting = self.limits.searches + len(self.problems)
        loop.set_default_executor(PacedExecutor(loop, waiting + _MORE_THREADS))
        if self._context.keep_runs:
            await in_thread_apart(delete_marked)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop every search, end every event stream, close the LLM. May be called twice."""
        self._closing = True
        for search in self.searches.values():
            search.stop(_CLOSING)
        if self._tasks:  # followers see how it ended, unless a model hangs
            await asyncio.wait(self._tasks, timeout=_LAST_EVENTS_SECONDS)
        for search in self.searches.values():
            search.log.close("gone")
        await asyncio.gather(*self._tasks, *self._erasing.values(), return_exceptions=True)
        await self._stack.aclose()

    async def _open_llm(self) -> SharedBackend:
        """Return the LLM for one part of a search."""
        async with self._opening:
            if self._backend is None:
                assert self._llm is not None
                given = self._llm
                if isinstance(given, str):
                    given = await self._stack.enter_async_context(connect(given))
                self._backend, self._slots = given, asyncio.Semaphore(given.parallel)
            return SharedBackend(self._backend, self._slots, self._turn)

    # Views -------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """The number of searches under way, including those about to stop."""
        # A part that has told its end may still be filing pins: no reason to refuse the next.
        return len({search.id for search in self._tasks.values() if search.running})

    def join(self) -> None:
        """Count one more event stream, or raise `Full`."""
        if self.subscribers >= self.limits.subscribers:
            raise Full(f"{self.limits.subscribers} streams of events are open, and no more may be")
        self.subscribers += 1

    def leave(self) -> None:
        """Count one event stream less."""
        self.subscribers -= 1

    def health(self) -> dict[str, Any]:
        """Return that the service is up, and how busy it is."""
        counts = {"running": self.running, "searches": len(self.searches), "hung": hung()}
        if counts["hung"] >= MOST_HUNG:
            raise UnavailableError(
                f"{counts['hung']} calls of the model hang, and no more are made: restart"
            )
        return {"status": "ok", "version": __version__, **counts}

    def problem(self, name: str) -> ServedProblem:
        """Return a problem by its name."""
        if name not in self.problems:
            raise NotFound(unknown("problem", name, self.problems))
        return self.problems[name]

    def problem_list(self) -> dict[str, Any]:
        """Return all problems in short."""
        lines = [{**problem_line(p.problem), "name": name} for name, p in self.problems.items()]
        return {"problems": lines, "llm": self.llm_name, "stand_in": stand_in(self.llm_name)}

    def problem_view(self, name: str) -> dict[str, Any]:
        """Return all that a page needs to ask for a row and to start a search."""
        served, limits = self.problem(name), self.limits
        return {
            **problem_form(served.problem),
            "name": name,
            "methods": method_forms(self._llm is not None, served.known is not None),
            "method": self.method,
            "llm": self.llm_name,
            "stand_in": stand_in(self.llm_name),
            "limits": {
                **{
                    n: getattr(limits, n)
                    for n in ("calls", "oracle_rows", "part_rows", "settling_rows")
                },
                "setup_rows": SETUP_ROWS,
            },
            "suggested_calls": min(SUGGESTED_CALLS, limits.calls),
            "instant": not (self.wait or served.remote),
            "llm_local": _is_local(self._llm),
            "people": len(served.rows),
        }

    def search(self, id: str) -> SearchSession:
        """Return a search by its id, among those that are kept here."""
        if id not in self.searches:
            raise NotFound("there is no such search (any more): start one with POST /api/searches")
        return self.searches[id]

    async def open(self, id: str) -> SearchSession:
        """Return a search by its id; one of before a restart is read from the run it left.

        The model is not asked: what it said then stands, until somebody looks (see `find`).
        """
        may_be_on_file = self._context.keep_runs and not self._closing
        if id not in self.searches and may_be_on_file and id not in self._forgotten:
            async with self._restoring:
                if id not in self.searches and id not in self._forgotten:
                    await self._restore(id)
        return self.search(id)

    async def find(self, id: str) -> SearchSession:
        """Return a search by its id, if what it says is true of today's model, which is asked."""
        found = await self.open(id)
        if not await found.refresh():
            self._drop(id)
            self._forgotten.add(id)
        return self.search(id)

    async def _restore(self, id: str) -> None:
        about = self._context.about
        found = await in_thread_apart(find_saved, id, self.problems, about)
        if found is not None:
            self.adopt(*found, id=id)

    # Searches ----------------------------------------------------------------------------------

    def check(self, request: SearchRequest) -> ServedProblem:
        """Return the problem of a request, or raise if the service cannot search as requested.

        A method may take seconds to load the first time: call this in a thread.
        """
        if request.problem not in self.problems:
            raise InputError(unknown("problem", request.problem, self.problems))
        served = self.problems[request.problem]
        self._check_method(request.method or self.method, request.settings, served)
        return served

    def start(self, request: SearchRequest, served: ServedProblem) -> SearchSession:
        """Begin a search; ``served`` is what `check` returned for the request."""
        limits, query = self.limits, served.problem.row(request.row)
        request = request.model_copy(update={"method": request.method or self.method})
        search = SearchSession(self._context, served, query, request)
        calls = limits.calls if request.calls is None else request.calls
        rows = limits.oracle_rows if request.oracle_rows is None else request.oracle_rows
        self._begin(search, ContinueRequest(locks=request.locks, calls=calls, oracle_rows=rows))
        self._keep(search)
        return search

    def go_on(self, id: str, request: ContinueRequest) -> SearchSession:
        """Begin the next part of a search."""
        search = self.search(id)
        self._begin(search, request)
        return search

    def adopt(self, name: str, run: SavedRun, id: str | None = None) -> SearchSession:
        """Open a saved run as a search that has ended, and that may be continued."""
        served, query, locks = self.problems[name], run.result.query, run.read_locks()
        request = SearchRequest(problem=name, row=dict(query), method=self.method)
        search = SearchSession(self._context, served, served.problem.row(query), request, id)
        search.take_over(run, locks)
        self._keep(search)
        return search

    async def delete(self, id: str) -> bool:
        """Forget a search, and what is on file of it; if it runs, it is stopped.

        Returns whether all of it is gone. Where a model hangs, that takes until its part has ended,
        and nobody waits for it. What cannot be deleted raises, and may be tried again.
        """
        if not self._context.keep_runs:
            self._drop(id)
            return True
        async with self._restoring:  # or what is being read just now would come back
            search = self._drop(id) if id in self.searches else None
            if search is not None:  # before it is promised
                await in_thread_apart(mark_deleted, id)
            task = self._erasing.get(id) or self._begin_erasing(id, search)
        await asyncio.wait([task], timeout=_DELETING_SECONDS)
        if not task.done():
            return False
        await in_thread_apart(unmark_deleted, id)
        if not task.result() and search is None:
            self.search(id)  # there is none
        return True

    def _begin_erasing(self, id: str, search: SearchSession | None) -> asyncio.Task[bool]:
        self._forgotten.add(id)
        task = self._erasing[id] = asyncio.create_task(self._erase(id, search))
        task.add_done_callback(partial(_note_failure, id))
        return task

    async def _erase(self, id: str, search: SearchSession | None) -> bool:
        """Delete the runs of a search, when nothing is written to them any more."""
        try:
            if search is not None:
                await search.written()
            found = await in_thread_apart(delete_saved, id)
            await in_thread_apart(unmark_deleted, id)
            return found
        finally:
            del self._erasing[id]
            self._forgotten.discard(id)

    def _drop(self, id: str) -> SearchSession:
        search = self.search(id)
        search.close()
        del self.searches[id]
        return search

    def _begin(self, search: SearchSession, request: ContinueRequest) -> None:
        if self._closing:
            raise Full(_CLOSING)
        if not search.running and self.running >= self.limits.searches:
            raise TooMany(f"{self.running} searches are running, and no more may: try again soon")
        task = search.begin(request.locks, request.calls, request.oracle_rows)
        self._tasks[task] = search
        task.add_done_callback(self._tasks.pop)

    def _keep(self, search: SearchSession) -> None:
        """Keep a search; the oldest ended ones make room."""
        ended = [search.id for search in self.searches.values() if not search.running]
        for id in ended[: max(0, len(self.searches) + 1 - self.limits.kept)]:
            self._drop(id)
        self.searches[search.id] = search

    def _check_method(
        self, name: str, settings: Mapping[str, Any], served: ServedProblem | None = None
    ) -> None:
        """Raise if the service cannot run a method, or a request may not choose its settings."""
        made = make_method(name, settings)
        hints, usual = get_type_hints(method_class(name)), make_method(name).settings()
        for setting in settings:
            value = made.settings()[setting]
            if hints[setting] is str and setting not in _OPEN_TEXTS:
                raise InputError(f"{name}: {setting} cannot be set by a request")
            is_number = isinstance(value, (int, float))
            most = max(_LEAST_CEILING, _MOST_TIMES * usual[setting]) if is_number else 0
            if is_number and abs(value) > most:
                raise InputError(f"{name}: {setting} is at most {most:g} here, not {shown(value)}")
        if made.needs_llm and made.needs_calls and self._llm is None:
            raise InputError(f"the method {name!r} asks an LLM, and this service has none")
        if served is None:
            return
        if made.needs_known and served.known is None:
            raise InputError(f"the method {name!r} learns from a table, and this problem has none")
        made.prepare()


def _note_failure(id: str, task: asyncio.Task[bool]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        # Whoever knows a search's id may open it: that is for no log.
        _log.warning("a search was not deleted: %s", str(error).replace(id, "…"))


def _is_local(llm: str | Backend | None) -> bool:
    """Whether there is an LLM, and no prompt leaves this machine for it."""
    name = llm.name if isinstance(llm, Backend) else llm
    return name is not None and not name.startswith("openai:")


def _name_of(llm: str | Backend | None) -> str | None:
    """Return an LLM's name, or raise if the connection string is invalid."""
    if llm is None or isinstance(llm, Backend):
        return llm.name if llm else None
    try:
        return connect(llm).name
    except InputError:
        raise
    except WaysoutError:  # a package or a file is missing: each search says so until it is there
        return llm.partition("@")[0]
