"""Searches with a real LLM: many at once, in one event loop, on one backend."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from waysout.bench.arms import FIND
from waysout.bench.kinds import KINDS, Stopped
from waysout.bench.measure import ArmSearches, Environment, environment, failure
from waysout.bench.progress import StopAll
from waysout.bench.replies import TALLY, Replies, ReplyTally
from waysout.bench.tasks import Queue, Task
from waysout.bench.workers import Keep, reason
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.errors import LLMError, LLMUnreachable
from waysout.llm.base import Backend, Reply, Request
from waysout.run.context import Stop
from waysout.run.find import FEWEST_AT_ONCE, afind_many


@dataclass
class LlmQueueRun:
    """Runs a queue. ``error`` is set if its LLM became unavailable before the end.

    Each arm notices that by itself. After one such failure no other arm begins until some search
    gets a reply.
    """

    queue: Queue
    replies: Replies
    commit: str
    keep: Keep
    stop: StopAll
    folder: Path
    error: LLMError | None = None
    _own: StopAll = field(default_factory=StopAll)
    _active: int = 0
    _failed_at: float = 0.0
    _freed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Run all searches until the run is stopped or the LLM is unavailable."""
        self.stop.add(self._own)
        try:
            async with asyncio.TaskGroup() as group:
                many = max(FEWEST_AT_ONCE, 2 * self.replies.parallel)
                wide = self._timed_at_once or many
                for task in self.queue.tasks:
                    while self._active >= wide or (self._active and self._doubtful):
                        self._freed.clear()
                        await self._freed.wait()
                    if self._own.reason or self._doubtful:
                        break
                    # Of an arm that is timed, one search at a time.
                    self._active += 1 if self._timed_at_once else len(task.queries)
                    group.create_task(self._arm(task))
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
        finally:
            self.stop.remove(self._own)
            self.error = self.error if self._doubtful else None

    @property
    def _timed_at_once(self) -> int:
        """How many searches run at once where each is timed, else 0."""
        return (self.queue.in_flight or 1) if self.queue.alone else 0

    @property
    def _doubtful(self) -> bool:
        """Whether the LLM may be unavailable: it failed an arm, and has not replied since."""
        return self.error is not None and self.replies.last_reply <= self._failed_at

    def _leave(self, searches: int) -> None:
        self._active -= searches
        self._freed.set()

    async def _arm(self, task: Task) -> None:
        """Run the searches of an arm; its errors do not affect other arms."""
        left = set(task.queries)
        why = ""
        try:
            place = await asyncio.to_thread(environment, task.arm.data)
            groups = [(one,) for one in task.queries] if self.queue.alone else [task.queries]
            for queries in groups:
                if not self._own.reason:
                    await self._search(task, queries, place, left)
        except Stopped:
            pass
        except LLMError as error:
            why = reason(error)
            self.error, self._failed_at = error, time.monotonic()
            if not isinstance(error, LLMUnreachable):
                self._own(why)  # a misconfigured LLM will fail for all arms
        except Exception as error:
            if error is self.replies.lost:  # there is no point in continuing without the file
                raise
            why = reason(error)
        finally:
            self._leave(1 if self._timed_at_once else len(left))
        if why and not self.stop.reason:
            for query in task.queries:
                if query in left:
                    self.keep(task, failure(task.arm, task.llm, query, why))

    async def _search(
        self, task: Task, queries: Sequence[int], place: Environment, left: set[int]
    ) -> None:
        """Run some searches at once, and remove each from ``left`` as it ends."""
        stop = Stop()
        searches = ArmSearches(task.arm, task.llm, place, self.folder, stop)
        at_once = self._timed_at_once
        tallies = [ReplyTally(task.arm.id if at_once else "", at_once) for _ in queries]

        def rows() -> Iterator[Row]:
            """Yield rows; the search of each starts as it is taken, and finds its own tally."""
            for query, tally in zip(queries, tallies, strict=True):
                TALLY.set(tally)
                yield place.data.rows[query]

        self._own.add(stop)
        try:
            if KINDS[task.arm.kind].memory:  # it may run searches, from another thread
                other = _FromThreads(self.replies, asyncio.get_running_loop())
                options = await asyncio.to_thread(searches.options, other)
                options["llm"] = self.replies
            else:
                options = searches.options(self.replies)
            source = afind_many(place.problem_of(task.arm), rows(), **options)
            try:
                async for result in source:
                    query, tally = queries[result.index], tallies[result.index]
                    interrupted = result.outcome.kind is OutcomeKind.INTERRUPTED
                    if interrupted and (self._own.reason or self.replies.lost):
                        continue  # it was stopped; the cause is reported once
                    args = (query, result, options.get("memory"), tally, self.commit)
                    plain = task.arm.kind == FIND  # other kinds may take long to measure
                    outcome = (
                        searches.cell(*args)
                        if plain
                        else await asyncio.to_thread(searches.cell, *args)
                    )
                    with self.replies.filing():
                        self.keep(task, outcome)
                    left.discard(query)
                    if not self._timed_at_once:
                        self._leave(1)
            finally:
                await source.aclose()
        finally:
            self._own.remove(stop)


class _FromThreads(Backend):
    """Passes requests from other threads' event loops to the backend in its own loop."""

    def __init__(self, backend: Backend, loop: asyncio.AbstractEventLoop) -> None:
        self.name, self.form, self.parallel = backend.name, backend.form, backend.parallel
        self._backend, self._loop = backend, loop

    async def complete(self, request: Request) -> Reply:
        """Return the reply of the backend."""
        future = asyncio.run_coroutine_threadsafe(self._backend.complete(request), self._loop)
        return await asyncio.wrap_future(future)
