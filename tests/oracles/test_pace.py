"""How many rows a model is asked at once."""

import pytest

from waysout.oracles.pace import FIRST_ROWS, MOST_ROWS, Pace
from waysout.oracles.watchdog import batch_seconds


def test_a_quick_model_is_soon_asked_as_many_rows_as_wait() -> None:
    pace, sizes = Pace(), [FIRST_ROWS]
    for _ in range(6):
        pace.took(pace.rows, seconds=0.01)
        sizes.append(pace.rows)
    assert sizes == [16, 64, 256, 1024, 4096, MOST_ROWS, MOST_ROWS]


@pytest.mark.parametrize(
    ("each", "power"),
    [(3e-5, 1), (3e-5, 2), (3e-5, 3), (0.003, 1), (0.003, 2), (0.02, 1), (0.03, 1)],
)
def test_a_slow_model_is_never_asked_more_than_it_can_answer(each: float, power: int) -> None:
    """However its time grows with the rows of a call; these answer the first one."""
    pace = Pace(row_seconds=1.0)
    for _ in range(20):
        took, limit = each * pace.rows**power, batch_seconds(pace.rows, 1.0)
        assert took < limit
        pace.took(pace.rows, took)
    if power == 1 and each >= 0.003:
        assert 0.15 * limit < took < 0.3 * limit


def test_a_call_that_was_too_large_is_not_tried_again() -> None:
    """A model may take little for some sizes, and far too long for others."""
    pace = Pace(row_seconds=1.0)
    pace.took(16, seconds=0.001)
    assert pace.rows == 64
    pace.took(64, seconds=batch_seconds(64, 1.0))
    for _ in range(5):
        assert pace.rows <= 32
        pace.took(pace.rows, seconds=0.001)
    assert pace.rows == 32


def test_rows_that_are_asked_alone_tell_nothing_of_many() -> None:
    pace = Pace(row_seconds=1.0)
    for _ in range(9):
        pace.took(1, seconds=0.0)
    assert pace.rows == FIRST_ROWS
    pace.took(1, seconds=0.1)
    assert pace.rows == 2, "unless they are slow"


def test_a_call_takes_no_longer_than_a_search_has() -> None:
    pace = Pace(row_seconds=60.0, seconds=4.0)
    pace.took(16, seconds=1.6)
    assert pace.rows == 10  # a second of four


def test_a_model_slower_than_its_limit_is_asked_row_by_row() -> None:
    pace = Pace(row_seconds=1.0)
    pace.took(16, seconds=16.0)
    assert pace.rows == 1
    pace.took(0, seconds=3.0)  # nothing was asked: it tells nothing
    assert pace.rows == 1
