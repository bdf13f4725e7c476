"""The one table of methods: a name, where it is made, and what it is in a line."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from waysout.errors import InputError, shown, unknown
from waysout.search.base import Method


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a method is made (module and class), with which settings, and what it does."""

    factory: str
    what: str
    settings: Mapping[str, Any] = field(default_factory=dict)


METHODS: Mapping[str, Entry] = {
    "recombine": Entry(
        "search.recombine:Recombine",
        "the LLM names edits; their combinations are searched without it",
    ),
    "comp-mcts": Entry(
        "search.comp_mcts:CompMCTS", "the paper's tree search with compression-guided pruning"
    ),
    "lats": Entry("search.lats:Lats", "LATS-style tree search (use k=1 for the original)"),
    "lats-high-temp": Entry("search.lats:Lats", "the same with a hotter LLM", {"temperature": 1.2}),
    "lats-diversity": Entry(
        "search.lats:Lats", "the same, told which features were edited already", {"diversity": True}
    ),
    "random": Entry("baselines.random:RandomEdits", "random feasible edits: the floor to beat"),
    "nearest": Entry(
        "baselines.nearest:NearestRows",
        "the nearest approved rows of your data, as far as the rules allow",
    ),
    "dice": Entry("baselines.dice:Dice", "DiCE itself, the package dice-ml"),
    "growing-spheres": Entry(
        "baselines.growing_spheres:GrowingSpheres", "ever wider rings around the row"
    ),
    "certifai": Entry("baselines.certifai:Certifai", "a genetic search"),
    "cchvae": Entry(
        "baselines.learned.cchvae:Cchvae",
        "rings in the latent space of an autoencoder of your data (C-CHVAE)",
    ),
    "tabular-diffusion": Entry(
        "baselines.learned.tabular_diffusion:TabularDiffusion",
        "the row noised, and denoised as an approved one",
    ),
}
DEFAULT = "recombine"


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


def as_method(method: object, settings: Mapping[str, Any] | None = None) -> tuple[str, Method]:
    """Return a method, given by name or as an object, with its name."""
    if isinstance(method, str):
        return method, make_method(method, settings)
    if isinstance(method, type) and issubclass(method, Method):
        raise InputError(f"method is the class {method.__name__}: make one, {method.__name__}(…)")
    if not isinstance(method, Method):
        raise InputError(
            f"method is a name ({', '.join(METHODS)}) or a Method, not {shown(method)}"
        )
    name = getattr(method, "name", None)
    if not isinstance(name, str) or not name:
        kind = type(method).__name__
        raise InputError(f'the method {kind} has no name: give its class one (name = "…")')
    return name, method


def method_class(name: str) -> type[Method]:
    """Import and return a method's class."""
    module, _, attribute = METHODS[name].factory.partition(":")
    found: type[Method] = getattr(importlib.import_module(f"waysout.{module}"), attribute)
    return found
