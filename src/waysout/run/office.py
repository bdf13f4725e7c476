"""What all searches of a run share: the problem, the LLM, the oracle's desk and the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.budget import Ledger
from waysout.domain.known import Known
from waysout.domain.problem import Problem
from waysout.errors import InputError
from waysout.llm.base import Reply, Request
from waysout.llm.call import Caller
from waysout.oracles.answers import ask_checked
from waysout.oracles.cache import CachedOracle
from waysout.prompts.propose import Proposer
from waysout.prompts.render import Topic
from waysout.run.desk import Desk
from waysout.run.plan import Plan, describe
from waysout.run.progress import OnProgress
from waysout.store import Store

# Rows come back within one search and among people who are alike; more would fill the memory.
REMEMBERED_ROWS = 100_000


class Office:
    """The shared part of a run. It lives within one event loop."""

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        *,
        caller: Caller | None = None,
        known: Known | None = None,
        store: Store | None = None,
        in_flight: int | None = None,
        probe_rows: int = 0,
        progress: OnProgress | None = None,
    ) -> None:
        self.problem = problem
        self.plan = plan
        self.caller = caller
        self.known = known
        self.store = store
        self.probe_rows = probe_rows
        self.progress = progress
        parallel = caller.backend.parallel if caller else 1
        self.most_in_flight = in_flight or parallel
        self.in_flight = asyncio.Semaphore(self.most_in_flight)
        oracle = problem.oracle
        cached = oracle if isinstance(oracle, CachedOracle) else None
        remembering = cached or CachedOracle(oracle, max_rows=REMEMBERED_ROWS)
        lock = asyncio.Lock()
        self.desk = Desk(remembering.ask, lock)
        self.past_memory = Desk(partial(ask_checked, remembering.oracle), lock)
        """Where the model itself is asked, past what is remembered."""
        self.stopped = ""
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
        return {**self.plan.as_dict(self.llm), **describe(self.problem)}

    @cached_property
    def approved(self) -> NDArray[np.float64] | None:
        """The rows known to be approved, encoded, to tell how plausible options are."""
        if self.known is None:
            return None
        pairs = zip(self.known.rows, self.known.labels, strict=True)
        return self.problem.schema.encode([row for row, label in pairs if label])

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

    def stop(self, reason: str) -> None:
        """End every search, with what it has found so far."""
        self.stopped = self.stopped or reason
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()


class Stop:
    """Ends a run from any thread, such as a signal's; what was found so far is the result."""

    def __init__(self) -> None:
        self.reason = ""
        self._end: Callable[[], object] | None = None

    def attach(self, office: Office) -> None:
        """Belong to a run; called within its event loop."""
        loop = asyncio.get_running_loop()
        self._end = lambda: loop.call_soon_threadsafe(office.stop, self.reason)
        if self.reason:
            office.stop(self.reason)

    def __call__(self, reason: str) -> None:
        """Stop, and say why."""
        self.reason = self.reason or reason
        if self._end is not None:
            with suppress(RuntimeError):  # the run is over, and its loop is closed
                self._end()
