from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import IO

import pytest
import store_kills
import store_samples
from store_samples import (
    MANIFEST,
    MODEL,
    QUERY,
    expected,
    fill,
    option,
    result,
    sample,
    spent,
    told,
)

from waysout.domain.result import OutcomeKind
from waysout.errors import InputError, IntegrityError, UnavailableError
from waysout.files import try_lock
from waysout.store import Store, delete_run, list_runs, tables
from waysout.store.lock import WriterLock, is_locked, lock_path
from waysout.store.repair import repair

KILLS = 40


def writer(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, store_samples.__file__, str(path)], stdout=subprocess.PIPE, text=True
    )


def said(process: subprocess.Popen[str], number: int) -> None:
    """Wait until an answer is on file."""
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= number:
            return
    raise AssertionError("the writer ended by itself")


@pytest.mark.parametrize("number", [0, 3, 60])
def test_a_killed_writer_loses_nothing_it_had_recorded(tmp_path: Path, number: int) -> None:
    path = tmp_path / "run.db"
    with writer(path) as process:
        said(process, number)
        process.kill()
    with Store.read(path) as store:
        assert store.summary().status == "interrupted"
    assert repair(path).fine
    with Store.open(path) as store:
        found = list(told(store, 0))
        assert len(found) > number
        assert found == [expected(n) for n in range(len(found))]
        assert store.spent(0) == spent(len(found))
        # And it goes on from there.
        store.record(0, 0, *sample(len(found)), spent(1), model=MODEL)
        assert len(list(store.answers(0))) == len(found) + 1


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs whose writers were killed while they began, opened or closed them."""
    if sys.platform == "win32":
        pytest.skip("nothing forks there")
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, store_kills.__file__, str(folder), str(KILLS)]
    subprocess.run(command, check=True, timeout=60)
    return folder


def test_a_run_whose_beginning_was_killed_is_there_or_not(killed: Path) -> None:
    there = {path.stem for path in list_runs(killed)}
    for name in (f"begun-{i}" for i in range(KILLS)):
        path = killed / f"{name}.db"
        if name not in there:
            Store.create(path, MANIFEST).close()
        with Store.read(path) as store:
            store.verify()
            assert store.manifest["method"] == "comp-mcts"
        Store.open(path).close()
        assert sorted(killed.glob(f"*{name}.*")) == [path]


@pytest.mark.parametrize("name", ["opened", "filed"])
def test_a_kill_while_a_run_is_opened_or_an_event_filed_keeps_no_reader_out(
    killed: Path, name: str
) -> None:
    for i in range(KILLS):
        path = killed / f"{name}-{i}.db"
        with Store.read(path) as store:
            store.verify()
            assert store.summary().status == "interrupted"
        assert not path.with_name(f"{path.name}-journal").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX's")
@pytest.mark.parametrize(
    "step", ["tables.connect", "tables._make_tables", "tables.insert", "Path.rename"]
)
def test_killed_at_any_step_of_its_beginning_it_can_begin_again(tmp_path: Path, step: str) -> None:
    path = tmp_path / "run.db"
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from waysout.store import Store, tables\n"
        f"{step} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Store.create(sys.argv[1], {})\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert list_runs(tmp_path) == []
    with pytest.raises(InputError, match="there is no run"):
        Store.read(path)
    Store.create(path, MANIFEST).close()
    assert list(tmp_path.iterdir()) == [path]


def test_the_log_of_a_run_that_was_removed_is_not_taken_for_the_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with writer(path) as process:
        said(process, 3)
        process.kill()
    path.unlink()
    assert path.with_name("run.db-wal").exists()
    with Store.create(path, MANIFEST) as store:
        store.verify()
        assert list(store.queries()) == []


def test_what_a_kill_left_in_a_journal_is_undone_for_readers(tmp_path: Path) -> None:
    path, left = tmp_path / "run.db", tmp_path / "left.db"
    with Store.create(path, MANIFEST) as store:
        store.event("hello", {})
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA cache_size = 1")  # what is not committed goes into the file
        db.execute("BEGIN")
        db.executemany("INSERT INTO events (at) VALUES (?)", [(number,) for number in range(9999)])
        for ending in ("", "-journal"):
            shutil.copy(f"{path}{ending}", f"{left}{ending}")
    assert left.stat().st_size > 100_000
    with Store.read(left) as store:
        assert [event.kind for event in store.events()] == ["hello"]
    assert repair(left).fine


@pytest.mark.skipif(sys.platform == "win32", reason="the file system is one of SQLite's for POSIX")
def test_without_shared_memory_a_journal_guards_the_run(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    Store.create(path, MANIFEST).close()
    uri = f"{path.as_uri()}?vfs=unix-dotfile"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as db:
        tables.write_ahead(db)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_second_writer_is_refused_and_a_reader_is_not(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with writer(path) as process:
        said(process, 5)
        with pytest.raises(UnavailableError, match=rf"another process \(pid {process.pid}\)"):
            Store.open(path)
        with Store.read(path) as store:
            assert store.summary().status == "running"
            first = list(told(store, 0))
            said(process, len(first) + 20)
            second = list(told(store, 0))
            assert len(first) < len(second)
            assert second == [expected(n) for n in range(len(second))]
            with pytest.raises(UnavailableError, match="open for reading only"):
                store.event("hello", {})
        process.kill()
    with Store.open(path) as store:
        assert len(list(told(store, 0))) >= len(second)


def test_two_writers_in_one_process(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run.db", MANIFEST) as store:
        with pytest.raises(UnavailableError, match="being written"):
            Store.open(store.path)
        with pytest.raises(UnavailableError, match="being written"):
            Store.create(store.path, MANIFEST)
        with Store.read(store.path) as reader:
            store.event("started", {})
            assert [event.kind for event in reader.events()] == ["started"]
        assert is_locked(store.path)
        assert store.summary().status == "running"
    assert not is_locked(store.path)
    assert sorted(tmp_path.iterdir()) == [store.path]
    Store.open(store.path).close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_what_a_model_forks_holds_no_lock_after_us(tmp_path: Path) -> None:
    (theirs, begun), (until, ours), forked = os.pipe(), os.pipe(), 0
    try:
        with Store.create(tmp_path / "run.db", MANIFEST) as store:
            forked = os.fork()
            if not forked:
                os.close(ours)
                os.write(begun, b"x")
                os.read(until, 1)  # nothing comes; the test ends
                os._exit(0)
            os.read(theirs, 1)
            assert is_locked(store.path)
            # As a kill would leave it: unlike a release, it removes no file.
            store._lock._file.close()  # type: ignore[union-attr]
            assert not is_locked(store.path)
    finally:
        for end in (theirs, begun, until, ours):
            os.close(end)
        if forked:
            os.waitpid(forked, 0)


def test_a_lock_file_that_has_gone_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one who leaves removes the lock file while another has just opened it."""
    path = tmp_path / "run.db"
    Store.create(path, MANIFEST).close()
    tries: list[IO[bytes]] = []

    def leaving(file: IO[bytes]) -> bool:
        if not tries:
            lock_path(path).unlink()
        tries.append(file)
        return try_lock(file)

    with monkeypatch.context() as patched:
        patched.setattr("waysout.store.lock.try_lock", leaving)
        store = Store.open(path)
    with store:
        assert len(tries) == 2
        assert is_locked(path)


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes are POSIX's")
@pytest.mark.parametrize("what", ["link", "dangling link", "pipe", "folder"])
def test_what_is_in_the_place_of_the_lock_file_is_not_touched(tmp_path: Path, what: str) -> None:
    path, victim = tmp_path / "run.db", tmp_path / "victim"
    Store.create(path, MANIFEST).close()
    victim.write_text("precious")
    place = lock_path(path)
    if what == "pipe":
        os.mkfifo(place)
    elif what == "folder":
        place.mkdir()
    else:
        place.symlink_to(victim if what == "link" else "nowhere")
    with victim.open() as file:
        assert try_lock(file)  # type: ignore[arg-type]
        assert not is_locked(path)
    for open_ in (Store.open, repair, delete_run):
        with pytest.raises(UnavailableError, match=r"run\.db\.lock is not a file but"):
            open_(path)
    assert victim.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()
    with Store.read(path) as store:
        assert store.summary().status == "interrupted"


@pytest.mark.skipif(sys.platform == "win32", reason="links are POSIX's")
def test_a_link_that_comes_just_before_the_lock_is_taken_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, victim = tmp_path / "run.db", tmp_path / "victim"
    victim.write_text("precious")
    lstat = Path.lstat

    def then_linked(place: Path) -> os.stat_result:
        try:
            return lstat(place)
        finally:
            with suppress(FileExistsError):
                place.symlink_to(victim)

    monkeypatch.setattr(Path, "lstat", then_linked)
    with pytest.raises(UnavailableError):
        WriterLock.take(path)
    assert victim.read_text() == "precious"


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.db"
    Store.create(path, MANIFEST).close()
    before = path.read_bytes()
    with pytest.raises(InputError, match="exists already"):
        Store.create(path, {})
    assert path.read_bytes() == before
    if os.name == "posix":
        assert path.stat().st_mode & 0o077 == 0


def test_a_failed_beginning_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bool:
        raise sqlite3.OperationalError("no")

    monkeypatch.setattr(tables, "insert", broken)
    with pytest.raises(IntegrityError, match="no"):
        Store.create(tmp_path / "run.db", MANIFEST)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("way", [Store.open, Store.read])
def test_what_is_no_run_is_refused(tmp_path: Path, way) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "x.db"
    with pytest.raises(InputError, match=r"there is no run .*x\.db"):
        way(path)
    for content in (b"", b"hello" * 1000):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not a Waysout run"):
            way(path)
        assert path.read_bytes() == content
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE run (id, at, body, crc)")
    db.close()
    with pytest.raises(InputError, match="not a Waysout run"):
        way(path)
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_run_of_the_future_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with tables.creating(path) as db:
        tables.insert(db, "run", (1, json.dumps({"waysout_run": 2})))
    with pytest.raises(InputError, match="version 2, and this release reads 1"):
        Store.open(path)
    assert not is_locked(path)


def test_a_closed_run_says_so(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run.db", MANIFEST)
    store.close()
    store.close()
    with pytest.raises(UnavailableError, match="closed"):
        store.event("late", {})


def test_a_run_at_rest_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Store.create(path, MANIFEST) as store:
        store.event("started", {})
        assert len(list(tmp_path.iterdir())) == 4  # the log, its index and the lock
    with Store.read(path) as reader:
        assert sorted(tmp_path.iterdir()) == [path]
        with Store.open(path) as store:
            store.event("resumed", {})
            assert [event.kind for event in reader.events()] == ["started", "resumed"]
        assert len(list(reader.events())) == 2
    Store.open(path).close()
    assert sorted(tmp_path.iterdir()) == [path]


def test_another_thread_may_write(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run.db", MANIFEST) as store:
        threads = [
            threading.Thread(target=store.record, args=(i, 1, *sample(0), spent(1)))
            for i in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.summary().llm_calls == 8


def test_the_summary_counts(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Store.create(path, {**MANIFEST, "queries": 7}) as store:
        fill(store)
        store.finish(5, result(5, OutcomeKind.INTERRUPTED))
        store.add_query(6, QUERY)
    with Store.read(path) as store:
        found = store.summary()
    assert (found.queries, found.finished, found.interrupted, found.open) == (7, 5, 1, 1)
    assert (found.options, found.llm_calls, found.oracle_rows) == (72, 36, 180)
    assert (found.method, found.llm, found.status) == ("comp-mcts", MODEL, "interrupted")
    assert found.created <= found.updated
    with Store.open(path) as store:
        store.finish(5, result(5))
        assert store.summary().interrupted == 0
        store.finish(6, result(6))
    with Store.read(path) as store:
        assert store.summary().status == "finished"


def test_a_run_without_an_llm_names_none(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run.db", {"method": "random", "llm": None}) as store:
        assert store.summary().llm == ""


def test_a_run_that_has_not_filed_all_its_queries_is_not_finished(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run.db", {"queries": 2}) as store:
        store.add_query(0, QUERY)
        store.finish(0, result(0))
    with Store.read(tmp_path / "run.db") as store:
        assert store.summary().status == "interrupted"


@pytest.mark.parametrize(
    ("told", "expected", "status"),
    [
        ({"queries": None}, [], "interrupted"),
        ({"queries": None}, [1], "finished"),
        ({"queries": 1}, [1], "finished"),
        ({"queries": 1}, [3, 1], "interrupted"),
        ({}, [], "finished"),
        ({}, [2], "interrupted"),
    ],
    ids=["unknown", "told-later", "told-twice", "more-came", "nothing-said", "more-expected"],
)
def test_a_run_is_finished_when_all_that_are_expected_are(
    told: dict[str, object], expected: list[int], status: str, tmp_path: Path
) -> None:
    with Store.create(tmp_path / "run.db", told) as store:
        store.add_query(0, QUERY)
        store.finish(0, result(0))
        for number in expected:
            store.expect(number)
        known = [told["queries"]] if "queries" in told else []
        assert len(list(store.events())) == len(set(expected) - set(known))
    with Store.read(tmp_path / "run.db") as store:
        assert store.summary().status == status


def test_a_run_of_many_queries_costs_the_same_for_each(tmp_path: Path) -> None:
    counted: list[str] = []
    with Store.create(tmp_path / "run.db", MANIFEST) as store:
        store._db.set_trace_callback(counted.append)

        def statements_of_one(index: int) -> int:
            before = len(counted)
            store.add_query(index, QUERY)
            store.record(index, 1, *sample(1), spent(1))
            store.options_found(index, [option(1)])
            store.finish(index, result(index))
            return len(counted) - before

        assert {statements_of_one(index) for index in range(2000)} == {statements_of_one(2000)}
        seen = set(counted)
        counted.clear()
        assert store.summary().finished == 2001
        assert len(counted) == 9
        list(store.answers(77)), list(store.setup(77)), list(store.options(77))
        store.spent(77), store.finished(77), store.partial(77), store.query(77)
        next(store.results()), next(store.queries()), next(store.events(), None)
        assert len(counted) < 25
        store._db.set_trace_callback(None)
        for sql in {*seen, *counted}:
            if sql.startswith(("SELECT", "DELETE", "UPDATE")):
                plan = [row["detail"] for row in store._db.execute(f"EXPLAIN QUERY PLAN {sql}")]
                assert all(step.startswith("SEARCH") for step in plan), (sql, plan)
