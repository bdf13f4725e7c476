"""One worker's worker: an oracle, an LLM, and some dozens of trees that parts take turns on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from waysout.batch.job import BEGUN, BatchJob, BatchTally, PartReport, PartTask
from waysout.batch.tables import PartRows, people_done, store_path
from waysout.domain.budget import Spent
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import Outcome, OutcomeKind, plain
from waysout.domain.schema import Row
from waysout.errors import OracleError, RowError, WaysoutError
from waysout.llm.base import Backend
from waysout.llm.call import Caller, Price
from waysout.llm.openai.pool import pooled
from waysout.oracles.cache import CachedOracle
from waysout.report.result import Result
from waysout.run.context import RunContext
from waysout.run.many import one, read_row
from waysout.run.options import make_plan
from waysout.run.plan import check_same_run, manifest
from waysout.store import Store
from waysout.store.lock import is_locked
from waysout.store.tables import remove

# No row of a search comes back often enough to be worth more memory.
REMEMBERED_ROWS = 5_000
_GOING_SECONDS = 10.0
DIED = "the process that searched this row died each time: killed, or out of memory"


@dataclass
class _Part:
    """A part under way: what has come of it so far."""

    task: PartTask
    store: Store
    rows: PartRows
    tally: BatchTally = field(default_factory=BatchTally)
    on_file: int = 0
    failed: int = 0
    unfinished: int = 0

    @property
    def indices(self) -> range:
        return range(self.task.first, self.task.first + len(self.task))

    def raw(self, index: int) -> Mapping[str, Any]:
        return self.task.rows[index - self.task.first]

    def add(self, result: Result) -> None:
        """Take a person's result in; whoever was interrupted is searched on another time."""
        if result.outcome.kind is OutcomeKind.INTERRUPTED:
            self.unfinished += 1
            return
        self.failed += result.outcome.kind is OutcomeKind.FAILED
        self.tally += BatchTally.of(result)
        self.rows.add(self.raw(result.index), result)


class Worker:
    """Searches for the people of parts, several parts at once, within one event loop.

    What a person gets depends on nothing but the row, the seed and the replies: neither on the part
    nor on who else is there. ``backend`` stays open for whoever gave it; without one, the worker
    connects to the LLM itself.
    """

    def __init__(self, job: BatchJob, backend: Backend | None = None) -> None:
        self.job = job
        self.plan = make_plan(job.options)
        self.problem = _remembering(job.make())
        self._own = _connected(job) if backend is None and self.plan.asks_llm else None
        self._backend = backend or self._own
        self._trees = asyncio.Semaphore(job.trees)
        self._parts: dict[int, _Part] = {}
        self.plan.method.prepare()

    @cached_property
    def context(self) -> RunContext:
        """What all searches of this worker share."""
        price, caller = self.job.options.get("price"), None
        if self.plan.asks_llm and self._backend is not None:
            priced = Price.parse(price) if isinstance(price, str) else price
            caller = Caller(self._backend, price=priced)
        return RunContext(
            self.problem,
            self.plan,
            caller=caller,
            known=self.job.known,
            memory=self.job.memory,
            in_flight=self.job.trees,
            steady=self.job.steady,
            isolate=True,
        )

    def tally(self) -> BatchTally:
        """Return the people of parts under way who have their result."""
        return sum((part.tally for part in self._parts.values()), BatchTally())

    def stop(self, reason: str) -> None:
        """End every search with what it has."""
        self.context.stop(reason)

    async def aclose(self) -> None:
        """Let the LLM go, if it is the worker's own."""
        if self._own is not None:
            await self._own.aclose()

    async def run(self, task: PartTask) -> PartReport:
        """Search for everybody in a part, and write its files when they all have their result."""
        report = PartReport(task.part)
        try:
            if await _left_alone(store_path(self.job.out, task.part)):
                rows = people_done(self.job.out, task.part) or 0
                if rows >= len(task):
                    return replace(report, done=True)
            with self._opened(task) as part:
                await self._search(part)
                if not part.unfinished:
                    await asyncio.to_thread(part.rows.write, self.job.out, task.part)
                done = not part.unfinished
                report = PartReport(task.part, part.tally, part.on_file, done)
            if done and self._is_spent(part):
                remove(part.store.path)
        except Exception as error:
            self.context.fail(error)
        return replace(report, stopped=self.context.stopped, exit_code=self._exit_code)

    @property
    def _exit_code(self) -> int:
        failure = self.context.failure
        if failure is None:
            return 0
        return failure.exit_code if isinstance(failure, WaysoutError) else 1

    def _is_spent(self, part: _Part) -> bool:
        """Whether a part's store is of no more use: nobody is to be searched again."""
        return not (self.job.keep_stores or part.failed or part.task.cut)

    @contextmanager
    def _opened(self, task: PartTask) -> Iterator[_Part]:
        with self._store(store_path(self.job.out, task.part), len(task)) as store:
            rows = PartRows(self.problem.schema, self.job.columns)
            part = _Part(task, store, rows, on_file=store.summary().finished)
            self._parts[task.part] = part
            try:
                yield part
            finally:
                del self._parts[task.part]

    def _store(self, path: Path, people: int) -> Store:
        described = manifest(self.problem, self.plan, self.context.llm)
        if not path.exists():
            return Store.create(path, {"queries": people, **plain(described)})
        store = Store.open(path)
        try:
            check_same_run(store, described)
            store.expect(people)
        except BaseException:
            store.close()
            raise
        return store

    # People ------------------------------------------------------------------------------------

    async def _search(self, part: _Part) -> None:
        if part.task.careful:
            for index in part.indices:
                await self._person(part, index)
            return
        approved = await self._approved(part)
        for index, outcome in approved.items():
            part.add(_settled(self.problem, index, part.raw(index), outcome))
        async with asyncio.TaskGroup() as group:
            for index in part.indices:
                if index not in approved:
                    group.create_task(self._person(part, index))

    async def _person(self, part: _Part, index: int) -> None:
        if index in part.task.skip:
            part.add(Result(query={}, outcome=Outcome(OutcomeKind.FAILED, DIED), index=index))
            return
        async with self._trees:
            try:
                if part.task.careful:
                    part.store.event(BEGUN, {}, index)
                result = (
                    None
                    if self.context.stopped
                    else await one(self.context, index, part.raw(index), part.store)
                )
            except Exception as error:  # a store that cannot be written, or is another's
                self.context.fail(error)
                result = None
        if result is None:
            part.unfinished += 1
        else:
            part.add(result)

    async def _approved(self, part: _Part) -> dict[int, Outcome]:
        """Return who is approved already, asked in one batch: they need no search and no store."""
        readable: dict[int, Row] = {}
        for index in part.indices:
            with suppress(RowError):
                readable[index] = read_row(self.problem, part.raw(index))
        try:
            answers = await self.context.batcher.ask([*readable.values()]) if readable else None
        except OracleError:
            return {}  # each is asked alone, and it is known whose fault it was
        found = {}
        for i, (index, row) in enumerate(readable.items()):
            assert answers is not None
            at = slice(i, i + 1)
            alone = Answers(answers.probability[at], answers.decision[at])
            settled = self.problem.settled(row, alone)
            if settled is not None and settled.kind is OutcomeKind.ALREADY_APPROVED:
                found[index] = settled
        return found


async def _left_alone(path: Path) -> bool:
    """Wait until nobody writes a store; whether somebody did.

    The workers of a driver that was killed take a moment to go, and may finish a part meanwhile.
    """
    if not is_locked(path):
        return False
    with suppress(TimeoutError):
        async with asyncio.timeout(_GOING_SECONDS):
            while is_locked(path):
                await asyncio.sleep(0.05)
    return True


def _remembering(problem: Problem) -> Problem:
    return replace(problem, oracle=CachedOracle(problem.oracle, max_rows=REMEMBERED_ROWS))


def _connected(job: BatchJob) -> Backend:
    llm = job.options.get("llm")
    return pooled(llm) if isinstance(llm, str) else llm  # type: ignore[return-value]


def _settled(problem: Problem, index: int, raw: Mapping[str, Any], outcome: Outcome) -> Result:
    row = read_row(problem, raw)
    return Result(
        query=problem.schema.as_dict(row),
        outcome=outcome,
        ledger=Spent(setup_rows=1),
        settings={"query_probability": outcome.best_probability},
        index=index,
    )
