"""One person's search, driven to its end: the LLM, the oracle, the ledger and the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TypeVar, cast

from waysout.domain.budget import Ledger, Spent
from waysout.domain.memory import Past
from waysout.domain.metrics import Metrics, run_metrics, set_metrics
from waysout.domain.oracle import Answers
from waysout.domain.pick import pick
from waysout.domain.result import Option, Outcome, OutcomeKind, ResultData, Tip, Way
from waysout.domain.schema import Row
from waysout.domain.spelling import row_of
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
from waysout.run.context import RunContext
from waysout.run.plan import goal_told
from waysout.run.progress import Progress
from waysout.run.recall import FORM_SOUGHT, known_before, remember, rows_before, spent_before
from waysout.search.archive import Archive
from waysout.search.base import Ending, Search
from waysout.search.work import Answer, Evaluate, Propose, Work
from waysout.store import Store, check_same

# `failed` is not final: the answers on file are good, and a model that was away may be back.
_UNFINISHED = (OutcomeKind.INTERRUPTED, OutcomeKind.FAILED)

UNEXPECTED = "unexpected "
"""With this begins the reason of a failure that no error of ours or of the model explains."""

AnyOption = TypeVar("AnyOption", bound=Option)
T = TypeVar("T")


class SearchDriver:
    """Drives one search. What was recorded before a kill is replayed, never asked again.

    An answer is on file before the search gets it, and the spending of a resumed run is what the
    answers on file cost. After a kill the same result is promised for one request in flight per
    tree; with more, an exact ledger and nothing asked twice.
    """

    def __init__(
        self,
        context: RunContext,
        index: int,
        query: Row,
        *,
        store: Store | None = None,
        scored: Answers | None = None,
        fresh: bool = False,
        begins: bool = False,
        probe_rows: int = 0,
    ) -> None:
        """Start the clock.

        ``store`` records this search; ``scored`` is the oracle's answer to the query, if on file,
        and ``fresh`` says that it is not from an earlier session. ``begins`` says that nothing was
        on file of this search, so that what is remembered there comes from the memory itself.
        ``probe_rows`` is what trying the model has taken, where this search pays for it.
        """
        self.context = context
        self.store = store
        self.index = index
        self.query = query
        price = context.caller.price if context.caller else None
        before = spent_before(store, index, price) if store else Spent()
        # A record on file may or may not count them.
        paid = replace(before, setup_rows=max(before.setup_rows, probe_rows))
        budget = context.plan.budget
        form_rows = rows_before(store, index, FORM_SOUGHT) if store else 0
        limit = replace(budget, setup_rows=budget.own_setup_rows + probe_rows + form_rows)
        self.ledger = Ledger(limit, paid, attempted=self._record_sent, added=self._record_form_rows)
        self._scored = scored
        self._fresh = fresh
        self._begins = begins
        memory = context.memory
        self._memory = memory.of(context.problem, query) if memory is not None else None
        self._on_file: Past | None = None  # what the run on file knew when it began
        self.search: Search | None = None
        self.settings = dict(context.settings)
        self._stored = self._reported = 0  # options in the store, options reported as progress
        self._kept = self._named = 0  # options and edits in the memory
        self._refused: BudgetSpent | None = None
        self._went_without = False  # whether the search went on without a call it asked for

    async def result(self) -> Result:
        """Run the search and return its result, however it ends."""
        try:
            answers = await self._score()
            chance = float(answers.probability[0])
            self.settings |= {
                "query_probability": chance,
                "query_approved": bool(answers.decision[0]),
            }
            problem = self.context.problem
            goal = problem.goal_of(self.query, answers)
            if problem.goal.safer:  # which of them is left to reach is each person's own
                self.settings["goal"] = goal_told(goal)
            if not self.context.steady:
                self.settings["steady"] = False
            settled = problem.settled(self.query, answers)
            if settled is not None:
                return await self._close(settled)
            self.search = self.context.plan.start(
                replace(problem, goal=goal),
                self.query,
                chance,
                proposer=self.context.proposer,
                known=self.context.known,
                past=self._past(),
            )
            ending = await self._drive(self.search)
            if ending.kind is OutcomeKind.EXHAUSTED and not self.search.archive.answered:
                # No method may say that all was tried where nothing was: do the rules forbid it?
                refused = await self._in_thread(lambda: problem.rules.refusals(self.query))
                if refused is not None:
                    return await self._close(
                        Outcome(OutcomeKind.INFEASIBLE, refused.reason, refused.binding, chance)
                    )
        except (GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # a method of others may exit or panic
            ending = self._ended_by(error)
        if self.search is None:
            return await self._close(Outcome(ending.kind, ending.reason))
        archive = self.search.archive
        options, ways = archive.options(), await self._in_thread(archive.ways)
        if options and ending.kind not in _UNFINISHED:
            try:
                firm = await self._ask_again(ways, options)
            except asyncio.CancelledError as error:
                ending = self._ended_by(error)
            else:
                options = self._marked(options, firm)
                ways = tuple(
                    replace(
                        way,
                        variants=tuple(self._marked(way.variants, firm)),
                        safer=tuple(self._marked(way.safer, firm)),
                    )
                    for way in self._marked(ways, firm)
                )
        found = len(archive) and ending.kind not in _UNFINISHED
        kind = OutcomeKind.FOUND if found else ending.kind
        outcome = Outcome(kind, ending.reason, best_probability=archive.best_probability)
        return await self._close(outcome, options, ways)

    def _ended_by(self, error: BaseException) -> Ending:
        """Return how an error ends this search; an error that is no way to end is raised again."""
        context, stopped = self.context, isinstance(error, asyncio.CancelledError)
        if isinstance(error, BudgetSpent):
            return Ending(OutcomeKind.BUDGET_SPENT, str(error))
        if isinstance(error, (OracleError, RuleError)):
            return Ending(OutcomeKind.FAILED, str(error))
        if isinstance(error, LLMFailure):
            return Ending(OutcomeKind.INTERRUPTED, str(error))
        unexpected = not stopped and not isinstance(error, WaysoutError)
        if context.isolate and (unexpected or isinstance(error, LLMRefused)):
            said = f"{type(error).__name__}: {error}"
            return Ending(OutcomeKind.FAILED, UNEXPECTED + said if unexpected else str(error))
        # All searches would meet an LLM that is gone or set up wrongly, or a bug. Our other errors
        # mean that the run on file is another one or cannot be written: nothing may be added to it.
        if unexpected or isinstance(error, LLMError):
            context.fail(error)
        elif not (stopped and context.stopped):
            if self.search is not None:
                self._report(self.search)  # no result will say what was spent
            raise error
        return Ending(OutcomeKind.INTERRUPTED, context.stopped)

    # Set-up ------------------------------------------------------------------------------------

    async def _score(self) -> Answers:
        """Ask the oracle for the query itself."""
        context = self.context
        if self._scored is not None:
            if not self._fresh:
                await self._check_model(self._scored)
            return self._scored
        self._check_stopped()
        self.ledger.take_setup_rows(1)
        answers = await context.batcher.ask([self.query], self.ledger)
        if self.store:
            self.store.record_setup(self.index, "query", [self.query], answers, self.ledger.spent)
        return answers

    async def _check_model(self, on_file: Answers) -> None:
        """Ask once more what an earlier session asked: is it still the same model?"""
        context = self.context
        # What a search finds is asked again the same way after any number of interruptions.
        kept = context.plan.budget.again_rows if context.doubtful else 0
        if context.stopped or not context.steady or self.ledger.setup_rows_left < kept + 1:
            return
        self.ledger.take_setup_rows(1)
        now = await context.batcher.ask([self.query], self.ledger, fresh=True)
        if self.store:  # or each session would have this row for nothing
            self.store.record_setup(self.index, "check", [self.query], now, self.ledger.spent)
        near = abs(float(now.probability[0]) - float(on_file.probability[0])) <= SAME
        if not near or bool(now.decision[0]) != bool(on_file.decision[0]):
            raise IntegrityError(
                f"{context.problem.oracle.name} is not the model of the run on file: for query "
                f"{self.index} it gives {now.probability[0]:.6g}, not "
                f"{on_file.probability[0]:.6g}. Resume with the model of the run, or start a new "
                "run"
            )

    def _past(self) -> Past | None:
        """Return what was known when the search began: from the run on file, else from memory."""
        past = self._memory.copy() if self._memory else None
        if self.store is None:
            return past
        before = known_before(self.store, self.context.problem, self.index)
        if before is not None and self._memory is not None and not self._begins:
            self._memory.add(before)
        self._on_file = before
        # A row that was only scored has no search on file yet.
        if before is not None or any(True for _ in self.store.answers(self.index)):
            return before
        remember(self.store, self.index, past)
        return past

    # The loop ----------------------------------------------------------------------------------

    async def _drive(self, search: Search) -> Ending:
        """Ask the search for work, have it answered, and tell it the answers, until it ends."""
        tasks: dict[asyncio.Task[Answer], Work] = {}
        try:
            for work in await self._replay(search):
                tasks[asyncio.create_task(self._answer(work))] = work
            if len(search.archive):
                self._report(search)
            while not search.done:
                self._check_stopped()
                while (asked := await self._next(search)) is not None:
                    tasks[asyncio.create_task(self._answer(asked))] = asked
                if tasks:
                    await self._take_in(search, tasks)
                elif not search.done:
                    name = self.context.plan.name
                    raise self._refused or InputError(f"{name!r} neither asks nor ends")
            assert search.ending is not None
            return search.ending
        finally:
            search.close()
            # Cancel what is under way; answers that came meanwhile were paid for, and count.
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.gather(*tasks, return_exceptions=True)
            for task, work in sorted(tasks.items(), key=lambda item: item[1].id):
                if not task.cancelled() and task.exception() is None:
                    self._tell(search, work, task.result())

    async def _next(self, search: Search, *, in_time: bool = True) -> Work | None:
        """Return the next work of the search."""
        async with self._in_time(in_time):
            if not search.thinks:
                return search.ask()
            # In a thread, so that a deadline can pass; one at a time, as each may use every core.
            async with self.context.thinking:
                return await asyncio.to_thread(search.ask)

    def _check_stopped(self) -> None:
        if self.context.stopped:
            raise asyncio.CancelledError

    async def _replay(self, search: Search) -> list[Work]:
        """Tell the search the answers on file; return the work items that were never answered."""
        if self.store is None:
            return []
        waiting: dict[int, Work] = {}
        for recorded in self.store.answers(self.index):
            while search.asked < recorded.asked:
                if (work := await self._next(search, in_time=False)) is not None:
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
        self._store_options(search)
        return list(waiting.values())

    @asynccontextmanager
    async def _in_time(self, limited: bool = True) -> AsyncIterator[None]:
        """Limit a wait to the deadline."""
        left = self.ledger.seconds_left
        try:
            async with asyncio.timeout(left if limited and left != float("inf") else None):
                yield
        except TimeoutError:
            raise self.ledger.out_of_time() from None

    async def _answer(self, work: Work) -> Answer:
        """Have one work answered, by the LLM or by the oracle."""
        if isinstance(work, Propose):
            async with self._in_time():
                return await self.context.call(work.request, self.ledger)
        self.ledger.take_rows(len(work.rows))
        return await self.context.batcher.ask(work.rows, self.ledger)

    async def _take_in(self, search: Search, tasks: dict[asyncio.Task[Answer], Work]) -> None:
        """Wait for answers, and tell them to the search."""
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finished = sorted((t for t in tasks if t.done()), key=lambda t: tasks[t].id)
        for task in finished:
            work = tasks.pop(task)
            try:
                answer = task.result()
            except BudgetSpent as error:
                out_of_time = self.ledger.seconds_left <= 0
                if out_of_time or not self._goes_without(search, work):
                    self._refused = error  # work under way was granted before, and still counts
            else:
                self._tell(search, work, answer)

    def _goes_without(self, search: Search, work: Work) -> bool:
        without = isinstance(work, Propose) and search.refuse(work)
        self._went_without |= without
        return without

    def _tell(self, search: Search, work: Work, answer: Answer) -> None:
        """Record an answer, then tell it to the search."""
        if self.store:
            spent, model = self.ledger.spent, self.context.llm or ""
            self.store.record(self.index, search.asked, work, answer, spent, model=model)
        search.tell(work, answer)
        self._store_options(search)
        self._remember(search, work, answer)
        self._report(search)

    def _record_sent(self, spent: Spent, calls: int) -> None:
        """Record a request as it goes out: if its reply never comes, it was sent all the same."""
        if self.store:
            self.store.record_sent(self.index, spent, calls)

    def _record_form_rows(self, rows: int) -> None:
        """File rows that are no part of the allowance, or a resumed search would have none left."""
        if self.store:
            # The answers that came with them are filed next: if that fails, it ends the search.
            with suppress(WaysoutError):
                self.store.event(FORM_SOUGHT, {"rows": rows}, self.index)

    def _store_options(self, search: Search) -> None:
        """Store new options; after a kill all of them again, since the last may be missing."""
        if self.store and len(search.archive) > self._stored:
            self.store.options_found(self.index, search.archive.options(self._stored))
            self._stored = len(search.archive)

    def _remember(self, search: Search, work: Work, answer: Answer) -> None:
        """Add what an answer brought to the memory, for the next search of this person."""
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

    def _report(self, search: Search) -> None:
        archive, new = search.archive, self._reported
        self._reported = len(archive)
        if self.context.progress is not None:
            best, found = archive.best_probability, tuple(archive.options(new))
            self.context.progress(
                Progress(self.index, self.ledger.spent, len(archive), best, found)
            )

    # The end -----------------------------------------------------------------------------------

    async def _ask_again(self, ways: Sequence[Way], options: Sequence[Option]) -> dict[Row, bool]:
        """Ask a model that may waver once more about ways and options: which meet the goal again?

        Past the cache, and from the set-up allowance, as far as that goes: what a person reads
        first comes first. Answers that the memory has are used instead, or each part of a search
        would ask again.
        """
        assert self.search is not None
        past = self._memory if self._memory is not None else self._on_file or Past()
        if not (self.context.doubtful or past.again):
            return {}
        variants = [variant for way in ways for variant in way.variants]
        safer = [variant for way in ways for variant in way.safer]
        left = int(min(self.context.plan.budget.again_rows, self.ledger.setup_rows_left))
        left = max(0, left) if self.context.doubtful else 0
        first = _in_reading_order(ways)[:left]
        rows = list(dict.fromkeys(map(self._row_of, (*first, *ways, *safer, *options, *variants))))
        asked = [row for row in rows if row not in past.again][:left]
        with suppress(BudgetSpent, OracleError):  # then they stay options, asked once
            if asked:
                self.ledger.take_setup_rows(len(asked))
                try:
                    second = await self.context.batcher.ask(asked, self.ledger, fresh=True)
                    past.add_second_answers(asked, second)
                except asyncio.CancelledError:
                    # As all rows under way at a stop: a resumed run asks them, and pays for them.
                    self.ledger.return_setup_rows(len(asked))
                    raise
        known = [row for row in rows if row in past.again]
        met = self.search.case.problem.goal.met(past.second_answers(known)).tolist()
        return dict(zip(known, met, strict=True))

    def _row_of(self, option: Option) -> Row:
        return row_of(self.context.problem.schema, option)

    def _marked(self, options: Sequence[AnyOption], firm: Mapping[Row, bool]) -> list[AnyOption]:
        """Return options with what the model said the second time."""
        if not firm:
            return list(options)
        return [replace(option, stable=firm.get(self._row_of(option))) for option in options]

    def _tipping(self) -> dict[str, tuple[Tip, ...]]:
        assert self.search is not None
        found = self.search.archive.tipping()
        if self.context.steady:
            return found
        # What wavers goes on nowhere for certain.
        return {
            name: tuple(replace(tip, goes_on=False) for tip in tips) for name, tips in found.items()
        }

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Make a part of the result in a thread: it may take a second, and other searches go on.

        A cancellation now comes too late: the result is nearly ready.
        """
        making = asyncio.create_task(asyncio.to_thread(work))
        while not making.done():
            with suppress(asyncio.CancelledError):
                await asyncio.shield(making)
        try:
            return making.result()
        except RuntimeError:  # the interpreter is shutting down, and starts no more threads
            return work()

    async def _close(
        self, outcome: Outcome, options: Sequence[Option] = (), ways: Sequence[Way] = ()
    ) -> Result:
        """Make the result, and store it."""
        context, search = self.context, self.search
        archive = search.archive if search else None
        spent, limit, saved = self.ledger.spent, context.plan.budget.llm_calls, 0
        ended = search is not None and search.ending is not None and not self._went_without
        if limit is not None and ended and outcome.kind not in _UNFINISHED:
            saved = limit - spent.llm_calls  # the search ended by itself
        metrics = await self._in_thread(lambda: metrics_of(context, archive, saved))
        result = Result(
            query=context.problem.schema.raw(self.query),
            outcome=outcome,
            ways=_in_reading_order(ways),
            options=tuple(options),
            tipping={} if archive is None else await self._in_thread(self._tipping),
            near_misses=() if options or archive is None else tuple(archive.near_misses()),
            ledger=spent,
            metrics=metrics,
            rejections={} if archive is None else dict(archive.rejections),
            settings=self.settings,
            index=self.index,
            notes=context.notes,
        )
        if self.store:
            self.store.finish(self.index, result)
        return result


def _in_reading_order(ways: Sequence[Way]) -> tuple[Way, ...]:
    """Return the ways as a person reads them, so that the first here is the first everywhere."""
    found = ResultData({}, Outcome(OutcomeKind.FOUND), ways=tuple(ways))
    return cast(tuple[Way, ...], pick(found, len(ways))) if ways else ()


def metrics_of(
    context: RunContext, archive: Archive | None = None, calls_saved: int = 0
) -> Metrics:
    """Return the numbers of a result; every result has the same names."""
    if archive is None:
        no_row: Row = (None,) * len(context.problem.schema)
        nothing = set_metrics(context.problem, no_row, [])
        return {**nothing, **run_metrics(0, 0, 0, 0), "within_query_key": 0, "calls_saved": 0}
    found = set_metrics(context.problem, archive.query, archive.unique_rows, context.approved)
    counts = run_metrics(archive.valid, archive.evaluated, archive.pruned, archive.generated)
    within = len(archive) - len(archive.unique_rows)
    return {**found, **counts, "within_query_key": within, "calls_saved": calls_saved}
