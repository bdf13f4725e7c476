"""Waysout: many different, validated, actionable ways from a model's no to a yes.

The names below are the public ones. They load on first use, so that importing the package is
instant, writes nothing and contacts nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from waysout.datasets.load import load_dataset as load_dataset
    from waysout.datasets.manifest import load_oracle as load_oracle
    from waysout.domain.budget import Budget as Budget
    from waysout.domain.budget import Ledger as Ledger
    from waysout.domain.card import Card as Card
    from waysout.domain.memory import Memory as Memory
    from waysout.domain.oracle import Goal as Goal
    from waysout.domain.problem import Problem as Problem
    from waysout.domain.result import Option as Option
    from waysout.domain.result import Outcome as Outcome
    from waysout.domain.schema import Feature as Feature
    from waysout.domain.schema import Schema as Schema
    from waysout.llm.check import check_backend as check_backend
    from waysout.llm.connect import connect as connect
    from waysout.methods import make_method as make_method
    from waysout.oracles.adapt import as_oracle as as_oracle
    from waysout.oracles.load import load_model as load_model
    from waysout.oracles.probe import check_oracle as check_oracle
    from waysout.oracles.probe import probe as probe
    from waysout.prompts.propose import Style as Style
    from waysout.report.result import Result as Result
    from waysout.run.check import check_method as check_method
    from waysout.run.context import Stop as Stop
    from waysout.run.find import afind as afind
    from waysout.run.find import afind_many as afind_many
    from waysout.run.find import find as find
    from waysout.run.find import find_many as find_many
    from waysout.search.base import Method as Method
    from waysout.search.comp_mcts import CompMCTS as CompMCTS
    from waysout.search.lats import Lats as Lats
    from waysout.search.recombine import Recombine as Recombine

_WHERE = {
    "Budget": "domain.budget",
    "Card": "domain.card",
    "CompMCTS": "search.comp_mcts",
    "Feature": "domain.schema",
    "Goal": "domain.oracle",
    "Lats": "search.lats",
    "Ledger": "domain.budget",
    "Memory": "domain.memory",
    "Method": "search.base",
    "Option": "domain.result",
    "Outcome": "domain.result",
    "Problem": "domain.problem",
    "Recombine": "search.recombine",
    "Result": "report.result",
    "Schema": "domain.schema",
    "Stop": "run.context",
    "Style": "prompts.propose",
    "afind": "run.find",
    "afind_many": "run.find",
    "as_oracle": "oracles.adapt",
    "check_backend": "llm.check",
    "check_method": "run.check",
    "check_oracle": "oracles.probe",
    "connect": "llm.connect",
    "find": "run.find",
    "find_many": "run.find",
    "load_dataset": "datasets.load",
    "load_model": "oracles.load",
    "load_oracle": "datasets.manifest",
    "make_method": "methods",
    "probe": "oracles.probe",
}
__all__ = ["__version__", *sorted(_WHERE)]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'waysout' has no attribute {name!r}")
    return getattr(importlib.import_module(f"waysout.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
