"""The tables of a run, and how a connection to its file is made.

    run       the manifest
    queries   the rows asked about
    answers   what LLM and oracle said, numbered per query without gaps (``seq``), with the ledger
    options   what was found, as it was found
    results   one per query: finished (``final``) or what there was when it ended
    events    how many queries there are, who tried the oracle, why it stopped
    totals    one row of counts, kept by triggers: a summary costs the same for any number of rows

Every row but the totals ends in a checksum: SQLite itself would not notice a changed letter.
"""

from __future__ import annotations

import os
import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from waysout.errors import InputError
from waysout.store.cells import Cell
from waysout.store.faults import damaged, faults

APPLICATION = 0x57415953
TOTALS_MARK = "waysout totals"
PAGE_SIZE = 4096
SIDE_FILES = ("-wal", "-shm", "-journal")

# Times are whole microseconds: SQLite would store a float without decimals as another type.
COLUMNS: dict[str, tuple[str, ...]] = {
    "run": ("at", "body"),
    "queries": ("at", "query", "body"),
    "answers": (
        "at", "query", "seq", "kind", "label", "asked", "work", "size", "question", "answer",
        "spent",
    ),
    "options": ("at", "query", "key", "body"),
    "results": ("at", "query", "final", "body"),
    "events": ("at", "query", "kind", "body"),
}  # fmt: skip
COUNTS = (*COLUMNS, "finished", "calls", "oracle_rows")

_INDICES = (
    "CREATE UNIQUE INDEX queries_query ON queries (query)",
    "CREATE UNIQUE INDEX answers_seq ON answers (query, seq)",
    "CREATE UNIQUE INDEX options_key ON options (query, key)",
    "CREATE INDEX options_query ON options (query)",
    "CREATE UNIQUE INDEX results_query ON results (query)",
)
_ALSO_COUNTED = {
    "answers": {"calls": "{row}.kind = 'propose'",
                "oracle_rows": "{row}.size * ({row}.kind = 'evaluate')"},
    "results": {"finished": "{row}.final"},
}  # fmt: skip
_BUSY_SECONDS = 10.0

# What no replay can use: answers that do not follow on those before them.
AFTER_GAP = """
    SELECT id FROM (
        SELECT id, seq, row_number() OVER (PARTITION BY query ORDER BY seq) - 1 AS place
        FROM answers
    ) WHERE seq != place"""


def now() -> int:
    """Return the time in microseconds."""
    return time.time_ns() // 1000


def checksum(table: str, values: Sequence[Cell]) -> int:
    """Return the checksum of a row of a table."""
    found = zlib.crc32(table.encode())
    for value in values:
        data = value if isinstance(value, bytes) else str(value).encode()
        found = zlib.crc32(data + b"\0", found)
    return found


def insert(db: sqlite3.Connection, table: str, values: Sequence[Cell], id: int | None = None,
           otherwise: str = "ABORT") -> bool:  # fmt: skip
    """Add a row with its checksum; ``otherwise`` is what to do where one is there already."""
    names = ", ".join(("id", *COLUMNS[table], "crc"))
    marks = ", ".join("?" * (len(values) + 2))
    done = db.execute(
        f"INSERT OR {otherwise} INTO {table} ({names}) VALUES ({marks})",
        (id, *values, checksum(table, values)),
    )
    return done.rowcount > 0


def select(db: sqlite3.Connection, path: Path, table: str, condition: str,
           parameters: Sequence[Cell] = ()) -> list[sqlite3.Row]:  # fmt: skip
    """Return rows of a table, or say that one of them is damaged."""
    columns = COLUMNS[table]
    sql = f"SELECT id, {', '.join(columns)}, crc FROM {table} WHERE {condition}"
    rows = db.execute(sql, tuple(parameters)).fetchall()
    for row in rows:
        if checksum(table, [row[name] for name in columns]) != row["crc"]:
            raise damaged(path, f"row {row['id']} of {table}")
    return rows


def counts_hold(db: sqlite3.Connection) -> bool:
    """Whether the totals are those of the tables."""
    sums = {table: f"(SELECT count(*) FROM {table})" for table in COLUMNS}
    for table, amounts in _ALSO_COUNTED.items():
        for name, amount in amounts.items():
            sums[name] = f"(SELECT coalesce(sum({amount.format(row=table)}), 0) FROM {table})"
    same = " AND ".join(f"{name} = {counted}" for name, counted in sums.items())
    return db.execute(f"SELECT 1 FROM totals WHERE id = 1 AND {same}").fetchone() is not None


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a run's file, which must be there.

    It is SQLite alone that opens it: to close a second handle on the file would take the locks of
    every connection in this process away.
    """
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}",
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    db.row_factory = sqlite3.Row
    db.execute("PRAGMA cell_size_check = ON")
    db.execute("PRAGMA trusted_schema = OFF")
    return db


def side_files(path: Path) -> list[Path]:
    """Return SQLite's own files beside a run, as far as they are there."""
    beside = (path.with_name(path.name + ending) for ending in SIDE_FILES)
    return [file for file in beside if file.exists()]


def remove(path: Path) -> None:
    """Remove a file and SQLite's own files beside it, as far as they are there."""
    for file in (path, *side_files(path)):
        file.unlink(missing_ok=True)


def write_ahead(db: sqlite3.Connection) -> None:
    """Let readers read while we write, and let no kill tear a transaction."""
    if _journal_mode(db, "") != "wal":
        # A journal on disk, left by a kill, would keep readers out: only a writer can roll it back.
        # What changes now is the head of the first page, which is written at once or not at all.
        _journal_mode(db, "= MEMORY")
        if _journal_mode(db, "= WAL") != "wal":  # a file system without shared memory
            _journal_mode(db, "= DELETE")
    db.execute("PRAGMA synchronous = NORMAL")


def _journal_mode(db: sqlite3.Connection, change: str) -> str:
    return str(db.execute(f"PRAGMA journal_mode {change}").fetchone()[0])


def settle(db: sqlite3.Connection) -> None:
    """Fold the log in and do without: a run at rest is one file, which needs no folder to write to.

    Where somebody is reading, the log stays, and does no harm.
    """
    with suppress(sqlite3.Error):
        db.execute("PRAGMA busy_timeout = 0")
        _journal_mode(db, "= MEMORY")  # as in `write_ahead`; on disk it is like any but WAL


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Do all that is inside, or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has rolled it back already
            db.execute("ROLLBACK")
        raise


@contextmanager
def creating(path: Path, *, compact: bool = False) -> Iterator[sqlite3.Connection]:
    """Make a new file with empty tables, to be filled inside by the holder of its lock.

    It is built under another name, so that even after a kill all of it is there, or nothing.
    ``compact`` leaves no trace of rows that were deleted inside.
    """
    with faults(path):
        if path.exists():
            raise InputError(f"{path} exists already: resume it, or give the new run another name")
        draft = path.with_name(f".{path.name}.new")
        remove(draft)  # a kill may have left one
        try:
            with closing(_drafted(draft)) as db:
                with transaction(db):
                    _make_tables(db)
                    yield db
                if compact:
                    db.execute("VACUUM")
            for file in side_files(path):  # left by a run that is gone: SQLite would fold them in
                file.unlink()
            draft.rename(path)
        except BaseException:
            remove(draft)
            raise


def _drafted(draft: Path) -> sqlite3.Connection:
    # Rows are about people: nobody else may read them, nor SQLite's files beside them.
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    db = connect(draft)
    db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    return db


def _make_tables(db: sqlite3.Connection) -> None:
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    for table, columns in COLUMNS.items():
        # Without declared types a value is stored as what it is.
        db.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, {', '.join(columns)}, crc)")
    for index in _INDICES:
        db.execute(index)
    db.execute(f"CREATE TABLE totals (id INTEGER PRIMARY KEY, mark, updated, {', '.join(COUNTS)})")
    zeros = ", ".join("0" for _ in COUNTS)
    db.execute(f"INSERT INTO totals VALUES (1, '{TOTALS_MARK}', 0, {zeros})")
    for table in COLUMNS:
        db.execute(_counting(table, "INSERT", "NEW", "+"))
        db.execute(_counting(table, "DELETE", "OLD", "-"))


def _counting(table: str, event: str, row: str, sign: str) -> str:
    amounts = {table: "1"} | _ALSO_COUNTED.get(table, {})
    changes = [f"{n} = {n} {sign} ({a.format(row=row)})" for n, a in amounts.items()]
    changes.append(f"updated = max(updated, {row}.at)")
    return (
        f"CREATE TRIGGER {table}_{event.lower()} AFTER {event} ON {table} "
        f"BEGIN UPDATE totals SET {', '.join(changes)}; END"
    )
