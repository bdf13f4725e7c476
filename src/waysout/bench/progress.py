"""How far the searches of a plan have come, for whoever watches; how to stop; what came of it."""

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
    """Hears how the work goes; this one lets it pass."""

    def begins(self, queue: Queue) -> None:
        """Hear that a queue begins."""

    def searched(self, task: Task, outcome: Outcome) -> None:
        """Hear of a search that has ended."""

    def prepares(self, what: str, share: float = 0.0) -> None:
        """Hear what has to be done before the searches, and which share of it is."""


class PlanProgress:
    """How much of a queue is done, and how long the rest will take at that pace."""

    def __init__(self, queue: Queue, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = sum(task.weight for task in queue.tasks)
        self.searches = queue.searches
        self.done = 0
        self.searched = 0
        self._clock = clock
        self._began = clock()

    def add(self, task: Task) -> None:
        """Count a search that has ended."""
        self.done += task.weight_of_one
        self.searched += 1

    @property
    def seconds_left(self) -> float | None:
        """How long the rest will take; unknown before the first has ended."""
        if not self.done:
            return None
        return (self._clock() - self._began) * (self.total - self.done) / self.done


class StopAll(Stop):
    """A stop that ends others, too, also those that come later."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[Stop] = []

    def add(self, part: Stop) -> None:
        """End this one, too."""
        self._parts.append(part)
        if self.reason:
            part(self.reason)

    def remove(self, part: Stop) -> None:
        """Leave this one alone from now on."""
        self._parts.remove(part)

    def __call__(self, reason: str) -> None:
        """Stop, and say why."""
        super().__call__(reason)
        for part in tuple(self._parts):
            part(self.reason)


@dataclass
class PlanSummary:
    """What came of some plans: searches on file before, done now, and failed.

    ``paid`` counts replies that an LLM was asked for, ``from_file`` those that were there already.
    ``error`` is that of an LLM that could not be asked to the end.
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
        """How many searches are neither done nor failed."""
        return self.to_do - self.done - len(self.failures)

    def add(self, outcome: Outcome) -> None:
        """Count the end of a search."""
        if isinstance(outcome, Failure):
            self.failures.append(outcome)
        else:
            self.done += 1
            self.from_file += int(outcome.spent.get("from_file", 0))
