"""The errors, and what is said of a name that is not known."""

from __future__ import annotations

import pytest

from waysout import errors
from waysout.errors import unknown

COLUMNS = ["age", "income", "capital-gain", "hours_per_week", "Loan Status", "<=50K", ">50K"]


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("Age", "age"),
        ("INCOME", "income"),
        ("INCMOE", "income"),
        ("capital_gain", "capital-gain"),
        ("Capital Gain", "capital-gain"),
        ("HoursPerWeek", "hours_per_week"),
        ("loan_status", "Loan Status"),
        ("loanstaus", "Loan Status"),
        (">50k", ">50K"),
        ("<= 50k", "<=50K"),
    ],
)
def test_the_nearest_name_is_found_whatever_its_case_and_its_gaps(asked: str, meant: str) -> None:
    assert f"unknown column {asked!r}; did you mean {meant!r}?" in unknown("column", asked, COLUMNS)


def test_of_names_that_differ_by_case_alone_the_one_spelt_most_alike_is_meant() -> None:
    for known in (["Total_A", "total-a"], ["total-a", "Total_A"]):
        assert "did you mean 'total-a'?" in unknown("column", "total_a", known)
        assert "did you mean 'Total_A'?" in unknown("column", "Total-A", known)


@pytest.mark.parametrize("asked", ["", "-", " _ ", "zebra", 17])
def test_what_is_like_nothing_gets_no_suggestion(asked: object) -> None:
    assert "did you mean" not in unknown("column", asked, [*COLUMNS, "", "--"])


def test_a_name_among_thousands_is_found_by_its_case() -> None:
    known = [f"gene {i}" for i in range(5000)]
    assert "did you mean 'gene 4321'?" in unknown("column", "GENE_4321", known)


def test_every_error_is_public_and_in_the_tree() -> None:
    kinds = [thing for thing in vars(errors).values() if isinstance(thing, type)]
    ours = sorted(kind.__name__ for kind in kinds if issubclass(kind, errors.WaysoutError))
    assert ours == errors.__all__
    assert [name for name in ours if name not in (errors.__doc__ or "")] == []
