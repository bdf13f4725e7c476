"""From plain code into the event loop and back, whether or not a loop is running already."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 5.0


_here = threading.local()


def _loop() -> asyncio.AbstractEventLoop:
    """Return the one loop of all plain calls: connections an LLM client keeps belong to it.

    A process that was forked has its own; so has who calls from within the loop (a generator of
    rows may, or a callback), since to wait there for the same loop would be for ever.
    """
    return _running(os.getpid(), getattr(_here, "depth", 0))


@cache
def _running(process: int, depth: int) -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()

    def run() -> None:
        _here.depth = depth + 1
        loop.run_forever()

    threading.Thread(target=run, name="waysout", daemon=True).start()
    return loop


def wait_for(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns."""
    return asyncio.run_coroutine_threadsafe(coroutine, _loop()).result()


def iterate(source: AsyncGenerator[T]) -> Iterator[T]:
    """Yield what an asynchronous generator yields; whoever stops listening ends it."""
    step: Future[list[T]] | None = None
    try:
        while True:
            step = asyncio.run_coroutine_threadsafe(_next(source), _loop())
            found = step.result()
            if not found:
                return
            yield from found
    finally:
        if step is not None:
            step.cancel()  # nothing, unless a Ctrl-C came while we waited
        if not sys.is_finalizing():  # else the loop's thread has ended with its process
            closing = asyncio.run_coroutine_threadsafe(_close(source), _loop())
            with suppress(TimeoutError):
                closing.result(PATIENCE)


async def _next(source: AsyncGenerator[T]) -> list[T]:
    """Return the next item in a list, and an empty list at the end."""
    try:
        return [await anext(source)]
    except StopAsyncIteration:
        return []


async def _close(source: AsyncGenerator[T]) -> None:
    while True:
        try:
            return await source.aclose()
        except RuntimeError:  # it is still on its way out of the step that was cancelled
            await asyncio.sleep(0.01)
