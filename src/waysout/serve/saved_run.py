"""Runs on file, opened again: by their file, or by the id of the search that a service kept."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from waysout.domain.budget import Spent
from waysout.domain.memory import Memory
from waysout.domain.problem import Problem
from waysout.domain.result import Outcome, OutcomeKind, ResultData, plain
from waysout.domain.spelling import as_in_table
from waysout.errors import IntegrityError, WaysoutError
from waysout.report.result import Result
from waysout.run.plan import describe, differences, told
from waysout.run.recall import memory_of
from waysout.serve.forms import lock_rules
from waysout.serve.models import Locks
from waysout.serve.problems import ServedProblem
from waysout.store import Store, delete_run, find_run, new_run_path, runs_dir

_log = logging.getLogger(__name__)
_PINS = "pins"
_ID = re.compile("[A-Za-z0-9_-]{22}")
_PART = re.compile(r"-part(\d{1,9})(-\d+)?")
# Names of runs are cut at their end, where the id stands.
_MOST_OF_A_NAME = 24


def new_id() -> str:
    """Return an id that nobody can guess."""
    return secrets.token_urlsafe(16)


def run_path(problem: str, id: str, part: int) -> Path:
    """Return the file of one part of a search, by whose id it is found again."""
    return new_run_path(f"{problem[:_MOST_OF_A_NAME]}-{id}-part{part}")


@dataclass(frozen=True)
class SavedRun:
    """A run on file: its result as far as it came, and the answers that need not be asked again.

    ``day`` is when it was last written; ``locks`` are the person's, if a service kept the run.
    """

    result: Result
    memory: Memory
    day: date
    locks: Mapping[str, Any] = field(default_factory=dict)
    part: int = 1
    """Which part of a service's search it was."""
    name: str | None = None
    """The name of the run among those that are kept, where a service kept it."""
    pins: Sequence[Mapping[str, Any]] = ()
    """The rows that the person kept at hand."""
    before: Spent | None = None
    """What the parts before it spent, where a service kept it."""

    @classmethod
    def read(cls, store: Store, problem: Problem) -> SavedRun:
        """Read what a run holds about its first query."""
        query = store.query(0)
        if query is None:
            raise IntegrityError(f"{store.path} holds no query yet: it was cut off at its start")
        kept = store.finished(0) or store.partial(0)
        llm = store.manifest.get("llm")
        result = Result.of(kept or ResultData(
            query=query,
            outcome=Outcome(OutcomeKind.INTERRUPTED, "the run was cut off"),
            options=tuple(store.options(0)),
            ledger=store.spent(0),
            settings={**told(problem), "llm": llm},
        ))  # fmt: skip
        result = as_in_table(problem.schema, result)
        locks = _about(store).get("locks") or {}
        day = store.summary().updated.astimezone().date()
        return cls(
            result, memory_of(store, problem), day, locks, pins=_pins_of(store),
            before=_spent_before(store),
        )  # fmt: skip

    def read_locks(self) -> Locks:
        """Return what the person cannot change, or raise if no release wrote that."""
        try:
            return Locks.model_validate(self.locks)
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise IntegrityError(f"the run's locks cannot be read: {problem}") from None


def save_pins(run: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """File what a person keeps at hand with the run of a part that has ended."""
    with Store.open(find_run(run)) as store:
        store.event(_PINS, {"rows": rows})


def _pins_of(store: Store) -> Sequence[Mapping[str, Any]]:
    """Return the rows that were pinned last, or when the part began."""
    told: Any = _about(store).get("pins")
    for event in store.events():
        if event.kind == _PINS:
            told = event.detail.get("rows")
    return [row for row in told if isinstance(row, Mapping)] if isinstance(told, list) else []


def _spent_before(store: Store) -> Spent | None:
    search = _about(store).get("search")
    spent = search.get("spent") if isinstance(search, Mapping) else None
    if not isinstance(spent, Mapping):
        return None
    calls, rows = (spent.get(name) for name in ("llm_calls", "oracle_rows"))
    whole = all(isinstance(n, int) and n >= 0 for n in (calls, rows))
    return Spent(llm_calls=int(calls or 0), oracle_rows=int(rows or 0)) if whole else None


def find_saved(
    id: str, problems: Mapping[str, ServedProblem], about: Mapping[str, Any]
) -> tuple[str, SavedRun] | None:
    """Return the latest part of a search that was kept, and the name of its problem.

    Nothing where the id is none, where nothing of it is left, or where it was made from another
    problem or from files that have changed: what it says would not be true of this one.
    """
    if not _ID.fullmatch(id):  # it comes from a request, and is about to name a file
        return None
    parts = {path: _part_of(path, id) for path in runs_dir().glob(f"*-{id}-part*.db")}
    for path in sorted(parts, key=lambda path: (parts[path], path.name), reverse=True):
        try:
            with Store.read(path) as store:
                found = _read_same(store, id, problems, about)
        except Exception as error:  # cut off, or damaged in any way: an earlier part may do
            _log.warning("the run %s cannot be opened: %r", path.name, error)
            continue
        if found is not None:
            name, run = found
            return name, replace(run, part=max(1, parts[path]), name=path.stem)
    return None


def delete_saved(id: str) -> None:
    """Delete what is on file of a search, all its parts."""
    if _ID.fullmatch(id):
        for path in runs_dir().glob(f"*-{id}-part*.db"):
            try:
                delete_run(path)
            except WaysoutError as error:
                _log.warning("the run %s stays on file: %s", path.name, error)


def _part_of(path: Path, id: str) -> int:
    found = _PART.fullmatch(path.stem.rpartition(id)[2])
    return int(found[1]) if found else 0


def _read_same(
    store: Store, id: str, problems: Mapping[str, ServedProblem], about: Mapping[str, Any]
) -> tuple[str, SavedRun] | None:
    """Return what a run holds, if it is of this search and of a problem that is served now."""
    kept = _about(store)
    search = kept.get("search")
    search = search if isinstance(search, Mapping) else {}
    name = str(search.get("problem"))
    same_files = kept.get("digests") == about.get("digests")
    if search.get("id") != id or name not in problems or not same_files:
        return None
    problem = problems[name].problem
    run = SavedRun.read(store, problem)
    locks = lock_rules(problem, problem.row(run.result.query), run.read_locks())
    now = plain(describe(problem.with_rules(locks)))
    return None if differences(store.manifest.get("problem") or {}, now) else (name, run)


def _about(store: Store) -> Mapping[str, Any]:
    about = store.manifest.get("about")
    return about if isinstance(about, Mapping) else {}
