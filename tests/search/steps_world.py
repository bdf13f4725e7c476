"""A table with a lever of every kind, to make steps of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from recombine_world import make_problem

from waysout.domain.problem import Problem
from waysout.domain.rules import Allowed, Immutable, Linked, Never, OneHot, Rule, Step
from waysout.domain.schema import Feature, Row, Schema
from waysout.search.steps import LeverSteps, Steps

LEVELS = ("none", "first", "second", "third")
SCHEMA = Schema(
    (
        Feature("income", "number", range=(0, 100)),
        Feature("gain", "integer", range=(0, 99_999)),
        Feature("amount", "number", range=(0, 100)),
        Feature("months", "integer"),
        Feature("delay", "integer", range=(-9, 60)),
        Feature("tenure", "integer", range=(0, 40), missing="fill"),
        Feature("age", "integer", range=(18, 90)),
        Feature("job", "category", levels=("clerk", "cook", "judge")),
        Feature("school", "category", levels=LEVELS, ordered=True),
        Feature("years", "integer", range=(0, 20)),
        Feature("own", "integer"),
        Feature("rent", "integer"),
        Feature("free", "integer"),
    )
)
RULES: tuple[Rule, ...] = (
    Step(feature="amount", step=5),
    Allowed(feature="months", values=[12, 24, 36, 60]),
    Never(features=["delay"], values=[-9, -8, -7]),
    Immutable(features=["age"]),
    Linked(feature="school", sets="years", map=dict(zip(LEVELS, (0, 4, 9, 12), strict=True))),
    OneHot(features=["own", "rent", "free"]),
)
QUERY: Row = (20.0, 0, 50.0, 24, 5, None, 40, "clerk", "none", 0, 1, 0, 0)
PROBLEM: Problem = make_problem(SCHEMA, None, *RULES)


def row(**edits: Any) -> Row:
    """Return the query after some edits."""
    return PROBLEM.rules.apply(QUERY, edits)


def people(count: int = 200) -> SimpleNamespace:
    """Return rows of others: incomes spread evenly, gains mostly 0, some delays codes."""
    rng = np.random.default_rng(0)
    rows = [
        row(
            income=float(i % 100),
            gain=0 if i % 10 else 1000 + 10 * i,
            delay=-9 if i % 4 == 0 else i % 60,
            tenure=None if i % 3 else i % 41,
            job=("clerk", "cook", "judge")[int(rng.integers(3))],
        )
        for i in range(count)
    ]
    return SimpleNamespace(rows=rows, labels=[i % 2 == 0 for i in range(count)])


def slot(steps: Steps, lever: str) -> LeverSteps:
    (found,) = (slot for slot in steps.slots if slot.lever == lever)
    return found


def values(steps: Steps, lever: str) -> list[Any]:
    return [edit.value for edit in slot(steps, lever).edits]
