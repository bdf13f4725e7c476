"""Comp-MCTS: tree search with an LLM for its moves, and pruning of what says nothing new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from waysout.search.base import Case, Method, Search, least
from waysout.search.compress import compressor
from waysout.search.loop import DEPTH, Parts, TreeSearch
from waysout.search.memory import MEMORY, Remembered, recently_edited
from waysout.search.prune.base import WINDOW, Pruner, Scope
from waysout.search.prune.compression import CompressionPruner
from waysout.search.prune.embedding import EmbeddingPruner, Siblings
from waysout.search.reward import BASELINE, GATE_THRESHOLD, reward
from waysout.search.select import EXPLORATION

Pruning = Literal["none", "gzip", "rlbwt", "repair", "embedding"]


@dataclass(frozen=True)
class CompMCTS(Method):
    """The paper's method.

    ``threshold`` is θ, below which ΔC is pruned; with ``pruning="embedding"`` it is τ, the cosine
    distance below which two candidates are the same, and ``encoder`` names the sentence encoder.
    ``reward`` is a preset (balanced, validity, quality, diversity, equal, baseline) or four
    weights: validity, proximity, sparsity, novelty.
    """

    name: ClassVar[str] = "comp-mcts"
    needs_llm: ClassVar[bool] = True

    pruning: Pruning = "gzip"
    scope: Scope = "path"
    threshold: float = least(0, 0.01)
    window: int = least(1, WINDOW)
    reward: str = "balanced"
    depth: int = least(1, DEPTH)
    exploration: float = least(0, EXPLORATION)
    memory: int = least(0, MEMORY)
    remembered: Remembered = "attempts"
    temperature: float = least(0, 0.7)
    siblings: Siblings = "nearest"
    encoder: str = ""
    in_flight: int = least(1, 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        reward(self.reward)  # a wrong one is refused now, not when a search begins

    def start(self, case: Case) -> Search:
        """Bind the parts."""
        parts = Parts(
            reward=reward(self.reward, case.problem.goal.threshold(GATE_THRESHOLD)),
            pruner=self._pruner(case),
            hint=lambda tree, node, attempts: recently_edited(attempts),
            memory=self.memory,
            remembered=self.remembered,
            depth=self.depth,
            exploration=self.exploration,
            temperature=self.temperature,
            in_flight=self.in_flight,
        )
        return TreeSearch(case, parts)

    def _pruner(self, case: Case) -> Pruner | None:
        if self.pruning == "embedding":
            from waysout.embed import encoder

            return EmbeddingPruner(
                case.problem, case.query, encoder(self.encoder), self.scope, self.threshold,
                window=self.window, siblings=self.siblings,
            )  # fmt: skip
        if self.pruning != "none":
            found = compressor(self.pruning)
            return CompressionPruner(found, self.scope, self.threshold, self.window)
        if self.reward == BASELINE:
            # That reward needs ΔC though nothing is pruned.
            return CompressionPruner(compressor("gzip"), "global", float("-inf"))
        return None
