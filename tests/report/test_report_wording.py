from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from report_samples import FOUND, TOLD, WORDING

from waysout.domain.schema import Value
from waysout.report.html import page
from waysout.report.letter import letter_text
from waysout.report.words import Wording


@pytest.mark.parametrize(
    ("feature", "old", "new", "said"),
    [
        ("income", 24000, 31000.0, ("24,000", "31,000 euros a year")),
        ("income", 900, 9500, ("900", "9,500 euros a year")),
        ("income", 9000, 10000, ("9,000", "10,000 euros a year")),
        ("income", None, 31000, ("missing", "31,000 euros a year")),
        ("income", 31000, None, ("31,000 euros a year", "missing")),
        ("home", "rent", "own", ("a rented flat", "a house of one's own")),
        ("home", "rent", "boat", ("a rented flat", "boat")),
        ("car", False, True, ("no", "with a car")),
        ("rate", 3, 4.5, ("3", "4.5%")),
        ("unknown", -60000.25, 1e-9, ("-60,000.25", "1e-09")),
        ("unknown", "24000", "", ("24000", "(empty)")),
    ],
)
def test_a_change_in_words(feature: str, old: Value, new: Value, said: tuple[str, str]) -> None:
    assert Wording({**WORDING, "rate": {"unit": "%"}}).pair(feature, old, new) == said


def test_a_value_has_its_unit() -> None:
    wording = Wording.of(TOLD)
    assert wording.value("income", 40500.0) == "40,500 euros a year"
    assert wording.value("term", 36) == "36 months"
    assert wording.value("age", None) == "missing"
    assert wording.about("income") == "income before tax"
    assert wording.about("home") == ""
    assert wording.lines({"term": (36, 60)}) == ["term: 36 → 60 months"]


@pytest.mark.parametrize(
    "odd", [None, 3, "text", [], {"income": 3}, {"income": {"unit": 3, "about": [], "words": "x"}},
            {"home": {"words": {"rent": None}}}]
)  # fmt: skip
def test_a_wording_that_is_none_is_done_without(odd: Any) -> None:
    result = replace(FOUND, settings={**FOUND.settings, "wording": odd})
    assert Wording.of(result).pair("income", 1, 2) == ("1", "2")
    assert Wording.of(result).value("home", "rent") == "rent"
    assert "Change income from 40,500 to 52,000" in letter_text(result)
    assert "52,000" in page(result)


@pytest.mark.parametrize(
    ("probability", "said"),
    [(0.0, "0%"), (1e-9, "<1%"), (0.01, "1%"), (0.99, "99%"), (0.991, ">99%"), (1.0, "100%")],
)
def test_a_chance_in_words(probability: float, said: str) -> None:
    assert Wording().chance(probability) == said
    assert Wording(labels_only=True).chance(probability) == ""


def test_a_name_is_written_as_words() -> None:
    assert Wording().name("loan_amount") == "loan amount"
