"""What a batch noted of itself, for whoever reads its figures: with what, under which rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from waysout.llm.connect import is_simulated


@dataclass(frozen=True)
class About:
    """What was searched with; empty or None is what is not known.

    ``rows`` are those of the input, ``limit`` how many of them the batch was to take.
    """

    title: str = ""
    llm: str = ""
    method: str = ""
    goal: Mapping[str, Any] | None = None
    rules: tuple[str, ...] = ()
    budget: Mapping[str, float] = field(default_factory=dict)
    rows: int | None = None
    limit: int | None = None

    @property
    def simulated(self) -> bool:
        """Whether the LLM was the simulated one."""
        return is_simulated(self.llm)

    @classmethod
    def read(cls, folder: Path) -> About:
        """Read the notes of a batch; what cannot be read is not known."""
        try:
            notes = _table(json.loads((folder / "_manifest.json").read_text("utf-8")))
        except (OSError, ValueError, RecursionError):
            return cls()
        problem, budget = (
            _table(notes.get("problem")),
            _table(_table(notes.get("plan")).get("budget")),
        )
        rules = problem.get("rules")
        return cls(
            title=_text(problem.get("title")),
            llm=_text(notes.get("llm")),
            method=_text(notes.get("method")),
            goal=_table(problem.get("goal")) or None,
            rules=tuple(map(str, rules)) if isinstance(rules, list) else (),
            budget={name: most for name, most in budget.items() if _is_number(most)},
            rows=_count(notes.get("rows")),
            limit=_count(notes.get("limit")),
        )


def _table(told: Any) -> dict[str, Any]:
    return told if isinstance(told, dict) else {}


def _text(told: Any) -> str:
    return told if isinstance(told, str) else ""


def _count(told: Any) -> int | None:
    return int(told) if _is_number(told) and told >= 0 else None


def _is_number(told: Any) -> bool:
    return isinstance(told, (int, float)) and not isinstance(told, bool)
