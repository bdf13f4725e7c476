"""One LLM for all searches: a stored reply is never requested again.

Replies are stored by request, rather than the steps of each search: searches and oracles are
deterministic, so replies are all that needs storing. After a kill, unfinished searches run again
from the beginning with the stored replies, and paired arms start from the same proposals.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from weakref import WeakValueDictionary

from waysout.bench.results import Results
from waysout.llm.base import Backend, Reply, Request

LAST_SECONDS = 3.0
"""Seconds to wait for pending replies at the end, also after Ctrl-C."""


@dataclass
class ReplyTally:
    """What one search got from its LLM: seconds of replies, and the number of stored ones.

    ``apart`` is set for a search that is timed: the only arm it shares replies with. ``at_once`` is
    then how many of these ran at once, each of another arm.
    """

    apart: str = ""
    at_once: int = 0
    llm_seconds: float = 0.0
    from_file: int = 0


# The tally of the current search: each runs in its own task, which keeps the value at its start.
TALLY: ContextVar[ReplyTally] = ContextVar("tally")


class FiledReply(Reply):
    """A reply that was on file, which other processes cannot see."""

    __slots__ = ()

    @classmethod
    def of(cls, reply: Reply) -> FiledReply:
        """Mark a reply."""
        return cls(reply.text, reply.usage, reply.latency, reply.finish, reply.model)


class Replies(Backend):
    """What a run of searches asks, and learns how its LLM is."""

    def __init__(self) -> None:
        self.last_reply = float("-inf")
        """Time of the last reply of the LLM itself, by the monotonic clock."""
        self.lost: Exception | None = None
        """The error of a reply that could not be stored: then no more requests are sent."""

    @abstractmethod
    def filing(self) -> AbstractContextManager[None]:
        """Keep the first storage error, and raise it again for everything that follows."""


class SharedReplies(Replies):
    """Limits the number of requests at once, and stores every reply before returning it.

    Searches with the same request share one reply. An arm that is measured alone shares none with
    others, since latencies under load say nothing about its own cost. A pending reply is stored
    even if its search is stopped meanwhile. The backend stays open. ``replied`` is called when a
    search gets a reply.
    """

    def __init__(
        self,
        backend: Backend,
        results: Results,
        *,
        in_flight: int = 0,
        replied: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.backend = backend
        self.name, self.form = backend.name, backend.form
        self.paid = 0
        """Number of requests that the LLM itself answered."""
        self._results = results
        self._in_flight = in_flight
        self._replied = replied
        self._width = 0
        self._free = asyncio.Semaphore(0)
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._sent: dict[str, asyncio.Task[Reply]] = {}

    @property
    def parallel(self) -> int:  # type: ignore[override]
        """Maximum number of requests at once: as set, else the backend's limit.

        That may change once a backend has loaded its model.
        """
        return self._in_flight or self.backend.parallel

    async def complete(self, request: Request) -> Reply:
        """Return the stored reply, or send the request and store its reply."""
        tally = TALLY.get(None)
        apart = f" alone {tally.apart}" if tally and tally.apart else ""
        key = request.key(f"{self.name}{apart}")
        lock = self._asking.get(key) or asyncio.Lock()
        self._asking[key] = lock
        async with lock:  # a search with the same request then finds it stored
            if key in self._sent:  # by a search that was stopped
                await asyncio.wait([self._sent[key]])
            reply = self._results.reply(key)
            on_file = reply is not None
            if reply is None:
                while self._width < self.parallel:
                    self._width += 1
                    self._free.release()
                await self._free.acquire()
                sent = self._sent[key] = asyncio.create_task(self._ask(key, request))
                sent.add_done_callback(lambda _: self._forget(key))
                reply = await asyncio.shield(sent)
        if tally:
            tally.llm_seconds += reply.latency
            tally.from_file += on_file
        self._replied()
        return FiledReply.of(reply) if on_file else reply

    async def _ask(self, key: str, request: Request) -> Reply:
        try:
            if self.lost is not None:  # a reply that is not stored would be paid for again
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
            sent.exception()  # asyncio complains about one that is never retrieved

    @contextmanager
    def filing(self) -> Iterator[None]:
        """Keep the first storage error, and raise it again for everything that follows."""
        try:
            yield
        except Exception as error:
            self.lost = self.lost or error
            raise self.lost from None

    async def settle(self) -> None:
        """Wait a while for pending replies, so that they are stored, and cancel the rest."""
        sent = [*self._sent.values()]
        if sent:
            await asyncio.wait(sent, timeout=LAST_SECONDS)
        for task in sent:
            task.cancel()
        await asyncio.gather(*sent, return_exceptions=True)
