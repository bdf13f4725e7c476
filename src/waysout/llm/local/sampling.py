"""What shapes the draw of a token beside the temperature, and where a model says so."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from waysout.errors import InputError, shown

FILE = "generation_config.json"
# What `generate` draws by where a model's file does not say: its defaults have been the same in
# every release of transformers, and this is the only one of the four that is not off.
UNSAID: Mapping[str, Any] = {"top_k": 50}
_REMEDY = "?sampling=plain does without"


@dataclass(frozen=True, slots=True)
class Sampling:
    """Limits on what is drawn; with these defaults the temperature alone decides.

    >>> str(Sampling(top_p=0.8, top_k=20)), str(Sampling(top_k=0))
    ('top_k=20&top_p=0.8', '')
    """

    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        for name, (what, fits) in _RANGES.items():
            value = getattr(self, name)
            kind = int if name == "top_k" else (int, float)
            if isinstance(value, bool) or not isinstance(value, kind) or not fits(value):
                raise InputError(f"{name} is {what}, not {shown(value)}")

    def __str__(self) -> str:
        """Return what is applied, as options of a connection string."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        off = {each.name: each.default for each in fields(self)}
        return as_options({name: value for name, value in values.items() if value != off[name]})


_RANGES: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    "top_k": ("a whole number of at least 0 (0: off)", lambda k: k >= 0),
    "top_p": ("a number above 0, at most 1 (1: off)", lambda p: 0 < p <= 1),
    "min_p": ("a number from 0 (off) to below 1", lambda p: 0 <= p < 1),
    "repetition_penalty": (
        "a finite number above 0 (1: off)",
        lambda penalty: 0 < penalty <= sys.float_info.max,
    ),
}


def as_options(settings: Mapping[str, Any]) -> str:
    """Write settings in one order, and each number in its shortest form: names depend on it."""
    ordered = {name: settings[name] for name in _RANGES if name in settings}
    return "&".join(f"{name}={repr(value).removesuffix('.0')}" for name, value in ordered.items())


def from_options(**given: float | str | None) -> dict[str, Any]:
    """Return the settings among options, which may be text; `None` is one that was not given."""
    settings = {name: _number(name, value) for name, value in given.items() if value is not None}
    Sampling(**settings)  # it checks the numbers
    return settings


def from_file(file: Path) -> dict[str, Any]:
    """Return what a model's file says; without a file, nothing."""
    try:
        said = json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read {file}: {error} ({_REMEDY})") from None
    if not isinstance(said, dict):
        raise InputError(f"{file} holds no settings, but {shown(said)} ({_REMEDY})")
    return from_model(said, str(file))


def from_model(said: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the settings among all that a model's makers advise for `generate`.

    Neither their temperature nor ``do_sample`` counts: that is up to the request.
    """
    settings = {**UNSAID, **{n: said[n] for n in _RANGES if said.get(n) is not None}}
    try:
        Sampling(**settings)
    except InputError as error:
        raise InputError(f"{source}: {error} ({_REMEDY})") from None
    return settings


def _number(name: str, value: float | str) -> Any:
    if isinstance(value, str):
        try:
            return int(value) if name == "top_k" else float(value)
        except ValueError:
            raise InputError(f"{name} is {_RANGES[name][0]}, not {shown(value)}") from None
    return value
