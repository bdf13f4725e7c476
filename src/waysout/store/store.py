"""A run on disk: manifest, queries, every answer, options, results and events, in one SQLite file.

An answer is on file before the search is told, so whatever kills the process, nothing that was paid
for is lost: `Store.answers` gives the answers back in the order they were told. A power cut may
cost the last moments before it (the log is forced to disk only when it is folded into the file),
never what came before and never the file itself.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Self

from waysout.domain.budget import Spent
from waysout.domain.oracle import Answers
from waysout.domain.result import Option, OutcomeKind, ResultData, plain
from waysout.domain.schema import Row, Value
from waysout.errors import InputError, IntegrityError, shown
from waysout.files import sha256
from waysout.llm.base import Reply
from waysout.search.work import Answer, Evaluate, Propose, Work
from waysout.store import records, tables
from waysout.store.folder import remove_drafts
from waysout.store.lock import WriterLock, is_locked
from waysout.store.records import Cell, Event, Recorded, RunSummary, Status, moment, pack
from waysout.store.salvage import lost_entries
from waysout.store.tables import T, damaged, faults, no_run

VERSION = 1
_PAGE = 100
_NO_WORK = -1
_SETUP, _SENT = "setup", "sent"
"""Kinds of rows among the answers that are no answer to a search."""


class Store:
    """One run. Open it with `create`, `open` or `read`; close it when done."""

    def __init__(self, path: Path, db: sqlite3.Connection, lock: WriterLock | None) -> None:
        self.path = path
        self._db = db
        self._lock = lock
        self._one_at_a_time = threading.RLock()
        self.lost_entries = 0
        """How many entries of its log, which a kill had left, were damaged when it was opened."""

    # Opening -----------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: str | Path, manifest: Mapping[str, Any]) -> Self:
        """Create a run in a new file, for writing."""
        path = Path(path)
        remove_drafts(path.parent)
        return cls._opened(path, WriterLock.take(path), {"waysout_run": VERSION, **manifest})

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open an existing run for writing; raise `IntegrityError` if it is damaged."""
        path = _existing(path)
        return cls._opened(path, WriterLock.take(path))

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Open a run for reading; raise `IntegrityError` if it is damaged.

        Another process may be writing it.
        """
        return cls._opened(_existing(path), None)

    @classmethod
    def _opened(
        cls, path: Path, lock: WriterLock | None, new: Mapping[str, Any] | None = None
    ) -> Self:
        with ExitStack() as undo, faults(path):
            if lock is not None:
                undo.callback(lock.release)
            if new is not None:
                with tables.creating(path) as db:
                    tables.insert(db, "run", (tables.now(), pack(plain(new))))
            lost = lost_entries(path)  # before SQLite writes over them
            if lost and lock is None and is_locked(path):  # its log changed as we read it
                lost = 0
            db = tables.connect(path, read_only=lock is None)
            undo.callback(db.close)
            store = cls(path, db, lock)
            store.lost_entries = lost
            if db.execute("PRAGMA application_id").fetchone()[0] != tables.APPLICATION:
                raise no_run(path)
            # Of a crafted file even this may be a view that has no end. Its other tables may be
            # those of another version, which the manifest tells.
            if not tables.schema_holds(db, of="run"):
                raise damaged(path, tables.NOT_OURS)
            check_version(path, store.manifest)
            # At once: a broken page may hide rows, and what is left would look like all there is.
            store.verify()
            if lock is not None:
                tables.write_ahead(db)
            undo.pop_all()
            return store

    def close(self) -> None:
        """Close the file, and let another process write it."""
        with self._one_at_a_time, faults(self.path):
            if self._lock is not None:
                tables.settle(self._db)
            self._db.close()
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Writing -----------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._one_at_a_time, faults(self.path), tables.transaction(self._db):
            yield self._db

    def add_query(self, index: int, query: Mapping[str, Value]) -> None:
        """Record a query; recording the same one again changes nothing."""
        if index < 0:
            raise ValueError(f"the index of a query is 0 or more, not {index}")
        body = pack(dict(query))
        with self._writing() as db:
            if tables.insert(db, "queries", (tables.now(), index, body), otherwise="IGNORE"):
                return
        if self.query(index) != dict(query):
            raise IntegrityError(
                f"query {index} is another row than the one on file in {self.path}: resume with "
                "the rows of the run, or start a new one"
            )

    def record(
        self, index: int, asked: int, work: Work, answer: Answer, spent: Spent, *, model: str = ""
    ) -> None:
        """Record an answer before the search is told.

        ``asked`` is how many work items the search had handed out, ``spent`` the query's ledger
        after this answer, and ``model`` the name that goes into a request's key.
        """
        if isinstance(work, Propose) and isinstance(answer, Reply):
            size, label = 0, work.request.key(model)
            question, body = records.pack_request(work.request), records.pack_reply(answer)
        elif isinstance(work, Evaluate) and isinstance(answer, Answers):
            size, label = len(work.rows), ""
            question, body = records.pack_rows(work.rows), records.pack_answers(answer)
        else:
            raise TypeError(f"{type(answer).__name__} is not an answer to {type(work).__name__}")
        kind = type(work).__name__.lower()
        self._append(index, (kind, label, asked, work.id, size, question, body), spent)

    def record_setup(
        self, index: int, what: str, rows: Sequence[Row], answers: Answers, spent: Spent
    ) -> None:
        """Record the oracle's answers to rows that no search asked for, such as the query."""
        question, body = records.pack_rows(rows), records.pack_answers(answers)
        self._append(index, (_SETUP, what, 0, _NO_WORK, len(rows), question, body), spent)

    def record_sent(self, index: int, spent: Spent, calls: int = 1) -> None:
        """Record the ledger as a request to the LLM goes out, whose reply may never come.

        ``calls`` are under way with it; a call may take several requests.
        """
        nothing = pack(None)
        self._append(index, (_SENT, "", 0, _NO_WORK, calls, nothing, nothing), spent)

    def _append(self, index: int, columns: tuple[Cell, ...], spent: Spent) -> None:
        ledger = pack(spent.as_dict())
        with self._writing() as db:
            last = db.execute("SELECT max(seq) FROM answers WHERE query = ?", (index,)).fetchone()
            seq = 0 if last[0] is None else last[0] + 1
            tables.insert(db, "answers", (tables.now(), index, seq, *columns, ledger))

    def options_found(self, index: int, options: Sequence[Option]) -> None:
        """Record options as they are found; one whose key is on file changes nothing."""
        with self._writing() as db:
            for option in options:
                key = sha256(option.key.encode(errors="surrogatepass"))
                row = (tables.now(), index, key, pack(plain(option.as_dict())))
                tables.insert(db, "options", row, otherwise="IGNORE")

    def finish(self, index: int, result: ResultData) -> None:
        """Record a query's result; an interrupted or failed one is replaced by the next.

        A failure is not final: the answers on file are good, and a model that was away may return.
        """
        final = result.outcome.kind not in (OutcomeKind.INTERRUPTED, OutcomeKind.FAILED)
        row = (tables.now(), index, int(final), records.as_cell(result.to_json()))
        with self._writing() as db:
            db.execute("DELETE FROM results WHERE query = ? AND NOT final", (index,))
            if not tables.insert(db, "results", row, otherwise="IGNORE"):
                raise IntegrityError(f"query {index} in {self.path} is finished already")

    def event(self, kind: str, detail: Mapping[str, Any], index: int | None = None) -> None:
        """Record that something happened, now."""
        row = (tables.now(), index, kind, pack(plain(detail)))
        with self._writing() as db:
            tables.insert(db, "events", row)

    def calls_under_way(self, index: int) -> int:
        """Return how many calls of the LLM had no reply when the last entry was made, at most.

        One that had failed by then, and had not yet been sent again, is not told from the others.
        """
        last = "query = ? AND kind = ? ORDER BY seq DESC LIMIT 1"
        for sent in self._select("answers", last, index, _SENT):
            since = "query = ? AND kind = 'propose' AND seq > ?"
            replies = len(self._select("answers", since, index, sent["seq"]))
            return max(
                0, max(1, int(sent["size"])) - replies
            )  # earlier releases did not say how many
        return 0

    def expect(self, queries: int) -> None:
        """Record how many queries there are: the run is finished when all of them are."""
        if queries not in self._expected(self.manifest):
            self.event("queries", {"queries": queries})

    # Reading -----------------------------------------------------------------------------------

    def _select(self, table: str, condition: str, *parameters: Cell) -> list[sqlite3.Row]:
        with self._one_at_a_time, faults(self.path):
            return tables.select(self._db, self.path, table, condition, parameters)

    def _read(self, table: str, row: sqlite3.Row, read: Callable[[sqlite3.Row], T]) -> T:
        return tables.read_row(self.path, table, row, read)

    def _walk(
        self, table: str, column: str, where: str = "", *parameters: Cell
    ) -> Iterator[sqlite3.Row]:
        """Walk along an indexed column, some rows at a time.

        No cursor stays open meanwhile: it would keep the writer's log from ever being folded in.
        """
        condition = f"{where} {column} > ? ORDER BY {column} LIMIT {_PAGE}"
        last = -1
        while page := self._select(table, condition, *parameters, last):
            yield from page
            last = page[-1][column]

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest as it was given, with the version of the file."""
        rows = self._select("run", "id = 1")
        if not rows:
            raise damaged(self.path, "its manifest is missing")
        return self._read("run", rows[0], records.read_body)

    def query(self, index: int) -> dict[str, Value] | None:
        """Return a query, if it is on file."""
        rows = self._select("queries", "query = ?", index)
        return self._read("queries", rows[0], records.read_body) if rows else None

    def queries(self) -> Iterator[tuple[int, dict[str, Value]]]:
        """Yield the queries, by index."""
        for row in self._walk("queries", "query"):
            yield row["query"], self._read("queries", row, records.read_body)

    def answers(self, index: int) -> Iterator[Recorded]:
        """Yield the answers to a query's search, in the order it was told."""
        rows = (row for row in self._sequence(index) if row["kind"] not in (_SETUP, _SENT))
        return (self._read("answers", row, Recorded.of) for row in rows)

    def setup(self, index: int) -> Iterator[Answers]:
        """Yield what the oracle answered beside the search, in order."""
        rows = (row for row in self._sequence(index) if row["kind"] == _SETUP)
        return (self._read("answers", row, records.read_setup) for row in rows)

    def _sequence(self, index: int) -> Iterator[sqlite3.Row]:
        for seq, row in enumerate(self._walk("answers", "seq", "query = ? AND", index)):
            if row["seq"] != seq:
                raise damaged(self.path, f"answer {seq} of query {index} is missing")
            yield row

    def spent(self, index: int) -> Spent:
        """Return a query's ledger as it was at its last answer, or request sent."""
        rows = self._select("answers", "query = ? ORDER BY seq DESC LIMIT 1", index)
        return self._read("answers", rows[0], records.read_spent) if rows else Spent()

    def options(self, index: int) -> Iterator[Option]:
        """Yield the options of a query, in the order they were found."""
        for row in self._walk("options", "id", "query = ? AND", index):
            yield self._read("options", row, records.read_option)

    def finished(self, index: int) -> ResultData | None:
        """Return the result of a query whose search has ended."""
        return self._result(index, final=True)

    def partial(self, index: int) -> ResultData | None:
        """Return what an interruption or a failure left of a query that is not finished."""
        return self._result(index, final=False)

    def _result(self, index: int, *, final: bool) -> ResultData | None:
        rows = self._select("results", "query = ? AND final = ?", index, int(final))
        return self._read("results", rows[0], records.read_result) if rows else None

    def results(self) -> Iterator[ResultData]:
        """Yield all results, finished or not, by index."""
        for row in self._walk("results", "query"):
            yield self._read("results", row, records.read_result)

    def events(self, index: int | None = None) -> Iterator[Event]:
        """Yield what happened, in order; with an index, to that query only."""
        of = () if index is None else (index,)
        for row in self._walk("events", "id", "query = ? AND" if of else "", *of):
            yield self._read("events", row, Event.of)

    def summary(self) -> RunSummary:
        """Return the run in a few figures.

        They are counted as a run is written; what costs more for a longer one is opening it,
        which reads all of it.
        """
        manifest, begun = self.manifest, self._select("run", "id = 1")[0]
        # Not by the totals, which keep that time without a checksum.
        last = (self._select(table, "id > 0 ORDER BY id DESC LIMIT 1") for table in tables.COLUMNS)
        updated = max(row["at"] for rows in last for row in rows)
        with self._one_at_a_time, faults(self.path):
            count = self._db.execute("SELECT * FROM totals WHERE id = 1").fetchone()
        queries, finished = count["queries"], count["finished"]
        status: Status = "running"
        if not is_locked(self.path):
            # A run that ends early has not recorded all its queries.
            due = self._expected({"queries": queries, **manifest})
            done = due and finished >= max(1, queries, *due)
            status = "finished" if done else "interrupted"
        return RunSummary(
            path=self.path,
            status=status,
            created=moment(begun["at"]),
            updated=moment(updated),
            method=str(manifest.get("method", "")),
            llm=str(manifest.get("llm") or ""),
            queries=queries,
            finished=finished,
            interrupted=count["results"] - finished,
            open=max(0, queries - count["results"]),
            options=count["options"],
            llm_calls=count["calls"],
            oracle_rows=count["oracle_rows"],
        )

    def _expected(self, manifest: Mapping[str, Any]) -> set[int]:
        """Return how many queries manifest and events promise; empty where that is unknown."""
        promised = [manifest.get("queries"), *(e.detail.get("queries") for e in self.events())]
        return {number for number in promised if isinstance(number, int)}

    def verify(self) -> None:
        """Read everything, and raise `IntegrityError` where something is damaged."""
        with self._one_at_a_time, faults(self.path):
            # First: the check of SQLite computes whatever the tables say.
            if not tables.schema_holds(self._db):
                raise damaged(self.path, tables.NOT_OURS)
            found = self._db.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if found != "ok":
                raise damaged(self.path, found)
            if self._db.execute(f"{tables.AFTER_GAP} LIMIT 1").fetchone() is not None:
                raise damaged(self.path, "answers are missing")
            if not tables.counts_hold(self._db):
                raise damaged(self.path, "its counts are wrong")
        for table in tables.COLUMNS:
            for _ in self._walk(table, "id"):
                pass


def add_event(path: Path, kind: str, detail: Mapping[str, Any]) -> None:
    """Record that something happened in a run that this very process may be writing.

    Another one that writes it is not looked for: an event changes no answer.
    """
    with faults(path), closing(tables.connect(path)) as db:
        tables.write_ahead(db)
        with tables.transaction(db):
            tables.insert(db, "events", (tables.now(), None, kind, pack(plain(detail))))
        tables.settle(db)


def check_version(path: Path, manifest: Mapping[str, Any]) -> None:
    """Raise `InputError` for a run of a version that this release does not know."""
    version = manifest.get("waysout_run")
    if version != VERSION:
        raise InputError(
            f"{path} is a run of version {shown(version)}, and this release reads {VERSION}: use "
            "the release of Waysout that wrote it, or a newer one"
        )


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no run {path}")
    return path
