"""Ranks and one-hot places: the way there and back, for every kind of feature."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waysout.bench.methods.learned.coding import Coding, NumberCode
from waysout.domain.schema import Feature, Row, Schema

SCHEMA = Schema(
    (
        Feature("income", "number", decimals=1),
        Feature("term", "integer", missing="keep"),
        Feature("job", "category", levels=("none", "cook", "clerk"), missing="keep"),
        Feature("owns", "boolean"),
    )
)

rows = st.lists(
    st.tuples(
        st.integers(0, 50).map(lambda n: n / 10),
        st.none() | st.integers(-3, 3),
        st.none() | st.sampled_from(("none", "cook", "clerk")),
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


@given(rows, st.integers(0, 9))
def test_known_rows_come_back_as_they_were(known: list[Row], seed: int) -> None:
    matrix = SCHEMA.encode(known)
    coding = Coding.fit(SCHEMA, matrix)
    vectors = coding.encode(matrix, np.random.default_rng(seed))
    assert vectors.shape == (len(known), coding.width)
    assert np.isfinite(vectors).all()
    assert list(coding.rows(vectors)) == known


@given(rows, st.integers(0, 9))
def test_any_vector_is_a_row_of_known_values(known: list[Row], seed: int) -> None:
    coding = Coding.fit(SCHEMA, SCHEMA.encode(known))
    vectors = np.random.default_rng(seed).normal(scale=9.0, size=(20, coding.width))
    for row in coding.rows(vectors):
        assert row[0] in {r[0] for r in known}
        assert row[1] is None or row[1] in {r[1] for r in known} | {0}
        assert row[2] in (None, "none", "cook", "clerk")
        assert isinstance(row[3], bool)


def test_a_value_that_many_share_owns_a_stretch_of_ranks() -> None:
    column = np.array([0.0] * 90 + [5.0] * 10)
    code = NumberCode.fit(column)
    draws = np.random.default_rng(0).normal(size=(4000, 1))
    share = float(np.mean(code.decode(draws) == 0.0))
    assert share == pytest.approx(0.9, abs=0.02)
    deviates = code.encode(column, np.random.default_rng(0))
    assert np.std(deviates) == pytest.approx(1.0, abs=0.15)


def test_a_number_not_seen_counts_as_the_next_below_it() -> None:
    code = NumberCode.fit(np.array([1.0, 2.0, 4.0]))
    rng = np.random.default_rng(0)
    there_and_back = code.decode(code.encode(np.array([3.9, -7.0, 99.0]), rng))
    assert there_and_back.tolist() == [2.0, 1.0, 4.0]


def test_blocks_tell_where_each_feature_stands() -> None:
    coding = Coding.fit(SCHEMA, SCHEMA.encode([(0.1, None, "cook", True), (0.2, 3, None, False)]))
    assert coding.blocks == [slice(0, 1), slice(1, 3), slice(3, 7), slice(7, 9)]
