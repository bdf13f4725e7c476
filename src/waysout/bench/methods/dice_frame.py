"""Rows as tables for DiCE, and DiCE's tables as typed rows.

DiCE casts numbers to 32 bits and all else to text, guesses decimals from how numbers print, joins
the names of columns and levels, and cannot handle missing values. So columns get plain names,
numbers come first (DiCE mixes up the decimals of others), a level is the text of its index, and a
number missing in the query is replaced by one that occurs nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.known import approved
from waysout.domain.rules.base import Lever
from waysout.domain.schema import Feature, Row
from waysout.search.base import Case
from waysout.search.space import Space

if TYPE_CHECKING:
    import pandas as pd

Matrix = NDArray[np.float64]

OUTCOME = "outcome"
_MISSING = -1.0
_LARGEST_WHOLE = 2**31 - 1
# A number whose decimals are unknown is drawn from about this many values.
_PLACES = 1000
_MOST_DECIMALS = 12


@dataclass(frozen=True, slots=True)
class DiceColumn:
    """A feature as a column for DiCE. ``own`` stands for the query's value, missing or not."""

    name: str
    place: int
    feature: Feature
    own: float
    low: float = 0.0
    high: float = 0.0
    decimals: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether 32 bits hold the column as integers."""
        most = max(abs(self.own), abs(self.low), abs(self.high))
        return self.feature.kind == "integer" and most <= _LARGEST_WHOLE

    def shown(self, codes: Matrix) -> Any:
        """Return encoded values as DiCE gets them."""
        if not self.feature.is_numeric:
            return np.where(np.isnan(codes), _MISSING, codes).astype(int).astype(str)
        numbers = np.where(np.isnan(codes), self.own, codes)
        if self.is_whole:
            return np.clip(np.rint(numbers), -_LARGEST_WHOLE, _LARGEST_WHOLE).astype(np.int64)
        return numbers

    def read(self, codes: Matrix, now: float) -> Matrix:
        """Return encoded values out of DiCE's; ``now`` is the query's own."""
        own = np.float32(codes) == np.float32(self.own)
        if self.feature.is_numeric:
            codes = np.round(codes, self.decimals)
        else:
            codes = np.where(codes == _MISSING, np.nan, codes)
        return np.where(own, now, codes)


class DiceFrame:
    """Writes and reads DiCE's tables for one case."""

    def __init__(self, case: Case) -> None:
        self._schema = case.problem.schema
        self._space = Space(case.problem, case.query)
        seen = None if case.known is None else approved(case.known, self._schema).matrix
        columns = [self._column(place, seen) for place in range(len(self._schema))]
        self.columns = sorted(columns, key=lambda column: not column.feature.is_numeric)
        self.varied = [c for c in self.columns if c.place in self._space.levers]

    def _column(self, place: int, seen: Matrix | None) -> DiceColumn:
        feature, now = self._schema.features[place], float(self._space.start[place])
        lever, name = self._space.levers.get(place), f"f{place}"
        if not feature.is_numeric:
            return DiceColumn(name, place, feature, _MISSING if math.isnan(now) else now)
        if lever is None:
            own = 0.0 if math.isnan(now) else float(np.float32(now))
            return DiceColumn(name, place, feature, own, own, own)
        low, high = observed_range(lever, None if seen is None else seen[:, place])
        decimals = 0
        if feature.kind != "integer":
            decimals = feature.decimals if feature.decimals is not None else 0
            if feature.decimals is None and high > low:
                decimals = max(0, math.ceil(math.log10(_PLACES / (high - low))))
            decimals = min(decimals, _MOST_DECIMALS)
        # The ends are rounded to what DiCE can draw; the rules put back a value beyond them.
        size = 10.0**decimals
        ends = math.ceil(low * size) / size, math.floor(high * size) / size
        low, high = (float(np.float32(end)) for end in (min(ends), max(ends)))
        own = float(np.float32(low - 1.0 if math.isnan(now) else now))
        return DiceColumn(name, place, feature, own, min(low, own), max(high, own), decimals)

    @property
    def numbers(self) -> list[DiceColumn]:
        """The columns DiCE takes for continuous."""
        return [column for column in self.columns if column.feature.is_numeric]

    def table(self, rows: Sequence[Row]) -> pd.DataFrame:
        """Return rows as a table for DiCE, without an outcome."""
        import pandas as pd

        matrix = self._schema.encode(rows)
        return pd.DataFrame({c.name: c.shown(matrix[:, c.place]) for c in self.columns})

    def permitted(self) -> dict[str, list[Any]]:
        """Return what each column may hold: the ends of its range, or its levels."""
        found: dict[str, list[Any]] = {}
        for column in self.columns:
            if column.feature.is_numeric:
                ends = (column.low, column.high)
                found[column.name] = [int(end) if column.decimals == 0 else end for end in ends]
            else:
                lever, encode = self._space.levers.get(column.place), column.feature.encode
                choices = (lever.choices() or ()) if lever else ()
                codes = [column.own, *(encode(choice) for choice in choices)]
                found[column.name] = [str(int(code)) for code in codes]
        return found

    def rows(self, table: pd.DataFrame) -> list[Row]:
        """Return the typed rows nearest to those of a table that keep the rules, where any do."""
        matrix = np.tile(self._space.start, (len(table), 1))
        codes = table[[column.name for column in self.varied]].to_numpy(object).astype(np.float64)
        for i, column in enumerate(self.varied):
            now = float(self._space.start[column.place])
            matrix[:, column.place] = column.read(codes[:, i], now)
        return self._space.rows(matrix)


def observed_range(lever: Lever, seen: Matrix | None) -> tuple[float, float]:
    """Return the range that a number is drawn from: that of the known values, where allowed."""
    choices = lever.choices()
    if choices is not None:
        numbers = [float(choice) for choice in choices if choice is not None]
        return min(numbers), max(numbers)
    seen = np.empty(0) if seen is None else seen[~np.isnan(seen)]
    if seen.size:
        low, high = max(lever.low, float(seen.min())), min(lever.high, float(seen.max()))
        if low < high:
            return low, high
    return lever.bounds()
