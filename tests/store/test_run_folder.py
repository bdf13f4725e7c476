from __future__ import annotations

import os
from pathlib import Path

import pytest

from waysout.errors import InputError
from waysout.store import find_run, list_runs, new_run_path, runs_dir


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runs"
    monkeypatch.setenv("WAYSOUT_RUNS", str(folder))
    return folder


def touch(path: Path, time: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.touch()
    os.utime(path, (time, time))
    return path


def test_the_folder_is_named_or_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSOUT_RUNS", "~/my runs")
    assert runs_dir() == Path.home() / "my runs"
    monkeypatch.delenv("WAYSOUT_RUNS")
    assert runs_dir().parts[-2:] == ("waysout", "runs")


def test_the_newest_comes_first(runs: Path) -> None:
    assert list_runs(runs) == []
    old, new = touch(runs / "b.db", 100), touch(runs / "a.db", 200)
    touch(runs / "c.db.damaged", 300)
    assert list_runs(runs) == [new, old]
    touch(runs / "b.db-wal", 400)  # it is being written to
    assert list_runs(runs) == [old, new]


def test_a_run_is_found_by_path_by_name_and_as_the_last(runs: Path, tmp_path: Path) -> None:
    run, elsewhere = touch(runs / "x-1.db", 200), touch(tmp_path / "other.sqlite", 300)
    touch(runs / "x-0.db", 100)
    assert find_run("x-1") == find_run("x-1.db") == find_run(str(run)) == find_run("last") == run
    assert find_run(str(elsewhere)) == elsewhere


@pytest.mark.parametrize("name", ["x-2", "/somewhere/else/x-1.db", "../x-1", ""])
def test_an_unknown_run_lists_the_nearest(runs: Path, name: str) -> None:
    touch(runs / "x-1.db", 200)
    with pytest.raises(InputError, match=r"unknown run .*Known: 'x-1'"):
        find_run(name)


def test_there_is_no_last_run_yet(runs: Path) -> None:
    with pytest.raises(InputError, match="no runs"):
        find_run("last")


def test_a_new_run_has_a_name_of_its_own(runs: Path) -> None:
    first = new_run_path("comp-mcts: a/b ü")
    assert first.parent == runs
    assert not runs.exists()
    assert first.name.endswith("-comp-mcts-a-b-ü.db")
    taken = touch(runs / first.name, 1)
    others = {new_run_path("comp-mcts: a/b ü") for _ in range(3)}
    assert taken not in others
    assert new_run_path("../..").name.endswith("-run.db")
