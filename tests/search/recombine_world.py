"""Tables and oracles to try `recombine` on: any function of a row can be the oracle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from small_world import Played, drive, endless, reply

from waysout.domain.budget import Budget
from waysout.domain.distance import Distance
from waysout.domain.key import Key
from waysout.domain.oracle import Answers, Goal
from waysout.domain.problem import Problem
from waysout.domain.rules import Rule, RuleSet
from waysout.domain.schema import Feature, Row, Schema, Value
from waysout.llm.base import Reply, Request
from waysout.llm.simulated import Simulated
from waysout.prompts.propose import Proposer, Style
from waysout.prompts.render import Topic
from waysout.search.base import Case, Method, Search
from waysout.search.library import EditLibrary
from waysout.search.random import RandomEdits
from waysout.search.recombine import Recombine, RecombineSearch
from waysout.search.work import Propose

Talk = Callable[[Request], Reply]


class Says:
    """Gives each row the chance that a function does; approves from ``border`` on."""

    name = "says"

    def __init__(
        self, chance: Callable[[Row], float], *, border: float = 0.5, labels_only: bool = False
    ) -> None:
        self.chance = chance
        self.border = border
        self.labels_only = labels_only
        self.asked: list[Row] = []

    def ask(self, rows: Sequence[Row]) -> Answers:
        self.asked += rows
        chances = np.array([self.chance(row) for row in rows], dtype=np.float64)
        met = chances >= self.border
        return Answers(met.astype(np.float64) if self.labels_only else chances, met)


def numbers(count: int, high: float = 100.0) -> Schema:
    """Return a table of numbers from 0 on."""
    return Schema(tuple(Feature(f"n{i}", "number", range=(0, high)) for i in range(count)))


def deciles(schema: Schema, high: float = 100.0) -> dict[str, tuple[float, ...]]:
    """Return ten bins for each number of a table."""
    edges = tuple(high * i / 10 for i in range(1, 10))
    return {feature.name: edges for feature in schema if feature.is_numeric}


def make_problem(
    schema: Schema,
    oracle: Says | None = None,
    *rules: Rule,
    bins: Mapping[str, tuple[float, ...]] | None = None,
    goal: Goal | None = None,
) -> Problem:
    return Problem(
        schema,
        RuleSet(schema, rules),
        Key(schema, bins or {}),
        Distance.fit(schema, ()),
        oracle or Says(lambda row: 0.0),
        goal=goal or Goal(),
        name="hard",
    )


def make_case(
    problem: Problem,
    query: Row,
    *,
    calls: int | None = 0,
    rows: int | None = 60,
    seed: int = 0,
    llm: bool = True,
) -> Case:
    chance = float(problem.oracle.ask([query]).probability[0])
    proposer = Proposer(Topic.of_problem(problem), "none", Style()) if llm else None
    found = replace(problem, goal=problem.goal.for_query(chance))
    budget = Budget(llm_calls=calls, oracle_rows=rows)
    return Case(found, query, chance, budget, seed=seed, proposer=proposer)


def simulated(seed: int = 0) -> Talk:
    llm = Simulated(seed)
    return lambda request: asyncio.run(llm.complete(request))


def silent(request: Request) -> Reply:
    raise AssertionError("no LLM was to be asked")


def run(method: Method, given: Case, talk: Talk = silent) -> Search:
    """Drive a search to its end."""
    search = method.start(given)
    drive(search, talk, given)
    return search


def recombine(given: Case, talk: Talk = silent, **settings: object) -> RecombineSearch:
    found = run(Recombine(**settings), given, talk)  # type: ignore[arg-type]
    assert isinstance(found, RecombineSearch)
    return found


def unique(search: Search) -> int:
    return len(search.archive.unique_rows)


def yields(cases: Iterable[Case], talk: Talk = silent, **settings: object) -> tuple[float, float]:
    """Return the mean unique valid rows of `recombine` and of `random`, at the same rows."""
    pairs = [(unique(recombine(c, talk, **settings)), unique(run(RandomEdits(), c))) for c in cases]
    ours, floor = np.mean(pairs, axis=0).tolist()
    return ours, floor


def library_of(problem: Problem, query: Row, *, own: bool = True) -> EditLibrary:
    made = EditLibrary(problem, query)
    if own:
        made.add_own(np.random.default_rng(0))
    return made


def number(value: Value) -> float:
    assert isinstance(value, (int, float))
    return float(value)


def asked_before_calls(played: Played) -> tuple[list[int], int]:
    """Return how many rows were asked before each call, and in all."""
    before, rows = [], 0
    for work in played.works:
        if isinstance(work, Propose):
            before.append(rows)
        else:
            rows += len(work.rows)
    return before, rows


def reason_of(search: Search) -> str:
    assert search.ending is not None
    return search.ending.reason


def always_new() -> Iterator[Reply]:
    """Bring one edit that nobody named before, as long as there are any."""
    yield from (reply(f"{name}={value}") for value in range(1, 10) for name in "ab")
    yield from endless("a=1")
