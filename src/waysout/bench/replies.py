"""One LLM for all searches: what it has said is on file, and is never asked again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from weakref import WeakValueDictionary

from waysout.bench.results import Results
from waysout.llm.base import Backend, Reply, Request

LAST_SECONDS = 3.0
"""How long replies under way are waited for at the end: a Ctrl-C has little more patience."""


@dataclass
class ReplyTally:
    """What one search got from its LLM: seconds of replies, and how many were on file.

    ``apart`` is the arm, the only one to share replies with, of a search that is measured alone.
    """

    apart: str = ""
    llm_seconds: float = 0.0
    from_file: int = 0

    def add(self, reply: Reply, *, from_file: bool) -> None:
        """Count a reply."""
        self.llm_seconds += reply.latency
        self.from_file += from_file


# Whose search is asking: each runs in a task of its own, which keeps what was set as it began.
TALLY: ContextVar[ReplyTally] = ContextVar("tally")


class SharedReplies(Backend):
    """Passes requests on, so many at once, and keeps every reply before anybody is told.

    Two searches that ask the same share one reply. An arm that is measured alone shares none with
    others: what it did not wait for itself tells nothing of what it costs. A reply under way is
    kept also where its search is stopped meanwhile. The backend stays open.
    """

    def __init__(self, backend: Backend, results: Results, *, in_flight: int = 0) -> None:
        self.backend = backend
        self.name, self.form = backend.name, backend.form
        self.paid = 0
        """How many requests were answered by the LLM itself."""
        self.last_reply = float("-inf")
        """When that was last, by the monotonic clock."""
        self.lost: Exception | None = None
        """Why something could not be filed, if that was so: then nothing more is asked."""
        self._results = results
        self._in_flight = in_flight
        self._width = 0
        self._free = asyncio.Semaphore(0)
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._sent: dict[str, asyncio.Task[Reply]] = {}

    @property
    def parallel(self) -> int:  # type: ignore[override]
        """How many requests are under way at once: as told, else what the backend takes by now.

        One that loads a model may know better when it has.
        """
        return self._in_flight or self.backend.parallel

    async def complete(self, request: Request) -> Reply:
        """Return the reply on file, else ask for it and file it."""
        tally = TALLY.get(None)
        apart = f" alone {tally.apart}" if tally and tally.apart else ""
        key = request.key(f"{self.name}{apart}")
        lock = self._asking.get(key) or asyncio.Lock()
        self._asking[key] = lock
        async with lock:  # whoever asks the same meanwhile finds it on file
            if key in self._sent:  # by a search that was stopped
                await asyncio.wait([self._sent[key]])
            reply = self._results.reply(key)
            on_file = reply is not None
            if reply is None:
                reply = await self._ask(key, request)
        if tally:
            tally.add(reply, from_file=on_file)
        return reply

    async def _ask(self, key: str, request: Request) -> Reply:
        while self._width < self.parallel:
            self._width += 1
            self._free.release()
        await self._free.acquire()
        sent = self._sent[key] = asyncio.create_task(self._kept(key, request))
        sent.add_done_callback(lambda _: self._forget(key))
        return await asyncio.shield(sent)

    async def _kept(self, key: str, request: Request) -> Reply:
        try:
            if self.lost is not None:  # what comes now would be paid for again
                raise self.lost
            reply = await self.backend.complete(request)
        finally:
            self._free.release()
        self.paid += 1
        self.last_reply = time.monotonic()
        with self.filing():
            self._results.keep_reply(key, self.name, reply)
        return reply

    def _forget(self, key: str) -> None:
        sent = self._sent.pop(key)
        if not sent.cancelled():
            sent.exception()  # asyncio complains of one that nobody looks at

    @contextmanager
    def filing(self) -> Iterator[None]:
        """Note where something cannot be filed; it is said once, however much follows."""
        try:
            yield
        except Exception as error:
            self.lost = self.lost or error
            raise self.lost from None

    async def settle(self) -> None:
        """Wait a while for what is under way, though nobody may want it any more."""
        sent = [*self._sent.values()]
        if sent:
            await asyncio.wait(sent, timeout=LAST_SECONDS)
        for task in sent:
            task.cancel()
        await asyncio.gather(*sent, return_exceptions=True)
