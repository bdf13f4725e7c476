from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from waysout.domain.distance import Distance
from waysout.domain.key import Key
from waysout.domain.memory import Memory, Past
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.rules import RuleSet
from waysout.domain.schema import Edit, Feature, Row, Schema
from waysout.errors import InputError

SCHEMA = Schema(
    (
        Feature("a", "integer", range=(0, 20)),
        Feature("b", "integer", range=(0, 20)),
        Feature("c", "category", levels=("x", "y", "z")),
    )
)
QUERY = (1, 2, "x")


class Named:
    labels_only = False

    def __init__(self, name: str) -> None:
        self.name = name

    def ask(self, rows: Sequence[Row]) -> Answers:
        raise NotImplementedError


def problem(oracle: str) -> Problem:
    rules, key = RuleSet(SCHEMA), Key(SCHEMA)
    return Problem(SCHEMA, rules, key, Distance.fit(SCHEMA, ()), Named(oracle))


def filled() -> Past:
    past = Past(edits=[Edit("a", 9, "because")], calls=2)
    rows = [(9, 2, "x"), (1, 2, "y")]
    past.add_answers(rows, Answers(np.array([0.55, 0.15]), np.array([True, False])))
    past.add_second_answers(rows[:1], Answers(np.array([0.45]), np.array([False])))
    past.reasons[rows[0]] = ("a: because",)
    return past


def test_a_past_answers_as_the_model_did() -> None:
    answers = filled().answers([(1, 2, "y"), (9, 2, "x")])
    assert answers.probability.tolist() == [0.15, 0.55]
    assert answers.decision.tolist() == [False, True]
    assert filled().second_answers([(9, 2, "x")]).probability.tolist() == [0.45]


def test_a_past_survives_json() -> None:
    table = json.loads(json.dumps(filled().as_dict()))
    assert Past.from_dict(table, SCHEMA) == filled()


def test_types_that_json_does_not_tell_apart_come_back() -> None:
    schema = Schema((Feature("n", "number"), Feature("b", "boolean"), Feature("i", "integer")))
    past = Past({(2.0, True, 2): (1.0, True)}, edits=[Edit("n", 3.0), Edit("b", False)])
    again = Past.from_dict(json.loads(json.dumps(past.as_dict())), schema)
    (row,) = again.answered
    assert [type(v) for v in row] == [float, bool, int]
    assert [type(edit.value) for edit in again.edits] == [float, bool]


def test_missing_values_come_back_whatever_the_policy() -> None:
    past = Past({(None, 2, "x"): (0.5, True)}, edits=[Edit("c", None)])
    assert Past.from_dict(past.as_dict(), SCHEMA) == past


def test_a_copy_does_not_hear_what_comes_later() -> None:
    past = filled()
    before = past.copy()
    past.add_answers([(3, 3, "z")], Answers(np.array([0.3]), np.array([False])))
    past.edits.append(Edit("b", 1))
    assert len(before.answered) == 2
    assert len(before.edits) == 1
    assert not Past()
    assert Past(calls=1)


def test_each_person_has_a_past_and_a_memory_one_model() -> None:
    memory, adder = Memory(), problem("adder")
    memory.of(adder, QUERY).add_answers([(5, 5, "x")], Answers(np.ones(1), np.ones(1, bool)))
    assert len(memory) == 1
    assert (5, 5, "x") in memory.of(adder, QUERY).answered
    assert not memory.of(adder, (0, 0, "x"))

    with pytest.raises(InputError, match="answers of adder, and other is another model"):
        memory.of(problem("other"), QUERY)


def test_a_memory_is_of_one_table() -> None:
    memory, adder = Memory(), problem("adder")
    memory.of(adder, QUERY)
    schema = Schema((*SCHEMA.features[:2], Feature("c", "category", levels=("x", "y"))))
    rules, key = RuleSet(schema), Key(schema)
    other = Problem(schema, rules, key, Distance.fit(schema, ()), Named("adder"))
    with pytest.raises(InputError, match="or has another table"):
        memory.of(other, QUERY)


def test_a_past_takes_in_another() -> None:
    past, other = filled(), filled()
    other.edits.append(Edit("b", 7))
    other.add_answers([(3, 3, "z")], Answers(np.array([0.3]), np.array([False])))
    other.reasons[(3, 3, "z")] = ("b: why not",)
    past.add(other)
    edits = [Edit("a", 9, "because"), Edit("b", 7)]
    assert past == Past(other.answered, other.again, other.reasons, edits, 4)
