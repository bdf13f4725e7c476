"""What every way to prune shares: candidates in, a verdict for each out; and the scopes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from waysout.domain.schema import Edit, Row
from waysout.search.tree import Node, Tree

Scope = Literal["global", "path", "window"]
Siblings = Literal["nearest", "valid"]
Members = Literal["approved", "all"]

WINDOW = 3


@dataclass(frozen=True, slots=True)
class EditCandidate:
    """A node's row after an edit, before the oracle saw it.

    ``distance`` and ``changes`` are from the query.
    """

    edit: Edit
    row: Row
    key: str
    distance: float
    changes: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a candidate is kept, and its gain ΔC where that was computed."""

    kept: bool
    gain: float | None = None


class Pruner(Protocol):
    """Judges the candidates of one reply together. It belongs to one search."""

    after_oracle: bool
    """Whether it judges after the oracle has answered (and all rows are paid for)."""

    def judge(
        self, tree: Tree, node: int, candidates: Sequence[EditCandidate], valid: Sequence[bool] = ()
    ) -> list[Verdict]:
        """Return a verdict for each candidate of a node; ``valid`` where the oracle answered."""
        ...


def remembered(nodes: Iterable[Node], members: Members) -> list[Node]:
    """Return those of some nodes that the global scope remembers."""
    return [node for node in nodes if node.approved or members == "all"]


def in_scope(
    tree: Tree, node: int, scope: Scope, window: int = WINDOW, members: Members = "approved"
) -> list[Node]:
    """Return the nodes a candidate is compared with.

    Path: from the root to the node, both included; window: the last few of that; global: the
    approved nodes, or all but the root, in the order of creation.
    """
    if scope == "global":
        return remembered(tree.nodes[1:], members)
    way = tree.path(node)
    return way if scope == "path" else way[-window:]
