"""A problem as the service holds it: one model that all share, and rows to start from."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from waysout.domain.distance import proximity
from waysout.domain.known import Known
from waysout.domain.oracle import Answers, Oracle
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.oracles.cache import CachedOracle
from waysout.serve.forms import lever_forms, lock_rules
from waysout.serve.models import DecideRequest

MOST_EXAMPLES = 30
_MOST_LOOKED_AT = 500
_ROWS_REMEMBERED = 200_000


@dataclass(frozen=True, slots=True)
class Example:
    """A rejected row, by its number in the table."""

    number: int
    row: Row
    probability: float


class InTurn:
    """An oracle that answers one at a time: not every model can be asked twice at once."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The inner oracle's name."""
        return self.oracle.name

    @property
    def labels_only(self) -> bool:
        """Whether the inner oracle gives labels only."""
        return self.oracle.labels_only

    def ask(self, rows: Sequence[Row]) -> Answers:
        """Answer for each row, when it is our turn."""
        with self._lock:
            return self.oracle.ask(rows)


@dataclass
class Served:
    """A problem, the rows whose outcome is known, and which of them are offered as examples.

    ``problem`` has an oracle that remembers, for all searches; see `served`.
    """

    problem: Problem
    known: Known | None = None
    looked_at: Sequence[int] = ()
    steady: bool | None = None
    """Whether the model says the same each time; unknown before a search has tried it."""
    _examples: list[Example] | None = None
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _quick: Executor = field(default_factory=lambda: ThreadPoolExecutor(4, "decide"))

    async def examples(self) -> list[Example]:
        """Return rejected rows of the table; the model is asked once, when somebody wants them."""
        async with self._looking:
            if self._examples is None:
                self._examples = await asyncio.to_thread(self._find_examples)
            return self._examples

    def _find_examples(self) -> list[Example]:
        if self.known is None or not len(self.looked_at):
            return []
        rows = [self.known.rows[number] for number in self.looked_at]
        answers = self.problem.oracle.ask(rows)
        goal = self.problem.goal
        # A goal that asks for a rise is met by nobody as they are.
        yes = answers.decision if goal.rise is not None else goal.met(answers)
        said = zip(self.looked_at, rows, answers.probability.tolist(), yes.tolist(), strict=True)
        found = [Example(number, row, chance) for number, row, chance, met in said if not met]
        return found[:MOST_EXAMPLES]

    async def decide(self, request: DecideRequest) -> dict[str, Any]:
        """Return what the model says of a row, and what may become of it within some locks.

        Somebody is moving a slider: their threads are not those in which searches queue.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._quick, self._decide, request)

    def _decide(self, request: DecideRequest) -> dict[str, Any]:
        row = self.problem.row(request.row)
        query = row if request.query is None else self.problem.row(request.query)
        problem = self.problem.with_rules(lock_rules(self.problem, query, request.locks))
        return {
            "row": problem.schema.as_dict(row),
            **self.verdict(query, row),
            "levers": lever_forms(problem, query),
            "broken": [
                {"rule": v.rule, "features": list(v.features), "reason": v.reason}
                for v in problem.violations(query, row)
            ],
            "changes": {name: list(pair) for name, pair in problem.changes(query, row).items()},
            "proximity": proximity(problem.distance(query, row)),
            "sparsity": problem.rules.count_changes(query, row),
        }

    def verdict(self, query: Row, row: Row) -> dict[str, Any]:
        """Return what the model says of a row as a change of the query."""
        answers = self.problem.oracle.ask([row, query])
        goal = self.problem.goal.for_query(float(answers.probability[1]))
        yes = bool(answers.decision[0])
        return {
            "approved": bool(goal.met(answers)[0]),
            "decision": self.problem.yes if yes else self.problem.no,
            "probability": float(answers.probability[0]),
        }


def served(
    problem: Problem, known: Known | None = None, examples: Sequence[int] | None = None
) -> Served:
    """Make a problem ready to be served.

    ``examples`` are the numbers of the known rows to offer, as far as they are rejected; without
    them, they are looked for all over the table.
    """
    oracle = problem.oracle
    inner = oracle.oracle if isinstance(oracle, CachedOracle) else oracle
    shared = CachedOracle(InTurn(inner), max_rows=_ROWS_REMEMBERED)
    count = 0 if known is None else len(known.rows)
    spread = np.unique(np.linspace(0, max(0, count - 1), min(count, _MOST_LOOKED_AT), dtype=int))
    looked_at = spread.tolist() if examples is None else list(examples)[:_MOST_LOOKED_AT]
    return Served(replace(problem, oracle=shared), known, looked_at)


def example_forms(served: Served, examples: Sequence[Example]) -> list[Mapping[str, Any]]:
    """Return examples as JSON."""
    as_dict = served.problem.schema.as_dict
    return [
        {"number": e.number, "row": as_dict(e.row), "probability": e.probability} for e in examples
    ]
