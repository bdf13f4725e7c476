"""`find` and `find_many`: the main job, in one call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence, Sized
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from waysout.domain.known import need_known
from waysout.domain.problem import Problem
from waysout.domain.result import plain
from waysout.errors import LLMError
from waysout.llm.call import Caller, Price
from waysout.llm.connect import DEFAULT as DEFAULT_LLM
from waysout.llm.connect import connect
from waysout.llm.replay import Recorder
from waysout.report.result import Result
from waysout.run.context import RunContext
from waysout.run.learn import learn
from waysout.run.many import read_row, results
from waysout.run.options import Options, check_people, check_problem, checked, make_plan
from waysout.run.plan import Plan, check_same_run, manifest
from waysout.run.sync import iterate
from waysout.store import Store

__all__ = ["Options", "afind", "afind_many", "find", "find_many", "make_plan"]


def find(problem: Problem, row: Any, **options: Unpack[Options]) -> Result:
    """Find ways out for one row: a mapping, a typed row, or a row of a data frame.

    The result says what was found, what it cost, and why there is no more. An LLM that fails for
    good before it has answered once is an error; later, it is the reason of an interrupted result.
    See `Options`.
    """
    check_problem(problem)
    read_row(problem, row)  # a row that cannot be read is an error, not a result
    found: list[Result] = []
    try:
        found.extend(find_many(problem, [row], **options))
    except LLMError:
        if not _answered(found):
            raise
    return found[0]


def find_many(
    problem: Problem, rows: Iterable[Any], **options: Unpack[Options]
) -> Iterator[Result]:
    """Yield the result of each row as it is ready; `Result.index` tells whose it is.

    Options are checked at once; nothing else happens before the first result is asked for. One
    person's failure is a result with that outcome and stops nobody else. What ends the whole run
    (an LLM that is gone or set up wrongly, rows that cannot be had) is raised after the results of
    all who had begun: a short list never looks like a whole one.
    """
    return iterate(_found(_job(problem, rows, options)))


async def afind(problem: Problem, row: Any, **options: Unpack[Options]) -> Result:
    """`find`, for code that runs in an event loop."""
    check_problem(problem)
    read_row(problem, row)
    found: list[Result] = []
    source = afind_many(problem, [row], **options)
    try:
        async for result in source:
            found.append(result)  # noqa: PERF401 - what came before an error is kept
    except LLMError:
        if not _answered(found):
            raise
    finally:
        await source.aclose()
    return found[0]


def afind_many(
    problem: Problem, rows: Iterable[Any], **options: Unpack[Options]
) -> AsyncGenerator[Result]:
    """`find_many`, for code that runs in an event loop."""
    return _found(_job(problem, rows, options))


def _answered(found: Sequence[Result]) -> bool:
    return any(result.ledger.llm_calls for result in found)


@dataclass(frozen=True)
class _Job:
    """What is to be done, checked."""

    problem: Problem
    rows: Iterable[Any]
    plan: Plan
    options: Options

    @property
    def people(self) -> int | None:
        """How many there are, where that is known before they come."""
        return len(self.rows) if isinstance(self.rows, Sized) else None


def _job(problem: Problem, rows: Iterable[Any], options: Options) -> _Job:
    check_problem(problem)
    given = checked(options)
    plan = make_plan(given)
    if plan.method.needs_known:
        need_known(given.get("data"), f"the method {plan.name!r}")
    plan.method.prepare()
    return _Job(problem, check_people(problem, rows), plan, given)


async def _found(job: _Job) -> AsyncGenerator[Result]:
    known, stop = job.options.get("data"), job.options.get("stop")
    async with AsyncExitStack() as stack:
        caller = await _caller(stack, job)
        llm = caller.backend.name if caller else None
        store = _old_run(stack, job, llm)  # whether it is this one is known before minutes pass
        await learn(
            job.plan.method, job.problem, known, stop=stop, tell=job.options.get("learning")
        )
        context = RunContext(
            job.problem,
            job.plan,
            caller=caller,
            known=known,
            memory=job.options.get("memory"),
            store=store or _new_run(stack, job, llm),
            in_flight=job.options.get("in_flight"),
            progress=job.options.get("progress"),
        )
        if stop is not None:
            stop.attach(context)
        found = results(context, job.rows)
        try:
            async for result in found:
                yield result
        finally:
            await found.aclose()


async def _caller(stack: AsyncExitStack, job: _Job) -> Caller | None:
    if not job.plan.asks_llm:
        return None
    llm, price = job.options.get("llm") or DEFAULT_LLM, job.options.get("price")
    # A backend that was given to us stays open for whoever gave it.
    backend = connect(llm) if isinstance(llm, str) else llm
    record = job.options.get("record")
    if record is not None:
        backend = Recorder(backend, Path(record))
    if isinstance(llm, str):
        await stack.enter_async_context(backend)
    return Caller(backend, price=Price.parse(price) if isinstance(price, str) else price)


def _new_run(stack: AsyncExitStack, job: _Job, llm: str | None) -> Store | None:
    run = job.options.get("run")
    if run is None:
        return None
    told = {"about": dict(job.options.get("about") or {}), "queries": job.people}
    made = Store.create(Path(run), {**told, **plain(manifest(job.problem, job.plan, llm))})
    return stack.enter_context(made)


def _old_run(stack: AsyncExitStack, job: _Job, llm: str | None) -> Store | None:
    """Open the run to go on with, if there is one, or say that it is another."""
    run = job.options.get("run")
    if run is None or not Path(run).exists():
        return None
    store = stack.enter_context(Store.open(Path(run)))
    check_same_run(store, manifest(job.problem, job.plan, llm))
    if job.people is not None:
        store.expect(job.people)
    return store
