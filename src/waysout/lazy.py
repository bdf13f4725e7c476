"""Public names that load on first use, so that importing a package is instant."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def on_first_use(
    package: str, names: Mapping[str, str], *, modules: str = "", extra: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return a package's ``__getattr__``, its ``__dir__`` and its public names, sorted.

    ``names`` maps a module of the package to the names it gives, with spaces between them;
    ``modules`` are public themselves. ``extra`` is the one that brings what the package needs.
    """
    where = {name: module for module, listed in names.items() for name in listed.split()}
    public = sorted([*where, *modules.split()])

    def load(name: str) -> Any:
        if name not in public:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(f"{package}.{where.get(name, name)}")
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if not extra or missing.partition(".")[0] == "waysout":
                raise
            from waysout.errors import MissingExtra

            raise MissingExtra(missing, extra) from error
        return getattr(module, name) if name in where else module

    def names_to_show() -> list[str]:
        shown: list[str] = sys.modules[package].__all__
        return sorted(shown)

    return load, names_to_show, public
