"""Saving what is left of a damaged run."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from waysout.errors import InputError, IntegrityError
from waysout.store import tables
from waysout.store.lock import WriterLock
from waysout.store.records import Cell, pack, read_body
from waysout.store.salvage import lost_entries, read_pages
from waysout.store.store import VERSION, Store, check_version


@dataclass(frozen=True, slots=True)
class RepairCounts:
    """Rows of one table that were kept and lost; ``None`` where the number lost is unknown."""

    kept: int
    lost: int | None


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What was saved of a damaged run.

    ``unusable`` answers could be read and were dropped, because one before them is lost; they are
    counted among the lost. ``original`` is where the damaged file is now.
    """

    path: Path
    fine: bool
    original: Path
    tables: Mapping[str, RepairCounts] = field(default_factory=dict)
    unusable: int = 0


def repair(path: str | Path, out: str | Path | None = None) -> RepairReport:
    """Save what can be read of a damaged run: into ``out``, else in the place of the original.

    The original is kept, as ``….damaged`` where the new file takes its place. An undamaged run is
    not touched.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no run {path}")
    with tables.faults(path), WriterLock.take(path):
        try:
            Store.read(path).close()
            # Rows that SQLite passes over can be saved too, and a kill may have ended a repair.
            fine = not lost_entries(path) and not _kept_name(path).exists()
        except (IntegrityError, InputError):
            fine = False
        if fine:
            return RepairReport(path, fine=True, original=path)
        return _repaired(path, None if out is None else Path(out))


def _repaired(path: Path, out: Path | None) -> RepairReport:
    kept = _kept_name(path)
    source = kept if kept.exists() else path  # with its log, which a killed repair has removed
    if out is not None:
        return replace(_saved(source, out), original=path)
    new = path.with_name(f".{path.name}.repaired")
    tables.remove(new)  # a kill may have left one
    report = _saved(source, new)
    # At every moment there is a file of the run's name: a kill must not make it vanish.
    if not kept.exists():
        _keep(path, kept)
    for file in tables.side_files(path):  # SQLite would fold the old log into the new file
        file.unlink()
    new.replace(path)
    return replace(report, path=path, original=kept)


def _kept_name(path: Path) -> Path:
    """Return the name for a damaged file, which has it already where a kill ended its repair."""
    number, kept = 1, path.with_name(f"{path.name}.damaged")
    while kept.exists() and not kept.samefile(path):
        number += 1
        kept = path.with_name(f"{path.name}.damaged-{number}")
    return kept


def _keep(path: Path, kept: Path) -> None:
    """Give a file and its log another name: the log first, so that it is there if the file is."""
    for file in (*tables.side_files(path), path):
        second = kept.with_name(file.name.replace(path.name, kept.name, 1))
        second.unlink(missing_ok=True)
        try:
            second.hardlink_to(file)
        except OSError:  # a file system without links
            shutil.copy2(file, second)


def _saved(path: Path, new: Path) -> RepairReport:
    """Write what is left of a damaged run to a new file."""
    # Compact, to leave no trace of dropped rows: a later repair would find them again.
    with WriterLock.take(new), tables.creating(new, compact=True) as db:
        expected = _copy_rows(path, db)
        unusable = db.execute(f"DELETE FROM answers WHERE id IN ({tables.AFTER_GAP})").rowcount
        kept = db.execute("SELECT * FROM totals").fetchone()
        if not any(kept[table] for table in tables.COLUMNS):
            raise IntegrityError(f"{path}: nothing of a Waysout run is left in it")
        counts = {}
        for table in tables.COLUMNS:
            lost = max(0, expected[table] - kept[table]) if table in expected else None
            counts[table] = RepairCounts(kept[table], lost)
        if manifest := tables.select(db, path, "run", "id = 1"):
            check_version(path, tables.read_row(path, "run", manifest[0], read_body))
        else:  # its results can still be read, though it can no longer be resumed
            tables.insert(db, "run", (tables.now(), pack({"waysout_run": VERSION, "lost": True})))
    Store.read(new).close()
    return RepairReport(new, False, path, counts, unusable)


def _copy_rows(path: Path, db: sqlite3.Connection) -> dict[str, int]:
    """Copy every intact row; return how many there were, as far as the file still tells."""
    expected: dict[str, int] = {}
    for number, columns in read_pages(path):
        values = tables.as_written(columns[1:-1])
        if columns[1:2] == [tables.TOTALS_MARK]:
            counts = [n for n in columns[3:] if isinstance(n, int)]
            if len(counts) == len(columns[3:]) == len(tables.COUNTS):
                # A page that is no longer in use may hold an older count.
                pairs = zip(tables.COUNTS, counts, strict=True)
                expected |= {name: max(n, expected.get(name, 0)) for name, n in pairs}
            continue
        table = _table_of(values, columns[-1] if columns else None)
        if table == "results":
            # Pages that are no longer in use may hold the interrupted result of a finished query.
            at, query, final, _ = values
            older = "query = ? AND (final, at) < (?, ?)"
            db.execute(f"DELETE FROM results WHERE {older}", (query, final, at))
            tables.insert(db, table, values, otherwise="IGNORE")
        elif table == "run":  # there is one, whatever became of its number
            tables.insert(db, table, values, id=1, otherwise="IGNORE")
        elif table is not None:
            tables.insert(db, table, values, id=number, otherwise="IGNORE")
    return expected


def _table_of(values: list[Cell], crc: Cell) -> str | None:
    """Return the table that a row is of."""
    for table, names in tables.COLUMNS.items():
        if len(values) == len(names) and tables.is_ours(table, values, crc):
            return table
    return None
