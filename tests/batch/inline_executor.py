"""A batch without processes, for tests that are about something else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from waysout.batch.apart import OracleApart
from waysout.batch.executor import Executor
from waysout.batch.job import BatchJob, BatchTally, PartReport, PartTask
from waysout.batch.worker import Worker
from waysout.domain.problem import Problem
from waysout.llm.base import Backend


def work_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have batches search, and try their models, in this process."""
    monkeypatch.setattr("waysout.batch.local_executor.LocalExecutor", InlineExecutor)
    monkeypatch.setattr("waysout.batch.run.OracleApart", InlineOracle)
    InlineExecutor.made.clear()


class InlineOracle(OracleApart):
    def start(self) -> None:
        pass

    def put_into(self, problem: Problem) -> Problem:
        return problem


class InlineExecutor(Executor[Any]):
    made: list[InlineExecutor] = []  # noqa: RUF012 - tests clear it

    def __init__(
        self, job: BatchJob, *, workers: int = 1, backend: Backend | None = None, **_: Any
    ) -> None:
        self.job = job
        self.workers = workers
        self.given: list[PartTask] = []
        self._submitted: list[PartTask] = []
        self._loop = asyncio.new_event_loop()
        self._inline = Worker(job, backend)
        InlineExecutor.made.append(self)

    @property
    def room(self) -> int:
        return 2 - len(self._submitted)

    def submit(self, task: PartTask) -> None:
        self.given.append(task)
        self._submitted.append(task)

    def wait(self, seconds: float) -> Sequence[PartReport]:
        async def all_of_them() -> list[PartReport]:
            return await asyncio.gather(*map(self._inline.run, self._submitted))

        reports = self._loop.run_until_complete(all_of_them())
        self._submitted.clear()
        return reports

    def tally(self) -> BatchTally:
        return BatchTally()

    def stop(self, reason: str) -> None:
        self._inline.stop(reason)

    def close(self) -> None:
        self._loop.run_until_complete(self._inline.aclose())
        self._loop.close()
