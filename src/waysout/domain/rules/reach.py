"""What can be reached at all: why rules about several features may leave a query nothing.

`Reach` tells the values that one feature has in any row within reach, each feature by itself. For
one rule that is exact, so a rule that no such row keeps is proved to have none. Rules may also rule
out everything only together: `refusals` looks at rows, at all of them where they are few.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from waysout.domain.rules.base import Lever, Violation, Wanted
from waysout.domain.rules.comparison import parse_comparison
from waysout.domain.rules.kinds import Linear
from waysout.domain.schema import LARGEST, Row, Value

if TYPE_CHECKING:
    from waysout.domain.rules import RuleSet

_MOST_ROWS = 2000
_VALUES_OF_ONE = 40


@dataclass(frozen=True, slots=True)
class Reach:
    """The values that a feature has in rows within reach.

    They are those of its ``lever``, and ``others``: the present one and, of a feature that follows
    another or stands in a one-hot group, what it is set to.
    """

    lever: Lever
    others: tuple[Value, ...]

    def numbers(self) -> tuple[float, float] | None:
        """Return the least and the greatest number; ``None`` where it may be missing."""
        if None in self.others:
            return None
        others = [float(v) for v in self.others if not isinstance(v, str) and v is not None]
        ends = [*others, *self._ends()]
        return min(ends), max(ends)

    def _ends(self) -> tuple[float, ...]:
        return self.lever.ends() or ()

    def can_meet(self, wanted: Wanted) -> bool:
        """Whether some value meets a condition; one that is missing meets none."""
        if any(v is not None and wanted(v) for v in self.others):
            return True
        if wanted.values is not None:
            return any(map(self.lever.admits, wanted.values))
        return self.lever.within(wanted.low, wanted.high).is_open

    def can_miss(self, wanted: Wanted) -> bool:
        """Whether some value does not meet a condition, or is missing."""
        if any(v is None or not wanted(v) for v in self.others):
            return True
        if not self.lever.is_open:
            return False
        if wanted.values is None:
            return any(not wanted(end) for end in self._ends())
        listed = len(wanted.values) + len(self.lever.never)
        return any(not wanted(v) for v in self.lever.sample(listed + 3))


def reach_of(rules: RuleSet, query: Row) -> dict[str, Reach]:
    """Return for each feature what it can be in rows within reach of a query."""
    levers = rules.levers(query)
    found = {name: Reach(lever, (lever.now,)) for name, lever in levers.items()}
    for group in rules.groups:
        for name in group:
            # Another one is set, and clears this one.
            lever, off = levers[name], False if rules.schema[name].kind == "boolean" else 0
            if not lever.blocked:
                found[name] = Reach(lever, (lever.now, off))
    for source, target, table in rules.links:
        above = found[source]
        moved = [due for value, due in table.items() if _may_be(above, value)]
        found[target] = Reach(levers[target], tuple(dict.fromkeys((*found[target].others, *moved))))
    return found


def _may_be(reach: Reach, value: Value) -> bool:
    return value in reach.others or reach.lever.admits(value)


@dataclass(frozen=True, slots=True)
class Refusals:
    """Rows that were put to the rules, all in vain, and the rules that refused them."""

    rows: int
    complete: bool
    binding: tuple[Violation, ...]

    @property
    def reason(self) -> str:
        """Say it in a sentence."""
        tried = "within reach" if self.complete else "tried within reach"
        rules = " and ".join(repr(violation.rule) for violation in self.binding)
        none = f"none of the {self.rows:,} rows {tried} keeps the rules"
        return f"{none}: {rules} {'rules' if len(self.binding) == 1 else 'rule'} them out"


def refusals(rules: RuleSet, query: Row) -> Refusals | None:
    """Return which rules refuse every row that an edit can make; ``None`` where one is left.

    All rows are looked at where they are few, else some drawn from them.
    """
    every = every_row(rules, query, _MOST_ROWS)
    rows = _drawn(rules, query, _open(rules, query)) if every is None else every
    seen: dict[Row, tuple[Violation, ...]] = {}
    for row in rows:
        if row == query or row in seen:
            continue
        broken = rules.violations(query, row)
        if not broken:
            return None
        seen[row] = broken
    binding = _binding(list(seen.values()))
    return Refusals(len(seen), every is not None, binding) if seen else None


def every_row(rules: RuleSet, query: Row, most: int) -> Iterator[Row] | None:
    """Return every row that edits can make, the query and repeats among them.

    ``None`` where there may be more than ``most``. Rules about several features are not asked.
    """
    levers = _open(rules, query)
    lists = {name: _all_values(lever, most) for name, lever in levers.items()}
    sizes = [math.inf if values is None else 1 + len(values) for values in lists.values()]
    if math.prod(sizes) > most:
        return None
    chosen = product(*([(name, v) for v in (levers[name].now, *values)]
                       for name, values in lists.items() if values is not None))  # fmt: skip
    kept = ({n: v for n, v in edits if v != levers[n].now} for edits in chosen)
    return (rules.apply(query, edits) for edits in kept)


def _open(rules: RuleSet, query: Row) -> dict[str, Lever]:
    return {name: lever for name, lever in rules.levers(query).items() if lever.is_open}


def _all_values(lever: Lever, most: int) -> tuple[Value, ...] | None:
    """Return all values of a lever, or ``None`` where they are too many."""
    choices = lever.choices()
    if choices is not None:
        return choices
    low, high = lever.ends() or (0.0, 0.0)
    step = lever.step or lever.feature.resolution
    if step is None or not (high - low) / step < most:
        return None
    return lever.sample(2 + round((high - low) / step))


def _drawn(rules: RuleSet, query: Row, levers: dict[str, Lever]) -> Iterator[Row]:
    """Draw rows: every lever alone, then several at once."""
    for name, lever in levers.items():
        for value in lever.sample(_VALUES_OF_ONE):
            yield rules.apply(query, {name: value})
    rng, names = np.random.default_rng(0), list(levers)
    for _ in range(_MOST_ROWS):
        count = int(rng.integers(1, len(names) + 1))
        chosen = [names[i] for i in rng.permutation(len(names))[:count]]
        drawn = {name: levers[name].draw(rng) for name in chosen}
        row = rules.apply(query, {name: v for name, v in drawn.items() if levers[name].admits(v)})
        yield row
        yield from _balanced(rules, levers, row)


def _balanced(rules: RuleSet, levers: dict[str, Lever], row: Row) -> Iterator[Row]:
    """Set one number so that a linear rule just holds: hardly any drawn row meets an equation."""
    for rule in rules.rules:
        if not isinstance(rule, Linear):
            continue
        parsed = parse_comparison(rule.that)
        values = {name: row[rules.schema.index(name)] for name, _ in parsed.terms}
        if None in values.values():
            continue
        total = parsed.left_side([float(value or 0) for value in values.values()])
        for name, c in parsed.terms:
            lever = levers.get(rules.schema[name].name)
            if lever is not None and lever.feature.is_numeric:
                aim = float(values[name] or 0) - total / c
                near = lever.feature.coerce(min(max(aim, -LARGEST), LARGEST))
                yield rules.apply(row, {name: lever.towards(near)})


def _binding(refused: list[tuple[Violation, ...]]) -> tuple[Violation, ...]:
    """Return the rules that refuse all rows: one alone where there is such a one, else several."""
    left, found = refused, []
    while left:
        counts = Counter(label for broken in left for label in {v.rule for v in broken})
        most = max(counts.values())
        best = [label for label, count in counts.items() if count == most]
        # Each that alone refuses all is named; of several that do so together, one after the other.
        for label in best if most == len(refused) else best[:1]:
            first = next(v for broken in left for v in broken if v.rule == label)
            share = "each of them" if most == len(refused) else f"{most:,} of them"
            reason = f"{share}, for example: {first.reason}"
            found.append(Violation(label, first.features, reason, first.part))
        left = [broken for broken in left if not {v.rule for v in broken} & set(best)]
    return tuple(found)
