"""One person's search, driven to its end: the LLM, the oracle, the ledger and the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from waysout.domain.budget import Ledger, Spent
from waysout.domain.memory import Past
from waysout.domain.metrics import Metrics, run_metrics, set_metrics
from waysout.domain.oracle import Answers
from waysout.domain.result import Option, Outcome, OutcomeKind
from waysout.domain.schema import Row
from waysout.errors import (
    BudgetSpent,
    InputError,
    IntegrityError,
    LLMError,
    LLMFailure,
    LLMRefused,
    OracleError,
    RuleError,
    WaysoutError,
)
from waysout.oracles.probe import SAME
from waysout.report.result import Result
from waysout.run.context import PROBED, RunContext
from waysout.run.progress import Progress, Tried
from waysout.run.recall import REMEMBERED, known_before, spent_before
from waysout.search.archive import Archive
from waysout.search.base import Ending, Search
from waysout.search.work import Answer, Evaluate, Propose, Work
from waysout.store import Store, check_same

_UNFINISHED = (OutcomeKind.INTERRUPTED, OutcomeKind.FAILED)


class SearchDriver:
    """Drives one search. What was recorded before a kill is told again, never asked again."""

    def __init__(
        self,
        context: RunContext,
        index: int,
        query: Row,
        *,
        store: Store | None = None,
        scored: Answers | None = None,
        probe_rows: int = 0,
    ) -> None:
        """Begin, from where time counts.

        ``store`` records this person; ``scored`` is what is on file of the query itself.
        """
        self.context = context
        self.store = store
        self.index = index
        self.query = query
        price = context.caller.price if context.caller else None
        before = spent_before(store, index, price) if store else Spent()
        paid = replace(before, setup_rows=before.setup_rows + probe_rows)
        self.ledger = Ledger(context.plan.budget, paid)
        self._scored = scored
        self._probe_rows = probe_rows
        memory = context.memory
        self._memory = memory.of(context.problem, query) if memory is not None else None
        self.search: Search | None = None
        self.settings = dict(context.settings)
        self._filed = self._told = 0  # options on file, options told
        self._kept = self._named = 0  # options and edits remembered
        self._refused: BudgetSpent | None = None
        self._went_without = False  # a call, which the limits did not allow

    async def result(self) -> Result:
        """Return the result, whatever becomes of the search."""
        try:
            settled = await self._settle()
            if settled is not None:
                return await self._close(settled)
            assert self.search is not None
            ending = await self._drive(self.search)
        except (Exception, asyncio.CancelledError) as error:
            ending = self._ended_by(error)
        options = self.search.archive.options() if self.search else []
        if options and ending.kind not in _UNFINISHED:
            try:
                options = await self._ask_again(options)
            except asyncio.CancelledError as error:
                ending = self._ended_by(error)
        return await self._close(self._outcome(ending), options)

    def _ended_by(self, error: BaseException) -> Ending:
        """Return how an error ends this search; what is no end of a search is raised again."""
        context, stopped = self.context, isinstance(error, asyncio.CancelledError)
        if isinstance(error, BudgetSpent):
            return Ending(OutcomeKind.BUDGET_SPENT, str(error))
        if isinstance(error, (OracleError, RuleError)):
            return Ending(OutcomeKind.FAILED, str(error))
        if isinstance(error, LLMFailure):
            return Ending(OutcomeKind.INTERRUPTED, str(error))
        if context.isolate and isinstance(error, Exception) and _concerns_one(error):
            return Ending(OutcomeKind.FAILED, _told(error))
        if isinstance(error, Exception) and _concerns_all(error):
            context.fail(error)
        elif not (stopped and context.stopped):
            if self.search is not None:
                self._report(self.search)  # no result will tell what was spent
            raise error
        return Ending(OutcomeKind.INTERRUPTED, context.stopped)

    # Set-up ------------------------------------------------------------------------------------

    async def _settle(self) -> Outcome | None:
        """Return the outcome where it is known before any search, or begin one."""
        answers = await self._score()
        chance = float(answers.probability[0])
        self.settings |= {
            "query_probability": chance,
            "query_approved": bool(answers.decision[0]),
        }
        settled = self.context.problem.settled(self.query, answers)
        if settled is None:
            self.search = self._start(chance)
        return settled

    async def _score(self) -> Answers:
        """Ask the oracle of the query itself."""
        if self._scored is not None:
            await self._check_model(self._scored)
            return self._scored
        self._check_stopped()
        self.ledger.take_setup_rows(1)
        async with self._in_time():
            answers = await self.context.batcher.ask([self.query])
        if self.store:
            self.store.record_setup(self.index, "query", [self.query], answers, self.ledger.spent)
            if self._probe_rows:
                probed = {"rows": self._probe_rows, "stable": self.context.steady}
                self.store.event(PROBED, probed, self.index)
        return answers

    async def _check_model(self, on_file: Answers) -> None:
        """Ask once more what was asked in an earlier sitting: is it still the same model?"""
        context = self.context
        if context.stopped or not context.steady or self.ledger.setup_rows_left < 1:
            return
        self.ledger.take_setup_rows(1)
        async with self._in_time():
            now = await context.past_memory.ask([self.query])
        near = abs(float(now.probability[0]) - float(on_file.probability[0])) <= SAME
        if not near or bool(now.decision[0]) != bool(on_file.decision[0]):
            raise IntegrityError(
                f"{context.problem.oracle.name} is another model than that of the run on file: it "
                f"says {now.probability[0]:.6g} of query {self.index}, where that said "
                f"{on_file.probability[0]:.6g}. Resume with the model of the run, or start a new "
                "run"
            )

    def _start(self, probability: float) -> Search:
        context = self.context
        return context.plan.start(
            context.problem,
            self.query,
            probability,
            proposer=context.proposer,
            known=context.known,
            past=self._past(),
        )

    def _past(self) -> Past | None:
        """Return what was known when the search began: by the run on file, else by memory."""
        context = self.context
        if self.store and self._scored is not None:
            before = known_before(self.store, context.problem, self.index)
            if before and self._memory is not None:
                self._memory.add(before)
            return before
        past = self._memory.copy() if self._memory else None
        if self.store and past:
            self.store.event(REMEMBERED, past.as_dict(), self.index)
        return past

    # The loop ----------------------------------------------------------------------------------

    async def _drive(self, search: Search) -> Ending:
        tasks: dict[asyncio.Task[Answer], Work] = {}
        try:
            for work in await self._replay(search):
                tasks[self._begin(work)] = work
            if len(search.archive):
                self._report(search)
            while not search.done:
                self._check_stopped()
                while (next_work := await self._ask(search)) is not None:
                    tasks[self._begin(next_work)] = next_work
                if tasks:
                    await self._take_in(search, tasks)
                elif not search.done:
                    name = self.context.plan.name
                    raise self._refused or InputError(f"{name!r} neither asks nor ends")
            assert search.ending is not None
            return search.ending
        finally:
            search.close()
            await self._leave(search, tasks)

    async def _ask(self, search: Search) -> Work | None:
        async with self._in_time():
            return await self._think(search)

    async def _think(self, search: Search) -> Work | None:
        """Ask a search that takes its time, one of all at once: each may use every core."""
        if not search.thinks:
            return search.ask()
        async with self.context.thinking:
            return await asyncio.to_thread(search.ask)

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
        if self.context.stopped:
            raise asyncio.CancelledError

    async def _replay(self, search: Search) -> list[Work]:
        """Tell the search what is on file; return what was asked and not answered then."""
        if self.store is None:
            return []
        waiting: dict[int, Work] = {}
        for recorded in self.store.answers(self.index):
            while search.asked < recorded.asked:
                if (work := await self._think(search)) is not None:
                    waiting[work.id] = work
                    continue
                # What was asked later, without an answer in between, was asked after a refusal.
                refused = [w for w in waiting.values() if self._goes_without(search, w)]
                if not refused:
                    break
                for work in refused:
                    del waiting[work.id]
            # A search that asks nothing, or something else, is not the one on file.
            found = waiting.pop(recorded.work_id, Evaluate(recorded.work_id, ()))
            check_same(found, recorded, self.context.llm or "")
            search.tell(found, recorded.answer)
            self._remember(search, found, recorded.answer)
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
            limit = self.context.plan.budget.seconds
            raise BudgetSpent(f"the deadline of {limit:g} seconds has passed") from None

    async def _answer(self, work: Work) -> Answer:
        async with self._in_time():
            if isinstance(work, Propose):
                async with self.context.in_flight:
                    return await self.context.call(work.request, self.ledger)
            self.ledger.take_rows(len(work.rows))
            return await self.context.batcher.ask(work.rows)

    async def _take_in(self, search: Search, tasks: dict[asyncio.Task[Answer], Work]) -> None:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finished = sorted((t for t in tasks if t.done()), key=lambda t: tasks[t].id)
        for task in finished:
            work = tasks.pop(task)
            try:
                answer = task.result()
            except BudgetSpent as error:
                out_of_time = self.ledger.seconds_left <= 0
                if out_of_time or not self._goes_without(search, work):
                    self._refused = error  # those under way were granted before, and still count
            else:
                self._tell(search, work, answer)

    def _goes_without(self, search: Search, work: Work) -> bool:
        without = isinstance(work, Propose) and search.refuse(work)
        self._went_without |= without
        return without

    def _tell(self, search: Search, work: Work, answer: Answer) -> None:
        """Take an answer in; it is on file before anything follows from it."""
        if self.store:
            spent, model = self.ledger.spent, self.context.llm or ""
            self.store.record(self.index, search.asked, work, answer, spent, model=model)
        origin = search.origin(work)
        search.tell(work, answer)
        self._note(search)
        self._remember(search, work, answer)
        self._report(search, self._tried(search, work, answer, origin))

    def _note(self, search: Search) -> None:
        """File new options; after a kill all of them again, since the last may not be there."""
        if self.store and len(search.archive) > self._filed:
            self.store.options_found(self.index, search.archive.options(self._filed))
            self._filed = len(search.archive)

    def _remember(self, search: Search, work: Work, answer: Answer) -> None:
        """Add to the memory what an answer brought, for the next search of this person."""
        past = self._memory
        if past is None:
            return
        if isinstance(work, Evaluate) and isinstance(answer, Answers):
            past.add_answers(work.rows, answer)
            past.reasons |= {f.row: f.reasons for f in search.archive.found(self._kept)}
            self._kept = len(search.archive)
        else:
            past.calls += 1
            past.edits += search.named[self._named :]
            self._named = len(search.named)

    def _tried(
        self, search: Search, work: Work, answer: Answer, origin: Row | None
    ) -> tuple[Tried, ...]:
        if self.context.progress is None or not isinstance(answer, Answers):
            return ()
        assert isinstance(work, Evaluate)
        met = search.case.problem.goal.met(answer).tolist()
        said = zip(work.rows, answer.probability.tolist(), met, strict=True)
        return tuple(Tried(row, origin, chance, yes) for row, chance, yes in said)

    def _report(self, search: Search, tried: tuple[Tried, ...] = ()) -> None:
        archive, new = search.archive, self._told
        self._told = len(archive)
        if self.context.progress is not None:
            best, found = archive.best_probability, tuple(archive.options(new))
            told = Progress(self.index, self.ledger.spent, len(archive), best, found, tried)
            self.context.progress(told)

    # The end -----------------------------------------------------------------------------------

    def _outcome(self, ending: Ending) -> Outcome:
        archive = self.search.archive if self.search else None
        best = archive.best_probability if archive is not None else None
        if archive and len(archive) and ending.kind not in _UNFINISHED:
            return Outcome(OutcomeKind.FOUND, ending.reason, best_probability=best)
        return Outcome(ending.kind, ending.reason, best_probability=best)

    async def _ask_again(self, options: list[Option]) -> list[Option]:
        """Return the options, asked once more as far as we may: a model may waver."""
        assert self.search is not None
        rows, past = self.search.archive.rows, Past() if self._memory is None else self._memory
        new = [row for row in rows if row not in past.again]
        asked = new[: int(min(len(new), self.ledger.setup_rows_left))]
        with suppress(BudgetSpent, OracleError):  # else they are found, if not asked twice
            if asked:
                self.ledger.take_setup_rows(len(asked))
                async with self._in_time():
                    past.add_second_answers(asked, await self.context.past_memory.ask(asked))
        known = [row for row in rows if row in past.again]
        met = self.search.case.problem.goal.met(past.second_answers(known)).tolist()
        firm = dict(zip(known, met, strict=True))
        return [replace(o, stable=firm.get(row)) for o, row in zip(options, rows, strict=True)]

    def _calls_saved(self, outcome: Outcome) -> int:
        """Return how many LLM calls a search that ended by itself has left."""
        limit, search = self.context.plan.budget.llm_calls, self.search
        ended = search is not None and search.ending is not None
        if limit is None or not ended or self._went_without or outcome.kind in _UNFINISHED:
            return 0
        return limit - self.ledger.spent.llm_calls

    async def _metrics(self, archive: Archive | None, calls_saved: int) -> Metrics:
        """Measure in a thread: thousands of options take a second, in which others go on.

        Whoever cancels now comes too late; the result is all but handed over.
        """
        measuring = asyncio.create_task(
            asyncio.to_thread(metrics_of, self.context, archive, calls_saved)
        )
        while not measuring.done():
            with suppress(asyncio.CancelledError):
                await asyncio.shield(measuring)
        try:
            return measuring.result()
        except RuntimeError:  # the interpreter is on its way out, and starts no thread any more
            return metrics_of(self.context, archive, calls_saved)

    async def _close(self, outcome: Outcome, options: list[Option] | None = None) -> Result:
        context, search = self.context, self.search
        archive = search.archive if search else None
        spent = self.ledger.spent
        metrics = await self._metrics(archive, self._calls_saved(outcome))
        result = Result(
            query=context.problem.schema.as_dict(self.query),
            outcome=outcome,
            options=tuple(options or ()),
            near_misses=() if options or archive is None else tuple(archive.near_misses()),
            ledger=spent,
            metrics=metrics,
            rejections={} if archive is None else dict(archive.rejections),
            settings=self.settings,
            index=self.index,
        )
        if self.store:
            self.store.finish(self.index, result)
        return result


def _concerns_all(error: Exception) -> bool:
    """Whether an error would meet everybody: an LLM that is set up wrongly or gone, or a bug.

    Our other errors are of a run on file that is another one or cannot be written: nothing more is
    to be written to it.
    """
    return isinstance(error, LLMError) or not isinstance(error, WaysoutError)


def _concerns_one(error: Exception) -> bool:
    """Whether an error may well meet nobody else: a refused request, or a bug that a row shows."""
    return isinstance(error, LLMRefused) or not isinstance(error, WaysoutError)


def _told(error: Exception) -> str:
    named = isinstance(error, WaysoutError)
    return str(error) if named else f"unexpected {type(error).__name__}: {error}"


def metrics_of(
    context: RunContext, archive: Archive | None = None, calls_saved: int = 0
) -> Metrics:
    """Return what a result tells in numbers; every result has the same names."""
    if archive is None:
        nobody: Row = (None,) * len(context.problem.schema)
        nothing = set_metrics(context.problem, nobody, [])
        return {**nothing, **run_metrics(0, 0, 0, 0), "within_query_key": 0, "calls_saved": 0}
    found = set_metrics(context.problem, archive.query, archive.unique_rows, context.approved)
    counts = run_metrics(archive.valid, archive.evaluated, archive.pruned, archive.generated)
    within = len(archive) - len(archive.unique_rows)
    return {**found, **counts, "within_query_key": within, "calls_saved": calls_saved}
