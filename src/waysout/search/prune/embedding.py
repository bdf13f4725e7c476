"""Embedding pruning: a candidate whose changes mean what others mean already is dropped.

After the paper's variant of SSDP: what changes from the query is written as a text and embedded,
and two candidates are the same when the cosine distance of their vectors is below τ.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from waysout.domain.problem import Problem
from waysout.domain.schema import Feature, Row, Value, format_number
from waysout.embed import Encoder
from waysout.search.prune.base import WINDOW, Candidate, Scope, Verdict, in_scope
from waysout.search.tree import ROOT, Node, Tree

Siblings = Literal["nearest", "valid"]

# The dot product of a float32 vector of length 1 with itself misses 1 by no more.
_ROUNDING = 1e-6


def change_text(problem: Problem, query: Row, row: Row) -> str:
    """Write what changes from the query to a row, the same for the same change.

    Features stand in order of name, numbers as signed differences and categories as their new
    value: ``"loan_amount: -2000; term: +6"``. What follows from the other changes by itself (linked
    and one-hot features) is left out: it would say a thing twice.
    """
    schema = problem.schema
    parts = []
    for name in sorted(_levers(problem, query, row)):
        at = schema.index(name)
        parts.append(f"{name}: {_change(schema.features[at], query[at], row[at])}")
    return "; ".join(parts)


def _levers(problem: Problem, query: Row, row: Row) -> dict[str, Value]:
    """Return the changes that bring about all the others."""
    changed = {name: after for name, (_, after) in problem.changes(query, row).items()}
    for name in tuple(changed):
        others = {n: v for n, v in changed.items() if n != name}
        if others and problem.rules.apply(query, others) == row:
            changed = others
    return changed


def _change(feature: Feature, before: Value, after: Value) -> str:
    if not feature.is_numeric or before is None or after is None:
        return feature.format(after)
    # In decimals, as a person subtracts: 0.3 - 0.1 is 0.2 and not 0.19999999999999998.
    delta = float(Decimal(repr(after)) - Decimal(repr(before)))
    return f"{'+' if delta > 0 else ''}{format_number(delta)}"


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


class EmbeddingPruner:
    """Merges the siblings of a reply, then drops those that are close to the history.

    Siblings that hang together at a distance below ``threshold`` (τ) are one: the one nearest to
    the query stands for them, then the one with the fewest changes, then the first. With
    ``siblings="valid"`` an approved one comes before all others, for which every row must be paid.
    The root has no changes and is in no history.
    """

    def __init__(
        self,
        problem: Problem,
        query: Row,
        encoder: Encoder,
        scope: Scope,
        threshold: float,
        *,
        window: int = WINDOW,
        siblings: Siblings = "nearest",
    ) -> None:
        self.problem = problem
        self.query = query
        self.encoder = encoder
        self.scope: Scope = scope
        self.threshold = threshold
        self.window = window
        self.after_oracle = siblings == "valid"
        self._vectors: dict[int, NDArray[np.float32]] = {}

    def judge(
        self,
        tree: Tree,
        node: int,
        candidates: Sequence[Candidate],
        valid: Sequence[bool] | None = None,
    ) -> list[Verdict]:
        """Return a verdict for each candidate."""
        if not candidates:
            return []
        vectors = self._encode([candidate.row for candidate in candidates])
        alone = self._unmerged(vectors, candidates, valid if self.after_oracle else None)
        new = self._unlike_history(tree, node, vectors)
        return [Verdict(kept=i in alone and bool(new[i])) for i in range(len(candidates))]

    def _encode(self, rows: Sequence[Row]) -> NDArray[np.float32]:
        return self.encoder.encode([change_text(self.problem, self.query, row) for row in rows])

    def _unmerged(
        self,
        vectors: NDArray[np.float32],
        candidates: Sequence[Candidate],
        valid: Sequence[bool] | None,
    ) -> set[int]:
        """Return the candidates that stand for their component."""

        def rank(i: int) -> tuple[bool, float, int]:
            worse = valid is not None and not valid[i]
            return worse, candidates[i].distance, candidates[i].changes

        labels = components(cosine_distances(vectors, vectors) < self.threshold)
        best: dict[int, int] = {}
        for i in sorted(range(len(candidates)), key=rank):
            best.setdefault(labels[i], i)
        return set(best.values())

    def _unlike_history(
        self, tree: Tree, node: int, vectors: NDArray[np.float32]
    ) -> NDArray[np.bool_]:
        nodes = in_scope(tree, node, self.scope, self.window)
        history = [n for n in nodes if n.id != ROOT]
        if not history:
            return np.ones(len(vectors), dtype=bool)
        distances = cosine_distances(vectors, self._vectors_of(history))
        return np.asarray((distances >= self.threshold).all(axis=1))

    def _vectors_of(self, nodes: Sequence[Node]) -> NDArray[np.float32]:
        fresh = [n for n in nodes if n.id not in self._vectors]
        for n, vector in zip(fresh, self._encode([n.row for n in fresh]), strict=True):
            self._vectors[n.id] = vector
        return np.stack([self._vectors[n.id] for n in nodes])
