"""Ways: of all rows that were asked, the few plans that a person is shown.

An option *holds* if it is still a yes with its numbers 10 % and 50 % farther; it is *irreducible*
if none of its changes can be left out, and *tight* if, besides, none of its numbers can be walked
back by a tenth. Each of these is known from rows that were asked and from nothing else: true,
false, or null where a row was not asked. `Checks` makes those rows, for searches and for judges
alike.

A *way* is the cheapest option of its set of levers that holds and is irreducible; other levels,
directions and values for the same levers are its variants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from waysout.domain.problem import Problem
from waysout.domain.result import Option, Safer, Standing, Way
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

_VARIANTS = 5
_HALVINGS = 3
_TIE = 1e-6  # of a step
_COST_DIGITS = 9  # a sum in another order is the same cost


@dataclass(frozen=True, slots=True)
class Asked:
    """A row that was asked: its probability, whether it is an option, the reasons given for it."""

    probability: float
    valid: bool
    reasons: tuple[str, ...] = ()


class Move(NamedTuple):
    """What a row does to one lever: the values it sets and, where they have an order, the span."""

    to: tuple[Value, ...]
    span: tuple[float, float] | None
    """From where to where."""

    def goes_as_far_as(self, other: Move) -> bool:
        """Whether this is the other move, or goes on from it in the same direction."""
        if self.to == other.to:
            return True
        if self.span is None or other.span is None:
            return False
        (now, far), (_, there) = self.span, other.span
        return min(now, far) <= there <= max(now, far)


class Checks:
    """The rows that tell whether options of one query are irreducible, tight, and hold.

    None of them breaks a rule. What follows a lever by a link or in a one-hot group goes with it.
    """

    def __init__(self, problem: Problem, query: Row) -> None:
        self.problem = problem
        self.query = query
        self.levers = problem.rules.levers(query)
        self._known: dict[tuple[str, Row], list[Row]] = {}
        self._moves: dict[Row, dict[str, Move]] = {}

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
        return self._allowed(self._parts(row))

    def _parts(self, row: Row) -> Iterator[Row]:
        levers = list(self.moves(row))
        fewest = 1 if len(levers) <= MOST_SUBSETS else len(levers) - 1
        sizes = range(len(levers) - 1, fewest - 1, -1)
        kept = (part for size in sizes for part in combinations(levers, size))
        return (self.problem.rules.only(self.query, row, part) for part in kept)

    def _farther(self, row: Row) -> list[Row]:
        pushed = (self.pushed(row, share) for share in FARTHER)
        return [far for far in dict.fromkeys(pushed) if far != row]

    def pushed(self, row: Row, share: float) -> Row:
        """Return a row with its numbers farther: all at once, else each as far as the rules allow.

        Together, two numbers may keep a rule that each of them alone would break.
        """
        numbers = self.numbers(row)
        together = self._push(row, numbers, share)
        if not self.problem.violations(self.query, together):
            return together
        for name in numbers:
            for halving in range(_HALVINGS):
                pushed = self._push(row, {name: numbers[name]}, share / 2**halving)
                if not self.problem.violations(self.query, pushed):
                    row = pushed
                    break
        return row

    def _push(self, row: Row, numbers: Mapping[str, tuple[float, float]], share: float) -> Row:
        edits: dict[str, Value] = {}
        for name, (now, there) in numbers.items():
            lever, by = self.levers[name], there - now
            # Between two values of a grid it is the farther one, whichever the direction.
            value = nearest_to(lever, there + share * by + math.copysign(_TIE * step_of(lever), by))
            far = place(lever, value)
            if far is not None and (far - there) * by > 0:
                edits[name] = value
        return self.problem.rules.apply(row, edits)

    def _nearer(self, row: Row) -> list[Row]:
        found = []
        for name in self.numbers(row):
            value = walked_back(self.levers[name], row[self.problem.schema.index(name)])
            if value is not None:
                found.append(self.problem.rules.apply(row, {name: value}))
        return self._allowed(found)

    def moves(self, row: Row) -> Mapping[str, Move]:
        """Return what a row does to each lever it moves."""
        if row not in self._moves:
            names = sorted(self.problem.rules.moved(self.query, row))
            self._moves[row] = {name: self._move(row, name) for name in names}
        return self._moves[row]

    def _move(self, row: Row, name: str) -> Move:
        features, lever = self.problem.rules.features_of(name), self.levers[name]
        to = tuple(row[self.problem.schema.index(feature)] for feature in features)
        now, there = place(lever, lever.now), place(lever, to[0])
        # A one-hot group has levels, even where its columns hold the numbers 0 and 1.
        if len(features) > 1 or now is None or there is None:
            return Move(to, None)
        return Move(to, (now, there))

    def numbers(self, row: Row) -> dict[str, tuple[float, float]]:
        """Return the moved levers that have an order: from where to where."""
        return {name: move.span for name, move in self.moves(row).items() if move.span is not None}

    def _allowed(self, rows: Iterable[Row]) -> list[Row]:
        return list(filter(self._is_allowed, dict.fromkeys(rows)))

    def _is_allowed(self, row: Row) -> bool:
        return row != self.query and not self.problem.violations(self.query, row)

    # What the answers say ----------------------------------------------------------------------

    def irreducible(self, row: Row, valid: Callable[[Row], bool | None]) -> bool | None:
        """Return whether every lever of an option is needed; ``valid`` tells what was asked."""
        if ("shorter", row) in self._known:
            return all_are(self.shorter(row), valid, False)
        # Of a hundred thousand options, few have a part that was asked: the rules are put only to
        # the parts that decide.
        unknown = []
        for part in self._parts(row):
            answer = valid(part)
            if answer is None:
                unknown.append(part)
            elif answer and self._is_allowed(part):
                return False
        return None if any(map(self._is_allowed, unknown)) else True

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
        moves = self.moves(other)
        return all(
            name in moves and moves[name].goes_as_far_as(move)
            for name, move in self.moves(one).items()
        )


def preference(checks: Checks, row: Row, cost: float, named: bool) -> tuple[float, float, bool]:
    """Return the order of options: by cost, then levels that go less far, then named ones."""
    schema = checks.problem.schema
    spans = checks.numbers(row).items()
    # Levels in order cost the same, however many lie between.
    levels = sum(abs(far - now) for name, (now, far) in spans if not schema[name].is_numeric)
    return round(cost, _COST_DIGITS), levels, not named


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


def nearest_to(lever: Lever, target: float, room: float = 0.0) -> Value:
    """Return the admitted value nearest to a place on a lever that has an order.

    Within ``room``, a number of fewer digits is nearer: people read and say these.

    >>> from waysout.domain.schema import Feature
    >>> income = Lever.of(Feature("income", "number", range=(0, 900)), 240)
    >>> nearest_to(income, 312.4871), nearest_to(income, 312.4871, room=20)
    (312.4871, 310.0)
    """
    if lever.feature.is_numeric:
        if room > 0:
            target = round(target, -math.floor(math.log10(room)))
        return lever.towards(min(max(target, lever.low), lever.high), must_move=True)
    gaps = {c: abs(lever.feature.encode(c) - target) for c in lever.choices() or ()}
    return min(gaps, key=gaps.__getitem__, default=None)


def step_of(lever: Lever) -> float:
    """Return what lies between two values of a lever that has an order; 0 if nothing need to."""
    if lever.feature.is_numeric:
        return lever.step or lever.feature.resolution or 0.0
    return 1.0


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
        gaps = {c: abs(lever.feature.encode(c) - target) for c in choices if between(c)}
        return min(gaps, key=gaps.__getitem__, default=None)
    step = math.copysign(step_of(lever), now - there)
    # One step back may be barred by name.
    steps = (there + step * count for count in range(1, len(lever.never) + 2))
    nearer = (nearest_to(lever, aim) for aim in (target, *steps))
    return next(filter(between, nearer), None)


# From rows to ways -------------------------------------------------------------------------------


def find_ways(problem: Problem, query: Row, asked: Mapping[Row, Asked]) -> tuple[Way, ...]:
    """Return the ways among rows that were asked, best first.

    Those known to hold and to be irreducible come first, then those of which not everything was
    asked, each by cost. An option that is known not to hold is a way only where no other is.
    """
    judge = _Judge(problem, query, asked)
    sets: dict[frozenset[str], list[Row]] = {}
    for row in judge.by_cost:
        sets.setdefault(frozenset(judge.checks.moves(row)), []).append(row)
    best: dict[frozenset[str], Row] = {}
    # Fewer levers first: what they can do decides which larger sets are worth a look.
    for levers in sorted(sets, key=len):
        lighter = [row for other, row in best.items() if other < levers]
        if (found := judge.cheapest(sets[levers], lighter)) is not None:
            best[levers] = found
    only_pockets = all(judge.standing(row) is Standing.POCKET for row in best.values())
    shown = {
        levers: row
        for levers, row in best.items()
        if only_pockets or judge.standing(row) is not Standing.POCKET
    }
    ranked = sorted(shown, key=lambda levers: judge.rank(shown[levers]))
    return tuple(judge.way(shown[levers], sets[levers]) for levers in ranked)


class _Judge:
    """What is known of the options among rows that were asked."""

    def __init__(self, problem: Problem, query: Row, asked: Mapping[Row, Asked]) -> None:
        self.checks = Checks(problem, query)
        self.asked = asked
        rows = [row for row, answer in asked.items() if answer.valid]
        self.costs = dict(zip(rows, problem.costs(query, rows).tolist(), strict=True))
        self.levels = problem.goal.safer
        self._standings: dict[Row, Standing | None] = {}

    @property
    def by_cost(self) -> list[Row]:
        """The options, from the cheapest on."""
        order = {
            row: preference(self.checks, row, cost, bool(self.asked[row].reasons))
            for row, cost in self.costs.items()
        }
        return sorted(order, key=order.__getitem__)

    def valid(self, row: Row) -> bool | None:
        """Return whether a row is an option; nothing if it was not asked."""
        answer = self.asked.get(row)
        return None if answer is None else answer.valid

    def standing(self, row: Row) -> Standing | None:
        """Return how an option stands; nothing if it can be shorter."""
        if row not in self._standings:
            needed = self.checks.irreducible(row, self.valid)
            holds = None if needed is False else self.checks.holds(row, self.valid)
            self._standings[row] = None if needed is False else Standing.of(holds, needed)
        return self._standings[row]

    def rank(self, row: Row) -> tuple[Standing, float]:
        """Return the order of ways."""
        standing = self.standing(row)
        assert standing is not None
        return standing, self.costs[row]

    def cheapest(self, rows: Iterable[Row], lighter: Sequence[Row]) -> Row | None:
        """Return the cheapest of the best standing among options of one lever set, if it is a way.

        ``lighter`` are the ways with some of these levers; ``rows`` go from the cheapest on.
        """
        best = None
        for row in rows:
            if self._beaten(row, Standing.SOUND, lighter):
                break  # whatever its standing, and so are the dearer ones
            standing = self.standing(row)
            if standing is None or self._beaten(row, standing, lighter):
                continue
            if best is None or self.rank(row) < self.rank(best):
                best = row
            if standing is Standing.SOUND:
                break
        return best

    def _beaten(self, row: Row, standing: Standing, lighter: Sequence[Row]) -> bool:
        ranks = map(self.rank, lighter)
        return any(known <= standing and self.costs[row] > LESS * cost for known, cost in ranks)

    def way(self, row: Row, alike: Sequence[Row]) -> Way:
        """Return an option as a way; ``alike`` are the options of its lever set."""
        checks = self.checks
        return Way(
            **vars(self._option(row)),
            levers=tuple(checks.moves(row)),
            cost=self.costs[row],
            irreducible=checks.irreducible(row, self.valid),
            tight=checks.tight(row, self.valid),
            holds=checks.holds(row, self.valid),
            variants=tuple(map(self._option, self._variants(row, alike))),
            safer=tuple(filter(None, (self._safer(row, level) for level in self.levels))),
        )

    def _safer(self, row: Row, level: float) -> Safer | None:
        """Return the cheapest option of at least a chance that makes all changes of a way, or more.

        One with the same levers comes first: it is the same plan, carried farther.
        """
        likely = (other for other in self.costs if self.asked[other].probability >= level)
        fit = [other for other in likely if self.checks.covers(row, other)]
        levers = len(self.checks.moves(row))
        best = min(
            fit,
            key=lambda other: (len(self.checks.moves(other)) > levers, self.costs[other]),
            default=None,
        )
        return None if best is None else Safer(**vars(self._option(best)), at_least=level)

    def _variants(self, row: Row, alike: Sequence[Row]) -> list[Row]:
        """Return other options of a lever set that do not just go farther than one before them.

        None is known to fail where the way itself is not.
        """
        worst = max(Standing.OPEN, self.rank(row)[0])
        fit = [r for r in alike if (standing := self.standing(r)) is not None and standing <= worst]
        found = [row]
        for other in sorted(fit, key=self.rank):
            if len(found) > _VARIANTS:
                break
            if not any(self.checks.covers(known, other) for known in found):
                found.append(other)
        return found[1:]

    def _option(self, row: Row) -> Option:
        answer = self.asked[row]
        return self.checks.problem.option(
            self.checks.query, row, answer.probability, answer.reasons
        )


def overlap(levers: Collection[str], others: Iterable[Collection[str]]) -> float:
    """Return the largest share of levers that a set has in common with one of others.

    >>> overlap({"a", "b"}, [{"b", "c"}, {"d"}])
    0.3333333333333333
    """
    mine = set(levers)
    return max((len(mine & set(o)) / len(mine | set(o)) for o in others), default=0.0)
