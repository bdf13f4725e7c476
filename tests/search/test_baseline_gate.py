"""What holds for every baseline that sends rows in batches."""

from __future__ import annotations

import pytest
from baseline_cases import QUERY, SCHEMA, Table, Yes, check_asked, make_case, row, rule_lists, run
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import rows, schemas
from waysout.domain.schema import Row, Schema
from waysout.methods import make_method
from waysout.search.base import Case, Method
from waysout.search.certifai import Certifai
from waysout.search.growing_spheres import GrowingSpheres
from waysout.search.nearest import NearestRows
from waysout.search.random import RandomEdits

METHODS: list[Method] = [
    RandomEdits(batch=7, tries=60), NearestRows(batch=7), GrowingSpheres(layer=7),
    Certifai(population=7),
]  # fmt: skip
PEOPLE = Table(tuple(row(income=float(i), job="clerk") for i in range(100)), (True,) * 100)

each_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    fixed: Schema = SCHEMA
    schema = draw(st.just(fixed) | schemas())
    own = st.just(QUERY) if schema is SCHEMA else rows(schema)
    query: Row = draw(own)
    people = tuple(draw(st.lists(rows(schema), max_size=12)))
    labels = tuple(draw(st.lists(st.booleans(), min_size=len(people), max_size=len(people))))
    return make_case(
        query,
        draw(rule_lists(schema)),
        schema=schema,
        known=Table(people, labels),
        rows=draw(st.integers(0, 20)),
        seed=draw(st.integers(0, 3)),
    )


@each_method
@settings(max_examples=60)
@given(case=cases())
def test_every_row_is_feasible_new_and_paid_for(method: Method, case: Case) -> None:
    search = method.start(case)
    asked = run(search)
    check_asked(search, asked)
    assert search.archive.generated - search.archive.rejections.total() == len(asked)


@each_method
def test_the_last_batch_is_cut_to_the_budget(method: Method) -> None:
    case = make_case(known=PEOPLE, rows=17)
    search = method.start(case)
    assert len(run(search)) == 17
    assert isinstance(case.problem.oracle, Yes)
    assert case.problem.oracle.batches == [7, 7, 3]
    assert search.ending is not None
    assert search.ending.reason == "all 17 oracle rows are spent"


@each_method
def test_what_the_oracle_approves_is_found(method: Method) -> None:
    search = method.start(make_case(known=PEOPLE))
    asked = run(search)
    approved = [r for r in asked if r[0] != QUERY[0]]
    assert search.archive.unique_rows == approved
    assert approved
    assert search.archive.best_probability == 0.9


@each_method
def test_one_batch_at_a_time(method: Method) -> None:
    search = method.start(make_case(known=PEOPLE))
    assert search.ask() is not None
    assert search.ask() is None
    assert not search.done


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_the_table_of_methods_knows_it(method: Method) -> None:
    assert make_method(method.name, method.settings()) == method
