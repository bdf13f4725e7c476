"""Runs on file, opened again: by their file, or by the id of the search that a service kept."""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from waysout.domain.budget import Spent
from waysout.domain.memory import Memory, Past
from waysout.domain.problem import Problem
from waysout.domain.result import Outcome, OutcomeKind, ResultData, plain
from waysout.domain.spelling import as_in_table
from waysout.errors import InputError, IntegrityError, UnavailableError, WaysoutError
from waysout.report.result import Result
from waysout.run.plan import describe, differences, told
from waysout.run.recall import memory_of
from waysout.serve.forms import lock_rules
from waysout.serve.models import Locks
from waysout.serve.problems import ServedProblem
from waysout.store import Store, add_event, delete_run, new_run_path, runs_dir, runs_on_file

_log = logging.getLogger(__name__)
_PINS = "pins"
_SHOWN = "shown"
_SETTLING = "settling"
_ID = re.compile("[A-Za-z0-9_-]{22}")
_PART = re.compile(r"-part(\d{1,9})(-\d+)?")
# As `new_run_path` and `run_path` name them; earlier releases had no digits after the time.
_PART_OF = re.compile(r"\d{8}-\d{6}-([0-9a-f]{8}-)?.*-part\d{1,9}(-\d+)?")
# Names of runs are cut at their end, where the id stands.
_MOST_OF_A_NAME = 24
_MARK = ".deleted"


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
    on_file: Spent = field(default_factory=Spent)
    """What a run of `waysout find` spent that the search went on with."""
    budget: Mapping[str, int] = field(default_factory=dict)
    """The totals of LLM calls and oracle rows for all parts, where a service noted them."""
    shown: bool = False
    """Whether the result is what the person was shown, as a service made it exact."""

    @classmethod
    def read(cls, store: Store, problem: Problem) -> SavedRun:
        """Read what a run holds about its first query."""
        query = store.query(0)
        if query is None:
            raise IntegrityError(f"{store.path} holds no query yet: it was cut off at its start")
        memory, kept = memory_of(store, problem), store.finished(0) or store.partial(0)
        past, shown, lost = memory.of(problem, problem.row(query)), None, 0
        for event in store.events():
            if event.kind == _SHOWN:
                shown, lost = ResultData.from_json(event.detail["result"]), 0
                past.add(Past.from_dict(event.detail["past"], problem.schema))
            elif event.kind == _SETTLING:  # the model was asked, and a kill has lost what it said
                lost += int(event.detail["rows"])
        llm = store.manifest.get("llm")
        result = Result.of(shown or kept or ResultData(
            query=query,
            outcome=Outcome(OutcomeKind.INTERRUPTED, "the run was cut off"),
            options=tuple(store.options(0)),
            # The LLM's server works and bills, whatever has become of us.
            ledger=store.spent(0) + Spent(llm_calls=store.calls_under_way(0)),
            settings={**told(problem), "llm": llm},
        ))  # fmt: skip
        spent = replace(result.ledger, oracle_rows=result.ledger.oracle_rows + lost)
        result = as_in_table(problem.schema, replace(result, ledger=spent))
        locks = _about(store).get("locks") or {}
        day, search = store.summary().updated.astimezone().date(), _search(store)
        return cls(
            result, memory, day, locks, pins=_pins_of(store), shown=shown is not None,
            before=_spent(search.get("spent")), on_file=_spent(search.get("on_file")) or Spent(),
            budget=_counts(search.get("budget")),
        )  # fmt: skip

    def read_locks(self) -> Locks:
        """Return what the person cannot change, or raise if no release wrote that."""
        try:
            return Locks.model_validate(self.locks)
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise IntegrityError(f"the run's locks cannot be read: {problem}") from None


def save_pins(run: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """File what a person keeps at hand with the run of a part, which may be under way."""
    add_event(runs_dir() / f"{run}.db", _PINS, {"rows": rows})


def is_on_file(run: str) -> bool:
    """Whether a run has been made."""
    return (runs_dir() / f"{run}.db").exists()


def save_settling(run: str, rows: int) -> None:
    """File that so many rows are about to be asked, whose answers come with what is shown."""
    add_event(runs_dir() / f"{run}.db", _SETTLING, {"rows": rows})


def save_shown(run: str, result: ResultData, past: Past) -> None:
    """File what a person is shown as a part ends, and the answers that its run does not hold."""
    # Not by `find_run`: its errors name other runs, whose ids are for nobody else and no log.
    with Store.open(runs_dir() / f"{run}.db") as store:
        store.event(_SHOWN, {"result": result.to_json(), "past": past.as_dict()})


def _pins_of(store: Store) -> Sequence[Mapping[str, Any]]:
    """Return the rows that were pinned last, or when the part began."""
    told: Any = _about(store).get("pins")
    for event in store.events():
        if event.kind == _PINS:
            told = event.detail.get("rows")
    return [row for row in told if isinstance(row, Mapping)] if isinstance(told, list) else []


def _spent(kept: Any) -> Spent | None:
    """Return what a search had spent, if a service noted it; earlier releases noted two numbers."""
    if not isinstance(kept, Mapping):
        return None
    try:
        spent = Spent.from_dict(kept)
    except InputError:
        return None
    return spent if all(number >= 0 for number in spent.as_dict().values()) else None


def _counts(kept: Any) -> Mapping[str, int]:
    found = kept if isinstance(kept, Mapping) else {}
    return {name: n for name, n in found.items() if type(n) is int and n >= 0}


def find_saved(
    id: str, problems: Mapping[str, ServedProblem], about: Mapping[str, Any]
) -> tuple[str, SavedRun] | None:
    """Return the latest part of a search that was kept, and the name of its problem.

    Nothing where the id is none, where nothing of it is left, or where it was made from another
    problem or from files that have changed: what it says would not be true of this one.
    """
    if not _ID.fullmatch(id) or _mark(id).exists():  # it comes from a request, and names files
        return None
    parts = {path: _part_of(path, id) for path in runs_dir().glob(f"*-{id}-part*.db")}
    for path in sorted(parts, key=lambda path: (parts[path], path.name), reverse=True):
        try:
            with Store.read(path) as store:
                found = _read_same(store, id, problems, about)
        except Exception as error:  # cut off, or damaged in any way: an earlier part may do
            # Whoever knows a search's id may open it: that is for no log.
            told = repr(error).replace(id, "…"), path.name.replace(id, "…")
            _log.warning("the run %s cannot be opened: %s", *reversed(told))
            continue
        if found is not None:
            name, run = found
            return name, replace(run, part=max(1, parts[path]), name=path.stem)
    return None


def mark_deleted(id: str) -> None:
    """Note that a search is to be deleted: whatever ends this process before, the next does it."""
    if _ID.fullmatch(id):
        with suppress(OSError):  # on a full disk there is no room to say so
            runs_dir().mkdir(parents=True, exist_ok=True)
            _mark(id).touch(0o600)


def unmark_deleted(id: str) -> None:
    """Take the note back: the search is gone, or is to stay."""
    if _ID.fullmatch(id):
        with suppress(OSError):
            _mark(id).unlink()


def delete_marked() -> None:
    """Delete the searches that an earlier process was to delete, as far as that can be done."""
    for mark in runs_dir().glob(_mark("*").name):
        id = mark.name[1:].removesuffix(_MARK)
        try:
            delete_saved(id)
        except WaysoutError as error:
            _log.warning("a search is still to be deleted: %s", str(error).replace(id, "…"))
        else:
            unmark_deleted(id)


def _mark(id: str) -> Path:
    return runs_dir() / f".{id}{_MARK}"


def delete_saved(id: str) -> bool:
    """Delete what is on file of a search, all its parts; return whether anything was.

    Raises if some of it stays, once all that can be deleted is. A kill may have left the hidden
    draft of a run, which never was one, and holds the person's row all the same.
    """
    kept = runs_on_file(runs_dir()) if _ID.fullmatch(id) else []
    paths, reasons = [path for path in kept if _is_part_of(path, id)], []
    for path in paths:
        try:
            delete_run(path)
        except WaysoutError as error:
            reasons.append(without_folder(error))
    if reasons:
        raise UnavailableError(
            f"{len(reasons)} of {len(paths)} runs of this search stay on file, and the search "
            f"with them: {reasons[0]}"
        )
    return bool(paths)


def _is_part_of(path: Path, id: str) -> bool:
    """Whether a run is a part of a search: by what it says, or by its name where it says nothing.

    Users give names to runs as well, and one may look like that of a part.
    """
    if f"-{id}-part" not in path.stem or not _PART_OF.fullmatch(path.stem):
        return False
    try:
        with Store.read(path) as store:
            return _search(store).get("id") == id
    except WaysoutError:  # a draft, or damaged beyond reading
        return True


def without_folder(error: WaysoutError) -> str:
    """Return what an error says; the folder of the runs is of no concern to a client."""
    return str(error).replace(f"{runs_dir()}{os.sep}", "")


def _part_of(path: Path, id: str) -> int:
    found = _PART.fullmatch(path.stem.rpartition(id)[2])
    return int(found[1]) if found else 0


def _read_same(
    store: Store, id: str, problems: Mapping[str, ServedProblem], about: Mapping[str, Any]
) -> tuple[str, SavedRun] | None:
    """Return what a run holds, if it is of this search and of a problem that is served now."""
    search = _search(store)
    name = str(search.get("problem"))
    same_files = _about(store).get("digests") == about.get("digests")
    if search.get("id") != id or name not in problems or not same_files:
        return None
    problem = problems[name].problem
    run = SavedRun.read(store, problem)
    locks = lock_rules(problem, problem.row(run.result.query), run.read_locks())
    now = plain(describe(problem.with_rules(locks)))
    return None if differences(store.manifest.get("problem") or {}, now) else (name, run)


def _search(store: Store) -> Mapping[str, Any]:
    search = _about(store).get("search")
    return search if isinstance(search, Mapping) else {}


def _about(store: Store) -> Mapping[str, Any]:
    about = store.manifest.get("about")
    return about if isinstance(about, Mapping) else {}
