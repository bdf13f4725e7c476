"""What happens in a search, in order, for all who follow it; whoever comes late catches up."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

# A later event of the first kind makes earlier ones of these kinds void: nobody need read them.
_VOIDS: Mapping[str, tuple[str, ...]] = {
    "ledger": ("ledger",),
    "shortlist": ("shortlist",),
    "learning": ("learning",),
    "part": ("part", "options", "shortlist", "learning"),
}


@dataclass(frozen=True, slots=True)
class PageEvent:
    """One thing that happened; ids count from 1 and only rise."""

    id: int
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)


class EventLog:
    """Keeps events and wakes who waits for them. It lives within one event loop.

    Those who follow read from one list, each at their own pace, so a slow one holds nobody up. What
    a later event makes void is dropped, so the log grows with what a search may spend and no more.
    """

    def __init__(self) -> None:
        self.events: list[PageEvent] = []
        self.closed = False
        self._last = 0
        self._waiting: set[asyncio.Event] = set()

    @property
    def subscribers(self) -> int:
        """How many follow."""
        return len(self._waiting)

    def add(self, kind: str, data: Mapping[str, Any]) -> None:
        """Note what happened; once the log is closed, nothing does."""
        if self.closed:
            return
        if kind in _VOIDS:
            self.events = [event for event in self.events if event.kind not in _VOIDS[kind]]
        self._last += 1
        self.events.append(PageEvent(self._last, kind, data))
        self._wake()

    def close(self, kind: str) -> None:
        """Note the last event; who follows gets it, and ends."""
        self.add(kind, {})
        self.closed = True
        self._wake()

    def since(self, after: int) -> list[PageEvent]:
        """Return the events that came after one."""
        return self.events[bisect_right(self.events, after, key=lambda event: event.id) :]

    async def follow(
        self, after: int = 0, patience: float = 15.0
    ) -> AsyncGenerator[list[PageEvent]]:
        """Yield events as they come, several at a time; none after so many seconds of silence."""
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
                    await _wait(news, patience)
                    if news.is_set():
                        continue
                yield events
        finally:
            self._waiting.discard(news)

    def _wake(self) -> None:
        for news in self._waiting:
            news.set()


async def _wait(news: asyncio.Event, patience: float) -> None:
    try:
        async with asyncio.timeout(patience):
            await news.wait()
    except TimeoutError:
        pass
