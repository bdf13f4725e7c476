"""Where things stand in a TOML text: the standard parser reads values but forgets their lines."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)(.+?)\]\]?\s*(#.*)?$")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')
_LONG_QUOTE = re.compile(r'"""|\'\'\'')


def line_map(text: str) -> dict[Path, int]:
    """Return the one-based line of every table header and key of a valid TOML text.

    >>> line_map('a = 1\\n[[b.c]]\\nd = 2\\n[[b.c]]\\nd = 3\\n')[("b", "c", 1, "d")]
    5
    """
    lines: dict[Path, int] = {}
    tables: dict[Path, int] = {}
    here: Path = ()
    for number, line in _statements(text):
        header = _HEADER.match(line)
        if header is not None:
            here = _key_path(header[2])
            if header[1] == "[[":
                tables[here] = tables.get(here, -1) + 1
                here = (*here, tables[here])
            lines.setdefault(here, number)
        elif (path := _assigned(line)) is not None:
            lines.setdefault((*here, *path), number)
    return lines


def nearest_line(lines: Mapping[Path, int], path: Path) -> int | None:
    """Return the line of a path, or of the closest thing around it that has one."""
    for end in range(len(path), 0, -1):
        if path[:end] in lines:
            return lines[path[:end]]
    return None


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines on which a statement starts, leaving out the inside of longer values."""
    depth, quote = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if depth == 0 and not quote and line.strip() and not line.lstrip().startswith("#"):
            yield number, line
        depth, quote = _after(line, depth, quote)


def _after(line: str, depth: int, quote: str) -> tuple[int, str]:
    """Return how deep in brackets, and in which long quote, the next line begins."""
    rest = line
    while rest:
        if quote:
            _, found, rest = rest.partition(quote)
            if not found:
                return depth, quote
            quote = ""
        mark = _LONG_QUOTE.search(rest)
        plain = _QUOTED.sub("", rest[: mark.start()] if mark else rest).partition("#")[0]
        if not _HEADER.match(line):
            depth = max(0, depth + sum(map(plain.count, "[{")) - sum(map(plain.count, "]}")))
        if mark is None:
            return depth, quote
        quote, rest = mark.group(), rest[mark.end() :]
    return depth, quote


def _key_path(text: str) -> Path:
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


def _assigned(line: str) -> Path | None:
    key = re.match(r"\s*((?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^=\"'])+?)\s*=", line)
    return _key_path(key[1]) if key else None
