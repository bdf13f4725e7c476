from __future__ import annotations

import pytest
from small_world import QUERY

from waysout.domain.schema import Edit
from waysout.search.compress import History, compressor
from waysout.search.prune.base import EditCandidate, Members, Scope, in_scope
from waysout.search.prune.compression import CompressionPruner
from waysout.search.tree import Tree

GZIP = compressor("gzip")


def chain(length: int) -> Tree:
    """Root → 1 → 2 → …, of which even numbers are approved, and one more child of the root."""
    tree = Tree(QUERY, "key root")
    for i in range(length):
        tree.add(i, Edit("a", i), QUERY, f"key {i + 1}", 0.1, i % 2 == 1)
    tree.add(0, Edit("b", 1), QUERY, f"key {length + 1}", 0.1, False)
    return tree


def candidate(key: str) -> EditCandidate:
    return EditCandidate(Edit("a", 1), QUERY, key, 0.0, 1)


@pytest.mark.parametrize(
    ("scope", "members", "keys"),
    [
        ("path", "approved", ["key root", "key 1", "key 2", "key 3", "key 4"]),
        ("path", "all", ["key root", "key 1", "key 2", "key 3", "key 4"]),
        ("window", "approved", ["key 2", "key 3", "key 4"]),
        ("global", "approved", ["key 2", "key 4"]),
        ("global", "all", ["key 1", "key 2", "key 3", "key 4", "key 5"]),
    ],
)
def test_the_history_of_each_scope(scope: Scope, members: Members, keys: list[str]) -> None:
    tree = chain(4)
    assert [node.key for node in in_scope(tree, 4, scope, members=members)] == keys
    pruner = CompressionPruner("gzip", scope, threshold=0.0, members=members)
    [verdict] = pruner.judge(tree, 4, [candidate("key 9, and more")])
    assert verdict.gain == History(GZIP, keys).gain("key 9, and more")


def test_siblings_do_not_see_each_other() -> None:
    pruner = CompressionPruner("gzip", "global", threshold=0.0)
    one, other = pruner.judge(chain(2), 2, [candidate("the same"), candidate("the same")])
    assert one.gain == other.gain


def test_the_global_history_grows_with_the_tree() -> None:
    tree, pruner = chain(2), CompressionPruner("gzip", "global", threshold=0.0)
    [before] = pruner.judge(tree, 0, [candidate("a long key that is new")])
    tree.add(0, Edit("a", 1), QUERY, "a long key that is new", 0.1, False)
    assert pruner.judge(tree, 0, [candidate("a long key that is new")]) == [before]
    tree.add(0, Edit("a", 1), QUERY, "a long key that is new", 0.9, True)
    [after] = pruner.judge(tree, 0, [candidate("a long key that is new")])
    assert before.gain is not None
    assert after.gain is not None
    assert after.gain < before.gain / 2


def test_a_gain_at_the_threshold_is_kept() -> None:
    tree = chain(1)
    gain = History(GZIP, ["key root", "key 1"]).gain("key 7")
    for threshold, kept in ((gain, True), (gain + 1e-9, False)):
        [verdict] = CompressionPruner("gzip", "path", threshold).judge(
            tree, 1, [candidate("key 7")]
        )
        assert verdict.kept is kept
