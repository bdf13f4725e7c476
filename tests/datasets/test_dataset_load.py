from __future__ import annotations

import subprocess
import sys

import pytest

from waysout.datasets import Table, labelled
from waysout.domain.card import Card
from waysout.errors import RowError, TableError

CARD = Card.parse(
    """
card = 1
name = "own"
[outcome]
target = "ok"
positive = 1
[features.a]
kind = "integer"
[features.job]
kind = "category"
levels = ["cook", "clerk"]
missing = "keep"
"""
)


def table(*records: tuple[object, object, object]) -> Table:
    columns = ("a", "job", "ok")
    return Table(columns, [dict(zip(columns, r, strict=True)) for r in records], "own.csv", "abc")


def test_rows_are_typed_and_labels_read_by_the_card() -> None:
    dataset = labelled(CARD, table(("1", "cook", "1"), ("2", "NA", "0"), (3.0, None, 1.0)))
    assert dataset.rows == ((1, "cook"), (2, None), (3, None))
    assert dataset.labels == (True, False, True)
    assert (dataset.name, dataset.positives, len(dataset)) == ("own", 2, 3)
    assert (dataset.source, dataset.sha256) == ("own.csv", "abc")


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ([], "own.csv has no rows"),
        ([("1", "cook", "1"), ("2", "cook", "1")], "ok is 1 in every row"),
        ([("1", "cook", "yes"), ("2", "cook", "no")], "unknown positive value '1'.*'no', 'yes'"),
    ],
)
def test_one_class_is_an_error(records: list[tuple[object, object, object]], says: str) -> None:
    with pytest.raises(TableError, match=says):
        labelled(CARD, table(*records))


def test_missing_target_column_lists_the_columns() -> None:
    with pytest.raises(TableError, match=r"own.csv: target: unknown column 'ok'.*'a', 'okay'"):
        labelled(CARD, Table(("a", "okay"), [], "own.csv"))


@pytest.mark.parametrize("blank", ["", "  ", None, float("nan")])
def test_missing_label_names_the_row(blank: object) -> None:
    with pytest.raises(RowError, match=r"row 1, column 'ok': the label is missing"):
        labelled(CARD, table(("1", "cook", "1"), ("2", "cook", blank)))


def test_bad_cell_names_row_and_column() -> None:
    with pytest.raises(RowError, match=r"row 1, column 'a': 'x' is not a number"):
        labelled(CARD, table(("1", "cook", "1"), ("x", "cook", "0")))


def test_importing_is_light() -> None:
    code = (
        "import sys, waysout.datasets, waysout.datasets.train, waysout.datasets.queries\n"
        "heavy = {'pandas', 'sklearn', 'lightgbm', 'optuna', 'pyarrow', 'scipy'}\n"
        "print(*heavy & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
