"""What `--where` reads, and what it refuses."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pandas as pd
import pytest

from waysout.cli.where import rows_where
from waysout.datasets.table import Table, read_table
from waysout.errors import InputError

FRAME = pd.DataFrame({
    "race": ["Asian", "White", "Asian", "Black", "White", "Asian"],
    "age": [61, 52, 33, 58, 24, 51],
    "capital-gain": [0.0, 10.5, None, 7.0, 0.0, 3.0],
    "home state": ["NY", "NJ", "NY", "", "New York", "NJ"],
    "note": ["a and b", "c | d", "(e)", "it's", "x", "y"],
})  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    path = tmp_path_factory.mktemp("where") / "people.csv"
    FRAME.to_csv(path, index=False)
    return read_table(path)


@pytest.mark.parametrize(
    "where",
    [
        "race == 'Asian' & age > 50",
        "race == 'Asian' and age > 50",
        "race == 'Asian' | age > 50 & age < 60",
        "(race == 'Asian' | age > 50) & age < 60",
        "not race == 'Asian'",
        "~(race == 'Asian') & ~(age < 30)",
        "not (age > 50 or race == 'White')",
        "race in ['Asian', 'Black']",
        "race not in ('Asian', 'Black') and age != 24",
        "age in [61, 24,]",
        "33 <= age < 58",
        "50 < age",
        "`capital-gain` > 2.5",
        "`capital-gain` <= 0",
        "`home state` == 'New York'",
        "`home state` in ['NY', 'NJ'] and age <= 33",
        "age > `capital-gain`",
        "note == 'a and b' or note == 'c | d'",
        'note == "it\'s"',
        "age == 6.1e1",
        "age > -5",
    ],
)
def test_a_condition_finds_the_rows_that_pandas_finds(table: Table, where: str) -> None:
    assert rows_where(table, where) == FRAME.query(where).index.tolist()


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("race == Asian AND age>50", [0, 5]),
        ("race == Asian && age > 50 || age == 24", [0, 4, 5]),
        ("capital-gain == 10.5", [1]),
        ('"age" == 61', [0]),
        ("note == it's", [3]),
        ("`home state` == ''", [3]),
        ("age == 061", [0]),
        ("not not age == 61", [0]),
        ("age == 1 or race == 'Black'", [3]),
    ],
)
def test_a_condition_may_be_written_more_loosely(table: Table, where: str, rows: list[int]) -> None:
    assert rows_where(table, where) == rows


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("", "it ends instead of a column"),
        ("age", "it ends after 'age' instead of a comparison"),
        ("age = 61", "'= 61' cannot be read; equality is written =="),
        ("age == ", "it ends after '==' instead of a value"),
        ("age == 61 race == 'Asian'", "there is 'race' after '61' instead of 'and' or 'or'"),
        ("race == Asian or", "it ends after 'or' instead of a column"),
        ("race == New York", "there is 'York' after 'New'"),
        ("(age == 61", "it ends after '61' instead of ')'"),
        ("age == 61)", "there is ')' after '61'"),
        ("age in []", "the list is empty"),
        ("age in 61", "there is '61' after 'in' instead of a list"),
        ("age not 61", "instead of 'in'"),
        ("race in [age]", "if 'age' is a value, it stands in quotes"),
        ("race == 'Asian", '"\'Asian" cannot be read'),
        ("age.isna()", "unknown column 'age.isna'"),
        ("age + 1 > 5", "there is '+' after 'age' instead of a comparison"),
        ("age+1 > 5", "unknown column 'age+1'; did you mean 'age'"),
        ("age != age*2", "if 'age*2' is a value, it stands in quotes"),
        ("age != age-1", "if 'age-1' is a value, it stands in quotes"),
        ("age != @limit", "if '@limit' is a value, it stands in quotes"),
        ("race != __import__('os')", "instead of 'and' or 'or'"),
        ("Age == 61", "unknown column 'Age'; did you mean 'age'"),
        ("`Home State` == 'NY'", "unknown column 'Home State'; did you mean 'home state'"),
        ("rce == 'Asian'", "unknown column 'rce'; did you mean 'race'"),
        ("'Asian' == 'Asian'", "unknown column 'Asian'"),
        ("age > 'old'", "'old' is no number, date or column, so > cannot compare it"),
        ("race < 3", "< compares two numbers or two dates, not 'Asian' with '3' (column 'race')"),
        ("race < age", "(column 'race' and 'age')"),
        ("age < 2020-01-01", "not '61' with '2020-01-01'"),
        ("race == 'asian'", "unknown value of race 'asian'; did you mean 'Asian'?"),
        ("race in ['asian'] and age > 50", "did you mean 'Asian'?"),
        ("(" * 500 + "age == 61" + ")" * 500, "nested more than 50 deep"),
        ("not " * 5000 + "age == 61", "nested more than 50 deep"),
    ],
)
def test_what_cannot_be_read_or_compared_is_refused(table: Table, where: str, reason: str) -> None:
    with pytest.raises(InputError) as raised:
        rows_where(table, where)
    assert reason in str(raised.value)
    if "cannot read" in str(raised.value):
        assert "Write it as race == 'Asian' and (age > 50" in str(raised.value)


def test_a_value_that_is_there_may_still_meet_nothing(table: Table) -> None:
    assert rows_where(table, "race == 'Black' and age < 20") == []
    assert rows_where(table, "age == 99") == []
    assert rows_where(table, "not race == 'Asian' and not race != 'Asian'") == []


def test_cells_of_parquet_are_compared_as_what_they_are(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({
        "smoker": [True, False, None],
        "since": [date(2020, 1, 5), date(2021, 6, 30), None],
        "rent": [100, None, 300],
    })  # fmt: skip
    frame.to_parquet(tmp_path / "people.parquet")
    table = read_table(tmp_path / "people.parquet")
    assert rows_where(table, "smoker == true") == rows_where(table, "smoker == True") == [0]
    assert rows_where(table, "since > '2020-12-31'") == rows_where(table, "since > 2020-12-31")
    assert rows_where(table, "since > 2020-12-31") == [1]
    assert rows_where(table, "rent < 200") == [0]
    assert rows_where(table, "rent == ''") == [1]
