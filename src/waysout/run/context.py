"""What all searches of a run share: the problem, the LLM, the oracle's batcher and the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.budget import Ledger
from waysout.domain.known import Known, approved
from waysout.domain.memory import Memory
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.errors import InputError, WaysoutError
from waysout.llm.base import Reply, Request
from waysout.llm.call import Caller
from waysout.oracles.answers import ask_checked
from waysout.oracles.cache import CachedOracle
from waysout.oracles.probe import probe
from waysout.prompts.propose import Proposer
from waysout.prompts.render import Topic
from waysout.run.batcher import OracleBatcher
from waysout.run.plan import Plan, describe, wording
from waysout.run.progress import OnProgress
from waysout.store import Store

# Rows come back within one search and among people who are alike; more would fill the memory.
REMEMBERED_ROWS = 100_000
PROBED = "probed"


class RunContext:
    """The shared part of a run. It lives within one event loop."""

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        *,
        caller: Caller | None = None,
        known: Known | None = None,
        memory: Memory | None = None,
        store: Store | None = None,
        in_flight: int | None = None,
        progress: OnProgress | None = None,
        steady: bool | None = None,
        isolate: bool = False,
    ) -> None:
        """Store what is given.

        ``steady`` is what trying the oracle has shown, where somebody has tried it already. With
        ``isolate``, a search that ends in an error nobody foresaw, or whose request the LLM
        refuses, is that person's failure; else it ends the run.
        """
        self.problem = problem
        self.plan = plan
        self.caller = caller
        self.known = known
        self.memory = memory
        self.store = store
        self.progress = progress
        self.isolate = isolate
        parallel = caller.backend.parallel if caller else 1
        self.most_in_flight = in_flight or parallel
        self.in_flight = asyncio.Semaphore(self.most_in_flight)
        self.thinking = asyncio.Lock()
        oracle = problem.oracle
        cached = oracle if isinstance(oracle, CachedOracle) else None
        remembering = cached or CachedOracle(oracle, max_rows=REMEMBERED_ROWS)
        lock = asyncio.Lock()
        self.batcher = OracleBatcher(remembering.ask, lock)
        self.past_memory = OracleBatcher(partial(ask_checked, remembering.oracle), lock)
        """Where the model itself is asked, past what is remembered."""
        self.stopped = ""
        self.failure: Exception | None = None
        """What ended the run, where it was neither its end nor somebody's wish."""
        on_file = [e for e in store.events() if e.kind == PROBED] if store else []
        self.steady = all(event.detail.get("stable", True) for event in on_file)
        """Whether the oracle says the same of a row each time, as far as was tried."""
        self._probed = bool(on_file)
        if steady is None and memory is not None:
            steady = memory.steady
        if steady is not None:  # the model was tried then
            self._probed, self.steady = True, self.steady and steady
        self._probing = asyncio.Lock()
        self._refusal: Exception | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def llm(self) -> str | None:
        """The name of the LLM, where the method asks one."""
        return self.caller.backend.name if self.caller else None

    @cached_property
    def proposer(self) -> Proposer | None:
        """What puts the questions, where the method asks an LLM."""
        if self.caller is None:
            return None
        return Proposer(Topic.of_problem(self.problem), self.caller.backend.form, self.plan.style)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What results say about how they were made."""
        return {
            **self.plan.as_dict(self.llm),
            **describe(self.problem),
            "wording": wording(self.problem.schema),
        }

    @cached_property
    def approved(self) -> NDArray[np.float64] | None:
        """The rows known to be approved, encoded, to tell how plausible options are."""
        return None if self.known is None else approved(self.known, self.problem.schema).matrix

    async def probe(self, query: Row) -> int:
        """Try the oracle before anything is spent on it; returns the rows that took.

        The first who comes waits for it, and pays. An oracle that is refused is so for everybody.
        """
        async with self._probing:
            if self._refusal is not None:
                raise self._refusal
            if self._probed or self.stopped:
                return 0
            known = self.known
            rows, labels = ([query], None) if known is None else (known.rows, known.labels)
            try:
                report = await asyncio.to_thread(probe, self.problem.oracle, rows, labels=labels)
            except Exception as error:
                self._refusal = error
                raise
            self._probed, self.steady = True, report.stable
            if self.memory is not None:
                self.memory.steady = report.stable
            return report.rows_asked

    async def call(self, request: Request, ledger: Ledger) -> Reply:
        """Ask the LLM."""
        if self.caller is None:
            raise InputError(f"{self.plan.name} asked an LLM, and was given none")
        return await self.caller.call(request, ledger)

    def running(self, task: asyncio.Task[Any] | None) -> None:
        """Know of a search that has begun, so that it can be stopped.

        One that has not would end without a result; it looks for itself whether it may begin.
        """
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def fail(self, error: Exception) -> None:
        """End every search for an error, which is raised when all have ended."""
        if not self.stopped:
            self.failure = error
        named = isinstance(error, WaysoutError)
        self.stop(str(error) if named else f"{type(error).__name__}: {error}")

    def stop(self, reason: str) -> None:
        """End every search, with what it has found so far; once, so that they can hand it over."""
        if self.stopped:
            return
        self.stopped = reason
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()


class Stop:
    """Ends a run from any thread, such as a signal's; what was found so far is the result."""

    def __init__(self) -> None:
        self.reason = ""
        self._end: Callable[[], object] | None = None

    def attach(self, context: RunContext) -> None:
        """Belong to a run; called within its event loop."""
        loop = asyncio.get_running_loop()
        self._end = lambda: loop.call_soon_threadsafe(context.stop, self.reason)
        if self.reason:
            context.stop(self.reason)

    def __call__(self, reason: str) -> None:
        """Stop, and say why."""
        self.reason = self.reason or reason
        if self._end is not None:
            with suppress(RuntimeError):  # the run is over, and its loop is closed
                self._end()
