from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waysout.domain.schema import Feature
from waysout.prompts.numerals import NumeralMeasure, read_number

READ = {
    # plain
    "700": 700, " 700 ": 700, "0": 0, "-5": -5, "−5": -5, "0.45": 0.45, ".5": 0.5, "700.": 700,
    "1e5": 1e5, "2.5E-3": 0.0025, "50000.00": 50000,
    # thousands
    "1,200,000": 1200000, "12,00,000": 1200000, "1,20,000": 120000, "1 200 000": 1200000,
    "1_200_000": 1200000, "1'200'000": 1200000, "1’200": 1200, "1\u202f200": 1200,
    "1,200.50": 1200.5,
    # currencies
    "$50,000": 50000, "50,000 USD": 50000, "Rs. 50,000/-": 50000, "₹ 5 lakh": 500000,
    "€1 200": 1200, "INR 12,00,000": 1200000, "-$500": -500, "$-500": -500,
    "50000 rupees": 50000, "US$ 7": 7, "500€": 500, "50,000 €": 50000, "500$": 500,
    "50,000₹": 50000,
    # scales
    "8 million": 8e6, "2.5m": 2.5e6, "2.5M": 2.5e6, "50k": 50000, "50 K": 50000, "3 lakh": 3e5,
    "1.2 crore": 1.2e7, "2bn": 2e9, "2.3 million": 2300000, "$50k": 50000, "50k+": 50000,
    # wrapping
    '"700"': 700, "'700'": 700, "`700`": 700, "**700**": 700, "<700>": 700, "700,": 700,
    "700}": 700,
    # units and explanations
    "750 points": 750, "700 (a better score)": 700, "700 – helps": 700, "720 # better": 720,
    "700, because it helps": 700, "700 because it helps": 700, "0.15 (15%)": 0.15, "700!": 700,
    # comments that name the old value
    "700 (from 500)": 700, "700, up from 500": 700, "500000 (increase from 400000)": 500000,
    "800 (higher than 700)": 800, "700 (600 -> 700)": 700, "700 (raised from 600 to 700)": 700,
    "3 (currently 5, fewer is better)": 3, "700 instead of 600": 700,
    # moves
    "500 -> 700": 700, "500 → 700 points": 700, "500 => 700": 700, "from 500 to 700": 700,
    "increase from 500 to 700": 700, "increase income to 50000": 50000, "set to 700": 700,
    "reduced to 0": 0, "down to 3": 3, "600 (now) -> 700": 700,
    # bounds that the number itself satisfies
    "at least 700": 700, "700+": 700, "≥ 700": 700, ">= 700": 700, "700 or more": 700,
    "up to 700": 700, "minimum of 700": 700, "~700": 700, "approximately 700": 700,
}  # fmt: skip

NOT_READ = [
    # no number at all
    "", " ", "abc", "nan", "inf", "-inf", "null", "seven hundred", "double", "\x00", "--", "%",
    # too large, or not ASCII
    "1e400", "9" * 50, "９００", "7０0", "٧٠٠", "½", "10²", "50万",
    # relative amounts: never a value
    "increase by 500", "by 500", "+500", "+10%", "-10%", "10% more", "500 more", "10 points higher",
    "500 extra", "2x", "2 times", "5 years longer", "500 (additional)", "500, more than now",
    "increase 500", "an increase of 500", "increase by ten to 500", "500 -> +200", "500 up",
    "50000 in additional income", "700 points improvement", "100 point boost", "5000 bump",
    "500 points gained", "500 bigger", "500 increased", "500 beyond current", "500 on top",
    "10000 in extra savings", "10 hours in addition", "10 to add", "500 will be added",
    "500 as an increase", "100 (an increase)", "100 - an increase of the score", "500 saved",
    "500 from current", "500 from savings", "10 points (weekly), extra", "700; raise score",
    "700 to improve", "700 (+100)",
    # steps, and words that no unit holds
    "2 levels", "3 notches", "2 (levels)", "1 category", "500 wishes", "12 years", "50000 per year",
    # the old value and the words disagree: it is a step
    "50000 (increase from 400000)", "100 (up from 600)", "500 (a reduction from 400)",
    "100 (from 600 to 700)", "500 (current), 700 (new)", "500 (extra; 700 in all)",
    # percentages: 15 or 0.15?
    "15%", "15 %", "15 percent", "10 pp", "from 20% to 15%",
    # several numbers
    "5-10", "5 - 10", "5–10", "5 to 10", "between 5 and 10", "500 or 600", "700, 800", "5 10",
    "[500, 700]", "5 years 6 months", "2 million 500 thousand", "500 + 200 = 700", "1/2", "12:30",
    # which separator is which
    "3,5", "1,2,3", "1,200,00", "1.2.3", "1.200,50", "0x10",
    # unclear scales and strict bounds
    "12 m", "3L", "5 mil", "2 dozen", "10th", "5 and a half", "> 700", "more than 700", "below 5",
    "- 5", "700 -> better",
]  # fmt: skip


@pytest.mark.parametrize(("text", "number"), READ.items(), ids=list(READ))
def test_reads(text: str, number: float) -> None:
    assert read_number(text) == number


@pytest.mark.parametrize("text", NOT_READ)
def test_cannot_tell(text: str) -> None:
    assert read_number(text) is None


TERM = Feature("loan_term", "integer", unit="years", about="how many months it takes")
MONTHS = Feature("term", "integer", unit="months")
PAY = Feature("pay", "integer", unit="rupees a year")
ANNUM = Feature("income_annum", "integer", unit="rupees")
HOURS = Feature("work", "integer", unit="hours a week")
RISK = Feature("risk", "integer", unit="percent", about="lower is better than more")
SCORE = Feature("credit_score", "integer")
AGE = Feature("age", "integer", about="in years; 90 also stands for anyone older")
NT = Feature("limit", "number", unit="Taiwan dollars")
PLAIN = Feature("debt", "number")

MEASURED: list[tuple[Feature, str, float | None]] = [
    (TERM, "12 years", 12), (TERM, "12 yrs", 12), (TERM, "5 y", 5), (TERM, "1 year", 1),
    (TERM, "18 months", None), (TERM, "12 years per month", None), (TERM, "5 points", None),
    (TERM, "5 rupees", None), (TERM, "10 years older", None),
    (MONTHS, "24 months", 24), (MONTHS, "10 years", None), (MONTHS, "12m", None),
    (PAY, "800000 rupees a year", 800000), (PAY, "8 lakh p.a.", 800000), (PAY, "₹8,00,000/yr", 8e5),
    (PAY, "INR 800000 per annum", 800000), (PAY, "$800000", 800000), (PAY, "Rs. 5,000/-", 5000),
    (PAY, "800000 per month", None), (PAY, "800000 monthly", None), (PAY, "800000 years", None),
    (PAY, "800000 dollars", None), (PAY, "USD 800000", None), (PAY, "800000 €", None),
    (ANNUM, "50000 a year", 50000), (ANNUM, "50000 annual income", 50000),
    (ANNUM, "50000 each month", None), (ANNUM, "50000 additional income", None),
    (ANNUM, "50000, additional income", None),
    (HOURS, "40h", 40), (HOURS, "40 hours/week", 40), (HOURS, "40 per week", 40),
    (HOURS, "40 weeks", None), (HOURS, "8 hours a day", None),
    (RISK, "15%", 15), (RISK, "15 percent", 15), (RISK, "from 20% to 15%", 15),
    (RISK, "-10%", None),
    (RISK, "+10%", None), (RISK, "10% more", None), (RISK, "10 percentage points", None),
    (RISK, "10 lower", None),
    (SCORE, "700 credit points", 700), (SCORE, "700, higher score", 700),
    (SCORE, "700; raise score", 700), (SCORE, "700 - improves the credit score", 700),
    (SCORE, "700; an improved score", None), (SCORE, "15%", None),
    (SCORE, "50.000", None), (SCORE, "1.200", None), (SCORE, "1.200 million", 1200000),
    (AGE, "40 years old", 40), (AGE, "10 years older", None), (AGE, "10 months", None),
    (NT, "50,000 Taiwan dollars", 50000), (NT, "NT$50,000", 50000), (NT, "₹50,000", None),
    (PLAIN, "50.000", 50), (PLAIN, "€500", 500), (PLAIN, "500 a month", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("feature", "text", "number"), MEASURED, ids=[f"{f.name}: {t}" for f, t, _ in MEASURED]
)
def test_units_are_those_of_the_card(feature: Feature, text: str, number: float | None) -> None:
    assert read_number(text, NumeralMeasure.of(feature)) == number


@given(st.integers(-(10**15), 10**15))
def test_every_grouping_of_an_integer_reads_back(number: int) -> None:
    for text in (f"{number}", f"{number:,}", f"{number:_}", f"{number:,}".replace(",", " ")):
        assert read_number(text) == number


@given(st.floats(-1e15, 1e15))
def test_a_float_reads_back_as_python_writes_it(number: float) -> None:
    assert read_number(repr(number)) == number


@given(st.text())
def test_never_raises(text: str) -> None:
    number = read_number(text)
    assert number is None or abs(number) < float("inf")


def test_a_number_is_never_cut_in_half() -> None:
    assert read_number("at least" + " " * 5000 + "700000") == 700000
    assert read_number("7 (" + "very " * 5000 + "good)") == 7
