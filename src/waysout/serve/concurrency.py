"""How many searches share one event loop, one LLM and one model with everybody else.

Each answer wakes a search, which then computes for some milliseconds. If the answers of twenty
arrived at once, a request that comes just then (a slider that moves) would wait for all of them; so
they arrive one by one, and the loop serves others in between.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

from waysout.domain.oracle import Answers, Oracle
from waysout.domain.schema import Row
from waysout.llm.base import Backend, Reply, Request
from waysout.oracles.answers import ask_checked

P = ParamSpec("P")
T = TypeVar("T")

_LONGEST_WAIT = 1.0  # seconds; a loop that is busy for longer has other worries


class PacedExecutor(ThreadPoolExecutor):
    """Threads whose results reach the event loop one by one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        super().__init__(count, "waysout")
        self._loop = loop
        self._turn = threading.Lock()

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call in a thread; its result waits until the loop has gone round."""

        def paced() -> T:
            try:
                return work(*args, **kwargs)
            finally:
                looked = threading.Event()
                with self._turn, suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(looked.set)
                    looked.wait(_LONGEST_WAIT)

        return super().submit(paced)


class SharedBackend(Backend):
    """A backend that many searches ask, within the number of requests it takes at once.

    Each search has its own of these; ``slots`` and ``turn`` are shared. ``asked`` counts what is to
    be paid: replies, and requests whose search was stopped, because the server works and bills all
    the same. A request that failed costs nothing.
    """

    def __init__(self, inner: Backend, slots: asyncio.Semaphore, turn: asyncio.Lock) -> None:
        self.inner = inner
        self.name = inner.name
        self.form = inner.form
        self.parallel = inner.parallel
        self.notes_sent = inner.notes_sent
        self.asked = 0
        self._slots = slots
        self._turn = turn

    async def complete(self, request: Request) -> Reply:
        """Answer one request, when there is a slot."""
        async with self._slots:
            # Before the request: a reply is paid for, and must not be lost in a queue.
            async with self._turn:
                await asyncio.sleep(0)
            self.asked += 1
            try:
                return await self.inner.complete(request)
            except Exception:
                self.asked -= 1
                raise


class SerializedOracle:
    """An oracle that answers one call at a time: not every model can be asked twice at once."""

    watches = True

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.name = oracle.name
        self.labels_only = oracle.labels_only
        self._lock = threading.Lock()

    def ask(self, rows: Sequence[Row]) -> Answers:
        """Return the answer for each row."""
        with self._lock:
            return ask_checked(self.oracle, rows)
