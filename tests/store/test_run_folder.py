from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from waysout.errors import InputError, UnavailableError
from waysout.store import (
    Store,
    delete_run,
    find_run,
    list_runs,
    new_run_path,
    runs_dir,
    runs_on_file,
)
from waysout.store.lock import WriterLock, lock_path
from waysout.store.repair import repair
from waysout.store.tables import creating, draft_path, is_run


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


def test_a_run_can_be_deleted_where_nothing_can_be_written(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.FileIO):
        def write(self, _: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run = touch(runs / "a.db", 100)
    monkeypatch.setattr(os, "fdopen", lambda file, *_, **__: Full(file, "r+b"))
    assert delete_run(run) == [run, lock_path(run)]
    assert not list(runs.iterdir())


@pytest.mark.parametrize("which", ["a.db", "a.db-wal"])
def test_what_is_deleted_while_runs_are_listed_is_left_out(
    runs: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    run, log = touch(runs / "a.db", 200), touch(runs / "a.db-wal", 400)
    other, stat = touch(runs / "b.db", 300), Path.stat

    def gone(path: Path, **how: bool) -> os.stat_result:
        """Answer once about the file, as if it was deleted then."""
        found = stat(path, **how)
        if path.name == which:
            path.unlink()
        return found

    monkeypatch.setattr(Path, "stat", gone)
    assert other in list_runs(runs)
    monkeypatch.undo()
    for path in (run, log):
        path.unlink(missing_ok=True)
    run.symlink_to("nowhere")
    assert list_runs(runs) == [other]


def test_a_run_that_is_there_is_found_without_a_look_at_the_others(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = touch(runs / "x-1.db", 200)
    monkeypatch.setattr("waysout.store.folder.list_runs", lambda _: pytest.fail("listed"))
    assert find_run("x-1") == find_run(str(run)) == run


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


@pytest.mark.parametrize("name", ["x" * 255, "x" * 5000, "/x" * 3000])
def test_a_name_that_no_file_can_have_is_an_unknown_run(runs: Path, name: str) -> None:
    touch(runs / "x-1.db", 200)
    with pytest.raises(InputError, match=r"unknown run '.*Known: 'x-1'"):
        find_run(name)


def test_the_home_of_nobody(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="there is no user whose home '~nosuch' would be"):
        find_run("~nosuch/x")
    monkeypatch.setenv("WAYSOUT_RUNS", "~nosuch/x")
    with pytest.raises(InputError, match="'~nosuch/x': there is no user"):
        runs_dir()


def test_there_is_no_last_run_yet(runs: Path) -> None:
    with pytest.raises(InputError, match="no runs"):
        find_run("last")


def test_a_new_run_has_a_name_of_its_own(runs: Path) -> None:
    first = new_run_path("comp-mcts: a/b ü")
    assert first.parent == runs
    assert not runs.exists()
    assert first.name.endswith("-comp-mcts-a-b-ü.db")
    # Nothing is made yet, and other processes may ask in the same second.
    assert len({new_run_path("comp-mcts: a/b ü") for _ in range(50)}) == 50
    assert new_run_path("../..").name.endswith("-run.db")


def draft_of(run: Path) -> Path:
    """The draft of a run whose making was killed."""
    Store.create(run, {}).close()
    draft_path(run).with_name(f"{draft_path(run).name}-journal").touch()
    return run.rename(draft_path(run))


def test_what_kills_left_of_runs_goes_when_the_next_one_is_made(runs: Path) -> None:
    draft_of(runs / "a.db")
    touch(draft_path(runs / "b.db"), 1)  # killed before anything was in it
    draft_of(runs / ".c.db.repaired")
    Store.create(runs / "next.db", {}).close()
    assert [file.name for file in runs.iterdir()] == ["next.db"]


def test_a_draft_that_is_being_filled_or_is_none_of_ours_stays(runs: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "else"
    elsewhere.mkdir()
    theirs = touch(elsewhere / ".theirs.new", 1)
    folder = elsewhere / ".folder.new"
    folder.mkdir()
    with WriterLock.take(elsewhere / "a.db"):
        draft = draft_of(elsewhere / ".a")
        draft = draft.rename(draft_path(elsewhere / "a.db"))
        Store.create(elsewhere / "b.db", {}).close()
        assert draft.exists()
    Store.create(elsewhere / "c.db", {}).close()
    assert not draft.exists()
    assert theirs.exists()
    assert folder.exists()


def test_a_draft_says_whose_it_is_before_it_holds_a_row(tmp_path: Path) -> None:
    with creating(tmp_path / "a.db"):
        assert is_run(draft_path(tmp_path / "a.db"))


def test_a_run_of_which_there_is_only_a_draft_is_named_and_deleted(
    runs: Path, tmp_path: Path
) -> None:
    assert runs_on_file(runs) == []
    draft_of(runs / "a.db")
    touch(runs / "b.db", 1)
    touch(runs / ".c.db.repaired", 1)
    touch(runs / "..d.db.repaired.new", 1)
    touch(runs / "e.db.damaged-2-wal", 1)
    touch(runs / "notes.txt", 1)
    names = ["a.db", "b.db", "c.db", "d.db", "e.db"]
    assert [run.name for run in runs_on_file(runs)] == names
    for run in runs_on_file(runs):
        assert delete_run(run)
    assert [file.name for file in runs.iterdir()] == ["notes.txt"]
    draft = draft_of(tmp_path / "x.sqlite")
    assert draft in delete_run(tmp_path / "x.sqlite")
    assert not draft.exists()


def test_a_link_is_not_deleted_and_says_where_the_run_is(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "kept" / "x.db"
    Store.create(run, {}).close()
    runs.mkdir()
    (runs / "lk.db").symlink_to(run)
    with pytest.raises(InputError, match=rf"lk.db is a link, and was not deleted: .*{run}"):
        delete_run(find_run("lk"))
    assert run.exists()
    assert (runs / "lk.db").is_symlink()
    (loop := runs / "loop.db").symlink_to(loop)
    with pytest.raises(InputError, match=r"loop\.db is a link, and was not deleted"):
        delete_run(loop)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without named pipes")
@pytest.mark.parametrize("ending", ["-journal", "-wal", "-shm"])
def test_a_pipe_beside_a_run_is_named_and_keeps_nobody_waiting(runs: Path, ending: str) -> None:
    run = runs / "a.db"
    Store.create(run, {}).close()
    os.mkfifo(pipe := runs / f"a.db{ending}")
    (runs / "lk.db").symlink_to(run)
    opened = (Store.read, Store.open, repair)
    for open_it, path in [*((o, run) for o in opened), (Store.read, runs / "lk.db")]:
        with pytest.raises(UnavailableError, match=rf"{pipe} is a folder, a pipe or the like"):
            open_it(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without named pipes")
def test_a_pipe_in_the_place_of_a_run_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "a.db")
    with pytest.raises(UnavailableError, match=r"a.db is a folder, a pipe"):
        delete_run(pipe)
