"""From a reply's text to the candidates in it, however the model dressed them up.

The format asked for is a block of ``CANDIDATE=1``, ``FEATURE=…``, ``VALUE=…`` (or ``CHANGE=…``) and
``REASONING=…``, or the same in JSON. Models add prose, Markdown, headings and thoughts, lose line
ends and stop in the middle. Nothing here knows the table: names and values are still bare text.

Any text is read in time linear in its length and without an error. What looks like a candidate but
is not one has a ``flaw``, so that it can be counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["header", "feature", "value", "change", "reason", "other"]

# Deeper than any answer, shallower than Python's patience.
DEEPEST = 16
LONGEST_FIELD = 2000

_KINDS: dict[str, Kind] = {
    "candidate": "header",
    "feature": "feature", "feature_name": "feature", "attribute": "feature",
    "value": "value", "new_value": "value", "proposed_value": "value", "suggested_value": "value",
    "target_value": "value", "change": "change", "change_to": "change",
    "reasoning": "reason", "reason": "reason", "explanation": "reason", "rationale": "reason",
    "justification": "reason",
    "current_value": "other", "old_value": "other", "original_value": "other",
    "previous_value": "other", "present_value": "other", "existing_value": "other",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Raw:
    """One candidate as the reply words it. A ``flaw`` says why nothing can be made of it."""

    feature: str = ""
    value: str = ""
    reason: str = ""
    flaw: str = ""
    truncated: bool = False


def candidates(text: str, *, cut: bool = False, strict: bool = False) -> list[Raw]:
    """Return every candidate in a reply; one with a flaw where there is none at all.

    ``cut`` says that the reply was stopped at a limit, so that its last value may lack digits.
    ``strict`` reads the paper's format to the letter and nothing else.

    >>> candidates("Sure!\\n**Feature:** income\\n**Value:** 50,000")
    [Raw(feature='income', value='50,000', reason='', flaw='', truncated=False)]
    >>> candidates("CANDIDATE=1\\nFEATURE=income\\nVALUE=75", cut=True)[0].flaw
    'cut off'
    """
    answer = _without_thoughts(text).replace("\r\n", "\n").replace("\r", "\n")
    if strict:
        found = _strictly(answer, cut)
    else:
        pieces = _json_pieces(answer)
        found = _stated(pieces, cut) or _written(answer, cut) or _mapped(pieces, cut)
    return found or [Raw(flaw="no candidate" if answer.strip() else "empty", truncated=cut)]


def unwrap(text: str) -> str:
    """Return a field without the quotes, emphasis and brackets around it.

    >>> unwrap('**"income"**,'), unwrap("<income>")
    ('income', 'income')
    """
    bare = text.lstrip(" \t\n\"'`*“”‘’«»{[").rstrip(" \t\n\"'`*“”‘’«»,;}]")
    return bare[1:-1].strip() if bare[:1] == "<" and bare[-1:] == ">" else bare


_THOUGHT = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)


def _without_thoughts(text: str) -> str:
    """Leave out what a model thinks aloud before it answers: drafts are not proposals.

    Some chat templates open the thought themselves, so that a reply begins inside one.
    """
    kept: list[str] = []
    start, thinking = 0, False
    for mark in _THOUGHT.finditer(text):
        if not (mark[1] or thinking):
            kept.append(text[start : mark.start()])
        thinking, start = not mark[1], mark.end()
    return "".join(kept if thinking else [*kept, text[start:]])


class _Collector:
    """Puts fields together to candidates, in the order in which they are met."""

    def __init__(self) -> None:
        self.found: list[Raw] = []
        self._opener: Kind | None = None
        self._clear()

    def _clear(self) -> None:
        self._headed = False
        self._fields: dict[str, str] = {}
        self._open: Kind | None = None
        self._valued_by: Kind | None = None
        self._whole = False

    def header(self) -> None:
        """Begin a candidate that counts even if nothing follows."""
        self.close()
        self._headed = True

    def lacks(self, kind: Kind) -> bool:
        """Whether a candidate has been begun that could do with such a field."""
        return bool(self._fields) and _slot(kind) not in self._fields

    def waits(self) -> bool:
        """Whether a name or a value was announced but has not come yet."""
        return self._open in ("feature", "value")

    def start(self, kind: Kind) -> None:
        """Open a field; its text is fed next."""
        if kind == "header":
            self.header()
            return
        slot = _slot(kind)
        if kind == "change" and self._valued_by == "value":
            slot = "other"  # CHANGE= beside VALUE= says the same in other words
        if slot in ("feature", "value"):
            self._start_of_edit(kind, slot)
        self._open = None if slot == "other" else slot

    def _start_of_edit(self, kind: Kind, slot: Kind) -> None:
        if self._begins(kind, slot):
            self.close()
        self._opener = self._opener or slot
        self._fields[slot] = ""
        self._valued_by = kind if slot == "value" else self._valued_by

    def _begins(self, kind: Kind, slot: Kind) -> bool:
        """Whether a field belongs to the next candidate: it is there already, or comes first."""
        if slot in self._fields:
            return not (kind == "value" and self._valued_by == "change")
        return bool(self._fields) and slot == self._opener and not self._headed

    def feed(self, text: str, *, ended: bool = True) -> None:
        """Give the open field its text; ``ended`` says that there cannot be more of it."""
        text = text.strip()[:LONGEST_FIELD]
        if self._open is None or not text:
            return
        if self._open == "reason":
            before = self._fields.get("reason", "")
            self._fields["reason"] = f"{before} {text}".strip()[:LONGEST_FIELD]
            return
        self._fields[self._open] = text
        self._open, self._whole = None, ended

    def pause(self) -> None:
        """End a reasoning at an empty line: what follows is no longer part of it."""
        if self._open == "reason":
            self._open = None

    def close(self, *, cut: bool = False) -> None:
        """End the candidate, if one was begun."""
        if self._headed or {"feature", "value"} & self._fields.keys():
            self.found.append(self._raw(cut))
        self._clear()

    def _raw(self, cut: bool) -> Raw:
        feature, value = self._fields.get("feature", ""), self._fields.get("value", "")
        reason = self._fields.get("reason", "")
        if cut and not (feature and value and self._whole):
            return Raw(feature, value, reason, flaw="cut off", truncated=True)
        flaw = "" if feature and value else "no VALUE" if feature else "no FEATURE"
        return Raw(feature, value, reason, flaw)


def _slot(kind: Kind) -> Kind:
    return "value" if kind == "change" else kind


# The paper's format, to the letter.

_LETTER = re.compile(r"(CANDIDATE|FEATURE|VALUE|CHANGE|REASONING)=(.*)")


def _strictly(text: str, cut: bool) -> list[Raw]:
    collector, begun = _Collector(), False
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        found = _LETTER.fullmatch(line.strip())
        begun = begun or (found is not None and found[1] == "CANDIDATE")
        if found is None or not begun:
            continue
        collector.start(_KINDS[found[1].lower()])
        collector.feed(found[2], ended=number < len(lines))
    collector.close(cut=cut)
    return collector.found


# Blocks of fields, as models write them. All repetitions are bounded: a hostile line costs no more
# than a friendly one.

_DECORATION = re.compile(r"[\s>#*\-•–+|`\"'_{(\[]{0,32}(?:\d{1,3}[.):][\s*`\"'_]{0,8})?", re.ASCII)
_FENCE = re.compile(r"[\s>]{0,8}(?:```|~~~)")
_HEADER = re.compile(
    r"candidate[\"'`*]{0,3}[ \t_-]{0,4}"
    r"(?:[=:#]{1,2}[ \t]{0,4}[#<(\"']{0,2}(?:\d{1,4}|[a-z]\b)?|#?\d{1,4})"
    r"[>)\]\"'`*]{0,4}[ \t]{0,4}[.:,;|)*–-]{0,4}[ \t]{0,4}[\"'`*]{0,4}",
    re.IGNORECASE | re.ASCII,
)
_WORDS = "|".join(w.replace("_", "[ _]?") for w in sorted(_KINDS, reverse=True) if w != "candidate")
_KEY = re.compile(
    rf"(?:^|[,;|{{(])[ \t]{{0,4}}[\"'`*_]{{0,4}}(?P<key>{_WORDS})[\"'`*_]{{0,4}}[ \t]{{0,4}}"
    r"[=:](?:\*{2,3}[ \t])?"
    # Only capitals and a "=" make a field where nothing but a space stands before it.
    r"|(?<=[\s.*`\"'])(?P<loud>(?-i:CANDIDATE|FEATURE|CHANGE|REASONING"
    r"|(?:(?:CURRENT|OLD|ORIGINAL|PREVIOUS|PRESENT|EXISTING)[ _])?VALUE"
    r"|REASON|EXPLANATION|RATIONALE))[ \t]{0,4}=",
    re.IGNORECASE,
)
_SPACES = re.compile(r"[\s_\-]+")


def _kind(key: str) -> Kind | None:
    return _KINDS.get(_SPACES.sub("_", key[:40].strip().lower()))


def _written(text: str, cut: bool) -> list[Raw]:
    collector = _Collector()
    _collect(collector, text)
    collector.close(cut=cut)
    return collector.found


def _collect(collector: _Collector, text: str) -> None:
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip() or _FENCE.match(line):
            collector.pause()
        else:
            _collect_line(collector, line, ended=number < len(lines))


def _collect_line(collector: _Collector, line: str, *, ended: bool) -> None:
    line = line.strip()
    body = _DECORATION.sub("", line, count=1)
    header = _HEADER.match(body)
    if header is not None:
        collector.header()
        body = body[header.end() :]
    read = 0
    for key in _KEY.finditer(body):
        kind = _kind(key["key"] or key["loud"])
        if kind is not None and _is_field(key, kind, collector):
            collector.feed(body[read : key.start()])
            collector.start(kind)
            read = key.end()
    # A value on a line of its own keeps what looks like a bullet: it may be a minus.
    bare = collector.waits() and header is None and read == 0
    collector.feed(line if bare else body[read:], ended=ended)


def _is_field(key: re.Match[str], kind: Kind, collector: _Collector) -> bool:
    """Tell a field from a word of the prose, such as "…, value: high"."""
    at_start_or_loud = key.start() == 0 or key["loud"] is not None
    return at_start_or_loud or kind == "feature" or collector.lacks(kind)


# JSON, whole or in pieces, wherever it stands in the text.


class _Object(tuple[tuple[str, object], ...]):
    """A JSON object with all its keys, also those that occur twice."""


@dataclass(slots=True)
class _Frame:
    """What stands between a bracket and its counterpart (or where that is missed)."""

    bracket: str
    start: int
    end: int = 0
    height: int = 1
    first_inner: int | None = None
    inner: list[_Frame] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A JSON value, or the text of what should have been an object."""

    start: int
    value: object = None
    broken: str | None = None
    last: bool = False


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
        self.broken: list[_Frame] = []
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
        while self._stack:
            self._break(len(self.text))

    def _open(self, bracket: str, start: int) -> None:
        if self._stack and self._stack[-1].first_inner is None:
            self._stack[-1].first_inner = start
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
        frame = self._pop(end)
        self.whole += frame.inner
        self.broken.append(frame)

    def pieces(self) -> list[_Piece]:
        """Return the values and the broken objects, in order."""
        found = [piece for frame in self.whole for piece in self._load(frame)]
        found += [self._shard(frame, broken=True) for frame in self.broken if frame.bracket == "{"]
        return sorted(found, key=lambda piece: piece.start)

    def _load(self, frame: _Frame) -> Iterator[_Piece]:
        value = _loads(self.text[frame.start : frame.end])
        if value is not None:
            yield _Piece(frame.start, value)
            return
        if frame.bracket == "{":
            yield self._shard(frame)
        for inner in frame.inner:
            yield from self._load(inner)

    def _shard(self, frame: _Frame, *, broken: bool = False) -> _Piece:
        end = frame.end if frame.first_inner is None else frame.first_inner
        last = broken and end == len(self.text)
        return _Piece(frame.start, broken=self.text[frame.start : end], last=last)


def _json_pieces(text: str) -> list[_Piece]:
    return _Scan(text).pieces()


def _loads(text: str) -> object:
    for attempt in (text, re.sub(r",\s*(?=[}\]])", "", text)):
        try:
            # Numbers stay as they were written; the table decides what they are.
            return json.loads(
                attempt, strict=False, parse_int=str, parse_float=str, parse_constant=str,
                object_pairs_hook=_Object,
            )  # fmt: skip
        except (ValueError, RecursionError):
            continue
    return None


def _objects(value: object, name: str = "") -> Iterator[tuple[str, _Object]]:
    """Yield all objects in a value, each with the key it stands under."""
    if isinstance(value, _Object):
        yield name, value
        for key, item in value:
            yield from _objects(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _objects(item)


def _states_an_edit(name: str, found: _Object) -> bool:
    kinds = {_kind(key) for key, _ in found}
    return "feature" in kinds or (bool(name) and not kinds.isdisjoint({"value", "change"}))


def _stated(pieces: list[_Piece], cut: bool) -> list[Raw]:
    """Return candidates given as objects that say which feature and which value."""
    whole = (named for piece in pieces for named in _objects(piece.value))
    if not any(_states_an_edit(*named) for named in whole):
        return []
    collector = _Collector()
    for piece in pieces:
        for name, found in _objects(piece.value):
            if _states_an_edit(name, found):
                _collect_object(collector, name, found)
        if piece.broken is not None:
            _collect_shard(collector, piece.broken, cut and piece.last)
    return collector.found


def _collect_shard(collector: _Collector, text: str, cut: bool) -> None:
    if cut:
        collector.header()  # it counts even if it was cut before its first field
    _collect(collector, text)
    collector.close(cut=cut)


def _collect_object(collector: _Collector, name: str, found: _Object) -> None:
    named = any(_kind(key) == "feature" for key, _ in found)
    fields = found if named else (("feature", name), *found)
    collector.header()
    for key, item in fields:
        kind = _kind(key)
        if kind is not None and kind != "header":
            collector.start(kind)
            collector.feed(_text(item))
    collector.close()


def _mapped(pieces: list[_Piece], cut: bool) -> list[Raw]:
    """Return candidates given as objects that map features to values."""
    found = [
        raw for piece in pieces for _, mapping in _objects(piece.value) for raw in _pairs(mapping)
    ]
    if found and cut and any(piece.last for piece in pieces):
        found.append(Raw(flaw="cut off", truncated=True))
    return found


def _pairs(found: _Object) -> Iterator[Raw]:
    reason = next((_text(item) for key, item in found if _kind(key) == "reason"), "")
    for key, item in found:
        if _kind(key) is None and not isinstance(item, (list, _Object)):
            value = _text(item)[:LONGEST_FIELD]
            yield Raw(key[:LONGEST_FIELD], value, reason[:LONGEST_FIELD])


def _text(item: object) -> str:
    if isinstance(item, str):
        return item
    if isinstance(item, (list, _Object)):
        return "(several values)"
    return "null" if item is None else str(item).lower()
