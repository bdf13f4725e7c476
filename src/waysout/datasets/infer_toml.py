"""TOML, written by hand: no library writes the comments that make a card a draft to read."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping

from waysout.domain.schema import Scalar, format_number
from waysout.errors import TableError


def toml(value: object) -> str:
    r"""Write a value, a list or a table on one line.

    >>> print(toml('say "hi"\n'))
    "say \"hi\"\n"
    """
    if isinstance(value, str):
        if any(unicodedata.category(c) == "Cs" for c in value):
            raise TableError(f"{value[:60]!r} holds half a character (a lone surrogate)")
        return _visible(json.dumps(value, ensure_ascii=False))
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{toml_key(k)} = {toml(v)}' for k, v in value.items())} }}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml, value))}]"
    assert isinstance(value, (bool, int, float))
    return str(value).lower() if isinstance(value, bool) else format_number(value)


def level(value: Scalar) -> str:
    """Write a level, whose type is the table's: 1.0 is not 1."""
    return repr(value) if isinstance(value, float) else toml(value)


def _visible(text: str) -> str:
    """Escape invisible characters and exotic line ends, so that a person can see them."""
    return "".join(
        (f"\\u{ord(c):04X}" if ord(c) < 0x10000 else f"\\U{ord(c):08X}")
        if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")
        else c
        for c in text
    )


def toml_key(text: str) -> str:
    """Write a key, quoted where it has to be."""
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else toml(text)


def wrapped(items: Iterable[str]) -> str:
    """Write a list of what is written already, on several lines where one is not enough."""
    lines, line = [], ""
    for item in items:
        if line and len(line) + len(item) > 90:
            lines.append(line.rstrip())
            line = ""
        line += item + ", "
    if not lines:
        return f"[{line[:-2]}]"
    return "[\n  " + "\n  ".join([*lines, line.rstrip()]) + "\n]"


def comment(text: str) -> str:
    """Write a comment, on one line whatever the text."""
    return "# " + _visible(text)
