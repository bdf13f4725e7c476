"""Tipping points: from which value on one lever alone turns the decision, or that it does not.

They are read off rows that were asked, and say so: intervals of asked values, never one threshold,
since a model may refuse more where it approved less. What follows a lever goes with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import dropwhile, groupby

from waysout.domain.result import Interval, Tip, TipStatus
from waysout.domain.rules import Lever
from waysout.domain.schema import LARGEST, Row, Value
from waysout.domain.ways import Asked, Checks, nearest_to, place, step_of, walked_back

UP, DOWN, TO = "up", "down", "to"
ENOUGH_FARTHER = 5
"""Values beyond the first yes, the limit among them, that must be a yes to say "from here on"."""
_HALVINGS = 12
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Line:
    """One lever of a query, moved alone in one direction, or to values without an order.

    It is moved from where the query has it, or from a ``start``: a row in which other levers may
    have moved before. The rules judge what comes of it as a change of the query in any case.
    """

    checks: Checks
    name: str
    move: str
    start: Row | None = None

    @property
    def origin(self) -> Row:
        """The row in which the lever is moved."""
        return self.checks.query if self.start is None else self.start

    @cached_property
    def lever(self) -> Lever:
        """The lever; of a one-hot group, that of its first feature."""
        lever = self.checks.levers[self.name]
        if self.start is None:
            return lever
        return replace(lever, now=self.start[self.checks.problem.schema.index(self.name)])

    @property
    def group(self) -> tuple[str, ...]:
        """The features that make the lever: itself, or its one-hot group."""
        return self.checks.problem.rules.features_of(self.name)

    def told(self, value: Value) -> Value:
        """Return a value as the user's table holds it; a one-hot group's is a feature."""
        return value if len(self.group) > 1 else self.lever.feature.raw(value)

    def row(self, value: Value) -> Row:
        """Return the row with this lever alone at a value; a one-hot group's is a feature."""
        problem = self.checks.problem
        if len(self.group) > 1:
            on = True if problem.schema[str(value)].kind == "boolean" else 1
            return problem.rules.apply(self.origin, {str(value): on})
        return problem.rules.apply(self.origin, {self.name: value})

    def allows(self, value: Value) -> bool:
        """Whether no rule forbids it."""
        row = self.row(value)
        return row != self.origin and not self.checks.problem.violations(self.checks.query, row)

    def levels(self) -> Iterator[Value]:
        """Yield the values to move to where they have no order; there may be thousands."""
        if self.move != TO:
            return
        group, levers = self.group, self.checks.levers
        if len(group) == 1:
            yield from filter(self.allows, self.lever.choices() or ())
        else:
            members = (name for name in group if any(levers[name].admits(on) for on in (True, 1)))
            yield from filter(self.allows, members)

    @property
    def is_bounded(self) -> bool:
        """Whether the rules, or the feature itself, set an end on this side."""
        lever = self.lever
        if not lever.feature.is_numeric or lever.values is not None:
            return True
        return lever.high < LARGEST if self.move == UP else lever.low > -LARGEST

    @cached_property
    def limit(self) -> Value:
        """The farthest value that was found to be allowed; nothing where there is no order.

        Where nothing sets an end, it lies as far as the search tries.
        """
        if self.move == TO:
            return None
        sign, lever = (1.0 if self.move == UP else -1.0), self.lever
        now = self.at(lever.now)
        if lever.feature.is_numeric and lever.values is None:
            end = lever.bounds()[self.move == UP]
        else:
            places = [self.at(choice) for choice in lever.choices() or ()]
            end = max(places, key=lambda at: sign * at, default=now)
        if (end - now) * sign <= 0:
            return None
        value = self.nearest(end)
        if value is not None and self.allows(value):
            return value
        # A rule on several features stops it on the way.
        found, near = None, now
        for _ in range(_HALVINGS):
            value = self.nearest((near + end) / 2)
            if value is not None and self.allows(value):
                found, near = value, self.at(value)
            else:
                end = (near + end) / 2
        return found

    def nearest(self, target: float) -> Value:
        """Return the admitted value nearest to a place, on this side of the present one."""
        value = nearest_to(self.lever, target)
        ahead = value is not None and self.is_ahead(value)
        return value if ahead else None

    def is_ahead(self, value: Value) -> bool:
        """Whether a value lies on this side of the present one."""
        at, now = place(self.lever, value), place(self.lever, self.lever.now)
        if at is None or now is None:
            return False
        return at > now if self.move == UP else at < now

    def at(self, value: Value) -> float:
        """Return where a value lies."""
        return place(self.lever, value) or 0.0

    def goes_on(self, asked: Sequence[tuple[Value, bool]]) -> bool:
        """Whether values, from near to far, are a yes from the first one on, up to the limit."""
        yes = [value for value, yes in dropwhile(lambda pair: not pair[1], asked) if yes]
        if not yes or yes[-1] != self.limit or not self.is_bounded:
            return False
        if yes != [value for value, _ in asked[-len(yes) :]]:  # one between them was refused
            return False
        return len(yes) > min(ENOUGH_FARTHER, self._between(yes[0]))

    def _between(self, first: Value) -> float:
        """Return how many values lie between one and the limit, the limit included."""
        lever, start, end = self.lever, self.at(first), self.at(self.limit)
        if (choices := lever.choices()) is not None:
            return sum(min(start, end) <= self.at(c) <= max(start, end) for c in choices) - 1
        return abs(end - start) / step if (step := step_of(lever)) else math.inf

    def is_sharp(self, before: Value, first: Value) -> bool:
        """Whether a refused value is the next one before a yes, or at most a tenth short of it."""
        nearer = walked_back(self.lever, first)
        if nearer is None:
            return True
        back = self.at(first) - self.at(before), self.at(first) - self.at(nearer)
        return abs(back[0]) <= abs(back[1]) + _ROUNDING

    def value(self, row: Row) -> Value:
        """Return where a row that moves this lever alone puts it."""
        schema = self.checks.problem.schema
        if len(self.group) > 1:
            return next((name for name in self.group if row[schema.index(name)]), None)
        return row[schema.index(self.name)]


class Lines:
    """All lines of a query, and which asked rows lie on them."""

    def __init__(self, checks: Checks) -> None:
        self.checks = checks
        self.by_lever = {name: found for name in self._names() if (found := self._of(name))}

    def _names(self) -> list[str]:
        rules = self.checks.problem.rules
        leaders = {name: rules.leader(name) for name in self.checks.levers}
        return [name for name, leader in leaders.items() if name == leader]

    def _of(self, name: str) -> list[Line]:
        checks = self.checks
        lever = checks.levers[name]
        group = checks.problem.rules.features_of(name)
        if not any(checks.levers[member].is_open for member in group):
            return []
        ordered = len(group) == 1 and place(lever, lever.now) is not None
        lines = [Line(checks, name, move) for move in ((UP, DOWN) if ordered else (TO,))]
        return [
            line for line in lines if line.limit is not None or any(True for _ in line.levels())
        ]

    def asked(self, asked: Mapping[Row, Asked]) -> dict[Line, list[tuple[Value, bool]]]:
        """Return the values that were asked on each line, from near to far, with the answers."""
        found: dict[Line, list[tuple[Value, bool]]] = {
            line: [] for lines in self.by_lever.values() for line in lines
        }
        moved = self.checks.problem.rules.moved
        for row, answer in asked.items():
            levers = moved(self.checks.query, row)
            if len(levers) != 1:
                continue
            for line in self.by_lever.get(next(iter(levers)), ()):
                value = line.value(row)
                if value is None and len(line.group) > 1:
                    continue  # a group with none set has no name to say
                on_it = (line.move == TO or line.is_ahead(value)) and line.row(value) == row
                # What a rule forbids, the model need not have refused.
                if on_it and (answer.valid or line.allows(value)):
                    found[line].append((value, answer.valid))
        for line, values in found.items():
            if line.move != TO:
                values.sort(key=lambda pair: abs(line.at(pair[0]) - line.at(line.lever.now)))
        return found


def tipping_points(checks: Checks, asked: Mapping[Row, Asked]) -> dict[str, tuple[Tip, ...]]:
    """Return what each lever of a query does alone, as far as was asked."""
    found: dict[str, tuple[Tip, ...]] = {}
    for line, values in Lines(checks).asked(asked).items():
        found[line.name] = (*found.get(line.name, ()), tip_of(line, values))
    return found


def tip_of(line: Line, values: list[tuple[Value, bool]]) -> Tip:
    """Return what a lever does on one line, by the answers to values from near to far."""
    refused = tuple(value for value, yes in values if not yes)
    if line.move == TO:
        intervals = tuple(Interval(value, value, 1) for value, yes in values if yes)
        to_the_end = all(level in refused for level in line.levels())
    else:
        runs = _intervals(values, line.lever.now)
        intervals = tuple(replace(i, sharp=line.is_sharp(i.before, i.first)) for i in runs)
        to_the_end = line.limit in refused
    status = TipStatus.NOT_UP_TO if to_the_end else TipStatus.NOT_ASKED
    status = TipStatus.TURNS if intervals else status
    found = Tip(line.move, status, intervals, refused, line.limit, line.goes_on(values))
    return found.rewritten(line.told)


def _intervals(values: list[tuple[Value, bool]], now: Value) -> tuple[Interval, ...]:
    """Return the runs of yeses among values from near to far.

    >>> _intervals([(1, False), (2, True), (4, True), (5, False), (9, True)], 0)
    (Interval(first=2, last=4, asked=2, before=1, after=5, sharp=True), \
Interval(first=9, last=9, asked=1, before=5, after=None, sharp=True))
    """
    runs = [(yes, [value for value, _ in run]) for yes, run in groupby(values, lambda p: p[1])]
    found = []
    for i, (yes, run) in enumerate(runs):
        if yes:
            before = runs[i - 1][1][-1] if i else now
            after = runs[i + 1][1][0] if i + 1 < len(runs) else None
            found.append(Interval(run[0], run[-1], len(run), before, after))
    return tuple(found)
