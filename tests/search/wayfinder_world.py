"""Small tables and models to try `wayfinder` on, and what is asked of a search."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from recombine_world import Says, make_case, make_problem, number, run, silent
from small_world import Played

from waysout.domain.problem import Problem
from waysout.domain.rules import Rule
from waysout.domain.schema import Feature, Row, Schema, Value
from waysout.domain.ways import Asked, Checks, find_ways
from waysout.llm.base import Reply, Request
from waysout.search.base import Case
from waysout.search.wayfinder import Wayfinder, WayfinderSearch
from waysout.search.work import Evaluate

GRID = Schema(
    (
        Feature("a", "integer", range=(0, 9)),
        Feature("b", "integer", range=(0, 9)),
        Feature("d", "integer", range=(-9, 0)),
        Feature("c", "category", levels=("x", "y", "z")),
    )
)
START: Row = (0, 0, 0, "x")
EVERY_ROW: list[Row] = [
    row
    for row in itertools.product(range(10), range(10), range(-9, 1), ("x", "y", "z"))
    if row != START
]


def logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def yes_if(says: Callable[[Row], bool], *, labels_only: bool = False) -> Says:
    """Return a model that knows no more than yes and no."""
    return Says(lambda row: 0.9 if says(row) else 0.1, labels_only=labels_only)


def wayfinder(
    given_case: Case, talk: Callable[[Request], Reply] = silent, **settings: object
) -> WayfinderSearch:
    found = run(Wayfinder(**settings), given_case, talk)  # type: ignore[arg-type]
    assert isinstance(found, WayfinderSearch)
    return found


def ways(search: WayfinderSearch) -> list[dict[str, Value]]:
    """Return what each way changes, and to what."""
    return [{name: to for name, (_, to) in way.changes.items()} for way in search.archive.ways()]


def levers(search: WayfinderSearch) -> list[tuple[str, ...]]:
    return [way.levers for way in search.archive.ways()]


def all_ways_cost(problem: Problem, query: Row, rows: list[Row]) -> list[float]:
    """Return what the ways cost that asking every row would show."""
    answers = problem.oracle.ask(rows)
    said = zip(answers.probability.tolist(), answers.decision.tolist(), strict=True)
    asked = {row: Asked(chance, yes) for row, (chance, yes) in zip(rows, said, strict=True)}
    return [way.cost for way in find_ways(problem, query, asked)]


def asked_again(problem: Problem, query: Row, row: Row) -> tuple[bool | None, ...]:
    """Ask the model itself whether an option is irreducible, tight, and holds."""

    def valid(other: Row) -> bool:
        return bool(problem.oracle.ask([other]).decision[0])

    checks = Checks(problem, query)
    return checks.irreducible(row, valid), checks.tight(row, valid), checks.holds(row, valid)


def asked_rows(played: Played) -> list[Row]:
    return [row for work in played.works if isinstance(work, Evaluate) for row in work.rows]


@dataclass(eq=False)
class Labelled:
    """Rows whose outcome is known."""

    rows: list[Row]
    labels: list[bool]


def known_of(rows: list[Row], yes: Callable[[Row], bool]) -> Labelled:
    return Labelled(rows, [yes(row) for row in rows])


def people(schema: Schema, count: int, seed: int = 0) -> list[Row]:
    """Return rows of whole numbers below 100, one column like the other."""
    drawn = np.random.default_rng(seed).integers(0, 100, (count, len(schema)))
    return [tuple(float(value) for value in row) for row in drawn.tolist()]


def scored(weights: tuple[float, ...], bias: float) -> Says:
    """Return a model that adds up numbers."""

    def chance(row: Row) -> float:
        return logistic(sum(w * number(v) for w, v in zip(weights, row, strict=False)) + bias)

    return Says(chance)


def grid_case(oracle: Says, *rules: Rule, rows: int = 60, seed: int = 0) -> Case:
    return make_case(make_problem(GRID, oracle, *rules), START, rows=rows, seed=seed)
