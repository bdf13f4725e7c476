"""The one table of methods: a name, where it is made, and what it is in a line."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from waysout.errors import InputError, unknown
from waysout.search.base import Method


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a method is made (module and class), with which settings, and what it does."""

    factory: str
    what: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    llm: bool = True


METHODS: Mapping[str, Entry] = {
    "comp-mcts": Entry(
        "search.comp_mcts:CompMCTS", "the paper's tree search with compression-guided pruning"
    ),
    "lats": Entry("search.lats:Lats", "LATS-style tree search (use k=1 for the original)"),
    "lats-high-temp": Entry("search.lats:Lats", "the same with a hotter LLM", {"temperature": 1.2}),
    "lats-diversity": Entry(
        "search.lats:Lats", "the same, told which features were edited already", {"diversity": True}
    ),
    "random": Entry(
        "baselines.random:RandomEdits", "random feasible edits: the floor to beat", llm=False
    ),
    "nearest": Entry(
        "baselines.nearest:NearestRows",
        "the nearest approved rows of your data, as far as the rules allow",
        llm=False,
    ),
}
DEFAULT = "comp-mcts"


def make_method(name: str, settings: Mapping[str, Any] | None = None) -> Method:
    """Return a method by name; ``settings`` may be texts, as a command line gives them."""
    entry = METHODS.get(name)
    if entry is None:
        raise InputError(unknown("method", name, METHODS))
    cls, given = method_class(name), settings or {}
    known = [f.name for f in fields(cls)]
    for key in given:
        if key not in known:
            raise InputError(f"{name}: {unknown('setting', key, known)}")
    return cls(**{**entry.settings, **given})


def method_class(name: str) -> type[Method]:
    """Import and return a method's class."""
    module, _, attribute = METHODS[name].factory.partition(":")
    found: type[Method] = getattr(importlib.import_module(f"waysout.{module}"), attribute)
    return found
