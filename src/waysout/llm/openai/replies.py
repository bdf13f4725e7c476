"""Read what an OpenAI-style server answers: a stream of events, or one JSON object.

Nothing here trusts the server: every field may be missing or of another type, and text beyond the
limit is dropped as it arrives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from waysout.errors import shown
from waysout.llm.base import Finish, Reply, Request, Usage

_FINISHES: Mapping[str, Finish] = {"length": "length", "content_filter": "filtered"}


@dataclass
class ReplyReader:
    """Collects the reply to a request from the pieces of a response, up to ``max_bytes``."""

    request: Request
    max_bytes: int
    streamed: bool = False
    usage: Mapping[str, Any] = field(default_factory=dict)
    error: object = None
    done: bool = False
    cut: Finish | None = None
    """Why we did not read it to its end."""

    def __post_init__(self) -> None:
        self._rest = bytearray()
        self._begun = self._has_choice = False
        self._pieces: list[str] = []
        self.unseen = 0  # bytes of reasoning, which cost tokens but are not part of the reply
        self._finish = self._model = ""
        self._room = self.max_bytes

    def begin(self, *, streamed: bool) -> None:
        """Note that a response has begun, and in which form."""
        self._begun = True
        self.streamed = streamed

    def feed(self, chunk: bytes) -> None:
        """Take the next piece of the response."""
        self._rest += chunk
        if self.streamed and b"\n" in chunk:
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                self._line(bytes(line))

    def end(self) -> None:
        """Note that the response has ended."""
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
        self.add_event(_json(body))
        if not self._has_choice and self.error is None:
            self._add({"content": body.decode(errors="replace")})

    def stop(self, why: Finish) -> None:
        """Cut the response here: the text so far is the reply, if a response has begun at all."""
        if self.done or not self._begun:
            return
        self.done = True
        if not self.streamed:
            self._add({"content": bytes(self._rest).decode(errors="replace")})
        self.cut = self.cut or (None if self._finish else why)

    @property
    def enough(self) -> bool:
        """Whether reading on would bring nothing that is kept."""
        return self.error is not None or self.done or self.cut is not None

    @property
    def complete(self) -> bool:
        """Whether there is a reply: the response came to its end, or was cut by us."""
        over = self.done or self.cut is not None or self._finish != ""
        return self.error is None and over

    @property
    def cached_tokens(self) -> int | None:
        """How much of the prompt the server had in its cache; ``None``: it does not tell."""
        details = self.usage.get("prompt_tokens_details")
        told = details.get("cached_tokens") if isinstance(details, dict) else None
        return _count(self.usage.get("prompt_cache_hit_tokens") if told is None else told)

    def reply(self, latency: float, model: str) -> Reply:
        """Return the reply; a refusal is a reply like any other."""
        # Join the halves of characters that came in two pieces; replace those that stayed alone.
        halves = "".join(self._pieces).encode("utf-16", "surrogatepass")
        text = halves.decode("utf-16", "replace")
        tokens_in = _count(self.usage.get("prompt_tokens"))
        tokens_out = _count(self.usage.get("completion_tokens"))
        wrote = bool(text or self.unseen)
        if not tokens_in or tokens_out is None or (wrote and not tokens_out):
            usage = self.request.most_usage(text, self.unseen)
        else:
            usage = Usage(tokens_in, tokens_out, min(self.cached_tokens or 0, tokens_in))
        name = "".join(c for c in self._model[:200] if c.isprintable())
        finish = self.cut or _FINISHES.get(self._finish, "stop")
        return Reply(text, usage, latency, finish, name or model)

    def _line(self, line: bytes) -> None:
        line = line.strip()
        if self.done or not line.startswith(b"data:"):
            return
        if line[5:].strip() == b"[DONE]":
            self.done = True
        else:
            self.add_event(_json(line[5:]))

    def add_event(self, event: object) -> None:
        """Take one event of a stream, as JSON has it."""
        if not isinstance(event, dict):
            return
        if event.get("error"):
            self.error = event["error"]
        self._model = _text(event.get("model")) or self._model
        self.usage = event["usage"] if isinstance(event.get("usage"), dict) else self.usage
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                said = choice.get("delta") or choice.get("message")
                self._add(said if isinstance(said, dict) else {})
                self._finish = _text(choice.get("finish_reason")) or self._finish

    def _add(self, delta: Mapping[str, Any]) -> None:
        """Take the next piece of text; what does not fit is dropped, and nothing kept after it."""
        self._has_choice = True
        thought = _text(delta.get("reasoning_content")) or _text(delta.get("reasoning"))
        self.unseen += len(_bytes(thought))
        if self.cut is None:
            piece = _text(delta.get("content")) or _text(delta.get("refusal"))
            data = _bytes(piece)
            fits = len(data) <= self._room
            self._pieces.append(piece if fits else data[: self._room].decode("utf-8", "ignore"))
            self.cut = None if fits else "bytes"
            self._room -= len(data)


def error_details(body: object) -> tuple[str, str, str]:
    """Return the message, the parameter and the code in an error, whatever its form."""
    while True:  # some wrap it several times
        if isinstance(body, list) and len(body) == 1:
            body = body[0]
        elif isinstance(body, dict) and isinstance(body.get("error"), dict):
            body = body["error"]
        else:
            break
    if not isinstance(body, dict):
        return _told(body), "", ""
    message = body.get("message") or body.get("detail") or body.get("error") or body
    code = f"{_told(body.get('code', ''))} {_told(body.get('type', ''))}"
    return _told(message), _told(body.get("param") or ""), code


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds a server asks us to wait, given in any of the three usual ways."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        told = headers.get(name, "").strip()
        if re.fullmatch(
            r"[0-9]{1,15}(\.[0-9]{1,15})?", told
        ):  # `float` takes much more for a number
            return float(told) * unit
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


def _told(value: object) -> str:
    """Return what a server says as text; it may be nested deeper than Python can write."""
    try:
        return value if isinstance(value, str) else json.dumps(value)
    except RecursionError:
        return shown(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**53 else None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
