"""Scheduling parts over workers, the same for local processes and Ray actors.

Driver ──submit──► Executor ──WorkerHandle.send──► process or actor ──► Worker.run
   ◄────wait──────          ◄──reports, tallies───
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from waysout.batch.job import BatchJob, BatchTally, PartReport, PartTask
from waysout.errors import UnavailableError
from waysout.oracles.watchdog import batch_seconds

# A worker that cannot start may be short of memory that others release after a while.
DEATHS_IN_A_ROW = 5
# How much longer than a call of the model a worker may be silent: its machine may be busy.
SILENT_SECONDS = 30.0
_STEP_SECONDS = 1.0


class WorkerHandle:
    """A worker, as the executor sees it."""

    def __init__(self) -> None:
        self.parts: dict[int, PartTask] = {}
        """The parts it was sent and has not reported."""
        self.tally = BatchTally()
        self.is_up = False
        """Whether it has loaded its model."""
        self.is_worn = False
        """Whether a call of the model hangs in it: it gets no more parts."""
        self.silent = 0.0
        """For how long nothing was heard of it, in seconds."""

    def send(self, task: PartTask) -> None:
        """Send it a part."""
        raise NotImplementedError

    def stop(self, reason: str) -> None:
        """Tell it to stop every search."""
        raise NotImplementedError


W = TypeVar("W", bound=WorkerHandle)


class Executor(Generic[W]):
    """Takes parts and returns reports; used by one thread only.

    A worker that dies is replaced, and its parts are reported as lost: the driver decides whether
    to submit them again. One in which a call of the model hangs is replaced when its parts have
    ended, and one that is silent, because such a call holds the interpreter, is killed. Subclasses
    start, poll, replace and close the workers.
    """

    def __init__(self, job: BatchJob, workers: int, part_rows: int) -> None:
        self._size = workers
        # While one part drains, the next keeps the workers busy.
        self._parts_each = 1 + -(-job.trees // part_rows)
        self._workers: list[W] = []
        self._waiting: deque[PartTask] = deque()
        self._ended: list[PartReport] = []
        self._deaths = 0
        self._stopped = ""
        self._most_silent = SILENT_SECONDS + batch_seconds(part_rows, job.row_seconds)
        self._listened = time.monotonic()

    def _available(self) -> Sequence[W]:
        """Return the workers that can be sent parts."""
        raise NotImplementedError

    def _poll(self, seconds: float) -> None:
        """Handle what the workers have sent, waiting for it for at most ``seconds``."""
        raise NotImplementedError

    def _replace(self, worker: W) -> str:
        """End a worker, if it has not died, for another in its place; return how it ended."""
        raise NotImplementedError

    def close(self) -> None:
        """End all workers. What was answered in parts under way is in their stores."""
        raise NotImplementedError

    @property
    def room(self) -> int:
        """How many more parts to submit now, so that no worker runs out of work."""
        under_way = sum(len(worker.parts) for worker in self._workers)
        return self._size * self._parts_each - under_way - len(self._waiting)

    def submit(self, task: PartTask) -> None:
        """Have a part done."""
        if self._stopped:
            self._ended.append(PartReport(task.part, stopped=self._stopped))
        else:
            self._waiting.append(task)
            self._assign()

    def wait(self, seconds: float) -> Sequence[PartReport]:
        """Return the reports that have come in, waiting for the first for at most ``seconds``.

        Raises the error of a worker that cannot start, and gives up if workers keep dying.
        """
        until = time.monotonic() + seconds
        while not self._ended and (left := until - time.monotonic()) > 0:
            self._poll(left)
        self._poll(0.0)
        self._lose_silent()
        self._assign()
        reports, self._ended = self._ended, []
        return reports

    def tally(self) -> BatchTally:
        """Return the people done in parts under way; it may be a little out of date."""
        return sum((worker.tally for worker in self._workers), BatchTally())

    def stop(self, reason: str) -> None:
        """Stop every search with what it has found; the parts under way are still reported."""
        self._stopped = reason
        self._ended += (PartReport(task.part, stopped=reason) for task in self._waiting)
        self._waiting.clear()
        for worker in self._workers:
            if worker.is_up:
                worker.stop(reason)

    def _assign(self) -> None:
        """Send waiting parts in order, each to the worker with the fewest.

        An isolated part, which may kill its worker, is alone with it: no other part is lost.
        """
        while self._waiting:
            task = self._waiting[0]
            most = 1 if task.isolated else self._parts_each
            able = [
                worker
                for worker in self._available()
                if len(worker.parts) < most
                and not worker.is_worn
                and not any(t.isolated for t in worker.parts.values())
            ]
            if not able:
                return
            worker = min(able, key=lambda worker: len(worker.parts))
            worker.parts[task.part] = self._waiting.popleft()
            worker.send(task)

    def _take(self, worker: W, report: PartReport) -> None:
        """Take in a worker's report."""
        del worker.parts[report.part]
        self._ended.append(report)
        worker.is_worn |= report.worn
        if worker.is_worn and not worker.parts:
            self._replace(worker)

    def _lose_silent(self) -> None:
        """Kill the workers that were silent for longer than any call of the model may take."""
        now = time.monotonic()
        # A driver that was busy, or suspended with its workers, has not listened.
        step, self._listened = min(now - self._listened, _STEP_SECONDS), now
        for worker in [worker for worker in self._workers if worker.is_up and worker.parts]:
            worker.silent += step
            if worker.silent > self._most_silent:
                self._lose(worker, self._replace(worker))

    def _lose(self, worker: W, how: str) -> None:
        """Report the parts of a worker that died as lost; give up if none can even start.

        What becomes of parts that kill their workers is up to the driver.
        """
        self._ended += (PartReport(part, lost=True) for part in worker.parts)
        worker.parts, worker.tally = {}, BatchTally()
        self._deaths += 1  # set to 0 whenever a worker has started
        if self._deaths > DEATHS_IN_A_ROW + self._size:
            raise UnavailableError(
                f"workers died {self._deaths} times in a row before they could start (the last "
                f"one: {how}). Is there enough memory for the model and its rows? Try fewer "
                "workers, or a search for a single row"
            )
