from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from baseline_cases import QUERY, SCHEMA, make_case, row, run
from hypothesis import given
from hypothesis import strategies as st

from strategies import rows, schemas
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import Immutable, Linear, Never, RuleSet, Step
from waysout.domain.rules.base import Lever
from waysout.domain.schema import Feature, Row, Schema, Value
from waysout.errors import InputError
from waysout.search import base
from waysout.search.random import RandomEdits

TWO = Schema((Feature("job", "category", levels=("cook", "clerk")), Feature("own", "boolean")))


def test_the_same_seed_gives_the_same_rows() -> None:
    first = run(RandomEdits().start(make_case(rows=60)))
    assert run(RandomEdits().start(make_case(rows=60))) == first
    assert run(RandomEdits().start(make_case(rows=60, seed=1))) != first


def test_batches_are_only_a_matter_of_portions() -> None:
    whole = run(RandomEdits(batch=60).start(make_case(rows=60)))
    assert run(RandomEdits(batch=7).start(make_case(rows=60))) == whole


def test_another_person_gets_other_draws() -> None:
    def terms(query: Row) -> list[Value]:
        search = RandomEdits(most_changes=1).start(make_case(query, rows=60))
        return [r[2] for r in run(search) if r[2] != query[2]]

    assert terms(QUERY) != terms(row(income=21.0))


@pytest.mark.parametrize("most", [1, 2, 3])
def test_every_number_of_changes_up_to_the_most_comes(most: int) -> None:
    case = make_case(rows=100)
    asked = run(RandomEdits(most_changes=most).start(case))
    counts = {case.problem.rules.count_changes(QUERY, r) for r in asked}
    assert counts == set(range(1, most + 1))


def test_a_tiny_space_is_tried_out_and_ends() -> None:
    search = RandomEdits(tries=200).start(make_case(("cook", True), (), schema=TWO))
    assert set(run(search)) == {("clerk", True), ("cook", False), ("clerk", False)}
    assert search.ending is not None
    assert search.ending.kind is OutcomeKind.EXHAUSTED
    assert search.ending.reason.startswith("200 random edits in a row gave nothing new")
    assert search.archive.rejections["repeated"] >= 200


def test_a_value_that_is_not_admitted_is_drawn_anew() -> None:
    schema = Schema((Feature("x", "integer", range=(0, 2)), Feature("y", "integer", range=(0, 1))))
    barred = Never(features=["x"], values=[1])
    search = RandomEdits(tries=200).start(make_case((0, 0), [barred], schema=schema))
    assert set(run(search)) == {(2, 0), (0, 1), (2, 1)}
    assert set(search.archive.rejections) == {"repeated"}


def test_nothing_may_change() -> None:
    fixed = Immutable(features=TWO.names)
    search = RandomEdits().start(make_case(("cook", True), [fixed], schema=TWO))
    assert run(search) == []
    assert search.ending is not None
    assert search.ending.reason == "no feature may change"


def test_rules_that_nothing_satisfies_end_the_search_and_are_counted() -> None:
    never = Linear(name="too much", that="income >= 200")
    search = RandomEdits(tries=30).start(make_case(rules=[never]))
    assert run(search) == []
    assert search.archive.rejections == {"breaks rule: too much": search.archive.generated}


def test_without_a_row_budget_it_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "ROWS_WITHOUT_LIMIT", 120)
    search = RandomEdits().start(make_case(rows=None))
    assert len(run(search)) == 120
    assert search.ending is not None
    assert search.ending.kind is OutcomeKind.BUDGET_SPENT


@pytest.mark.parametrize("name", ["most_changes", "batch", "tries"])
def test_settings_have_a_least(name: str) -> None:
    with pytest.raises(InputError, match=name):
        RandomEdits(**{name: 0})


def lever(name: str, *rules: Step | Never, query: Row = QUERY) -> Lever:
    return RuleSet(SCHEMA, rules).levers(query)[name]


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (lever("job"), {"none", "clerk"}),
        (lever("owns"), {True}),
        (lever("income", Step(feature="income", step=25)), {0, 25, 50, 75, 100}),
        (lever("income", Step(feature="income", step=40, start=15)), {15, 55, 95}),
        (replace(lever("term"), low=2.5, high=5.5), {3, 4, 5}),
        (replace(lever("debt"), low=0.25, high=0.5), {0.3, 0.4, 0.5}),
    ],
    ids=["levels", "boolean", "grid", "grid with a start", "integers", "decimals"],
)
def test_every_value_of_a_lever_is_drawn_equally_often(of: Lever, expected: set[Value]) -> None:
    rng = np.random.default_rng(0)
    drawn = [of.draw(rng) for _ in range(200 * len(expected))]
    assert set(drawn) == expected
    assert min(drawn.count(value) for value in expected) > 140


def test_an_interval_is_drawn_from_evenly() -> None:
    rng = np.random.default_rng(0)
    drawn = np.array([lever("income").draw(rng) for _ in range(4000)], dtype=float)
    assert np.quantile(drawn, [0, 0.25, 0.5, 0.75, 1]) == pytest.approx([0, 25, 50, 75, 100], abs=3)


@given(st.data())
def test_draws_are_of_the_features_kind_however_wide_the_lever(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    query = data.draw(rows(schema))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    levers = RuleSet(schema).levers(query)
    for name in RuleSet(schema).actionable(query):
        value = levers[name].draw(rng)
        assert value == levers[name].now or levers[name].admits(value)
