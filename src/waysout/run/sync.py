"""Run asynchronous code from plain code, whether or not an event loop is running already."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from waysout.oracles.watchdog import MOST_HUNG

T = TypeVar("T")
PATIENCE = 5.0
# Each call of a model that hangs keeps one until it is left behind, and asyncio's own six or so
# would leave none to searches of other models. They are started as they are needed.
_MOST_THREADS = 4 * MOST_HUNG
_here = threading.local()


@cache
def _running(process: int, depth: int) -> asyncio.AbstractEventLoop:
    """Return the loop of all plain calls, in a thread of its own, so that notebooks work too.

    It is one loop, since connections that an LLM client keeps belong to a loop. But a forked
    process has its own; and so has a call from within the loop (a generator of rows or a callback
    may make one), which would otherwise wait for itself for ever.
    """
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(_MOST_THREADS, "waysout"))

    def run() -> None:
        _here.depth = depth + 1
        while True:
            # A callback of the user's may raise `SystemExit`, which ends the loop as well as the
            # task that raised it; who waits for that task gets it.
            with suppress(BaseException):
                loop.run_forever()

    threading.Thread(target=run, name="waysout", daemon=True).start()
    return loop


def _submit(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    loop = _running(os.getpid(), getattr(_here, "depth", 0))
    return asyncio.run_coroutine_threadsafe(coroutine, loop)


def wait_for(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns."""
    return _submit(coroutine).result()


def iterate(source: AsyncGenerator[T]) -> Iterator[T]:
    """Yield what an asynchronous generator yields, and close it when iteration stops."""

    async def next_item() -> list[T]:
        try:
            return [await anext(source)]
        except StopAsyncIteration:
            return []

    async def close() -> None:
        while True:
            try:
                return await source.aclose()
            except RuntimeError:  # it is still leaving the step that was cancelled
                await asyncio.sleep(0.01)

    step: Future[list[T]] | None = None
    try:
        while True:
            step = _submit(next_item())
            found = step.result()
            if not found:
                return
            yield from found
    finally:
        if step is not None:
            step.cancel()  # has no effect unless Ctrl-C came while we waited
        if not sys.is_finalizing():  # else the loop's thread has ended with its process
            with suppress(TimeoutError):
                _submit(close()).result(PATIENCE)
