"""Several servers of one model, asked as if they were one.

Each request goes to the server with the fewest under way. One that gives no sign of life leaves, is
looked at from time to time, and comes back. The pool tries nothing again by itself: a request that
fails is an attempt, and `waysout.llm.call` puts it again, to a server that is still there.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from waysout.errors import InputError, LLMError, LLMFailure, LLMRefused, LLMUnreachable
from waysout.llm import connect as connecting
from waysout.llm.base import Backend, Form, Reply, Request
from waysout.llm.keys import check_url, parse_target
from waysout.llm.openai import backend as openai
from waysout.llm.openai.backend import OpenAIBackend

_PATIENCE = 40.0
"""Seconds without a sign of any server until we give up: the circuit must open within a minute."""
_SHORTEST_REST, _LONGEST_REST = 1.0, 30.0
_LOOK_SECONDS = 3.0


def connect(target: str, *, patience: float | None = None, **options: float | str) -> Backend:
    """Return the backend for ``MODEL@URL`` or ``MODEL@URL,URL,…``; nothing is contacted yet."""
    first, *others = target.split(",")
    model, _ = parse_target(first)
    targets = [first, *(f"{model}@{check_url(url.strip())}" for url in others)]
    servers = [openai.connect(server, **options) for server in targets]  # type: ignore[arg-type]
    if len(servers) == 1 and patience is None:
        return servers[0]
    return ServerPool(servers, patience=_PATIENCE if patience is None else float(patience))


def pooled(llm: str) -> Backend:
    """Return the backend that a connection string names; a server alone is a pool of one.

    A pool outlives a restart of its server, and its runs may go on with another one.
    """
    backend = connecting.connect(llm)
    return ServerPool([backend]) if isinstance(backend, OpenAIBackend) else backend


class ServerPool(Backend):
    """Asks the least busy of several servers of one model.

    ``patience`` is how long requests wait for the first to come back when all are gone; after that
    they raise `LLMUnreachable`. One pool may be used in several event loops; `aclose` ends what
    it does in the running one.
    """

    def __init__(self, servers: Sequence[OpenAIBackend], *, patience: float = _PATIENCE) -> None:
        models = {server.model for server in servers}
        if len(models) != 1 or len({server.url for server in servers}) != len(servers):
            raise InputError("a pool is made of servers of one model, each named once")
        self.servers = tuple(servers)
        self.patience = patience
        # A run may be resumed with other servers: who answered is no part of its identity.
        self.name = f"openai:{models.pop()}@*"
        self.parallel = sum(server.parallel for server in servers)
        self._boards: dict[asyncio.AbstractEventLoop, _Board] = {}

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
        board = self._board()
        handed_in = board.now
        seat = await board.free_seat()
        sent = board.now
        seat.under_way += 1
        try:
            reply = await seat.server.complete(request)
        except LLMRefused:
            board.heard(seat)
            raise
        except LLMFailure as failure:
            raise board.failed(seat, failure, handed_in, sent) from None
        except LLMError as error:
            raise board.set_up_wrongly(seat, error) from None
        finally:
            seat.under_way -= 1
        board.heard(seat)
        return reply

    async def aclose(self) -> None:
        """Close the connections of the running event loop, and look at nobody any more."""
        board = self._boards.pop(asyncio.get_running_loop(), None)
        if board is not None:
            await board.aclose()
        for server in self.servers:
            await server.aclose()

    def _board(self) -> _Board:
        loop = asyncio.get_running_loop()
        for old in [*self._boards]:  # a copy: another thread may have its own loop here
            if old.is_closed():
                self._boards.pop(old, None)
        if loop not in self._boards:
            seats = [_Seat(server) for server in self.servers]
            self._boards[loop] = _Board(seats, self.patience, loop)
        return self._boards[loop]


@dataclass(eq=False)
class _Seat:
    """One server, as it stands with one event loop."""

    server: OpenAIBackend
    under_way: int = 0
    turn: int = 0
    troubles: int = 0
    """How often it let us down since its last reply."""
    rests_until: float = float("-inf")
    back_since: float = float("-inf")
    look_out: asyncio.Task[None] | None = None
    """Looks whether it is back; there is one while it is out."""
    barred: bool = False
    """Whether it said last that it cannot answer as it is set up."""

    @property
    def rest(self) -> float:
        """How long to leave it alone."""
        growth: int = 2 ** min(self.troubles - 1, 10)
        return min(_LONGEST_REST, _SHORTEST_REST * growth)


@dataclass(eq=False)
class _Board:
    """Who is there, as seen from one event loop."""

    seats: Sequence[_Seat]
    patience: float
    loop: asyncio.AbstractEventLoop
    answered: bool = False
    last_heard: float = float("-inf")
    silent_since: float = float("-inf")
    """Since when nobody was heard though asked; of no meaning while anybody is there."""
    last_failure: str = ""
    somebody_back: asyncio.Event = field(default_factory=asyncio.Event)
    turns: int = 0

    @property
    def now(self) -> float:
        return self.loop.time()

    @property
    def there(self) -> list[_Seat]:
        return [seat for seat in self.seats if seat.look_out is None]

    async def free_seat(self) -> _Seat:
        """Return the least busy server; where all are out, wait for the first to come back."""
        while not (there := self.there):
            await self._wait()
        rested = [seat for seat in there if seat.rests_until <= self.now]
        seat = min(rested or there, key=lambda seat: (seat.under_way, seat.turn))
        self.turns += 1
        seat.turn = self.turns
        return seat

    async def _wait(self) -> None:
        left = self._patience_left
        if left <= 0:
            raise self._unreachable()
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self.somebody_back.wait()

    @property
    def _patience_left(self) -> float:
        return self.silent_since + self.patience - self.now

    def _unreachable(self) -> LLMUnreachable:
        who = self.seats[0].server.url if len(self.seats) == 1 else f"{len(self.seats)} servers"
        return LLMUnreachable(
            f"no sign of life from {who}, and {self.patience:g} s are enough: {self.last_failure}"
        )

    def heard(self, seat: _Seat) -> None:
        """Note that a server has answered a request."""
        self.answered = True
        self._sign_of_life()
        seat.troubles, seat.barred = 0, False

    def failed(self, seat: _Seat, failure: LLMFailure, handed_in: float, sent: float) -> LLMError:
        """Note a failure, and return what the one who asked is told."""
        if failure.alive:
            self._sign_of_life()
            self._let_rest(seat, failure.retry_after)
        elif sent >= seat.back_since:  # else it hung on a connection from before it came back
            self.last_failure = str(failure)
            self._lost(seat, sent)
        if not self.there and self._patience_left <= 0:
            return self._unreachable()
        others = [other for other in self.there if other is not seat]
        alive = failure.alive or bool(others) or self.last_heard >= handed_in
        # With somebody else to ask there is nothing to wait for.
        ready = any(other.rests_until <= self.now for other in others)
        later = None if ready else failure.retry_after
        return LLMFailure(str(failure), alive=alive, retry_after=later)

    def set_up_wrongly(self, seat: _Seat, error: LLMError) -> LLMError:
        """Let a server go that cannot answer as it is set up, if there are others that do."""
        self._sign_of_life()
        if not self.answered or all(other is seat or other.barred for other in self.seats):
            return error
        if not seat.barred:
            seat.barred = True
            warnings.warn(f"the other servers go on alone: {error}", stacklevel=2)
        self._let_go(seat, _LONGEST_REST)
        return LLMFailure(str(error), alive=True)

    def _let_rest(self, seat: _Seat, asked: float | None) -> None:
        if seat.rests_until <= self.now:  # those that were under way with it fail alike
            seat.troubles += 1
            seat.rests_until = self.now + (seat.rest if asked is None else asked)

    def _lost(self, seat: _Seat, sent: float) -> None:
        if seat.look_out is None:
            seat.troubles += 1
            self._let_go(seat, seat.rest)
            if not self.there:
                self.silent_since = max(sent, self.last_heard)

    def _sign_of_life(self) -> None:
        self.last_heard = self.silent_since = self.now

    def _let_go(self, seat: _Seat, rest: float) -> None:
        if seat.look_out is None:
            self.somebody_back.clear()
            seat.look_out = self.loop.create_task(self._look_out_for(seat, rest))

    async def _look_out_for(self, seat: _Seat, rest: float) -> None:
        while True:
            await asyncio.sleep(rest)
            if await seat.server.is_there(_LOOK_SECONDS):
                break
            rest = min(_LONGEST_REST, 2 * rest)
        self._sign_of_life()
        seat.back_since = self.now
        seat.look_out = None
        self.somebody_back.set()

    async def aclose(self) -> None:
        """Look at nobody any more."""
        tasks = [seat.look_out for seat in self.seats if seat.look_out is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
