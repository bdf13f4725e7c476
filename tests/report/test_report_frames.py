from __future__ import annotations

from typing import Any

import pytest

from waysout.report.frames import frame_of

pd = pytest.importorskip("pandas")

COLUMNS: dict[str, list[Any]] = {
    "when": ["2024-01-05", "2024-02-01T12:30:00", None],
    "grade": ["b", "a", None],
    "income": [1.5, 2.25, None],
    "count": [1, 2, 3],
    "few": [1, None, 3],
    "text": ["x", None, "z"],
    "insured": ["Y", "N", "Y"],
    "probability": [0.6, 0.7, 0.8],
}
TYPES = {
    "when": "datetime64[ns]", "grade": pd.CategoricalDtype(["a", "b", "c"], ordered=True),
    "income": "float32", "count": "int8", "few": "Int32", "text": object, "insured": "category",
}  # fmt: skip


def like(**types: Any) -> Any:
    return pd.DataFrame({name: pd.Series([], dtype=dtype) for name, dtype in types.items()})


def test_columns_have_the_types_of_the_frame_that_is_given() -> None:
    frame = frame_of(COLUMNS, like(**TYPES))
    for name in ("when", "grade", "income", "count", "few", "text"):
        assert frame[name].dtype == pd.Series([], dtype=TYPES[name]).dtype, name
    assert frame["when"].tolist()[:2] == [
        pd.Timestamp("2024-01-05"), pd.Timestamp("2024-02-01 12:30"),
    ]  # fmt: skip
    assert frame["grade"].cat.categories.tolist() == ["a", "b", "c"]
    assert frame["text"].isna().tolist() == [False, True, False]
    assert frame["probability"].tolist() == COLUMNS["probability"]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (["a", "new"], pd.CategoricalDtype(["a"])),
        ([1.5, 2.0], "int64"),
        ([1, None], "int64"),
        ([300], "int8"),
        (["soon"], "datetime64[ns]"),
        (["x"], "float64"),
    ],
)
def test_values_that_do_not_fit_stay_as_they_are(values: list[Any], dtype: Any) -> None:
    frame = frame_of({"a": values}, like(a=dtype))
    assert [None if pd.isna(value) else value for value in frame["a"]] == values


def test_without_a_frame_gaps_leave_whole_numbers_whole() -> None:
    frame = frame_of(COLUMNS)
    assert [str(frame[name].dtype) for name in ("few", "count")] == ["Int64", "int64"]


def test_a_frame_of_polars_is_answered_with_one() -> None:
    pl = pytest.importorskip("polars")
    types = {"when": pl.Datetime("us"), "grade": pl.Enum(["a", "b"]), "income": pl.Float32,
             "count": pl.Int8, "few": pl.Int64, "insured": pl.Categorical}  # fmt: skip
    frame = frame_of(COLUMNS, pl.DataFrame(schema=types))
    assert isinstance(frame, pl.DataFrame)
    assert {name: frame.schema[name] for name in types} == types
    assert frame["when"].null_count() == 1
    assert frame["probability"].to_list() == COLUMNS["probability"]
    unfit = frame_of({"count": [1.5], "when": ["soon"]}, pl.DataFrame(schema=types))
    assert unfit.row(0) == (1.5, "soon")
