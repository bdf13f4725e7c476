"""Compression-guided pruning: a candidate that adds almost nothing to the history is dropped."""

from __future__ import annotations

from collections.abc import Sequence

from waysout.search.compress import History, compressor
from waysout.search.prune.base import (
    WINDOW,
    EditCandidate,
    Members,
    Scope,
    Verdict,
    in_scope,
    remembered,
)
from waysout.search.tree import Tree


class CompressionPruner:
    """Prunes where ΔC < θ.

    The history is made once per reply: candidates of the same reply, and pruned ones, are never
    part of it. The global one only grows, so it is kept and fed.
    """

    after_oracle = False

    def __init__(
        self,
        name: str,
        scope: Scope,
        threshold: float,
        window: int = WINDOW,
        members: Members = "approved",
    ) -> None:
        self.compressor = compressor(name)
        self.scope: Scope = scope
        self.threshold = threshold
        self.window = window
        self.members: Members = members
        self._global = History(self.compressor)
        self._seen = 1  # nodes of the tree, the root first, which is never remembered

    def judge(
        self, tree: Tree, node: int, candidates: Sequence[EditCandidate], valid: Sequence[bool] = ()
    ) -> list[Verdict]:
        """Return a verdict for each candidate, with its gain."""
        if self.scope == "global":
            history = self._global
            for n in remembered(tree.nodes[self._seen :], self.members):
                history.append(n.key)
            self._seen = len(tree.nodes)
        else:
            nodes = in_scope(tree, node, self.scope, self.window)
            history = History(self.compressor, [n.key for n in nodes])
        gains = [history.gain(candidate.key) for candidate in candidates]
        return [Verdict(gain >= self.threshold, gain) for gain in gains]
