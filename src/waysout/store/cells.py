"""How requests, replies, rows and answers lie in the file: JSON that gives back what went in.

Floats are written in their shortest exact form, and ``1``, ``1.0`` and ``true`` stay apart. Text
may hold lone surrogates, which LLM servers produce and UTF-8 cannot: such a cell is bytes instead
of text, and comes back exactly, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from waysout.domain.oracle import Answers
from waysout.domain.schema import Row
from waysout.llm.base import Reply, Request, Usage

Cell = int | str | bytes | None


def pack(value: Any) -> str | bytes:
    """Write a plain value as a cell.

    >>> pack([1, 1.0, True, None, "ü"]), pack("\\ud83d")
    ('[1,1.0,true,null,"ü"]', b'"\\xed\\xa0\\xbd"')
    """
    return as_cell(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def as_cell(text: str) -> str | bytes:
    """Return a text as SQLite can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")
    return text


def as_text(cell: str | bytes) -> str:
    """Return the text that `as_cell` was given."""
    return cell if isinstance(cell, str) else cell.decode(errors="surrogatepass")


def unpack(cell: str | bytes) -> Any:
    """Read what `pack` wrote."""
    return json.loads(as_text(cell))


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
    table = unpack(cell)
    return Reply(**(table | {"usage": Usage(**table["usage"])}))


def pack_answers(answers: Answers) -> str | bytes:
    """Write an oracle's answers."""
    return pack([answers.probability.tolist(), answers.decision.tolist()])


def unpack_answers(cell: str | bytes) -> Answers:
    """Read what `pack_answers` wrote."""
    probability, decision = unpack(cell)
    return Answers(np.array(probability, np.float64), np.array(decision, np.bool_))


def pack_rows(rows: Sequence[Row]) -> str | bytes:
    """Write typed rows."""
    return pack(list(rows))


def unpack_rows(cell: str | bytes) -> tuple[Row, ...]:
    """Read what `pack_rows` wrote."""
    return tuple(map(tuple, unpack(cell)))
