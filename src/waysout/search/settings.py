"""Settings of methods, checked: the right type, within bounds, a known choice."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from waysout.errors import InputError, shown, unknown

_TRUE, _FALSE = ("true", "yes", "1", "on"), ("false", "no", "0", "off")


def check_settings(method: Any) -> None:
    """Raise `InputError` unless every field of a method holds what its type says."""
    hints = get_type_hints(type(method))
    for field in fields(method):
        value = getattr(method, field.name)
        typed = _typed(field.name, hints[field.name], value)
        if typed != value or type(typed) is not type(value):
            object.__setattr__(method, field.name, typed)
        least, most = field.metadata.get("least"), field.metadata.get("most")
        if least is not None and not typed >= least:
            raise InputError(f"{field.name} is at least {least}, not {shown(value)}")
        if most is not None and not typed <= most:
            raise InputError(f"{field.name} is at most {most}, not {shown(value)}")


def _typed(name: str, hint: Any, value: Any) -> Any:
    """Return a value as its type; a text, as a command line gives it, is read."""
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise InputError(unknown(name, value, get_args(hint)))
        return value
    if hint is bool:
        return _flag(name, value)
    if hint is str:
        if not isinstance(value, str):
            raise InputError(f"{name} is a text, not {shown(value)}")
        return value
    if hint not in (int, float):
        raise InputError(
            f"the setting {name} is declared as {_written(hint)}: settings are int, float, bool, "
            "str or Literal, so that a command line can give them"
        )
    return _number(name, hint, value)


def _written(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, str) and value.lower() in _TRUE + _FALSE:
        return value.lower() in _TRUE
    if not isinstance(value, bool):
        raise InputError(f"{name} is true or false, not {shown(value)}")
    return value


def _number(name: str, hint: Any, value: Any) -> Any:
    what = "a whole number" if hint is int else "a number"
    try:
        number = hint(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} is {what}, not {shown(value)}") from None
    same = isinstance(value, str) or number == value
    if isinstance(value, bool) or not math.isfinite(number) or not same:
        raise InputError(f"{name} is {what}, not {shown(value)}")
    return number
