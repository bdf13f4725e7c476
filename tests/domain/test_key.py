from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import rows, schemas
from waysout.domain.key import Key, bin_edges, rounded
from waysout.domain.schema import Feature, Schema

INCOME = Feature("income", "integer")
SCHEMA = Schema((INCOME, Feature("Job", "category", levels=("Desk  Clerk", "cook"))))


def test_the_key_is_compact_sorted_normalised_json() -> None:
    key = Key(SCHEMA, {"income": (1000.0, 2000.0)})
    assert key((1500, "Desk  Clerk")) == '{"Job":"desk clerk","income":1}'


@pytest.mark.parametrize(
    ("value", "index"), [(999, 0), (1000, 0), (1001, 1), (2000, 1), (2001, 2), (-5, 0)]
)
def test_an_edge_belongs_to_the_bin_below(value: int, index: int) -> None:
    key = Key(SCHEMA, {"income": (1000.0, 2000.0)})
    assert json.loads(key((value, "cook")))["income"] == index


def test_a_mostly_zero_column_still_tells_nothing_from_something() -> None:
    edges = bin_edges([0] * 200 + list(range(100, 1300, 100)))
    assert edges == (0.0,)
    key = Key(SCHEMA, {"income": edges})
    assert key((0, "cook")) != key((100, "cook")) == key((1200, "cook"))


def test_a_column_that_is_mostly_its_highest_value_tells_it_from_the_rest() -> None:
    assert bin_edges([100] * 950 + list(range(50))) == (49.0,)


def test_a_loan_key_has_the_length_the_design_counts_on() -> None:
    names = [
        "no_of_dependents",
        "income_annum",
        "loan_amount",
        "loan_term",
        "cibil_score",
        "residential_assets_value",
        "commercial_assets_value",
        "luxury_assets_value",
        "bank_asset_value",
    ]
    schema = Schema(
        (
            *(Feature(n, "integer") for n in names),
            Feature("education", "category", levels=("Graduate", "Not Graduate")),
            Feature("self_employed", "category", levels=("Yes", "No")),
        )
    )
    key = Key(schema, {n: (10.0,) for n in names if n not in ("no_of_dependents", "loan_term")})
    assert len(key((2, 9, 9, 8, 9, 9, 9, 9, 9, "Graduate", "No"))) == 231


def test_whole_numbers_look_alike_whatever_their_type() -> None:
    schema = Schema((Feature("x", "number"),))
    assert Key(schema)((2.0,)) == Key(schema)(schema.parse({"x": "2"})) == '{"x":2}'


def test_few_distinct_values_are_not_binned() -> None:
    assert bin_edges([2 * (i % 10) for i in range(100)]) == ()
    assert bin_edges(range(100)) == (9.0, 19.0, 29.0, 39.0, 49.0, 59.0, 69.0, 79.0, 89.0)


def test_missing_values_do_not_move_the_edges() -> None:
    assert bin_edges([*range(100), *[None] * 50]) == bin_edges(range(100))
    assert bin_edges([None, None]) == ()


def test_years_keep_the_digits_they_need() -> None:
    # Two digits would leave the one edge 2000; three tell the decades apart.
    assert bin_edges(range(1950, 2050)) == tuple(range(1960, 2050, 10))


def test_no_edge_lies_at_the_highest_value() -> None:
    assert max(bin_edges([*range(20), *[100] * 80])) < 100


@given(
    st.lists(st.floats(-1e15, 1e15) | st.integers(-30, 30) | st.none(), max_size=60),
    st.integers(1, 10),
)
def test_edges_rise_lie_inside_and_leave_no_end_bin_empty(
    values: list[float | None], most_bins: int
) -> None:
    numbers = [value for value in values if value is not None]
    edges = bin_edges(values, most_bins)
    assert len(edges) <= most_bins - 1
    assert list(edges) == sorted(set(edges))
    assert all(min(numbers) <= edge < max(numbers) for edge in edges)
    assert "-0.0" not in map(str, edges)


def test_rounding_knows_one_zero() -> None:
    assert [str(rounded(zero, 2)) for zero in (0.0, -0.0)] == ["0.0", "0.0"]


@given(st.data())
def test_the_key_ignores_order_and_spelling(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    row = data.draw(rows(schema))
    columns = zip(schema, *(data.draw(rows(schema)) for _ in range(3)), strict=True)
    numeric = {f.name: bin_edges(values, 2) for f, *values in columns if f.is_numeric}
    key = Key(schema, {name: edges for name, edges in numeric.items() if edges})
    shuffled = dict(data.draw(st.permutations(list(schema.format(row).items()))))
    assert key(schema.parse(shuffled)) == key(row)
    assert json.loads(key(row)).keys() == set(schema.names)


@given(st.data())
def test_the_key_is_what_json_writes(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    row, name = data.draw(rows(schema)), schema.names[0]
    key = Key(schema, {name: (0.0, 10.0)} if schema[name].is_numeric else {})
    parts: dict[str, object] = {}
    for feature, value in zip(schema, row, strict=True):
        part: object = value
        if isinstance(value, str):
            part = " ".join(value.casefold().split())
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            part = int(value) if value == int(value) else value
            if feature.name in key.bins:
                part = (value > 0) + (value > 10)
        parts[feature.name] = part
    wanted = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert key(row) == wanted == key(row)


def test_the_key_does_not_depend_on_the_process() -> None:
    code = (
        "from waysout.domain.key import Key; from waysout.domain.schema import *;"
        "s = Schema((Feature('b', 'number'), Feature('a', 'category', levels=('É x', 'y'))));"
        "print(ascii(Key(s, {'b': (0.5,)})((0.7, 'É x'))))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert seen == {'\'{"a":"\\xe9 x","b":1}\''}
