"""How good a set of options is, and how a search went. Plain numbers; no judgement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from waysout.domain.distance import Matrix, Neighbours, proximity
from waysout.domain.problem import Problem
from waysout.domain.schema import Row

Metrics = dict[str, float | int | None]

NEIGHBOURS = 5
# Training tables can hold a million rows, and the mean over five neighbours needs no more.
MOST_REFERENCES = 10_000
# Neighbours are looked for among all options, but for no more than this many of them: the cost of
# more grows with the square, at the moment when a stopped search has four seconds left.
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
    distance, matrix = problem.distance, problem.schema.encode(rows)
    nearness = distance.between(problem.schema.encode([query])[0], matrix)
    measured = _spread(matrix, MOST_MEASURED)
    novelty, plausibility = [0.0] if len(rows) == 1 else [], []
    options = Neighbours.of(distance, matrix)
    for i in measured if len(rows) > 1 else ():
        others = options.distances(matrix[i])
        others[i] = np.inf
        novelty.append(float(others.min()))
    if approved is not None and len(approved):
        known = Neighbours.of(distance, approved[_spread(approved, MOST_REFERENCES)])
        for row in matrix[measured]:
            near = known.distances(row)
            if len(near) > NEIGHBOURS:
                near = np.partition(near, NEIGHBOURS)[:NEIGHBOURS]
            plausibility.append(float(near.mean()))
    return {
        "unique_valid": len(rows),
        "proximity": _mean([proximity(d) for d in nearness]),
        "sparsity": _mean([problem.rules.count_changes(query, row) for row in rows]),
        "novelty": _mean(novelty),
        "lever_sets": len({problem.rules.moved(query, row) for row in rows}),
        "plausibility": _mean(plausibility),
    }


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


def _spread(matrix: Matrix, most: int) -> NDArray[np.intp]:
    """Return the indices of at most ``most`` rows, spread evenly."""
    count = len(matrix)
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).astype(np.intp)
