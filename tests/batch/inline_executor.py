"""An executor without processes, for tests that are about something else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from waysout.batch.job import BatchJob, BatchTally, PartReport, PartTask
from waysout.batch.worker import Worker
from waysout.llm.base import Backend


class InlineExecutor:
    made: list[InlineExecutor] = []  # noqa: RUF012 - tests clear it

    def __init__(
        self, job: BatchJob, *, workers: int = 1, backend: Backend | None = None, **_: Any
    ) -> None:
        self.job = job
        self.workers = workers
        self.given: list[PartTask] = []
        self._waiting: list[PartTask] = []
        self._loop = asyncio.new_event_loop()
        self._worker = Worker(job, backend)
        InlineExecutor.made.append(self)

    @property
    def room(self) -> int:
        return 2 - len(self._waiting)

    def submit(self, task: PartTask) -> None:
        self.given.append(task)
        self._waiting.append(task)

    def wait(self, seconds: float) -> Sequence[PartReport]:
        async def all_of_them() -> list[PartReport]:
            return await asyncio.gather(*map(self._worker.run, self._waiting))

        reports = self._loop.run_until_complete(all_of_them())
        self._waiting.clear()
        return reports

    def tally(self) -> BatchTally:
        return BatchTally()

    def stop(self, reason: str) -> None:
        self._worker.stop(reason)

    def close(self) -> None:
        self._loop.run_until_complete(self._worker.aclose())
        self._loop.close()
