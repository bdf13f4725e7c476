"""Runs plans: stored searches are not repeated, and each search is stored when it ends.

LLM replies are stored by request rather than the steps of each search: searches and oracles are
deterministic, so an interrupted search is run again from the beginning with the stored replies.
Arms share these replies too, so that paired arms start from the same proposals.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from itertools import groupby

from waysout.bench.arms import Arm, ExperimentPlan
from waysout.bench.llm_queue import LlmQueueRun
from waysout.bench.llm_workers import LlmWorkers, processes_for
from waysout.bench.measure import (
    environment,
    failure,
    made_of,
    oracle_sha256,
    source_commit,
)
from waysout.bench.progress import Outcome, PlanSummary, StopAll, Watch
from waysout.bench.replies import SharedReplies
from waysout.bench.results import Failure, Results
from waysout.bench.tasks import Backlog, Llm, Queue, Task, backlog_of
from waysout.bench.workers import WorkerPool, reason
from waysout.errors import IntegrityError, WaysoutError
from waysout.llm.base import Backend
from waysout.llm.connect import connect
from waysout.run.machine import cores


def run_plan(
    plan: ExperimentPlan,
    results: Results,
    *,
    llms: Sequence[str | Backend] = (),
    jobs: int | None = None,
    in_flight: int | None = None,
    progress: Watch | None = None,
    stop: StopAll | None = None,
) -> PlanSummary:
    """Run the searches of one plan that are not stored yet (see `run_plans`)."""
    backlog = backlog_of([plan], results.done(), llms=llms, in_flight=in_flight)
    return run_plans([plan], backlog, results, jobs=jobs, progress=progress, stop=stop)


def run_plans(
    plans: Iterable[ExperimentPlan],
    backlog: Backlog,
    results: Results,
    *,
    jobs: int | None = None,
    progress: Watch | None = None,
    stop: StopAll | None = None,
) -> PlanSummary:
    """Run the searches of some plans (`backlog_of`), and return a summary.

    A search that fails is recorded and does not stop the others; if an LLM becomes unreachable, the
    searches that use it end. Searches run in ``jobs`` processes, with a real LLM only if there are
    many. These share one backend, and each reply is stored before a search continues.
    """
    for plan in plans:
        results.note_plan(plan)
    began = time.monotonic()
    run = _Run(results, progress or Watch(), stop or StopAll(), jobs or cores(), backlog)
    run.all()
    run.summary.seconds = time.monotonic() - began
    run.summary.stopped = run.stop.reason
    return run.summary


@dataclass
class _Run:
    results: Results
    watch: Watch
    stop: StopAll
    jobs: int
    backlog: Backlog

    def __post_init__(self) -> None:
        self.summary = PlanSummary(on_file=self.backlog.on_file, to_do=self.backlog.searches)
        self.commit = source_commit()
        self.folder = self.results.path.parent

    def all(self) -> None:
        """Run all queues, one after the other."""
        absent = self._check_oracles()
        self._check_made_of(absent)
        for llm, group in groupby(self.backlog.queues, key=lambda queue: queue.llm):
            queues = self._able(group, absent)
            if llm is not None:
                asyncio.run(self._run_llm(queues, llm))
                continue
            for queue in queues:
                pool = WorkerPool(
                    self.jobs, self.commit, self.keep, self.watch, self.stop, self.folder
                )
                pool.run(queue)

    def _able(self, queues: Iterable[Queue], absent: Mapping[str, str]) -> Iterator[Queue]:
        """Yield queues as their turn comes, without the searches whose data set has no oracle."""
        for queue in queues:
            if self.stop.reason:
                return
            self.watch.begins(queue)
            able = []
            for task in queue.tasks:
                if task.arm.data not in absent:
                    able.append(task)
                    continue
                for query in task.queries:
                    why = absent[task.arm.data]
                    self.keep(task, failure(task.arm, task.llm, query, why))
            if able:
                yield replace(queue, tasks=able)

    def keep(self, task: Task, outcome: Outcome) -> None:
        """Store the outcome of a search, and report it."""
        if isinstance(outcome, Failure):
            self.results.add_failure(outcome)
        else:
            self.results.add(outcome)
        self.summary.add(outcome)
        self.watch.searched(task, outcome)

    @property
    def _arms(self) -> list[Arm]:
        return [task.arm for queue in self.backlog.queues for task in queue.tasks]

    def _check_oracles(self) -> dict[str, str]:
        """Raise if stored searches used another oracle; return why a data set has none now."""
        absent: dict[str, str] = {}
        on_file = self.results.oracles()
        for data in dict.fromkeys(arm.data for arm in self._arms):
            try:
                current = oracle_sha256(data)
            except WaysoutError as error:
                absent[data] = reason(error)
                continue
            others = on_file.get(data, set()) - {current}
            if others:
                raise IntegrityError(
                    f"the searches on {data} in {self.results.path} were run against a different "
                    f"oracle ({others.pop()[:12]}; the current one is {current[:12]}), so they are "
                    "not comparable; use another folder of results, or train the earlier oracle "
                    "again"
                )
        return absent

    def _check_made_of(self, absent: Collection[str]) -> None:
        """Raise if stored searches of an arm were run with different inputs."""
        on_file: dict[str, set[str]] = defaultdict(set)
        for cell in self.results.cells():
            if cell.made_of:
                on_file[cell.arm].add(cell.made_of)
        for arm in self._arms:
            if arm.id not in on_file or arm.data in absent:
                continue
            try:
                current = made_of(arm, environment(arm.data))
            except WaysoutError:
                continue  # its searches will report it
            if others := on_file[arm.id] - {current}:
                raise IntegrityError(
                    f"the searches of {arm.name} on {arm.data} in {self.results.path} were run "
                    f"with different inputs ({others.pop()}; now {current}): the card's text or "
                    "rules, the training rows or the encoder have changed, so they are not "
                    "comparable; use another folder of results, or restore the inputs"
                )

    async def _run_llm(self, queues: Iterable[Queue], llm: Llm) -> None:
        """Run the queues of an LLM with one connection: a model may take minutes to load."""
        async with AsyncExitStack() as stack:
            backend = llm.reached
            for queue in queues:
                for data in dict.fromkeys(task.arm.data for task in queue.tasks):
                    self.watch.prepares(f"loading {data}")
                    with suppress(WaysoutError):  # its searches will report it
                        environment(data)  # once, before the searches
                if isinstance(backend, str):
                    backend = await stack.enter_async_context(connect(backend))
                await self._run_queue(queue, backend)

    async def _run_queue(self, queue: Queue, backend: Backend) -> None:
        width, replied = queue.in_flight or 0, self.watch.replied
        replies = SharedReplies(backend, self.results, in_flight=width, replied=replied)
        parts = queue, replies, self.commit, self.keep, self.stop, self.folder
        jobs = processes_for(queue, self.jobs)
        running = LlmWorkers(*parts, jobs) if jobs > 1 else LlmQueueRun(*parts)
        try:
            await running.run()
        finally:
            await replies.settle()
            self.summary.paid += replies.paid
            self.summary.error = self.summary.error or running.error
