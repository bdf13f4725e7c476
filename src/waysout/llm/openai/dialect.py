"""The body of a request to an OpenAI-style server, and what to leave out when it refuses a part.

Servers agree on the messages and differ in the rest. We send every part, leave out the one that a
server refuses, and remember that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from waysout.llm.base import Request

_LIMITS = frozenset({"max_tokens", "max_completion_tokens"})
_FORMAT = "response_format|json_schema|json_object|guided|grammar|structured.?output"
_LIMIT = "max_(?:completion_)?tokens"
# The optional parts, and how servers name one that they refuse. Without a hint which was meant
# they are left out in this order: first those that cost the least and are refused most.
_PARTS = {
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
    stream: bool | None = None
    stream_usage: bool | None = None
    cached_tokens: bool | None = None
    max_tokens_name: str | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """Which parts a server refused and which it took."""

    refused: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()

    @classmethod
    def first(cls, openai: bool, *, stream: bool = True) -> Dialect:
        """Return what to begin with.

        Small servers ignore ``max_completion_tokens`` in silence, and then nothing bounds a reply;
        OpenAI's own models refuse ``max_tokens``, and some of them the length of a text in a
        schema.
        """
        refused = {"max_tokens", "max_length"} if openai else set()
        return cls(frozenset(refused if stream else refused | {"stream"}))

    def parts(self, request: Request) -> tuple[str, ...]:
        """Return the optional parts of a request that this server gets."""
        left_out = set(self.refused)
        if request.constraint is None or request.constraint.json_schema is None:
            left_out |= {"json_schema", "json_object"}
        for rivals in (("json_schema", "json_object"), ("max_tokens", "max_completion_tokens")):
            if rivals[0] not in left_out:
                left_out.add(rivals[1])
        if "json_schema" in left_out:
            left_out.add("max_length")
        if "stream" in left_out:
            left_out.add("stream_options")
        return tuple(part for part in _PARTS if part not in left_out)

    def body(self, model: str, request: Request, parts: tuple[str, ...]) -> dict[str, Any]:
        """Return the body of a request with these parts, as JSON has it."""
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        }
        if "json_schema" in parts and request.constraint:
            schema: Any = request.constraint.json_schema
            schema = schema if "max_length" in parts else _without_lengths(schema)
            named = {"name": "candidates", "strict": True, "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        elif "json_object" in parts:
            body["response_format"] = {"type": "json_object"}
        values = {
            "stream_options": {"include_usage": True},
            "seed": request.sampling_seed,
            "max_tokens": request.max_tokens,
            "max_completion_tokens": request.max_tokens,
            "temperature": request.temperature,
            "stream": True,
        }
        return body | {part: value for part, value in values.items() if part in parts}

    def without(self, part: str) -> Dialect:
        """Return the dialect that leaves a part out."""
        return Dialect(self.refused | {part}, self.taken - {part})

    def learn(self, tried: Dialect, parts: tuple[str, ...]) -> Dialect:
        """Take over what a request showed that was answered with these parts."""
        if tried is self and self.taken.issuperset(parts):
            return self
        refused = self.refused | tried.refused
        return Dialect(refused, (self.taken | set(parts)) - refused)

    def blame(self, parts: tuple[str, ...], param: str, message: str, *, guess: bool) -> str | None:
        """Return the part that a refusal is about: the one it names, else the next to try.

        What this server took before is not to blame unless it is named. The last way to limit a
        reply's length is never left out: without one a reply could cost anything.
        """
        parts = tuple(p for p in parts if p not in _LIMITS or not self.refused & _LIMITS)
        for text in (f"'{param}'" if param else "", message):
            found = {part: re.search(_PARTS[part], text, re.IGNORECASE) for part in parts}
            at = {part: match.start() for part, match in found.items() if match}
            if at:
                return min(at, key=lambda part: at[part])
        untried = [part for part in parts if part not in self.taken]
        return untried[0] if guess and untried else None

    def capabilities(self, seen: Mapping[str, bool]) -> Capabilities:
        """Return what is known of the server; ``seen`` is what its replies showed."""
        names = {f.name for f in fields(Capabilities)}
        told = {p: p in self.taken for p in (self.taken | self.refused) & names}
        limits = [p for p in ("max_tokens", "max_completion_tokens") if p in self.taken]
        known: dict[str, Any] = {**told, **seen}
        return Capabilities(**known, max_tokens_name=limits[0] if limits else None)


def _without_lengths(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        return {k: _without_lengths(v) for k, v in schema.items() if k != "maxLength"}
    return [_without_lengths(item) for item in schema] if isinstance(schema, list) else schema
