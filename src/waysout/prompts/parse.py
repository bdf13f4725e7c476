"""From a reply's text to the candidates in it, however the model dressed them up.

The format asked for is a block of ``CANDIDATE=1``, ``FEATURE=…``, ``VALUE=…`` (or ``CHANGE=…``) and
``REASONING=…``, or the same in JSON. Models add prose, Markdown, headings and thoughts, lose line
ends and stop in the middle. Names and values are still bare text; all that is asked about the table
is whether a line spells one of them to the letter, for a name may well look like a field.

Any text is read in time linear in its length and without an error. What looks like a candidate but
is not one has a ``flaw``, so that it can be counted. A wrong value is worse than a lost one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["header", "feature", "value", "change", "reason", "other"]

# Whether a text names a feature (the value is empty), or a value of a feature, to the letter.
Knows = Callable[[str, str], bool]

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
    """One candidate as the reply words it. A ``flaw`` says why it cannot be used.

    ``change`` is the text of a ``CHANGE=`` beside a ``VALUE=``; on its own it is the value.
    """

    feature: str = ""
    value: str = ""
    reason: str = ""
    change: str = ""
    flaw: str = ""
    truncated: bool = False


def candidates(
    text: str, *, cut: bool = False, strict: bool = False, knows: Knows | None = None
) -> list[Raw]:
    """Return every candidate in a reply; a single one with a flaw if there is none at all.

    ``cut`` says that the reply was stopped at a limit, so that its last value may lack digits.
    ``strict`` reads the paper's format to the letter and nothing else.

    >>> [raw] = candidates("Sure!\\n**Feature:** income\\n**Value:** 50,000")
    >>> raw.feature, raw.value
    ('income', '50,000')
    >>> candidates("CANDIDATE=1\\nFEATURE=income\\nVALUE=75", cut=True)[0].flaw
    'cut off'
    """
    answer = _without_thoughts(text).replace("\r\n", "\n").replace("\r", "\n")
    found = _strictly(answer, cut) if strict else _Reader(answer, knows).read(cut)
    return found or [Raw(flaw="no candidate" if answer.strip() else "empty", truncated=cut)]


def unwrap(text: str) -> str:
    """Return a field without the quotes, emphasis and brackets around it.

    >>> unwrap('**"income"**,'), unwrap("<income>")
    ('income', 'income')
    """
    bare = text.lstrip(" \t\n\"'`*“”‘’«»{[").rstrip(" \t\n\"'`*“”‘’«»,;}]")
    return bare[1:-1].strip() if bare[:1] == "<" and bare[-1:] == ">" else bare


_THOUGHT = re.compile(r"<(/?)(?:think(?:ing)?|thought)>|\[(/?)think\]", re.IGNORECASE)


def _without_thoughts(text: str) -> str:
    """Remove the thoughts a model writes before it answers: drafts are not proposals.

    Some chat templates open the thought themselves, so that a reply begins inside one. Where
    nothing follows its end, there was no thought but an answer with a stray mark.
    """
    kept: list[str] = []
    start, thinking, answered = 0, False, ""
    for mark in _THOUGHT.finditer(text):
        closes = bool(mark[1] or mark[2])
        if not thinking:
            said = text[start : mark.start()]
            answered = said if closes and said.strip() else answered
            kept += [] if closes else [said]
        thinking, start = not closes, mark.end()
    answer = "".join(kept if thinking else [*kept, text[start:]])
    return answer if answer.strip() else answered


class _Collector:
    """Puts fields together to candidates, in the order in which they are met."""

    def __init__(self) -> None:
        self.found: list[Raw] = []
        self._opener: str | None = None
        self.clear()

    def clear(self) -> None:
        self._headed = False
        self._fields: dict[str, str] = {}
        self._open: Kind | None = None
        self._whole = False

    @property
    def feature(self) -> str:
        """The feature of the current candidate."""
        return self._fields.get("feature", "")

    @property
    def is_bare_header(self) -> bool:
        """Whether a candidate was announced and nothing else followed."""
        return self._headed and not self._fields

    @property
    def is_reasoning(self) -> bool:
        """Whether a reason is open, which may go on."""
        return self._open == "reason"

    @property
    def is_done(self) -> bool:
        """Whether a candidate under a header has its reason open, and lacks nothing."""
        return self._headed and self.is_reasoning and bool(self._has("value") and self.feature)

    @property
    def waits(self) -> bool:
        """Whether a name or a value was announced but has not followed yet."""
        return self._open in ("feature", "value", "change")

    def _has(self, role: str) -> bool:
        return any(_role_of(kind) == role for kind in self._fields)

    def lacks(self, kind: Kind) -> bool:
        """Whether there is a current candidate without such a field."""
        return bool(self._fields) and not self._has(_role_of(kind))

    def header(self) -> None:
        """Begin a candidate that counts even if nothing follows."""
        self.close()
        self._headed = True

    def start(self, kind: Kind) -> None:
        """Open a field; its text is fed next."""
        if kind == "header":
            self.header()
            return
        if kind in ("feature", "value", "change"):
            # A field belongs to the next candidate if this one has it already, or if candidates
            # begin with its role.
            role = _role_of(kind)
            first = bool(self._fields) and role == self._opener and not self._headed
            if kind in self._fields or (first and not self._has(role)):
                self.close()
            self._opener = self._opener or role
            self._fields[kind] = ""
        self._open = None if kind == "other" else kind

    def feed(self, text: str, *, ended: bool = True) -> None:
        """Give the open field its text; ``ended`` says that there cannot be more of it."""
        text = text.strip()[:LONGEST_FIELD]
        if self._open is None or not text:
            return
        if self.is_reasoning:
            before = self._fields.get("reason", "")
            self._fields["reason"] = f"{before} {text}".strip()[:LONGEST_FIELD]
            return
        self._fields[self._open] = text
        self._open, self._whole = None, ended

    def pause(self) -> None:
        """End a reason at an empty line: what follows is no longer part of it."""
        if self.is_reasoning:
            self._open = None

    def close(self, *, cut: bool = False) -> None:
        """End the current candidate, if there is one."""
        if self._headed or self._fields.keys() - {"reason"}:
            feature, reason = self.feature, self._fields.get("reason", "")
            value, change = self._fields.get("value", ""), self._fields.get("change", "")
            if not value:
                value, change = change, ""
            truncated = cut and not (feature and value and self._whole)
            flaw = "" if feature and value else "no VALUE" if feature else "no FEATURE"
            flaw = "cut off" if truncated else flaw
            self.found.append(Raw(feature, value, reason, change, flaw, truncated))
        self.clear()


def _role_of(kind: str) -> str:
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
    rf"(?:^|[,;|{{(])[ \t]{{0,4}}[\"'`*_]{{0,4}}(?P<key>{_WORDS})(?:[ _]?\d{{1,2}})?[\"'`*_]{{0,4}}"
    r"[ \t]{0,4}(?P<mark>[=:])(?:\*{2,3}[ \t])?"
    # Only capitals and a "=" make a field where nothing but a space stands before it.
    r"|(?<=[\s.*`\"'])(?P<loud>(?-i:CANDIDATE|FEATURE|CHANGE|REASONING"
    r"|(?:(?:CURRENT|OLD|ORIGINAL|PREVIOUS|PRESENT|EXISTING)[ _])?VALUE"
    r"|REASON|EXPLANATION|RATIONALE))[ \t]{0,4}=",
    re.IGNORECASE,
)
_SPACES = re.compile(r"[\s_\-]+")
# Without these nothing is a field.
_MUTE = str.maketrans("=:\n", "   ")


def _kind(key: str) -> Kind | None:
    return _KINDS.get(_SPACES.sub("_", key[:40].strip().lower()))


class _Reader:
    """Reads a text line by line; JSON that stands among the lines is read as JSON."""

    def __init__(self, text: str, knows: Knows | None) -> None:
        self._text = text
        self._knows = knows
        self._collector = _Collector()
        self._mapped: list[Raw] = []
        self._pieces: list[Piece] = []

    def read(self, cut: bool) -> list[Raw]:
        """Return the candidates; those of objects that just map names if there are no others.

        Such an object may be an echo of the row.
        """
        self._pieces = json_pieces(self._text, cut)[::-1]
        start = 0
        while start < len(self._text):
            start = self._read_from(start)
        self._collector.close(cut=cut)
        found = self._collector.found
        return found if any(raw.feature or raw.value for raw in found) else self._mapped + found

    def _read_from(self, start: int) -> int:
        """Read a line, or the part of it up to the end of a JSON value; return where to go on.

        A line goes on where JSON in one of its fields does.
        """
        end = self._line_end(start)
        piece = self._next_piece(end)
        place = "open" if piece is None else self._place(self._text[start : piece.start])
        if piece is not None and place == "open":
            before = self._text[start : piece.start]
            self._read_line(before, before)
            self._read_piece(piece)
            return piece.end
        line: list[str] = []
        read = start
        while piece is not None:
            said = self._text[piece.start : piece.end]
            quiet = said.translate(_MUTE) if place == "reason" else said
            line += [self._text[read : piece.start], quiet]
            read, end = piece.end, self._line_end(piece.end)
            piece = self._next_piece(end)
        line.append(self._text[read:end])
        self._read_line(self._text[start:end], "".join(line), ended=end < len(self._text))
        return end + 1

    def _line_end(self, start: int) -> int:
        end = self._text.find("\n", start)
        return len(self._text) if end < 0 else end

    def _next_piece(self, before: int) -> Piece | None:
        return self._pieces.pop() if self._pieces and self._pieces[-1].start < before else None

    def _place(self, before: str) -> Literal["open", "field", "reason"]:
        """Return where on a line JSON stands: in a field, in a reason, or on its own."""
        _, body = _split_header(before)
        kinds = [_kind(key["key"] or key["loud"]) for key in _KEY.finditer(body)]
        if kinds:
            return "reason" if kinds[-1] == "reason" else "field"
        return "reason" if self._collector.is_reasoning and body.strip() else "open"

    def _read_line(self, line: str, quiet: str, *, ended: bool = True) -> None:
        """Read a line; ``quiet`` is the line with the JSON of a reason made harmless."""
        collector = self._collector
        if not line.strip() or _FENCE.match(line):
            collector.pause()
            return
        headed, body = _split_header(line)
        if headed:
            collector.header()
        key = _KEY.match(body)
        kind = None if key is None else _kind(key["key"])
        if key is not None and kind in ("feature", "value", "change"):
            # A line that is one field and spells a name or a value is not taken apart, even if it
            # looks like two.
            said = body[key.end("mark") :].strip()
            feature, value = (said, "") if kind == "feature" else (collector.feature, said)
            if said and feature and self._knows is not None and self._knows(feature, value):
                collector.start(kind)
                collector.feed(said, ended=ended)
                return
        _, body = _split_header(quiet)
        read = 0
        for key in _KEY.finditer(body):
            kind = _kind(key["key"] or key["loud"])
            if kind is not None and self._is_field(key, kind):
                collector.feed(body[read : key.start()])
                collector.start(kind)
                read = key.end()
        # A value on a line of its own keeps what looks like a bullet: it may be a minus.
        bare = collector.waits and not headed and read == 0
        collector.feed(line if bare else body[read:], ended=ended)

    def _is_field(self, key: re.Match[str], kind: Kind) -> bool:
        """Tell a field from a word of the prose, such as "…, value: high"."""
        if key.start() == 0:
            return True
        if self._collector.is_done:
            return kind == "header"
        return key["loud"] is not None or kind == "feature" or self._collector.lacks(kind)

    def _read_piece(self, piece: Piece) -> None:
        collector = self._collector
        if piece.value is None:
            collector.header()  # an object that was cut counts, even before its first field
        for name, found in objects(piece.value):
            kinds = {_kind(key) for key, _ in found}
            if "feature" in kinds or (name and not kinds.isdisjoint({"value", "change"})):
                if not collector.is_bare_header:
                    collector.header()
                for key, item in found if "feature" in kinds else (("feature", name), *found):
                    kind = _kind(key)
                    if kind is not None and kind != "header":
                        collector.start(kind)
                        collector.feed(_text(item))
                collector.close()
            elif (pairs := list(_pairs(found))) and collector.is_bare_header:
                collector.found += pairs  # in the place of the header
                collector.clear()
            else:
                self._mapped += pairs


def _split_header(line: str) -> tuple[bool, str]:
    """Return whether a line begins with a header, and what follows that."""
    body = _DECORATION.sub("", line.strip(), count=1)
    header = _HEADER.match(body)
    return header is not None, body if header is None else body[header.end() :]


def _pairs(found: JsonObject) -> Iterator[Raw]:
    """Yield candidates given as an object that maps features to values."""
    reason = next((_text(item) for key, item in found if _kind(key) == "reason"), "")
    for key, item in found:
        if _kind(key) is None and not isinstance(item, (list, JsonObject)):
            value = _text(item)[:LONGEST_FIELD]
            yield Raw(key[:LONGEST_FIELD], value, reason[:LONGEST_FIELD])


def _text(item: object) -> str:
    if isinstance(item, str):
        return item
    if isinstance(item, (list, JsonObject)):
        return "(several values)"
    return "null" if item is None else str(item).lower()


# JSON in a text, whole or in pieces. The depth is more than any answer's, less than Python's limit.
DEEPEST = 16


class JsonObject(tuple[tuple[str, object], ...]):
    """A JSON object with all its keys, also those that occur twice."""


@dataclass(slots=True)
class Piece:
    """The text between two brackets: a JSON value, or the start of an object without an end."""

    bracket: str
    start: int
    end: int = 0
    value: object = None
    height: int = 1
    inner: list[Piece] = field(default_factory=list)


_CLOSES = {"}": "{", "]": "["}
_OUTSIDE = re.compile(r"[{\[]")
# Inside, brackets in strings do not count. A string ends with its line, so that a stray quotation
# mark hides one line and not the rest.
_INSIDE = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"?|[{}\[\]]")


def json_pieces(text: str, cut: bool) -> list[Piece]:
    """Return the JSON values in a text that hold an object, in order, in one pass.

    With ``cut``, an object that was begun last and never ended is among them.
    """
    whole: list[Piece] = []
    stack: list[Piece] = []
    depth = {"{": 0, "[": 0}

    def pop() -> Piece:
        piece = stack.pop()
        depth[piece.bracket] -= 1
        if stack:
            stack[-1].height = max(stack[-1].height, piece.height + 1)
        return piece

    position = 0
    while found := (_INSIDE if stack else _OUTSIDE).search(text, position):
        position = found.end()
        if found[0] in depth:
            stack.append(Piece(found[0], found.start()))
            depth[found[0]] += 1
        elif (bracket := _CLOSES.get(found[0])) and depth[bracket]:
            while stack[-1].bracket != bracket:
                whole += pop().inner
            piece = pop()
            piece.end = position
            if piece.height > DEEPEST:
                whole += piece.inner
            else:
                (stack[-1].inner if stack else whole).append(piece)
    pieces = []
    if cut and stack and stack[-1].bracket == "{" and not stack[-1].inner:
        stack[-1].end = stack[-1].start
        pieces.append(stack[-1])
    while stack:
        whole += pop().inner
    while whole:
        piece = whole.pop()
        piece.value = _loads(text[piece.start : piece.end])
        if piece.value is None:
            whole += piece.inner
        elif any(objects(piece.value)):
            pieces.append(piece)
    return sorted(pieces, key=lambda piece: piece.start)


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
