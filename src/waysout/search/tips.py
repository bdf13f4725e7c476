"""Rows that find tipping points: what a person would ask first, and the search left open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from waysout.domain.schema import Row, Value
from waysout.domain.tipping import ENOUGH_FARTHER, TO, Line, Lines
from waysout.domain.ways import Checks, walked_back
from waysout.search.archive import Archive

_MOST_LEVELS = 6  # of a category that are asked
_NEAR = 0.8

Asked = list[tuple[Value, bool]]
Values = Callable[[str], Iterable[Value]]
"""The values of a lever that are worth a try."""


class Tips:
    """Says what to ask about single levers, given all that was answered, in an archive.

    ``left`` is how many rows it may still ask.
    """

    def __init__(self, archive: Archive, values: Values, left: int) -> None:
        self.archive = archive
        self.left = left
        self._lines = Lines(Checks(archive.problem, archive.query))
        self._values = values

    def stages(self, first: Iterable[str]) -> Iterator[Sequence[Row]]:
        """Yield rows to ask, in order; ``first`` are the levers that a person would ask about."""
        if self.left < 1:
            return
        asked = self._lines.asked(self.archive.answered)
        names = [name for name in dict.fromkeys(first) if name in self._lines.by_lever]
        others = [name for name in self._lines.by_lever if name not in names]
        for part in (names, others):
            lines = [line for name in part for line in self._lines.by_lever[name]]
            # Whether it turns at all, then where, then whether it goes on.
            for stage in (self._ends, self._border, self._beyond):
                found = (row for line in lines for row in stage(line, asked[line]))
                yield list(dict.fromkeys(found))[: self.left]

    def _rows(self, line: Line, values: Iterable[Value]) -> list[Row]:
        fit = (value for value in values if value is not None and line.allows(value))
        rows = (line.row(value) for value in fit)
        return [row for row in rows if row not in self.archive.answered]

    def _ends(self, line: Line, asked: Asked) -> list[Row]:
        """Return the farthest value, where no value is known to turn the decision."""
        if line.move == TO:
            return self._rows(line, islice(line.levels(), _MOST_LEVELS))
        return [] if any(yes for _, yes in asked) else self._rows(line, [line.limit])

    def _border(self, line: Line, asked: Asked) -> list[Row]:
        """Return the value that narrows down where the decision turns first."""
        first = _first_yes(asked)
        if line.move == TO or first is None:
            return []
        before = asked[first - 1][0] if first else line.lever.now
        if line.is_sharp(before, asked[first][0]):
            return []
        there, bound, now = map(line.at, (asked[first][0], before, line.lever.now))
        if abs(bound - now) >= _NEAR * abs(there - now):
            return self._rows(line, [walked_back(line.lever, asked[first][0])])
        middle = line.nearest((bound + there) / 2)
        if middle is None or not min(bound, there) < line.at(middle) < max(bound, there):
            return []
        return self._rows(line, [middle])

    def _beyond(self, line: Line, asked: Asked) -> list[Row]:
        """Return the limit and values between, where the first yes is the last thing known."""
        first = _first_yes(asked)
        if line.move == TO or first is None or not all(yes for _, yes in asked[first:]):
            return []
        if line.goes_on(asked):
            return []
        # What makes it a way comes first: that it holds.
        farther = self._lines.checks.farther(line.row(asked[first][0]))
        new = [row for row in farther if row not in self.archive.answered]
        return [*new, *self._rows(line, [line.limit, *self._spread(line, asked[first][0])])]

    def _spread(self, line: Line, first: Value) -> list[Value]:
        """Return values between the first yes and the limit, where others have theirs.

        Models are unsteady where their data lies, not evenly up to the limit.
        """
        start, end = line.at(first), line.at(line.limit)
        values = (v for v in self._values(line.name) if line.is_ahead(v))
        inside = sorted(
            (v for v in values if min(start, end) < line.at(v) < max(start, end)),
            key=lambda v: abs(line.at(v) - start),
        )
        if len(inside) < ENOUGH_FARTHER:
            shares = (i / ENOUGH_FARTHER for i in range(1, ENOUGH_FARTHER))
            return [*inside, *(line.nearest(start + share * (end - start)) for share in shares)]
        return [inside[len(inside) * i // ENOUGH_FARTHER] for i in range(ENOUGH_FARTHER)]


def _first_yes(asked: Asked) -> int | None:
    return next((i for i, (_, yes) in enumerate(asked) if yes), None)
