"""What a method learns before the first search, in a thread, and how to end that early."""

from __future__ import annotations

import asyncio

from waysout.domain.known import Known
from waysout.domain.problem import Problem
from waysout.run.context import Stop
from waysout.search.base import Method, Tell


class _NotWanted(Exception):
    """Nobody waits for what is being learned."""


async def learn(
    method: Method,
    problem: Problem,
    known: Known | None,
    *,
    stop: Stop | None = None,
    tell: Tell | None = None,
) -> None:
    """Let a method learn. A ``stop`` ends it; the run that follows is then stopped as well."""
    left = False

    def heard(what: str, share: float) -> None:
        if left or (stop is not None and stop.reason):
            raise _NotWanted
        if tell is not None:
            tell(what, share)

    try:
        await asyncio.to_thread(method.learn, problem, known, heard)
    except _NotWanted:
        return
    finally:
        left = True
