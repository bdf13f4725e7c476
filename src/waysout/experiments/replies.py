"""One LLM for all searches: what it has said is on file, and is never asked again."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from dataclasses import dataclass
from weakref import WeakValueDictionary

from waysout.experiments.results import Results
from waysout.llm.base import Backend, Reply, Request


@dataclass
class Tally:
    """What one search got from its LLM: seconds of replies, and how many were on file."""

    llm_seconds: float = 0.0
    from_file: int = 0

    def add(self, reply: Reply, *, from_file: bool) -> None:
        """Count a reply."""
        self.llm_seconds += reply.latency
        self.from_file += from_file


# Whose search is asking: each runs in a task of its own, which keeps what was set as it began.
TALLY: ContextVar[Tally] = ContextVar("tally")


class SharedReplies(Backend):
    """Passes requests on, so many at once, and keeps every reply before anybody is told.

    Two searches that ask the same share one reply. Those that are measured alone (``apart``) share
    none with others, whose replies took as long as a crowd does. The backend stays open.
    """

    def __init__(
        self, backend: Backend, results: Results, *, in_flight: int = 0, apart: bool = False
    ) -> None:
        self.backend = backend
        self.name, self.form = backend.name, backend.form
        self.paid = 0
        """How many requests were answered by the LLM itself."""
        self.last_reply = float("-inf")
        """When that was last, by the monotonic clock."""
        self._results = results
        self._filed_as = f"{backend.name} alone" if apart else backend.name
        self._in_flight = in_flight
        self._width = 0
        self._free = asyncio.Semaphore(0)
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def parallel(self) -> int:  # type: ignore[override]
        """How many requests are under way at once: as told, else what the backend takes by now.

        One that loads a model may know better when it has.
        """
        return self._in_flight or self.backend.parallel

    async def complete(self, request: Request) -> Reply:
        """Return the reply on file, else ask for it and file it."""
        key = request.key(self._filed_as)
        lock = self._asking.get(key) or asyncio.Lock()
        self._asking[key] = lock
        async with lock:  # whoever asks the same meanwhile finds it on file
            reply = self._results.reply(key)
            on_file = reply is not None
            if reply is None:
                reply = await self._ask(key, request)
        if tally := TALLY.get(None):
            tally.add(reply, from_file=on_file)
        return reply

    async def _ask(self, key: str, request: Request) -> Reply:
        while self._width < self.parallel:
            self._width += 1
            self._free.release()
        async with self._free:
            reply = await self.backend.complete(request)
        self.paid += 1
        self.last_reply = time.monotonic()
        self._results.keep_reply(key, self.name, reply)
        return reply
