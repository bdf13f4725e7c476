"""The two kinds of work a search hands out, and what comes back for each."""

from __future__ import annotations

from dataclasses import dataclass

from waysout.domain.oracle import Answers
from waysout.domain.schema import Row
from waysout.llm.base import Reply, Request


@dataclass(frozen=True, slots=True)
class Propose:
    """A question to an LLM; a `Reply` comes back. ``id`` counts a search's work items from 0."""

    id: int
    request: Request


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Candidates for the oracle, one batch; `Answers` in their order come back."""

    id: int
    rows: tuple[Row, ...]


Work = Propose | Evaluate
Answer = Reply | Answers
