"""What is read back from a run: answers to replay, events, and the run in a few figures."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from waysout.domain.schema import Row
from waysout.errors import IntegrityError
from waysout.search.work import Answer, Propose, Work
from waysout.store import cells

Status = Literal["running", "finished", "interrupted"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """An answer on file. ``asked`` works had been handed out when it came.

    ``request_key`` belongs to a propose, ``rows`` to an evaluate.
    """

    asked: int
    work_id: int
    kind: Literal["propose", "evaluate"]
    request_key: str
    rows: tuple[Row, ...]
    answer: Answer


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a run, or to one of its queries."""

    at: datetime
    kind: str
    detail: Mapping[str, Any]
    index: int | None = None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in a few figures.

    Each query is either ``finished``, ``interrupted`` (with the results so far; one that failed is
    tried again, too) or ``open`` (with none yet). ``status`` is "running" while a live process
    writes the run.
    """

    path: Path
    status: Status
    created: datetime
    updated: datetime
    method: str
    llm: str
    queries: int
    finished: int
    interrupted: int
    open: int
    options: int
    llm_calls: int
    oracle_rows: int


def check_same(work: Work, recorded: Recorded, model: str = "") -> None:
    """Raise `IntegrityError` unless a search asks what it asked when the answer was recorded."""
    if isinstance(work, Propose):
        same = recorded.kind == "propose" and work.request.key(model) == recorded.request_key
    else:
        same = recorded.kind == "evaluate" and work.rows == recorded.rows
    if not (same and work.id == recorded.work_id):
        raise IntegrityError(
            f"the search asks something else (work {work.id}) than the run on file "
            f"(work {recorded.work_id}, {recorded.kind}): the settings, the LLM, the problem, "
            "what the method had learned or the version of Waysout differ. Resume with those of "
            "the run, or start a new one"
        )


def moment(at: int) -> datetime:
    """Return a time of the file as a date."""
    return datetime.fromtimestamp(at / 1e6, tz=UTC)


def read_recorded(row: sqlite3.Row) -> Recorded:
    """Read an answer to a search."""
    if row["kind"] == "propose":
        reply = cells.unpack_reply(row["answer"])
        return Recorded(row["asked"], row["work"], "propose", row["label"], (), reply)
    rows, answers = cells.unpack_rows(row["question"]), cells.unpack_answers(row["answer"])
    return Recorded(row["asked"], row["work"], "evaluate", "", rows, answers)
