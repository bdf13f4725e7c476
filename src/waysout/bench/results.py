"""The results of experiments on disk: cells, failures, LLM replies, and the plans that were run.

One SQLite file in its own folder; one process writes it, others may read meanwhile. A reply is
stored before its search continues, a cell as soon as its search has ended: a killed process loses
neither.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from waysout.bench.arms import Arm, ExperimentPlan
from waysout.bench.cell import RESULTS_FILE, Cell, Cells, Key
from waysout.errors import InputError, IntegrityError, WaysoutError
from waysout.llm.base import Reply
from waysout.prompts.propose import Style
from waysout.store.folder import runs_dir
from waysout.store.lock import WriterLock
from waysout.store.records import as_cell, as_text, pack_reply, unpack_reply
from waysout.store.tables import connect, faults, settle, transaction, write_ahead

APPLICATION = 0x57424E43
VERSION = 1

_TABLES = (
    "CREATE TABLE cells (arm, llm, query, at, data, oracle, body, PRIMARY KEY (arm, llm, query))",
    "CREATE TABLE failures (arm, llm, query, at, data, reason, PRIMARY KEY (arm, llm, query))",
    "CREATE TABLE replies (key PRIMARY KEY, llm, body) WITHOUT ROWID",
    "CREATE TABLE plans (hash PRIMARY KEY, name, at, body)",
)


@dataclass(frozen=True)
class Failure:
    """A search that did not finish, and why; it is tried again next time."""

    arm: str
    llm: str
    query: int
    data: str
    reason: str
    at: str = ""

    @property
    def key(self) -> Key:
        """The key of the missing cell."""
        return self.arm, self.llm, self.query


def results_dir() -> Path:
    """Return the default folder of results, beside that of the runs."""
    return runs_dir().parent / "bench"


def now() -> str:
    """Return the current time in the format of results."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


class Results:
    """The results in a folder."""

    def __init__(self, path: Path, db: sqlite3.Connection, lock: WriterLock | None = None) -> None:
        self.path = path
        self._db = db
        self._lock = lock

    # Opening -----------------------------------------------------------------------------------

    @classmethod
    def open(cls, folder: str | Path) -> Results:
        """Open the results in a folder for writing, and create them if needed."""
        path = Path(folder) / RESULTS_FILE
        lock = WriterLock.take(path)
        try:
            with _faults(path):
                # Replies are about people: other users must not read them.
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
                db = connect(path)
                try:
                    with transaction(db):
                        if not db.execute("SELECT 1 FROM sqlite_master").fetchone():
                            db.execute(f"PRAGMA application_id = {APPLICATION}")
                            db.execute(f"PRAGMA user_version = {VERSION}")
                            for table in _TABLES:
                                db.execute(table)
                    _check(db, path)
                    write_ahead(db)
                except BaseException:
                    db.close()
                    raise
        except BaseException:
            lock.release()
            raise
        return cls(path, db, lock)

    @classmethod
    def read(cls, folder: str | Path) -> Results:
        """Open the results in a folder for reading, also while another process writes them."""
        path = Path(folder) / RESULTS_FILE
        if not path.is_file():
            raise InputError(
                f"there are no results in {folder}; create them with: waysout bench run"
            )
        with _faults(path):
            db = connect(path, read_only=True)
            _check(db, path)
        return cls(path, db)

    def close(self) -> None:
        """Close the file."""
        if self._lock is not None:
            settle(self._db)
        self._db.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Cells and failures ------------------------------------------------------------------------

    def add(self, cell: Cell) -> None:
        """Store a cell, and delete an earlier failure of the same search."""
        body, key = as_cell(cell.to_json()), cell.key
        with _faults(self.path), transaction(self._db):
            self._put("cells", (*key, cell.at, cell.data, cell.oracle, body))
            self._db.execute("DELETE FROM failures WHERE arm = ? AND llm = ? AND query = ?", key)

    def add_failure(self, failure: Failure) -> None:
        """Store why a search did not finish."""
        reason = as_cell(failure.reason)
        with _faults(self.path):
            self._put("failures", (*failure.key, failure.at or now(), failure.data, reason))

    def cells(self) -> Cells:
        """Return all cells."""
        rows = self._rows("SELECT body FROM cells ORDER BY arm, llm, query")
        with _intact(self.path, "a cell"):
            return Cells(Cell.from_json(row["body"]) for row in rows)

    def done(self) -> set[Key]:
        """Return the keys of all cells."""
        return {(r[0], r[1], r[2]) for r in self._rows("SELECT arm, llm, query FROM cells")}

    def failures(self) -> list[Failure]:
        """Return the searches whose last attempt failed."""
        rows = self._rows("SELECT * FROM failures ORDER BY data, arm, llm, query")
        with _intact(self.path, "a failure"):
            return [Failure(**{**r, "reason": as_text(r["reason"])}) for r in map(dict, rows)]

    def oracles(self) -> dict[str, set[str]]:
        """Return the oracles of the cells of each data set, by sha256."""
        found: dict[str, set[str]] = {}
        for data, oracle in self._rows("SELECT DISTINCT data, oracle FROM cells"):
            found.setdefault(data, set()).add(oracle)
        return found

    # Replies -----------------------------------------------------------------------------------

    def reply(self, key: str) -> Reply | None:
        """Return an LLM's reply by the key of its request."""
        found = self._rows("SELECT body FROM replies WHERE key = ?", key)
        with _intact(self.path, "a reply"):
            return unpack_reply(found[0]["body"]) if found else None

    def keep_reply(self, key: str, llm: str, reply: Reply) -> None:
        """Store a reply; once this returns, a kill cannot lose it."""
        with _faults(self.path):
            self._put("replies", (key, llm, pack_reply(reply)))

    def replies(self) -> dict[str, int]:
        """Return the number of replies of each LLM."""
        return dict(map(tuple, self._rows("SELECT llm, count(*) FROM replies GROUP BY llm")))

    # Plans -------------------------------------------------------------------------------------

    def note_plan(self, plan: ExperimentPlan) -> None:
        """Record that a plan, or a part of one, was run."""
        body = as_cell(json.dumps(asdict(plan), ensure_ascii=False))
        with _faults(self.path):
            self._put("plans", (plan.hash, plan.name, now(), body))

    def plans(self) -> list[ExperimentPlan]:
        """Return the plans that were run, the latest of each name."""
        rows = self._rows("SELECT name, body FROM plans ORDER BY at")
        latest: dict[str, str | bytes] = {row["name"]: row["body"] for row in rows}
        plans = []
        with _intact(self.path, "a plan"):
            for body in latest.values():
                table = json.loads(as_text(body))
                for arm in table["arms"]:
                    arm |= {"style": Style(**arm["style"])}
                    arm |= {key: (*arm[key],) for key in ("rows_of", "query_sets") if key in arm}
                table["arms"] = [Arm(**arm) for arm in table["arms"]]
                lists = {name: tuple(table[name]) for name in ("llms", "datasets", "arms")}
                plans.append(ExperimentPlan(**{**table, **lists}))
        return plans

    # SQLite ------------------------------------------------------------------------------------

    def _put(self, table: str, values: tuple[object, ...]) -> None:
        marks = ", ".join("?" * len(values))
        self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", values)

    def _rows(self, sql: str, *values: object) -> list[sqlite3.Row]:
        with _faults(self.path):
            return self._db.execute(sql, values).fetchall()


def _check(db: sqlite3.Connection, path: Path) -> None:
    found = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id",
                                                                     "user_version")]  # fmt: skip
    if found != [APPLICATION, VERSION]:
        raise InputError(
            f"{path} holds no results of experiments of version {VERSION}; use another folder"
        )


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    """Translate SQLite errors; the messages of `faults` alone are about runs."""
    try:
        with faults(path):
            yield
    except (InputError, IntegrityError) as error:
        if not isinstance(error.__context__, sqlite3.Error):
            raise
        raise IntegrityError(_damaged(path, str(error.__context__))) from None


@contextmanager
def _intact(path: Path, what: str) -> Iterator[None]:
    """Report what cannot be read as damaged."""
    try:
        yield
    except (WaysoutError, ValueError, TypeError, LookupError, AttributeError) as bad:
        why = str(bad) if isinstance(bad, WaysoutError) else f"{what}: {type(bad).__name__}: {bad}"
        raise IntegrityError(_damaged(path, why)) from None


def _damaged(path: Path, why: str) -> str:
    return (
        f"{path} is damaged ({why}); move it away: waysout bench run creates a new one, and "
        "earlier exports can still be read"
    )
