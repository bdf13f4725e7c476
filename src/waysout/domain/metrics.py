"""How good a set of options is, and how a search went. Plain numbers; no judgement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from waysout.domain.distance import Distance, Matrix, proximity
from waysout.domain.problem import Problem
from waysout.domain.schema import Row

Metrics = dict[str, float | int | None]

NEIGHBOURS = 5
# Training tables can hold a million rows, and the mean over five neighbours needs no more.
MOST_REFERENCES = 10_000
# Neighbours are looked for among all options, but for no more than so many of them.
MOST_MEASURED = 1000


def set_metrics(
    problem: Problem, query: Row, rows: Sequence[Row], approved: Matrix | None = None
) -> Metrics:
    """Return what can be said of the unique valid rows, one per key, as a set.

    ``proximity`` is the mean of 1/(1+d) to the query, ``sparsity`` the mean number of changes,
    ``novelty`` the mean distance to the nearest other row (0 for a set of one), ``lever_sets`` the
    number of distinct sets of changed features. ``plausibility`` is the mean distance to the five
    nearest ``approved`` training rows, encoded by `Schema.encode`: small is good. More than 10,000
    of those are thinned out evenly; of more than 1,000 options, ``novelty`` and ``plausibility``
    are means over 1,000 spread evenly. A mean over nothing is None.
    """
    matrix = problem.schema.encode(rows)
    return {
        "unique_valid": len(rows),
        "proximity": _mean_proximity(problem, query, matrix),
        "sparsity": _mean([problem.rules.count_changes(query, row) for row in rows]),
        "novelty": _mean_novelty(problem.distance, matrix),
        "lever_sets": len({problem.rules.moved(query, row) for row in rows}),
        "plausibility": _mean_plausibility(problem.distance, matrix, approved),
    }


def irreducible(problem: Problem, query: Row, rows: Sequence[Row]) -> list[bool]:
    """Return for each option whether it needs every lever it moves.

    It does unless one of them can be put back, with all that followed it, and what is left is still
    approved and breaks no rule. This judges a finished search and is no part of one: the rows go to
    the oracle in one batch, together with the query, and stand in no ledger.
    """
    shorter = [list(_with_one_put_back(problem, query, row)) for row in rows]
    answers = problem.oracle.ask([query, *(row for found in shorter for row in found)])
    met = iter(problem.goal.for_query(float(answers.probability[0])).met(answers)[1:].tolist())
    return [not any(list(islice(met, len(found)))) for found in shorter]


def _with_one_put_back(problem: Problem, query: Row, row: Row) -> Iterator[Row]:
    """Yield what the rules allow of a row's edits without one of them."""
    for lever in sorted(problem.rules.moved(query, row)):
        shorter = problem.rules.put_back(query, row, lever)
        if shorter != query and not problem.violations(query, shorter):
            yield shorter


def run_metrics(valid: int, evaluated: int, pruned: int, generated: int) -> Metrics:
    """Return how a search went, duplicates included; a share of nothing is None.

    >>> run_metrics(valid=30, evaluated=120, pruned=30, generated=150)["validity_pct"]
    25.0
    """
    return {
        "valid": valid,
        "generated": generated,
        "pruned": pruned,
        "evaluated": evaluated,
        "prune_pct": _percent(pruned, pruned + evaluated),
        "validity_pct": _percent(valid, evaluated),
    }


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _percent(part: int, whole: int) -> float | None:
    return 100.0 * part / whole if whole else None


def _mean_proximity(problem: Problem, query: Row, matrix: Matrix) -> float | None:
    distances = problem.distance.between(problem.schema.encode([query])[0], matrix)
    return _mean([proximity(d) for d in distances])


def _mean_novelty(distance: Distance, matrix: Matrix) -> float | None:
    if len(matrix) == 1:
        return 0.0
    return _mean([_nearest_other(distance, i, matrix) for i in _spread(matrix, MOST_MEASURED)])


def _nearest_other(distance: Distance, i: int, matrix: Matrix) -> float:
    distances = distance.between(matrix[i], matrix)
    distances[i] = np.inf
    return float(distances.min())


def _mean_plausibility(distance: Distance, matrix: Matrix, approved: Matrix | None) -> float | None:
    if approved is None or not len(approved):
        return None
    approved, matrix = (
        approved[_spread(approved, MOST_REFERENCES)],
        matrix[_spread(matrix, MOST_MEASURED)],
    )
    return _mean([_mean_nearest(distance.between(row, approved)) for row in matrix])


def _spread(matrix: Matrix, most: int) -> NDArray[np.intp]:
    """Return the places of at most so many rows, spread evenly."""
    count = len(matrix)
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).astype(np.intp)


def _mean_nearest(distances: Matrix) -> float:
    if len(distances) > NEIGHBOURS:
        distances = np.partition(distances, NEIGHBOURS)[:NEIGHBOURS]
    return float(distances.mean())
