"""Several servers of one model, used as one backend.

Each request goes to the server with the fewest in flight. One that gives no sign of life is left
out, looked at from time to time, and taken back. The pool retries nothing itself, so that attempts
are counted exactly: `waysout.llm.call` sends a failed request again, to a server that is up.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from waysout.errors import InputError, LLMError, LLMFailure, LLMRefused, LLMUnreachable, shown
from waysout.llm.base import Backend, Form, Limits, Reply, Request
from waysout.llm.connect import connect as connect_any
from waysout.llm.keys import parse_target
from waysout.llm.openai.backend import DEFAULT_LIMITS, OpenAIBackend
from waysout.llm.openai.transport import PerLoop

_PATIENCE = 40.0
"""Seconds without a sign of any server until we give up: the circuit must open within a minute."""
_SHORTEST_REST, _LONGEST_REST = 1.0, 30.0
_LOOK_SECONDS = 3.0


def connect(
    target: str,
    *,
    patience: float | None = None,
    parallel: int = 16,
    seconds: float = DEFAULT_LIMITS.seconds,
    silence: float = DEFAULT_LIMITS.silence,
    stream: str = "yes",
) -> Backend:
    """Return the backend for ``MODEL@URL`` or ``MODEL@URL,URL,…``; nothing is contacted yet."""
    first, *others = target.split(",")
    model, url = parse_target(first)
    if stream not in ("yes", "no"):
        raise InputError(f"stream is yes or no, not {shown(stream)}")
    limits = Limits(seconds=float(seconds), silence=float(silence))
    servers = [
        OpenAIBackend(model, each.strip(), limits=limits, parallel=parallel, stream=stream == "yes")
        for each in (url, *others)
    ]
    if len(servers) == 1 and patience is None:
        return servers[0]
    return ServerPool(servers, patience=_PATIENCE if patience is None else float(patience))


def pooled(llm: str) -> Backend:
    """Return the backend that a connection string names; a server alone is a pool of one.

    A pool survives a restart of its server, and a run can be resumed with another one.
    """
    backend = connect_any(llm)
    return ServerPool([backend]) if isinstance(backend, OpenAIBackend) else backend


class ServerPool(Backend):
    """Asks the least busy of several servers of one model.

    ``patience`` is how long requests wait for the first to come back when all are gone; after that
    they raise `LLMUnreachable`. One pool may be used in several event loops; `aclose` ends what
    it does in the running one.
    """

    notes_sent = True

    def __init__(self, servers: Sequence[OpenAIBackend], *, patience: float = _PATIENCE) -> None:
        models = {server.model for server in servers}
        if len(models) != 1 or len({server.url for server in servers}) != len(servers):
            raise InputError("a pool is made of servers of one model, each named once")
        self.servers = tuple(servers)
        self.patience = patience
        # A run may be resumed with other servers: which one answered is not part of its identity.
        self.name = f"openai:{models.pop()}@*"
        self.parallel = sum(server.parallel for server in servers)
        self._loops = PerLoop(lambda: _PoolState(self.servers, self.patience))

    def __repr__(self) -> str:
        return f"ServerPool({self.name!r}, {[server.url for server in self.servers]})"

    @property
    def form(self) -> Form:  # type: ignore[override]
        """A JSON schema, until every server has refused one.

        The prompt asks for the same, so that one which cannot be held to it may still keep to it.
        """
        return "none" if all(server.form == "none" for server in self.servers) else "json_schema"

    async def complete(self, request: Request) -> Reply:
        """Answer one request; see `Backend.complete`."""
        state = self._loops.get()
        asked = state.now
        server = await state.least_busy()
        sent = state.now
        server.in_flight += 1
        try:
            reply = await server.backend.complete(request)
        except LLMRefused:
            state.answered(server)
            raise
        except LLMFailure as failure:
            raise state.failed(server, failure, asked, sent) from None
        except LLMError as error:
            raise state.misconfigured(server, error) from None
        finally:
            server.in_flight -= 1
        state.answered(server)
        return reply

    async def aclose(self) -> None:
        """Close the connections of the running event loop, and watch no server any more."""
        state = self._loops.pop()
        tasks = [s.watcher for s in state.servers if s.watcher is not None] if state else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in self.servers:
            await server.aclose()


@dataclass(eq=False)
class _Server:
    """One server, as seen from one event loop."""

    backend: OpenAIBackend
    in_flight: int = 0
    failures: int = 0
    """Since its last reply."""
    rests_until: float = float("-inf")
    back_since: float = float("-inf")
    watcher: asyncio.Task[None] | None = None
    """Looks whether it is back; there is one while it is left out."""
    is_misconfigured: bool = False
    """Whether it said last that it cannot answer as it is set up."""

    @property
    def rest(self) -> float:
        """How long to leave it alone, in seconds."""
        growth: int = 2 ** min(self.failures - 1, 10)
        return min(_LONGEST_REST, _SHORTEST_REST * growth)


class _PoolState:
    """Which servers are up, as seen from one event loop."""

    def __init__(self, backends: Sequence[OpenAIBackend], patience: float) -> None:
        self.servers = [_Server(backend) for backend in backends]
        self.patience = patience
        self.loop = asyncio.get_running_loop()
        self.last_heard = float("-inf")
        self.silent_since = float("-inf")
        """Since when no server answered though asked; without meaning while one is up."""
        self.last_failure = ""
        self.one_is_back = asyncio.Event()
        self.has_answered = False

    @property
    def now(self) -> float:
        return self.loop.time()

    @property
    def up(self) -> list[_Server]:
        return [server for server in self.servers if server.watcher is None]

    async def least_busy(self) -> _Server:
        """Return the least busy server; where none is up, wait for the first to come back."""
        while not (up := self.up):
            if self._patience_left <= 0:
                raise self._unreachable()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience_left):
                    await self.one_is_back.wait()
        rested = [server for server in up if server.rests_until <= self.now]
        server = min(rested or up, key=lambda server: server.in_flight)
        # The last in the list: of equally busy servers the one that was used longest ago is next.
        self.servers.remove(server)
        self.servers.append(server)
        return server

    @property
    def _patience_left(self) -> float:
        return self.silent_since + self.patience - self.now

    def _unreachable(self) -> LLMUnreachable:
        count = len(self.servers)
        who = self.servers[0].backend.url if count == 1 else f"{count} servers"
        return LLMUnreachable(
            f"no sign of life from {who} for {self.patience:g} s: {self.last_failure}"
        )

    def answered(self, server: _Server) -> None:
        """Note that a server has answered a request."""
        self.has_answered = True
        self._sign_of_life()
        server.failures, server.is_misconfigured = 0, False

    def failed(self, server: _Server, failure: LLMFailure, asked: float, sent: float) -> LLMError:
        """Note a failure, and return the error to raise."""
        if failure.alive:
            self._sign_of_life()
            if server.rests_until <= self.now:  # others that are in flight there fail alike
                server.failures += 1
                asks = failure.retry_after
                server.rests_until = self.now + (server.rest if asks is None else asks)
        elif sent >= server.back_since:  # else it hung on a connection from before it came back
            self.last_failure = str(failure)
            if server.watcher is None:
                server.failures += 1
                self._leave_out(server, server.rest)
                if not self.up:
                    self.silent_since = max(sent, self.last_heard)
        if not self.up and self._patience_left <= 0:
            return self._unreachable()
        others = [other for other in self.up if other is not server]
        alive = failure.alive or bool(others) or self.last_heard >= asked
        # With another server to ask there is nothing to wait for.
        ready = any(other.rests_until <= self.now for other in others)
        later = None if ready else failure.retry_after
        return LLMFailure(str(failure), alive=alive, retry_after=later)

    def misconfigured(self, server: _Server, error: LLMError) -> LLMError:
        """Leave out a server that cannot answer as it is set up, if there are others that do."""
        self._sign_of_life()
        others = [other for other in self.servers if other is not server]
        if not self.has_answered or all(other.is_misconfigured for other in others):
            return error
        if not server.is_misconfigured:
            server.is_misconfigured = True
            warnings.warn(f"continuing with the other servers: {error}", stacklevel=2)
        self._leave_out(server, _LONGEST_REST)
        return LLMFailure(str(error), alive=True)

    def _sign_of_life(self) -> None:
        self.last_heard = self.silent_since = self.now

    def _leave_out(self, server: _Server, rest: float) -> None:
        async def watch(rest: float) -> None:
            while True:
                await asyncio.sleep(rest)
                if await server.backend.is_up(_LOOK_SECONDS):
                    break
                rest = min(_LONGEST_REST, 2 * rest)
            self._sign_of_life()
            server.back_since = self.now
            server.watcher = None
            self.one_is_back.set()

        if server.watcher is None:
            self.one_is_back.clear()
            server.watcher = self.loop.create_task(watch(rest))
