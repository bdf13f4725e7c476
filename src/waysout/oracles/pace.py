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
_POWER = 3
# Of the time that a call may take; the rest is for rows, and hours, that are slower than others.
_SHARE = 0.25


class Pace:
    """Says how many rows to ask at once, so that a slow model is not taken for one that hangs.

    Rows of a call that took too long are asked again, which no budget has set aside. The first
    calls are small, and each tells the next: it is to take a quarter of the time that it has
    (`batch_seconds`, and at most ``seconds``). For some models twice as many rows take eight times
    as long, so that larger calls are tried with care; and a call that takes too long is tried with
    half as many rows, and never with more.

    >>> pace = Pace(row_seconds=1.0)
    >>> pace.took(16, seconds=0.58)
    >>> pace.rows
    8
    >>> pace.took(8, seconds=0.01)
    >>> pace.rows
    24
    """

    def __init__(self, row_seconds: float = ROW_SECONDS, seconds: float | None = None) -> None:
        self.rows = FIRST_ROWS
        self._largest = MOST_ROWS
        self._row_seconds = row_seconds
        self._seconds = math.inf if seconds is None else seconds

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
        limit = min(batch_seconds(rows, self._row_seconds), self._seconds)
        share = _SHARE * limit / max(seconds, 1e-9)
        if seconds >= limit and rows > FIRST_ROWS:  # of fewer rows one may hang, and tell nothing
            self._largest = min(self._largest, max(FIRST_ROWS, rows // 2))
        if rows * share < self.rows:
            fitting = rows * share
        else:  # what few rows took says little of many
            larger = rows * min(_TIMES_MORE, share ** (1 / _POWER))
            fitting = max(self.rows, min(FIRST_ROWS, rows * share), larger)
        self.rows = max(1, min(int(fitting), self._largest))
