"""Selection: which node is expanded next, by UCT.

``UCT(n) = W/N + c · √(log N_parent / N)``. Requests under way count as visits whose reward is not
known yet, which spreads several of them over the tree (the manner of WU-UCT); with one at a time
this is plain UCT.
"""

from __future__ import annotations

import math

from waysout.search.tree import ROOT, Node, Tree

EXPLORATION = math.sqrt(2.0)


def uct(node: Node, parent: Node, exploration: float = EXPLORATION) -> float:
    """Return a child's score; an unvisited child comes first.

    >>> from waysout.search.tree import Node
    >>> parent, child = Node(0, (), "", visits=4), Node(1, (), "", visits=2, value=1.0)
    >>> round(uct(child, parent), 4)  # 0.5 + √2 · √(ln 4 / 2)
    1.6774
    """
    if node.visits == 0:
        return math.inf
    seen = node.visits + node.waiting
    spread = math.sqrt(math.log(parent.visits + parent.waiting) / seen)
    return node.value / node.visits + exploration * spread


def best_child(tree: Tree, node: Node, exploration: float) -> Node | None:
    """Return the child to descend to: the best open one; among equals, the first."""
    found = [child for child in tree.children(node.id) if _open(tree, child)]
    # max keeps the first of equals, and children stand in the order of their creation.
    return max(found, key=lambda child: uct(child, node, exploration), default=None)


def _open(tree: Tree, node: Node) -> bool:
    """Whether some leaf below is neither closed nor waiting for a reply."""
    if node.closed:
        return False
    if not node.waiting:
        return True
    return any(_open(tree, child) for child in tree.children(node.id))


def leaf(tree: Tree, exploration: float = EXPLORATION) -> Node | None:
    """Descend from the root to a node without children; ``None`` where none is free."""
    node = tree[ROOT]
    if not _open(tree, node):
        return None
    while node.children:
        child = best_child(tree, node, exploration)
        if child is None:
            return None
        node = child
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
