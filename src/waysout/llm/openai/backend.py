"""One server that speaks OpenAI's chat completions.

Replies are streamed, so that a silent server is known from a slow one and the limits hold while a
reply runs. What a server cannot do is found out on the first real requests and remembered; nothing
is asked only to find out.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace

from waysout.errors import LLMError, LLMFailure, LLMRefused
from waysout.llm.base import Backend, Form, Limits, Reply, Request
from waysout.llm.keys import (
    OPENAI_URL,
    check_key,
    check_url,
    find_key,
    hide_key,
    is_openai,
    key_variable,
)
from waysout.llm.openai.dialect import Capabilities, Dialect
from waysout.llm.openai.replies import ReplyReader, error_details, retry_after
from waysout.llm.openai.transport import (
    HttpResponse,
    PerLoop,
    Transport,
    TransportError,
    open_transport,
)

DEFAULT_LIMITS = Limits()
_WORTH_ANOTHER_TRY = frozenset({408, 409, 425, 429})
_NOT_IMPLEMENTED = 501  # which no other try mends, unlike all that is above 499
_NEGOTIABLE = frozenset({400, 404, 422, _NOT_IMPLEMENTED})
_TOO_LONG = re.compile(r"context.?(?:length|size|window)|maximum context|reduce the length", re.I)
_LONGEST_ERROR = 64 * 1024
_DRAIN_SECONDS = 0.1
_FIRST_SECONDS = 5.0


class OpenAIBackend(Backend):
    """Asks a model behind an OpenAI-style address.

    ``key``: ``None`` looks for one in the environment and the keyring, ``""`` sends none.
    ``stream``: whether replies are asked for piece by piece; all at once costs both sides far less
    time, and then all of a reply must come within ``limits.silence``.
    One backend may be used in several event loops; `aclose` closes the connections of the running
    one.
    """

    notes_sent = True

    def __init__(
        self,
        model: str,
        url: str = OPENAI_URL,
        *,
        limits: Limits = DEFAULT_LIMITS,
        key: str | None = None,
        parallel: int = 16,
        stream: bool = True,
    ) -> None:
        self.model = model
        self.url = check_url(url)
        self.name = f"openai:{model}@{self.url}"
        self.limits = limits
        self.parallel = parallel
        self._given_key = key
        self._key = key or ""
        self._dialect = Dialect.first(is_openai(self.url), stream=stream)
        self._seen: dict[str, bool] = {}
        self._loops = PerLoop(self._connect)

    def __repr__(self) -> str:
        return f"OpenAIBackend({self.model!r}, {self.url!r})"

    @property
    def form(self) -> Form:  # type: ignore[override]
        """A JSON schema, until the server has refused one."""
        return "none" if "json_schema" in self._dialect.refused else "json_schema"

    @property
    def capabilities(self) -> Capabilities:
        """What the server has shown so far that it takes."""
        return self._dialect.capabilities(self._seen)

    async def complete(self, request: Request) -> Reply:
        """Answer one request; see `Backend.complete`.

        The first request with a constraint, and the first without, find out what works; the others
        wait until those have been accepted.
        """
        state = self._loops.get()
        constrained = request.constraint is not None
        accepted = state.accepted.get(constrained)
        if accepted is not None:
            with suppress(TimeoutError):  # a silent server must not make them wait one by one
                async with asyncio.timeout(_FIRST_SECONDS):
                    await accepted.wait()
            return await self._negotiate(state.transport, request, accepted)
        accepted = state.accepted[constrained] = asyncio.Event()
        try:
            return await self._negotiate(state.transport, request, accepted)
        finally:
            accepted.set()

    async def is_up(self, seconds: float) -> bool:
        """Whether a server answers, if only to say that it does not know what we ask.

        A proxy without a server behind it says so with a status of its own.
        """
        try:
            transport = self._loops.get().transport
            async with asyncio.timeout(seconds), transport.send("/models", None) as response:
                return response.status not in (502, 503, 504)
        except (TimeoutError, TransportError, LLMError):
            return False

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        state = self._loops.pop()
        if state is not None:
            await state.transport.aclose()

    def _connect(self) -> _LoopState:
        if self._given_key is None:
            self._key = find_key(self.url) or ""
        elif self._key:
            check_key(self._key, self.url)
        return _LoopState(open_transport(self.url, self._key, self.limits))

    async def _negotiate(
        self, transport: Transport, request: Request, accepted: asyncio.Event
    ) -> Reply:
        """Ask, and leave out what the server refuses: for good only once that has helped."""
        dialect, first = self._dialect, None
        while True:
            try:
                return await self._exchange(transport, request, dialect, accepted)
            except _Refusal as refusal:
                first = first or refusal.error
                if refusal.part is None:
                    raise first from None
                dialect = dialect.without(refusal.part)

    async def _exchange(
        self, transport: Transport, request: Request, dialect: Dialect, accepted: asyncio.Event
    ) -> Reply:
        """Send one HTTP request and read the response, within the limits."""
        started = time.monotonic()
        reader = ReplyReader(request, self.limits.bytes)
        problem: Exception | None = None
        parts = dialect.parts(request)
        body = json.dumps(dialect.body(self.model, request, parts)).encode()
        try:
            async with (
                asyncio.timeout(self.limits.seconds),
                transport.send("/chat/completions", body) as response,
            ):
                await self._check_status(response, dialect, parts)
                self._dialect = self._dialect.learn(dialect, parts)
                accepted.set()
                await self._read(response, reader)
        except TimeoutError:
            problem = LLMFailure(f"no answer in {self.limits.seconds:g} s")
            reader.stop("time")
        except TransportError as error:
            said = self._quoted(str(error))
            problem = LLMFailure(f"the connection to {self.url} failed ({said})")
        # A reply that we cut is a reply, and is charged; a stream that breaks is a failure.
        if problem is not None and not reader.complete:
            raise problem
        if not reader.cut:
            self._seen["stream"] = reader.streamed
            self._seen["stream_usage"] = reader.streamed and bool(reader.usage)
            self._seen["cached_tokens"] = reader.cached_tokens is not None
        reply = reader.reply(time.monotonic() - started, self.model)
        if not self._key:
            return reply
        return replace(reply, text=self._hidden(reply.text), model=self._hidden(reply.model))

    async def _read(self, response: HttpResponse, reader: ReplyReader) -> None:
        kind = response.headers.get("content-type", "").lower()
        if "text/html" in kind:
            raise LLMError(
                f"{self.url} answers with a web page: is it the address of the API (…/v1)?"
            )
        reader.begin(streamed="text/event-stream" in kind)
        while not reader.enough and (piece := await response.read()):
            reader.feed(piece)
        if reader.done:
            # Read what little follows the last event, so that the connection can be used again.
            with suppress(TimeoutError, TransportError):
                async with asyncio.timeout(_DRAIN_SECONDS):
                    while await response.read():
                        pass
        if response.truncated:
            reader.stop("bytes")
        reader.end()
        if reader.error is not None:
            said = self._quoted(error_details(reader.error)[0])
            raise LLMFailure(f"the server broke off: {said}", alive=True)
        if not reader.complete:
            raise LLMFailure("the connection was cut in the middle of the reply", alive=True)

    async def _check_status(
        self, response: HttpResponse, dialect: Dialect, parts: tuple[str, ...]
    ) -> None:
        """Raise the error that a response stands for, if it is no reply."""
        status, headers = response.status, response.headers
        if headers.get("content-encoding", "identity") != "identity":
            # It could unfold to any size.
            raise TransportError("it compresses its answers, though asked not to")
        if 200 <= status < 300:
            return
        text = b""
        while len(text) < _LONGEST_ERROR and (piece := await response.read()):
            text += piece
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            told = text.decode(errors="replace").strip()
        reason, param, code = error_details(told)
        quoted = self._quoted(reason)
        problem = self._problem(response, code, f"{status}: {quoted}" if quoted else str(status))
        if status not in _NEGOTIABLE or _TOO_LONG.search(reason):
            raise problem
        # An unknown model or address is a 404 as well, and far more often.
        part = dialect.blame(parts, param, reason, guess=status != 404)
        raise _Refusal(problem, part)

    def _problem(self, response: HttpResponse, code: str, said: str) -> LLMError:
        status, headers = response.status, response.headers
        if status in (401, 403):
            variable = key_variable(self.url)
            remedy = f"check the key in {variable}" if self._key else f"set {variable}"
            return LLMError(f"{self.url} does not let us in ({said}): {remedy}")
        if status == 404:
            return LLMError(
                f"no model {self.model!r} at {self.url} ({said}): check both, and that the address "
                "ends with the version, such as /v1"
            )
        if "insufficient_quota" in code:
            return LLMError(f"the account at {self.url} has no quota left ({said})")
        if status in _WORTH_ANOTHER_TRY or (status >= 500 and status != _NOT_IMPLEMENTED):
            later = retry_after(headers)
            return LLMFailure(f"the server answers {said}", alive=True, retry_after=later)
        if status < 400:
            # Not followed: a redirect must not decide where a key goes.
            to = self._quoted(headers.get("location", "")) or "nowhere"
            return LLMError(f"{self.url} redirects to {to}: give that address")
        return LLMRefused(f"{self.name} refuses the request ({said})")

    def _hidden(self, text: str) -> str:
        """Take the key out of what a server says: some repeat the request."""
        return hide_key(text, self._key)

    def _quoted(self, text: str) -> str:
        """Return what a server said, fit for a message: without the key, in one short line."""
        text = self._hidden(text)
        line = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
        return line if len(line) <= 200 else f"{line[:199]}…"


@dataclass(eq=False)
class _LoopState:
    """What belongs to one event loop; `accepted` is set once the server took such a request."""

    transport: Transport
    accepted: dict[bool, asyncio.Event] = field(default_factory=dict)


class _Refusal(Exception):
    """The server refuses a request; knows which part of it is to blame, if any is."""

    def __init__(self, error: LLMError, part: str | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.part = part
