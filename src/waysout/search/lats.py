"""LATS-style tree search: UCT, a yes as reward, and a bonus for self-consistency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from waysout.search.base import Case, Search, least
from waysout.search.loop import TreeMethod, TreeSearch
from waysout.search.memory import edited_on_path
from waysout.search.reward import SELF_CONSISTENCY, SelfConsistency


@dataclass(frozen=True)
class Lats(TreeMethod):
    """The paper's LATS-style baselines.

    High-temp is ``temperature=1.2``; diversity-prompted is ``diversity=True``, which names the
    features already edited on the path. With K = 1 a tree grows one child at a time.
    """

    name: ClassVar[str] = "lats"

    diversity: bool = False
    bonus: float = least(0, SELF_CONSISTENCY)

    def start(self, case: Case) -> Search:
        """Bind the parts."""
        return TreeSearch(
            case,
            self,
            reward=SelfConsistency(self.bonus),
            hint=lambda tree, node, _: edited_on_path(tree, node) if self.diversity else (),
            # A limit on the width instead would keep such a tree too shallow.
            widen=case.k == 1,
        )
