"""The five to read first, kept up to date while options come in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from waysout.domain.pick import pick
from waysout.domain.result import Option, ResultData
from waysout.serve.events import EventLog

LENGTH = 5
_SECONDS_BETWEEN = 0.5


class Shortlist:
    """Picks anew when there are new options, but not more often than somebody can read.

    ``found`` returns what there is to pick from.
    """

    def __init__(self, log: EventLog, found: Callable[[], ResultData]) -> None:
        self.keys: list[str] = []
        self._log = log
        self._found = found
        self._stale = False
        self._picking: asyncio.Task[None] | None = None

    def want(self) -> None:
        """Pick anew, soon."""
        self._stale = True
        if self._picking is None or self._picking.done():
            self._picking = asyncio.create_task(self._keep_picking())

    async def settle(self) -> None:
        """Pick for the last time, and tell it in any case."""
        if self._picking is not None:
            self._picking.cancel()
            await asyncio.gather(self._picking, return_exceptions=True)
            self._picking = None
        self.tell([option.key for option in await self.most_different(LENGTH)])

    async def most_different(self, n: int) -> tuple[Option, ...]:
        """Return the n most different good options; in a thread, for there may be many."""
        return await asyncio.to_thread(pick, self._found(), n)

    def tell(self, keys: list[str]) -> None:
        """Say which they are."""
        self.keys = keys
        said: dict[str, Any] = {"keys": keys}
        self._log.add("shortlist", said)

    async def _keep_picking(self) -> None:
        while self._stale:
            self._stale = False
            keys = [option.key for option in await self.most_different(LENGTH)]
            if keys != self.keys:
                self.tell(keys)
            await asyncio.sleep(_SECONDS_BETWEEN)
