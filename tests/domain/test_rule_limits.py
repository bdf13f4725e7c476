"""Limits and grids against exact arithmetic: fractions are good to a few bits, whole ones all."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from waysout.domain.rules.base import at_most, on_grid
from waysout.domain.schema import LARGEST

FAR = int(LARGEST)
whole = st.integers(-FAR, FAR)
near = st.integers(-5, 5)
numbers = st.floats(-LARGEST, LARGEST)


@given(limit=whole, beyond=near)
@example(limit=3 * 10**14, beyond=1)
def test_a_whole_number_is_within_a_whole_limit_or_not(limit: int, beyond: int) -> None:
    value = limit + beyond
    assert at_most(value, limit) == at_most(float(value), float(limit)) == (beyond <= 0)


@given(value=numbers, limit=numbers)
@example(value=1e15, limit=1e15 - 1.5)
def test_a_number_passes_a_limit_by_its_last_bits_at_most(value: float, limit: float) -> None:
    over = Fraction(value) - Fraction(limit)
    last_bits = Fraction(2) ** -48 * max(abs(Fraction(value)), abs(Fraction(limit)))
    if over <= 0:
        assert at_most(value, limit)
    if over >= min(Fraction(1), last_bits * Fraction(101, 100)) and over > 0:
        assert not at_most(value, limit)


@given(start=whole, step=st.integers(1, FAR), value=whole)
def test_whole_numbers_lie_on_a_grid_of_whole_numbers_or_not(
    start: int, step: int, value: int
) -> None:
    below = value - (value - start) % step
    for number in (below - 1, below, below + 1, value):
        exact = (Fraction(number) - start) / step
        assert on_grid(start, step, number) == (exact.denominator == 1)
        assert on_grid(float(start), float(step), float(number)) == (exact.denominator == 1)


@given(start=whole, step=st.floats(1e-3, 1e3), steps=st.integers(0, 10**6))
@example(start=1000, step=0.1, steps=3)
def test_what_was_computed_on_a_grid_of_fractions_is_on_it(
    start: int, step: float, steps: int
) -> None:
    start %= 10**6
    assert on_grid(start, step, start + steps * step)
