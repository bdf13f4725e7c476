"""The tree of candidates, and selection: which node is expanded next, by UCT.

``UCT(n) = W/N + c · √(log N_parent / N)``. Requests under way count as visits whose reward is not
known yet, which spreads several of them over the tree (the manner of WU-UCT); with one at a time
this is plain UCT.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from waysout.domain.schema import Edit, Row
from waysout.prompts.render import Tag

ROOT = 0
EXPLORATION = math.sqrt(2.0)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An edit tried at a node, the row it leads to, and the outcome.

    ``time`` counts the attempts of the whole search, which puts those of several nodes in order.
    """

    time: int
    edit: Edit
    row: Row
    tag: Tag
    probability: float | None = None


@dataclass(slots=True)
class Node:
    """One evaluated row and what the search knows about it.

    ``visits`` and ``value`` are the N and W of UCT; ``waiting`` counts the requests under way below
    it. ``closed`` means that nothing is left to expand here or below.
    """

    id: int
    row: Row
    key: str
    parent: int | None = None
    edit: Edit | None = None
    depth: int = 0
    probability: float | None = None
    approved: bool = False
    visits: int = 0
    value: float = 0.0
    waiting: int = 0
    closed: bool = False
    children: list[int] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)


class Tree:
    """Nodes in the order of their creation; the first is the query itself."""

    def __init__(self, query: Row, key: str, probability: float | None = None) -> None:
        self.nodes = [Node(ROOT, query, key, probability=probability)]
        self._tried = 0

    def __getitem__(self, node: int) -> Node:
        return self.nodes[node]

    def path(self, node: int) -> list[Node]:
        """Return the nodes from the root to a node, both included."""
        return [*self.up(node)][::-1]

    def up(self, node: int | None) -> Iterator[Node]:
        """Yield a node and those above it, the root last."""
        while node is not None:
            yield self.nodes[node]
            node = self.nodes[node].parent

    def children(self, node: int) -> list[Node]:
        """Return a node's children, in the order of their creation."""
        return [self.nodes[child] for child in self.nodes[node].children]

    def note(
        self, node: int, edit: Edit, row: Row, tag: Tag, probability: float | None = None
    ) -> None:
        """Record an attempt at a node."""
        self.nodes[node].attempts.append(Attempt(self._tried, edit, row, tag, probability))
        self._tried += 1

    def add(
        self, parent: int, edit: Edit, row: Row, key: str, probability: float, approved: bool
    ) -> int:
        """Add an evaluated child and return its id."""
        child, depth = len(self.nodes), self.nodes[parent].depth + 1
        self.nodes.append(Node(child, row, key, parent, edit, depth, probability, approved))
        self.nodes[parent].children.append(child)
        return child

    def back_up(self, node: int, reward: float) -> None:
        """Count a reward at a node and all above it."""
        for above in self.up(node):
            above.visits += 1
            above.value += reward

    def wait(self, node: int, requests: int) -> None:
        """Add to the number of requests under way at a node and all above it."""
        for above in self.up(node):
            above.waiting += requests

    def close(self, node: int) -> None:
        """Mark a node as fully expanded, and the nodes above it for which that follows."""
        for above in self.up(node):
            if above.children and not all(child.closed for child in self.children(above.id)):
                return
            above.closed = True


def uct(node: Node, parent: Node, exploration: float = EXPLORATION) -> float:
    """Return a child's score; an unvisited child comes first.

    >>> parent, child = Node(0, (), "", visits=4), Node(1, (), "", visits=2, value=1.0)
    >>> round(uct(child, parent), 4)  # 0.5 + √2 · √(ln 4 / 2)
    1.6774
    """
    if node.visits == 0:
        return math.inf
    seen = node.visits + node.waiting
    spread = math.sqrt(math.log(parent.visits + parent.waiting) / seen)
    return node.value / node.visits + exploration * spread


def _open(tree: Tree, node: Node) -> bool:
    """Whether some leaf below is neither closed nor waiting for a reply."""
    if node.closed:
        return False
    if not node.waiting:
        return True
    return any(_open(tree, child) for child in tree.children(node.id))


def leaf(tree: Tree, exploration: float = EXPLORATION) -> Node | None:
    """Descend from the root to a node without children; ``None`` if none is free."""
    node = tree[ROOT]
    if not _open(tree, node):
        return None
    while node.children:
        parent, found = node, [child for child in tree.children(node.id) if _open(tree, child)]
        if not found:
            return None
        # max keeps the first of equals, and children stand in the order of their creation.
        node = max(found, key=lambda child: uct(child, parent, exploration))
    return node


def deepest_on_path(tree: Tree, depth: int, exploration: float = EXPLORATION) -> Node:
    """Return the last node above the depth limit on UCT's path, closed nodes included.

    For trees that grow one child at a time: when every leaf lies at the limit or cannot be
    expanded, this is where another child is tried.
    """
    node = tree[ROOT]
    while node.children:
        found = tree.children(node.id)
        child = max(found, key=lambda child: uct(child, node, exploration))
        if child.depth >= depth or (child.closed and not child.children):
            return node
        node = child
    return node
