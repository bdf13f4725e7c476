"""Strips: what each lever does alone from a row on, drawn along the values it may take.

Unlike the tipping points of a search, these are asked at once and for any row: a page draws them
while somebody moves a slider.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import dropwhile, groupby, pairwise
from typing import Any

from waysout.domain.problem import Problem
from waysout.domain.result import Outcome, OutcomeKind, ResultData, Tip
from waysout.domain.rules import Lever
from waysout.domain.schema import Row, Value
from waysout.domain.tipping import DOWN, ENOUGH_FARTHER, TO, UP, Line, tip_of
from waysout.domain.ways import Checks, nearest_to, place, step_of
from waysout.oracles.probe import ask_each
from waysout.report.tipping import alone
from waysout.report.words import Wording, listed
from waysout.run.plan import told
from waysout.serve.forms import form_value, lever_form, violation_words

MOST_ROWS = 600
"""The most rows that the model is asked for all strips of a row together."""
_VALUES = 16  # of a number, on both sides of the present one
_LEAST = ENOUGH_FARTHER + 1  # on one side, however short
_LEVELS = 30
_ROUNDS = 4
_QUARTERS = (0.25, 0.5, 0.75)  # of a gap, asked at once: two rounds do what four halvings would
_ROOM = 0.125  # of the gap between two values: how far one may lie off for fewer digits


@dataclass(frozen=True)
class Said:
    """The model's answer to a row, and whether it meets the goal."""

    probability: float
    approved: bool


@dataclass
class Strip:
    """One lever, the values that it is asked at, and those that rules on several features bar."""

    checks: Checks
    name: str
    start: Row
    rows: dict[Value, Row] = field(default_factory=dict)
    barred: dict[Value, str] = field(default_factory=dict)

    @cached_property
    def group(self) -> tuple[str, ...]:
        """The features that make the lever."""
        return self.checks.problem.rules.features_of(self.name)

    @cached_property
    def lever(self) -> Lever:
        """The lever as it stands in the row; its limits are those of the query."""
        return self._alone.lever

    @cached_property
    def is_open(self) -> bool:
        """Whether it may move at all."""
        return any(self.checks.levers[name].is_open for name in self.group)

    @cached_property
    def is_number(self) -> bool:
        """Whether it is drawn along a scale."""
        return len(self.group) == 1 and self.lever.feature.is_numeric

    @cached_property
    def lines(self) -> list[Line]:
        """The directions it may be moved in."""
        ordered = len(self.group) == 1 and place(self.lever, self.lever.now) is not None
        if not ordered:
            return [self._alone]
        return [Line(self.checks, self.name, move, self.start) for move in (UP, DOWN)]

    @cached_property
    def _alone(self) -> Line:
        return Line(self.checks, self.name, TO, self.start)

    def value(self, row: Row) -> Value:
        """Return where a row has the lever; of a one-hot group, which feature is set."""
        return self._alone.value(row)

    def at(self, value: Value) -> float:
        """Return where a value is drawn; what is missing comes first."""
        if len(self.group) > 1:
            return float(self.group.index(str(value))) if value in self.group else -1.0
        return self.lever.feature.encode(value) if value is not None else float("-inf")

    # What is asked -----------------------------------------------------------------------------

    def plan(self) -> None:
        """Choose the values of the first round."""
        if not self.is_open:
            return
        for value in (*self._spread(), self.value(self.checks.query)):
            self._add(value)

    def sharpen(self, said: Mapping[Row, Said]) -> list[Row]:
        """Return the rows of another round; none where nothing is left to ask.

        They lie between neighbours whose answers differ, and beyond where it turns.
        """
        if not self.is_number or not self.rows:
            return []
        points = self._in_order({**self.rows, self.value(self.start): self.start})
        values = self._beyond(said)
        for (low, here), (high, there) in pairwise(points):
            if low is not None and said[here].approved != said[there].approved:
                values += self._between(self.at(low), self.at(high))
        return [row for value in values if (row := self._add(value)) is not None]

    def _beyond(self, said: Mapping[Row, Said]) -> list[Value]:
        """Return values beyond a yes from which on all are one, so that it may be said.

        Where enough were asked, these are the next ones: a pocket of noes may begin right there.
        """
        found = []
        for line, values in self.moved(said):
            yes = [line.at(value) for value, _ in dropwhile(lambda pair: not pair[1], values)]
            are_all = yes and all(good for _, good in values[-len(yes) :])
            if not are_all or not line.is_bounded or yes[-1] != line.at(line.limit):
                continue
            if line.goes_on(values):
                near = yes[1] if len(yes) > 1 else yes[0]
                step = math.copysign(step_of(self.lever), near - yes[0])
                aims = [yes[0] + step, (yes[0] + near) / 2]
            else:
                aims = [yes[0] + (yes[-1] - yes[0]) * i / _LEAST for i in range(1, _LEAST)]
            found += [nearest_to(self.lever, aim) for aim in aims]
        return found

    def _add(self, value: Value) -> Row | None:
        """Note a value, unless it is known; return its row if it may be asked."""
        if value is None or value in self.rows or value in self.barred:
            return None
        row = self._alone.row(value)
        if row == self.start:
            return None
        if why := self._broken(row):
            self.barred[value] = why
            return None
        self.rows[value] = row
        return row

    def _broken(self, row: Row) -> str:
        """Return the rules that this lever breaks; what others have broken before is not its."""
        mine = [
            violation_words(self.checks.problem, violation)
            for violation in self.checks.problem.violations(self.checks.query, row)
            if violation.part not in self._before or set(self.group) & set(violation.features)
        ]
        return "; ".join(dict.fromkeys(mine))

    @cached_property
    def _before(self) -> set[int]:
        broken = self.checks.problem.violations(self.checks.query, self.start)
        return {violation.part for violation in broken}

    def _spread(self) -> Iterable[Value]:
        """Yield the values of the first round."""
        if len(self.group) > 1:
            levers = self.checks.levers
            yield from [n for n in self.group if any(levers[n].admits(on) for on in (True, 1))]
        elif self.lines[0].move == TO or self.lever.choices() is not None:
            yield from self.lever.sample(_LEVELS)
        else:
            for line in self.lines:
                yield from self._along(line)

    def _along(self, line: Line) -> Iterable[Value]:
        """Yield values from the present one to the end of the allowed span, more of them near it.

        Most answers turn near the present value, and most people can go no farther.
        """
        ends, now = self.checks.levers[self.name].bounds(), line.at(self.lever.now)
        end = ends[line.move == UP]
        if not line.is_ahead(nearest_to(self.lever, end)):
            return
        span = abs(ends[0] - now) + abs(ends[1] - now)
        count = max(_LEAST, round(_VALUES * abs(end - now) / span))
        far = end - now
        aims = (
            (now + far * (i / count) ** 2, _ROOM * abs(far) * i / count**2) for i in range(1, count)
        )
        values = [nearest_to(self.lever, aim, room) for aim, room in aims]
        limit = line.limit if line.is_bounded else None
        for value in (*values, nearest_to(self.lever, end), limit):
            if value is not None and line.is_ahead(value):
                yield value

    def _between(self, low: float, high: float) -> Iterable[Value]:
        """Yield admitted values between two, of few digits if they can be."""
        for share in _QUARTERS:
            for room in (_ROOM * (high - low), 0.0):
                value = nearest_to(self.lever, low + share * (high - low), room)
                if value is not None and low < self.at(value) < high:
                    yield value
                    break

    # What is told ------------------------------------------------------------------------------

    def form(self, said: Mapping[Row, Said], texts: Sequence[str]) -> dict[str, Any]:
        """Return the strip as JSON."""
        query, now = self.checks.query, self.value(self.start)
        lever = lever_form(self.checks.levers[self.name])
        allowed = None if lever["low"] is None else [lever["low"], lever["high"]]
        points = {**self.rows, now: self.start} if self.rows or self.barred else {}
        return {
            "feature": self.name,
            "open": self.is_open,
            "why": "" if self.is_open else lever["why"],
            "now": self._told(now),
            "start": self._told(self.value(query)),
            **self._span(allowed or []),
            "allowed": allowed,
            "asked": [
                {"value": self._told(value), "probability": said[row].probability,
                 "approved": said[row].approved}
                for value, row in self._in_order(points)
            ],
            "forbidden": self._forbidden(),
            "said": list(texts),
        }  # fmt: skip

    def _told(self, value: Value) -> Value:
        return value if len(self.group) > 1 else form_value(self.lever.feature, value)

    def _span(self, allowed: Sequence[float]) -> dict[str, float | None]:
        ends: list[float] = []
        if self.is_number:
            present = (self.value(self.start), self.value(self.checks.query))
            values = [float(value) for value in present if value is not None]
            ends = [*(self.lever.feature.range or ()), *allowed, *values]
        return {"low": min(ends, default=None), "high": max(ends, default=None)}

    def _in_order(self, points: Mapping[Value, Any]) -> list[tuple[Value, Any]]:
        return sorted(points.items(), key=lambda point: self.at(point[0]))

    def _forbidden(self) -> list[dict[str, Any]]:
        """Return the barred values; of a number, neighbours together."""
        points = self._in_order({**dict.fromkeys(self.rows, ""), **self.barred})
        if self.is_number:
            runs = [list(run) for why, run in groupby(points, lambda point: bool(point[1])) if why]
        else:
            runs = [[point] for point in points if point[1]]
        return [
            {"from": self._told(run[0][0]), "to": self._told(run[-1][0]), "why": run[0][1]}
            for run in runs
        ]

    def moved(self, said: Mapping[Row, Said]) -> list[tuple[Line, list[tuple[Value, bool]]]]:
        """Return each direction with its values from near to far and what was answered."""
        found = []
        for line in self.lines:
            ahead = [v for v in self.rows if line.move == TO or line.is_ahead(v)]
            if line.move != TO:
                ahead.sort(key=lambda v: abs(self.at(v) - self.at(self.lever.now)))
            if ahead:
                found.append((line, [(v, said[self.rows[v]].approved) for v in ahead]))
        return found


class Strips:
    """The strips of a row as a change of a query: at most ``most`` rows, in a few batches."""

    def __init__(
        self,
        problem: Problem,
        query: Row,
        row: Row,
        names: Iterable[str],
        *,
        most: int = MOST_ROWS,
    ) -> None:
        self._problem, self._query, self._row = problem, query, row
        self._most = min(most, MOST_ROWS)
        checks = Checks(problem, query)
        leaders = dict.fromkeys(map(problem.rules.leader, names))
        self._strips = [Strip(checks, name, row) for name in leaders]
        self._said: dict[Row, Said] = {}
        self._failed: set[Row] = set()  # a model may fail on one row of hundreds

    @property
    def asked(self) -> Sequence[Row]:
        """The rows that were asked."""
        return list(self._said)

    def answer(self) -> dict[str, Any]:
        """Ask the model, and return the strips as JSON."""
        self._ask([self._query, self._row, *self._first_rows()])
        self._forget_unasked()
        for _ in range(_ROUNDS):
            wanted = [row for strip in self._strips for row in strip.sharpen(self._said)]
            if not wanted:
                break
            self._ask(wanted)
            self._forget_unasked()
        texts = self._texts()
        strips = [strip.form(self._said, texts.get(strip.name, ())) for strip in self._strips]
        return {"strips": strips, "rows": len(self._said)}

    def _first_rows(self) -> list[Row]:
        """Return the rows of the first round; a strip that finds no room for its own has none."""
        rows: dict[Row, None] = dict.fromkeys((self._query, self._row))
        for strip in self._strips:
            strip.plan()
            if len(rows) + len(strip.rows) > self._most:
                strip.rows, strip.barred = {}, {}
            rows |= dict.fromkeys(strip.rows.values())
        return list(rows)

    def _ask(self, rows: Iterable[Row]) -> None:
        """Ask about rows in one batch, as far as there is room."""
        known = {*self._said, *self._failed}
        new = [row for row in dict.fromkeys(rows) if row not in known][: self._most - len(known)]
        if not new:
            return
        answers, good, failure, _ = ask_each(self._problem.oracle, new)
        asked, new = new, [new[i] for i in good]
        self._failed |= {*asked} - {*new}
        if failure is not None and not self._failed.isdisjoint((self._query, self._row)):
            raise failure
        if not self._said:
            chance, yes = float(answers.probability[0]), bool(answers.decision[0])
            self._problem = replace(self._problem, goal=self._problem.goal.for_query(chance, yes))
        met = self._problem.goal.met(answers).tolist()
        pairs = zip(answers.probability.tolist(), met, strict=True)
        self._said |= {row: Said(*pair) for row, pair in zip(new, pairs, strict=True)}

    def _forget_unasked(self) -> None:
        for strip in self._strips:
            strip.rows = {value: row for value, row in strip.rows.items() if row in self._said}

    def tips(self) -> dict[str, Sequence[Tip]]:
        """Return what each lever does alone, by what was asked."""
        return {
            strip.name: [tip_of(line, values) for line, values in moved]
            for strip in self._strips
            if (moved := strip.moved(self._said))
        }

    # In words ----------------------------------------------------------------------------------

    def _texts(self) -> dict[str, list[str]]:
        """Return what each lever does, in words."""
        settings = told(self._problem)
        words = Wording.from_settings(settings)
        if self._said[self._row].approved:
            return {
                strip.name: [_still(words, *moved) for moved in strip.moved(self._said)]
                for strip in self._strips
            }
        result = ResultData(
            self._problem.schema.raw(self._row), Outcome(OutcomeKind.FOUND), tipping=self.tips(),
            settings=settings,
        )  # fmt: skip
        found: dict[str, list[str]] = {}
        for one in alone(result, words):
            found.setdefault(one.feature, []).append(one.said)
        return found


def _still(words: Wording, line: Line, values: Sequence[tuple[Value, bool]]) -> str:
    """Say how far a lever may move from a row that is a yes already."""

    def text(value: Value) -> str:
        told = line.told(value)
        return words.name(str(told)) if len(line.group) > 1 else words.value(line.name, told)

    if line.move == TO:
        sides = (("still enough", True), ("not enough", False))
        lists = {end: [text(value) for value, yes in values if yes is good] for end, good in sides}
        return "; ".join(
            f"{listed(found)} {'is' if len(found) == 1 else 'are'} {end}"
            for end, found in lists.items()
            if found
        )
    refused = next((i for i, (_, yes) in enumerate(values) if not yes), len(values))
    if refused == 0:
        return f"not enough at {text(values[0][0])}"
    last = f"still enough {line.move} to {text(values[refused - 1][0])}"
    return last if refused == len(values) else f"{last} ({text(values[refused][0])} is not)"
