"""What the followers of a search see: its events, and the shortlist.

A page's state is a fold over the events, so that a reload, a second tab and a broken connection
are one case.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from waysout.domain.pick import pick
from waysout.domain.result import Option, ResultData
from waysout.serve.concurrency import in_thread_apart

SHORTLIST = 5
_SECONDS_BETWEEN = 0.5
# An event of the first kind makes earlier ones of these kinds obsolete.
_REPLACES: Mapping[str, tuple[str, ...]] = {
    "ledger": ("ledger",),
    "shortlist": ("shortlist",),
    "learning": ("learning",),
    "ways": ("ways",),
    "pins": ("pins",),
    "part": ("part", "options", "shortlist", "ways", "learning"),
}


@dataclass(frozen=True, slots=True)
class PageEvent:
    """One thing that happened; ids count from 1 and only rise."""

    id: int
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)


class EventLog:
    """Keeps events and wakes followers. It lives within one event loop.

    Followers read from one list, each at their own pace, so a slow one holds nobody up. Obsolete
    events are dropped, so the log grows with what a search may spend and no more. Ids follow
    ``last``: those of a search that is opened again must lie beyond what a page has heard before.
    """

    def __init__(self, last: int = 0) -> None:
        self.events: list[PageEvent] = []
        self.closed = False
        self._last = last
        self._waiting: set[asyncio.Event] = set()

    @property
    def subscribers(self) -> int:
        """The number of followers."""
        return len(self._waiting)

    def add(self, kind: str, data: Mapping[str, Any]) -> None:
        """Record an event; a closed log takes none."""
        if self.closed:
            return
        if kind in _REPLACES:
            self.events = [event for event in self.events if event.kind not in _REPLACES[kind]]
        self._last += 1
        self.events.append(PageEvent(self._last, kind, data))
        self._wake()

    def close(self, kind: str) -> None:
        """Record the last event; followers get it, and end."""
        self.add(kind, {})
        self.closed = True
        self._wake()

    def since(self, after: int) -> list[PageEvent]:
        """Return the events that came after one."""
        return self.events[bisect_right(self.events, after, key=lambda event: event.id) :]

    async def follow(
        self, after: int = 0, patience: float = 15.0
    ) -> AsyncGenerator[list[PageEvent]]:
        """Yield events as they come, several at a time; none after ``patience`` s of silence."""
        news = asyncio.Event()
        self._waiting.add(news)
        try:
            while True:
                news.clear()
                events = self.since(after)
                if events:
                    after = events[-1].id
                elif self.closed:
                    return
                else:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(news.wait(), patience)
                    if news.is_set():
                        continue
                yield events
        finally:
            self._waiting.discard(news)

    def _wake(self) -> None:
        for news in self._waiting:
            news.set()


class Shortlist:
    """What to read first, picked again when there are new options, but not too often to read.

    ``found`` returns what to pick from: the options, and at the end the ways. ``form`` writes one.
    """

    def __init__(
        self,
        log: EventLog,
        found: Callable[[], ResultData],
        form: Callable[[Option], Mapping[str, Any]],
    ) -> None:
        self.options: Sequence[Option] = ()
        self.log = log
        self._found = found
        self._form = form
        self._stale = False
        self._picking: asyncio.Task[None] | None = None

    def update(self) -> None:
        """Pick again, soon."""
        self._stale = True
        if self._picking is None or self._picking.done():
            self._picking = asyncio.create_task(self._keep_picking())

    async def settle(self) -> None:
        """Pick for the last time, and publish it in any case."""
        if self._picking is not None:
            self._picking.cancel()
            await asyncio.gather(self._picking, return_exceptions=True)
            self._picking = None
        self.publish(await self.most_different(SHORTLIST))

    async def most_different(self, n: int) -> tuple[Option, ...]:
        """Return n that are good and different; in a thread, as there may be many."""
        return await in_thread_apart(pick, self._found(), n)

    def publish(self, options: Sequence[Option]) -> None:
        """Tell the followers: whole options, since several ways may have one key."""
        self.options = options
        self.log.add("shortlist", {"options": [self._form(option) for option in options]})

    async def _keep_picking(self) -> None:
        while self._stale:
            self._stale = False
            picked = await self.most_different(SHORTLIST)
            if picked != self.options:
                self.publish(picked)
            await asyncio.sleep(_SECONDS_BETWEEN)
