"""Compression-guided pruning: a candidate that adds almost nothing to the history is dropped."""

from __future__ import annotations

from collections.abc import Sequence

from waysout.search.compress import Compressor, History
from waysout.search.prune.base import WINDOW, Candidate, Scope, Verdict, in_scope
from waysout.search.tree import Tree


class CompressionPruner:
    """Prunes where ΔC < θ.

    The history is made once per reply: what came in the same reply, and what was pruned, is never
    part of it. The global one only grows, so it is kept and fed.
    """

    after_oracle = False

    def __init__(
        self, compressor: Compressor, scope: Scope, threshold: float, window: int = WINDOW
    ) -> None:
        self.compressor = compressor
        self.scope: Scope = scope
        self.threshold = threshold
        self.window = window
        self._global = History(compressor)

    def judge(
        self,
        tree: Tree,
        node: int,
        candidates: Sequence[Candidate],
        valid: Sequence[bool] | None = None,
    ) -> list[Verdict]:
        """Return a verdict for each candidate, with its gain."""
        history = self._history(tree, node)
        gains = [history.gain(candidate.key) for candidate in candidates]
        return [Verdict(gain >= self.threshold, gain) for gain in gains]

    def _history(self, tree: Tree, node: int) -> History:
        if self.scope != "global":
            nodes = in_scope(tree, node, self.scope, self.window)
            return History(self.compressor, [n.key for n in nodes])
        for n in tree.nodes[1 + len(self._global) :]:
            self._global.append(n.key)
        return self._global
