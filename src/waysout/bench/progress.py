"""Progress of a plan's searches, how to stop them all, and their summary."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from waysout.bench.cell import Cell
from waysout.bench.results import Failure
from waysout.bench.tasks import Queue, Task
from waysout.errors import LLMError
from waysout.run.context import Stop

Outcome = Cell | Failure


class Watch:
    """A listener for progress; this one does nothing."""

    def begins(self, queue: Queue) -> None:
        """A queue begins."""

    def replied(self) -> None:
        """A search that is under way got a reply of its LLM."""

    def searched(self, task: Task, outcome: Outcome) -> None:
        """A search has ended."""

    def prepares(self, what: str, share: float = 0.0) -> None:
        """Something is prepared for the searches; ``share`` of it is done."""


class PlanProgress:
    """How much of a queue is done, and an estimate of the time left.

    Hundreds of searches may be under way at once and end together, so the replies that they have
    got so far count as well.
    """

    def __init__(self, queue: Queue, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = sum(task.weight for task in queue.tasks)
        self.searches = queue.searches
        self.searched = 0
        self._ended = 0
        self._under_way = 0
        self._clock = clock
        self._began = clock()

    @property
    def done(self) -> int:
        """How much is done, of ``total``."""
        return min(self._ended + self._under_way, self.total)

    def reply(self) -> None:
        """Count a reply to a search that is under way."""
        self._under_way += 1

    def add(self, task: Task, calls: int = 0) -> None:
        """Count a finished search, with its calls instead of the replies to it."""
        self._ended += task.weight_of_one
        self._under_way = max(0, self._under_way - calls)
        self.searched += 1

    @property
    def seconds_left(self) -> float | None:
        """Estimated time left; None before anything is done."""
        if not self.done:
            return None
        return (self._clock() - self._began) * (self.total - self.done) / self.done


class StopAll(Stop):
    """A stop that also triggers other stops, including those added later."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[Stop] = []

    def add(self, part: Stop) -> None:
        """Trigger this stop as well."""
        self._parts.append(part)
        if self.reason:
            part(self.reason)

    def remove(self, part: Stop) -> None:
        """Forget this stop."""
        self._parts.remove(part)

    def __call__(self, reason: str) -> None:
        """Stop for a reason."""
        super().__call__(reason)
        for part in tuple(self._parts):
            part(self.reason)


@dataclass
class PlanSummary:
    """What a run of plans did: searches on file before, done now, and failed.

    ``paid`` counts replies of an LLM, ``from_file`` those that were on file. ``error`` is that of
    an LLM that became unavailable.
    """

    on_file: int = 0
    to_do: int = 0
    done: int = 0
    failures: list[Failure] = field(default_factory=list)
    paid: int = 0
    from_file: int = 0
    seconds: float = 0.0
    stopped: str = ""
    error: LLMError | None = None

    @property
    def left(self) -> int:
        """Number of searches that are neither done nor failed."""
        return self.to_do - self.done - len(self.failures)

    def add(self, outcome: Outcome) -> None:
        """Count a finished or failed search."""
        if isinstance(outcome, Failure):
            self.failures.append(outcome)
        else:
            self.done += 1
            self.from_file += int(outcome.spent.get("from_file", 0))
