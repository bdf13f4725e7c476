"""`check_method`: whether a method keeps its protocol. Run on all of ours, and for yours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from waysout.domain.budget import Budget, Ledger
from waysout.domain.distance import Distance
from waysout.domain.key import Key
from waysout.domain.known import Known, need_known
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind, ResultData
from waysout.domain.rules import Direction, Immutable, Linked, MaxChanges, RuleSet
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import BudgetSpent, InputError, WaysoutError, shown
from waysout.llm.base import Backend, Finish, Reply, Request
from waysout.llm.simulated import Simulated
from waysout.methods import as_method
from waysout.oracles.answers import ask_checked
from waysout.prompts.propose import Proposer
from waysout.prompts.render import Topic
from waysout.run.find import find, find_many
from waysout.run.options import Options
from waysout.run.plan import Plan
from waysout.run.sync import wait_for
from waysout.search.base import ROWS_WITHOUT_LIMIT, Method, Search, ignore_progress
from waysout.search.work import Evaluate, Propose, Work

_CALLS, _ROWS, _K = 4, 14, 3
_SCARCE = [(calls, rows) for calls in (0, 1, 3) for rows in (0, 1, 7)]
_BAD_REPLIES: tuple[tuple[str, Finish], ...] = (
    ("", "stop"),
    ("\0\x1b{{{ [[CANDIDATE=1\nFEATURE=", "stop"),
    ('{"candidates": [{"feature": 1, "value": {}}, null]}', "stop"),
    ("CANDIDATE=1\nFEATURE=nobody\nVALUE=1\nREASONING=x", "length"),
)


def check_method(
    method: str | Method,
    *,
    problem: Problem | None = None,
    rows: Sequence[Row] | None = None,
    data: Known | None = None,
) -> None:
    """Raise `InputError` unless a method keeps the protocol; takes a second or so.

    Whatever it is told, a method must end, even where its rows have no limit, never exceed a
    budget, and find only rows that the oracle approves and no rule forbids, each key once. It must
    ask the same again for the same seed, and accept a repeated or a nonsensical answer. It is tried
    on a small table of our own with a simulated LLM, or on your ``problem`` with rejected ``rows``
    (and ``data`` with known outcomes, where the method needs some).

    >>> import waysout
    >>> waysout.check_method("nearest")  # silence: it does
    >>> waysout.check_method(waysout.Wayfinder)
    Traceback (most recent call last):
    waysout.errors.InputError: method is the class Wayfinder: make one, Wayfinder(…)
    """
    world = _world(method, problem, rows, data)
    method = world.method
    with world.step("prepare"):
        method.prepare()
    with world.step("learn"):
        method.learn(world.problem, world.known, ignore_progress)
    texts = {name: str(value) for name, value in method.settings().items()}
    same = type(method)(**texts) == method
    world.demand(same, f"its settings do not survive as text: {shown(texts, 200)}")
    for calls, most in _SCARCE:
        _check_options(world, _play(world, world.rows[0], Simulated(), calls, most))
    for seed, row in enumerate(world.rows):
        _check_repeats(world, row, seed)
    for text, finish in _BAD_REPLIES if method.needs_llm else ():
        _check_options(world, _play(world, world.rows[0], _Parrot(text, finish)))
    _play(world, world.rows[0], Simulated(), rows=None)
    with world.step("a search by find or find_many"):
        _check_driven(world)


# Where a method is tried ------------------------------------------------------------------------


@dataclass(frozen=True)
class _World:
    name: str
    method: Method
    problem: Problem
    rows: Sequence[Row]
    known: Known | None

    def demand(self, holds: bool, reason: str) -> None:
        if not holds:
            raise InputError(f"{self.name!r} breaks the protocol: {reason}")

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Turn an exception of the method's into a failure that names the step."""
        try:
            yield
        except WaysoutError:
            raise
        except Exception as error:
            raise InputError(
                f"{self.name!r} breaks the protocol: it raised {error!r} in {name}"
            ) from error


@dataclass(frozen=True)
class _Labelled:
    rows: Sequence[Row]
    labels: Sequence[bool]


class _Points:
    """Approves from 50 of 100 points on."""

    name = "points"
    labels_only = False

    def ask(self, rows: Sequence[Row]) -> Answers:
        income, savings, years = (np.array([float(r[i] or 0) for r in rows]) for i in (1, 2, 4))
        # Not a matrix product: its last digit can depend on the size of the batch.
        chance = np.minimum(0.01 * income + 0.005 * savings + 0.02 * years, 1.0)
        return Answers(chance, chance >= 0.5)


_YEARS = {"school": 10, "college": 13, "master": 17}
_OWN_ROWS: tuple[Row, ...] = (
    (30, 20, 5.0, "school", 10, False),
    (45, 15, 0.0, "college", 13, True),
    (22, 2, 4.5, "master", 17, False),
)


def _world(
    method: str | Method, problem: Problem | None, rows: Sequence[Row] | None, data: Known | None
) -> _World:
    """Return the user's problem and rows, checked, or a small table of our own."""
    name, made = as_method(method)
    if problem is not None:
        if not rows:
            raise InputError("a problem of your own needs rejected rows of its own (rows=…)")
        if made.needs_known:
            need_known(data, f"the method {name!r}")
        answers = ask_checked(problem.oracle, rows)
        for i, row in enumerate(rows):
            own = Answers(answers.probability[i : i + 1], answers.decision[i : i + 1])
            settled = problem.settled(row, own)
            if settled is not None:
                raise InputError(f"row {i} leaves nothing to search: {settled.reason}")
        return _World(name, made, problem, rows, data)
    schema = Schema(
        (
            Feature("age", "integer", range=(18, 99)),
            Feature("income", "integer", range=(0, 90)),
            Feature("savings", "number", range=(0, 50), decimals=1),
            Feature("education", "category", levels=tuple(_YEARS)),
            Feature("years", "integer", range=(8, 20)),
            Feature("married", "boolean"),
        )
    )
    rules = (
        Immutable(features=["age"]),
        Direction(features=["savings"], direction="up"),
        Linked(feature="education", sets="years", map=_YEARS),
        MaxChanges(at_most=2),
    )
    key = Key(schema, {"income": tuple(range(10, 90, 10)), "savings": (5.0, 10.0, 20.0)})
    distance, oracle = Distance.fit(schema, ()), _Points()
    problem = Problem(schema, RuleSet(schema, rules), key, distance, oracle, name="check")
    known: list[Row] = [
        (25 + i, income, 2.0 * i, level, years, i % 2 == 0)
        for i, income in enumerate(range(0, 90, 10))
        for level, years in _YEARS.items()
    ]
    labelled = _Labelled(known, oracle.ask(known).decision.tolist())
    return _World(name, made, problem, rows or _OWN_ROWS, data or labelled)


# Driving it by hand -----------------------------------------------------------------------------


class _Parrot(Backend):
    name = "parrot"

    def __init__(self, text: str, finish: Finish) -> None:
        self.reply = Reply(text, finish=finish)

    async def complete(self, request: Request) -> Reply:
        return self.reply


@dataclass(frozen=True)
class _Played:
    row: Row
    search: Search
    asked: list[Work] = field(default_factory=list)


def _play(
    world: _World,
    row: Row,
    llm: Backend,
    calls: int = _CALLS,
    rows: int | None = _ROWS,
    *,
    seed: int = 0,
    twice: bool = False,
    newest_first: bool = False,
) -> _Played:
    """Drive a search to its end, and charge every work item to a ledger as it is handed out.

    Where ``rows`` is ``None``, a search that sets itself a limit is not driven: other plays show
    that it keeps limits, and this one would be long.
    """
    problem, method = world.problem, world.method
    budget = Budget(llm_calls=calls if method.needs_llm else 0, oracle_rows=rows)
    chance = float(ask_checked(problem.oracle, [row]).probability[0])
    proposer = Proposer(Topic.of_problem(problem)) if method.needs_llm else None
    with world.step("start"):
        search = Plan(world.name, method, budget, k=_K, seed=seed).start(
            problem, row, chance, proposer=proposer, known=world.known
        )
    played, allowed = _Played(row, search), search.case.budget
    if rows is None:
        if allowed.oracle_rows is not None:
            search.close()
            return played
        allowed = replace(allowed, oracle_rows=ROWS_WITHOUT_LIMIT)
    ledger, waiting = Ledger(allowed), list[Work]()
    while True:
        while True:
            with world.step("ask"):
                work = search.ask()
            if work is None:
                break
            _charge(world, ledger, work, limited=rows is not None)
            played.asked.append(work)
            waiting.append(work)
        if not waiting:
            break
        work = waiting.pop(-1 if newest_first else 0)
        answer: Answers | Reply
        if isinstance(work, Evaluate):
            answer = ask_checked(problem.oracle, work.rows)
            said = f"the answers to {len(work.rows)} rows"
        else:
            answer = reply = wait_for(llm.complete(work.request))
            said = f"the reply {shown(reply.text)}"
        with world.step(f"tell, at {said}"):
            search.tell(work, answer)
        if twice:
            before = _state(search)
            with world.step(f"a second tell, at {said}"):
                search.tell(work, answer)
            same = _state(search) == before
            world.demand(same, f"a second answer to work item {work.id} changes it")
    world.demand(search.done, "it neither asks nor ends")
    ending = search.ending
    well = ending is not None and isinstance(ending.kind, OutcomeKind) and bool(ending.reason)
    world.demand(well, f"it does not say why it ended: {shown(ending)}")
    return played


def _charge(world: _World, ledger: Ledger, work: Work, *, limited: bool) -> None:
    """Charge a work item: each costs a call or a row, so that the budget ends every search."""
    try:
        if isinstance(work, Propose):
            ledger.reserve_call().settle()
        else:
            world.demand(len(work.rows) > 0, "it asks the oracle about no rows")
            ledger.take_rows(len(work.rows))
    except BudgetSpent as error:
        world.demand(
            limited or isinstance(work, Propose),
            f"without a row limit it asks for more than {ROWS_WITHOUT_LIMIT} rows: start it with "
            "case.with_row_limit()",
        )
        world.demand(False, f"it exceeds its budget: {error}")


def _state(search: Search) -> tuple[Any, ...]:
    found = search.archive
    counts = (found.evaluated, found.valid, found.pruned, found.generated, found.best_probability)
    return (search.asked, search.waiting, search.ending, counts, dict(found.rejections),
            found.options(), found.near_misses())  # fmt: skip


# What is demanded -------------------------------------------------------------------------------


def _check_repeats(world: _World, row: Row, seed: int) -> None:
    """The same seed and answers give the same search, and a second telling changes nothing."""
    first = _play(world, row, Simulated(seed), seed=seed)
    again = _play(world, row, Simulated(seed), seed=seed, twice=True)
    same = first.asked == again.asked and _state(first.search) == _state(again.search)
    world.demand(same, f"the seed {seed} and the same answers gave another search")
    other_way = _play(world, row, Simulated(seed), seed=seed, newest_first=True)
    for played in (first, other_way):
        _check_options(world, played)


def _check_options(world: _World, played: _Played) -> None:
    problem, goal = world.problem, played.search.case.problem.goal
    options = played.search.archive.options()
    rows = [problem.row(option.row) for option in options]
    approved = goal.met(ask_checked(problem.oracle, rows))
    for row, option, met in zip(rows, options, approved, strict=True):
        changes = shown(dict(option.changes), 200)
        world.demand(bool(met), f"an option is not approved: {changes}")
        broken = problem.violations(played.row, row)
        world.demand(not broken, f"an option breaks the rule {broken and broken[0].rule!r}")
        world.demand(row != played.row, "an option is the query itself")
    keys = Counter(problem.key(row) for row in rows)
    world.demand(len(keys) == len(rows), f"options share a key: {keys.most_common(1)}")


def _check_driven(world: _World) -> None:
    """Searches do not affect each other, and a person without a way out costs no call."""
    problem = world.problem
    given: Options = {
        "method": world.method, "llm": Simulated(), "calls": _CALLS, "oracle_rows": _ROWS, "k": _K,
        "data": world.known,
    }  # fmt: skip
    together = {r.index: r for r in find_many(problem, world.rows, **given)}
    for i, row in enumerate(world.rows):
        alone = find(problem, row, **given)
        same = i in together and _compared(together[i]) == _compared(alone)
        world.demand(same, f"row {i} gives another result when it is searched among others")
        spent = alone.ledger
        within = spent.llm_calls <= _CALLS and spent.oracle_rows <= _ROWS
        world.demand(within, f"it exceeds its budget: {spent}")
    held = problem.rules.extended([Immutable(features=problem.schema.names)])
    stuck = find(replace(problem, rules=held), world.rows[0], **given)
    world.demand(
        stuck.outcome.kind == OutcomeKind.INFEASIBLE,
        f"nothing may change, but it says {stuck.outcome}",
    )
    free = (stuck.ledger.llm_calls, stuck.ledger.oracle_rows) == (0, 0)
    world.demand(free, f"a person without a way out costs something: {stuck.ledger}")


def _compared(result: ResultData) -> tuple[Any, ...]:
    """Return what two results must share: not times, nor the last digits of probabilities."""
    spent = replace(result.ledger, seconds=0.0, setup_rows=0)
    keys = [option.key for option in result.options]
    return result.outcome.kind, keys, result.metrics, result.rejections, spent
