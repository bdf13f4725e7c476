"""What there is to be found for a query, whatever a method found: a proof and an enumeration.

Both belong to a table, its oracle, the rules and the query. They are computed once, and kept in the
cache for all arms and processes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np

from waysout.bench.arms import ID_LENGTH, digest
from waysout.bench.lasting import cache_folder
from waysout.domain.problem import Problem
from waysout.domain.rules import Lever
from waysout.domain.schema import Row, Value
from waysout.domain.ways import LESS, Checks, nearest_to, place

if TYPE_CHECKING:
    from waysout.bench.measure import Environment

ENOUGH = 10
"""Ways after which an enumeration ends: twice five, as one of fewer levers may yet be cheaper."""
MOST_LEVERS = 3
QUANTILES, FRACTIONS = 16, 8
_EXAMINED = 24  # approved rows of one lever set that are looked at closely
_STEPS = {1: 2 * (QUANTILES + FRACTIONS), 2: 20, 3: 8}  # values of a lever, by the set's size
_VERSION = 1  # of what is computed: another one is another file

Valid = Callable[[Sequence[Row]], list[bool]]


def least_cost(where: Environment, rules: str, query: Row, seconds: float) -> Mapping[str, Any]:
    """Return the proved least cost of a yes: its ``kind``, ``cost`` and ``bound``."""

    def prove() -> dict[str, Any]:
        from waysout.oracles.certify import certify

        proof = certify(where.problem(rules), query, seconds=seconds)
        found = proof.as_dict()
        return {name: found[name] for name in ("kind", "cost", "bound", "seconds")}

    return _kept(where, rules, query, f"least-{seconds:g}", prove)


def ways_there(where: Environment, rules: str, query: Row, rows: int) -> Mapping[str, Any]:
    """Return ``levers`` and ``costs`` of the ways that an enumeration of so many rows finds.

    ``whole``: whether it went through all lever sets, so that fewer than `ENOUGH` means that there
    are no more on its grid.
    """

    def enumerate_ways() -> dict[str, Any]:
        # Past the cache of answers: so many rows, none of them asked twice, would only fill it.
        problem = replace(where.problem(rules), oracle=where.oracle.oracle)
        found = Enumeration(problem, query, where.training, rows)
        ways = found.ways()
        return {
            "levers": [sorted(way.levers) for way in ways],
            "costs": [way.cost for way in ways],
            "whole": not found.cut,
            "rows": found.asked,
        }

    return _kept(where, rules, query, f"ways-{rows}", enumerate_ways)


def _kept(
    where: Environment, rules: str, query: Row, what: str, make: Callable[[], dict[str, Any]]
) -> Mapping[str, Any]:
    """Return what is on file, or compute it and file it."""
    from waysout.domain.result import plain
    from waysout.files import write_atomically
    from waysout.run.plan import describe

    problem = where.problem(rules)
    of_rules = where.once(("described", rules), lambda: digest(plain(describe(problem))))
    known = digest([_VERSION, of_rules, plain(query)])[:ID_LENGTH]
    path = cache_folder(where) / "yardsticks" / f"{what}-{known}.json"

    def load() -> Mapping[str, Any]:
        if not path.exists():
            write_atomically(path, json.dumps(make()).encode())
        found: dict[str, Any] = json.loads(path.read_bytes())
        return found

    return where.once(path, load)


# Enumeration -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    levers: frozenset[str]
    cost: float


class Enumeration:
    """The ways of a query, on a fine grid of up to three levers, until `ENOUGH` are known.

    Lever sets are tried by size, and in each size first those whose levers, each alone, bring the
    model nearest to a yes. Sets of two and three have coarser grids, of `_STEPS` values a lever.
    """

    def __init__(self, problem: Problem, query: Row, training: Sequence[Row], rows: int) -> None:
        self.problem, self.query, self.most = problem, query, rows
        self.asked = 0
        self.cut = False
        self.checks = Checks(problem, query)
        self._goal = problem.goal.for_query(float(problem.oracle.ask([query]).probability[0]))
        levers = problem.rules.levers(query)
        self.grid = {
            name: found
            for i, (name, lever) in enumerate(levers.items())
            if lever.is_open and (found := grid_values(lever, [row[i] for row in training]))
        }
        self._reach: dict[str, float] = {}

    def ways(self) -> list[_Found]:
        """Return the ways found, `ENOUGH` at most."""
        found: list[_Found] = []
        for levers in self._sets():
            if self.asked >= self.most:
                self.cut = True
                break
            best = self._best(levers)
            lighter = [other for other in found if best and other.levers < best.levers]
            if best and all(best.cost <= LESS * other.cost for other in lighter):
                found.append(best)
            if len(found) == ENOUGH:
                break
        return found

    def _sets(self) -> Iterator[tuple[str, ...]]:
        for size in range(1, min(MOST_LEVERS, len(self.grid)) + 1):
            # Once a lever was tried alone it is known how far it reaches.
            sets = combinations(sorted(self.grid), size)
            yield from sorted(
                sets, key=lambda some: -sum(self._reach.get(name, 0.0) for name in some)
            )

    def _best(self, levers: Sequence[str]) -> _Found | None:
        """Return the cheapest option that moves just these levers, is irreducible and holds."""
        rows = self._rows(levers)
        if not rows:
            return None
        answers = self.problem.oracle.ask(rows)
        self.asked += len(rows)
        if len(levers) == 1:
            chance = np.clip(answers.probability.max(), 1e-6, 1 - 1e-6)
            self._reach[levers[0]] = float(np.log(chance / (1 - chance)))
        met = np.flatnonzero(self._goal.met(answers))
        costs = self.problem.costs(self.query, [rows[i] for i in met])
        order = met[np.argsort(costs, kind="stable")].tolist()
        # The cheapest, and some of the others: the cheapest may all be pockets.
        half = _EXAMINED // 2
        near, far = order[:half], order[half:]
        looked = near + far[:: max(1, -(-len(far) // half))] if far else near
        candidates = [rows[i] for i in looked]
        firm = self._firm(candidates)
        if not any(firm):
            return None
        row = candidates[firm.index(True)]
        cost = float(self.problem.costs(self.query, [row])[0])
        return _Found(self.problem.rules.moved(self.query, row), cost)

    def _firm(self, rows: Sequence[Row]) -> list[bool]:
        checks = self.checks
        needed = dict.fromkeys(
            r for row in rows for r in (*checks.shorter(row), *checks.farther(row))
        )
        if not needed:
            return [True] * len(rows)
        met = self._goal.met(self.problem.oracle.ask(list(needed))).tolist()
        self.asked += len(needed)
        valid = dict(zip(needed, met, strict=True)).get
        return [bool(checks.irreducible(r, valid) and checks.holds(r, valid)) for r in rows]

    def _rows(self, levers: Sequence[str]) -> list[Row]:
        """Return the rows of a lever set that keep the rules."""
        values = [_thinned(self.grid[name], _STEPS[len(levers)]) for name in levers]
        problem, query = self.problem, self.query
        found: dict[Row, None] = {}
        for chosen in product(*values):
            row = problem.rules.apply(query, dict(zip(levers, chosen, strict=True)))
            if problem.rules.moved(query, row) and not problem.violations(query, row):
                found[row] = None
        wanted = len(levers)
        return [row for row in found if len(problem.rules.moved(query, row)) == wanted]


def _thinned(values: Sequence[Value], most: int) -> list[Value]:
    """Return at most so many values, spread evenly over all."""
    if len(values) <= most:
        return list(values)
    return [values[i] for i in np.linspace(0, len(values) - 1, most).round().astype(int).tolist()]


def grid_values(lever: Lever, training: Sequence[Value]) -> list[Value]:
    """Return the values to try for a lever, some 24 in each direction, near ones and far ones.

    Of a number they are quantiles of the training values that lie in that direction, and even
    fractions of the way to the median of those.
    """
    choices, now = lever.choices(), place(lever, lever.now)
    if choices is not None or now is None:
        return list(choices or lever.sample(QUANTILES + FRACTIONS))
    known = [p for value in training if (p := place(lever, value)) is not None]
    numbers = np.array(known, dtype=np.float64)
    found: dict[Value, None] = {}
    for side in (numbers[numbers < now], numbers[numbers > now]):
        if not len(side):
            continue
        quantiles = np.quantile(side, np.linspace(0, 1, QUANTILES), method="nearest")
        way = np.median(side) - now
        fractions = now + way * np.arange(1, FRACTIONS + 1) / FRACTIONS
        for aim in sorted({*quantiles.tolist(), *fractions.tolist()}, key=lambda a: abs(a - now)):
            value = nearest_to(lever, aim)
            there = place(lever, value) if value is not None else None
            if there is not None and (there - now) * way > 0:
                found[value] = None
    return list(found)
