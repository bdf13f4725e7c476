from __future__ import annotations

from serve_world import problem

from waysout.domain.schema import Row
from waysout.run.progress import Tried
from waysout.serve.events import Lineage

QUERY: Row = (0, 0, "x")


def tried(a: int, b: int, c: str, came_from: Row | None = None) -> Tried:
    return Tried((a, b, c), came_from, 0.25, False)


def parents(*rows: Tried) -> list[int]:
    return [row["parent"] for row in Lineage(problem(), QUERY).add(rows)]


def test_a_row_is_told_as_what_changes_with_its_number() -> None:
    lineage = Lineage(problem(), QUERY)
    assert lineage.add([tried(5, 0, "y")]) == [
        {"id": 1, "parent": 0, "changes": {"a": [0, 5], "c": ["x", "y"]}, "probability": 0.25,
         "approved": False}
    ]  # fmt: skip
    assert [row["id"] for row in lineage.add([tried(1, 1, "x"), tried(2, 1, "x")])] == [2, 3]


def test_the_parent_is_the_row_that_the_method_says() -> None:
    assert parents(tried(5, 0, "x"), tried(7, 0, "x", (5, 0, "x")), tried(1, 0, "x", QUERY)) == [
        0, 1, 0,
    ]  # fmt: skip


def test_else_it_is_the_largest_whose_changes_are_all_there() -> None:
    found = parents(
        tried(5, 0, "x"), tried(0, 3, "x"), tried(5, 3, "x"), tried(5, 3, "y"), tried(5, 4, "y"),
        tried(6, 3, "y"),
    )  # fmt: skip
    assert found == [0, 0, 1, 3, 1, 2]


def test_an_unknown_origin_is_as_none() -> None:
    assert parents(tried(5, 0, "x"), tried(5, 3, "x", (9, 9, "z"))) == [0, 1]


def test_a_row_that_came_before_is_not_told_again() -> None:
    lineage = Lineage(problem(), QUERY)
    lineage.add([tried(5, 0, "x")])
    assert lineage.add([tried(5, 0, "x"), Tried(QUERY, None, 0.0, False)]) == []
