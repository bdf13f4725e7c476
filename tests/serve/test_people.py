from __future__ import annotations

import pytest
from serve_world import Adder, Table, client, make_service, problem, run

from waysout.domain.schema import Feature, Row, Schema
from waysout.serve.people import People
from waysout.serve.problems import ServedProblem

SCHEMA = Schema(
    (
        Feature("customer", "opaque"),
        Feature("credit_score", "integer", label="Score"),
        Feature("debt", "number"),
        Feature("home", "category", levels=("own", "rent"), words={"rent": "Rented flat"}),
        Feature("insured", "boolean", levels=("N", "Y")),
    )
)
ROWS: list[Row] = [
    ("K-17", 640, 1250.5, "own", True),
    ("K-18", 3, 70.0, "rent", False),
    ("Zoë Müller", 71, 0.25, "rent", True),
    ("M-2", 71, None, "own", False),
    (None, 700, 3.0, "own", False),
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("K-1", [0, 1]),
        ("k-17", [0]),
        ("zoë mül", [2]),
        ("müller", [2]),
        ("flat", [1, 2]),
        ("rented yes", [2]),
        ("y", [0, 2]),  # the table's spelling of a yes
        ("1250", [0]),
        ("0.2", [2]),
        ("3", [3, 1, 4]),  # the row's number, then values that are it, then those that begin so
        ("7", [1, 2, 3, 4]),
        ("71", [2, 3]),
        ("credit_score=7", [2, 3, 4]),
        ("Score:71", [2, 3]),
        ("credit-score=71 home=own", [3]),
        ("home=flat", [1, 2]),
        ("customer=m", [3, 2]),
        ("nobody=7", []),
        ("own 99", []),
        ("1,250", [0]),  # as the page writes it
        ("rented-flat", [1, 2]),
        ("row 3", [3, 1, 4]),
        ("7 7 7 " * 40, [1, 2, 3, 4]),
    ],
)
def test_words_find_rows(text: str, found: list[int]) -> None:
    assert sorted(People(SCHEMA, ROWS).find(text)) == sorted(found)


def test_the_row_s_number_comes_first_then_whole_values() -> None:
    people = People(SCHEMA, ROWS)
    assert people.find("3") == [3, 1, 4]
    assert people.find("7") == [1, 2, 3, 4]
    assert people.find("customer=m") == [2, 3]


def test_a_page_is_asked_in_one_batch_and_no_more() -> None:
    async def story() -> None:
        oracle = Adder()
        async with client(make_service(ServedProblem.of(problem(oracle=oracle), Table()))) as c:
            place = "/api/problems/small/people"
            answer = (await c.get(place, q="c=y", offset=2, limit=3)).json()
            assert answer["total"] == 20
            assert [person["number"] for person in answer["people"]] == [7, 10, 13]
            assert [len(batch) for batch in oracle.batches] == [3]
            told = answer["people"][0]
            assert told == {"number": 7, "row": {"a": 7, "b": 7, "c": "y"}, "probability": 0.7,
                            "approved": True}  # fmt: skip
            first = (await c.get(place, limit=2)).json()
            examples = (await c.get("/api/problems/small/examples")).json()["examples"]
            assert first == {"total": len(examples), "people": examples[:2]}
            assert not any(person["approved"] for person in examples)
            assert (await c.get(place, q="x" * 201)).status_code == 422
            assert (await c.get(place, limit=51)).status_code == 422

    run(story())


def test_a_large_table_is_read_once_and_then_looked_up_quickly() -> None:
    """By counting texts that are compared: a look-up goes to where a word stands in order."""
    rows: list[Row] = [(f"C-{i}", i % 800, float(i), "own", False) for i in range(20_000)]
    people = People(SCHEMA, rows)
    assert people.find("c-19999") == [19_999]
    spelled = [column._texts for column in people._columns]
    for text in ("c-7", "home=own 12345", " ".join(str(i) for i in range(60))):
        people.find(text)
    assert all(
        column._texts is texts for column, texts in zip(people._columns, spelled, strict=True)
    )
