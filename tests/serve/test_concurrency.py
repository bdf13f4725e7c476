from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from serve_world import run

from waysout.llm.base import Message, Reply, Request
from waysout.llm.simulated import Simulated
from waysout.serve.concurrency import PacedExecutor, SharedBackend

MANY = 20


class Instant(Simulated):
    """Replies without waiting."""

    async def complete(self, request: Request) -> Reply:
        return Reply("")


async def most_at_once(threads: ThreadPoolExecutor) -> int:
    """Return how many of those who wait for a thread think before the loop goes round again."""
    loop, go = asyncio.get_running_loop(), threading.Event()
    counts = [0]

    async def think() -> None:
        await loop.run_in_executor(threads, go.wait)
        time.sleep(0.002)
        counts[-1] += 1

    async def go_round() -> None:
        while True:
            counts.append(0)
            await asyncio.sleep(0)

    others = asyncio.create_task(go_round())
    thinking = [asyncio.create_task(think()) for _ in range(MANY)]
    await asyncio.sleep(0.05)
    go.set()
    await asyncio.to_thread(time.sleep, 0)
    await asyncio.gather(*thinking)
    others.cancel()
    assert sum(counts) == MANY
    return max(counts)


def test_results_of_threads_come_one_by_one() -> None:
    async def story() -> int:
        with PacedExecutor(asyncio.get_running_loop(), MANY) as threads:
            return await most_at_once(threads)

    assert run(story()) < MANY // 2


def test_what_a_thread_returns_or_raises_arrives() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        threads = PacedExecutor(loop, 2)
        assert await loop.run_in_executor(threads, divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(threads, divmod, 7, 0)

    run(story())


def test_a_thread_that_outlives_the_loop_ends() -> None:
    async def story() -> PacedExecutor:
        return PacedExecutor(asyncio.get_running_loop(), 1)

    threads = run(story())
    assert threads.submit(int, "7").result(timeout=10) == 7


def test_replies_come_with_the_loop_going_round_between_two() -> None:
    async def story() -> None:
        order: list[str] = []
        slots, turn = asyncio.Semaphore(5), asyncio.Lock()

        async def ask(name: str) -> None:
            await SharedBackend(Instant(), slots, turn).complete(
                Request((Message("user", "hello"),))
            )
            order.append(name)

        async def go_round() -> None:
            while len([name for name in order if name]) < 5:
                order.append("")
                await asyncio.sleep(0)

        await asyncio.gather(go_round(), *(ask(name) for name in "abcde"))
        assert [name for name in order if name] == list("abcde")
        assert not any(a and b for a, b in pairwise(order))

    run(story())
