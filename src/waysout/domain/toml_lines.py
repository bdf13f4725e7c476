"""Lines of a TOML file: the standard parser forgets them, and an error should name one."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

TomlPath = tuple[str | int, ...]

_HEADER = re.compile(r"(\[\[?)(.+?)\]\]?$")
_KEY = re.compile(r"((?:\"(?:[^\"\\]|\\.)*+\"|'[^']*+'|[^=\"'])++)=")
# Long strings before short ones, and strings before comments: a mark inside another does not count.
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""|' + r"'''.*?'''" + r'|"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'"
    r"|\#[^\n]*|[\[{]|[\]}]|\n|[^\"'#\[\]{}\n]+|.",
    re.DOTALL,
)


def line_map(text: str) -> dict[TomlPath, int]:
    """Return the one-based line of every table header and key of a valid TOML text.

    >>> line_map('a = 1\\n[[b.c]]\\nd = 2\\n[[b.c]]\\nd = 3\\n')[("b", "c", 1, "d")]
    5
    """
    lines: dict[TomlPath, int] = {}
    tables: dict[TomlPath, int] = {}
    here: TomlPath = ()
    for number, statement in _statements(text):
        header = _HEADER.match(statement)
        if header is not None:
            here = _key_path(header[2])
            lines.setdefault(here, number)
            if header[1] == "[[":
                tables[here] = tables.get(here, -1) + 1
                here = (*here, tables[here])
                lines.setdefault(here, number)
        elif (key := _KEY.match(statement)) is not None:
            lines.setdefault((*here, *_key_path(key[1])), number)
    return lines


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield each statement, without its comments, with the line it starts on."""
    line, started, depth, parts = 1, 1, 0, list[str]()
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token == "\n" and depth == 0:
            yield started, "".join(parts).strip()
            parts, started = [], line + 1
        elif not token.startswith("#"):
            parts.append(token)
            depth += (token in "[{") - (token in "]}")
        line += token.count("\n")
    yield started, "".join(parts).strip()


def _key_path(text: str) -> TomlPath:
    """Split a dotted key, with TOML's own quoting."""
    try:
        table: Any = tomllib.loads(f"{text} = 0")
    except tomllib.TOMLDecodeError:
        return (text,)
    path: list[str] = []
    while isinstance(table, dict):
        key = next(iter(table))
        path.append(key)
        table = table[key]
    return tuple(path)
