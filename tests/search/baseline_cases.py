"""Small problems, an inline oracle and a plain loop for the tests of the baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from waysout.domain.budget import Budget
from waysout.domain.distance import Distance
from waysout.domain.key import Key
from waysout.domain.known import Known
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import (
    Direction,
    Immutable,
    Linear,
    Linked,
    MaxChanges,
    OneHot,
    Range,
    Rule,
    RuleSet,
    Step,
)
from waysout.domain.schema import Feature, Row, Schema
from waysout.search.base import Case, Search
from waysout.search.work import Evaluate

# Every kind of feature, and features that rules can tie together.
SCHEMA = Schema(
    (
        Feature("income", "number", range=(0, 100)),
        Feature("debt", "number", range=(0, 100), decimals=1),
        Feature("term", "integer", range=(1, 60)),
        Feature("job", "category", levels=("none", "cook", "clerk")),
        Feature("school", "category", levels=("basic", "high"), ordered=True),
        Feature("years", "integer", range=(0, 20)),
        Feature("rents", "boolean"),
        Feature("owns", "boolean"),
        Feature("lodges", "boolean"),
    )
)
QUERY: Row = (20.0, 30.0, 12, "cook", "basic", 9, True, False, False)
HOME = OneHot(features=["rents", "owns", "lodges"])
SCHOOL = Linked(feature="school", sets="years", map={"basic": 9, "high": 12})
JOINT: tuple[Rule, ...] = (HOME, SCHOOL)


class Yes:
    """Approves every row whose first value is not the query's."""

    name = "yes"
    labels_only = False

    def __init__(self, query: Row) -> None:
        self.query = query
        self.batches: list[int] = []

    def ask(self, rows: Sequence[Row]) -> Answers:
        self.batches.append(len(rows))
        chances = np.array([0.9 if row[0] != self.query[0] else 0.1 for row in rows])
        return Answers(chances, chances > 0.5)


@dataclass(frozen=True)
class Table:
    """Known rows. Frozen and comparable by value, as a data set is."""

    rows: tuple[Row, ...]
    labels: tuple[bool, ...]


def row(**changes: float | int | str | bool) -> Row:
    return SCHEMA.replace(QUERY, changes)


def make_case(
    query: Row = QUERY,
    rules: Sequence[Rule] = JOINT,
    *,
    schema: Schema = SCHEMA,
    known: Known | None = None,
    rows: int | None = 150,
    seed: int = 0,
) -> Case:
    scales = {f.name: 10.0 for f in schema if f.is_numeric}
    problem = Problem(
        schema=schema,
        rules=RuleSet(schema, tuple(rules)),
        key=Key(schema),
        distance=Distance(schema, scales),
        oracle=Yes(query),
    )
    return Case(problem, query, budget=Budget(oracle_rows=rows), seed=seed, known=known)


def run(search: Search) -> list[Row]:
    """Ask until the search is over; returns all rows it evaluated, in order."""
    asked: list[Row] = []
    while not search.done:
        work = search.ask()
        if work is not None:
            assert isinstance(work, Evaluate)
            asked += work.rows
            search.tell(work, search.case.problem.oracle.ask(work.rows))
    return asked


@st.composite
def rule_lists(draw: st.DrawFn, schema: Schema) -> list[Rule]:
    """Draw rules that hold for any schema, the joint ones of SCHEMA where it is given."""
    name = st.sampled_from(schema.names)
    numeric = [f.name for f in schema if f.is_numeric]
    found: list[Rule] = []
    if draw(st.booleans()):
        found.append(Immutable(features=draw(st.lists(name, unique=True, min_size=1, max_size=2))))
    if draw(st.booleans()):
        found.append(MaxChanges(at_most=draw(st.integers(1, 3))))
    if numeric:
        number, low = draw(st.sampled_from(numeric)), draw(st.integers(0, 20))
        found += draw(
            st.lists(
                st.sampled_from(
                    [
                        Range(feature=number, min=low, max=low + 25),
                        Step(feature=number, step=draw(st.integers(1, 9)), start=low),
                        Direction(features=[number], direction="up"),
                    ]
                ),
                max_size=2,
                unique_by=lambda rule: rule.kind,
            )
        )
    if schema is SCHEMA:
        joint = [HOME, SCHOOL, Linear(that="debt + 10 <= 2 * income")]
        found += draw(st.lists(st.sampled_from(joint), unique_by=lambda rule: rule.kind))
    return found


def check_asked(search: Search, asked: Sequence[Row]) -> None:
    """Hold a search that has ended to the rules, to one row a key and to its budget."""
    case = search.case
    problem, query = case.problem, case.query
    assert [problem.violations(query, r) for r in asked] == [()] * len(asked)
    assert query not in asked
    assert len({problem.key(r) for r in asked}) == len(asked) <= (case.budget.oracle_rows or 0)
    assert search.ending is not None
    spent = len(asked) == case.budget.oracle_rows
    assert search.ending.kind is (OutcomeKind.BUDGET_SPENT if spent else OutcomeKind.EXHAUSTED)
    assert search.archive.evaluated == len(asked)
