"""Embedding pruning: a candidate whose changes mean the same as another's is dropped.

After the paper's variant of SSDP: the changes from the query are written as a text and embedded,
and two candidates are the same when the cosine distance of their vectors is below τ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from waysout.domain.problem import Problem
from waysout.domain.schema import Row, format_number
from waysout.embed import Encoder
from waysout.search.prune.base import (
    WINDOW,
    EditCandidate,
    Members,
    Scope,
    Siblings,
    Verdict,
    in_scope,
)
from waysout.search.tree import ROOT, Tree

# The dot product of a float32 vector of length 1 with itself misses 1 by no more.
_ROUNDING = 1e-6


def change_text(problem: Problem, query: Row, row: Row) -> str:
    """Write what changes from the query to a row, the same for the same change.

    Features are in order of name, numbers as signed differences and categories as their new value:
    ``"loan_amount: -2000; term: +6"``. Changes that follow from the others (linked and one-hot
    features) are left out: they say nothing new.
    """
    schema = problem.schema
    changed = {name: after for name, (_, after) in problem.changes(query, row).items()}
    for name in tuple(changed):
        others = {n: v for n, v in changed.items() if n != name}
        if others and problem.rules.apply(query, others) == row:
            changed = others
    parts = []
    for name, after in sorted(changed.items()):
        feature, before = schema[name], query[schema.index(name)]
        text = feature.format(after)
        if feature.is_numeric and before is not None and after is not None:
            # In decimals, as a person subtracts: 0.3 - 0.1 is 0.2 and not 0.19999999999999998.
            delta = float(Decimal(repr(after)) - Decimal(repr(before)))
            text = f"{'+' if delta > 0 else ''}{format_number(delta)}"
        parts.append(f"{name}: {text}")
    return "; ".join(parts)


def cosine_distances(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return 1 - cos for each row of one matrix of unit rows with each of another."""
    distances = np.asarray(1 - a @ b.T)
    distances[distances < _ROUNDING] = 0
    return distances


def components(near: NDArray[np.bool_]) -> list[int]:
    """Label the connected components of an undirected graph.

    >>> components(np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]], dtype=bool))
    [0, 1, 0]
    """
    labels = np.arange(len(near))
    for i, j in np.argwhere(np.triu(near, 1)):
        labels[labels == labels[j]] = labels[i]
    return [int(label) for label in labels]


@dataclass
class EmbeddingPruner:
    """Merges the siblings of a reply, then drops those that are close to the history.

    Siblings connected by distances below ``threshold`` (τ) are one: the one nearest to the query
    represents them, then the one with the fewest changes, then the first. With
    ``siblings="valid"`` an approved one comes before all others, for which every row must be paid;
    the paper lists validity first, but its row counts show that pruned siblings were not evaluated.
    The root has no changes and is in no history.
    """

    problem: Problem
    query: Row
    encoder: Encoder
    scope: Scope
    threshold: float
    window: int = WINDOW
    siblings: Siblings = "nearest"
    members: Members = "approved"

    def __post_init__(self) -> None:
        self.after_oracle = self.siblings == "valid"
        self._vectors: dict[int, NDArray[np.float32]] = {}

    def judge(
        self, tree: Tree, node: int, candidates: Sequence[EditCandidate], valid: Sequence[bool] = ()
    ) -> list[Verdict]:
        """Return a verdict for each candidate.

        Merging comes first: a component whose representative is close to the history falls with it.
        """
        if not candidates:
            return []
        vectors = self._encode([candidate.row for candidate in candidates])
        labels = components(cosine_distances(vectors, vectors) < self.threshold)

        def rank(i: int) -> tuple[bool, float, int]:
            worse = self.after_oracle and bool(valid) and not valid[i]
            return worse, candidates[i].distance, candidates[i].changes

        best: dict[int, int] = {}
        for i in sorted(range(len(candidates)), key=rank):
            best.setdefault(labels[i], i)
        new = self._unlike_history(tree, node, vectors)
        return [Verdict(best[labels[i]] == i and bool(new[i])) for i in range(len(candidates))]

    def _encode(self, rows: Sequence[Row]) -> NDArray[np.float32]:
        return self.encoder.encode([change_text(self.problem, self.query, row) for row in rows])

    def _unlike_history(
        self, tree: Tree, node: int, vectors: NDArray[np.float32]
    ) -> NDArray[np.bool_]:
        nodes = in_scope(tree, node, self.scope, self.window, self.members)
        history = [n for n in nodes if n.id != ROOT]
        if not history:
            return np.ones(len(vectors), dtype=bool)
        fresh = [n for n in history if n.id not in self._vectors]
        for n, vector in zip(fresh, self._encode([n.row for n in fresh]), strict=True):
            self._vectors[n.id] = vector
        distances = cosine_distances(vectors, np.stack([self._vectors[n.id] for n in history]))
        return np.asarray((distances >= self.threshold).all(axis=1))
