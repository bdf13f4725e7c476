from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_world import QUERY

from waysout.domain.schema import Edit
from waysout.search.tree import Node, Tree, deepest_on_path, leaf, uct


def grown(*shape: tuple[int, float]) -> Tree:
    """Return a tree from (parent, reward) pairs."""
    tree = Tree(QUERY, "root")
    for i, (parent, reward) in enumerate(shape, 1):
        node = tree.add(parent, Edit("a", i), (i, 0, "x"), f"key {i}", reward, reward > 0.5)
        tree.back_up(node, reward)
    return tree


def test_uct_is_the_formula() -> None:
    parent, child = Node(0, (), "", visits=7), Node(1, (), "", visits=3, value=1.5)
    assert uct(child, parent) == pytest.approx(0.5 + math.sqrt(2) * math.sqrt(math.log(7) / 3))
    assert uct(child, parent, exploration=0) == 0.5


def test_an_unvisited_child_counts_as_infinite() -> None:
    assert uct(Node(1, (), ""), Node(0, (), "", visits=7)) == math.inf


def test_requests_under_way_count_as_visits_without_a_reward() -> None:
    parent = Node(0, (), "", visits=4, waiting=1)
    child = Node(1, (), "", visits=2, value=1.0, waiting=1)
    assert uct(child, parent) == pytest.approx(0.5 + math.sqrt(2) * math.sqrt(math.log(5) / 3))


def test_an_empty_tree_gives_its_root() -> None:
    found = leaf(Tree(QUERY, "root"))
    assert found is not None
    assert found.id == 0


def test_closed_subtrees_are_skipped() -> None:
    tree = grown((0, 1.0), (0, 0.0))
    tree.close(1)
    found = leaf(tree)
    assert found is not None
    assert found.id == 2


def test_nothing_is_left_where_the_root_is_closed() -> None:
    tree = grown((0, 1.0), (0, 0.0))
    tree.close(1)
    assert leaf(tree) is not None
    tree.close(2)
    assert tree[0].closed
    assert leaf(tree) is None


def test_a_leaf_that_waits_for_a_reply_is_not_asked_again() -> None:
    tree = grown((0, 1.0), (0, 0.0))
    tree.wait(1, 1)
    second = leaf(tree)
    assert second is not None
    assert second.id == 2
    tree.wait(2, 1)
    assert leaf(tree) is None
    tree.wait(1, -1)
    first = leaf(tree)
    assert first is not None
    assert first.id == 1


def test_the_way_to_the_limit_ends_above_it() -> None:
    tree = grown((0, 1.0), (1, 1.0), (2, 0.0))
    assert deepest_on_path(tree, depth=3).id == 2
    assert deepest_on_path(tree, depth=5).id == 3


@given(st.lists(st.tuples(st.integers(0, 8), st.floats(0, 1)), max_size=40))
def test_visits_and_values_add_up(pairs: list[tuple[int, float]]) -> None:
    tree = grown(*((min(parent, i), reward) for i, (parent, reward) in enumerate(pairs)))
    for node in tree.nodes:
        children = tree.children(node.id)
        own = 0 if node.parent is None else 1
        assert node.visits == own + sum(child.visits for child in children)
    assert tree[0].value == pytest.approx(sum(reward for _, reward in pairs))


@given(st.lists(st.tuples(st.integers(0, 8), st.floats(0, 1)), max_size=40), st.data())
def test_a_leaf_is_found_as_long_as_one_is_open(
    pairs: list[tuple[int, float]], data: st.DataObject
) -> None:
    tree = grown(*((min(parent, i), reward) for i, (parent, reward) in enumerate(pairs)))
    leaves = [n.id for n in tree.nodes if not n.children]
    for closed in data.draw(st.lists(st.sampled_from(leaves), unique=True)):
        tree.close(closed)
        leaves.remove(closed)
    found = leaf(tree)
    assert (found is None) == (not leaves)
    assert found is None or found.id in leaves
