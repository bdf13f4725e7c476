"""`find` and `find_many`: the main job, in one call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypedDict, Unpack

from waysout.domain.budget import Budget
from waysout.domain.known import Known
from waysout.domain.problem import Problem
from waysout.domain.result import plain
from waysout.errors import InputError, RowError, shown, unknown
from waysout.llm.base import Backend
from waysout.llm.call import Caller, Price
from waysout.llm.connect import DEFAULT as DEFAULT_LLM
from waysout.llm.connect import connect
from waysout.llm.replay import Recorder
from waysout.methods import DEFAULT as DEFAULT_METHOD
from waysout.methods import make_method
from waysout.oracles.probe import probe
from waysout.prompts.propose import Style
from waysout.report.result import Result
from waysout.run.many import as_mapping, results
from waysout.run.office import Office, Stop
from waysout.run.plan import Plan, differences, manifest
from waysout.run.portal import iterate
from waysout.run.progress import OnProgress
from waysout.search.base import Method
from waysout.store import Store


class Options(TypedDict, total=False):
    """What `find`, `find_many` and their asynchronous twins take, all by keyword.

    ``method`` is a name (see `waysout methods`) or a method with its own settings; ``settings``
    change those of a named one. ``llm`` is a connection string or a backend; methods that ask no
    LLM need none. ``calls``, ``oracle_rows``, ``tokens``, ``money`` (with ``price``) and
    ``seconds`` are hard limits for each person; rows default to ``k`` × ``calls``. ``data`` holds
    rows with known outcomes: the oracle is tried on them before anything is spent, ``nearest``
    starts from them, and options are compared with them. ``run`` is a file to record in; if it is
    there, the run goes on where it stopped; ``about`` is kept in it. ``record`` is a file for the
    LLM's replies, for `replay:`. ``in_flight`` bounds the LLM requests under way. ``progress`` is
    called after every answer; ``stop`` ends all searches from another thread, each with what it
    has found.
    """

    method: str | Method
    settings: Mapping[str, Any]
    llm: str | Backend
    calls: int | None
    k: int
    oracle_rows: int | None
    tokens: int | None
    money: float | None
    price: Price | str
    seconds: float | None
    seed: int
    style: Style
    data: Known
    run: str | Path
    record: str | Path
    in_flight: int
    progress: OnProgress
    stop: Stop
    about: Mapping[str, Any]


def find(problem: Problem, row: Any, **options: Unpack[Options]) -> Result:
    """Find ways out for one row: a mapping, a typed row, or a row of a data frame.

    The result says what was found, what it cost, and why there is no more. See `Options`.
    """
    problem.row(as_mapping(problem, row))  # a row that cannot be read is an error, not a result
    [result] = find_many(problem, [row], **options)
    return result


def find_many(
    problem: Problem, rows: Iterable[Any], **options: Unpack[Options]
) -> Iterator[Result]:
    """Yield the result of each row as it is ready; `Result.index` tells whose it is.

    Nothing happens before the first one is asked for. One person's failure is a result with that
    outcome and stops nobody else.
    """
    _check(options)
    return iterate(afind_many(problem, rows, **options))


async def afind(problem: Problem, row: Any, **options: Unpack[Options]) -> Result:
    """`find`, for code that runs in an event loop."""
    problem.row(as_mapping(problem, row))
    found = afind_many(problem, [row], **options)
    try:
        return await anext(found)
    finally:
        await found.aclose()


async def afind_many(
    problem: Problem, rows: Iterable[Any], **options: Unpack[Options]
) -> AsyncGenerator[Result]:
    """`find_many`, for code that runs in an event loop."""
    _check(options)
    plan = make_plan(options)
    first, people = _peek(_listed(rows))
    async with AsyncExitStack() as stack:
        caller = await _caller(stack, plan, options)
        store = _store(stack, problem, plan, caller, options)
        known = options.get("data")
        if plan.method.needs_known and known is None:
            raise InputError(f"{plan.name} starts from known rows: give it some (data=…)")
        office = Office(
            problem,
            plan,
            caller=caller,
            known=known,
            store=store,
            in_flight=options.get("in_flight"),
            probe_rows=await _probe(problem, known, first),
            progress=options.get("progress"),
        )
        if "stop" in options:
            options["stop"].attach(office)
        found = results(office, people)
        try:
            async for result in found:
                yield result
        finally:
            await found.aclose()


def _check(options: Options) -> None:
    for name in options:
        if name not in Options.__annotations__:
            raise InputError(unknown("option", name, Options.__annotations__))
    bound = options.get("in_flight", 1)
    if isinstance(bound, bool) or not isinstance(bound, int) or bound < 1:
        raise InputError(f"in_flight is a whole number of at least 1, not {shown(bound)}")
    if options.get("settings") and isinstance(options.get("method"), Method):
        raise InputError("settings change those of a method given by name; this one has its own")


def make_plan(options: Options) -> Plan:
    """Return the plan that some options describe."""
    method, k, calls = options.get("method", DEFAULT_METHOD), options.get("k", 5), _calls(options)
    rows = options.get("oracle_rows", None if calls is None else k * calls)
    made = method if isinstance(method, Method) else make_method(method, options.get("settings"))
    return Plan(
        name=method if isinstance(method, str) else made.name,
        method=made,
        budget=Budget(
            llm_calls=calls if made.needs_llm else 0,
            oracle_rows=rows,
            tokens=options.get("tokens"),
            money=options.get("money"),
            seconds=options.get("seconds"),
        ),
        k=k,
        seed=options.get("seed", 0),
        style=options.get("style", Style()),
    )


def _calls(options: Options) -> int | None:
    return options.get("calls", 30)


def _listed(rows: Iterable[Any]) -> Iterable[Any]:
    """Return a data frame as its rows; anything else as it is."""
    records: Iterable[Any] = rows.to_dict("records") if hasattr(rows, "to_dict") else rows
    return records


def _peek(rows: Iterable[Any]) -> tuple[list[Any], Iterable[Any]]:
    source = iter(rows)
    first = list(islice(source, 1))
    return first, chain(first, source)


async def _caller(stack: AsyncExitStack, plan: Plan, options: Options) -> Caller | None:
    if not plan.method.needs_llm:
        return None
    llm, price = options.get("llm", DEFAULT_LLM), options.get("price")
    # A backend that was given to us stays open for whoever gave it.
    backend = connect(llm) if isinstance(llm, str) else llm
    if "record" in options:
        backend = Recorder(backend, options["record"])
    if isinstance(llm, str):
        await stack.enter_async_context(backend)
    return Caller(backend, price=Price.parse(price) if isinstance(price, str) else price)


def _store(
    stack: AsyncExitStack, problem: Problem, plan: Plan, caller: Caller | None, options: Options
) -> Store | None:
    if "run" not in options:
        return None
    path = Path(options["run"])
    wanted = plain(manifest(problem, plan, caller.backend.name if caller else None))
    if not path.exists():
        about = {"about": dict(options.get("about", {}))}
        return stack.enter_context(Store.create(path, {**about, **wanted}))
    store = stack.enter_context(Store.open(path))
    found = differences(store.manifest, {**store.manifest, **wanted})
    if found:
        raise InputError(
            f"{path} holds another run ({'; '.join(found[:5])}): give the same settings to go on "
            "with it, or another file"
        )
    return store


async def _probe(problem: Problem, known: Known | None, first: list[Any]) -> int:
    """Try the oracle before anything is spent on it; returns the rows that took."""
    if known is not None:
        report = await asyncio.to_thread(probe, problem.oracle, known.rows, labels=known.labels)
        return report.rows_asked
    try:
        rows = [problem.row(as_mapping(problem, raw)) for raw in first]
    except RowError:
        rows = []  # its result will say so
    return (await asyncio.to_thread(probe, problem.oracle, rows)).rows_asked if rows else 0
