"""A run on file, as the service takes it in: what was found, and all that is known from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from waysout.domain.memory import Memory
from waysout.domain.problem import Problem
from waysout.domain.result import Outcome, OutcomeKind
from waysout.errors import IntegrityError
from waysout.report.result import Result
from waysout.run.plan import describe, wording
from waysout.run.recall import memory_of
from waysout.store import Store


@dataclass(frozen=True)
class Adopted:
    """The result of a run, whole or as far as it came, and what need not be asked again.

    ``day`` is when it was last written; ``locks`` are those of the person, where a service has kept
    the run.
    """

    result: Result
    memory: Memory
    day: date
    locks: Mapping[str, Any] = field(default_factory=dict)


def read_run(store: Store, problem: Problem) -> Adopted:
    """Return what a run holds of its first person."""
    if store.query(0) is None:
        raise IntegrityError(f"{store.path} holds nobody's case yet: it was cut off at its start")
    about = store.manifest.get("about")
    locks = about.get("locks") or {} if isinstance(about, Mapping) else {}
    day = store.summary().updated.astimezone().date()
    return Adopted(_result(store, problem), memory_of(store, problem), day, locks)


def _result(store: Store, problem: Problem) -> Result:
    kept = store.finished(0) or store.partial(0)
    if kept is not None:
        return Result.of(kept)
    return Result(
        query=store.query(0) or {},
        outcome=Outcome(OutcomeKind.INTERRUPTED, "the run was cut off"),
        options=tuple(store.options(0)),
        ledger=store.spent(0),
        settings={**describe(problem), "wording": wording(problem.schema)},
    )
