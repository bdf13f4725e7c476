from __future__ import annotations

from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from report_samples import FOUND, OPTIONS, TOLD, WORDING, plain

from waysout.domain.schema import Value
from waysout.report.html import page
from waysout.report.letter import letter_text
from waysout.report.words import AsStored, Wording, chance, limits_of


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
        ("rate", 3, 4.5, ("3", "4.5\u00a0%")),
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
    assert "income from 40,500 to 52,000" in letter_text(result)
    assert "52,000" in page(result)


@pytest.mark.parametrize(
    ("probability", "said"),
    [(0.0, "0"), (1e-9, "<1"), (0.01, "1"), (0.99, "99"), (0.991, ">99"), (1.0, "100")],
)
def test_a_chance_in_words(probability: float, said: str) -> None:
    assert Wording().chance(probability) == f"{said}\u00a0%"
    assert Wording(labels_only=True).chance(probability) == ""


def test_a_name_is_written_as_words() -> None:
    assert Wording().name("loan_amount") == "loan amount"


@given(
    st.floats(0, 1), st.lists(st.sampled_from([0.3, 0.5, 0.55, 0.7, 0.8, 0.805, 0.995]), max_size=3)
)
@example(0.505, [0.5])
@example(0.49999, [0.5])
@example(0.5000001, [0.5])
@example(0.7996, [0.8])
@example(0.55, [0.55])
def test_a_chance_is_never_shown_on_the_wrong_side_of_a_limit(
    probability: float, limits: list[float]
) -> None:
    said = chance(probability, limits)
    shown = float(said.strip("<>\u00a0%"))
    for limit in (0.0, *limits, 1.0):
        at = round(100 * limit, 9)
        if probability < limit:
            assert shown < at or (said[0] == "<" and shown == at)
        elif probability > limit:
            assert shown > at or (said[0] == ">" and shown == at)
    assert said[0] in "<>" or abs(shown - 100 * probability) <= 0.5


def test_the_limits_of_a_chance_are_those_of_the_goal() -> None:
    assert limits_of({}) == (0.5,)
    goal = {"at_least": 0.7, "at_most": None, "safer": [0.8, "odd"]}
    assert limits_of({"goal": goal}) == (0.5, 0.7, 0.8)
    assert limits_of({"goal": {"rise": 0.25}, "query_probability": 0.25}) == (0.5,)
    assert limits_of({"goal": {"rise": 0.25}, "query_probability": 0.5}) == (0.5, 0.75)


def test_a_chance_near_the_limit_is_told_everywhere() -> None:
    near = (replace(OPTIONS[0], probability=0.7996), replace(OPTIONS[1], probability=0.8004))
    settings = {**FOUND.settings, "goal": {"at_least": 0.8}}
    result = replace(FOUND, options=near, settings=settings)
    for text in (str(result), page(result), letter_text(result), result._repr_html_()):
        assert "79.9 %" in plain(text)
        assert ">80 %" in plain(unescape(text))


NAMED = {
    "rate": {"label": "interest rate", "decimals": 2},
    "insured": {"words": {"N": "no", "Y": "yes"}, "true": "Y"},
    "branch": {"coded": True, "words": {"10001": "Old Town"}},
}


@pytest.mark.parametrize(
    ("feature", "value", "said"),
    [
        ("rate", 0.1 + 0.2, "0.3"),
        ("rate", 12.5, "12.5"),
        ("rate", 1234.567, "1,234.57"),
        ("insured", "Y", "yes"),
        ("insured", True, "yes"),
        ("branch", 10001, "Old Town"),
        ("branch", 10002, "10002"),
        ("birth_year", 1987, "1987"),
        ("other", 0.1 + 0.2, "0.3"),
        ("other", 2024, "2,024"),
    ],
)
def test_values_are_written_as_the_card_says(feature: str, value: Value, said: str) -> None:
    assert Wording(NAMED).value(feature, value) == said
    assert AsStored(NAMED).value(feature, value) == said.replace(",", "")


def test_two_values_never_look_the_same() -> None:
    assert Wording(NAMED).pair("rate", 0.304, 0.3) == ("0.304", "0.3")


def test_a_display_name_is_used_where_people_read_and_nowhere_else() -> None:
    wording = {"income": {"label": "yearly pay"}}
    result = replace(FOUND, settings={**FOUND.settings, "wording": wording})
    for text in (str(result), page(result), letter_text(result), result._repr_html_()):
        assert "yearly pay" in text
    assert "yearly pay" not in str(result.to_csv())
    assert result.to_frame().columns[0] == "income"
