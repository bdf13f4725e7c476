"""JSON in a text, whole or in pieces, wherever it stands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# Deeper than any answer, shallower than Python's patience.
DEEPEST = 16


class JsonObject(tuple[tuple[str, object], ...]):
    """A JSON object with all its keys, also those that occur twice."""


@dataclass(slots=True)
class _Frame:
    """What stands between a bracket and its counterpart (or where that is missed)."""

    bracket: str
    start: int
    end: int = 0
    height: int = 1
    inner: list[_Frame] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Piece:
    """A JSON value, or nothing: the start of an object that has no end."""

    start: int
    end: int
    value: object = None


_CLOSES = {"}": "{", "]": "["}
_OUTSIDE = re.compile(r"[{\[]")
# Inside, brackets in strings do not count. A string ends with its line, so that a stray quotation
# mark hides one line and not the rest.
_INSIDE = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"?|[{}\[\]]")


class _Scan:
    """One pass over the brackets of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.whole: list[_Frame] = []
        self._tail: list[Piece] = []
        self._stack: list[_Frame] = []
        self._depth = {"{": 0, "[": 0}
        self._run()

    def _run(self) -> None:
        position = 0
        while found := (_INSIDE if self._stack else _OUTSIDE).search(self.text, position):
            position = found.end()
            if found[0] in self._depth:
                self._open(found[0], found.start())
            elif found[0] in _CLOSES:
                self._close(_CLOSES[found[0]], found.end())
        if self._stack and self._stack[-1].bracket == "{" and not self._stack[-1].inner:
            start = self._stack[-1].start
            self._tail = [Piece(start, start)]
        while self._stack:
            self._break(len(self.text))

    def _open(self, bracket: str, start: int) -> None:
        self._stack.append(_Frame(bracket, start))
        self._depth[bracket] += 1

    def _pop(self, end: int) -> _Frame:
        frame = self._stack.pop()
        frame.end = end
        self._depth[frame.bracket] -= 1
        if self._stack:
            self._stack[-1].height = max(self._stack[-1].height, frame.height + 1)
        return frame

    def _close(self, bracket: str, end: int) -> None:
        if not self._depth[bracket]:
            return
        while self._stack[-1].bracket != bracket:
            self._break(end - 1)
        frame = self._pop(end)
        if frame.height > DEEPEST:
            self.whole += frame.inner
        else:
            (self._stack[-1].inner if self._stack else self.whole).append(frame)

    def _break(self, end: int) -> None:
        self.whole += self._pop(end).inner

    def pieces(self, cut: bool) -> list[Piece]:
        """Return the values that hold an object, in order, and the object that was cut off."""
        found = [piece for frame in self.whole for piece in self._load(frame)]
        return sorted([*found, *(self._tail if cut else [])], key=lambda piece: piece.start)

    def _load(self, frame: _Frame) -> Iterator[Piece]:
        value = _loads(self.text[frame.start : frame.end])
        if value is None:
            for inner in frame.inner:
                yield from self._load(inner)
        elif any(objects(value)):
            yield Piece(frame.start, frame.end, value)


def _loads(text: str) -> object:
    for attempt in (text, re.sub(r",\s*(?=[}\]])", "", text)):
        try:
            # Numbers stay as they were written; the table decides what they are.
            return json.loads(
                attempt, strict=False, parse_int=str, parse_float=str, parse_constant=str,
                object_pairs_hook=JsonObject,
            )  # fmt: skip
        except (ValueError, RecursionError):
            continue
    return None


def objects(value: object, name: str = "") -> Iterator[tuple[str, JsonObject]]:
    """Yield all objects in a value, each with the key it stands under."""
    if isinstance(value, JsonObject):
        yield name, value
        for key, item in value:
            yield from objects(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from objects(item)


def json_pieces(text: str, cut: bool) -> list[Piece]:
    """Return the JSON values in a text and what was begun of others, in order."""
    return _Scan(text).pieces(cut)
