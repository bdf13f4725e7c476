"""The protocol of every LLM backend: a request goes in, a reply comes out.

A backend is one asynchronous method. It never retries, never charges and never sees an oracle:
`waysout.llm.call` does the first two, for all of them alike.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, get_args

from waysout.errors import InputError, shown

Role = Literal["system", "user", "assistant"]
Finish = Literal["stop", "length", "bytes", "time", "filtered"]
Form = Literal["grammar", "json_schema", "none"]

FINISHES: tuple[str, ...] = get_args(Finish)

# Tokens that a chat template may add to a prompt, and to each message.
_TEMPLATE_TOKENS = 64
_MESSAGE_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of the conversation.

    >>> from waysout.llm import Message
    >>> Message("user", "What could change?").role
    'user'
    """

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Constraint:
    """The form of a reply, for a backend that can hold the model to it.

    ``grammar`` is GBNF. A backend uses the form it knows; what comes back is validated anyway.
    """

    grammar: str = ""
    json_schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Editable:
    """A feature that a reply may edit, as plain text and numbers.

    It is spelled as the prompt spells it. ``choices`` are the values it may be set to; where there
    are none it is a number between ``low`` and ``high``, with at most ``decimals`` decimals
    (``None``: any), on the grid of ``step`` from ``start`` if there is one, and none of ``never``.
    ``now`` is its value.
    """

    name: str
    now: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    step: float | None = None
    start: float = 0.0
    decimals: int | None = None
    never: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One question to an LLM.

    ``draw`` tells repeated questions apart: the same prompt asked a second time has the draw 1, and
    another random seed. ``menu`` is what may be edited, for backends without a model; a real LLM
    reads it in the prompt.

    >>> from waysout.llm import Message, Request
    >>> request = Request((Message("user", "What could change?"),), max_tokens=64)
    >>> request.temperature, request.max_tokens, request.prompt_bytes
    (0.7, 64, 18)
    """

    messages: tuple[Message, ...]
    k: int = 5
    temperature: float = 0.7
    seed: int = 0
    max_tokens: int = 512
    constraint: Constraint | None = None
    draw: int = 0
    menu: tuple[Editable, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("k", 1), ("seed", 0), ("max_tokens", 1), ("draw", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(
                    f"{name} is a whole number of at least {least}, not {shown(value)}"
                )
        number = isinstance(self.temperature, (int, float))
        if not (number and 0.0 <= self.temperature <= 5.0):
            raise InputError(f"temperature is a number from 0 to 5, not {shown(self.temperature)}")
        if not self.messages:
            raise InputError("a request needs at least one message")

    @property
    def sampling_seed(self) -> int:
        """The seed of this draw: 31 bits, which every server takes."""
        return int(_digest([self.seed, self.draw])[:8], 16) & 0x7FFFFFFF

    @property
    def prompt_bytes(self) -> int:
        """The length of the prompt in bytes."""
        return sum(len(m.content.encode(errors="replace")) for m in self.messages)

    @property
    def most_tokens_in(self) -> int:
        """Maximum number of tokens in the prompt, for any tokenizer and chat template.

        A token is at least one byte, so this is a bound, and a generous one.
        """
        schema = self.constraint.json_schema if self.constraint else None
        asked = len(json.dumps(schema)) if schema else 0
        template = _TEMPLATE_TOKENS + _MESSAGE_TOKENS * len(self.messages)
        return self.prompt_bytes + asked + template

    def most_usage(self, text: str, unseen: int = 0) -> Usage:
        """Return an upper bound on the usage of a reply whose tokens were not counted.

        ``unseen`` are bytes that were written and are no part of the text, such as reasoning.
        """
        written = len(text.encode(errors="replace")) + unseen
        return Usage(self.most_tokens_in, min(written, self.max_tokens), estimated=True)

    def key(self, model: str) -> str:
        """Return a hash that identifies this request to this model (for recordings).

        The menu is left out: it is in the prompt already.
        """
        parts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "menu"}
        parts["messages"] = [[m.role, m.content] for m in self.messages]
        parts["temperature"] = float(self.temperature)
        held = self.constraint
        schema = held and held.json_schema and dict(held.json_schema)
        parts["constraint"] = held and {"grammar": held.grammar, "json_schema": schema}
        return _digest([model, parts])


def _digest(parts: object) -> str:
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one reply.

    ``cached_tokens`` is the part of ``tokens_in`` that was not computed again. ``estimated`` means
    that the server did not count, and that the figures are upper bounds.

    >>> from waysout.llm import Usage
    >>> Usage(tokens_in=310, tokens_out=24).counted, Usage().counted
    (True, False)
    """

    tokens_in: int = 0
    tokens_out: int = 0
    cached_tokens: int = 0
    estimated: bool = False

    @property
    def counted(self) -> bool:
        """Whether the tokens were counted at all: no prompt is without tokens."""
        return self.tokens_in > 0


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request. ``finish`` says why it ended: by itself, or at one of our limits.

    >>> from waysout.llm import Reply, Usage
    >>> Reply("hello", Usage(tokens_in=12, tokens_out=1)).finish
    'stop'
    """

    text: str
    usage: Usage = field(default_factory=Usage)
    latency: float = 0.0
    finish: Finish = "stop"
    model: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how large one reply may be.

    No sign of life for ``silence`` seconds is a failure. A reply that goes on beyond ``seconds`` or
    ``bytes`` is cut there and counts as a reply.
    """

    connect: float = 10.0
    silence: float = 50.0
    seconds: float = 300.0
    bytes: int = 64 * 1024


_SENT: ContextVar[Callable[[], None]] = ContextVar("sent", default=lambda: None)


def note_sent() -> None:
    """Count a request that is being sent to a server, for whoever asked for it (see `counting`)."""
    _SENT.get()()


def counter() -> Callable[[], None]:
    """Return what `note_sent` calls here, to be called from elsewhere."""
    return _SENT.get()


@contextmanager
def counting(count: Callable[[], None]) -> Iterator[None]:
    """Have ``count`` called for each request that is sent within the block."""
    before = _SENT.set(count)
    try:
        yield
    finally:
        _SENT.reset(before)


class Backend(ABC):
    """Answers requests. One of your own goes to `find` as ``llm=``; `check_backend` tries it.

    >>> import waysout
    >>> from waysout.llm import Backend, Reply
    >>> class Mine(Backend):
    ...     name = "mine"
    ...     async def complete(self, request):
    ...         return Reply("FEATURE=income\\nVALUE=50000\\nREASONING=a better paid job")
    >>> waysout.check_backend(Mine())  # silence: it keeps the protocol
    """

    name: str
    """The name under which recordings are filed: for example ``simulated:7``."""

    form: Form = "none"
    """How this backend can be held to a format; the prompt asks for the same one."""

    parallel: int = 1
    """The number of requests that are worth having in flight at once."""

    notes_sent: bool = False
    """Whether it calls `note_sent` for each request that it sends, which may be several for one
    call or none; otherwise each call counts as one."""

    @abstractmethod
    async def complete(self, request: Request) -> Reply:
        """Answer one request.

        Raise `LLMFailure` where no reply came and another attempt may help, and another `LLMError`
        where none will.
        """

    async def aclose(self) -> None:  # noqa: B027 - most backends hold nothing
        """Close connections and unload models."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
