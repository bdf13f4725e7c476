"""Results on disk: one writer, any readers, and nothing lost or mistaken."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from bench_world import RANDOM, TREE, plan
from test_cells import CELL

from waysout.bench.results import Failure, Results, results_dir
from waysout.errors import InputError, IntegrityError, UnavailableError
from waysout.llm.base import Reply, Usage

FAILURE = Failure(CELL.arm, "simulated:1", 7, "loan", "it fell over \ud83d")


def test_what_is_added_is_there_in_the_next_sitting(tmp_path: Path) -> None:
    other = replace(CELL, llm="", query=8)
    with Results.open(tmp_path) as results:
        results.add(CELL)
        results.add(other)
    with Results.open(tmp_path) as results:
        assert list(results.cells()) == [other, CELL]
        assert results.done() == {CELL.key, other.key}
        assert results.oracles() == {"loan": {CELL.oracle}}


def test_a_failure_is_listed_until_its_search_has_ended(tmp_path: Path) -> None:
    with Results.open(tmp_path) as results:
        results.add_failure(replace(FAILURE, reason="first"))
        results.add_failure(FAILURE)
        (kept,) = results.failures()
        assert replace(kept, at="") == FAILURE
        assert results.done() == set()
        results.add(CELL)
        assert results.failures() == []


def test_replies_come_back_exactly(tmp_path: Path) -> None:
    reply = Reply("half a \ud83d", Usage(3, 4, 1, estimated=True), 0.1 + 0.2, "length", "m")
    with Results.open(tmp_path) as results:
        assert results.reply("k") is None
        results.keep_reply("k", "some LLM", reply)
    with Results.read(tmp_path) as results:
        assert results.reply("k") == reply
        assert results.replies() == {"some LLM": 1}


def test_plans_are_noted_with_all_that_they_say(tmp_path: Path) -> None:
    made = plan(tmp_path, TREE, "settings = { depth = 3 }", RANDOM)
    with Results.open(tmp_path) as results:
        results.note_plan(made)
        assert results.plans() == [made]
        assert results.plans()[0].hash == made.hash
        results.note_plan(made.cut(queries=1))
        assert results.plans() == [made.cut(queries=1)]


def changed(folder: Path, sql: str) -> None:
    """Change the file behind our back."""
    with sqlite3.connect(folder / "results.sqlite") as db:
        db.execute(sql)
    db.close()


def test_readers_and_the_writer_do_not_wait_for_each_other(tmp_path: Path) -> None:
    with Results.open(tmp_path) as results:
        db = sqlite3.connect(results.path)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        db.close()


def test_results_of_a_later_version_are_left_alone(tmp_path: Path) -> None:
    Results.open(tmp_path).close()
    changed(tmp_path, "PRAGMA user_version = 2")
    for opening in (Results.open, Results.read):
        with pytest.raises(InputError, match="no results of experiments of version 1"):
            opening(tmp_path)


def test_there_is_one_writer_and_readers_meanwhile(tmp_path: Path) -> None:
    with Results.open(tmp_path) as results:
        with pytest.raises(UnavailableError, match="written by another process"):
            Results.open(tmp_path)
        results.add(CELL)
        with Results.read(tmp_path) as reader:
            assert list(reader.cells()) == [CELL]
            with pytest.raises(UnavailableError, match="for reading only"):
                reader.add(CELL)
    Results.open(tmp_path).close()


def test_results_at_rest_are_one_file_for_nobody_else(tmp_path: Path) -> None:
    with Results.open(tmp_path / "new" / "folder") as results:
        results.add(CELL)
    (file,) = (tmp_path / "new" / "folder").iterdir()
    assert file.name == "results.sqlite"
    assert file.stat().st_mode & 0o077 == 0


def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "results.sqlite") as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    before = (tmp_path / "results.sqlite").read_bytes()
    for opening in (Results.open, Results.read):
        with pytest.raises(InputError, match="holds no results of experiments"):
            opening(tmp_path)
    assert (tmp_path / "results.sqlite").read_bytes() == before


def test_a_damaged_file_says_so_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "results.sqlite").write_bytes(b"no database at all" * 100)
    for opening in (Results.open, Results.read):
        with pytest.raises(IntegrityError, match=r"is damaged \(file is not a database\); move"):
            opening(tmp_path)


@pytest.mark.parametrize("body", ["x", "[]", "{}", "null"])
def test_what_cannot_be_read_is_damage(body: str, tmp_path: Path) -> None:
    with Results.open(tmp_path) as results:
        results.add(CELL)
        results.keep_reply("k", "some LLM", Reply("hello"))
        results.note_plan(plan(tmp_path, RANDOM))
    for table in ("cells", "replies", "plans"):
        changed(tmp_path, f"UPDATE {table} SET body = '{body}'")
    with Results.read(tmp_path) as results:
        for look in (results.cells, lambda: results.reply("k"), results.plans):
            with pytest.raises(IntegrityError, match=r"results.sqlite is damaged \(.*move it away"):
                look()


def test_the_usual_folder_lies_beside_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSOUT_RUNS", "/somewhere/runs")
    assert results_dir() == Path("/somewhere/bench")
