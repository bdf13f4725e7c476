"""How far a search has come, for whoever watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one search has come."""

    index: int
    llm_calls: int
    oracle_rows: int
    options: int
    best_probability: float | None
    seconds: float


OnProgress = Callable[[Progress], None]
