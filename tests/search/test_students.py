from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import InputError
from waysout.search.students import STUDENTS, students_of

SCHEMA = Schema(
    (
        Feature("a", "number", range=(0, 10)),
        Feature("b", "number", range=(0, 10), missing="keep"),
        Feature("c", "category", levels=("x", "y", "z")),
    )
)


@dataclass(eq=False)
class People:
    """Rows and labels that are remembered by what they are."""

    rows: list[Row]
    labels: list[bool]


def people(count: int = 600, labels: list[bool] | None = None) -> People:
    """Return rows approved where a is above 5 and c is z."""
    rng = np.random.default_rng(0)
    rows: list[Row] = [
        (
            float(rng.uniform(0, 10)),
            None if rng.random() < 0.1 else float(rng.uniform(0, 10)),
            str(rng.choice(["x", "y", "z"])),
        )
        for _ in range(count)
    ]
    truth = [float(row[0] or 0) > 5 and row[2] == "z" for row in rows]
    return People(rows, truth if labels is None else labels)


def logits(known: People, *rows: Row) -> np.ndarray[Any, Any]:
    students = students_of(known, SCHEMA)
    assert students is not None
    return students.logits(SCHEMA.encode(list(rows)))


@pytest.fixture(autouse=True)
def _there() -> None:
    pytest.importorskip("lightgbm")


def test_a_conjunction_is_learned() -> None:
    said = logits(people(), (8.0, 5.0, "z"), (8.0, 5.0, "x"), (2.0, 5.0, "z"), (8.0, None, "z"))
    assert said.shape == (4, STUDENTS)
    assert (said[[0, 3]] > 1).all()
    assert (said[[1, 2]] < -1).all()
    assert len(np.unique(said[0])) == STUDENTS  # each has seen other rows
    assert logits(people()).shape == (0, STUDENTS)


def test_the_same_labels_make_the_same_students() -> None:
    rows: list[Row] = [(float(i), 3.0, "z") for i in range(11)]
    one, other = people(), people()
    assert students_of(one, SCHEMA) is students_of(one, SCHEMA)
    np.testing.assert_array_equal(logits(one, *rows), logits(other, *rows))


def test_without_labels_of_both_kinds_there_are_none() -> None:
    assert students_of(people(labels=[True] * 600), SCHEMA) is None
    assert students_of(people(labels=[False] * 600), SCHEMA) is None
    assert students_of(people(30), SCHEMA) is None  # too few to learn from
    assert students_of(people(0), SCHEMA) is None


def test_rare_labels_may_leave_fewer_students() -> None:
    said = logits(people(labels=[i == 7 for i in range(600)]), (8.0, 5.0, "z"))
    assert 1 <= said.shape[1] <= STUDENTS
    assert np.isfinite(said).all()


def test_each_row_has_a_label() -> None:
    with pytest.raises(InputError, match="600 rows are known, but 2 labels"):
        students_of(people(labels=[True, False]), SCHEMA)


def test_without_the_package_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def importing(name: str, *rest: Any, **others: Any) -> Any:
        if name == "lightgbm":
            raise ImportError(name)
        return usual(name, *rest, **others)

    monkeypatch.setattr(builtins, "__import__", importing)
    assert students_of(people(), SCHEMA) is None
