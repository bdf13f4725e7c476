"""A problem as the service holds it: one model that all searches share, and rows to start from."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from waysout.domain.distance import proximity
from waysout.domain.known import Known
from waysout.domain.oracle import Oracle
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.domain.ways import Checks
from waysout.errors import InputError, unknown
from waysout.oracles.cache import CachedOracle
from waysout.oracles.probe import ask_each
from waysout.serve.concurrency import SerializedOracle, WouldWait, unless, without_waiting
from waysout.serve.forms import form_row, lever_forms, lock_rules, told_pairs, violation_words
from waysout.serve.models import DecideRequest, FartherRequest, StripsRequest
from waysout.serve.option_forms import OptionForms
from waysout.serve.people import People
from waysout.serve.strips import Strips

T = TypeVar("T")
R = TypeVar("R")

MOST_EXAMPLES = 30
_MOST_CHECKED = 500
# Other requests wait for this batch; at 100 rows its limit is twice that of one row.
_CHECKED_AT_ONCE = 100
_CACHED_ROWS = 200_000
# Of decisions that do not wait for the model; one of them may be asking it.
_THREADS = 4
# Of those that wait for it, begun as they are needed: as many as there may be connections. With
# fewer, some would queue before the lock, whose queue is turned round when the model hangs.
_PATIENT = 768
Left = Callable[[], bool]
# How much farther a way is carried on.
_SHARES = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)


@dataclass
class ServedProblem:
    """A problem, the rows whose outcome is known, and the numbers of those to offer as examples.

    The oracle of ``problem`` has a cache for all searches; see `of`.

    >>> import waysout
    >>> from waysout.serve import ServedProblem
    >>> people = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, people.card)
    >>> problem = waysout.Problem.from_card(people.card, oracle, training=people.rows)
    >>> served = ServedProblem.of(problem, people)
    >>> len(served.candidates)  # rows of the table that may be offered as examples
    500
    """

    problem: Problem
    known: Known | None = None
    candidates: Sequence[int] = ()
    people: Sequence[Row] = ()
    remote: bool = False
    """Whether the model is behind an address, so that each row asked goes there."""
    steady: bool | None = None
    """Whether the model says the same each time; None before a search has tried it."""
    _examples: list[dict[str, Any]] | None = None
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Decisions have threads of their own: a slider must not queue behind searches. Those that wait
    # for the model have others: however many wait, what is remembered is answered.
    _threads: Executor = field(default_factory=lambda: ThreadPoolExecutor(_THREADS, "decide"))
    _patient: Executor = field(default_factory=lambda: ThreadPoolExecutor(_PATIENT, "wait"))
    # Nor may any of them wait for those who look through a large table; these only read it.
    _reader: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "look-up"))

    @classmethod
    def of(
        cls,
        problem: Problem,
        known: Known | None = None,
        examples: Sequence[int] | None = None,
        people: Sequence[Row] = (),
    ) -> ServedProblem:
        """Return a problem ready to be served.

        ``examples`` are the numbers of the known rows to offer if they are rejected; by default
        rejected rows are looked for all over the table. ``people`` are rows to look among where no
        outcome is known.
        """
        oracle = problem.oracle
        inner = oracle.oracle if isinstance(oracle, CachedOracle) else oracle
        shared = CachedOracle(SerializedOracle(inner), max_rows=_CACHED_ROWS)
        remote = bool(getattr(_innermost(oracle), "remote", False))
        if examples is None:
            count = len(people if known is None else known.rows)
            spread = np.linspace(0, max(0, count - 1), min(count, _MOST_CHECKED), dtype=int)
            examples = np.unique(spread).tolist()
        return cls(replace(problem, oracle=shared), known, examples[:_MOST_CHECKED], people, remote)

    @property
    def rows(self) -> Sequence[Row]:
        """The rows that can be looked up."""
        return self.people if self.known is None else self.known.rows

    async def examples(self) -> list[dict[str, Any]]:
        """Return rejected rows of the table as JSON; the model is asked on the first call."""
        async with self._looking:
            if self._examples is None:
                loop = asyncio.get_running_loop()
                self._examples = await loop.run_in_executor(self._patient, self._find_examples)
            return self._examples

    def _find_examples(self) -> list[dict[str, Any]]:
        some = self.candidates
        batches = math.ceil(len(some) / _CHECKED_AT_ONCE)
        # Each from all over the table, which may be sorted: one of bad rows alone has no answer.
        asked = [person for i in range(batches) for person in self._asked(some[i::batches])]
        refused = {person["number"]: person for person in asked if not person["approved"]}
        return [refused[number] for number in some if number in refused][:MOST_EXAMPLES]

    def _asked(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return rows of the table as JSON, with the model's answers to them in one batch.

        One on which the model fails is left out, unless it fails on all.
        """
        if not len(numbers):
            return []
        rows = [self.rows[number] for number in numbers]
        answers, good, _, _ = ask_each(self.problem.oracle, rows)
        numbers, rows = [numbers[i] for i in good], [rows[i] for i in good]
        goal = self.problem.goal
        # A goal that asks for a rise is never met by a row as it is.
        yes = answers.decision if goal.rise is not None else goal.met(answers)
        said = zip(numbers, rows, answers.probability.tolist(), yes.tolist(), strict=True)
        return [
            {"number": number, "row": form_row(self.problem.schema, row), "probability": chance,
             "approved": met}
            for number, row, chance, met in said
        ]  # fmt: skip

    async def look_up(
        self, text: str, offset: int, limit: int, left: Left = bool
    ) -> dict[str, Any]:
        """Return a page of the rows that fit a text, or of the examples where there is none."""
        if not text.strip():
            found = await self.examples()
            return {"total": len(found), "people": found[offset : offset + limit]}
        loop = asyncio.get_running_loop()
        numbers = await loop.run_in_executor(self._reader, lambda: self._index.find(text))
        people = await self._in_thread(self._asked, numbers[offset : offset + limit], left)
        return {"total": len(numbers), "people": people}

    @cached_property
    def _index(self) -> People:
        return People(self.problem.schema, self.rows)

    async def decide(self, request: DecideRequest, left: Left = bool) -> dict[str, Any]:
        """Return the model's answer about a row, and what may change within some locks."""
        return await self._in_thread(self._decide, request, left)

    def _decide(self, request: DecideRequest) -> dict[str, Any]:
        row = self.problem.row(request.row)
        query = row if request.query is None else self.problem.row(request.query)
        problem = self.problem.with_rules(lock_rules(self.problem, query, request.locks))
        return {
            "row": form_row(problem.schema, row),
            **self.verdict(query, row),
            "levers": lever_forms(problem, query),
            "broken": [
                {
                    "rule": v.rule,
                    "features": list(v.features),
                    "reason": v.reason,
                    "says": violation_words(problem, v),
                }
                for v in problem.violations(query, row)
            ],
            "changes": told_pairs(problem, query, row),
            "proximity": proximity(problem.distance(query, row)),
            "sparsity": problem.rules.count_changes(query, row),
        }

    async def strips(self, request: StripsRequest, left: Left = bool) -> dict[str, Any]:
        """Return what each lever does alone, from a row on."""
        return await self._in_thread(self._strips, request, left)

    def _strips(self, request: StripsRequest) -> dict[str, Any]:
        row = self.problem.row(request.row)
        query = row if request.query is None else self.problem.row(request.query)
        problem = self.problem.with_rules(lock_rules(self.problem, query, request.locks))
        names = problem.schema.names if request.features is None else request.features
        for name in names:
            if name not in problem.schema.names:
                raise InputError(unknown("feature", name, problem.schema.names))
        return Strips(problem, query, row, names).answer()

    async def farther(self, request: FartherRequest, left: Left = bool) -> dict[str, Any]:
        """Return a way carried on, step by step."""
        return await self._in_thread(self._farther, request, left)

    def _farther(self, request: FartherRequest) -> dict[str, Any]:
        row, query = self.problem.row(request.row), self.problem.row(request.query)
        problem = self.problem.with_rules(lock_rules(self.problem, query, request.locks))
        checks = Checks(problem, query)
        shares, last = {row: 0.0}, row
        for share in _SHARES:
            far = checks.pushed(row, share)
            # Where rules stop some numbers, the others may be pushed less than before.
            if far not in shares and checks.covers(last, far):
                shares[far], last = share, far
        asked = [query, *shares]
        answers, good, failure, _ = ask_each(problem.oracle, asked)
        if failure is not None and 0 not in good:
            raise failure
        goal = problem.goal.for_query(float(answers.probability[0]), bool(answers.decision[0]))
        told = zip(answers.probability.tolist(), goal.met(answers).tolist(), strict=True)
        said = dict(zip((asked[i] for i in good), told, strict=True))
        steps = [(step, said[step[0]]) for step in shares.items() if step[0] in said]
        forms = OptionForms(problem, query)
        return {"steps": [
            {**forms.form(problem.option(query, far, chance)), "share": share, "approved": met}
            for (far, share), (chance, met) in steps
        ]}  # fmt: skip

    async def _in_thread(self, work: Callable[[T], R], request: T, left: Left) -> R:
        """Do work that may ask the model; begin it anew with those that wait if it would wait.

        Who asked may have ``left`` meanwhile: then nobody waits for the model on their behalf.
        """
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, without_waiting, work, request)
        except WouldWait:
            return await loop.run_in_executor(self._patient, _unless_left, left, work, request)

    def verdict(self, query: Row, row: Row) -> dict[str, Any]:
        """Return the model's answer about a row as a change of the query."""
        answers = self.problem.oracle.ask([row, query])
        goal = self.problem.goal.for_query(float(answers.probability[1]), bool(answers.decision[1]))
        return {
            "approved": bool(goal.met(answers)[0]),
            "decision": self.problem.yes if answers.decision[0] else self.problem.no,
            "probability": float(answers.probability[0]),
        }


def _unless_left(left: Left, work: Callable[[T], R], request: T) -> R:
    with unless(left):
        return work(request)


def _innermost(oracle: Oracle) -> Oracle:
    while isinstance(oracle, CachedOracle | SerializedOracle):
        oracle = oracle.oracle
    return oracle
