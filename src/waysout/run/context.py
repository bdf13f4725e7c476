"""What all searches of a run share: the problem, the LLM, the oracle's batcher and the store."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.budget import Budget, Ledger
from waysout.domain.known import Known, approved
from waysout.domain.memory import Memory
from waysout.domain.oracle import Answers, Oracle
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.errors import InputError, OracleTimeout, WaysoutError
from waysout.llm.base import Reply, Request
from waysout.llm.call import Caller
from waysout.oracles.answers import ask_checked
from waysout.oracles.cache import CachedOracle
from waysout.oracles.pace import Pace
from waysout.oracles.probe import ProbeReport, extra_rows, probe
from waysout.oracles.watchdog import at_most
from waysout.prompts.propose import Proposer
from waysout.prompts.render import Topic
from waysout.run.plan import Plan, told
from waysout.run.progress import OnProgress
from waysout.store import Store

# Rows repeat within one search and among people who are alike; more would fill the memory.
REMEMBERED_ROWS = 100_000
CALLS_APART = 50
"""How many calls after a hang are for one search each: by then it may have been a stall."""
PROBED = "probed"


class RunContext:
    """The shared part of a run. It lives within one event loop."""

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        *,
        caller: Caller | None = None,
        known: Known | None = None,
        memory: Memory | None = None,
        store: Store | None = None,
        in_flight: int | None = None,
        progress: OnProgress | None = None,
        steady: bool | None = None,
        isolate: bool = False,
    ) -> None:
        """Store the parts.

        ``steady`` is what an earlier probe of the oracle has shown. With ``isolate``, as in a
        batch overnight, an unexpected error or a request that the LLM refuses fails one search;
        otherwise it ends the run.
        """
        self.problem = problem
        self.plan = plan
        self.caller = caller
        self.known = known
        self.memory = memory
        self.store = store
        self.progress = progress
        self.isolate = isolate
        self.most_in_flight = in_flight or (caller.backend.parallel if caller else 1)
        self.in_flight = asyncio.Semaphore(self.most_in_flight)
        self.thinking = asyncio.Lock()
        oracle = problem.oracle
        cached = oracle if isinstance(oracle, CachedOracle) else None
        cached = cached or CachedOracle(oracle, max_rows=REMEMBERED_ROWS)
        self.batcher = OracleBatcher(cached, plan.budget.seconds or None)
        self.stopped = ""
        self.notes: tuple[str, ...] = problem.notes
        """What users should know; the probe of the oracle adds to it."""
        self.failure: BaseException | None = None
        """The error that ended the run, if one did."""
        on_file = [e for e in store.events() if e.kind == PROBED] if store else []
        self.steady = all(event.detail.get("stable", True) for event in on_file)
        """Whether the oracle gives the same answer to a row each time, as far as was tried."""
        self._probed = bool(on_file)
        for event in on_file:
            self.notes += tuple(map(str, event.detail.get("notes", ())))
        if steady is None and memory is not None:
            steady = memory.steady
        if steady is not None:  # the model was probed then
            self._probed, self.steady = True, self.steady and steady
        self._vouched = known is not None or steady is not None
        self._probing = asyncio.Lock()
        self._refusal: Exception | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def llm(self) -> str | None:
        """The name of the LLM, where the method asks one."""
        return self.caller.backend.name if self.caller else None

    @cached_property
    def proposer(self) -> Proposer | None:
        """Writes the prompts and reads the replies, where the method asks an LLM."""
        if self.caller is None:
            return None
        return Proposer(Topic.of_problem(self.problem), self.caller.backend.form, self.plan.style)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What results say about how they were made."""
        return {**self.plan.as_dict(self.llm), **told(self.problem)}

    @cached_property
    def approved(self) -> NDArray[np.float64] | None:
        """The rows known to be approved, encoded, to measure how plausible options are."""
        return None if self.known is None else approved(self.known, self.problem.schema).matrix

    @property
    def doubtful(self) -> bool:
        """Whether what a search found is to be asked again: a yes may not be a yes each time.

        The probe saw the oracle waver; or there were no known rows, and one row tells nothing
        about others.
        """
        return not (self.steady and self._vouched)

    async def probe(self, query: Row) -> int:
        """Try the oracle before anything is spent on it; return the number of rows that took.

        All searches wait for it, and the first one pays. If the oracle is refused, all of them
        fail. Without known rows there is only the query to ask.
        """
        async with self._probing:
            if self._refusal is not None:
                raise self._refusal
            without_time = self.plan.budget.seconds == 0  # nothing is asked then
            if self._probed or self.stopped or without_time:
                return 0
            try:
                report = await asyncio.to_thread(
                    probe_within, self.plan.budget, self.problem.oracle, self.known,
                    self.problem.examples or [query],
                )  # fmt: skip
            except Exception as error:
                self._refusal = error
                raise
            self._probed, self.steady = True, report.stable
            self._vouched = self._vouched or bool(self.problem.examples)
            self.notes += report.notes
            if self.memory is not None and (self._vouched or not report.stable):
                self.memory.steady = report.stable
            return report.rows_asked

    async def call(self, request: Request, ledger: Ledger) -> Reply:
        """Ask the LLM, within the limit of requests in flight."""
        if self.caller is None:
            raise InputError(f"{self.plan.name} asked an LLM, and was given none")
        async with self.in_flight:
            return await self.caller.call(request, ledger)

    def running(self, task: asyncio.Task[Any] | None) -> None:
        """Register a search that has begun, so that it can be stopped.

        One cancelled before that would end without a result; it checks for a stop by itself.
        """
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def fail(self, error: BaseException) -> None:
        """End every search because of an error, which is raised when all have ended."""
        if not self.stopped:
            self.failure = error
        named = isinstance(error, WaysoutError)
        self.stop(str(error) if named else f"{type(error).__name__}: {error}")

    def stop(self, reason: str) -> None:
        """End every search with what it has found; only once, so that they can return it."""
        if self.stopped:
            return
        self.stopped = reason
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()


def probe_within(
    budget: Budget, oracle: Oracle, known: Known | None, others: Sequence[Row]
) -> ProbeReport:
    """Try an oracle with what a budget sets aside for that: with known rows, else with others."""
    rows, labels = (others, None) if known is None else (known.rows, known.labels)
    again = budget.probe_rows // 6
    return probe(
        oracle, rows, labels=labels, max_rows=budget.probe_rows - again, again=again,
        seconds=budget.seconds or None,
    )  # fmt: skip


class Stop:
    """Ends a run from any thread, such as a signal's; what was found so far is the result.

    Here the model's first answer ends it, where a program would have a button or a signal:

    >>> import waysout
    >>> data = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, data.card)
    >>> problem = waysout.Problem.from_card(data.card, oracle, training=data.rows)
    >>> stop = waysout.Stop()
    >>> watch = {"stop": stop, "progress": lambda progress: stop("seen enough")}
    >>> outcome = waysout.find(problem, data.rows[828], **watch).outcome
    >>> str(outcome.kind), outcome.reason
    ('interrupted', 'seen enough')
    """

    def __init__(self) -> None:
        self.reason = ""
        self._end: Callable[[], object] | None = None

    def attach(self, context: RunContext) -> None:
        """Bind to a run; called within its event loop."""
        loop = asyncio.get_running_loop()
        self._end = lambda: loop.call_soon_threadsafe(context.stop, self.reason)
        if self.reason:
            context.stop(self.reason)

    def __call__(self, reason: str) -> None:
        """Stop, and say why."""
        self.reason = self.reason or reason
        if self._end is not None:
            with suppress(RuntimeError):  # the run is over, and its loop is closed
                self._end()


@dataclass(eq=False)
class _Asked:
    """Some rows of a search that wait for the model."""

    rows: Sequence[Row]
    ledger: Ledger | None
    fresh: bool
    alone: bool = False
    """Whether a batch failed that they were part of."""
    answers: asyncio.Future[Answers] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    since: float = field(default_factory=time.monotonic)


class OracleBatcher:
    """Puts the waiting rows of all searches to the oracle in one batch, in a thread.

    No search waits for a batch to fill: while the model works on one, the next one gathers; it is
    as large as the model's `Pace` allows. Not every model can be asked twice at once, so there is
    one call at a time; but one that has taken too long is left behind, and may still be under way
    when the next begins.

    When a batch fails, each of its parts is asked again alone, to find which one is to blame, so
    that the error concerns only that search. No ledger counts this: such a model may be asked more
    rows than the ledgers say. For a while after a batch in which the model hung, parts are asked
    alone from the start: whoever waits for a row that hangs waits for that row only.

    No call takes longer than a whole search may (``seconds``), and the time that the model hung on
    others' rows is given back to those who waited: one person's row must not cost others their
    time.
    """

    def __init__(self, oracle: CachedOracle, seconds: float | None = None) -> None:
        self._oracle = oracle
        self._seconds = seconds
        self._pace = Pace.of(oracle, seconds)
        self._waiting: list[_Asked] = []
        self._under_way: Sequence[_Asked] = ()
        self._call_ended = asyncio.Event()
        self._working: asyncio.Task[None] | None = None
        self._calls_apart = 0

    async def ask(
        self, rows: Sequence[Row], ledger: Ledger | None = None, *, fresh: bool = False
    ) -> Answers:
        """Return the answers to some rows, within the time that a ledger has left.

        With ``fresh``, the model itself is asked, past the cache.
        """
        parts: list[Answers] = []
        start = 0
        while start < len(rows) or not parts:
            part = rows[start : start + self._pace.rows]
            parts.append(await self._ask(_Asked(part, ledger, fresh)))
            start += len(part)
        return Answers(
            np.concatenate([part.probability for part in parts]),
            np.concatenate([part.decision for part in parts]),
        )

    async def _ask(self, asked: _Asked) -> Answers:
        self._waiting.append(asked)
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        try:
            return await self._answers(asked)
        finally:
            asked.answers.cancel()  # if nobody waits for them any more

    async def _answers(self, asked: _Asked) -> Answers:
        while True:
            left = math.inf if asked.ledger is None else asked.ledger.seconds_left
            try:
                async with asyncio.timeout(None if left == math.inf else left):
                    return await asyncio.shield(asked.answers)
            except TimeoutError:
                assert asked.ledger is not None
                if asked.ledger.seconds_left:
                    continue  # a call that hung has ended since the timer was set
                others = [one for one in self._under_way if one.ledger is not asked.ledger]
                if not others:
                    raise asked.ledger.out_of_time() from None
            # Does the model hang on one of theirs? This call's end tells, and it is near.
            await self._call_ended.wait()
            if not asked.answers.done():
                asked.ledger.check_deadline()

    async def _work(self) -> None:
        while batch := self._next_batch():
            error = await self._answer(batch)
            if error is None:
                continue
            if len(batch) > 1:
                for asked in batch:
                    asked.alone = True
                self._waiting = [*batch, *self._waiting]
            elif not batch[0].answers.done():
                batch[0].answers.set_exception(error)

    def _next_batch(self) -> list[_Asked]:
        """Take what is to be asked together from those who wait."""
        waiting = [asked for asked in self._waiting if not asked.answers.done()]
        batch, rows = waiting[:1], 0
        for asked in waiting[1:]:
            rows += len(batch[-1].rows)
            apart = self._calls_apart > 0 or batch[0].alone or asked.fresh != batch[0].fresh
            if apart or rows + len(asked.rows) > self._pace.rows:
                break
            batch.append(asked)
        self._waiting = waiting[len(batch) :]
        return batch

    async def _answer(self, batch: Sequence[_Asked]) -> Exception | None:
        """Ask the oracle for a batch and hand out the answers; return the error if that fails."""
        rows = [row for asked in batch for row in asked.rows]
        oracle, began = self._oracle, time.monotonic()
        extra_before, asked_before = extra_rows(oracle.oracle), oracle.asked
        self._under_way = batch
        self._call_ended.clear()
        try:
            ask = partial(ask_checked, oracle.oracle) if batch[0].fresh else oracle.ask
            with at_most(self._seconds):
                answers = await asyncio.to_thread(ask, rows)
        except Exception as error:
            if isinstance(error, OracleTimeout):
                self._calls_apart = CALLS_APART
                self._give_back(batch, began)
                self._pace.took(len(rows), time.monotonic() - began)
            return error
        finally:
            self._charge_extra(batch, extra_rows(oracle.oracle) - extra_before)
            self._under_way = ()
            self._call_ended.set()
        new_rows = len(rows) if batch[0].fresh else oracle.asked - asked_before
        self._pace.took(new_rows, time.monotonic() - began)
        self._calls_apart = max(0, self._calls_apart - 1)
        start = 0
        for asked in batch:
            part = slice(start, start + len(asked.rows))
            start = part.stop
            if not asked.answers.done():
                asked.answers.set_result(Answers(answers.probability[part], answers.decision[part]))
        return None

    def _charge_extra(self, batch: Sequence[_Asked], rows: int) -> None:
        """Count the rows with which the form of the model's rows was looked for."""
        ledger = next((asked.ledger for asked in batch if asked.ledger is not None), None)
        if rows and ledger is not None:
            ledger.add_setup_rows(rows)

    def _give_back(self, batch: Sequence[_Asked], began: float) -> None:
        """Give the time of a call that hung back to those who waited: not to whose row it is."""
        alone = batch[0].ledger if len(batch) == 1 else None
        waited: dict[Ledger, float] = {}  # since when
        for asked in (*batch, *self._waiting):
            if asked.ledger is not None and asked.ledger is not alone:
                since = max(began, asked.since)
                waited[asked.ledger] = min(since, waited.get(asked.ledger, since))
        for ledger, since in waited.items():
            ledger.return_seconds(time.monotonic() - since)
