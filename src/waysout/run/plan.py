"""What a run is to do: the method, what it may spend, and whom it asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from waysout import __version__
from waysout.domain.budget import Budget
from waysout.domain.problem import Problem
from waysout.errors import InputError, shown
from waysout.prompts.propose import Style
from waysout.search.base import Method


@dataclass(frozen=True)
class Plan:
    """All that decides what a run does, besides the problem and the people."""

    name: str
    method: Method
    budget: Budget = field(default_factory=Budget)
    k: int = 5
    seed: int = 0
    style: Style = field(default_factory=Style)

    def __post_init__(self) -> None:
        for name, least, most in (("k", 1, 50), ("seed", 0, 2**31 - 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise InputError(
                    f"{name} is a whole number from {least} to {most}, not {shown(value)}"
                )

    def as_dict(self, llm: str | None) -> dict[str, Any]:
        """Return the plan as it stands in results and runs."""
        return {
            "method": self.name,
            "method_settings": self.method.settings(),
            "llm": llm,
            "style": asdict(self.style) if self.method.needs_llm else None,
            "k": self.k,
            "seed": self.seed,
            "budget": asdict(self.budget),
        }


def describe(problem: Problem) -> dict[str, Any]:
    """Return what a result tells about its problem, and what a run is compared by on resume."""
    distance = problem.distance
    return {
        "name": problem.name,
        "title": problem.title,
        "yes": problem.yes,
        "no": problem.no,
        "oracle": problem.oracle.name,
        "labels_only": problem.oracle.labels_only,
        "goal": asdict(problem.goal),
        "rules": [rule.says for rule in problem.rules.rules],
        "features": [feature.name for feature in problem.schema],
        "bins": {name: list(edges) for name, edges in problem.key.bins.items()},
        "distance": {"alpha": distance.alpha, "scales": dict(distance.scales)},
    }


def manifest(problem: Problem, plan: Plan, llm: str | None) -> dict[str, Any]:
    """Return what a run's file says of the run."""
    return {
        "version": __version__,
        "method": plan.name,
        "llm": llm,
        "plan": plan.as_dict(llm),
        "problem": describe(problem),
    }


def differences(stored: Mapping[str, Any], wanted: Mapping[str, Any], at: str = "") -> list[str]:
    """Return where two manifests differ, as ``plan.k: 5 → 3``.

    >>> differences({"k": 5, "seed": 0}, {"k": 3, "seed": 0})
    ['k: 5 → 3']
    """
    found: list[str] = []
    for key in dict.fromkeys([*stored, *wanted]):
        here, there = stored.get(key), wanted.get(key)
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            found += differences(here, there, f"{at}{key}.")
        elif here != there:
            found.append(f"{at}{key}: {shown(here)} → {shown(there)}")
    return found
