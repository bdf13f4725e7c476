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
    """The paper's LATS-style baselines: an LLM proposes the moves of a plain tree search.

    High-temp is ``temperature=1.2``; diversity-prompted is ``diversity=True``, which names the
    features already edited on the path. With K = 1 a tree grows one child at a time. Earlier
    attempts are not told to the LLM (``memory=0``): the paper lists that as Comp-MCTS's own.

    >>> import waysout
    >>> data = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, data.card)
    >>> problem = waysout.Problem.from_card(data.card, oracle, training=data.rows)
    >>> limits = {"calls": 3, "oracle_rows": 20}
    >>> method = waysout.Lats(diversity=True)
    >>> result = waysout.find(problem, data.rows[828], method=method, llm="simulated:1", **limits)
    >>> result.settings["method"], result.ledger.llm_calls
    ('lats', 3)
    """

    name: ClassVar[str] = "lats"

    memory: int = least(0, 0)
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
