"""Plain calls of asynchronous code: all of them share one event loop and its threads."""

from __future__ import annotations

import asyncio
import threading

from waysout.oracles.watchdog import MOST_HUNG
from waysout.run.sync import wait_for


def test_as_many_calls_as_may_hang_leave_threads_to_others() -> None:
    everybody = threading.Barrier(MOST_HUNG + 1)

    async def meet() -> list[int]:
        calls = (asyncio.to_thread(everybody.wait, 30) for _ in range(everybody.parties))
        return await asyncio.gather(*calls)

    assert len(set(wait_for(meet()))) == everybody.parties
