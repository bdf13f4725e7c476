"""Cells: exact on disk, read from anywhere, and never of two oracles."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waysout.bench import cell as module
from waysout.bench.arms import ID_LENGTH, Arm, digest
from waysout.bench.cell import Cell, Cells, write_cells
from waysout.bench.results import Results
from waysout.errors import InputError, IntegrityError
from waysout.prompts.propose import Style

SPEC = {"data": "loan", "k": 5}
CELL = Cell(
    arm=digest(SPEC)[:ID_LENGTH], llm="simulated:1", query=7, data="loan", oracle="0" * 64,
    outcome="found", metrics={"unique_valid": 3, "proximity": 0.1 + 0.2, "novelty": None},
    spent={"calls": 30}, found=((1, 2), (3, 4)), spec=SPEC, version="0.1",
    at="2026-01-01T00:00:00+00:00", made_of="0a1b2c",
)  # fmt: skip


@given(
    st.floats(-1e15, 1e15), st.text(), st.lists(st.tuples(st.integers(0), st.integers(0))),
    st.characters(categories=["Cs"]),
)  # fmt: skip
def test_a_cell_comes_back_exactly(
    tmp_path_factory: pytest.TempPathFactory,
    number: float,
    text: str,
    found: list[tuple[int, int]],
    half: str,
) -> None:
    reason = text + half  # half a character, which UTF-8 does not have
    cell = replace(CELL, metrics={"proximity": number}, reason=reason, found=tuple(found))
    assert Cell.from_json(cell.to_json()) == cell
    path = tmp_path_factory.getbasetemp() / "cell.jsonl"
    write_cells(path, [cell])
    assert list(Cells.read([path])) == [cell]


def test_a_hundred_thousand_options_take_a_line_for_each_batch() -> None:
    batches = [(0, 100 * (n + 1)) for n in range(1000)]
    cell = replace(CELL, found=tuple(spent for spent in batches for _ in range(60)))
    text = cell.to_json()
    assert len(text) < 20_000
    assert Cell.from_json(text) == cell


def test_a_thousand_options_are_listed_as_they_always_were() -> None:
    cell = replace(CELL, found=((0, 100),) * 1000)
    assert json.loads(cell.to_json())["found"] == [[0, 100]] * 1000


def test_a_figure_is_looked_for_in_what_was_found_then_in_what_was_spent() -> None:
    assert CELL.value("unique_valid") == 3.0
    assert CELL.value("novelty") is None
    assert CELL.value("calls") == 30.0
    assert CELL.value("else") is None


@pytest.mark.parametrize("name", ["cells.jsonl", "cells.jsonl.gz"])
def test_an_export_is_the_same_bytes_for_the_same_cells(name: str, tmp_path: Path) -> None:
    cells = [replace(CELL, query=query) for query in range(5)]
    write_cells(tmp_path / name, cells)
    first = (tmp_path / name).read_bytes()
    write_cells(tmp_path / name, reversed(cells))
    assert (tmp_path / name).read_bytes() == first
    assert list(Cells.read([tmp_path / name])) == cells
    assert (gzip.decompress(first) if name.endswith(".gz") else first).count(b"\n") == 5


def test_of_two_of_one_search_the_later_counts_wherever_they_are(tmp_path: Path) -> None:
    older, newer = replace(CELL, outcome="exhausted"), replace(CELL, at="2026-02-01T00:00:00+00:00")
    with Results.open(tmp_path / "results") as results:
        results.add(newer)
    write_cells(tmp_path / "old.jsonl", [older, replace(CELL, query=8)])
    for places in (["results", "old.jsonl"], ["old.jsonl", "results"]):
        cells = Cells.read([tmp_path / place for place in places])
        assert (len(cells), [cell.query for cell in cells]) == (2, [7, 8])
        assert next(iter(cells)) == newer


def test_the_file_within_a_folder_of_results_is_read_too(tmp_path: Path) -> None:
    with Results.open(tmp_path) as results:
        results.add(CELL)
    assert list(Cells.read([tmp_path / "results.sqlite"])) == [CELL]


def test_cells_of_an_arm_by_query_and_of_one_without_an_llm_for_any() -> None:
    common = {"k": 5, "rows": 150, "seed": 0, "rules": "paper", "style": Style(), "queries": 30}
    asking = Arm("a", "loan", "lats", {}, calls=30, **common)  # type: ignore[arg-type]
    silent = Arm("b", "loan", "random", {}, calls=0, **common)  # type: ignore[arg-type]
    cells = Cells(
        replace(CELL, arm=arm.id, llm=llm, query=query)
        for arm, llms in ((asking, ("one", "two")), (silent, ("",)))
        for llm in llms
        for query in (9, 3)
    )
    assert cells.llms == ("one", "two")
    assert {q: c.llm for q, c in cells.of(asking, "two").items()} == {3: "two", 9: "two"}
    assert cells.of(silent, "two") == cells.of(silent, "") != {}
    assert cells.of(asking, "three") == {}


def test_cells_of_two_oracles_are_not_compared(tmp_path: Path) -> None:
    write_cells(tmp_path / "a.jsonl", [CELL])
    write_cells(tmp_path / "b.jsonl", [replace(CELL, query=8, oracle="1" * 64)])
    with pytest.raises(IntegrityError, match="searches on loan used two oracles"):
        Cells.read([tmp_path / "a.jsonl", tmp_path / "b.jsonl"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"query": "7"}, "not a whole number"),
        ({"query": True}, "not a whole number"),
        ({"query": -1}, "not a whole number"),
        ({"found": [[1, -2]]}, "not a whole number"),
        ({"spent": {"calls": -1}}, "calls must not be negative"),
        ({"metrics": {"valid": -1}}, "valid must not be negative"),
        ({"arm": "0123456789ab"}, "its arm is '0123456789ab', but its spec gives"),
        ({"spec": SPEC | {"k": 6}}, "but its spec gives"),
        ({"data": "adult"}, "its data is 'adult', but its spec has another"),
        ({"spec": SPEC | {"k": float("nan")}}, "not JSON compliant"),
        ({"made_of": 3}, "made_of must be a string"),
        ({"llm": 3}, "llm must be a string"),
        ({"metrics": {"proximity": "0.5"}}, "proximity must be a number"),
        ({"spent": {"calls": None}}, "calls must be a number"),
        ({"metrics": {"proximity": 1e300}}, "proximity must be a number"),
        ({"found": [[1]]}, "not enough values"),
        ({"found": [[1, 2, -1]]}, "not a whole number"),
        ({"found": [[1, 2, 3, 4]]}, "too many values"),
        ({"found": [[1, 2, 10**9]]}, "more than 10,000,000 options"),
        ({"spec": []}, "spec must be a table"),
        ({"more": 1}, "unexpected keyword"),
        ({"waysout_cell": 2}, "does not have version 1"),
    ],
)
def test_a_line_that_is_no_cell_is_named(
    change: dict[str, object], said: str, tmp_path: Path
) -> None:
    table = json.loads(CELL.to_json())
    lines = [json.dumps(table), json.dumps(table | change)]
    (tmp_path / "x.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(InputError, match=f"x.jsonl, line 2: not a cell: .*{said}"):
        Cells.read([tmp_path / "x.jsonl"])


def test_a_cell_of_before_does_not_say_what_else_it_was_made_of() -> None:
    table = json.loads(CELL.to_json())
    del table["made_of"]
    assert Cell.from_json(json.dumps(table)) == replace(CELL, made_of="")


def test_the_same_cells_are_the_same_bytes_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    for clock in (1e9, 2e9):
        monkeypatch.setattr("time.time", lambda now=clock: now)
        write_cells(tmp_path / "x.jsonl.gz", [CELL])
        written.append((tmp_path / "x.jsonl.gz").read_bytes())
    assert written[0] == written[1]


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
def test_a_file_that_holds_too_much_is_not_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cells(tmp_path / name, [CELL])
    line = len(CELL.to_json()) + 1
    monkeypatch.setattr(module, "LARGEST_EXPORT", line)
    assert len(Cells.read([tmp_path / name])) == 1
    monkeypatch.setattr(module, "LARGEST_EXPORT", line - 1)
    with pytest.raises(InputError, match=rf"{name} is larger than {line - 1} bytes: export fewer"):
        Cells.read([tmp_path / name])


@given(st.binary(max_size=60))
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl.gz"
    for content in (data, b"\x1f\x8b" + data, gzip.compress(data)):
        path.write_bytes(content)
        try:
            Cells.read([path])
        except InputError as error:
            assert str(path) in str(error)  # noqa: PT017


def test_places_without_results_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there are no results in .*bench run"):
        Cells.read([tmp_path])
    with pytest.raises(InputError, match=r"cannot read .*none.jsonl.*a folder of results or an"):
        Cells.read([tmp_path / "none.jsonl"])
