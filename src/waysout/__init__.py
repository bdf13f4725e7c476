"""Waysout: many different, validated, actionable ways from a model's no to a yes.

The names below are the public ones, and those of the modules among them. They load on first use, so
that importing the package is instant, writes nothing and contacts nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from waysout.lazy import on_first_use

__version__ = "0.1.0"

if TYPE_CHECKING:
    from waysout import audit as audit
    from waysout import errors as errors
    from waysout import llm as llm
    from waysout import rules as rules
    from waysout import search as search
    from waysout import serve as serve
    from waysout.datasets.load import Dataset as Dataset
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
    from waysout.domain.result import OutcomeKind as OutcomeKind
    from waysout.domain.schema import Feature as Feature
    from waysout.domain.schema import Schema as Schema
    from waysout.explainer import Explainer as Explainer
    from waysout.explainer import find as find
    from waysout.llm.check import check_backend as check_backend
    from waysout.llm.connect import connect as connect
    from waysout.methods import make_method as make_method
    from waysout.oracles.adapt import as_oracle as as_oracle
    from waysout.oracles.certify import certify as certify
    from waysout.oracles.load import load_model as load_model
    from waysout.oracles.probe import check_oracle as check_oracle
    from waysout.oracles.probe import probe as probe
    from waysout.prompts.propose import Style as Style
    from waysout.report.result import Result as Result
    from waysout.run.check import check_method as check_method
    from waysout.run.context import Stop as Stop
    from waysout.run.find import afind as afind
    from waysout.run.find import afind_many as afind_many
    from waysout.run.find import find_many as find_many
    from waysout.search.base import Method as Method
    from waysout.search.comp_mcts import CompMCTS as CompMCTS
    from waysout.search.lats import Lats as Lats
    from waysout.search.recombine import Recombine as Recombine
    from waysout.search.wayfinder import Wayfinder as Wayfinder

_NAMES = {
    "datasets.load": "Dataset load_dataset",
    "datasets.manifest": "load_oracle",
    "domain.budget": "Budget Ledger",
    "domain.card": "Card",
    "domain.memory": "Memory",
    "domain.oracle": "Goal",
    "domain.problem": "Problem",
    "domain.result": "Option Outcome OutcomeKind",
    "domain.schema": "Feature Schema",
    "explainer": "Explainer find",
    "llm.check": "check_backend",
    "llm.connect": "connect",
    "methods": "make_method",
    "oracles.adapt": "as_oracle",
    "oracles.certify": "certify",
    "oracles.load": "load_model",
    "oracles.probe": "check_oracle probe",
    "prompts.propose": "Style",
    "report.result": "Result",
    "run.check": "check_method",
    "run.context": "Stop",
    "run.find": "afind afind_many find_many",
    "search.base": "Method",
    "search.comp_mcts": "CompMCTS",
    "search.lats": "Lats",
    "search.recombine": "Recombine",
    "search.wayfinder": "Wayfinder",
}
__getattr__, __dir__, _public = on_first_use(
    __name__, _NAMES, modules="audit errors llm rules search serve"
)
__all__ = ["__version__", *_public]
