"""What an OpenAI-style server answers, read as it comes: a stream of events, or one JSON object.

Nothing here trusts the server: every field may be missing or of another type, and text beyond the
cap is dropped as it arrives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

from waysout.llm.base import Finish, Reply, Request, Usage

_FINISHES: Mapping[str, Finish] = {"length": "length", "content_filter": "filtered"}


@dataclass(slots=True)
class Choice:
    """One of the replies to a request, as far as it has come."""

    room: int
    pieces: list[str] = field(default_factory=list)
    unseen: int = 0  # bytes of reasoning, which cost tokens but are no part of the reply
    finish: str = ""
    cut: Finish | None = None

    def add(self, delta: Mapping[str, Any]) -> None:
        """Take in the next piece; what does not fit is dropped, and nothing is kept after it."""
        thought = _text(delta.get("reasoning_content")) or _text(delta.get("reasoning"))
        self.unseen += _size(thought)
        self._keep(_text(delta.get("content")) or _text(delta.get("refusal")))

    def _keep(self, piece: str) -> None:
        if self.cut is None:
            size = _size(piece)
            self.pieces.append(_within(piece, self.room))
            self.cut = "bytes" if size > self.room else None
            self.room -= size

    @property
    def over(self) -> bool:
        """Whether nothing more of this one is to come."""
        return self.cut is not None or self.finish != ""

    @property
    def text(self) -> str:
        """What was said; a refusal is a reply like any other."""
        return _repaired("".join(self.pieces))


@dataclass
class Reading:
    """One answer of a server to a request for ``n`` choices, taken in piece by piece."""

    request: Request
    n: int
    cap: int
    streamed: bool = False
    choices: dict[int, Choice] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    error: object = None
    done: bool = False

    def __post_init__(self) -> None:
        self._rest = bytearray()
        self._begun = False

    def begin(self, *, streamed: bool) -> None:
        """Take note that an answer has begun, and in which form."""
        self._begun = True
        self.streamed = streamed

    def feed(self, chunk: bytes) -> None:
        """Take in what has arrived."""
        self._rest += chunk
        if self.streamed and b"\n" in chunk:
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                self._line(bytes(line))

    def end(self) -> None:
        """Take note that no more will arrive."""
        if self.done:
            return
        body = bytes(self._rest)
        # Some servers stream under another name, and some that were asked to stream do not.
        if self.streamed or body.lstrip().startswith((b"data:", b"event:", b":")):
            self.streamed = True
            for line in body.split(b"\n"):
                self._line(line)
            return
        self.done = True
        self._event(_json(body))
        if not self.choices and self.error is None:
            self._choice(0).add({"content": body.decode(errors="replace")})

    def stop(self, why: Finish) -> None:
        """Cut the answer here: what has come so far is the reply, if an answer has begun at all."""
        if self.done or not self._begun:
            return
        self.done = True
        if not self.streamed:
            self._choice(0).add({"content": bytes(self._rest).decode(errors="replace")})
        for choice in [self._choice(0), *self.choices.values()]:
            choice.cut = choice.cut or (None if choice.over else why)

    @property
    def cut(self) -> bool:
        """Whether we did not let it end."""
        return any(choice.cut for choice in self.choices.values())

    @property
    def enough(self) -> bool:
        """Whether reading on would bring nothing that is kept."""
        return self.error is not None or self.done or (self.cut and self._all_over)

    @property
    def complete(self) -> bool:
        """Whether there is a reply: the answer came to its end, or was cut by us."""
        return self.error is None and (self.done or self._all_over)

    @property
    def _all_over(self) -> bool:
        return len(self.choices) == self.n and all(c.over for c in self.choices.values())

    def replies(self, latency: float, model: str) -> list[Reply]:
        """Return the replies that came, in the order of their choices: at least one."""
        self._choice(0)
        choices = [self.choices[index] for index in sorted(self.choices)]
        name = _printable(self.model, 200) or model
        return [
            Reply(c.text, usage, latency, c.cut or _FINISHES.get(c.finish, "stop"), name)
            for c, usage in zip(choices, self._usages(choices), strict=True)
        ]

    def _usages(self, choices: list[Choice]) -> list[Usage]:
        """Share out what the server counted for all choices together."""
        tokens_in = _count(self.usage.get("prompt_tokens"))
        tokens_out = _count(self.usage.get("completion_tokens"))
        wrote = any(c.text or c.unseen for c in choices)
        if not tokens_in or tokens_out is None or (wrote and not tokens_out):
            return [self.request.most_usage(c.text, c.unseen) for c in choices]
        counts = (tokens_in, tokens_out, min(self.cached or 0, tokens_in))
        shares = zip(*(_shared(count, len(choices)) for count in counts), strict=True)
        return [Usage(*share) for share in shares]

    @property
    def cached(self) -> int | None:
        """How much of the prompt the server had in its cache; ``None``: it does not tell."""
        details = self.usage.get("prompt_tokens_details")
        told = details.get("cached_tokens") if isinstance(details, dict) else None
        told = self.usage.get("prompt_cache_hit_tokens") if told is None else told
        return _count(told)

    def _line(self, line: bytes) -> None:
        line = line.strip()
        if self.done or not line.startswith(b"data:"):
            return
        if line[5:].strip() == b"[DONE]":
            self.done = True
        else:
            self._event(_json(line[5:]))

    def _event(self, event: object) -> None:
        if not isinstance(event, dict):
            return
        if event.get("error"):
            self.error = event["error"]
        self.model = _text(event.get("model")) or self.model
        self.usage = event["usage"] if isinstance(event.get("usage"), dict) else self.usage
        choices = event.get("choices")
        for part in choices if isinstance(choices, list) else ():
            if isinstance(part, dict):
                self._take(part)

    def _take(self, part: Mapping[str, Any]) -> None:
        index = _count(part.get("index", 0))
        if index is None or index >= self.n:
            return
        choice = self._choice(index)
        said = part.get("delta") or part.get("message")
        choice.add(said if isinstance(said, dict) else {})
        choice.finish = _text(part.get("finish_reason")) or choice.finish

    def _choice(self, index: int) -> Choice:
        if index not in self.choices:
            self.choices[index] = Choice(self.cap)
        return self.choices[index]


def says(body: object) -> tuple[str, str, str]:
    """Return the message, the parameter and the code in an error, whatever its form."""
    if isinstance(body, list) and len(body) == 1:
        return says(body[0])
    if not isinstance(body, dict):
        return (body if isinstance(body, str) else json.dumps(body)), "", ""
    if isinstance(body.get("error"), dict):
        return says(body["error"])
    message = body.get("message") or body.get("detail") or body.get("error") or body
    text = message if isinstance(message, str) else json.dumps(message)
    code = f"{body.get('code', '')} {body.get('type', '')}"
    return text, str(body.get("param") or ""), code


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds a server asks us to wait, given in any of the three usual ways."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with suppress(ValueError):
            seconds = float(headers.get(name, "")) * unit
            return seconds if isfinite(seconds) and seconds >= 0 else None
    with suppress(ValueError, TypeError, OverflowError):
        when = parsedate_to_datetime(headers.get("retry-after", ""))
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        return max(0.0, (when - datetime.now(UTC)).total_seconds())
    return None


def _json(text: bytes) -> object:
    try:
        return json.loads(text.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _shared(total: int, among: int) -> list[int]:
    each, left = divmod(total, among)
    return [each + (i < left) for i in range(among)]


def _count(value: object) -> int | None:
    sound = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if isinstance(value, int) and sound else None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(_bytes(text))


def _within(text: str, most: int) -> str:
    """Return as much of the beginning of a text as fits into so many bytes.

    >>> _within("añb", 2), _within("añb", 3)
    ('a', 'añ')
    """
    return text if _size(text) <= most else _bytes(text)[:most].decode("utf-8", "ignore")


def _repaired(text: str) -> str:
    """Join the halves of characters that came in two pieces; replace those that stayed alone.

    >>> _repaired("\\ud83d\\ude42 \\ud83d")
    '🙂 �'
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _printable(text: str, most: int) -> str:
    return "".join(c for c in text[:most] if c.isprintable())
