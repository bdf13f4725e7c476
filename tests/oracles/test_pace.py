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


@pytest.mark.parametrize("each", [0.003, 0.02, 0.1, 0.24])
def test_a_slow_model_needs_a_quarter_of_its_time(each: float) -> None:
    pace = Pace(row_seconds=1.0)
    for _ in range(8):
        pace.took(pace.rows, pace.rows * each)
    assert 1 <= pace.rows < 600
    assert pace.rows * each <= 0.25 * batch_seconds(pace.rows, 1.0)
    assert (pace.rows + 1) * each > 0.25 * batch_seconds(pace.rows + 1, 1.0)


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
