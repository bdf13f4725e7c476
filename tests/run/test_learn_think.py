"""Methods that learn before the first search, and searches that take their time to ask."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from run_world import PEOPLE, SCHEMA, problem

import waysout
from waysout.domain.known import Known
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.errors import InputError
from waysout.run.context import Stop
from waysout.search.base import Case, Method, OnLearning, Search
from waysout.search.work import Work

LONG = 60.0  # what ends a test that hangs; none waits so long when all is well


class Steps(Search):
    """Raises a by one until the rows are spent; ``wait`` is called before every row."""

    def __init__(self, case: Case, owner: Learner) -> None:
        super().__init__(case)
        self.owner = owner
        self.closed = threading.Event()
        owner.begun.append(self)

    @property
    def thinks(self) -> bool:
        return True

    def close(self) -> None:
        self.closed.set()

    def _next(self) -> Work | None:
        if self.waiting:
            return None
        if self.rows_left < 1:
            self._end(OutcomeKind.BUDGET_SPENT, "all rows are spent")
            return None
        self.owner.wait(self)
        return self._evaluate([SCHEMA.replace(self.case.query, {"a": 10 + self.asked})])

    def _on_answers(self, context: Any, rows: Sequence[Row], answers: Answers) -> None:
        for row, chance in zip(rows, answers.probability.tolist(), strict=True):
            self.archive.take(row, self.case.problem.key(row), chance, chance >= 0.5)


@dataclass(frozen=True)
class Learner(Method):
    """Learns in three steps what its searches share. What happened is kept beside the settings."""

    name: ClassVar[str] = "learner"
    told: ClassVar[list[str]]
    begun: ClassVar[list[Steps]]
    hold: ClassVar[threading.Event]

    def learn(self, problem: Problem, known: Known | None, tell: OnLearning) -> None:
        for step in range(3):
            self.told.append(f"step {step} in {threading.current_thread() is not _MAIN}")
            tell("learning", step / 2)

    def start(self, case: Case) -> Search:
        self.told.append("start")
        return Steps(case, self)

    def wait(self, search: Steps) -> None:
        """Wait where a test wants it."""


@dataclass(frozen=True)
class Sleeper(Learner):
    """Person 0's search waits until it is closed, or until a test lets it go."""

    def wait(self, search: Steps) -> None:
        if search.case.query == PEOPLE[0]:
            while not (search.closed.is_set() or self.hold.wait(0.01)):
                pass


_MAIN = threading.main_thread()


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("told", []), ("begun", []), ("hold", threading.Event())):
        monkeypatch.setattr(Learner, name, value, raising=False)


def test_a_method_learns_once_before_the_first_search() -> None:
    heard: list[tuple[str, float]] = []
    found = waysout.find_many(
        problem(), PEOPLE[:3], method=Learner(), oracle_rows=2,
        learning=lambda what, share: heard.append((what, share)),
    )  # fmt: skip
    assert len(list(found)) == 3
    assert Learner.told == [f"step {i} in True" for i in range(3)] + ["start"] * 3
    assert heard == [("learning", 0.0), ("learning", 0.5), ("learning", 1.0)]


def test_whoever_stops_need_not_wait_for_what_is_learned() -> None:
    stop = Stop()
    found = waysout.find_many(
        problem(), PEOPLE[:2], method=Learner(), oracle_rows=2, stop=stop,
        learning=lambda what, share: stop("enough"),
    )  # fmt: skip
    results = list(found)
    assert [r.outcome.kind for r in results] == [OutcomeKind.INTERRUPTED] * len(results)
    assert Learner.told == ["step 0 in True", "step 1 in True"]


def test_a_fault_in_learning_is_raised() -> None:
    def refuse(what: str, share: float) -> None:
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        list(waysout.find_many(problem(), PEOPLE[:1], method=Learner(), learning=refuse))
    assert "start" not in Learner.told


def test_a_task_that_is_cancelled_leaves_no_learning_behind() -> None:
    begun, over = threading.Event(), threading.Event()

    class Slow(Learner):
        def learn(self, problem: Problem, known: Known | None, tell: OnLearning) -> None:
            begun.set()
            try:
                while True:
                    tell("learning", 0.0)
                    over.wait(0.005)
            finally:
                over.set()

    async def cancel() -> None:
        task = asyncio.create_task(waysout.afind(problem(), PEOPLE[0], method=Slow()))
        await asyncio.to_thread(begun.wait, LONG)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert over.wait(LONG)


def test_others_go_on_while_one_thinks() -> None:
    """A search that only asks quickly is done while another is still thinking."""

    async def watch() -> list[int]:
        order = []
        async for result in waysout.afind_many(
            problem(), PEOPLE[:2], method=Half(), oracle_rows=3, in_flight=2
        ):
            order.append(result.index)
            Learner.hold.set()
        return order

    @dataclass(frozen=True)
    class Half(Sleeper):
        def start(self, case: Case) -> Search:
            return Steps(case, self) if case.query == PEOPLE[0] else Quick(case, self)

    class Quick(Steps):
        @property
        def thinks(self) -> bool:
            return False

    assert asyncio.run(watch()) == [1, 0]


def test_one_thinks_at_a_time() -> None:
    inside: list[Steps] = []
    crowds: list[int] = []
    together = threading.Event()

    class Crowd(Learner):
        def wait(self, search: Steps) -> None:
            inside.append(search)
            crowds.append(len(inside))
            if len(inside) > 1:
                together.set()
            together.wait(0.2)
            inside.remove(search)

    found = waysout.find_many(problem(), PEOPLE[:2], method=Crowd(), oracle_rows=1, in_flight=2)
    assert len(list(found)) == 2
    assert crowds == [1, 1]


@pytest.mark.parametrize("polish", [0, 2])
def test_a_deadline_passes_while_a_search_thinks(polish: int) -> None:
    result = waysout.find(
        problem(), PEOPLE[0], method=Sleeper(), oracle_rows=9, seconds=0.3, polish=polish
    )
    assert result.outcome.kind == OutcomeKind.BUDGET_SPENT
    assert "0.3 seconds" in result.outcome.reason
    assert Learner.begun[0].closed.is_set()


def test_a_search_that_ends_is_closed() -> None:
    result = waysout.find(problem(), PEOPLE[1], method=Learner(), oracle_rows=4)
    assert result.ledger.oracle_rows == 4
    assert Learner.begun[0].closed.is_set()
