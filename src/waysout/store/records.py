"""What a run's file holds: how values are written as cells, and the records read back from them.

Cells are JSON that gives back exactly what went in. Floats are written in their shortest exact
form, and ``1``, ``1.0`` and ``true`` stay apart. Text may hold lone surrogates, which LLM servers
produce and UTF-8 cannot encode: such a cell is bytes instead of text.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from waysout.domain.budget import Spent
from waysout.domain.oracle import Answers
from waysout.domain.result import Option, ResultData
from waysout.domain.schema import Row
from waysout.errors import IntegrityError, shown
from waysout.json_text import read_json
from waysout.llm.base import Reply, Request, Usage
from waysout.search.work import Answer, Propose, Work

Cell = int | str | bytes | None
Status = Literal["running", "finished", "interrupted"]


# Records ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded answer. The search had handed out ``asked`` work items when it arrived.

    ``request_key`` belongs to a propose, ``rows`` to an evaluate.
    """

    asked: int
    work_id: int
    kind: Literal["propose", "evaluate"]
    request_key: str
    rows: tuple[Row, ...]
    answer: Answer

    @classmethod
    def of(cls, row: sqlite3.Row) -> Recorded:
        """Read an answer to a search from its row in the file."""
        if row["kind"] == "propose":
            reply = unpack_reply(row["answer"])
            return cls(row["asked"], row["work"], "propose", row["label"], (), reply)
        rows, answers = unpack_rows(row["question"]), unpack_answers(row["answer"])
        if len(rows) != len(answers):
            raise ValueError(f"{len(answers)} answers to {len(rows)} rows")
        return cls(row["asked"], row["work"], "evaluate", "", rows, answers)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a run, or to one of its queries."""

    at: datetime
    kind: str
    detail: Mapping[str, Any]
    index: int | None = None

    @classmethod
    def of(cls, row: sqlite3.Row) -> Event:
        """Read an event from its row in the file."""
        return cls(moment(row["at"]), row["kind"], unpack_table(row["body"]), row["query"])


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in a few figures.

    Each query is either ``finished``, ``interrupted`` (with the results so far; a failed one counts
    here, because a resumed run tries it again) or ``open`` (no result yet). ``status`` is "running"
    while a live process writes the run.
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


def read_body(row: sqlite3.Row) -> dict[str, Any]:
    """Read a manifest or a query from its row in the file."""
    return unpack_table(row["body"])


def read_setup(row: sqlite3.Row) -> Answers:
    """Read what the oracle answered beside the search from its row in the file."""
    answers = unpack_answers(row["answer"])
    if len(answers) != row["size"]:
        raise ValueError(f"{len(answers)} answers to {row['size']} rows")
    return answers


def read_spent(row: sqlite3.Row) -> Spent:
    """Read a ledger from the row of an answer."""
    return Spent.from_dict(unpack_table(row["spent"]))


def read_option(row: sqlite3.Row) -> Option:
    """Read an option from its row in the file."""
    return Option.from_dict(unpack_table(row["body"]))


def read_result(row: sqlite3.Row) -> ResultData:
    """Read a result from its row in the file."""
    return ResultData.from_json(as_text(row["body"]))


def moment(at: int) -> datetime:
    """Return a time in the file as a date."""
    return datetime.fromtimestamp(at / 1e6, tz=UTC)


# Cells -----------------------------------------------------------------------------------------


def pack(value: Any) -> str | bytes:
    """Write a plain value as a cell.

    >>> pack([1, 1.0, True, None, "ü"]), pack("\\ud83d")
    ('[1,1.0,true,null,"ü"]', b'"\\xed\\xa0\\xbd"')
    """
    return as_cell(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def unpack(cell: str | bytes) -> Any:
    """Read what `pack` wrote."""
    try:
        return read_json(as_text(cell))
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"what a run holds cannot be read: {error}") from None


def unpack_table(cell: str | bytes) -> dict[str, Any]:
    """Read a table that `pack` wrote."""
    table = unpack(cell)
    if not isinstance(table, dict):
        raise TypeError(f"{shown(table)} is no table of names and values")
    return table


def as_cell(text: str) -> str | bytes:
    """Return a text in a form that SQLite can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")
    return text


def as_text(cell: str | bytes) -> str:
    """Return the text that `as_cell` was given."""
    return cell if isinstance(cell, str) else cell.decode(errors="surrogatepass")


def pack_request(request: Request) -> str | bytes:
    """Write a request without its menu, which is in the prompt already."""
    held = request.constraint
    schema = None if held is None or held.json_schema is None else dict(held.json_schema)
    return pack(
        {
            "messages": [[m.role, m.content] for m in request.messages],
            "k": request.k,
            "temperature": request.temperature,
            "seed": request.seed,
            "max_tokens": request.max_tokens,
            "draw": request.draw,
            "constraint": held and {"grammar": held.grammar, "json_schema": schema},
        }
    )


def pack_reply(reply: Reply) -> str | bytes:
    """Write a reply."""
    return pack(asdict(reply))


def unpack_reply(cell: str | bytes) -> Reply:
    """Read what `pack_reply` wrote."""
    table = unpack_table(cell)
    reply = Reply(**(table | {"usage": Usage(**table["usage"])}))
    tokens = (reply.usage.tokens_in, reply.usage.tokens_out, reply.usage.cached_tokens)
    if not isinstance(reply.text, str) or not all(isinstance(n, (int, float)) for n in tokens):
        raise TypeError("a reply is a text and its numbers of tokens")
    return reply


def pack_answers(answers: Answers) -> str | bytes:
    """Write an oracle's answers."""
    return pack([answers.probability.tolist(), answers.decision.tolist()])


def unpack_answers(cell: str | bytes) -> Answers:
    """Read what `pack_answers` wrote."""
    probability, decision = unpack(cell)
    answers = Answers(np.array(probability, np.float64), np.array(decision, np.bool_))
    if not answers.probability.shape == answers.decision.shape == (len(probability),):
        raise ValueError("each answer is one probability and one decision")
    return answers


def pack_rows(rows: Sequence[Row]) -> str | bytes:
    """Write typed rows."""
    return pack(list(rows))


def unpack_rows(cell: str | bytes) -> tuple[Row, ...]:
    """Read what `pack_rows` wrote."""
    rows = tuple(map(tuple, unpack(cell)))
    if any(isinstance(value, (list, dict)) for row in rows for value in row):
        raise TypeError("a row holds plain values")
    return rows
