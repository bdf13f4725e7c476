"""Searches that ask a real LLM: many at once, in one event loop, on one backend."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from waysout.bench.measure import CellMeasurement, FoundAt, World, options, world
from waysout.bench.progress import StopAll
from waysout.bench.replies import TALLY, ReplyTally, SharedReplies
from waysout.bench.tasks import Lane, Todo
from waysout.bench.workers import Keep, reason
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.errors import LLMError, LLMUnreachable
from waysout.run.context import Stop
from waysout.run.find import afind_many
from waysout.run.many import FEWEST_AT_ONCE


@dataclass
class LlmLane:
    """Runs a lane. ``error`` is why its LLM could not be asked to the end, if that was so.

    Arms find out one by one that it is gone. While one says so and nobody has had a reply since, no
    other begins: those under way will tell.
    """

    lane: Lane
    replies: SharedReplies
    commit: str
    keep: Keep
    stop: StopAll
    error: LLMError | None = None
    _own: StopAll = field(default_factory=StopAll)
    _active: int = 0
    _failed_at: float = 0.0
    _freed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Run all searches, or those until it is stopped or the LLM is gone."""
        self.stop.add(self._own)
        try:
            async with asyncio.TaskGroup() as group:
                for todo in self.lane.todos:
                    if not await self._room():
                        break
                    self._active += len(todo.people)
                    group.create_task(self._arm(todo))
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
        finally:
            self.stop.remove(self._own)
            self.error = self.error if self._doubtful else None

    async def _room(self) -> bool:
        """Wait until another arm may begin; false where none may any more."""
        wide = 1 if self.lane.alone else max(FEWEST_AT_ONCE, 2 * self.replies.parallel)
        while self._active >= wide or (self._active and self._doubtful):
            self._freed.clear()
            await self._freed.wait()
        return not (self._own.reason or self._doubtful)

    @property
    def _doubtful(self) -> bool:
        """Whether the LLM may be gone: it failed an arm, and has answered nobody since."""
        return self.error is not None and self.replies.last_reply <= self._failed_at

    def _leave(self, people: int) -> None:
        self._active -= people
        self._freed.set()

    async def _arm(self, todo: Todo) -> None:
        """Run the searches of an arm; whatever becomes of them is nobody else's trouble."""
        left = set(todo.people)
        why = ""
        try:
            place = await asyncio.to_thread(world, todo.arm.data)
            groups = [(one,) for one in todo.people] if self.lane.alone else [todo.people]
            for people in groups:
                if not self._own.reason:
                    await self._search(todo, people, place, left)
        except LLMError as error:
            why = reason(error)
            self._hear(error)
        except Exception as error:
            if error is self.replies.lost:  # without the file there is nothing to go on for
                raise
            why = reason(error)
        finally:
            self._leave(len(left))
        if why and not self.stop.reason:
            measure = CellMeasurement(todo.arm, todo.llm, "", self.commit)
            for query in todo.people:
                if query in left:
                    self.keep(todo, measure.failure(query, why))

    async def _search(
        self, todo: Todo, people: Sequence[int], place: World, left: set[int]
    ) -> None:
        """Search for some people at once, and take them out of those left as they end."""
        problem, found, stop = place.problem(todo.arm.rules), FoundAt(), Stop()
        measure = CellMeasurement.of(todo.arm, todo.llm, place, self.commit)
        tallies = [ReplyTally(todo.arm.id if self.lane.alone else "") for _ in people]
        rows = _tallied([place.data.rows[query] for query in people], tallies)
        asked = options(todo.arm, place.data, self.replies, found, stop)
        source = afind_many(problem, rows, **asked)
        self._own.add(stop)
        try:
            async for result in source:
                query, tally = people[result.index], tallies[result.index]
                interrupted = result.outcome.kind is OutcomeKind.INTERRUPTED
                if interrupted and (self._own.reason or self.replies.lost):
                    continue  # it was not its own end; who is to blame is said once
                outcome = measure.cell(query, result, found.of(problem, result), tally)
                with self.replies.filing():
                    self.keep(todo, outcome)
                left.discard(query)
                self._leave(1)
        finally:
            self._own.remove(stop)
            await source.aclose()

    def _hear(self, error: LLMError) -> None:
        """Hear why an arm could not ask the LLM; one that is set up wrongly answers nobody."""
        self.error, self._failed_at = error, time.monotonic()
        if not isinstance(error, LLMUnreachable):
            self._own(reason(error))


def _tallied(rows: Sequence[Row], tallies: Sequence[ReplyTally]) -> Iterator[Row]:
    """Hand out rows; the search of each, which begins as it is taken, finds its own tally."""
    for row, tally in zip(rows, tallies, strict=True):
        TALLY.set(tally)
        yield row
