"""A small world to drive: an oracle that counts, and LLMs that wait, fail and count on demand."""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from waysout.domain.distance import Distance
from waysout.domain.key import Key
from waysout.domain.oracle import Answers, Goal, Oracle
from waysout.domain.problem import Problem
from waysout.domain.result import ResultData
from waysout.domain.rules import Rule, RuleSet
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import LLMFailure
from waysout.llm.base import Backend, Reply, Request
from waysout.llm.call import Retry
from waysout.llm.simulated import Simulated

SCHEMA = Schema(
    (
        Feature("a", "integer", range=(0, 20)),
        Feature("b", "integer", range=(0, 20)),
        Feature("c", "category", levels=("x", "y", "z")),
    )
)
PEOPLE: list[Row] = [(i % 4, i // 4, "xyz"[i % 3]) for i in range(12)]


def person(row: Row) -> dict[str, Any]:
    return SCHEMA.as_dict(row)


class Adder:
    """Approves where a + b is 10 or more, at a chance of (a + b) / 20."""

    name = "adder"
    labels_only = False

    def __init__(self) -> None:
        self.batches: list[list[Row]] = []

    @property
    def rows(self) -> int:
        return sum(map(len, self.batches))

    def ask(self, rows: Sequence[Row]) -> Answers:
        self.batches.append(list(rows))
        sums = np.array([float(r[0] or 0) + float(r[1] or 0) for r in rows])
        return Answers(np.minimum(sums / 20, 1.0), sums >= 10)


class Broken(Adder):
    """Goes wrong in some way for rows that a test picks; it is told when."""

    def __init__(self, how: str, when: Callable[[Row], bool]) -> None:
        super().__init__()
        self.how, self.when = how, when

    def ask(self, rows: Sequence[Row]) -> Answers:
        good = super().ask(rows)
        bad = np.array([self.when(row) for row in rows], dtype=bool)
        if not bad.any():
            return good
        if self.how == "raises":
            raise ValueError("the model fell over")
        if self.how == "shape":
            return Answers(good.probability[:-1], good.decision[:-1])
        return Answers(np.where(bad, np.nan, good.probability), good.decision)


def problem(*rules: Rule, oracle: Oracle | None = None, goal: Goal | None = None) -> Problem:
    return Problem(
        SCHEMA, RuleSet(SCHEMA, rules), Key(SCHEMA), Distance.fit(SCHEMA, ()), oracle or Adder(),
        goal=goal or Goal(), name="small",
    )  # fmt: skip


class Watched(Backend):
    """The simulated LLM, but it counts, and a test may hold it up or make it fail.

    ``before`` is awaited with each request and the number of times that one came. A name that is
    always the same stands for an LLM that is: replies do not depend on the wrapping.
    """

    def __init__(self, before: Any = None, parallel: int = 16) -> None:
        self.inner = Simulated(7)
        self.name = self.inner.name
        self.parallel = parallel
        self.before = before
        self.seen: Counter[str] = Counter()
        self.replied: Counter[str] = Counter()
        self.now = 0
        self.most_at_once = 0

    @property
    def requests(self) -> int:
        return self.seen.total()

    async def complete(self, request: Request) -> Reply:
        key = request.key(self.name)
        self.seen[key] += 1
        self.now += 1
        self.most_at_once = max(self.most_at_once, self.now)
        try:
            if self.before is not None:
                await self.before(request, self.seen[key])
            reply = await self.inner.complete(request)
        finally:
            self.now -= 1
        self.replied[key] += 1
        return reply


async def a_third_fails(request: Request, attempt: int) -> None:
    """Fail 30 % of the attempts, drawn for each request, but never four in a row."""
    digest = hashlib.sha256(f"{request.key('')} {attempt}".encode()).digest()
    if attempt < 4 and digest[0] < 0.3 * 256:
        raise LLMFailure("a fault on purpose", alive=True)


def about(request: Request) -> int:
    """Return whom of `PEOPLE` a request is about: the prompt tells the query, whatever the node."""
    found = re.search(r"- a = (\d+)\D.*\n- b = (\d+)\D", request.messages[-1].content)
    assert found is not None
    return int(found[1]) + 4 * int(found[2])


@dataclass
class Gate:
    """Holds requests up until it is opened; from any thread."""

    opened: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, request: Request, attempt: int) -> None:
        while not self.opened.is_set():
            await asyncio.sleep(0.002)


def timeless(result: ResultData, *, attempts: bool = True) -> dict[str, Any]:
    """Return a result as plain data, without what may differ between equal runs."""
    spent = replace(result.ledger, seconds=0.0)
    if not attempts:
        spent = replace(spent, attempts=0)
    return {**result.as_dict(), "ledger": spent.as_dict()}


@contextmanager
def no_waiting() -> Iterator[None]:
    """Let retries follow at once."""
    before = Retry.wait
    Retry.wait = lambda self, failures, chance, asked=None: 0.0  # type: ignore[method-assign]
    try:
        yield
    finally:
        Retry.wait = before  # type: ignore[method-assign]
