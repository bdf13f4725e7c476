from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waysout.prompts.numerals import read_number

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
    "50000 rupees a year": 50000, "US$ 7": 7,
    # scales
    "8 million": 8e6, "2.5m": 2.5e6, "2.5M": 2.5e6, "50k": 50000, "50 K": 50000, "3 lakh": 3e5,
    "1.2 crore": 1.2e7, "2bn": 2e9, "2.3 million": 2300000, "$50k/yr": 50000, "50k+": 50000,
    # wrapping
    '"700"': 700, "'700'": 700, "`700`": 700, "**700**": 700, "<700>": 700, "700,": 700,
    "700}": 700,
    # units and explanations
    "12 years": 12, "750 points": 750, "40hrs": 40, "50000 per year": 50000, "12 p.a.": 12,
    "700 (a better score)": 700, "700 - improves credit": 700, "700 – improves": 700,
    "700, because it helps": 700, "700 because it helps": 700, "700 to improve": 700,
    "700 (from 500)": 700, "700, up from 500": 700,
    # moves
    "500 -> 700": 700, "500 → 700 points": 700, "500 => 700": 700, "from 500 to 700": 700,
    "increase from 500 to 700": 700, "increase income to 50000": 50000, "set to 700": 700,
    "reduced to 0": 0,
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
