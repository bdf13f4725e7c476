"""Ways: of all rows that were asked, the few plans that a person is shown.

An option *holds* if it is still a yes with its numbers 10 % and 50 % farther; it is *irreducible*
if none of its changes can be left out, and *tight* if, besides, none of its numbers can be walked
back by a tenth. Each of these is known from rows that were asked and from nothing else: it is true,
false, or null where a row was not asked. `Checks` makes those rows, for searches and for judges.

A *way* is the cheapest option of its set of levers that holds and is irreducible; other levels,
directions and values for the same levers are its variants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

import numpy as np

from waysout.domain.problem import Problem
from waysout.domain.result import Option, Way
from waysout.domain.rules import Lever
from waysout.domain.schema import Row, Value

FARTHER = (0.1, 0.5)
"""How much farther an option's numbers are pushed to see whether it holds."""
BACK = 0.1
"""How much of its change a number is walked back to see whether an option is tight."""
MOST_SUBSETS = 4
"""Levers up to which every subset is asked; of more, only those that leave a single lever out."""
LESS = 0.9
"""What a way may cost, at most, of one that does with some of its levers."""

_EXAMINED = 12  # options of one lever set, from the cheapest on
_VARIANTS = 5
_HALVINGS = 3

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """A row that was asked: its probability, whether it is an option, the reasons given for it."""

    probability: float
    valid: bool
    reasons: tuple[str, ...] = ()


class Checks:
    """The rows that tell whether options of one query are irreducible, tight, and hold.

    None of them breaks a rule. What follows a lever by a link or in a one-hot group goes with it.
    """

    def __init__(self, problem: Problem, query: Row) -> None:
        self.problem = problem
        self.query = query
        self.levers = problem.rules.levers(query)
        self._known: dict[tuple[str, Row], list[Row]] = {}

    def shorter(self, row: Row) -> list[Row]:
        """Return the row without some of its levers: all subsets, or all but one of many."""
        return self._once("shorter", row, self._shorter)

    def farther(self, row: Row) -> list[Row]:
        """Return the row with all its numbers farther, as far as the rules allow."""
        return self._once("farther", row, self._farther)

    def nearer(self, row: Row) -> list[Row]:
        """Return the row with each of its numbers walked back in turn."""
        return self._once("nearer", row, self._nearer)

    def _once(self, what: str, row: Row, make: Callable[[Row], list[Row]]) -> list[Row]:
        key = (what, row)
        if key not in self._known:
            self._known[key] = make(row)
        return self._known[key]

    def _shorter(self, row: Row) -> list[Row]:
        moved = sorted(self.problem.rules.moved(self.query, row))
        fewest = 1 if len(moved) <= MOST_SUBSETS else len(moved) - 1
        kept = (
            part for n in range(len(moved) - 1, fewest - 1, -1) for part in combinations(moved, n)
        )
        return self._allowed(self.problem.rules.only(self.query, row, part) for part in kept)

    def _farther(self, row: Row) -> list[Row]:
        found = []
        for share in FARTHER:
            for _ in range(_HALVINGS):
                pushed = self._pushed(row, share)
                if not self.problem.violations(self.query, pushed):
                    found.append(pushed)
                    break
                share /= 2
        return [far for far in dict.fromkeys(found) if far != row]

    def _pushed(self, row: Row, share: float) -> Row:
        edits: dict[str, Value] = {}
        for name, (now, there) in self.numbers(row).items():
            value = nearest_to(self.levers[name], there + share * (there - now))
            far = None if value is None else place(self.levers[name], value)
            if far is not None and (far - there) * (there - now) > 0:
                edits[name] = value
        return self.problem.rules.apply(row, edits)

    def _nearer(self, row: Row) -> list[Row]:
        found = []
        for name in self.numbers(row):
            value = walked_back(self.levers[name], row[self.problem.schema.index(name)])
            if value is not None:
                found.append(self.problem.rules.apply(row, {name: value}))
        return self._allowed(found)

    def numbers(self, row: Row) -> dict[str, tuple[float, float]]:
        """Return the moved levers that have an order: from where to where."""
        found = {}
        for name in sorted(self.problem.rules.moved(self.query, row)):
            lever = self.levers[name]
            now, there = place(lever, lever.now), place(lever, row[self.problem.schema.index(name)])
            if now is not None and there is not None:
                found[name] = (now, there)
        return found

    def _allowed(self, rows: Iterable[Row]) -> list[Row]:
        broken = self.problem.violations
        wanted = dict.fromkeys(row for row in rows if row != self.query)
        return [row for row in wanted if not broken(self.query, row)]

    # What the answers say ----------------------------------------------------------------------

    def irreducible(self, row: Row, valid: Callable[[Row], bool | None]) -> bool | None:
        """Return whether every lever of an option is needed; ``valid`` tells what was asked."""
        return all_are(self.shorter(row), valid, False)

    def holds(self, row: Row, valid: Callable[[Row], bool | None]) -> bool | None:
        """Return whether an option stays one farther on."""
        return all_are(self.farther(row), valid, True)

    def tight(self, row: Row, valid: Callable[[Row], bool | None]) -> bool | None:
        """Return whether an option is irreducible and goes no farther than it must."""
        needed = self.irreducible(row, valid)
        if needed is False:
            return False
        at_the_edge = all_are(self.nearer(row), valid, False)
        return at_the_edge and needed

    def covers(self, one: Row, other: Row) -> bool:
        """Whether ``other`` moves all levers of ``one``, to the same level or at least as far."""
        rules, schema = self.problem.rules, self.problem.schema
        moved = rules.moved(self.query, one)
        if not moved <= rules.moved(self.query, other):
            return False
        numbers, others = self.numbers(one), self.numbers(other)
        for name in moved:
            at = schema.index(name)
            if one[at] == other[at]:
                continue
            if name not in numbers or name not in others:
                return False
            (now, there), (_, far) = numbers[name], others[name]
            if (far - now) * (there - now) <= 0 or abs(far - now) < abs(there - now):
                return False
        return True


def all_are(rows: Sequence[Row], valid: Callable[[Row], bool | None], wanted: bool) -> bool | None:
    """Return whether all rows are options, or none is; null where that is not known.

    >>> known = {("a",): True, ("b",): False}.get
    >>> all_are([("a",)], known, True), all_are([("a",), ("b",)], known, True)
    (True, False)
    >>> all_are([("a",), ("c",)], known, True) is None
    True
    """
    found = {valid(row) for row in rows}
    return False if (not wanted) in found else None if None in found else True


def place(lever: Lever, value: Value) -> float | None:
    """Return where a value lies on its lever; nothing where there is no order.

    A missing value has no place, nor has a code: a number that the rules bar by name.
    """
    if value is None or value in lever.never:
        return None
    if lever.feature.is_numeric:
        return float(value)
    return float(lever.feature.encode(value)) if lever.feature.ordered else None


def nearest_to(lever: Lever, target: float) -> Value:
    """Return the admitted value nearest to a place on a lever that has an order."""
    if lever.feature.is_numeric:
        return lever.towards(min(max(target, lever.low), lever.high), must_move=True)
    gaps = {c: abs(lever.feature.encode(c) - target) for c in lever.choices() or ()}
    return min(gaps, key=gaps.__getitem__, default=None)


def walked_back(lever: Lever, value: Value) -> Value:
    """Return a value a tenth of its change nearer, or the next admitted one; nothing if none is.

    >>> from waysout.domain.schema import Feature
    >>> income = Lever.of(Feature("income", "integer", range=(0, 900)), 240)
    >>> walked_back(income, 340), walked_back(income, 243), walked_back(income, 241)
    (330, 242, None)
    """
    now, there = place(lever, lever.now), place(lever, value)
    if now is None or there is None:
        return None

    def between(found: Value) -> bool:
        at = place(lever, found)
        return at is not None and min(now, there) < at < max(now, there)

    target = there + BACK * (now - there)
    choices = lever.choices()
    if choices is not None:
        gaps = {c: abs(float(lever.feature.encode(c)) - target) for c in choices if between(c)}
        return min(gaps, key=gaps.__getitem__, default=None)
    step = lever.step or lever.feature.resolution or 0.0
    for aim in (target, there + math.copysign(step, now - there)):
        found = nearest_to(lever, aim)
        if between(found):
            return found
    return None


# From rows to ways -------------------------------------------------------------------------------


def find_ways(problem: Problem, query: Row, asked: Mapping[Row, Asked]) -> tuple[Way, ...]:
    """Return the ways among rows that were asked, best first.

    Those known to hold and to be irreducible come first, then those of which not everything was
    asked, each by cost. An option that is known not to hold is a way only where no other is.
    """
    rows = [row for row, found in asked.items() if found.valid]
    if not rows:
        return ()
    checks, costs = Checks(problem, query), problem.costs(query, rows)
    sets: dict[frozenset[str], list[int]] = {}
    for i in np.argsort(costs, kind="stable").tolist():
        sets.setdefault(problem.rules.moved(query, rows[i]), []).append(i)

    def valid(row: Row) -> bool | None:
        found = asked.get(row)
        return None if found is None else found.valid

    def standing(i: int) -> int:
        """Return 0 for what is known to hold and to be irreducible, 3 for what can be shorter."""
        firm = checks.holds(rows[i], valid)
        needed = checks.irreducible(rows[i], valid)
        return 3 if needed is False else 2 if firm is False else int(None in (firm, needed))

    best: dict[frozenset[str], tuple[int, int]] = {}
    # Fewer levers first: what they can do decides which larger sets are worth a look.
    for levers in sorted(sets, key=lambda s: (len(s), costs[sets[s][0]])):
        lighter = [best[other] for other in best if other < levers]

        def beaten(level: int, i: int, lighter: list[tuple[int, int]] = lighter) -> bool:
            return any(n <= level and costs[i] > LESS * costs[j] for n, j in lighter)

        found: tuple[int, int] | None = None
        for i in sets[levers][:_EXAMINED]:
            if beaten(0, i):
                break  # and so are the dearer ones
            level = standing(i)
            if level < 3 and (found is None or level < found[0]) and not beaten(level, i):
                found = (level, i)
            if found is not None and found[0] == 0:
                break
        if found is not None:
            best[levers] = found
    least = min((level for level, _ in best.values()), default=3)
    kept = [(level, costs[i], i, levers) for levers, (level, i) in best.items() if level < 2]
    kept += [(2, costs[i], i, s) for s, (level, i) in best.items() if level == least == 2]
    made = []
    for _, cost, i, levers in sorted(kept, key=lambda item: item[:3]):
        others = [rows[j] for j in sets[levers] if j != i]
        made.append(_way(checks, rows[i], asked, valid, sorted(levers), float(cost), others))
    return tuple(made)


def _way(
    checks: Checks,
    row: Row,
    asked: Mapping[Row, Asked],
    valid: Callable[[Row], bool | None],
    levers: Sequence[str],
    cost: float,
    others: Sequence[Row],
) -> Way:
    problem, query = checks.problem, checks.query
    variants: list[Row] = []
    for other in others[: 4 * _EXAMINED]:
        if len(variants) == _VARIANTS:
            break
        if not any(checks.covers(known, other) for known in (row, *variants)):
            variants.append(other)

    def option(found: Row) -> Option:
        return problem.option(query, found, asked[found].probability, asked[found].reasons)

    return Way(
        **vars(option(row)),
        levers=tuple(levers),
        cost=cost,
        irreducible=checks.irreducible(row, valid),
        tight=checks.tight(row, valid),
        holds=checks.holds(row, valid),
        variants=tuple(map(option, variants)),
    )


def overlap(levers: Collection[str], others: Iterable[Collection[str]]) -> float:
    """Return the largest share of levers that a set has in common with one of others.

    >>> overlap({"a", "b"}, [{"b", "c"}, {"d"}])
    0.3333333333333333
    """
    mine = set(levers)
    return max((len(mine & set(o)) / len(mine | set(o)) for o in others), default=0.0)
