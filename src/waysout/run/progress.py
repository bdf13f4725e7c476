"""How far a search has come, as `progress` callbacks get it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from waysout.domain.budget import Spent
from waysout.domain.result import Option


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one search has come, and what is new since the last report."""

    index: int
    spent: Spent
    options: int
    best_probability: float | None
    found: tuple[Option, ...] = ()

    @property
    def llm_calls(self) -> int:
        """The number of LLM calls that were answered."""
        return self.spent.llm_calls

    @property
    def oracle_rows(self) -> int:
        """The number of rows put to the model."""
        return self.spent.oracle_rows

    @property
    def seconds(self) -> float:
        """The seconds it has taken."""
        return self.spent.seconds


OnProgress = Callable[[Progress], None]
