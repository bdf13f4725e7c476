"""Any server that speaks OpenAI's chat completions: vLLM, SGLang, llama.cpp, Ollama, a cloud.

Replies are streamed, so that silence is told from slowness and the caps hold while a reply runs.
What a server cannot do is found out on the first real requests and remembered; nothing is asked
only to find out.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from waysout.errors import InputError, LLMError, LLMFailure, LLMRefused, shown
from waysout.llm.base import Backend, Constraint, Form, Limits, Reply, Request
from waysout.llm.keys import (
    OPENAI_URL,
    check_key,
    check_url,
    find_key,
    is_openai,
    key_variable,
    parse_target,
)
from waysout.llm.openai.dialect import Capabilities, Dialect, first_dialect
from waysout.llm.openai.replies import Reading, retry_after, says
from waysout.llm.openai.wire import HttpAnswer, NoConnection, Silence, Wire, WireError, new_wire

__all__ = ["Capabilities", "OpenAIBackend", "connect"]

_USUAL = Limits()
_WORTH_ANOTHER_TRY = frozenset({408, 409, 425, 429})
_NEGOTIABLE = frozenset({400, 404, 422, 501})
_TOO_LONG = re.compile(r"context.?(?:length|size|window)|maximum context|reduce the length", re.I)
_LONGEST_COMPLAINT = 64 * 1024
_DRAIN_SECONDS = 0.1
_HEAR_SECONDS = 5.0


def connect(
    target: str,
    *,
    parallel: int = 16,
    seconds: float = _USUAL.seconds,
    silence: float = _USUAL.silence,
    stream: str = "yes",
) -> OpenAIBackend:
    """Return the backend for ``MODEL@URL``; nothing is contacted yet."""
    model, url = parse_target(target)
    if stream not in ("yes", "no"):
        raise InputError(f"stream is yes or no, not {shown(stream)}")
    limits = replace(_USUAL, seconds=float(seconds), silence=float(silence))
    streamed = stream == "yes"
    return OpenAIBackend(model, url, limits=limits, parallel=parallel, stream=streamed)


class OpenAIBackend(Backend):
    """Asks a model behind an OpenAI-style address.

    ``key``: ``None`` looks for one in the environment and the keyring, ``""`` sends none.
    ``stream``: whether replies are asked for piece by piece; all at once costs both sides far less
    time, and then all of a reply must come within ``limits.silence``.
    Requests that wait at the same moment and differ in nothing but their draw share one HTTP
    request where the server can do that. One backend may be used in several event loops; `aclose`
    closes the connections of the running one.
    """

    def __init__(
        self,
        model: str,
        url: str = OPENAI_URL,
        *,
        limits: Limits = _USUAL,
        key: str | None = None,
        parallel: int = 16,
        stream: bool = True,
    ) -> None:
        self.model = model
        self.url = check_url(url)
        self.name = f"openai:{model}@{self.url}"
        self.limits = limits
        self.parallel = parallel
        self.stream = stream
        self._given_key = key
        self._key = key or ""
        self._dialect: Dialect | None = None
        self._seen: dict[str, bool] = {}
        self._wires: dict[asyncio.AbstractEventLoop, _Wire] = {}

    def __repr__(self) -> str:
        return f"OpenAIBackend({self.model!r}, {self.url!r})"

    @property
    def form(self) -> Form:  # type: ignore[override]
        """A JSON schema, until the server has refused one."""
        return "none" if "json_schema" in self._spoken.refused else "json_schema"

    @property
    def capabilities(self) -> Capabilities:
        """What the server has shown so far that it takes."""
        return self._spoken.capabilities(self._seen)

    @property
    def _spoken(self) -> Dialect:
        if self._dialect is None:
            self._dialect = first_dialect(is_openai(self.url), stream=self.stream)
        return self._dialect

    async def complete(self, request: Request) -> Reply:
        """Answer one request; see `Backend.complete`."""
        wire = self._wire()
        group = wire.group_of(request)
        if group.task is None:
            group.task = asyncio.create_task(self._answer(wire, group))
        return await group.reply_to(request)

    async def is_there(self, seconds: float) -> bool:
        """Whether a server answers, if only to say that it does not know what we ask.

        A proxy that stands in front of nobody says so with a status of its own.
        """
        try:
            async with asyncio.timeout(seconds), self._wire().to.ask("/models", None) as answer:
                return answer.status not in (502, 503, 504)
        except (TimeoutError, WireError, LLMError):
            return False

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        wire = self._wires.pop(asyncio.get_running_loop(), None)
        if wire is not None:
            await wire.to.aclose()

    def _wire(self) -> _Wire:
        loop = asyncio.get_running_loop()
        for old in [*self._wires]:  # a copy: another thread may have its own loop here
            if old.is_closed():
                self._wires.pop(old, None)
        if loop not in self._wires:
            self._wires[loop] = self._connect()
        return self._wires[loop]

    def _connect(self) -> _Wire:
        if self._given_key is None:
            self._key = find_key(self.url) or ""
        elif self._key:
            check_key(self._key, self.url)
        return _Wire(new_wire(self.url, self._key, self.limits))

    async def _answer(self, wire: _Wire, group: _Group) -> list[Reply | BaseException]:
        """Answer all who ask the same: together where the server can, the rest one by one."""
        await asyncio.sleep(0)  # whoever asks the same at this moment joins
        wire.close(group)
        if len(group.members) == 1:
            return [(await self._ask(wire, group.members[0], 1))[0]]
        order = sorted(range(len(group.members)), key=lambda i: group.members[i].draw)
        asked = [group.members[i] for i in order]
        together: list[Reply] = []
        # The likeliest reply several times over is something that servers refuse to give.
        if asked[0].temperature > 0 and "n" not in self._spoken.refused:
            together = await self._ask(wire, asked[0], len(asked))
        alone = (self._ask(wire, request, 1) for request in asked[len(together) :])
        singly = await asyncio.gather(*alone, return_exceptions=True)
        answers = [*together, *(a if isinstance(a, BaseException) else a[0] for a in singly)]
        return [answers[order.index(i)] for i in range(len(order))]

    async def _ask(self, wire: _Wire, request: Request, n: int) -> list[Reply]:
        """Ask once the first request of this shape was heard: that one finds out what works."""
        shape = (request.constraint is not None, n > 1)
        if shape in wire.heard:
            with suppress(TimeoutError):  # a silent server must not make them wait one by one
                async with asyncio.timeout(_HEAR_SECONDS):
                    await wire.heard[shape].wait()
            return await self._negotiate(wire, request, n)
        heard = wire.heard[shape] = asyncio.Event()
        try:
            return await self._negotiate(wire, request, n, heard)
        finally:
            heard.set()

    async def _negotiate(
        self, wire: _Wire, request: Request, n: int, heard: asyncio.Event | None = None
    ) -> list[Reply]:
        """Ask, and leave out what the server refuses; fewer than ``n`` replies: it cannot do that.

        A part is left out for good only once that has helped.
        """
        dialect, first = self._spoken, None
        while True:
            asked = _Asked(request, n, dialect, dialect.parts(request, n), heard)
            try:
                return await self._exchange(wire, asked)
            except _Refusal as error:
                refusal = error
            first = first or refusal
            part = refusal.part
            if part is None:
                raise first.error
            if part == "n":
                self._dialect = self._spoken.without("n")
                return []
            dialect = dialect.without(part)

    async def _exchange(self, wire: _Wire, asked: _Asked) -> list[Reply]:
        """Send one HTTP request and read the answer, within the limits."""
        started = time.monotonic()
        reading = Reading(asked.request, asked.n, self.limits.bytes)
        problem: Exception | None = None
        body = asked.dialect.body(self.model, asked.request, asked.n, asked.parts)
        try:
            async with (
                asyncio.timeout(self.limits.seconds),
                wire.to.ask("/chat/completions", json.dumps(body).encode()) as answer,
            ):
                await self._check_status(answer, asked)
                self._heard(asked)
                await self._read(answer, reading)
        except TimeoutError:
            problem = LLMFailure(f"no answer in {self.limits.seconds:g} s")
            reading.stop("time")
        except WireError as error:
            problem = self._explained(error)
        if problem is not None and not reading.complete:
            raise problem
        self._note(asked, reading)
        replies = reading.replies(time.monotonic() - started, self.model)
        return [self._without_key(reply) for reply in replies]

    async def _read(self, answer: HttpAnswer, reading: Reading) -> None:
        kind = answer.headers.get("content-type", "").lower()
        if "text/html" in kind:
            raise LLMError(
                f"{self.url} answers with a web page: is it the address of the API (…/v1)?"
            )
        reading.begin(streamed="text/event-stream" in kind)
        while not reading.enough and (piece := await answer.more()):
            reading.feed(piece)
        if reading.done:
            await _let_end(answer)
        if answer.cut:
            reading.stop("bytes")
        reading.end()
        if reading.error is not None:
            said = self._quiet(says(reading.error)[0])
            raise LLMFailure(f"the server broke off: {said}", alive=True)
        if not reading.complete:
            raise LLMFailure("the connection was cut in the middle of the reply", alive=True)

    def _heard(self, asked: _Asked) -> None:
        spoken = self._spoken
        if not (spoken.taken.issuperset(asked.parts) and asked.dialect is spoken):
            self._dialect = spoken.learn(asked.dialect, asked.parts)
        if asked.heard is not None:
            asked.heard.set()

    def _note(self, asked: _Asked, reading: Reading) -> None:
        if reading.cut:
            return
        self._seen["stream"] = reading.streamed
        self._seen["stream_usage"] = reading.streamed and bool(reading.usage)
        self._seen["cached_tokens"] = reading.cached is not None
        if len(reading.choices) < asked.n:
            self._dialect = self._spoken.without("n")

    def _explained(self, error: WireError) -> LLMFailure:
        if isinstance(error, NoConnection):
            return LLMFailure(f"no connection to {self.url} in {self.limits.connect:g} s")
        if isinstance(error, Silence):
            return LLMFailure(f"no sign of life for {self.limits.silence:g} s")
        return LLMFailure(f"the connection to {self.url} failed ({self._quiet(str(error))})")

    async def _check_status(self, answer: HttpAnswer, asked: _Asked) -> None:
        """Raise what a server's answer means that is no reply."""
        if answer.headers.get("content-encoding", "identity") != "identity":
            # It could unfold to any size.
            raise WireError("it compresses its answers, though asked not to")
        if 200 <= answer.status < 300:
            return
        reason, param, code = says(await _complaint(answer))
        problem = self._problem(answer.status, code, self._quiet(reason), answer.headers)
        if answer.status not in _NEGOTIABLE or _TOO_LONG.search(reason):
            raise problem
        # An unknown model or address is a 404 as well, and far more often.
        guess = answer.status != 404
        raise _Refusal(problem, asked.dialect.blame(asked.parts, param, reason, guess=guess))

    def _problem(self, status: int, code: str, reason: str, headers: Mapping[str, str]) -> LLMError:
        said = f"{status}: {reason}" if reason else str(status)
        variable = key_variable(self.url)
        if status in (401, 403):
            remedy = f"check the key in {variable}" if self._key else f"set {variable}"
            return LLMError(f"{self.url} does not let us in ({said}): {remedy}")
        if status == 404:
            return LLMError(
                f"no model {self.model!r} at {self.url} ({said}): check both, and that the address "
                "ends with the version, such as /v1"
            )
        if "insufficient_quota" in code:
            return LLMError(f"the account at {self.url} has no quota left ({said})")
        if status in _WORTH_ANOTHER_TRY or status >= 500:
            later = retry_after(headers)
            return LLMFailure(f"the server answers {said}", alive=True, retry_after=later)
        if status < 400:
            to = self._quiet(headers.get("location", ""))
            return LLMError(f"{self.url} sends us on to {to or 'nowhere'}: give that address")
        return LLMRefused(f"{self.name} refuses the request ({said})")

    def _hidden(self, text: str) -> str:
        """Take the key out of what a server says: some repeat the request."""
        return text.replace(self._key, "***") if self._key else text

    def _without_key(self, reply: Reply) -> Reply:
        if not self._key:
            return reply
        return replace(reply, text=self._hidden(reply.text), model=self._hidden(reply.model))

    def _quiet(self, text: str) -> str:
        """Return what a server said, fit for a message: without the key, in one short line."""
        text = self._hidden(text)
        line = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
        return line if len(line) <= 200 else f"{line[:199]}…"


@dataclass(frozen=True, slots=True)
class _Asked:
    """One HTTP request: what is asked, how often, how, and who waits to learn that it works."""

    request: Request
    n: int
    dialect: Dialect
    parts: tuple[str, ...]
    heard: asyncio.Event | None


@dataclass(eq=False)
class _Group:
    """Requests that differ in nothing but their draw, and the task that answers them all."""

    alike: Hashable
    holds: Constraint | None
    members: list[Request] = field(default_factory=list)
    waiting: int = 0
    abandoned: bool = False
    task: asyncio.Task[list[Reply | BaseException]] | None = None

    async def reply_to(self, request: Request) -> Reply:
        """Join, and wait; who is cancelled leaves the others be, and the last one ends the work."""
        assert self.task is not None
        place = len(self.members)
        self.members.append(request)
        self.waiting += 1
        try:
            answer = (await asyncio.shield(self.task))[place]
        finally:
            self.waiting -= 1
            if not self.waiting and not self.task.done():
                self.abandoned = True
                self.task.cancel()
        if isinstance(answer, BaseException):
            raise answer
        return answer


@dataclass(eq=False)
class _Wire:
    """What belongs to one event loop: the connections, and who waits for what."""

    to: Wire
    groups: dict[Hashable, _Group] = field(default_factory=dict)
    heard: dict[tuple[bool, bool], asyncio.Event] = field(default_factory=dict)

    def group_of(self, request: Request) -> _Group:
        """Return those who ask the same at this moment, or a new group."""
        # A digest of everything would cost more than sending the request.
        alike = (request.messages, request.k, request.temperature, request.seed, request.max_tokens)
        group = self.groups.get(alike)
        joins = group and not group.abandoned and group.holds == request.constraint
        if group is None or not joins:
            group = self.groups[alike] = _Group(alike, request.constraint)
        return group

    def close(self, group: _Group) -> None:
        """Let nobody join any more."""
        if self.groups.get(group.alike) is group:
            del self.groups[group.alike]


class _Refusal(Exception):
    """The server refuses a request; knows which part of it is to blame, if any is."""

    def __init__(self, error: LLMError, part: str | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.part = part


async def _let_end(answer: HttpAnswer) -> None:
    """Read what little follows the last event, so that the connection can be used again."""
    with suppress(TimeoutError, WireError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while await answer.more():
                pass


async def _complaint(answer: HttpAnswer) -> object:
    """Return the body of an answer that is no reply, as JSON where it is."""
    text = b""
    while len(text) < _LONGEST_COMPLAINT and (piece := await answer.more()):
        text += piece
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.decode(errors="replace").strip()
