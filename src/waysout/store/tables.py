"""A run's SQLite file: its tables, connections to it, and its errors in our own words.

    run       the manifest
    queries   the rows asked about
    answers   what LLM and oracle said, and that the LLM is being asked, numbered per query without
              gaps (``seq``), with the ledger
    options   what was found, in the order it was found
    results   one per query: finished (``final``) or what there was when it ended
    events    how many queries there are, who paid for probing the oracle, why the run stopped
    totals    one row of counts, kept by triggers: a summary of an open run need not count them

Every row but the totals ends in a checksum: SQLite itself would not notice a changed letter, and a
replay would believe it. Tree nodes are not stored: a replay makes them again, and two copies of the
truth can differ.
"""

from __future__ import annotations

import errno
import os
import shlex
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from waysout.errors import InputError, IntegrityError, UnavailableError, WaysoutError
from waysout.store.records import Cell

T = TypeVar("T")
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
_WHOLE_NUMBERS = {"at", "query", "seq", "asked", "work", "size", "final"}
_LATEST = 32_503_680_000_000_000  # the year 3000, the last that every system can tell
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
NOT_OURS = "its tables are not those of a run"
_BUSY_SECONDS = 10.0
_STEPS = 100_000  # of SQLite, a few milliseconds
_LONGEST = 100
_KEPT = "everything recorded so far is kept"

# Answers after a gap, which no replay can use.
AFTER_GAP = """
    SELECT id FROM (
        SELECT id, seq, row_number() OVER (PARTITION BY query ORDER BY seq) - 1 AS place
        FROM answers
    ) WHERE seq != place"""


# Errors ----------------------------------------------------------------------------------------


@contextmanager
def faults(path: Path) -> Iterator[None]:
    """Turn every error of SQLite or of the disk into one that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        # The low byte is the kind of error, the rest its details. Errors of the Python module
        # itself have no code: a closed connection, or text that is not UTF-8.
        torn = isinstance(error, sqlite3.OperationalError)
        unnamed = sqlite3.SQLITE_CORRUPT if torn else sqlite3.SQLITE_MISUSE
        code = getattr(error, "sqlite_errorcode", unnamed) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            raise full(path) from None
        if code == sqlite3.SQLITE_INTERRUPT:  # see `connect`
            raise KeyboardInterrupt from None
        if code == sqlite3.SQLITE_NOTADB:
            raise no_run(path) from None
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT):
            raise damaged(path, str(error)[:_LONGEST]) from None
        read_only = code == sqlite3.SQLITE_READONLY
        reason = "it is open for reading only" if read_only else str(error)
        raise UnavailableError(f"cannot use {path}: {reason}; {_KEPT}") from None
    except UnicodeDecodeError:
        # The module puts SQLite's message into a text, and that quotes the broken bytes.
        raise damaged(path, "its tables are described by bytes that are no text") from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise full(path) from None
        reason = error.strerror or str(error)
        raise UnavailableError(f"cannot use {path}: {reason}; {_KEPT}") from None


def damaged(path: Path, why: str) -> IntegrityError:
    """Return an error that says how to save what is left of a damaged run."""
    return IntegrityError(
        f"{path} is damaged ({why}); to save what can be read: waysout runs repair "
        f"{shlex.quote(str(path))}"
    )


def is_run(path: Path) -> bool:
    """Whether a file says that it is a run, damaged or not: SQLite has our number in its head."""
    _check_regular(path)
    with faults(path), path.open("rb") as file:
        head = file.read(72)
    return head[:15] == b"SQLite format 3" and head[68:] == APPLICATION.to_bytes(4)


def no_run(path: Path) -> InputError:
    """Return an error that says that a file is not a run."""
    return InputError(
        f"{path} is not a Waysout run; if it was one, and its beginning is destroyed: "
        f"waysout runs repair {shlex.quote(str(path))}"
    )


def full(path: Path) -> UnavailableError:
    """Return an error that says that the disk is full."""
    return UnavailableError(f"cannot write {path}: the disk is full; {_KEPT}. Free some space")


# Rows ------------------------------------------------------------------------------------------


def now() -> int:
    """Return the current time in microseconds, or the nearest that is read as one.

    A model may have put the clock anywhere, and what is filed now must be readable afterwards.
    """
    return min(max(0, time.time_ns() // 1000), _LATEST - 1)


def checksum(table: str, values: Sequence[Cell]) -> int:
    """Return the checksum of a row of a table."""
    found = zlib.crc32(table.encode())
    for value in values:
        data = value if isinstance(value, bytes) else str(value).encode()
        found = zlib.crc32(data + b"\0", found)
    return found


def insert(db: sqlite3.Connection, table: str, values: Sequence[Cell], id: int | None = None,
           otherwise: str = "ABORT") -> bool:  # fmt: skip
    """Add a row with its checksum; ``otherwise`` is SQLite's action on a conflict."""
    names = ", ".join(("id", *COLUMNS[table], "crc"))
    marks = ", ".join("?" * (len(values) + 2))
    done = db.execute(
        f"INSERT OR {otherwise} INTO {table} ({names}) VALUES ({marks})",
        (id, *values, checksum(table, values)),
    )
    return done.rowcount > 0


def select(db: sqlite3.Connection, path: Path, table: str, condition: str,
           parameters: Sequence[Cell] = ()) -> list[sqlite3.Row]:  # fmt: skip
    """Return rows of a table; raise `IntegrityError` if one of them is damaged."""
    columns = COLUMNS[table]
    sql = f"SELECT id, {', '.join(columns)}, crc FROM {table} WHERE {condition}"
    rows = db.execute(sql, tuple(parameters)).fetchall()
    for row in rows:
        values = [row[name] for name in columns]
        if as_written(values) != values or not is_ours(table, values, row["crc"]):
            raise damaged(path, f"row {row['id']} of {table}")
    return rows


def is_ours(table: str, values: Sequence[Cell], crc: Cell) -> bool:
    """Whether a row of a table has its checksum, and in each column what belongs there."""
    named = zip(COLUMNS[table], values, strict=True)
    return crc == checksum(table, values) and all(_fits(table, *cell) for cell in named)


def _fits(table: str, column: str, value: Cell) -> bool:
    if column == "at":
        return isinstance(value, int) and 0 <= value < _LATEST
    if column in _WHOLE_NUMBERS:
        of_none = value is None and (table, column) == ("events", "query")
        return of_none or isinstance(value, int)
    return isinstance(value, (str, bytes))


def read_row(path: Path, table: str, row: sqlite3.Row, read: Callable[[sqlite3.Row], T]) -> T:
    """Read a row that is whole; raise `IntegrityError` if no release of ours wrote it.

    Anyone can compute a checksum.
    """
    try:
        return read(row)
    except (WaysoutError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:
        why = str(e) if isinstance(e, WaysoutError) else f"{type(e).__name__}: {e}"
        raise IntegrityError(
            f"{path} cannot be read: row {row['id']} of {table} is none that a release writes "
            f"({why[:_LONGEST]})"
        ) from None


def as_written(values: Sequence[Cell]) -> list[Cell]:
    """Return cells as `as_cell` makes them: bytes only where they cannot be text.

    A single changed bit makes bytes of a text, and the checksum of both is the same.
    """
    return [_as_written(value) if isinstance(value, bytes) else value for value in values]


def _as_written(cell: bytes) -> str | bytes:
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return cell


def counts_hold(db: sqlite3.Connection) -> bool:
    """Whether the totals agree with the tables."""
    sums = {table: f"(SELECT count(*) FROM {table})" for table in COLUMNS}
    for table, amounts in _ALSO_COUNTED.items():
        for name, amount in amounts.items():
            sums[name] = f"(SELECT coalesce(sum({amount.format(row=table)}), 0) FROM {table})"
    same = " AND ".join(f"{name} = {counted}" for name, counted in sums.items())
    return db.execute(f"SELECT 1 FROM totals WHERE id = 1 AND {same}").fetchone() is not None


def schema_holds(db: sqlite3.Connection, of: str = "") -> bool:
    """Whether tables, indices and triggers are ours, or the one table ``of`` that name.

    A changed trigger would count wrongly, and a view could go on for ever.
    """

    def entries(schema: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
        return {entry for entry in schema if of in ("", entry[1])}

    return entries(_schema(db)) == entries(_our_schema())


@cache
def _our_schema() -> set[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        _make_tables(db)
        return _schema(db)


def _schema(db: sqlite3.Connection) -> set[tuple[str, ...]]:
    return set(map(tuple, db.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema")))


# The file --------------------------------------------------------------------------------------


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a run's file, which must exist.

    Only SQLite opens it: closing a second handle on the file would release the locks of every
    connection in this process.
    """
    # SQLite looks for them where a link leads to, and would wait for a pipe for ever.
    beside = side_files(path.resolve())
    _check_regular(path, *beside)
    if read_only and any(file.name.endswith("-journal") for file in beside):
        _roll_back(path)
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
    # Python sees Ctrl-C only in code of its own, such as this; SQLite then ends the statement.
    db.set_progress_handler(lambda: None, _STEPS)
    return db


def _roll_back(path: Path) -> None:
    """Undo what a killed writer has begun, where its journal is on disk; readers may not.

    That of a living writer stays: SQLite tells them apart by its lock.
    """
    with suppress(sqlite3.Error), closing(connect(path)) as db:
        db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()


def _check_regular(*files: Path) -> None:
    for file in files:
        if file.exists() and not file.is_file():
            raise UnavailableError(
                f"{file} is a folder, a pipe or the like, where a file of ours would be: remove it"
            )


def side_files(path: Path) -> list[Path]:
    """Return the files that SQLite has made beside a run."""
    beside = (path.with_name(path.name + ending) for ending in SIDE_FILES)
    return [file for file in beside if file.exists()]


def remove(path: Path) -> None:
    """Remove a file and SQLite's own files beside it, if they exist."""
    for file in (path, *side_files(path)):
        file.unlink(missing_ok=True)


def write_ahead(db: sqlite3.Connection) -> None:
    """Let readers read while we write, and keep transactions whole if the process is killed.

    With ``synchronous = NORMAL`` a kill loses nothing; a power cut may cost the last moments.
    """
    if _journal_mode(db, "") != "wal":
        # A journal on disk, left by a kill, would keep readers out: only a writer can roll it back.
        # This changes only the head of the first page, which is written whole or not at all.
        _journal_mode(db, "= MEMORY")
        if _journal_mode(db, "= WAL") != "wal":  # a file system without shared memory
            _journal_mode(db, "= DELETE")
    db.execute("PRAGMA synchronous = NORMAL")


def _journal_mode(db: sqlite3.Connection, change: str) -> str:
    return str(db.execute(f"PRAGMA journal_mode {change}").fetchone()[0])


def settle(db: sqlite3.Connection) -> None:
    """Fold the log into the file: a run at rest is one file, readable in a read-only folder.

    While another process reads the run the log stays, which does no harm.
    """
    with suppress(sqlite3.Error):
        db.execute("PRAGMA busy_timeout = 0")
        _journal_mode(db, "= MEMORY")  # as in `write_ahead`; on disk it is like any but WAL


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit everything inside, or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has rolled it back already
            db.execute("ROLLBACK")
        raise


def draft_path(path: Path) -> Path:
    """Return where a file is while it is being made."""
    return path.with_name(f".{path.name}.new")


@contextmanager
def creating(path: Path, *, compact: bool = False) -> Iterator[sqlite3.Connection]:
    """Create a file with empty tables, to be filled inside by the holder of its lock.

    It is built under a hidden name and renamed, so that after a kill it exists whole or not at all.
    ``compact`` leaves no trace of rows that were deleted inside.
    """
    with faults(path):
        if path.exists():
            raise InputError(
                f"{path} exists already: resume it, or choose another name for the new run"
            )
        draft = draft_path(path)
        remove(draft)  # a kill may have left one
        try:
            # Rows are about people: only the owner may read them, or SQLite's files beside them.
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with closing(connect(draft)) as db:
                db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
                # By itself, before any row: a draft that a kill leaves must say what it is.
                db.execute(f"PRAGMA application_id = {APPLICATION}")
                with transaction(db):
                    _make_tables(db)
                    yield db
                if compact:
                    db.execute("VACUUM")
            for file in side_files(path):  # left by a removed run: SQLite would fold them in
                file.unlink()
            draft.rename(path)
        except BaseException:
            remove(draft)
            raise


def _make_tables(db: sqlite3.Connection) -> None:
    for table, columns in COLUMNS.items():
        # Without declared types a value is stored as what it is.
        db.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, {', '.join(columns)}, crc)")
    for index in _INDICES:
        db.execute(index)
    db.execute(f"CREATE TABLE totals (id INTEGER PRIMARY KEY, mark, updated, {', '.join(COUNTS)})")
    zeros = ", ".join("0" for _ in COUNTS)
    db.execute(f"INSERT INTO totals VALUES (1, '{TOTALS_MARK}', 0, {zeros})")
    for table in COLUMNS:
        for event, row, sign in (("INSERT", "NEW", "+"), ("DELETE", "OLD", "-")):
            amounts = {table: "1"} | _ALSO_COUNTED.get(table, {})
            changes = [f"{n} = {n} {sign} ({a.format(row=row)})" for n, a in amounts.items()]
            changes.append(f"updated = max(updated, {row}.at)")
            db.execute(
                f"CREATE TRIGGER {table}_{event.lower()} AFTER {event} ON {table} "
                f"BEGIN UPDATE totals SET {', '.join(changes)}; END"
            )
