from __future__ import annotations

from small_world import QUERY, SCHEMA

from waysout.domain.schema import Edit
from waysout.prompts.render import Tag
from waysout.search.memory import edited_on_path, recall, recently_edited, records
from waysout.search.tree import Tree


def tree() -> Tree:
    """Root: a=5 (yes, node 1), b=1 (no, node 2), c=z pruned; node 1: c=y (yes, node 3)."""
    grown = Tree(QUERY, "root")
    for edit, row, tag, chance in (
        (Edit("a", 5), (5, 0, "x"), Tag.APPROVED, 0.5),
        (Edit("b", 1), (0, 1, "x"), Tag.REJECTED, 0.1),
    ):
        grown.note(0, edit, row, tag, chance)
        grown.add(0, edit, row, "", chance, tag is Tag.APPROVED)
    grown.note(0, Edit("c", "z"), (0, 0, "z"), Tag.PRUNED)
    grown.note(1, Edit("c", "y"), (5, 0, "y"), Tag.APPROVED, 0.5)
    grown.add(1, Edit("c", "y"), (5, 0, "y"), "", 0.5, True)
    grown.note(2, Edit("a", 9), (9, 1, "x"), Tag.APPROVED, 1.0)
    return grown


def told(node: int, **settings: object) -> list[str]:
    found = recall(tree(), node, **settings)  # type: ignore[arg-type]
    return [f"{a.edit.feature}={a.edit.value} {a.tag}" for a in found]


def test_attempts_along_the_path_are_remembered_with_those_of_siblings() -> None:
    assert told(0) == ["a=5 APPROVED", "b=1 REJECTED", "c=z PRUNED"]
    assert told(3) == ["a=5 APPROVED", "b=1 REJECTED", "c=z PRUNED", "c=y APPROVED"]
    # What was tried elsewhere is not known here.
    assert told(2) == ["a=5 APPROVED", "b=1 REJECTED", "c=z PRUNED", "a=9 APPROVED"]


def test_the_path_alone_leaves_siblings_out() -> None:
    assert told(3, remembered="path") == ["a=5 APPROVED", "c=z PRUNED", "c=y APPROVED"]


def test_only_the_latest_are_kept_in_the_order_of_time() -> None:
    assert told(3, most=2) == ["c=z PRUNED", "c=y APPROVED"]
    assert told(3, most=0) == []


def test_records_hold_the_edit_or_the_whole_change() -> None:
    attempts = recall(tree(), 3)
    edits = records(SCHEMA, QUERY, attempts, whole=False)
    whole = records(SCHEMA, QUERY, attempts, whole=True)
    assert (edits[-1].changes, edits[-1].probability) == ((("c", "y"),), None)
    assert (whole[-1].changes, whole[-1].probability) == ((("a", 5), ("c", "y")), 0.5)


def test_hints() -> None:
    assert recently_edited(recall(tree(), 3), most=2) == ("b", "c")
    assert edited_on_path(tree(), 3) == ("a", "c")
    assert edited_on_path(tree(), 0) == ()


def test_an_equal_sibling_is_not_part_of_the_path() -> None:
    twice = Tree(QUERY, "root")
    for _ in range(2):
        twice.note(0, Edit("a", 1), (1, 0, "x"), Tag.REJECTED, 0.1)
        twice.add(0, Edit("a", 1), (1, 0, "x"), "", 0.1, False)
    assert len(recall(twice, 1, remembered="path")) == 1


def test_attempts_of_several_nodes_are_put_in_the_order_of_time() -> None:
    late = tree()
    late.note(0, Edit("b", 9), (0, 9, "x"), Tag.APPROVED, 0.9)  # the root is asked again
    found = [a.edit.feature for a in recall(late, 3)]
    assert found == ["a", "b", "c", "c", "b"]
