"""One person's search, driven to its end: the LLM, the oracle, the ledger and the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np

from waysout.domain.budget import Ledger, Spent
from waysout.domain.metrics import run_metrics, set_metrics
from waysout.domain.oracle import Answers
from waysout.domain.result import Option, Outcome, OutcomeKind
from waysout.domain.schema import Row
from waysout.errors import (
    BudgetSpent,
    InputError,
    LLMFailure,
    LLMUnreachable,
    OracleError,
    RuleError,
)
from waysout.llm.base import Reply
from waysout.report.result import Result
from waysout.run.office import Office
from waysout.run.progress import Progress
from waysout.search.archive import Archive
from waysout.search.base import Case, Ending, Search
from waysout.search.work import Answer, Evaluate, Propose, Work
from waysout.store import check_same


class Person:
    """Drives one search. What was recorded before a kill is told again, never asked again."""

    def __init__(self, office: Office, index: int, query: Row) -> None:
        self.office = office
        self.index = index
        self.query = query
        self.ledger = Ledger(office.plan.budget, _spent_before(office, index))
        self.search: Search | None = None
        self.settings = dict(office.settings)
        self._noted = 0
        self._refused: BudgetSpent | None = None

    async def result(self) -> Result:
        """Return the result, whatever becomes of the search."""
        try:
            answers = await self._score()
            self.settings |= {
                "query_probability": float(answers.probability[0]),
                "query_approved": bool(answers.decision[0]),
            }
            settled = self.office.problem.settled(self.query, answers)
            if settled is not None:
                return self._close(settled)
            self.search = self._start(float(answers.probability[0]))
            ending = await self._drive(self.search)
        except BudgetSpent as error:
            ending = Ending(OutcomeKind.BUDGET_SPENT, str(error))
        except (OracleError, RuleError) as error:
            ending = Ending(OutcomeKind.FAILED, str(error))
        except LLMUnreachable as error:
            self.office.stop(str(error))
            ending = Ending(OutcomeKind.INTERRUPTED, str(error))
        except LLMFailure as error:
            ending = Ending(OutcomeKind.INTERRUPTED, str(error))
        except asyncio.CancelledError:
            if not self.office.stopped:
                raise
            ending = Ending(OutcomeKind.INTERRUPTED, self.office.stopped)
        options = await self._options(ending)
        return self._close(self._outcome(ending), options)

    # Set-up ------------------------------------------------------------------------------------

    async def _score(self) -> Answers:
        """Ask the oracle of the query itself; the first person also pays for the probe."""
        store = self.office.store
        for known in store.setup(self.index) if store else ():
            return known.answers
        self._check_stopped()
        probed = self.office.probe_rows if self.index == 0 else 0
        self.ledger.take_setup_rows(1 + probed)
        async with self._in_time():
            answers = await self.office.desk.ask([self.query])
        if store:
            store.record_setup(self.index, "query", [self.query], answers, self.ledger.spent)
        return answers

    def _start(self, probability: float) -> Search:
        office = self.office
        goal = office.problem.goal.for_query(probability)
        case = Case(
            problem=replace(office.problem, goal=goal),
            query=self.query,
            probability=probability,
            budget=office.plan.budget,
            k=office.plan.k,
            seed=office.plan.seed,
            proposer=office.proposer,
            known=office.known,
        )
        return office.plan.method.start(case)

    # The loop ----------------------------------------------------------------------------------

    async def _drive(self, search: Search) -> Ending:
        tasks: dict[asyncio.Task[Answer], Work] = {}
        try:
            for work in self._replay(search):
                tasks[self._begin(work)] = work
            while not search.done:
                self._check_stopped()
                while (next_work := search.ask()) is not None:
                    tasks[self._begin(next_work)] = next_work
                if tasks:
                    await self._take_in(search, tasks)
                elif not search.done:
                    name = self.office.plan.name
                    raise self._refused or InputError(f"{name!r} neither asks nor ends")
            assert search.ending is not None
            return search.ending
        finally:
            await self._leave(search, tasks)

    async def _leave(self, search: Search, tasks: dict[asyncio.Task[Answer], Work]) -> None:
        """Cancel what is under way; what came meanwhile was paid for, and is taken in."""
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
        for task, work in sorted(tasks.items(), key=lambda item: item[1].id):
            if not task.cancelled() and task.exception() is None:
                self._tell(search, work, task.result())

    def _check_stopped(self) -> None:
        if self.office.stopped:
            raise asyncio.CancelledError

    def _replay(self, search: Search) -> list[Work]:
        """Tell the search what is on file; return what was asked and not answered then."""
        if self.office.store is None:
            return []
        waiting: dict[int, Work] = {}
        for recorded in self.office.store.answers(self.index):
            while search.asked < recorded.asked and (work := search.ask()) is not None:
                waiting[work.id] = work
            # A search that asks nothing, or something else, is not the one on file.
            found = waiting.pop(recorded.work_id, Evaluate(recorded.work_id, ()))
            check_same(found, recorded, self.office.llm or "")
            search.tell(found, recorded.answer)
        self._note(search)
        return list(waiting.values())

    def _begin(self, work: Work) -> asyncio.Task[Answer]:
        return asyncio.create_task(self._answer(work))

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        """Wait inside up to the deadline, whoever keeps us waiting."""
        left = self.ledger.seconds_left
        try:
            async with asyncio.timeout(None if left == float("inf") else left):
                yield
        except TimeoutError:
            limit = self.office.plan.budget.seconds
            raise BudgetSpent(f"the deadline of {limit:g} seconds has passed") from None

    async def _answer(self, work: Work) -> Answer:
        async with self._in_time():
            if isinstance(work, Propose):
                async with self.office.in_flight:
                    return await self.office.call(work.request, self.ledger)
            self.ledger.take_rows(len(work.rows))
            return await self.office.desk.ask(work.rows)

    async def _take_in(self, search: Search, tasks: dict[asyncio.Task[Answer], Work]) -> None:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finished = sorted((t for t in tasks if t.done()), key=lambda t: tasks[t].id)
        for task in finished:
            work = tasks.pop(task)
            try:
                answer = task.result()
            except BudgetSpent as error:
                self._refused = error  # those under way were granted before, and still count
            else:
                self._tell(search, work, answer)

    def _tell(self, search: Search, work: Work, answer: Answer) -> None:
        """Take an answer in; it is on file before anything follows from it."""
        store = self.office.store
        if store:
            spent, model = self.ledger.spent, self.office.llm or ""
            store.record(self.index, search.asked, work, answer, spent, model=model)
        search.tell(work, answer)
        self._note(search)
        self._report(search)

    def _note(self, search: Search) -> None:
        """File new options; after a kill all of them again, since the last may not be there."""
        store = self.office.store
        if store and len(search.archive) > self._noted:
            store.options_found(self.index, search.archive.options(self._noted))
            self._noted = len(search.archive)

    def _report(self, search: Search) -> None:
        if self.office.progress is not None:
            spent, archive = self.ledger.spent, search.archive
            self.office.progress(
                Progress(self.index, spent.llm_calls, spent.oracle_rows, len(archive),
                         archive.best_probability, spent.seconds)
            )  # fmt: skip

    # The end -----------------------------------------------------------------------------------

    def _outcome(self, ending: Ending) -> Outcome:
        archive = self.search.archive if self.search else None
        best = archive.best_probability if archive is not None else None
        unfinished = ending.kind in (OutcomeKind.INTERRUPTED, OutcomeKind.FAILED)
        if archive and len(archive) and not unfinished:
            return Outcome(OutcomeKind.FOUND, ending.reason, best_probability=best)
        return Outcome(ending.kind, ending.reason, best_probability=best)

    async def _options(self, ending: Ending) -> list[Option]:
        """Return the options, each asked once more: a model that wavers is no promise."""
        if self.search is None:
            return []
        options = self.search.archive.options()
        rows = self.search.archive.rows
        asked = int(min(len(rows), self.ledger.setup_rows_left))
        if not asked or ending.kind in (OutcomeKind.INTERRUPTED, OutcomeKind.FAILED):
            return options
        try:
            self.ledger.take_setup_rows(asked)
            async with self._in_time():
                again = await self.office.past_memory.ask(rows[:asked])
        except (BudgetSpent, OracleError, asyncio.CancelledError):
            return options  # found, if not asked twice
        met = self.search.case.problem.goal.met(again)
        firm = np.concatenate([met, np.ones(len(rows) - asked, dtype=bool)])
        return [replace(o, stable=bool(f)) for o, f in zip(options, firm, strict=True)]

    def _close(self, outcome: Outcome, options: list[Option] | None = None) -> Result:
        office, search = self.office, self.search
        archive = search.archive if search else Archive(office.problem, self.query)
        result = Result(
            query=office.problem.schema.as_dict(self.query),
            outcome=outcome,
            options=tuple(options or ()),
            near_misses=() if options else tuple(archive.near_misses()),
            ledger=self.ledger.spent,
            metrics=metrics_of(office, archive),
            rejections=dict(archive.rejections),
            settings=self.settings,
            index=self.index,
        )
        if office.store:
            office.store.finish(self.index, result)
        return result


def metrics_of(office: Office, archive: Archive) -> dict[str, float | int | None]:
    """Return what a result tells in numbers; every result has the same names."""
    found = set_metrics(office.problem, archive.query, archive.unique_rows, office.approved)
    counts = run_metrics(archive.valid, archive.evaluated, archive.pruned, archive.generated)
    return {**found, **counts, "within_query_key": len(archive) - len(archive.unique_rows)}


def _spent_before(office: Office, index: int) -> Spent:
    """Return what the answers on file cost.

    The ledger filed with an answer may count others that were under way and never came to file:
    they will be asked, and paid for, again.
    """
    if office.store is None:
        return Spent()
    last, usages, rows = office.store.spent(index), [], 0
    for recorded in office.store.answers(index):
        rows += len(recorded.rows)
        if isinstance(recorded.answer, Reply):
            usages.append(recorded.answer.usage)
    price = office.caller.price if office.caller else None
    return replace(
        last,
        llm_calls=len(usages),
        tokens_in=sum(usage.tokens_in for usage in usages),
        tokens_out=sum(usage.tokens_out for usage in usages),
        cached_tokens=sum(usage.cached_tokens for usage in usages),
        oracle_rows=rows,
        money=sum(map(price.of, usages)) if price else last.money,
    )
