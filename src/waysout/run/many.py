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
from waysout.run.office import Office
from waysout.run.person import Person, metrics_of
from waysout.search.archive import Archive

# Enough that some searches think while others wait for the LLM, and the oracle's batches fill.
FEWEST_AT_ONCE = 8


async def results(office: Office, rows: Iterable[Any]) -> AsyncGenerator[Result]:
    """Yield the result of each row as it comes in; `Result.index` tells whose it is.

    Rows are taken as there is room for them, so there may be any number.
    """
    at_once = max(FEWEST_AT_ONCE, 2 * office.most_in_flight)
    source, begun = enumerate(rows), 0
    running: set[asyncio.Task[Result]] = set()
    try:
        while True:
            # Whoever asks for one person gets a result, even after a stop.
            while len(running) < at_once and not (office.stopped and begun):
                person = next(source, None)
                if person is None:
                    break
                running.add(asyncio.create_task(_one(office, *person)))
                begun += 1
            if not running:
                return
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            found = sorted((task.result() for task in done), key=lambda r: r.index)
            running -= done
            for result in found:
                yield result
    finally:
        office.stop("nobody is waiting for the result any more")
        await asyncio.gather(*running, return_exceptions=True)


async def _one(office: Office, index: int, raw: Any) -> Result:
    store = office.store
    try:
        query = office.problem.row(as_mapping(office.problem, raw))
    except RowError as error:
        return _unread(office, index, raw, error)
    if store:
        store.add_query(index, office.problem.schema.as_dict(query))  # refuses another person
        finished = store.finished(index)
        if finished is not None:
            return Result.of(finished)
    person = Person(office, index, query)
    office.running(asyncio.current_task())
    return await person.result()


def _unread(office: Office, index: int, raw: Any, error: RowError) -> Result:
    nobody: Row = (None,) * len(office.problem.schema)
    return Result(
        query={str(k): str(v) for k, v in raw.items()} if isinstance(raw, Mapping) else {},
        outcome=Outcome(OutcomeKind.FAILED, str(error.at(index))),
        metrics=metrics_of(office, Archive(office.problem, nobody)),
        settings=office.settings,
        index=index,
    )


def as_mapping(problem: Problem, raw: Any) -> Mapping[str, Any]:
    """Return a row as a mapping: it may be one, a typed row, or a row of a data frame."""
    if isinstance(raw, Mapping):
        return raw
    if hasattr(raw, "to_dict"):
        named: Mapping[str, Any] = raw.to_dict()
        return named
    schema = problem.schema
    if not isinstance(raw, (tuple, list)) or len(raw) != len(schema):
        raise RowError(
            f"a row is a mapping or a tuple of {len(schema)} values, not {type(raw).__name__}"
        )
    return {feature.name: value for feature, value in zip(schema, raw, strict=True)}
