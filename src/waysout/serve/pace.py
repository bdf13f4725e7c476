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
