"""Methods by name: those of the product are listed here.

Other packages, and our own `bench`, add theirs by entry points:
``[project.entry-points."waysout.methods"]`` with lines ``name = "module:Class"``. The class's
``about`` is its line in `waysout methods`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any

from waysout.errors import InputError, UnavailableError, is_ctrl_c, shown, unknown
from waysout.search.base import Method


@dataclass(frozen=True, slots=True)
class MethodEntry:
    """Where a method is made (module and class), with which settings, and what it does."""

    factory: str
    what: str
    settings: Mapping[str, Any] = field(default_factory=dict)


# fmt: off
METHODS: Mapping[str, MethodEntry] = {
    "wayfinder": MethodEntry("waysout.search.wayfinder:Wayfinder",
                             "the few ways a person would take: minimal, checked to hold"),
    "recombine": MethodEntry("waysout.search.recombine:Recombine",
                             "the LLM names edits; their combinations are searched without it"),
    "comp-mcts": MethodEntry("waysout.search.comp_mcts:CompMCTS",
                             "the paper's tree search with compression-guided pruning"),
    "lats": MethodEntry("waysout.search.lats:Lats",
                        "LATS-style tree search (use k=1 for the original)"),
    "lats-high-temp": MethodEntry("waysout.search.lats:Lats",
                                  "the same with a hotter LLM", {"temperature": 1.2}),
    "lats-diversity": MethodEntry("waysout.search.lats:Lats",
                                  "the same, told which features were edited already",
                                  {"diversity": True}),
    "random": MethodEntry("waysout.search.random:RandomEdits",
                          "random feasible edits: the floor to beat"),
    "nearest": MethodEntry("waysout.search.nearest:NearestRows",
                           "the nearest approved rows of your data, as far as the rules allow"),
    "growing-spheres": MethodEntry("waysout.search.growing_spheres:GrowingSpheres",
                                   "ever wider rings around the row"),
    "certifai": MethodEntry("waysout.search.certifai:Certifai", "a genetic search"),
}
# fmt: on
DEFAULT = "wayfinder"


@cache
def all_methods() -> Mapping[str, MethodEntry]:
    """Return our methods and those of installed packages, which cannot take a name of ours."""
    from importlib.metadata import entry_points

    others = {
        point.name: MethodEntry(point.value, f"from the package {point.dist.name}")
        for point in entry_points(group="waysout.methods")
        if point.dist is not None
    }
    return {**METHODS, **{name: other for name, other in others.items() if name not in METHODS}}


def about(name: str) -> str:
    """Return what a method does, in a line."""
    entry = all_methods()[name]
    if name in METHODS:
        return entry.what
    try:
        return getattr(method_class(name), "about", "") or entry.what
    except UnavailableError as error:
        return str(error)


def make_method(name: str, settings: Mapping[str, Any] | None = None) -> Method:
    """Return a method by name; ``settings`` may be strings, as on a command line.

    >>> import waysout
    >>> waysout.make_method("lats", {"depth": "3"}) == waysout.Lats(depth=3)
    True
    """
    # Only a name that is not ours costs a look at what is installed.
    known = METHODS if name in METHODS else all_methods()
    if name not in known:
        raise InputError(unknown("method", name, known))
    cls, given = method_class(name), settings or {}
    allowed = [f.name for f in fields(cls)]
    for key in given:
        if key not in allowed:
            raise InputError(f"{name}: {unknown('setting', key, allowed)}")
    return cls(**{**known[name].settings, **given})


def as_method(method: object, settings: Mapping[str, Any] | None = None) -> tuple[str, Method]:
    """Return a method, given by name or as an object, with its name."""
    if isinstance(method, str):
        return method, make_method(method, settings)
    if isinstance(method, type) and issubclass(method, Method):
        raise InputError(f"method is the class {method.__name__}: make one, {method.__name__}(…)")
    if not isinstance(method, Method):
        raise InputError(
            f"method is a name ({', '.join(all_methods())}) or a Method, not {shown(method)}"
        )
    name = getattr(method, "name", None)
    if not isinstance(name, str) or not name:
        kind = type(method).__name__
        raise InputError(f'the method {kind} has no name: set one on its class (name = "…")')
    return name, method


def method_class(name: str) -> type[Method]:
    """Import and return a method's class."""
    factory = (METHODS.get(name) or all_methods()[name]).factory
    module, _, attribute = factory.partition(":")
    try:
        found: type[Method] = getattr(importlib.import_module(module), attribute)
        if not (isinstance(found, type) and is_dataclass(found)):
            raise TypeError(f"{shown(found)} is no dataclass of settings")
    except BaseException as error:  # whatever another package does when it is imported
        if name in METHODS or is_ctrl_c(error):
            raise
        raise UnavailableError(
            f"the method {name!r} of another package ({factory}) cannot be loaded: "
            f"{error or type(error).__name__}"
        ) from error
    return found
