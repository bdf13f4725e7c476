"""Saving what is left of a damaged run."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from waysout.errors import InputError, IntegrityError
from waysout.store import cells, tables
from waysout.store.faults import faults
from waysout.store.lock import WriterLock
from waysout.store.salvage import records
from waysout.store.store import VERSION, Store, check_version


@dataclass(frozen=True, slots=True)
class RepairCounts:
    """Rows of one table that were kept and lost; ``None`` where nobody can tell any more."""

    kept: int
    lost: int | None


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What became of a damaged run.

    ``unusable`` answers could be read and were dropped, because one before them is lost; they are
    among the lost. ``original`` is where the damaged file lies now.
    """

    path: Path
    fine: bool
    original: Path
    tables: Mapping[str, RepairCounts] = field(default_factory=dict)
    unusable: int = 0


def repair(path: str | Path, out: str | Path | None = None) -> RepairReport:
    """Save what can be read of a damaged run: into ``out``, else in the place of the original.

    The original is kept, as ``….damaged`` where the new file takes its place. A run that is whole
    is left alone.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no run {path}")
    with faults(path), WriterLock.take(path):
        if _is_fine(path):
            return RepairReport(path, fine=True, original=path)
        return _repaired(path, None if out is None else Path(out))


def _is_fine(path: Path) -> bool:
    try:
        with Store.read(path) as store:
            store.verify()
    except (IntegrityError, InputError):
        return False
    return True


def _repaired(path: Path, out: Path | None) -> RepairReport:
    new = path.with_name(f".{path.name}.repaired") if out is None else out
    if out is None:
        tables.remove(new)  # a kill may have left one
    # To leave no trace of dropped rows: a later repair would find them again.
    with WriterLock.take(new), tables.creating(new, compact=True) as db:
        expected = _fill(db, path)
        unusable = db.execute(f"DELETE FROM answers WHERE id IN ({tables.AFTER_GAP})").rowcount
        kept = db.execute("SELECT * FROM totals").fetchone()
        tallies = {table: _tally(kept[table], expected.get(table)) for table in tables.COLUMNS}
        _check_manifest(db, path, tallies)
    with Store.read(new) as store:
        store.verify()
    original = path if out is not None else _take_the_place(new, path)
    return RepairReport(path if out is None else out, False, original, tallies, unusable)


def _tally(kept: int, expected: int | None) -> RepairCounts:
    return RepairCounts(kept, None if expected is None else max(0, expected - kept))


def _fill(db: sqlite3.Connection, path: Path) -> dict[str, int]:
    """Copy every whole row; return how many there were, as far as the file still tells."""
    expected: dict[str, int] = {}
    for number, columns in records(path):
        table = _table(columns)
        if table == "totals":
            counts = zip(tables.COUNTS, columns[3:], strict=True)
            # A page that is no longer in use may hold an older count.
            expected |= {name: max(int(n), expected.get(name, 0)) for name, n in counts}  # type: ignore[arg-type]
        elif table is not None:
            _keep(db, table, number, columns[1:-1])
    return expected


def _table(columns: list[cells.Cell]) -> str | None:
    """Return the table a row belongs to, if it is one of ours and whole."""
    if columns[1:2] == [tables.TOTALS_MARK]:
        counts = columns[3:]
        whole = len(counts) == len(tables.COUNTS) and all(isinstance(n, int) for n in counts)
        return "totals" if whole else None
    values, crc = columns[1:-1], columns[-1:]
    for table, names in tables.COLUMNS.items():
        if len(values) == len(names) and crc == [tables.checksum(table, values)]:
            return table
    return None


def _keep(db: sqlite3.Connection, table: str, number: int, values: list[cells.Cell]) -> None:
    if table != "results":
        tables.insert(db, table, values, id=number, otherwise="IGNORE")
        return
    # Pages that are no longer in use may hold what an interruption left of a finished query.
    at, query, final, _ = values
    older = "query = ? AND (final, at) < (?, ?)"
    db.execute(f"DELETE FROM results WHERE {older}", (query, final, at))
    tables.insert(db, table, values, otherwise="IGNORE")


def _check_manifest(
    db: sqlite3.Connection, path: Path, tallies: Mapping[str, RepairCounts]
) -> None:
    if not any(tally.kept for tally in tallies.values()):
        raise IntegrityError(f"{path}: nothing of a Waysout run is left in it")
    rows = tables.select(db, path, "run", "id = 1")
    if rows:
        check_version(path, cells.unpack(rows[0]["body"]))
    else:
        # Its results can still be read, though nobody knows any more how to go on.
        body = cells.pack({"waysout_run": VERSION, "lost": True})
        tables.insert(db, "run", (tables.now(), body))


def _take_the_place(new: Path, path: Path) -> Path:
    """Put the new file where the damaged one was; return where that one is kept, log and all."""
    original = _unused(path)
    for file in tables.side_files(path):
        file.rename(original.with_name(file.name.replace(path.name, original.name, 1)))
    path.rename(original)
    new.rename(path)
    return original


def _unused(path: Path) -> Path:
    number, name = 1, path.with_name(f"{path.name}.damaged")
    while name.exists():
        number += 1
        name = path.with_name(f"{path.name}.damaged-{number}")
    return name
