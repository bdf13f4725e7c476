"""Writing TOML by hand: no library writes the comments that make a card a draft to read."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping

from waysout.domain.schema import Scalar, format_number
from waysout.errors import TableError


def quoted(text: str) -> str:
    r"""Write text as a TOML string on one line.

    >>> print(quoted('say "hi"\n'))
    "say \"hi\"\n"
    """
    if any(unicodedata.category(c) == "Cs" for c in text):
        raise TableError(f"{text[:60]!r} holds half a character (a lone surrogate); mend the text")
    # Invisible characters and exotic line ends are escaped so that a person can see them.
    return "".join(_escaped(c) for c in json.dumps(text, ensure_ascii=False))


def _escaped(char: str) -> str:
    if unicodedata.category(char) not in ("Cc", "Cf", "Zl", "Zp"):
        return char
    return f"\\u{ord(char):04X}" if ord(char) < 0x10000 else f"\\U{ord(char):08X}"


def toml_key(text: str) -> str:
    """Write a key, quoted where it has to be."""
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else quoted(text)


def toml_scalar(value: Scalar) -> str:
    """Write one value."""
    if isinstance(value, str):
        return quoted(value)
    return str(value).lower() if isinstance(value, bool) else format_number(value)


def toml_list(values: Iterable[Scalar]) -> str:
    """Write a list on one line, or on as many as it takes."""
    lines, line = [], ""
    for item in map(toml_scalar, values):
        if line and len(line) + len(item) > 90:
            lines.append(line.rstrip())
            line = ""
        line += item + ", "
    if not lines:
        return f"[{line[:-2]}]"
    return "[\n  " + "\n  ".join([*lines, line.rstrip()]) + "\n]"


def comment(text: str) -> str:
    """Write a comment, on one line whatever the text."""
    return "# " + "".join(_escaped(c) for c in text)


def toml_inline(value: object) -> str:
    """Write a value, a list or a table on one line."""
    if isinstance(value, Mapping):
        pairs = (f"{toml_key(k)} = {toml_inline(v)}" for k, v in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_inline, value))}]"
    assert isinstance(value, (str, bool, int, float))
    return toml_scalar(value)
