"""Rows that find tipping points: what a person would ask first, and the search left open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from waysout.domain.schema import Row, Value
from waysout.domain.tipping import TO, Line, Lines
from waysout.domain.ways import Checks, walked_back
from waysout.search.archive import Archive

_MOST_LEVELS = 6  # of a category that are asked
# Places between the first yes and the limit, besides the limit, that are asked before "from … on".
_BETWEEN = (0.5, 0.25, 0.75)
_NEAR = 0.8

Asked = list[tuple[Value, bool]]


class Tips:
    """Says what to ask about single levers, given all that was answered, in an archive."""

    def __init__(self, archive: Archive, checks: Checks) -> None:
        self.archive = archive
        self._lines = Lines(checks)

    def stages(self, first: Iterable[str]) -> Iterator[Sequence[Row]]:
        """Yield rows to ask, in order; ``first`` are the levers that a person would ask about."""
        asked = self._lines.asked(self.archive.answered)
        names = [name for name in dict.fromkeys(first) if name in self._lines.by_lever]
        others = [name for name in self._lines.by_lever if name not in names]
        for part in (names, others):
            lines = [line for name in part for line in self._lines.by_lever[name]]
            # Whether it turns at all, then where, then whether it goes on.
            for stage in (self._ends, self._border, self._beyond):
                found = (row for line in lines for row in stage(line, asked[line]))
                yield list(dict.fromkeys(found))

    def _rows(self, line: Line, values: Iterable[Value]) -> list[Row]:
        fit = (value for value in values if value is not None and line.allows(value))
        rows = (line.row(value) for value in fit)
        return [row for row in rows if row not in self.archive.answered]

    def _ends(self, line: Line, asked: Asked) -> list[Row]:
        """Return the farthest value, where no value is known to turn the decision."""
        if line.move == TO:
            return self._rows(line, line.levels[:_MOST_LEVELS])
        return [] if any(yes for _, yes in asked) else self._rows(line, [line.limit])

    def _border(self, line: Line, asked: Asked) -> list[Row]:
        """Return the value that narrows down where the decision turns first."""
        first = next((i for i, (_, yes) in enumerate(asked) if yes), None)
        if line.move == TO or first is None:
            return []
        there, now = line.at(asked[first][0]), line.at(line.lever.now)
        bound = line.at(asked[first - 1][0]) if first else now
        if abs(bound - now) >= _NEAR * abs(there - now):
            return self._rows(line, [walked_back(line.lever, asked[first][0])])
        middle = line.nearest((bound + there) / 2)
        if middle is None or not min(bound, there) < line.at(middle) < max(bound, there):
            return []
        return self._rows(line, [middle])

    def _beyond(self, line: Line, asked: Asked) -> list[Row]:
        """Return the limit and values between, where the first yes is the last thing known."""
        first = next((i for i, (_, yes) in enumerate(asked) if yes), None)
        if line.move == TO or first is None or not all(yes for _, yes in asked[first:]):
            return []
        start, end = line.at(asked[first][0]), line.at(line.limit)
        between = (line.nearest(start + share * (end - start)) for share in _BETWEEN)
        # What makes it a way comes first: that it holds.
        farther = self._lines.checks.farther(line.row(asked[first][0]))
        new = [row for row in farther if row not in self.archive.answered]
        return [*new, *self._rows(line, [line.limit, *between])]
