"""A worker: one model, one LLM, one event loop, and searches of several parts side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from waysout.batch.job import BEGUN, BatchJob, BatchTally, PartReport, PartTask
from waysout.batch.tables import PartRows, people_done, store_path
from waysout.domain.budget import Spent
from waysout.domain.oracle import Answers
from waysout.domain.result import Outcome, OutcomeKind, plain
from waysout.domain.schema import Row
from waysout.errors import OracleError, RowError, RuleError, WaysoutError
from waysout.llm.base import Backend
from waysout.llm.call import Caller, Price
from waysout.llm.openai.pool import pooled
from waysout.oracles.cache import CachedOracle
from waysout.oracles.watchdog import hung
from waysout.report.result import Result
from waysout.run.context import RunContext
from waysout.run.find import search_one
from waysout.run.options import make_plan, read_row
from waysout.run.plan import check_same_run, manifest
from waysout.store import Store
from waysout.store.lock import is_locked
from waysout.store.tables import remove

# Few rows of a search are asked again: a larger cache is not worth its memory.
REMEMBERED_ROWS = 5_000
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

    @property
    def people(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        return enumerate(self.task.rows, self.task.first)

    def add(self, raw: Mapping[str, Any], result: Result | None) -> None:
        """Add a person's result; an interrupted search is resumed another time."""
        if result is None or result.outcome.kind is OutcomeKind.INTERRUPTED:
            self.unfinished += 1
            return
        self.failed += result.outcome.kind is OutcomeKind.FAILED
        self.tally += BatchTally.of(result)
        self.rows.add(raw, result)


class Worker:
    """Searches for the people of parts, several parts at once, within one event loop.

    A result depends on nothing but the row, the seed and the replies: neither on the part nor on
    who else is in it. ``backend`` is left open for its owner; without one, the worker connects to
    the LLM itself.
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
                    report = PartReport(task.part, part.tally, part.on_file, done)
                finally:
                    del self._parts[task.part]
            if done and not keeps:
                remove(path)
        except Exception as error:
            self.context.fail(error)
        failure, code = self.context.failure, 0
        if failure is not None:
            code = failure.exit_code if isinstance(failure, WaysoutError) else 1
        return replace(report, stopped=self.context.stopped, exit_code=code, worn=hung() > 0)

    async def _search(self, part: _Part) -> None:
        if part.task.isolated:
            for index, raw in part.people:
                await self._person(part, index, raw)
            return
        approved, scored = await self._score(part)
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
                if part.task.isolated:
                    part.store.event(BEGUN, {}, index)
                if not self.context.stopped:
                    result = await search_one(self.context, index, raw, part.store, fresh=fresh)
            except Exception as error:  # the store cannot be written, or is of another run
                self.context.fail(error)
        part.add(raw, result)

    async def _score(self, part: _Part) -> tuple[dict[int, Result], set[int]]:
        """Ask about everyone of a part whose answer is not on file, in one batch.

        Return the results of those who are approved already, and who else was asked about. In most
        tables the approved are the majority; they need neither a search nor the store. The answers
        of the others are recorded at once, so that each is asked, and paid for, once.
        """
        store, schema = part.store, self.problem.schema
        on_file = {i for i, _ in store.queries() if next(store.setup(i), None) is not None}
        rows: dict[int, Row] = {}
        for index, raw in part.people:
            if index not in on_file:
                with suppress(RowError):
                    rows[index] = read_row(self.problem, raw)
        if not rows:
            return {}, set()
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
