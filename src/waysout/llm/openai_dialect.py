"""What an OpenAI-style server is asked, and how to ask for less when it refuses a part.

Servers agree on the messages and differ in the rest. We send every part, leave out the one that a
server refuses, and remember that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from waysout.llm.base import Request

# Without a hint which part was meant they are left out in this order: those that cost the least to
# lose, and that servers refuse most, first.
PARTS = ("n", "max_length", "json_schema", "json_object", "stream_options", "seed", "max_tokens",
         "max_completion_tokens", "temperature", "stream")  # fmt: skip

_LIMITS = frozenset({"max_tokens", "max_completion_tokens"})

_FORMAT = "response_format|json_schema|json_object|guided|grammar|structured.?output"
_LIMIT = "max_(?:completion_)?tokens"
_NAMES = {
    "n": r"['\"`]n['\"`]|\bn\s*[=<>!]|\bn must\b|(?:only|just|exactly) one (?:choice|completion)",
    "max_length": "maxLength",
    "json_schema": _FORMAT,
    "json_object": _FORMAT,
    "stream_options": "stream_options|include_usage",
    "seed": r"\bseed\b",
    "max_tokens": _LIMIT,
    "max_completion_tokens": _LIMIT,
    "temperature": "temperature",
    "stream": r"\bstream(?:ing)?\b",
}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a server takes, as far as it was asked (``None``: not yet known).

    ``json_schema``, ``seed`` and the like say that it did not refuse them; whether it obeys is
    another matter, so replies are validated all the same.
    """

    json_schema: bool | None = None
    json_object: bool | None = None
    seed: bool | None = None
    temperature: bool | None = None
    n: bool | None = None
    stream: bool | None = None
    stream_usage: bool | None = None
    cached_tokens: bool | None = None
    max_tokens_name: str | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """Which parts a server refused and which it took."""

    refused: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()

    def parts(self, request: Request, n: int = 1) -> tuple[str, ...]:
        """Return the optional parts of a request that this server gets."""
        wanted = {"seed", "temperature", "stream", "stream_options"} | ({"n"} if n > 1 else set())
        formats = ("json_schema", "json_object") if _schema(request) is not None else ()
        for rivals in (formats, ("max_tokens", "max_completion_tokens")):
            wanted |= set([part for part in rivals if part not in self.refused][:1])
        schema = _schema(request)
        if "json_schema" in wanted and _without_lengths(schema) != schema:
            wanted.add("max_length")
        wanted -= self.refused
        if "stream" not in wanted:
            wanted.discard("stream_options")
        return tuple(part for part in PARTS if part in wanted)

    def body(self, model: str, request: Request, n: int = 1) -> dict[str, Any]:
        """Return the body of a request, as JSON has it."""
        messages = [{"role": m.role, "content": m.content} for m in request.messages]
        body: dict[str, Any] = {"model": model, "messages": messages}
        parts = self.parts(request, n)
        for part in parts:
            body |= _fragment(part, request, n, lengths="max_length" in parts)
        return body

    def without(self, part: str) -> Dialect:
        """Return the dialect that leaves a part out."""
        return replace(self, refused=self.refused | {part})

    def learn(self, tried: Dialect, parts: tuple[str, ...]) -> Dialect:
        """Take over what a request showed that was answered with these parts."""
        refused = self.refused | tried.refused
        return Dialect(refused, (self.taken | set(parts)) - refused)

    def blame(self, parts: tuple[str, ...], param: str, message: str, *, guess: bool) -> str | None:
        """Return the part that a refusal is about: the one it names, else the next to try.

        What this server took before is not to blame unless it is named. The last way to limit a
        reply's length is never left out: without one a reply could cost anything.
        """
        parts = tuple(p for p in parts if p not in _LIMITS or not self.refused & _LIMITS)
        for text in (f"'{param}'" if param else "", message):
            found = {part: re.search(_NAMES[part], text, re.IGNORECASE) for part in parts}
            at = {part: match.start() for part, match in found.items() if match}
            if at:
                return min(at, key=lambda part: at[part])
        untried = [part for part in parts if part not in self.taken]
        return untried[0] if guess and untried else None

    def capabilities(self, seen: Mapping[str, bool]) -> Capabilities:
        """Sum up; ``seen`` is what replies showed."""
        names = {f.name for f in fields(Capabilities)}
        told = {p: p in self.taken for p in (self.taken | self.refused) & names}
        limits = [p for p in ("max_tokens", "max_completion_tokens") if p in self.taken]
        known: dict[str, Any] = {**told, **seen}
        return Capabilities(**known, max_tokens_name=limits[0] if limits else None)


def first_dialect(openai: bool) -> Dialect:
    """Return what to begin with.

    Small servers ignore ``max_completion_tokens`` in silence, and then nothing bounds a reply;
    OpenAI's own models refuse ``max_tokens``, and some of them the length of a text in a schema.
    """
    return Dialect(frozenset({"max_tokens", "max_length"} if openai else ()))


def _schema(request: Request) -> Mapping[str, Any] | None:
    return request.constraint.json_schema if request.constraint else None


def _without_lengths(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        return {k: _without_lengths(v) for k, v in schema.items() if k != "maxLength"}
    return [_without_lengths(item) for item in schema] if isinstance(schema, list) else schema


def _fragment(part: str, request: Request, n: int, *, lengths: bool) -> dict[str, Any]:
    wanted = _schema(request) if lengths else _without_lengths(_schema(request))
    schema = {"name": "candidates", "strict": True, "schema": wanted}
    fragments: dict[str, dict[str, Any]] = {
        "n": {"n": n},
        "max_length": {},  # within the schema
        "json_schema": {"response_format": {"type": "json_schema", "json_schema": schema}},
        "json_object": {"response_format": {"type": "json_object"}},
        "stream_options": {"stream_options": {"include_usage": True}},
        "seed": {"seed": request.sampling_seed},
        "max_tokens": {"max_tokens": request.max_tokens},
        "max_completion_tokens": {"max_completion_tokens": request.max_tokens},
        "temperature": {"temperature": request.temperature},
        "stream": {"stream": True},
    }
    return fragments[part]
