"""Many searches at once, in no step: a slow reply holds nobody else back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any

from waysout.domain.problem import Problem
from waysout.domain.result import Outcome, OutcomeKind
from waysout.domain.schema import Row
from waysout.errors import RowError
from waysout.report.result import Result
from waysout.run.context import RunContext
from waysout.run.driver import SearchDriver, metrics_of
from waysout.store import Store

# Enough that some searches think while others wait for the LLM, and the oracle's batches fill.
FEWEST_AT_ONCE = 8


async def results(context: RunContext, rows: Iterable[Any]) -> AsyncGenerator[Result]:
    """Yield the result of each row as it comes in; `Result.index` tells whose it is.

    Rows are taken as there is room for them, so there may be any number. An error that ends the
    run is raised when everybody who had begun has been handed out.
    """
    source, failure = _Source(context, rows), None
    running: set[asyncio.Task[Result]] = set()
    try:
        while True:
            while len(running) < _at_once(context) and (person := source.next()) is not None:
                task = asyncio.create_task(one(context, *person, context.store))
                task.add_done_callback(_heard)
                running.add(task)
            if not running:
                break
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if isinstance(error, Exception):
                    failure = failure or error
                    context.fail(error)
            for result in _in_order(done):
                yield result
    finally:
        if running or not source.over:
            context.stop("nobody is waiting for the result any more")
        await asyncio.gather(*running, return_exceptions=True)
        if context.store and context.stopped:
            context.store.event("stopped", {"reason": context.stopped})
    failure = context.failure or failure or source.error
    if failure is not None:
        raise failure


def _heard(task: asyncio.Task[Result]) -> None:
    """Keep asyncio from complaining of an error where nobody asks for the next result any more."""
    if not task.cancelled():
        task.exception()


def _at_once(context: RunContext) -> int:
    # Whoever has a deadline must not spend it waiting for the LLM to be free.
    hurried = context.plan.budget.seconds is not None
    return context.most_in_flight if hurried else max(FEWEST_AT_ONCE, 2 * context.most_in_flight)


def _in_order(done: set[asyncio.Task[Result]]) -> list[Result]:
    found = [task.result() for task in done if not task.cancelled() and task.exception() is None]
    return sorted(found, key=lambda result: result.index)


class _Source:
    """Hands out rows with their numbers, until there are no more or the run is stopped."""

    def __init__(self, context: RunContext, rows: Iterable[Any]) -> None:
        self.context = context
        self.begun = 0
        self.over = False
        self.error: Exception | None = None
        self._rows = enumerate(rows)

    def next(self) -> tuple[int, Any] | None:
        # Whoever asks for one person gets a result, even after a stop.
        if self.over or (self.context.stopped and self.begun):
            return None
        try:
            person = next(self._rows, None)
        except Exception as error:  # those who have begun go on; it is raised after them
            self.error, self.over = error, True
            return None
        if person is not None:
            self.begun += 1
            return person
        self.over = True
        if self.context.store:
            self.context.store.expect(self.begun)
        return None


async def one(context: RunContext, index: int, raw: Any, store: Store | None) -> Result:
    """Search for one person, with this index among all, unless the store has their result."""
    try:
        query = read_row(context.problem, raw)
    except RowError as error:
        return _unread(context, index, raw, error, store)
    scored = None
    if store:
        store.add_query(index, context.problem.schema.as_dict(query))  # refuses another person
        finished = store.finished(index)
        if finished is not None:
            return Result.of(finished)
        scored = next(store.setup(index), None)
    probe_rows = 0 if scored is not None else await context.probe(query)
    person = SearchDriver(context, index, query, store=store, scored=scored, probe_rows=probe_rows)
    context.running(asyncio.current_task())
    return await person.result()


def _unread(
    context: RunContext, index: int, raw: Any, error: RowError, store: Store | None
) -> Result:
    result = Result(
        query=_texts(context.problem, raw),
        outcome=Outcome(OutcomeKind.FAILED, str(error.at(index))),
        metrics=metrics_of(context),
        settings=context.settings,
        index=index,
    )
    if store:
        store.add_query(index, result.query)
        store.finish(index, result)
    return result


def read_row(problem: Problem, raw: Any) -> Row:
    """Read one row, or raise `RowError`, whatever is wrong with it."""
    try:
        return problem.row(as_mapping(problem, raw))
    except RowError:
        raise
    except Exception as error:  # a table's own row, or a value, that cannot even be looked at
        raise RowError(f"it cannot be read ({type(error).__name__})") from error


def as_mapping(problem: Problem, raw: Any) -> Mapping[str, Any]:
    """Return a row as a mapping: it may be one, a typed row, or a row of a data frame."""
    if isinstance(raw, Mapping):
        return raw
    if getattr(raw, "ndim", 1) != 1:
        raise RowError(
            "a whole table was given for one row: take one (frame.iloc[0]), or find_many"
        )
    if hasattr(raw, "to_dict"):
        named: Mapping[str, Any] = raw.to_dict()
        return named
    schema = problem.schema
    if not isinstance(raw, (tuple, list)) or len(raw) != len(schema):
        raise RowError(
            f"a row is a mapping or a tuple of {len(schema)} values, not {type(raw).__name__}"
        )
    return {feature.name: value for feature, value in zip(schema, raw, strict=True)}


def _texts(problem: Problem, raw: Any) -> dict[str, str]:
    """Return what can be told of a row that cannot be read."""
    try:
        return {_text(name): _text(value) for name, value in as_mapping(problem, raw).items()}
    except Exception:
        return {}


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:
        return type(value).__name__
