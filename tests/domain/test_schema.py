from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import features, numbers, rows, schemas, values
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
        ({"name": "a", "kind": "category", "levels": ("x",), "range": (1.0, 2.0)}, "only numbers"),
        ({"name": "a", "kind": "opaque", "range": (1.0, 2.0)}, "only numbers have a range"),
        ({"name": "a", "kind": "opaque", "levels": ("x",)}, "belong to a category"),
        ({"name": "a", "kind": "opaque", "holds": "time"}, "unknown content of an opaque feature"),
        ({"name": "a", "kind": "number", "holds": "date"}, "holds is for kind = 'opaque'"),
        ({"name": "a", "kind": "boolean", "written": "1,5"}, "written is for numbers"),
        ({"name": "a", "kind": "number", "written": "a lot"}, "'a lot' is not an example"),
        ({"name": "a", "kind": "integer", "decimals": 2}, "decimals"),
        ({"name": "a", "kind": "number", "missing": "drop"}, "unknown missing policy"),
        ({"name": "a", "kind": "category", "levels": ("x",), "codes": {"y": 1}}, "unknown level"),
        ({"name": "a", "kind": "category", "levels": ("x",), "synonyms": {"y": "z"}}, "synonym"),
        (
            {"name": "a", "kind": "category", "levels": ("x",), "moves": {"up": "{}"}},
            "unknown level",
        ),
        ({"name": "a", "kind": "number", "moves": {"x": "{}"}}, "unknown direction"),
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


NOTE = Feature("note", "opaque")
SIGNED = Feature("signed", "opaque", holds="date")
CASE = Feature("case", "opaque", holds="number")


@pytest.mark.parametrize(
    ("feature", "raw", "value"),
    [
        (NOTE, " Dear Sir,\n", " Dear Sir,\n"),
        (NOTE, "007", "007"),
        (NOTE, True, True),
        (NOTE, np.int64(7), 7),
        (NOTE, 10**400, 10**400),
        (NOTE, float("inf"), "inf"),
        (NOTE, pd.Timestamp("2024-02-29 12:30"), "2024-02-29T12:30:00"),
        (NOTE, date(2024, 2, 29), "2024-02-29"),
        (NOTE, ["a"], "['a']"),
        (SIGNED, "2024-02-29", "2024-02-29"),
        (SIGNED, datetime(2024, 2, 29, tzinfo=UTC), "2024-02-29T00:00:00+00:00"),
        (CASE, "00012", 12),
        (CASE, "123456789012345678901", 123456789012345678901),
        (CASE, 1.5, 1.5),
    ],
)
def test_an_opaque_value_is_kept_as_it_is(feature: Feature, raw: object, value: Value) -> None:
    parsed = feature.parse(raw)
    assert (parsed, type(parsed)) == (value, type(value))
    assert feature.parse(parsed) == parsed
    assert feature.raw(parsed) == parsed
    assert feature.encode(parsed) == 0.0


def test_an_opaque_value_may_be_missing_and_a_date_must_be_one() -> None:
    assert [NOTE.parse(raw) for raw in (None, "", float("nan"), pd.NaT)] == [None] * 4
    assert NOTE.encode(None) == 0.0
    assert Schema((AGE, NOTE)).parse({"age": 4}) == (4, None)
    with pytest.raises(RowError, match="'soon' is not a date such as 2024-12-31"):
        SIGNED.parse("soon")


@pytest.mark.parametrize(
    ("written", "cell", "value", "back"),
    [
        ("12,5", "3,25", 3.25, "3,25"),
        ("12,5", "4", 4.0, "4"),
        ("12,5", "12.5", 12.5, "12,5"),
        ("1.234,5", "1.234", 1234.0, "1.234"),
        ("12.5 %", "7.5%", 7.5, "7.5 %"),
        ("$1,234.50", "-$1,000", -1000.0, "-$1,000.00"),
        ("1 234,50 €", "12 345,5 €", 12345.5, "12 345,50 €"),
        ("1'234", "1'234'567", 1234567.0, "1'234'567"),
        ("1,234", "999", 999.0, "999"),
    ],
)
def test_numbers_are_read_and_given_back_as_the_table_writes_them(
    written: str, cell: str, value: float, back: str
) -> None:
    feature = Feature("a", "number", written=written)
    assert feature.parse(cell) == value
    assert feature.raw(value) == back
    assert feature.parse(value) == value


def test_a_number_in_another_form_is_refused_with_the_form() -> None:
    with pytest.raises(RowError, match=r"'1,5,0' is not a number such as '12,5' or 12.5"):
        Feature("a", "number", written="12,5").parse("1,5,0")


@given(numbers, st.sampled_from(["12,5", "1.234,5", "$1,234.50", "12.5 %", "1 234,5"]))
def test_what_is_written_in_a_form_reads_back_to_the_same_number(value: float, form: str) -> None:
    feature = Feature("a", "number", written=form)
    assert feature.parse(feature.raw(value)) == value
    assert feature.parse(feature.format(value)) == value


def test_people_read_the_label_or_the_name_with_spaces() -> None:
    assert Feature("loan_term", "integer").display_name == "loan term"
    assert Feature("loan_term", "integer", label="term of the loan").display_name == (
        "term of the loan"
    )


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
