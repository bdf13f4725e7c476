"""How many rows a model is asked at once: fewer where it is slow."""

from __future__ import annotations

import math

from waysout.domain.oracle import Oracle
from waysout.oracles.watchdog import ROW_SECONDS, batch_seconds

FIRST_ROWS = 16
"""How many rows the first call has, when nothing is known of the model."""
MOST_ROWS = 10_000
"""How many rows a call has at most."""
_TIMES_MORE = 4
# Of the time that a call may take; the rest is for rows, and hours, that are slower than others.
_SHARE = 0.25


class Pace:
    """Says how many rows to ask at once, so that a slow model is not taken for one that hangs.

    Rows of a call that took too long are asked again, which no budget has set aside. The first
    calls are small; each tells how many rows the model answers in a quarter of the time that it
    has (`batch_seconds`, and at most ``seconds``), and allows four times as many rows at most.

    >>> pace = Pace(row_seconds=1.0)
    >>> pace.took(16, seconds=0.32)
    >>> pace.rows
    14
    >>> pace.took(14, seconds=0.01)
    >>> pace.rows
    56
    """

    def __init__(self, row_seconds: float = ROW_SECONDS, seconds: float | None = None) -> None:
        self.rows = FIRST_ROWS
        self._row_seconds = row_seconds
        self._most = math.inf if seconds is None else seconds

    @classmethod
    def of(cls, oracle: Oracle, seconds: float | None = None) -> Pace:
        """Return the pace of an oracle, whatever wraps it."""
        inner: object = oracle
        while not hasattr(inner, "row_seconds") and hasattr(inner, "oracle"):
            inner = inner.oracle
        return cls(getattr(inner, "row_seconds", ROW_SECONDS), seconds)

    def took(self, rows: int, seconds: float) -> None:
        """Learn how long a call took, or for how long it was waited for in vain."""
        if rows < 1:
            return
        most = _TIMES_MORE * self.rows
        self.rows = max(1, int(min(most, self._fitting(seconds / rows), MOST_ROWS)))

    def _fitting(self, each: float) -> float:
        """Return how many rows fit into their share of the time, if each takes so many seconds."""
        if each <= 0:
            return math.inf
        first = batch_seconds(0, self._row_seconds)
        more = batch_seconds(1, self._row_seconds) - first
        # n rows take n * each, and have first + n * more.
        spare = each - _SHARE * more
        by_rows = math.inf if spare <= 0 else _SHARE * first / spare
        return min(by_rows, _SHARE * self._most / each)
