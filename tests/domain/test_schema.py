from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import features, rows, schemas, values
from waysout.domain.schema import LARGEST, Feature, Schema, Value
from waysout.errors import RowError, SchemaError

AGE = Feature("age", "integer")
RATIO = Feature("ratio", "number", decimals=2)
JOB = Feature("job", "category", levels=("clerk", "cook"), synonyms={"chef": "cook"})
CODED = Feature("sex", "category", levels=(1, 2))
FLAG = Feature("owner", "boolean", levels=("No", "Yes"))


@pytest.mark.parametrize(
    ("feature", "raw", "value"),
    [
        (AGE, "42", 42),
        (AGE, "42.0", 42),
        (AGE, np.int64(42), 42),
        (AGE, " 4.2e1 ", 42),
        (AGE, "42\x1f", 42),  # str.strip takes this for a space, float does not
        (RATIO, "0.123", 0.123),
        (RATIO, -0.0, 0.0),
        (JOB, " cook ", "cook"),
        (JOB, "chef", "cook"),
        (CODED, 1, "1"),
        (CODED, 2.0, "2"),
        (CODED, "2.0", "2"),
        (FLAG, "Yes", True),
        (FLAG, "no", False),
        (FLAG, np.bool_(True), True),
        (Feature("b", "boolean"), "no", False),
        (Feature("b", "boolean"), 0.0, False),
        (Feature("b", "boolean", levels=(1, 2)), "2.0", True),
        (RATIO, Decimal("0.1"), 0.1),
    ],
)
def test_parse_reads(feature: Feature, raw: object, value: Value) -> None:
    parsed = feature.parse(raw)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("feature", "raw", "fragment"),
    [
        (AGE, "4 2", "'4 2' is not a number"),
        (AGE, "1_000", "'1_000' is not a number"),
        (AGE, "4.5", "not a whole number"),
        (AGE, True, "True is not a number"),
        (AGE, float("inf"), "not a finite number"),
        (AGE, 1e308, "not a finite number"),
        (AGE, 10**400, "not a finite number"),
        (AGE, "1e999", "not a finite number"),
        (AGE, [1], "[1] is not a number"),
        (AGE, "٤٢", "is not a number"),
        (JOB, "cok", "did you mean 'cook'?"),
        (JOB, "COOK", "unknown value 'COOK'"),
        (FLAG, "maybe", "unknown value 'maybe'"),
        (FLAG, 0, "unknown value '0'"),
        (Feature("b", "boolean", levels=(1, 2)), "0", "unknown value '0'"),
        (AGE, 1 + 2j, "(1+2j) is not a number"),
        (AGE, np.timedelta64(3, "D"), "is not a number"),
        (AGE, None, "missing = 'refuse'"),
        (AGE, float("nan"), "missing = 'refuse'"),
        (AGE, pd.NA, "missing = 'refuse'"),
        (AGE, "", "missing = 'refuse'"),
    ],
)
def test_parse_refuses_naming_the_column(feature: Feature, raw: object, fragment: str) -> None:
    with pytest.raises(RowError) as caught:
        feature.parse(raw)
    assert f"column '{feature.name}'" in str(caught.value)
    assert fragment in str(caught.value)


def test_a_listed_level_is_never_taken_for_missing() -> None:
    country = Feature("country", "category", levels=("NA", "DE"), missing="keep")
    assert country.parse("NA") == "NA"
    assert country.parse("None") is None
    assert country.format(None) == ""
    empty = Feature("x", "category", levels=("", "y"), missing="keep")
    assert empty.parse(empty.format(None)) is None


def test_unseen_levels_follow_the_policy() -> None:
    kept = Feature("job", "category", levels=("cook",), unseen="missing", missing="keep")
    assert kept.parse("pilot") is None
    refused = Feature("job", "category", levels=("cook",), unseen="missing")
    with pytest.raises(RowError, match="unknown level 'pilot'"):
        refused.parse("pilot")


@pytest.mark.parametrize(
    ("feature", "raw", "value"),
    [
        (AGE, "41.7", 42),
        (RATIO, 0.12345, 0.12),
        (RATIO, -0.001, 0.0),
        (JOB, "COOK", "cook"),
        (FLAG, "YES", True),
    ],
)
def test_coerce_rounds_to_the_type(feature: Feature, raw: object, value: Value) -> None:
    assert feature.coerce(raw) == value


@pytest.mark.parametrize(
    ("feature", "number", "value"),
    [
        (RATIO, 0.12345, 0.12),
        (RATIO, -0.001, 0.0),
        (RATIO, 1e300, LARGEST),
        (RATIO, float("-inf"), -LARGEST),
        (RATIO, float("nan"), None),
        (Feature("x", "number"), -0.0, 0.0),
        (Feature("x", "number"), 0.12345, 0.12345),
        (AGE, 41.7, 42),
        (AGE, 1e300, int(LARGEST)),
        (AGE, float("nan"), None),
        (JOB, 0.6, "cook"),
        (JOB, 7.0, "cook"),
        (JOB, -3.0, "clerk"),
        (JOB, float("nan"), None),
        (FLAG, 9.0, True),
    ],
)
def test_decode_gives_the_nearest_value_there_is(
    feature: Feature, number: float, value: Value
) -> None:
    other, found = feature.decode(np.array([0.0, number]))
    assert other == feature.decode(np.array([0.0]))[0]
    # By its text: -0.0 equals 0.0, and is another.
    assert (type(found), str(found)) == (type(value), str(value))


def test_coerce_does_not_guess_between_levels_that_differ_in_case() -> None:
    with pytest.raises(RowError):
        Feature("x", "category", levels=("Ab", "aB")).coerce("AB")


@pytest.mark.parametrize(
    ("kwargs", "fragment"),
    [
        ({"name": "", "kind": "number"}, "non-empty"),
        ({"name": "a\nb", "kind": "number"}, "control character"),
        ({"name": "a", "kind": "numeric"}, "unknown kind 'numeric'"),
        ({"name": "a", "kind": "category"}, "needs its levels"),
        ({"name": "a", "kind": "category", "levels": ("x", " x")}, "listed twice"),
        ({"name": "a", "kind": "category", "levels": (1, "1")}, "listed twice"),
        ({"name": "a", "kind": "category", "levels": ("x" * 1001,)}, "longer than"),
        ({"name": "a", "kind": "boolean", "levels": ("x",)}, "two levels"),
        ({"name": "a", "kind": "boolean", "levels": (True, False)}, "false first"),
        ({"name": "a", "kind": "number", "levels": ("x",)}, "belong to a category"),
        ({"name": "a", "kind": "number", "range": (2.0, 1.0)}, "empty"),
        ({"name": "a", "kind": "category", "levels": ("x",), "range": (1.0, 2.0)}, "not a range"),
        ({"name": "a", "kind": "integer", "decimals": 2}, "decimals"),
        ({"name": "a", "kind": "number", "missing": "drop"}, "unknown missing policy"),
        ({"name": "a", "kind": "category", "levels": ("x",), "codes": {"y": 1}}, "unknown level"),
        ({"name": "a", "kind": "category", "levels": ("x",), "synonyms": {"y": "z"}}, "synonym"),
    ],
)
def test_a_feature_that_cannot_be_is_refused(kwargs: dict[str, object], fragment: str) -> None:
    with pytest.raises(SchemaError, match=fragment):
        Feature(**kwargs)  # type: ignore[arg-type]


def test_rows_name_their_column_and_number() -> None:
    schema = Schema((AGE, JOB))
    with pytest.raises(RowError, match="column 'job': the row has no such column; it has 'age'"):
        schema.parse({"age": 1})
    with pytest.raises(RowError, match="row 1, column 'age': 'x' is not a number"):
        schema.parse_many([{"age": 1, "job": "cook"}, {"age": "x", "job": "cook"}])


def test_names_match_across_unicode_forms() -> None:
    schema = Schema((Feature("caf\u00e9", "integer"),))
    assert schema.parse({"cafe\u0301": "3"}) == (3,)


def test_raw_gives_the_table_its_own_values_back() -> None:
    schema = Schema((AGE, CODED, FLAG))
    assert schema.raw((42, "2", True)) == {"age": 42, "sex": 2, "owner": "Yes"}


def test_a_schema_refuses_a_name_twice() -> None:
    with pytest.raises(SchemaError, match="'age' is described twice"):
        Schema((AGE, AGE))
    with pytest.raises(SchemaError, match="at least one"):
        Schema(())


def test_ten_thousand_levels_and_a_thousand_columns() -> None:
    wide = Schema(tuple(Feature(f"c{i}", "integer") for i in range(1000)))
    assert len(wide.parse({f"c{i}": i for i in range(1000)})) == 1000
    many = Feature("zip", "category", levels=tuple(range(10_000)))
    assert many.parse("9999") == "9999"


@given(st.data())
def test_parse_reads_back_what_format_wrote(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    row = data.draw(rows(schema))
    assert schema.parse(schema.format(row)) == row
    assert schema.parse(schema.raw(row)) == row
    assert schema.parse(schema.as_dict(row)) == row


@given(st.data())
def test_format_is_stable(data: st.DataObject) -> None:
    feature = data.draw(features())
    text = feature.format(data.draw(values(feature)))
    assert feature.format(feature.parse(text)) == text


@given(st.data())
def test_encoding_tells_values_apart(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    one, other = data.draw(rows(schema)), data.draw(rows(schema))
    encoded = schema.encode([one, other])
    same = np.array_equal(encoded[0], encoded[1], equal_nan=True)
    assert same == (one == other)
