"""A worker: one model, one LLM, one event loop, and searches of several parts side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from waysout.batch.job import BEGUN, BatchJob, BatchTally, PartReport, PartTask
from waysout.batch.tables import PartRows, people_done, store_path
from waysout.domain.budget import Spent
from waysout.domain.oracle import Answers
from waysout.domain.result import Outcome, OutcomeKind, plain
from waysout.domain.schema import Row
from waysout.domain.spelling import as_in_table
from waysout.errors import (
    InputError,
    IntegrityError,
    LLMError,
    OracleError,
    RowError,
    RuleError,
    WaysoutError,
)
from waysout.llm.base import Backend
from waysout.llm.call import Caller, Price
from waysout.llm.openai.pool import pooled
from waysout.oracles.cache import CachedOracle
from waysout.oracles.watchdog import MOST_HUNG, hung
from waysout.report.result import Result
from waysout.run.context import RunContext
from waysout.run.driver import UNEXPECTED
from waysout.run.find import search_one
from waysout.run.options import make_plan, read_row
from waysout.run.plan import check_same_run, manifest
from waysout.store import Store
from waysout.store.lock import is_locked
from waysout.store.tables import remove

# Few rows of a search are asked again: a larger cache is not worth its memory.
REMEMBERED_ROWS = 5_000
# A process makes no more than `MOST_HUNG` calls that hang, and refuses everybody from then on. A
# worker gives up far below: the next calls are on their way, and may hang as well.
MOST_LEFT = MOST_HUNG // 2
_EXIT_SECONDS = 10.0
DIED = "the process that searched this row died each time: killed, out of memory, or hung"


@dataclass
class _Part:
    """A part under way."""

    task: PartTask
    store: Store
    rows: PartRows
    on_file: int
    tally: BatchTally = field(default_factory=BatchTally)
    failed: int = 0
    unfinished: int = 0
    settled: list[int] = field(default_factory=list)
    doubted: list[int] = field(default_factory=list)

    @property
    def people(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        return enumerate(self.task.rows, self.task.first)

    def add(self, raw: Mapping[str, Any], result: Result | None) -> None:
        """Add a person's result; an interrupted search is resumed another time."""
        if result is None or result.outcome.kind is OutcomeKind.INTERRUPTED:
            self.unfinished += 1
            return
        if result.outcome.kind is OutcomeKind.FAILED:
            self.failed += 1
            self.settled.append(result.index)
        self.tally += BatchTally.of(result)
        self.rows.add(raw, result)


class Worker:
    """Searches for the people of parts, several parts at once, within one event loop.

    A result depends on nothing but the row, the seed and the replies: neither on the part nor on
    who else is in it. ``backend`` is left open for its owner; without one, the worker connects to
    the LLM itself.

    All of them share a process, which the model may spoil when it is asked about one of them: with
    calls that never end, a limit or a function of the process that is another. A worker that
    notices such a thing hands its parts back as they are, for one in a new process, rather than
    let others fail by it.
    """

    def __init__(self, job: BatchJob, backend: Backend | None = None) -> None:
        self.job = job
        self.plan = plan = make_plan(job.options)
        problem = job.make()
        cached = CachedOracle(problem.oracle, max_rows=REMEMBERED_ROWS)
        self.problem = replace(problem, oracle=cached)
        llm, price = job.options.get("llm"), job.options.get("price")
        self._own: Backend | None = None
        if backend is None and plan.asks_llm:
            backend = self._own = pooled(llm) if isinstance(llm, str) else llm
        caller = None
        if plan.asks_llm and backend is not None:
            caller = Caller(backend, price=Price.parse(price) if isinstance(price, str) else price)
        # An unexpected error fails its row alone: right overnight, where `find_many` ends instead.
        self.context = RunContext(
            self.problem,
            plan,
            caller=caller,
            known=job.known,
            memory=job.memory,
            in_flight=job.trees,
            steady=job.steady,
            isolate=True,
        )
        self._trees = asyncio.Semaphore(job.trees)
        self._parts: dict[int, _Part] = {}
        self._has_asked = False
        """Whether the model was asked about anyone in this process."""
        self._given_up = False
        self._suspect = False
        """Whether it failed by an error that may be what the model did to the process."""
        plan.method.prepare()

    def tally(self) -> BatchTally:
        """Return the people done in parts under way."""
        return sum((part.tally for part in self._parts.values()), BatchTally())

    def stop(self, reason: str) -> None:
        """Stop every search with what it has found."""
        self.context.stop(reason)

    async def aclose(self) -> None:
        """Close the LLM if the worker has connected to it itself."""
        if self._own is not None:
            await self._own.aclose()

    async def run(self, task: PartTask) -> PartReport:
        """Search for everyone in a part, and write its files when all have their result."""
        report, out, path = PartReport(task.part), self.job.out, store_path(self.job.out, task.part)
        if self.context.stopped:
            return self._told(report)
        try:
            if await _wait_for_writer(path) and (people_done(out, task.part) or 0) >= len(task):
                return replace(report, done=True)
            described = manifest(self.problem, self.plan, self.context.llm)
            new = {"queries": len(task), **plain(described)}
            with Store.open(path) if path.exists() else Store.create(path, new) as store:
                check_same_run(store, described)
                store.expect(len(task))
                job = self.job
                rows = PartRows(
                    self.problem.schema, job.columns, job.contents, as_in_table=job.as_in_table
                )
                part = _Part(task, store, rows, on_file=store.summary().finished)
                self._parts[task.part] = part
                try:
                    await self._search(part)
                    done = not part.unfinished
                    # A failed row may be retried, and a part that a limit cut may grow.
                    keeps = bool(self.job.keep_stores or part.failed or task.cut)
                    if done:
                        await asyncio.to_thread(rows.write, out, task.part, keeps_store=keeps)
                        _check_written(out, task)
                    report = PartReport(
                        task.part, part.tally, part.on_file, done,
                        settled=tuple(part.settled), doubted=tuple(part.doubted),
                    )  # fmt: skip
                finally:
                    del self._parts[task.part]
            if done and not keeps:
                remove(path)
        except Exception as error:
            self._fail(error)
        return self._told(report)

    def _told(self, report: PartReport) -> PartReport:
        """Return a part's report with what is to become of the worker and of the batch."""
        failure, code = self.context.failure, 0
        if failure is not None:
            code = failure.exit_code if isinstance(failure, WaysoutError) else 1
        return replace(
            report,
            stopped="" if self._given_up else self.context.stopped,
            exit_code=code,
            lost=self._suspect and not report.done,
            worn=hung() > 0 or self._given_up or self._suspect or bool(report.doubted),
        )

    def _fail(self, error: Exception) -> None:
        """End every search because of an error.

        A disk that is full is so for every process, and one in which the model was not asked yet
        may say so. A limit on open files may be what the model has set.
        """
        says = isinstance(error, (InputError, IntegrityError, LLMError))
        self._suspect |= self._has_asked and not says
        self.context.fail(error)

    def _give_up(self, reason: str) -> None:
        """Have all parts handed back as they are."""
        if not self.context.stopped:
            self._given_up = True
            self.context.stop(reason)

    def _look(self) -> None:
        """Give up once too many calls hang in this process."""
        if (left := hung()) >= MOST_LEFT:
            self._give_up(f"{left} calls of the model have not come back in this process")

    async def _search(self, part: _Part) -> None:
        if part.task.isolated:
            # In no order of the table, which may be sorted: that many die one after the other is to
            # tell of the machine, not of those who are alike.
            people = list(part.people)
            for place in np.random.default_rng(0).permutation(len(people)):
                await self._person(part, *people[place])
            return
        approved, scored = await self._score(part)
        self._look()
        async with asyncio.TaskGroup() as group:
            for index, raw in part.people:
                if index in approved:
                    part.add(raw, approved[index])
                else:
                    group.create_task(self._person(part, index, raw, fresh=index in scored))

    async def _person(
        self, part: _Part, index: int, raw: Mapping[str, Any], *, fresh: bool = False
    ) -> None:
        if index in part.task.skip:
            outcome = Outcome(OutcomeKind.FAILED, DIED)
            part.add(raw, Result(query={}, outcome=outcome, index=index))
            return
        result = None
        async with self._trees:
            try:
                if index in part.task.settled and (before := part.store.partial(index)):
                    part.add(raw, as_in_table(self.problem.schema, Result.of(before)))
                    return
                if not self.context.stopped:
                    if part.task.isolated:
                        part.store.event(BEGUN, {}, index)
                    self._has_asked = True
                    result = await search_one(self.context, index, raw, part.store, fresh=fresh)
            except Exception as error:  # the store cannot be written, or is of another run
                self._fail(error)
        failed = result is not None and result.outcome.kind is OutcomeKind.FAILED
        if result is not None and failed and result.outcome.reason.startswith(UNEXPECTED):
            # Theirs, if they were the only ones; and the next ones are not to suffer from it.
            part.doubted.append(index)
            if part.task.isolated:
                self._give_up("the model may have changed this process")
            else:
                result = None
        part.add(raw, result)
        self._look()

    async def _score(self, part: _Part) -> tuple[dict[int, Result], set[int]]:
        """Ask about everyone of a part whose answer is not on file, in one batch.

        Return the results of those who are approved already, and who else was asked about. In most
        tables the approved are the majority; they need neither a search nor the store. The answers
        of the others are recorded at once, so that each is asked, and paid for, once.
        """
        if self.context.stopped:
            return {}, set()
        store, schema = part.store, self.problem.schema
        on_file = {i for i, _ in store.queries() if next(store.setup(i), None) is not None}
        rows: dict[int, Row] = {}
        for index, raw in part.people:
            if index not in on_file and index not in part.task.settled:
                with suppress(RowError):
                    rows[index] = read_row(self.problem, raw)
        if not rows:
            return {}, set()
        self._has_asked = True
        try:
            answers = await self.context.batcher.ask([*rows.values()])
        except OracleError:
            return {}, set()  # each is asked alone, to find the rows at fault
        found: dict[int, Result] = {}
        paid = Spent(setup_rows=1)
        for i, (index, row) in enumerate(rows.items()):
            alone = Answers(answers.probability[i : i + 1], answers.decision[i : i + 1])
            with suppress(RuleError):  # the search for this person meets it, too, and fails alone
                outcome = self.problem.settled(row, alone)
                if outcome is not None and outcome.kind is OutcomeKind.ALREADY_APPROVED:
                    found[index] = Result(
                        query=schema.raw(row),
                        outcome=outcome,
                        ledger=paid,
                        settings={"query_probability": outcome.best_probability},
                        index=index,
                    )
            if index not in found:
                store.add_query(index, schema.as_dict(row))
                store.record_setup(index, "query", [row], alone, paid)
        return found, rows.keys() - found.keys()


def _check_written(out: Path, task: PartTask) -> None:
    """Raise unless a part is on file with everybody in it."""
    if (people_done(out, task.part) or 0) < len(task):
        raise WaysoutError(f"part {task.part} was written with fewer people than it has")


async def _wait_for_writer(path: Path) -> bool:
    """Wait until no process writes a store; whether one did.

    The workers of a driver that was killed take a moment to exit, and may finish a part meanwhile.
    """
    if not is_locked(path):
        return False
    with suppress(TimeoutError):
        async with asyncio.timeout(_EXIT_SECONDS):
            while is_locked(path):
                await asyncio.sleep(0.05)
    return True
