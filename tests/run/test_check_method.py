"""`check_method` passes all of ours, and names what is wrong with those that break the protocol."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from run_world import PEOPLE, problem

import waysout
from optional_methods import EACH_METHOD, ready
from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import MaxChanges
from waysout.domain.schema import Row
from waysout.errors import InputError
from waysout.llm.base import Reply
from waysout.methods import MethodEntry, make_method
from waysout.search.base import Case, Method, Search
from waysout.search.batches import BatchSearch
from waysout.search.comp_mcts import CompMCTS
from waysout.search.lats import Lats
from waysout.search.work import Answer, Work


@pytest.mark.parametrize("name", EACH_METHOD)
def test_ours_keep_the_protocol(name: str) -> None:
    made = ready(name)
    waysout.check_method(name)
    assert make_method(name, {k: str(v) for k, v in made.settings().items()}) == made


@pytest.mark.parametrize(
    "method",
    [
        CompMCTS(pruning="rlbwt", scope="global"),
        CompMCTS(pruning="repair", scope="window", in_flight=4),
        CompMCTS(pruning="none", reward="baseline", depth=1),
        Lats(in_flight=3),
    ],
    ids=["rlbwt", "repair", "baseline", "lats"],
)
def test_so_do_they_with_other_settings(method: Method) -> None:
    waysout.check_method(method)


class _Search(Search):
    """Raises the income step by step, one row at a time, unless it is to do some harm."""

    shared: ClassVar[list[Row]] = []

    def __init__(self, case: Case, harm: str) -> None:
        super().__init__(case)
        self.harm = harm
        self.income = float(case.query[1] or 0)

    def _next(self) -> Work | None:
        if self.waiting or (self.harm == "idles" and self.asked > 2):
            return None
        left = self.rows_left + (self.harm == "overspends")
        if left < 1 or (self.income > 80 and self.harm != "never ends"):
            reason = "" if self.harm == "says nothing" else "that was all"
            self._end(OutcomeKind.BUDGET_SPENT, reason)
            return None
        return self._evaluate([] if self.harm == "asks nothing" else [self._row()])

    def _row(self) -> Row:
        self.income += 5 + (random.random() * 5 if self.harm == "draws freely" else 0)
        if self.harm == "remembers others":
            self.income += len(self.shared) % 2
        query = self.case.query
        row = (*query[:1], min(int(self.income), 90), *query[2:])
        if self.harm == "breaks a rule":
            row = (99, 90, *query[2:])
        self.shared.append(row)
        return row

    def tell(self, work: Work, answer: Answer) -> None:
        if self.harm == "counts twice":
            self.archive.generated += 1
        super().tell(work, answer)

    def _on_reply(self, context: Any, reply: Reply) -> None:
        if self.harm == "chokes" and "CANDIDATE" not in reply.text:
            raise KeyError("CANDIDATE")

    def _on_answers(self, context: Any, rows: Sequence[Row], answers: Answers) -> None:
        for row, approved, chance in zip(rows, answers.decision, answers.probability, strict=True):
            key = self.case.problem.key(row)
            key += str(self.asked) if self.harm == "repeats a key" else ""
            valid = bool(approved) or self.harm == "sees a yes"
            self.archive.take(row, key, float(chance), valid)


class _Talking(_Search):
    """Asks an LLM first, twice where it may."""

    def _next(self) -> Work | None:
        wanted = self.asked < 2 and not self.waiting
        if not wanted or not (self.calls_left >= 1 or self.harm == "calls"):
            return super()._next()
        assert self.case.proposer is not None
        request = self.case.proposer.request(self.case.query, self.case.query)
        assert request is not None
        return self._propose(request)


@dataclass(frozen=True)
class Stepper(Method):
    name: ClassVar[str] = "stepper"

    harm: str = ""

    def start(self, case: Case) -> Search:
        return _Search(case, self.harm)


@dataclass(frozen=True)
class Talker(Stepper):
    """The same with an LLM, which it asks first."""

    name: ClassVar[str] = "talker"
    needs_llm: ClassVar[bool] = True

    def start(self, case: Case) -> Search:
        return _Talking(case, self.harm)


@pytest.mark.parametrize("method", [Stepper(), Talker()], ids=["stepper", "talker"])
def test_one_that_does_no_harm_passes(method: Method) -> None:
    waysout.check_method(method)


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        (Stepper("overspends"), "exceeds its budget: 1 more oracle rows would pass the limit of 0"),
        (Talker("calls"), "exceeds its budget: all 0 LLM calls are spent"),
        (Stepper("never ends"), "more than 10000 rows: start it with case.with_row_limit"),
        (Stepper("idles"), "neither asks nor ends"),
        (Stepper("asks nothing"), "asks the oracle about no rows"),
        (Stepper("says nothing"), "does not say why it ended"),
        (Stepper("counts twice"), "a second answer to work item 0 changes it"),
        (Stepper("draws freely"), "gave another search"),
        (Stepper("remembers others"), "gave another search|among others"),
        (Stepper("sees a yes"), "an option is not approved"),
        (Stepper("breaks a rule"), "breaks the rule 'immutable"),
        (Stepper("repeats a key"), "options share a key"),
        (Talker("chokes"), r"raised KeyError\('CANDIDATE'\) in tell, at the reply ''"),
    ],
    ids=lambda value: value.harm if isinstance(value, Stepper) else "",
)
def test_harm_is_named(method: Method, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        waysout.check_method(method)


@dataclass(frozen=True)
class RawRows(Method):
    name: ClassVar[str] = "raw-rows"

    def start(self, case: Case) -> Search:
        return _RawRowsSearch(case)


class _RawRowsSearch(BatchSearch):
    def _batch(self, most: int) -> list[Any]:
        return [self.case.query][:most]

    def _nothing_left(self) -> str:
        return "that was all"


def test_an_exception_names_the_step_and_the_registered_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = MethodEntry(f"{__name__}:RawRows", "returns rows, not candidates")
    monkeypatch.setattr("waysout.methods.METHODS", {"by-another-name": entry})
    with pytest.raises(InputError, match=r"'by-another-name' .*AttributeError.* in ask"):
        waysout.check_method("by-another-name")
    with pytest.raises(InputError, match=r"'raw-rows' .*AttributeError.* in ask"):
        waysout.check_method(RawRows())


def test_a_method_that_is_no_dataclass_is_named() -> None:
    class Plain(Stepper):
        size: int = 3

    with pytest.raises(InputError, match=r"Plain is not a dataclass.* size .*@dataclass\(frozen"):
        Plain()


def test_settings_that_no_text_can_say_are_named() -> None:
    @dataclass(frozen=True)
    class Pickled(Stepper):
        name: ClassVar[str] = "pickled"

        weights: tuple[float, ...] = (1.0, 2.0)

        def __post_init__(self) -> None:
            """Settings are not checked here."""

    with pytest.raises(InputError, match="do not survive as text"):
        waysout.check_method(Pickled())


def test_on_a_problem_of_ones_own() -> None:
    waysout.check_method("lats", problem=problem(MaxChanges(at_most=1)), rows=PEOPLE[:2])
    with pytest.raises(InputError, match="needs rejected rows"):
        waysout.check_method("lats", problem=problem())
    with pytest.raises(InputError, match="leaves nothing to search: approved already"):
        waysout.check_method("lats", problem=problem(), rows=[PEOPLE[0], (9, 9, "x")])
    with pytest.raises(InputError, match="needs rows whose outcome is known"):
        waysout.check_method("nearest", problem=problem(), rows=PEOPLE[:2])


def test_in_a_running_loop() -> None:
    async def notebook() -> None:
        waysout.check_method("random")

    asyncio.run(notebook())
