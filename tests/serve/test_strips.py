from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from serve_world import ROW, Adder, client, make_service, problem, run

from waysout.domain.distance import Distance
from waysout.domain.key import Key
from waysout.domain.oracle import Answers, Goal
from waysout.domain.problem import Problem
from waysout.domain.rules import Linear, OneHot, Rule, RuleSet, Step
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import InputError, OracleError
from waysout.oracles.cache import CachedOracle
from waysout.serve import strips as module
from waysout.serve.models import FartherRequest, StripsRequest
from waysout.serve.problems import ServedProblem


def served(*rules: Rule, goal: Goal | None = None, oracle: Adder | None = None) -> ServedProblem:
    return ServedProblem.of(problem(*rules, oracle=oracle or Adder(), goal=goal))


def strips(world: ServedProblem, row: dict[str, Any], **other: Any) -> dict[str, dict[str, Any]]:
    found = world._strips(StripsRequest(row=row, **other))
    return {strip["feature"]: strip for strip in found["strips"]}


def yes(strip: dict[str, Any]) -> dict[Any, bool]:
    return {point["value"]: point["approved"] for point in strip["asked"]}


def test_each_lever_is_moved_alone_and_where_it_turns_is_sharp() -> None:
    a = strips(served(), {"a": 1, "b": 4, "c": "y"})["a"]
    assert (a["now"], a["start"], a["low"], a["high"], a["allowed"]) == (1, 1, 0, 20, [0, 20])
    asked = yes(a)
    assert list(asked) == sorted(asked)
    assert (asked[0], asked[1], asked[5], asked[6], asked[20]) == (
        False, False, False, True, True,
    )  # fmt: skip
    assert a["said"] == ["a yes from 6 on (5 is a no)", "not enough at 0"]
    c = strips(served(), ROW, features=["c"])["c"]
    assert (c["low"], c["allowed"], list(yes(c))) == (None, None, ["x", "y", "z"])
    assert c["said"] == ["x and z are not enough"]


def test_it_is_moved_from_a_row_but_judged_as_a_change_of_the_query() -> None:
    world = served(Step(feature="a", step=2))
    row = {"a": 4, "b": 3, "c": "y"}
    found = strips(world, row, query=ROW, locks={"ranges": {"a": {"max": 15}}})
    a = found["a"]
    assert (a["now"], a["start"], a["allowed"]) == (4, 1, [0, 14])
    assert set(yes(a)) == {0, 1, 2, 4, 6, 8, 10, 12, 14}
    assert yes(a) == {value: value + 3 >= 10 for value in yes(a)}
    assert found["b"]["said"][0] == "a yes from 6 on (5 is a no)"


def test_what_is_locked_says_why() -> None:
    c = strips(served(), ROW, locks={"fixed": ["c"]})["c"]
    assert (c["open"], c["why"], c["asked"], c["said"]) == (
        False,
        "fixed: ruled out by you",
        [],
        [],
    )


def test_what_a_rule_on_several_features_forbids_is_not_asked() -> None:
    oracle = Adder()
    world = served(Linear(that="a + b <= 15"), oracle=oracle)
    a = strips(world, {"a": 1, "b": 7, "c": "x"})["a"]
    assert max(yes(a)) == 8
    [barred] = a["forbidden"]
    assert barred["from"] > 8
    assert barred["to"] == 20
    assert "A plus b is at most 15" in barred["why"]
    assert a["said"][0] == "a yes from 3 on (2 is a no)"
    assert all(
        float(row[0] or 0) + float(row[1] or 0) <= 15 for rows in oracle.batches for row in rows
    )


def test_what_others_break_is_not_held_against_a_lever() -> None:
    world = served(Linear(that="a + b <= 15"))
    found = strips(world, {"a": 10, "b": 10, "c": "x"}, query=ROW)
    assert list(yes(found["c"])) == ["x", "y", "z"]
    assert max(value for value in yes(found["a"]) if value != 10) <= 5


def test_from_a_yes_on_it_says_how_far_it_stays_one() -> None:
    found = strips(served(), {"a": 7, "b": 8, "c": "x"}, query=ROW)
    assert found["a"]["said"] == ["still enough up to 20", "still enough down to 2 (1 is not)"]
    assert found["c"]["said"] == ["y and z are still enough"]


def test_a_goal_of_its_own_is_heeded() -> None:
    a = strips(served(goal=Goal(at_least=0.8)), ROW)["a"]
    assert min(value for value, approved in yes(a).items() if approved) == 16
    assert a["said"][0] == "enough from 16 on (15 is not)"


def test_there_are_few_batches_and_what_was_asked_is_remembered() -> None:
    oracle = Adder()
    world = served(oracle=oracle)
    told = world._strips(StripsRequest(row=ROW))
    assert len(oracle.batches) <= 5
    assert told["rows"] == oracle.rows == len({row for rows in oracle.batches for row in rows})
    assert world._strips(StripsRequest(row=ROW)) == told
    assert isinstance(world.problem.oracle, CachedOracle)
    assert world.problem.oracle.asked == told["rows"]


class Raises(Adder):
    """Fails on every row with one of some values."""

    def __init__(self, *bad: object) -> None:
        super().__init__()
        self.bad = frozenset(bad)

    def ask(self, rows: Sequence[Row]) -> Answers:
        answers = super().ask(rows)
        if any(self.bad.intersection(row) for row in rows):
            raise OracleError("the model raised ValueError: no")
        return answers


def test_a_row_on_which_the_model_fails_is_left_out_alone() -> None:
    oracle = Raises("z", 7)
    found, well = (strips(served(oracle=one), ROW) for one in (oracle, Adder()))
    assert set(yes(found["c"])) == {"x", "y"}
    assert 7 not in yes(found["b"])
    for name in ("a", "b", "c"):
        assert yes(found[name]).items() <= yes(well[name]).items()
        assert len(yes(found[name])) > 1
    with pytest.raises(OracleError, match="raised"):
        strips(served(oracle=Raises("y")), {**ROW, "c": "y"})
    steps = served(oracle=Raises(20))._farther(FartherRequest(row={**ROW, "a": 9}, query=ROW))
    all_steps = served()._farther(FartherRequest(row={**ROW, "a": 9}, query=ROW))["steps"]
    assert steps["steps"] == [step for step in all_steps if step["row"]["a"] != 20]
    assert 1 < len(steps["steps"]) < len(all_steps)


def test_features_beyond_the_limit_come_without_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 25)
    told = served()._strips(StripsRequest(row=ROW))
    assert told["rows"] <= 25
    asked = {strip["feature"]: len(strip["asked"]) for strip in told["strips"]}
    assert asked["a"] > 10
    assert asked["b"] == 0
    assert asked["c"] == 3


def test_a_one_hot_group_is_one_strip_of_its_features() -> None:
    names = ("job_cook", "job_clerk", "job_none")
    schema = Schema((*(Feature(n, "boolean") for n in names), Feature("age", "number")))

    class Clerks(Adder):
        def ask(self, rows: Any) -> Any:
            yes = np.array([bool(row[1]) for row in rows])
            return type(super().ask([(0, 0)]))(yes.astype(float), yes)

    world = ServedProblem.of(
        Problem(schema, RuleSet(schema, (OneHot(features=list(names)),)), Key(schema),
                Distance.fit(schema, ()), Clerks())
    )  # fmt: skip
    row = {"job_cook": True, "job_clerk": False, "job_none": False, "age": None}
    with pytest.raises(InputError):
        strips(world, {**row, "age": 4.0}, features=["height"])
    found = strips(world, {**row, "age": 4.0}, features=["job_none", "age"])
    assert list(found) == ["job_cook", "age"]
    job = found["job_cook"]
    assert (job["now"], yes(job)) == (
        "job_cook", {"job_cook": False, "job_clerk": True, "job_none": False},
    )  # fmt: skip
    assert job["said"] == ["job clerk is enough; job none is not enough"]
    assert found["age"]["allowed"] == [-6.0, 14.0]


def test_a_way_is_carried_on_as_far_as_the_rules_allow() -> None:
    async def story() -> None:
        oracle = Adder()
        world = served(Linear(that="a + b <= 25"), oracle=oracle)
        async with client(make_service(world)) as c:
            body = {"row": {"a": 9, "b": 4, "c": "y"}, "query": ROW}
            answer = await c.post("/api/problems/small/farther", body)
            steps = answer.json()["steps"]
            assert [len(batch) for batch in oracle.batches] == [len(steps) + 1]
            assert (steps[0]["share"], steps[0]["row"]) == (0.0, body["row"])
            assert steps[0]["changes"] == {"a": [1, 9], "b": [0, 4]}
            sums = [step["row"]["a"] + step["row"]["b"] for step in steps]
            assert sums == sorted(set(sums))
            assert 20 < sums[-1] <= 25
            assert all(step["approved"] for step in steps)

    run(story())


def test_what_changes_nothing_cannot_be_carried_on() -> None:
    steps = served()._farther(FartherRequest(row=ROW, query=ROW))["steps"]
    assert [(step["share"], step["changes"]) for step in steps] == [(0.0, {})]
