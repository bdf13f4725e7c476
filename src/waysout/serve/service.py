"""The service itself: its problems, its LLM, and the searches that run and ran."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Self, get_type_hints

from pydantic import ValidationError

from waysout import __version__
from waysout.errors import InputError, IntegrityError, WaysoutError, shown, unknown
from waysout.llm.base import Backend
from waysout.llm.connect import connect, is_simulated
from waysout.methods import DEFAULT as DEFAULT_METHOD
from waysout.methods import make_method, method_class
from waysout.serve.adopted import Adopted
from waysout.serve.errors import Full, NotFound, TooMany
from waysout.serve.forms import method_forms, problem_form, problem_line
from waysout.serve.limits import ServiceLimits
from waysout.serve.live import House, LiveSearch, Watcher
from waysout.serve.models import ContinueRequest, Locks, SearchRequest
from waysout.serve.pace import PacedThreads, SharedLLM, Turns
from waysout.serve.served import Served

SUGGESTED_CALLS = 6
# Other texts name files and devices of this machine, which are no business of a request.
_OPEN_TEXTS = ("reward",)
# Whoever sets a number may set it to so many times the usual one, or to so much.
_MOST_TIMES, _LEAST_CEILING = 10, 100
# Besides the searches, somebody decides, lists and learns.
_MORE_THREADS = 12
_LAST_WORDS = 1.0  # seconds
_CLOSING = "the service is shutting down"


class Service:
    """Runs searches for many people at once. Use it as an asynchronous context manager.

    ``llm`` is a connection string, a backend (which stays open for whoever gave it) or ``None``:
    then methods that can do without an LLM do. It is opened when the first search wants it; one
    that cannot be opened ends that search with the reason, and is tried again by the next.
    """

    def __init__(
        self,
        problems: Mapping[str, Served],
        llm: str | Backend | None = None,
        *,
        limits: ServiceLimits | None = None,
        method: str = DEFAULT_METHOD,
        keep_runs: bool = False,
        watcher: Watcher | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        limits = limits or ServiceLimits()
        self.problems = dict(problems)
        self.limits = replace(limits, calls=0) if llm is None else limits
        self.method = method
        self.llm_name = _name_of(llm)
        self.searches: dict[str, LiveSearch] = {}
        """Those that are kept, by id, the oldest first."""
        self.subscribers = 0
        """How many streams of events are open, those of searches that are gone included."""
        self._llm = llm
        self._backend: Backend | None = None
        self._room = asyncio.Semaphore(1)  # of the size that the backend says
        self._turns = Turns()
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._has_threads = False
        self._house = House(
            self.limits, self._open_llm, self.llm_name, keep_runs, watcher, about or {}
        )
        self._check_method(method, {})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop every search, end every stream of events, let go of the LLM. Twice does no harm."""
        self._closing = True
        for search in self.searches.values():
            search.stop(_CLOSING)
        if self._tasks:  # those who follow hear how it ended, unless a model hangs
            await asyncio.wait(self._tasks, timeout=_LAST_WORDS)
        for search in self.searches.values():
            search.log.close("gone")
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def _open_llm(self) -> SharedLLM:
        """Return the LLM for one part of a search."""
        async with self._opening:
            if self._backend is None:
                assert self._llm is not None
                given = self._llm
                if isinstance(given, str):
                    given = await self._stack.enter_async_context(connect(given))
                self._backend, self._room = given, asyncio.Semaphore(given.parallel)
            return SharedLLM(self._backend, self._room, self._turns)

    # What there is -----------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """How many searches are under way, those that are about to stop included."""
        return len(self._tasks)

    def join(self) -> None:
        """Count one who follows, or raise `Full`."""
        if self.subscribers >= self.limits.subscribers:
            raise Full(f"{self.limits.subscribers} streams of events are open, and no more may be")
        self.subscribers += 1

    def leave(self) -> None:
        """Count one less."""
        self.subscribers -= 1

    def health(self) -> dict[str, Any]:
        """Return that the service is there, and how busy it is."""
        return {
            "status": "ok",
            "version": __version__,
            "running": self.running,
            "searches": len(self.searches),
        }

    def problem(self, name: str) -> Served:
        """Return a problem by its name."""
        if name not in self.problems:
            raise NotFound(unknown("problem", name, self.problems))
        return self.problems[name]

    def problem_list(self) -> dict[str, Any]:
        """Return all problems in a line each."""
        lines = [
            {**problem_line(served.problem), "name": name} for name, served in self.problems.items()
        ]
        return {"problems": lines, **self._proposer()}

    def problem_view(self, name: str) -> dict[str, Any]:
        """Return all that a page needs to ask for a row and to start a search."""
        served = self.problem(name)
        limits = self.limits
        return {
            **problem_form(served.problem),
            "name": name,
            "methods": method_forms(self._llm is not None, served.known is not None),
            "method": self.method,
            **self._proposer(),
            "limits": {
                "calls": limits.calls,
                "oracle_rows": limits.oracle_rows,
                "part_rows": limits.part_rows,
            },
            "suggested_calls": min(SUGGESTED_CALLS, limits.calls),
        }

    def _proposer(self) -> dict[str, Any]:
        return {"llm": self.llm_name, "simulated": is_simulated(self.llm_name)}

    def search(self, id: str) -> LiveSearch:
        """Return a search by its id."""
        if id not in self.searches:
            raise NotFound("there is no such search (any more): start one with POST /api/searches")
        return self.searches[id]

    # Searches ----------------------------------------------------------------------------------

    def check(self, request: SearchRequest) -> Served:
        """Return the problem of a request, or raise where it or the method is not for us.

        The first time, a method may take seconds to load: do that in a thread.
        """
        if request.problem not in self.problems:
            raise InputError(unknown("problem", request.problem, self.problems))
        served = self.problems[request.problem]
        self._check_method(request.method or self.method, request.settings, served)
        return served

    def start(self, request: SearchRequest) -> LiveSearch:
        """Begin a search."""
        served = self.check(request)
        query = served.problem.row(request.row)
        request = request.model_copy(update={"method": request.method or self.method})
        search = LiveSearch(self._house, served, query, request)
        limits = self.limits
        calls = limits.calls if request.calls is None else request.calls
        rows = limits.oracle_rows if request.oracle_rows is None else request.oracle_rows
        self._begin(search, ContinueRequest(locks=request.locks, calls=calls, oracle_rows=rows))
        self._make_room()
        self.searches[search.id] = search
        return search

    def go_on(self, id: str, request: ContinueRequest) -> LiveSearch:
        """Begin the next part of a search."""
        search = self.search(id)
        self._begin(search, request)
        return search

    def adopt(self, name: str, run: Adopted) -> LiveSearch:
        """Take a run on file in as a search that has ended; it may be gone on with."""
        served, query = self.problems[name], run.result.query
        request = SearchRequest(problem=name, row=dict(query), method=self.method)
        search = LiveSearch(self._house, served, served.problem.row(query), request)
        search.take_over(run.result, run.memory, _read_locks(run.locks), run.day)
        self._make_room()
        self.searches[search.id] = search
        return search

    def delete(self, id: str) -> None:
        """Forget a search; if it runs, it is stopped."""
        self.search(id).close()
        del self.searches[id]

    def _begin(self, search: LiveSearch, request: ContinueRequest) -> None:
        if self._closing:
            raise Full(_CLOSING)
        if not search.running and self.running >= self.limits.searches:
            raise TooMany(f"{self.running} searches are running, and no more may: try again soon")
        task = search.begin(request.locks, request.calls, request.oracle_rows)
        self._take_threads()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take_threads(self) -> None:
        """See to it that searches, which wait for the model in threads, leave some to others."""
        if not self._has_threads:
            loop = asyncio.get_running_loop()
            loop.set_default_executor(PacedThreads(loop, self.limits.searches + _MORE_THREADS))
            self._has_threads = True

    def _make_room(self) -> None:
        ended = [search.id for search in self.searches.values() if not search.running]
        for id in ended[: max(0, len(self.searches) + 1 - self.limits.kept)]:
            self.delete(id)

    def _check_method(
        self, name: str, settings: Mapping[str, Any], served: Served | None = None
    ) -> None:
        """Raise where a method is not for this service, or its settings not for a request."""
        made = make_method(name, settings)
        _check_settings(name, made.settings(), settings)
        if made.needs_llm and made.needs_calls and self._llm is None:
            raise InputError(f"the method {name!r} asks an LLM, and this service has none")
        if made.needs_known and served is not None and served.known is None:
            raise InputError(f"the method {name!r} learns from a table, and this problem has none")
        if served is not None:
            made.prepare()


def _check_settings(name: str, made: Mapping[str, Any], asked: Iterable[str]) -> None:
    """Raise where a request sets what is not for it to set, or numbers that would stop us all."""
    hints, usual = get_type_hints(method_class(name)), make_method(name).settings()
    for setting in asked:
        value = made[setting]
        if hints[setting] is str and setting not in _OPEN_TEXTS:
            raise InputError(f"{name}: {setting} cannot be set by a request")
        if isinstance(value, (int, float)):
            most = max(_LEAST_CEILING, _MOST_TIMES * usual[setting])
            if abs(value) > most:
                raise InputError(f"{name}: {setting} is at most {most:g} here, not {shown(value)}")


def _read_locks(table: Mapping[str, Any]) -> Locks:
    """Return the locks that a run on file holds; somebody may have written anything there."""
    try:
        return Locks.model_validate(table)
    except ValidationError as error:
        raise IntegrityError(
            f"the run's locks cannot be read: {error.errors()[0]['msg']}"
        ) from None


def _name_of(llm: str | Backend | None) -> str | None:
    """Return an LLM's name; a connection string that cannot be one is refused now."""
    if llm is None or isinstance(llm, Backend):
        return llm.name if llm else None
    try:
        return connect(llm).name
    except InputError:
        raise
    except WaysoutError:  # a package or a file is missing, which may come; told by each search
        return llm.partition("@")[0]
