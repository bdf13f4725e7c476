from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from functools import partial, partialmethod
from pathlib import Path

import numpy as np
import pytest
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

import waysout.store.lock
from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind
from waysout.errors import InputError, IntegrityError, UnavailableError, WaysoutError
from waysout.search.work import Evaluate
from waysout.store import Store, delete_run, tables
from waysout.store.repair import RepairCounts, repair
from waysout.store.salvage import lost_entries
from waysout.store.tables import faults

PAGE = tables.PAGE_SIZE


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 6 queries with 12 answers each, all but the last finished."""
    path = tmp_path_factory.mktemp("whole") / "run.db"
    with Store.create(path, MANIFEST) as store:
        fill(store)
    return path


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(whole, tmp_path / "run.db"))


def check_usable(path: Path) -> int:
    """Whatever is left can be replayed, and the run can go on; returns how much is left."""
    kept = 0
    with Store.open(path) as store:
        store.verify()
        for index in range(6):
            found = list(told(store, index))
            assert found == [expected(n) for n in range(len(found))]
            assert store.spent(index) == spent(len(found))
            kept += len(found)
        for index in range(6):
            assert store.finished(index) in (None, result(index))
        store.record(0, 1, *sample(0), spent(1), model=MODEL)
    return kept


def read_all(path: Path) -> None:
    with Store.read(path) as store:
        store.verify()


def test_a_whole_run_is_left_alone(run: Path) -> None:
    before = run.read_bytes()
    report = repair(run)
    assert (report.fine, report.original, report.unusable) == (True, run, 0)
    assert run.read_bytes() == before
    assert sorted(run.parent.iterdir()) == [run]
    assert check_usable(run) == 72


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9, 0.999])
def test_a_truncated_run(run: Path, share: float) -> None:
    with run.open("r+b") as file:
        file.truncate(int(run.stat().st_size * share))
    cut = run.read_bytes()
    with pytest.raises(IntegrityError, match=f"waysout runs repair {run}"):
        read_all(run)
    report = repair(run)
    assert not report.fine
    assert report.original == run.with_name("run.db.damaged")
    assert report.original.read_bytes() == cut
    assert report.tables["run"] == RepairCounts(1, 0)
    answers = report.tables["answers"]
    assert answers.lost is not None
    assert answers.kept + answers.lost == 72
    assert check_usable(run) == answers.kept
    assert repair(run).fine


def test_most_of_a_run_cut_at_its_end_is_saved(run: Path) -> None:
    with run.open("r+b") as file:
        file.truncate(run.stat().st_size - 2 * PAGE)
    assert repair(run).tables["answers"].kept > 60


@pytest.mark.parametrize("seed", range(8))
def test_bytes_overwritten_in_the_middle(run: Path, seed: int) -> None:
    draw = random.Random(seed)
    data = bytearray(run.read_bytes())
    for _ in range(4):
        at, length = draw.randrange(2 * PAGE, len(data)), draw.choice([1, 40, PAGE, 3 * PAGE])
        data[at : at + length] = draw.randbytes(len(data[at : at + length]))
    run.write_bytes(data)
    if not _says_so(run):  # the bytes were of no use to anybody
        assert repair(run).fine
        return
    report = repair(run)
    assert not report.fine
    assert check_usable(run) == report.tables["answers"].kept
    assert report.tables["answers"].kept > 0


def _says_so(path: Path) -> bool:
    try:
        read_all(path)
    except (IntegrityError, InputError):
        return True
    return False


@pytest.mark.parametrize("way", [Store.read, Store.open])
def test_a_changed_letter_is_noticed_when_the_run_is_opened(
    run: Path, way: Callable[[Path], Store]
) -> None:
    data = run.read_bytes()
    assert b"reply 4 x" in data
    at = data.index(b"reply 4 x")
    run.write_bytes(data[:at] + b"R" + data[at + 1 :])
    with pytest.raises(IntegrityError, match="row 25 of answers"):
        way(run)
    report = repair(run)
    # The answers of that query after the fourth are whole, and of no use without it.
    assert report.tables["answers"] == RepairCounts(64, 8)
    assert report.unusable == 7
    with Store.read(run) as store:
        assert sorted(len(list(store.answers(index))) for index in range(6)) == [4] + 5 * [12]


def test_a_text_that_has_become_bytes_is_noticed_and_mended(run: Path) -> None:
    """One bit of a row's header says which it is, and the checksum is of the content."""
    with sqlite3.connect(run) as db:
        db.execute("UPDATE answers SET label = CAST(label AS BLOB) WHERE id = 1")
    db.close()
    with pytest.raises(IntegrityError, match="row 1 of answers"):
        read_all(run)
    assert repair(run).tables["answers"] == RepairCounts(72, 0)
    assert check_usable(run) == 72


def test_a_byte_that_is_no_text_in_the_schema(run: Path) -> None:
    """SQLite's message quotes it, and Python cannot read that."""
    data = run.read_bytes()
    assert data.count(b"totals") > 10
    for name in (b"queries", b"answers_seq", b"totals", b"INDEX", b"BEGIN UPDATE"):
        at = data.index(name, 100)
        run.write_bytes(data[: at + 4] + b"\xd7" + data[at + 5 :])
        with pytest.raises(IntegrityError, match=f"waysout runs repair {run}"):
            read_all(run)
    assert repair(run).tables["answers"] == RepairCounts(72, 0)
    assert check_usable(run) == 72


def test_a_changed_trigger_is_noticed_before_it_counts_wrongly(run: Path) -> None:
    data = run.read_bytes()
    run.write_bytes(data.replace(b"options = options + (1)", b"options = options + (3)"))
    with pytest.raises(IntegrityError, match="its tables are not those of a run"):
        Store.open(run)
    assert repair(run).tables["options"] == RepairCounts(72, 0)


# Short here; each could as well go on for ever, or take all memory.
VIEW = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 9)"
CRAFTED = {
    "a view for the manifest": [
        "ALTER TABLE run RENAME TO other",
        f"CREATE VIEW run AS {VIEW} SELECT 1 AS id, 0 AS at, '' AS body, max(x) AS crc FROM c",
    ],
    "a view for the rows": [
        "ALTER TABLE events RENAME TO other",
        f"CREATE VIEW events AS {VIEW} SELECT x AS id, 0 AS at, 0 AS query, '' AS kind, "
        "'' AS body, 0 AS crc FROM c",
    ],
    "a check": [
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET sql = replace(sql, 'crc)', 'crc, CHECK (length(body) < 0))') "
        "WHERE name IN ('run', 'queries')",
    ],
    "a computed column": ["ALTER TABLE queries ADD COLUMN more AS (hex(body))"],
    "an index": ["CREATE INDEX more ON queries (hex(body))"],
    "a trigger": ["CREATE TRIGGER more AFTER INSERT ON events BEGIN DELETE FROM answers; END"],
    "another table": ["CREATE TABLE more (id)"],
}


@pytest.mark.parametrize("what", CRAFTED)
def test_nothing_is_asked_of_tables_that_are_not_ours(run: Path, what: str) -> None:
    with sqlite3.connect(run) as db:
        for sql in CRAFTED[what]:
            db.execute(sql)
    db.close()
    for open_ in (Store.read, Store.open):
        with pytest.raises(IntegrityError, match="its tables are not those of a run"):
            open_(run)
    assert repair(run).tables["answers"] == RepairCounts(72, 0)
    assert check_usable(run) == 72


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a row in every table."""
    path = tmp_path_factory.mktemp("few") / "run.db"
    with Store.create(path, MANIFEST) as store:
        fill(store, queries=2, answers=1)
        store.event("hello", {})
    return path


def put(run: Path, table: str, column: str, value: object) -> None:
    """Change a cell of the first row of a table; the checksum is right."""
    columns = tables.COLUMNS[table]
    with sqlite3.connect(run) as db:
        row = dict(zip(columns, db.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY id")
                   .fetchone(), strict=True)) | {column: value}  # fmt: skip
        crc = tables.checksum(table, list(row.values()))
        db.execute(
            f"UPDATE {table} SET {column} = ?, crc = ? WHERE id = (SELECT min(id) FROM {table})",
            (value, crc),
        )
    db.close()


def all_of(path: Path) -> list[object]:
    with Store.read(path) as store:
        many = (store.queries(), store.results(), store.events(), *map(store.options, range(6)),
                *map(store.answers, range(6)), *map(store.setup, range(6)))  # fmt: skip
        one = (of(index) for index in range(6) for of in (store.query, store.finished, store.spent))
        return [store.manifest, store.summary(), *map(list, many), *one]


@pytest.mark.parametrize(
    ("column", "value"),
    [("at", "x"), ("at", 2**62), ("at", -1), ("at", None), ("body", 5), ("body", None)],
)
@pytest.mark.parametrize("table", tables.COLUMNS)
def test_a_cell_of_another_kind_is_damage_whatever_its_checksum(
    few: Path, tmp_path: Path, table: str, column: str, value: object
) -> None:
    run = Path(shutil.copy(few, tmp_path))
    put(run, table, column if column in tables.COLUMNS[table] else "answer", value)
    with pytest.raises(IntegrityError, match=rf"run\.db is damaged \(row \d+ of {table}\)"):
        all_of(run)
    assert repair(run).tables[table].lost == 1
    all_of(run)


@pytest.mark.parametrize("value", ["", "[]", "null", "5", '"x"', "[[1, 2], [3]]", '{"x": [1]}'])
@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("run", "body"),
        ("queries", "body"),
        ("answers", "answer"),
        ("options", "body"),
        ("results", "body"),
        ("events", "body"),
    ],
)
def test_json_of_another_shape_is_named(
    few: Path, tmp_path: Path, table: str, column: str, value: str
) -> None:
    run = Path(shutil.copy(few, tmp_path))
    put(run, table, column, value)
    if value.startswith("{") and table in ("run", "queries", "events"):
        return  # a table, and what is in it is for others to judge
    with pytest.raises(
        IntegrityError, match=rf"run\.db cannot be read: row \d+ of {table} is none"
    ):
        all_of(run)


@pytest.mark.parametrize(
    "value", ["[]", "[[[[1]]], [true]]", "[[0.5], [true, true]]", "[[1], [1]]"]
)
def test_answers_that_fit_no_rows_are_named(few: Path, tmp_path: Path, value: str) -> None:
    run = Path(shutil.copy(few, tmp_path))
    rows, answers = ((1, 2),) * 2, Answers(np.array([0.1, 0.2]), np.array([True, False]))
    with Store.open(run) as store:
        store.record_setup(1, "x", rows, answers, spent(2))
        store.record(1, 1, Evaluate(1, rows), answers, spent(3))
    for kind in ("setup", "evaluate"):
        copy = Path(shutil.copy(run, run.with_name(f"{kind}.db")))
        with sqlite3.connect(copy) as db:
            columns = ", ".join(tables.COLUMNS["answers"])
            sql = f"SELECT {columns} FROM answers WHERE query = 1 AND kind = ? ORDER BY id DESC"
            row = list(db.execute(sql, (kind,)).fetchone())
            row[-2] = value
            crc = tables.checksum("answers", row)
            db.execute("UPDATE answers SET answer = ?, crc = ? WHERE query = 1 AND seq = ?",
                       (value, crc, row[2]))  # fmt: skip
        db.close()
        with pytest.raises(IntegrityError, match="of answers is none that a release writes"):
            all_of(copy)


def test_the_last_number_that_a_row_may_have(run: Path) -> None:
    with sqlite3.connect(run) as db:
        db.execute(f"UPDATE options SET id = {2**63 - 1} WHERE id = 72")
    db.close()
    with Store.read(run) as store:
        assert sum(len(list(store.options(index))) for index in range(6)) == 72


def test_ctrl_c_ends_a_long_statement(run: Path) -> None:
    count = "WITH RECURSIVE c(x) AS (SELECT begin() UNION ALL SELECT x + 1 FROM c LIMIT 50000000)"
    stop = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])

    def begin() -> int:
        stop.start()
        return 1

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    with closing(tables.connect(run, read_only=True)) as db, ExitStack() as undo:
        undo.callback(signal.signal, signal.SIGINT, before)
        db.create_function("begin", 0, begin)
        with pytest.raises(KeyboardInterrupt) as stopped, faults(run):
            db.execute(f"{count} SELECT max(x) FROM c")
    # By SQLite itself: it did not come to the end first.
    assert isinstance(stopped.value.__context__, sqlite3.OperationalError)


def test_rows_that_a_page_no_longer_counts_are_missed(run: Path) -> None:
    """The number of cells in a page's header: with less of them nothing else looks wrong."""
    with sqlite3.connect(run) as db:
        at = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'events'").fetchone()[0]
    db.close()
    with Store.open(run) as store:
        store.event("hello", {})
    data = bytearray(run.read_bytes())
    place = (at - 1) * PAGE
    assert data[place + 3 : place + 5] == b"\0\1"
    data[place + 4] = 0
    run.write_bytes(data)
    with pytest.raises(IntegrityError):
        Store.read(run)


def test_a_number_that_no_row_has_stops_no_repair(run: Path) -> None:
    with sqlite3.connect(run) as db:
        db.execute("UPDATE events SET id = -5")
        db.execute("INSERT INTO events SELECT -id, at, id, 'x', '{}', 0 FROM queries")
        db.execute("UPDATE run SET id = 9")
    db.close()
    report = repair(run)
    assert report.tables["run"] == RepairCounts(1, 0)
    with Store.read(run) as store:
        assert store.manifest["method"] == MANIFEST["method"]


def test_wrong_counts_are_mended(run: Path) -> None:
    with sqlite3.connect(run) as db:
        db.execute("UPDATE totals SET calls = 7")
    db.close()
    with pytest.raises(IntegrityError, match="its counts are wrong"):
        read_all(run)
    assert repair(run).tables["answers"] == RepairCounts(72, 0)
    with Store.read(run) as store:
        assert store.summary().llm_calls == 36


def test_rows_survive_the_loss_of_the_first_page(run: Path) -> None:
    data = run.read_bytes()
    run.write_bytes(bytes(PAGE) + data[PAGE:])
    with pytest.raises(InputError, match=f"waysout runs repair {run}"):
        Store.open(run)
    report = repair(run)
    assert {name: tally.lost for name, tally in report.tables.items()} == dict.fromkeys(
        tables.COLUMNS, 0
    )
    assert check_usable(run) == 72


def test_a_lost_manifest_leaves_the_results(run: Path) -> None:
    data = run.read_bytes()
    at = data.index(b'"comp-mcts"')
    run.write_bytes(data[:at] + b"XXXX" + data[at + 4 :])
    with pytest.raises(IntegrityError, match="row 1 of run"):
        Store.open(run)
    assert repair(run).tables["run"] == RepairCounts(0, 1)
    with Store.read(run) as store:
        assert store.manifest == {"waysout_run": 1, "lost": True}
        assert [r.index for r in store.results()] == list(range(5))


def test_what_is_still_in_the_log_is_saved(tmp_path: Path) -> None:
    """The file is destroyed while nothing of the log has been folded into it."""
    path, copy = tmp_path / "run.db", tmp_path / "copy.db"
    with Store.create(path, MANIFEST) as store:
        store._db.execute("PRAGMA wal_autocheckpoint = 0")
        fill(store)
        shutil.copy(f"{path}-wal", f"{copy}-wal")
        copy.write_bytes(b"\xff" * PAGE)
    report = repair(copy)
    assert report.tables["answers"] == RepairCounts(72, 0)
    assert report.original.with_name("copy.db.damaged-wal").exists()
    assert check_usable(copy) == 72


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    """A run whose writer was killed: most of it is still in its log."""
    path, copy = tmp_path / "run.db", tmp_path / "logged.db"
    with Store.create(path, MANIFEST) as store:
        fill(store, 2, 4)
        store._db.execute("PRAGMA wal_checkpoint(RESTART)")
        store._db.execute("PRAGMA wal_autocheckpoint = 0")
        for index in (2, 3):  # over the beginning of the log: what follows is of an earlier round
            store.add_query(index, QUERY)
            store.record(index, 1, *sample(0), spent(1), model=MODEL)
        for ending in ("", "-wal"):
            shutil.copy(f"{path}{ending}", f"{copy}{ending}")
        assert Store.read(path).lost_entries == 0
    return copy


def test_the_log_that_a_kill_leaves_is_not_damaged(logged: Path) -> None:
    log = logged.with_name("logged.db-wal")
    whole = log.read_bytes()
    for cut in (*range(120), *range(120, len(whole), 999)):
        log.write_bytes(whole[:cut])
        assert lost_entries(logged) == 0
    log.write_bytes(whole[: 2 * PAGE] + bytes(PAGE))  # a page that did not reach the disk
    assert lost_entries(logged) == 0
    log.write_bytes(whole)
    with Store.read(logged) as store:
        assert (store.summary().queries, store.lost_entries) == (4, 0)
    assert repair(logged).fine


@pytest.mark.parametrize("at", [20, 60, 5000])
def test_a_log_that_is_damaged_before_its_end_says_what_is_lost_and_can_be_repaired(
    logged: Path, at: int
) -> None:
    log = logged.with_name("logged.db-wal")
    data = bytearray(log.read_bytes())
    data[at] ^= 1
    log.write_bytes(data)
    with Store.read(logged) as store:
        # In the head, all of the log is lost, with what is in the file as well.
        assert store.lost_entries in ((4,) if at > 32 else range(4, 50))
        assert store.summary().queries == 2
    copy = shutil.copy(logged, logged.with_name("copy.db"))
    shutil.copy(log, f"{copy}-wal")
    with Store.open(copy) as store:
        assert store.lost_entries >= 4
    assert Store.read(copy).lost_entries == 0
    report = repair(logged)
    assert not report.fine
    with Store.read(logged) as store:
        assert store.summary().llm_calls >= 5
        assert store.lost_entries == 0
    assert repair(logged).fine


class Killed(BaseException):
    pass


def test_a_repair_that_is_killed_at_any_step_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is destroyed, so that all there is is in the log."""
    whole = tmp_path / "whole.db"
    with Store.create(whole, MANIFEST) as store:
        store._db.execute("PRAGMA wal_autocheckpoint = 0")
        fill(store)
        log = whole.with_name("whole.db-wal").read_bytes()
    left, run = 0, tmp_path / "run.db"

    def killed_at_zero(
        step: Callable[..., object], path: Path, *args: object, **how: object
    ) -> object:
        nonlocal left
        if path.suffix == ".lock":  # which the system would release
            return step(path, *args, **how)
        left -= 1
        if left == 0:
            raise Killed
        return step(path, *args, **how)

    for name in ("hardlink_to", "rename", "replace", "unlink"):
        monkeypatch.setattr(Path, name, partialmethod(partial(killed_at_zero, getattr(Path, name))))
    for kill in itertools.count(1):
        run.write_bytes(b"\xff" * PAGE)
        run.with_name("run.db-wal").write_bytes(log)
        left = kill
        try:
            report = repair(run)
        except Killed:
            assert run.exists()
            report = repair(run)
        assert report.tables["answers"] == RepairCounts(72, 0)
        assert report.original.read_bytes() == b"\xff" * PAGE
        if left > 0:  # there are not so many steps
            break
        deleted = delete_run(run)
        assert report.original.with_name(f"{report.original.name}-wal") in deleted
        assert list(tmp_path.iterdir()) == [whole]
    assert kill > 10


def test_where_there_are_no_links_a_damaged_file_is_copied(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError("no links here")

    with run.open("r+b") as file:
        file.truncate(run.stat().st_size // 2)
    before, mode = run.read_bytes(), run.stat().st_mode
    monkeypatch.setattr(Path, "hardlink_to", none)
    original = repair(run).original
    assert (original.read_bytes(), original.stat().st_mode) == (before, mode)
    check_usable(run)


def test_repair_can_leave_the_original_in_its_place(run: Path, tmp_path: Path) -> None:
    with run.open("r+b") as file:
        file.truncate(run.stat().st_size // 2)
    before, out = run.read_bytes(), tmp_path / "saved.db"
    report = repair(run, out)
    assert (report.path, report.original) == (out, run)
    assert run.read_bytes() == before
    check_usable(out)
    with pytest.raises(InputError, match="exists already"):
        repair(run, out)


def test_a_second_damaged_file_does_not_replace_the_first(run: Path, whole: Path) -> None:
    for name in ("run.db.damaged", "run.db.damaged-2"):
        shutil.copy(whole, run)
        with run.open("r+b") as file:
            file.truncate(run.stat().st_size // 2)
        assert repair(run).original.name == name


def test_nothing_to_save(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with pytest.raises(InputError, match="there is no run"):
        repair(path)
    for content in (b"", b"hello" * 2000, random.Random(0).randbytes(5 * PAGE)):
        path.write_bytes(content)
        with pytest.raises(IntegrityError, match="nothing of a Waysout run"):
            repair(path)
        assert path.read_bytes() == content
        assert sorted(tmp_path.iterdir()) == [path]


def test_a_damaged_run_of_the_future_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with tables.creating(path) as db:
        tables.insert(db, "run", (1, json.dumps({"waysout_run": 2})))
    with pytest.raises(InputError, match="version 2"):
        repair(path)
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_run_under_way_is_not_repaired(run: Path) -> None:
    with Store.open(run), pytest.raises(UnavailableError, match="being written"):
        repair(run)


def test_an_older_interrupted_result_does_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Store.create(path, MANIFEST) as store:
        for index in range(40):
            store.finish(index, result(index, OutcomeKind.INTERRUPTED))
        for index in range(39):
            store.finish(index, result(index))
    data = path.read_bytes()
    path.write_bytes(bytes(PAGE) + data[PAGE:])
    repair(path)
    with Store.read(path) as store:
        assert [store.finished(index) for index in range(39)] == [result(i) for i in range(39)]
        assert store.partial(39) == result(39, OutcomeKind.INTERRUPTED)
        assert store.summary().finished == 39


# Full disks --------------------------------------------------------------------------------------


def test_a_full_disk_keeps_what_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Store.create(path, MANIFEST) as store:
        store.add_query(0, QUERY)
        store._db.execute("PRAGMA max_page_count = 60")
        full = f"{path}: the disk is full; everything recorded"
        numbers = iter(range(100))
        with pytest.raises(UnavailableError, match=full):
            _record(store, numbers)
        number = next(numbers) - 1
        with pytest.raises(UnavailableError, match="the disk is full"):
            store.options_found(0, [option(n) for n in range(1000)])
        assert list(store.options(0)) == []
        # Space was made: the same store goes on.
        store._db.execute("PRAGMA max_page_count = 1000")
        _record(store, [number])
    with Store.read(path) as store:
        store.verify()
        assert list(told(store, 0)) == [expected(n) for n in range(number + 1)]


def _record(store: Store, numbers: Iterable[int]) -> None:
    for number in numbers:
        store.record(0, number + 1, *sample(number), spent(number + 1), model=MODEL)


@pytest.mark.skipif(sys.platform == "win32", reason="limits on files are POSIX's")
def test_a_disk_that_takes_no_more(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    script = (
        "import resource, sys, store_samples\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))\n"
        "store_samples.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        check=False,
    )
    assert "UnavailableError: cannot" in done.stderr
    assert "everything recorded so far is kept" in done.stderr
    with Store.open(path) as store:
        store.verify()
        assert len(list(store.answers(0))) == len(done.stdout.split()) > 3


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(waysout.store.lock, "try_lock", full)
    with pytest.raises(UnavailableError, match=r"run\.db: the disk is full"):
        Store.create(tmp_path / "run.db", MANIFEST)
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="cannot use"):
        Store.create(tmp_path / "file" / "run.db", MANIFEST)


@pytest.mark.parametrize("error", [sqlite3.OperationalError("x"), sqlite3.InterfaceError("x")])
def test_no_error_of_sqlite_leaves_raw(error: sqlite3.Error) -> None:
    with pytest.raises(WaysoutError, match=r"run\.db"), faults(Path("run.db")):
        raise error
