"""LATS-style tree search: UCT, a yes as reward, and a bonus for self-consistency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from waysout.search.base import Case, Method, Search, least
from waysout.search.loop import DEPTH, Parts, TreeSearch
from waysout.search.memory import MEMORY, Remembered, edited_on_path
from waysout.search.reward import SELF_CONSISTENCY, SelfConsistency
from waysout.search.select import EXPLORATION


@dataclass(frozen=True)
class Lats(Method):
    """The paper's LATS-style baselines.

    High-temp is ``temperature=1.2``; diversity-prompted is ``diversity=True``, which names the
    features already edited on the way. With K = 1 a tree grows one child at a time.
    """

    name: ClassVar[str] = "lats"
    needs_llm: ClassVar[bool] = True

    temperature: float = least(0, 0.7)
    diversity: bool = False
    bonus: float = least(0, SELF_CONSISTENCY)
    depth: int = least(1, DEPTH)
    exploration: float = least(0, EXPLORATION)
    memory: int = least(0, MEMORY)
    remembered: Remembered = "attempts"
    in_flight: int = least(1, 1)

    def start(self, case: Case) -> Search:
        """Bind the parts."""
        parts = Parts(
            reward=SelfConsistency(self.bonus),
            hint=lambda tree, node, _: edited_on_path(tree, node) if self.diversity else (),
            memory=self.memory,
            remembered=self.remembered,
            depth=self.depth,
            exploration=self.exploration,
            temperature=self.temperature,
            widen=case.k == 1,
            in_flight=self.in_flight,
        )
        return TreeSearch(case, parts)
