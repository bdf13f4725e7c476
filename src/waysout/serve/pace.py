"""How many searches share one event loop with everybody else who asks it something.

Each answer wakes a search, which then thinks for some milliseconds. Were the answers of twenty
handed over at once, a request that comes just then would wait for all of them; so they are handed
over one by one, and the loop looks around in between.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

from waysout.llm.base import Backend, Reply, Request

P = ParamSpec("P")
T = TypeVar("T")

_LONGEST_WAIT = 1.0  # seconds; a loop that is busy for longer has other worries


class PacedThreads(ThreadPoolExecutor):
    """Threads whose results reach the event loop one by one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        super().__init__(count, "waysout")
        self._loop = loop
        self._turn = threading.Lock()

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Do some work; its result waits for its turn."""

        def paced() -> T:
            try:
                return work(*args, **kwargs)
            finally:
                self._wait_for_turn()

        return super().submit(paced)

    def _wait_for_turn(self) -> None:
        looked = threading.Event()
        with self._turn, suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(looked.set)
            looked.wait(_LONGEST_WAIT)


class Turns:
    """A gate for what is answered without a thread: each passes when the loop has gone round."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        """Wait for one's turn."""
        async with self._turn:
            await asyncio.sleep(0)


class SharedLLM(Backend):
    """A backend that many searches ask: no more requests at once than it is good for.

    Each has its own of these, with one ``room`` and ``turns`` for all, and ``asked`` counts what is
    to be paid: replies, and requests that nobody waited for any more. Whoever answers them works,
    and sends a bill, all the same. A request that failed costs nothing.
    """

    def __init__(self, inner: Backend, room: asyncio.Semaphore, turns: Turns) -> None:
        self.inner = inner
        self.name = inner.name
        self.form = inner.form
        self.parallel = inner.parallel
        self.asked = 0
        self._room = room
        self._turns = turns

    async def complete(self, request: Request) -> Reply:
        """Answer one request, when there is room."""
        async with self._room:
            # Before it is asked: a reply that came is paid for, and must not be lost in a queue.
            await self._turns.wait()
            self.asked += 1
            try:
                return await self.inner.complete(request)
            except Exception:
                self.asked -= 1
                raise
