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
    ("where", "reason"),
    [
        ("", "cannot read"),
        ("age", "no yes or no for each row"),
        ("age = 61", "equality is written =="),
        ("age == ", "cannot read"),
        ("age == 61 race == 'Asian'", "cannot read"),
        ("(age == 61", "cannot read"),
        ("age + 1", "no yes or no for each row"),
        ("race == Asian", "unknown column 'Asian'"),
        ("race == Asian", "text stands in quotes: 'Asian'"),
        ("age != @limit", "limit"),
        ("race != __import__('os')", "__import__"),
        ("Age == 61", "unknown column 'Age'; did you mean 'age'"),
        ("`Home State` == 'NY'", "did you mean 'home state'"),
        ("rce == 'Asian'", "unknown column 'rce'; did you mean 'race'"),
        ("age > 'old'", "cannot read"),
        ("race < 3", "cannot read"),
        ("(" * 500 + "age == 61" + ")" * 500, "cannot read"),
        ("not " * 5000 + "age == 61", "cannot read"),
        ("age > 10**10**10", "it has a power"),
    ],
)
def test_what_cannot_be_read_or_compared_is_refused(table: Table, where: str, reason: str) -> None:
    with pytest.raises(InputError) as raised:
        rows_where(table, where)
    assert reason in str(raised.value)
    assert len(str(raised.value)) < 700
    if "cannot read" in str(raised.value):
        assert "Write it as race == 'Asian' and (age > 50" in str(raised.value)


def test_cells_of_parquet_are_compared_as_what_they_are(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({
        "smoker": [True, False, None],
        "since": [date(2020, 1, 5), date(2021, 6, 30), None],
        "rent": [100, None, 300],
    })  # fmt: skip
    frame.to_parquet(tmp_path / "people.parquet")
    table = read_table(tmp_path / "people.parquet")
    assert rows_where(table, "smoker == True") == [0]
    assert rows_where(table, "since > '2020-12-31'") == [1]
    assert rows_where(table, "rent < 200") == [0]
    assert rows_where(table, "rent.isna()") == [1]
