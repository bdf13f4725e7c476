"""Runs plans: whatever is on file is not done again, and whatever is done is on file at once."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from waysout.bench.arms import ExperimentPlan
from waysout.bench.lane import LlmLane
from waysout.bench.measure import CellMeasurement, made_of, oracle_sha256, source_commit, world
from waysout.bench.progress import Outcome, PlanSummary, StopAll, Watch
from waysout.bench.replies import SharedReplies
from waysout.bench.results import Failure, Results
from waysout.bench.tasks import Lane, Llm, Todo, Work, work_of
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
    """Run what there is to do of one plan (see `run_plans`)."""
    work = work_of([plan], results.done(), llms=llms, in_flight=in_flight)
    return run_plans([plan], work, results, jobs=jobs, progress=progress, stop=stop)


def run_plans(
    plans: Iterable[ExperimentPlan],
    work: Work,
    results: Results,
    *,
    jobs: int | None = None,
    progress: Watch | None = None,
    stop: StopAll | None = None,
) -> PlanSummary:
    """Run the work of some plans (`work_of`), and say what came of it.

    A search that fails is listed and stops no other; an LLM that is gone ends those that ask it.
    Searches without an LLM, or with a simulated one, run in so many processes (``jobs``); the rest
    share one backend, and whatever it has said is on file before anything follows from it.
    """
    for plan in plans:
        results.note_plan(plan)
    began = time.monotonic()
    run = _Run(results, progress or Watch(), stop or StopAll(), jobs or cores(), work)
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
    work: Work

    def __post_init__(self) -> None:
        self.summary = PlanSummary(on_file=self.work.on_file, to_do=self.work.searches)
        self.commit = source_commit()

    def all(self) -> None:
        """Run lane after lane."""
        absent = self._check_oracles()
        self._check_made_of(absent)
        for lane in self.work.lanes:
            if self.stop.reason:
                return
            self.watch.begins(lane)
            able = self._able(lane, absent)
            if able.todos:
                if able.llm is not None:
                    self._run_llm(able, able.llm)
                else:
                    pool = WorkerPool(self.jobs, self.commit, self.keep, self.watch, self.stop)
                    pool.run(able)

    def keep(self, todo: Todo, outcome: Outcome) -> None:
        """Put the end of a search on file, and tell of it."""
        if isinstance(outcome, Failure):
            self.results.add_failure(outcome)
        else:
            self.results.add(outcome)
        self.summary.add(outcome)
        self.watch.searched(todo, outcome)

    def _check_oracles(self) -> dict[str, str]:
        """Refuse to add to searches of another oracle; returns why a data set has none today."""
        absent: dict[str, str] = {}
        on_file = self.results.oracles()
        for data in dict.fromkeys(t.arm.data for lane in self.work.lanes for t in lane.todos):
            try:
                today = oracle_sha256(data)
            except WaysoutError as error:
                absent[data] = reason(error)
                continue
            others = on_file.get(data, set()) - {today}
            if others:
                raise IntegrityError(
                    f"the searches on {data} in {self.results.path} are of another oracle "
                    f"({others.pop()[:12]}; today's is {today[:12]}), which cannot be compared: "
                    "take another folder (--results), or train the oracle of then again"
                )
        return absent

    def _check_made_of(self, absent: Collection[str]) -> None:
        """Refuse to add to an arm's searches what would be asked otherwise than they were."""
        on_file: dict[str, set[str]] = defaultdict(set)
        for cell in self.results.cells():
            if cell.made_of:
                on_file[cell.arm].add(cell.made_of)
        for arm in (todo.arm for lane in self.work.lanes for todo in lane.todos):
            if arm.id not in on_file or arm.data in absent:
                continue
            try:
                today = made_of(arm, world(arm.data))
            except WaysoutError:
                continue  # its searches will say so
            if others := on_file[arm.id] - {today}:
                raise IntegrityError(
                    f"the searches of {arm.name} on {arm.data} in {self.results.path} were made "
                    f"of something else ({others.pop()}; today's is {today}): the card's words or "
                    "rules, the training rows or the encoder have changed, and they cannot be "
                    "compared: take another folder (--results), or those of then"
                )

    def _able(self, lane: Lane, absent: dict[str, str]) -> Lane:
        """Return the lane without the data sets that are not here, whose searches fail."""
        for todo in lane.todos:
            if todo.arm.data in absent:
                measure = CellMeasurement(todo.arm, todo.llm, "", self.commit)
                for query in todo.people:
                    self.keep(todo, measure.failure(query, absent[todo.arm.data]))
        able = [todo for todo in lane.todos if todo.arm.data not in absent]
        return Lane(lane.llm, lane.in_flight, lane.alone, able)

    def _run_llm(self, lane: Lane, llm: Llm) -> None:
        for data in dict.fromkeys(todo.arm.data for todo in lane.todos):
            self.watch.prepares(f"loading {data}")
            try:
                world(data)  # once, and not in the midst of the searches
            except WaysoutError:
                continue  # its searches will say so
        asyncio.run(self._ask_llm(lane, llm))

    async def _ask_llm(self, lane: Lane, llm: Llm) -> None:
        async with AsyncExitStack() as stack:
            backend = llm.reached
            if isinstance(backend, str):
                backend = await stack.enter_async_context(connect(backend))
            replies = SharedReplies(backend, self.results, in_flight=lane.in_flight or 0)
            running = LlmLane(lane, replies, self.commit, self.keep, self.stop)
            try:
                await running.run()
            finally:
                await replies.settle()
                self.summary.paid += replies.paid
                self.summary.error = self.summary.error or running.error
