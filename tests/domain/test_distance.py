from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import rows, schemas
from waysout.domain.distance import (
    Distance,
    Neighbours,
    gate,
    novelty,
    proximity,
    scale_of,
    simplicity,
)
from waysout.domain.schema import Feature, Schema

A, B = Feature("a", "number"), Feature("b", "number")
C, D = Feature("c", "category", levels=("x", "y")), Feature("d", "boolean")
MIXED = Schema((A, B, C, D))


def test_the_mixed_distance_worked_out_by_hand() -> None:
    # a: median 2, deviations 1 1 0 1 8 -> MAD 1.  b: 0 10 20 30 40, median 20 -> MAD 10.
    table = [(float(a), float(b), "x", True) for a, b in zip((1, 3, 2, 1, 10), (0, 10, 20, 30, 40),
                                                             strict=True)]  # fmt: skip
    distance = Distance.fit(MIXED, table)
    assert distance.scales == {"a": 1.0, "b": 10.0}
    # numbers: sqrt((3² + 4²) / 2) = sqrt(12.5); categories: one of two differs.
    d = distance((0.0, 0.0, "x", True), (3.0, 40.0, "y", True))
    assert d == pytest.approx(0.5 * math.sqrt(12.5) + 0.5 * 0.5)
    assert proximity(d) == pytest.approx(1 / (1 + 0.5 * math.sqrt(12.5) + 0.25))


def test_the_example_of_the_docs() -> None:
    schema = Schema(
        (
            Feature("income", "number"),
            Feature("debt", "number"),
            Feature("job", "category", levels=("part-time", "full-time")),
            Feature("home", "category", levels=("rent", "own")),
        )
    )
    distance = Distance.fit(schema, (), {"income": 10_000, "debt": 2_000})
    one, other = (40_000.0, 5_000.0, "part-time", "rent"), (52_000.0, 4_000.0, "full-time", "rent")
    d, encoded = distance(one, other), schema.encode([one, other])
    cost = float(distance.costs(encoded[0], encoded[1:])[0])
    figures = f"0.25 = {d:.3f}; nearness = 1 ÷ {1 + d:.3f} = {proximity(d):.3f}; cost = "
    page = Path(__file__).parents[2] / "docs" / "search.md"
    text = " ".join(page.read_text("utf-8").split())
    assert figures in text
    assert f"÷ 2 + 0.25 = {cost:.3f}." in text


def test_a_scale_that_is_given_holds_beside_training_rows() -> None:
    table = [(float(i), float(i), "x", True) for i in range(100)]
    assert Distance.fit(MIXED, table, {"b": 7.0}).scales == {"a": 25.0, "b": 7.0}


def test_a_zero_mad_falls_back_to_the_standard_deviation_then_to_one() -> None:
    # a is 0 three times and 4 once: MAD 0, mean 1, variance (1+1+1+9)/4 = 3.
    table = [(0.0, 5.0, "x", True)] * 3 + [(4.0, 5.0, "x", True)]
    distance = Distance.fit(MIXED, table)
    assert distance.scales == pytest.approx({"a": math.sqrt(3), "b": 1.0})
    assert distance.notes == (
        "a: the MAD is 0; scaled by the standard deviation",
        "b: constant in the training rows; not scaled",
    )


@pytest.mark.parametrize("constant", [5.0, 0.1, -1e15 / 3])
def test_rounding_does_not_give_equal_numbers_a_scale(constant: float) -> None:
    assert scale_of(np.full(7, constant)) == (1.0, "constant in the training rows; not scaled")


@given(st.lists(st.floats(-1e15, 1e15), min_size=1, max_size=60))
def test_a_scale_is_positive(numbers: list[float]) -> None:
    assert scale_of(np.array(numbers)).value > 0


def test_without_training_rows_the_card_or_the_range_gives_the_scale() -> None:
    schema = Schema((Feature("a", "number", range=(0.0, 8.0)), B, Feature("e", "number")))
    distance = Distance.fit(schema, [], {"b": 7.0})
    assert distance.scales == {"a": 2.0, "b": 7.0, "e": 1.0}


def test_an_empty_block_contributes_nothing() -> None:
    numbers = Distance(Schema((A,)), {"a": 2.0})
    assert numbers((0.0,), (4.0,)) == 0.5 * 2.0
    categories = Distance(Schema((C,)), {})
    assert categories(("x",), ("y",)) == 0.5


def test_missing_values_count_as_one_scale_or_one_change() -> None:
    distance = Distance(MIXED, {"a": 5.0, "b": 5.0})
    assert distance((None, 0.0, "x", True), (3.0, 0.0, "x", True)) == 0.5 * math.sqrt(0.5)
    assert distance((None, 0.0, None, True), (None, 0.0, None, True)) == 0.0
    assert distance((0.0, 0.0, None, True), (0.0, 0.0, "x", True)) == 0.25


@pytest.mark.parametrize(
    ("probability", "value"),
    [(0.5, 0.5), (0.6, 1 / (1 + math.exp(-1))), (0.0, 1 / (1 + math.e**5))],
)
def test_the_soft_gate(probability: float, value: float) -> None:
    assert gate(probability) == pytest.approx(value)


def test_a_hard_gate_does_not_overflow() -> None:
    assert gate(0.0, softness=1e-300) == 0.0
    assert gate(1.0, softness=1e-300) == 1.0


def test_novelty_and_simplicity() -> None:
    assert novelty(np.array([])) == 1.0
    assert novelty(np.array([0.25, 1.0])) == pytest.approx(1 - 1 / 1.25)
    assert simplicity(0) == 1.0


def test_ten_thousand_rows_are_one_call() -> None:
    generator = np.random.default_rng(0)
    table = [(float(a), float(b), "x", True) for a, b in generator.normal(size=(10_000, 2))]
    distance = Distance.fit(MIXED, table)
    archive = MIXED.encode(table)
    distances = distance.between(archive[7], archive)
    assert distances.shape == (10_000,)
    assert distances[7] == 0.0
    assert distances[11] == pytest.approx(distance(table[7], table[11]))


@given(st.data())
def test_distance_is_symmetric_and_zero_for_the_same(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    one, other = data.draw(rows(schema)), data.draw(rows(schema))
    distance = Distance.fit(schema, [one, other])
    assert distance(one, one) == 0.0
    assert distance(one, other) == pytest.approx(distance(other, one))
    assert (distance(one, other) > 0) == (one != other)


@given(st.data())
def test_rows_kept_ready_are_measured_alike(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    many = data.draw(st.lists(rows(schema), max_size=40))
    distance = Distance.fit(schema, many)
    kept = Neighbours(distance)
    for encoded in schema.encode(many):
        kept.add(encoded)
    one = schema.encode([data.draw(rows(schema))])[0]
    assert len(kept) == len(many)
    expected = distance.between(one, schema.encode(many))
    np.testing.assert_array_equal(kept.distances(one), expected)
    at_once = Neighbours.of(distance, schema.encode(many))
    np.testing.assert_array_equal(at_once.distances(one), expected)


@given(st.data())
def test_how_far_a_row_is_does_not_depend_on_the_rows_beside_it(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    one, many = data.draw(rows(schema)), data.draw(st.lists(rows(schema), max_size=20))
    distance = Distance.fit(schema, many)
    encoded = schema.encode([one, *many])
    alone = [float(distance.between(encoded[0], row[None])[0]) for row in encoded[1:]]
    assert distance.each(one, many) == alone == [distance(one, other) for other in many]


def test_opaque_features_count_nothing_and_make_no_share_smaller() -> None:
    note, other_note = Feature("note", "opaque"), Feature("other", "opaque")
    plain, carried = Schema((A, C, D)), Schema((note, A, C, other_note, D))
    one, other = (0.0, "x", True), (2.0, "y", True)
    assert Distance.fit(carried, [])(("a", 0.0, "x", 1, True), ("b", 2.0, "y", None, True)) == (
        Distance.fit(plain, [])(one, other)
    )
