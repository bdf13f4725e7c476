"""`find` and `find_many`: from options and rows to results. `docs/walk.md` draws the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sized
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from waysout.domain.known import Known, need_known
from waysout.domain.problem import Problem
from waysout.domain.result import Outcome, OutcomeKind, plain
from waysout.domain.spelling import as_in_table
from waysout.errors import LLMError, RowError
from waysout.llm.call import Caller, Price
from waysout.llm.connect import connect
from waysout.llm.replay import Recorder
from waysout.report.result import Result
from waysout.run.context import PROBED, RunContext, Stop
from waysout.run.driver import SearchDriver, metrics_of
from waysout.run.options import (
    Options,
    as_mapping,
    check_problem,
    check_rows,
    checked,
    plan_of,
    read_row,
)
from waysout.run.plan import Plan, check_same_run, manifest
from waysout.run.recall import remember, rows_before
from waysout.run.sync import iterate
from waysout.search.base import Method, OnLearning
from waysout.store import Store

# Enough that some searches think while others wait for the LLM, and the oracle's batches fill.
FEWEST_AT_ONCE = 8


def find(problem: Problem, row: Any, **options: Unpack[Options]) -> Result:
    """Find ways out for one row: a mapping, a typed row, or a row of a data frame.

    The result says what was found, what it cost, and why there is no more. An LLM that fails for
    good before its first answer is an error; later, it is the reason of an interrupted result.
    See `Options`.
    """
    check_problem(problem)
    read_row(problem, row)  # a row that cannot be read is an error here, not a result
    return only_result(find_many(problem, [row], **options))[0]


def find_many(
    problem: Problem, rows: Iterable[Any], **options: Unpack[Options]
) -> Iterator[Result]:
    """Yield each row's result when it is ready; `Result.index` is the row's position.

    Options are checked at once; nothing else happens before the first result is requested. A row
    that fails gives a result with that outcome and does not affect the others. What ends the whole
    run (an LLM that is gone or set up wrongly, rows that cannot be read) is raised after the
    results of all searches that had begun: a short list never looks like a complete one.

    >>> import waysout
    >>> data = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, data.card)
    >>> problem = waysout.Problem.from_card(data.card, oracle, training=data.rows)
    >>> results = waysout.find_many(problem, data.rows[826:829], oracle_rows=40)
    >>> sorted((result.index, str(result.outcome.kind)) for result in results)
    [(0, 'already-approved'), (1, 'already-approved'), (2, 'found')]
    """
    return prepare(options).results(problem, rows)


async def afind(problem: Problem, row: Any, **options: Unpack[Options]) -> Result:
    """`find`, for code that runs in an event loop.

    In a notebook, which has one already, write ``await waysout.afind(…)``.

    >>> import asyncio
    >>> import waysout
    >>> data = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, data.card)
    >>> problem = waysout.Problem.from_card(data.card, oracle, training=data.rows)
    >>> result = asyncio.run(waysout.afind(problem, data.rows[828], oracle_rows=40))
    >>> str(result.outcome.kind)
    'found'
    """
    check_problem(problem)
    read_row(problem, row)
    found: list[Result] = []
    async with aclosing(afind_many(problem, [row], **options)) as results:
        try:
            async for result in results:
                found.append(result)  # noqa: PERF401 - results before an error are kept
        except LLMError:
            if not (found and found[0].ledger.llm_calls):
                raise
    return found[0]


def afind_many(
    problem: Problem, rows: Iterable[Any], **options: Unpack[Options]
) -> AsyncGenerator[Result]:
    """`find_many`, for code that runs in an event loop.

    >>> import asyncio
    >>> import waysout
    >>> data = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, data.card)
    >>> problem = waysout.Problem.from_card(data.card, oracle, training=data.rows)
    >>> async def kinds(rows):
    ...     found = waysout.afind_many(problem, rows, oracle_rows=40)
    ...     return sorted([str(result.outcome.kind) async for result in found])
    >>> asyncio.run(kinds(data.rows[826:829]))
    ['already-approved', 'already-approved', 'found']
    """
    return prepare(options).aresults(problem, rows)


def only_result(results: Iterator[Result]) -> tuple[Result, LLMError | None]:
    """Return the result of a single row, and the LLM error that cut it short, if any.

    If the LLM answered no call, there is nothing to show, and its error is raised.
    """
    found: list[Result] = []
    try:
        found.extend(results)
    except LLMError as error:
        if not (found and found[0].ledger.llm_calls):
            raise
        return found[0], error
    return found[0], None


def prepare(options: Options) -> PreparedRun:
    """Check options and make their plan, each once."""
    given = checked(options)
    return PreparedRun(plan_of(given), given)


@dataclass(frozen=True)
class PreparedRun:
    """A plan, and the checked options it was made from. Nothing has happened yet."""

    plan: Plan
    options: Options

    def results(self, problem: Problem, rows: Iterable[Any]) -> Iterator[Result]:
        """Search for all rows, and yield each result when it is ready."""
        return iterate(self.aresults(problem, rows))

    def aresults(self, problem: Problem, rows: Iterable[Any]) -> AsyncGenerator[Result]:
        """`results`, for code that runs in an event loop."""
        check_problem(problem)
        method = self.plan.method
        if method.needs_known:
            need_known(self.options.get("data"), f"the method {self.plan.name!r}")
        method.prepare()
        return self._run(problem, check_rows(problem, rows))

    async def _run(self, problem: Problem, rows: Iterable[Any]) -> AsyncGenerator[Result]:
        """Open the LLM and the run's file, let the method learn, and search."""
        given, plan, caller, store = self.options, self.plan, None, None
        known, stop, run = given.get("data"), given.get("stop"), given.get("run")
        async with AsyncExitStack() as stack:
            if plan.asks_llm:
                llm, price = given["llm"], given.get("price")
                assert llm is not None  # the plan of options without one asks none
                backend = connect(llm) if isinstance(llm, str) else llm
                if (record := given.get("record")) is not None:
                    backend = Recorder(backend, Path(record))
                if isinstance(llm, str):  # a backend that was passed in stays open for its owner
                    await stack.enter_async_context(backend)
                price = Price.parse(price) if isinstance(price, str) else price
                caller = Caller(backend, price=price)
            count = len(rows) if isinstance(rows, Sized) else None
            described = manifest(problem, plan, caller.backend.name if caller else None)
            if run is not None and Path(run).exists():
                # Before learning, which may take minutes: the file may hold another run.
                store = stack.enter_context(Store.open(Path(run)))
                check_same_run(store, described)
                if count is not None:
                    store.expect(count)
            await learn(plan.method, problem, known, stop=stop, tell=given.get("learning"))
            if run is not None and store is None:
                about = {"about": dict(given.get("about") or {}), "queries": count}
                store = Store.create(Path(run), {**about, **plain(described)})
                stack.enter_context(store)
            context = RunContext(
                problem, plan, caller=caller, known=known, memory=given.get("memory"),
                store=store, in_flight=given.get("in_flight"), progress=given.get("progress"),
            )  # fmt: skip
            if stop is not None:
                stop.attach(context)
            async with aclosing(search_all(context, rows)) as results:
                async for result in results:
                    yield result


async def learn(
    method: Method,
    problem: Problem,
    known: Known | None,
    *,
    stop: Stop | None = None,
    tell: OnLearning | None = None,
) -> None:
    """Let a method learn, in a thread. A ``stop`` ends it, and stops the run that follows."""
    left = False

    class Unwanted(Exception):
        pass

    def report(what: str, share: float) -> None:
        if left or (stop is not None and stop.reason):
            raise Unwanted
        if tell is not None:
            tell(what, share)

    try:
        with suppress(Unwanted):
            await asyncio.to_thread(method.learn, problem, known, report)
    finally:
        left = True


# Many searches at once --------------------------------------------------------------------------


async def search_all(context: RunContext, rows: Iterable[Any]) -> AsyncGenerator[Result]:
    """Search for all rows, several at a time, and yield each result when it is ready.

    Not in lockstep: a slow reply holds no other search back. Rows are read when there is room for
    them, so there may be any number. An error that ends the run is raised after the results of all
    searches that had begun.
    """
    source = _Source(context, rows)
    failure: BaseException | None = None
    limit = context.most_in_flight
    if context.plan.budget.seconds is None:  # else waiting for the LLM would eat up the deadline
        limit = max(FEWEST_AT_ONCE, 2 * limit)
    running: set[asyncio.Task[Result]] = set()
    try:
        while True:
            while len(running) < limit and (indexed := source.next()) is not None:
                task = asyncio.create_task(search_one(context, *indexed, context.store))
                # Retrieve the error, or asyncio complains where no further result is requested.
                task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
                running.add(task)
            if not running:
                break
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            found = []
            for task in done:
                error = task.exception()
                if error is None:
                    found.append(task.result())
                else:
                    failure = failure or error
                    context.fail(error)
            for result in sorted(found, key=lambda result: result.index):
                yield result
    finally:
        if running or not source.over:
            context.stop("the caller no longer waits for results")
        await asyncio.gather(*running, return_exceptions=True)
        if context.store and context.stopped:
            context.store.event("stopped", {"reason": context.stopped})
    failure = context.failure or failure or source.error
    if failure is not None:
        raise failure


class _Source:
    """Hands out rows with their indices, until there are no more or the run is stopped."""

    def __init__(self, context: RunContext, rows: Iterable[Any]) -> None:
        self.context = context
        self.begun = 0
        self.over = False
        self.error: Exception | None = None
        self._rows = enumerate(rows)

    def next(self) -> tuple[int, Any] | None:
        # A single row gets a result even after a stop.
        if self.over or (self.context.stopped and self.begun):
            return None
        try:
            indexed = next(self._rows, None)
        except Exception as error:  # searches that have begun go on; it is raised after them
            self.error, self.over = error, True
            return None
        if indexed is not None:
            self.begun += 1
            return indexed
        self.over = True
        if self.context.store:
            self.context.store.expect(self.begun)
        return None


async def search_one(
    context: RunContext, index: int, raw: Any, store: Store | None, *, fresh: bool = False
) -> Result:
    """Search for one row, unless the store has its result already.

    ``fresh`` says that the store has the oracle's answer to the row from this very session.
    """
    try:
        query = read_row(context.problem, raw)
    except RowError as error:
        return _unread(context, index, raw, error, store)
    scored, begins = None, False
    if store:
        begins = store.query(index) is None
        if begins and context.memory is not None:
            # Before the query: whatever kills us, a run with a query knows what it began with.
            remember(store, index, context.memory.of(context.problem, query))
        store.add_query(index, context.problem.schema.as_dict(query))  # refuses another row
        finished = store.finished(index)
        if finished is not None:
            return as_in_table(context.problem.schema, Result.of(finished))
        scored = next(store.setup(index), None)
    probe_rows = 0 if scored is not None else await context.probe(query)
    if store:
        if probe_rows:  # at once: it is not to be paid for again
            found = context.notes[len(context.problem.notes) :]
            told = {"rows": probe_rows, "stable": context.steady, "notes": list(found)}
            store.event(PROBED, told, index)
        probe_rows = rows_before(store, index, PROBED)
    driver = SearchDriver(
        context, index, query, store=store, scored=scored, fresh=fresh, begins=begins,
        probe_rows=probe_rows,
    )  # fmt: skip
    context.running(asyncio.current_task())
    return await driver.result()


def _unread(
    context: RunContext, index: int, raw: Any, error: RowError, store: Store | None
) -> Result:
    """Return, and store, the result of a row that cannot be read."""

    def text(value: object) -> str:
        try:
            return str(value)
        except Exception:
            return type(value).__name__

    query: dict[str, str] = {}
    with suppress(Exception):
        query = {text(name): text(v) for name, v in as_mapping(context.problem, raw).items()}
    result = Result(
        query=query,
        outcome=Outcome(OutcomeKind.FAILED, str(error.at(index))),
        metrics=metrics_of(context),
        settings=context.settings,
        index=index,
    )
    if store:
        store.add_query(index, result.query)
        store.finish(index, result)
    return result
