"""Calls that are paid for, retried and given up: one layer for every backend.

A reply that came back costs one call, however bad it is; a failure costs none. Every request that
was sent is counted as an attempt, where it is sent (`note_sent`). Before a call is sent, the most
it can cost is reserved, so that no number of calls in flight can pass a limit.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from waysout.domain.budget import Ledger
from waysout.errors import BudgetSpent, InputError, LLMFailure, LLMUnreachable, shown
from waysout.llm.base import Backend, Reply, Request, Usage, counting


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a call is tried, and how long to wait in between.

    Waits double from ``first_wait``, each shortened at random so that clients do not come back in
    step. A server that asks for a longer one gets it, up to ``longest_asked``; beyond that the call
    is given up.
    """

    attempts: int = 4
    first_wait: float = 0.5
    longest_wait: float = 20.0
    longest_asked: float = 60.0

    def wait(self, failures: int, chance: float, asked: float | None = None) -> float:
        """Return the seconds to wait after some failures; ``chance`` is between 0 and 1.

        >>> Retry().wait(1, 1.0), Retry().wait(3, 1.0), Retry().wait(3, 0.0), Retry().wait(1, 0, 7)
        (0.5, 2.0, 1.0, 7.0)
        """
        backoff: float = min(self.longest_wait, self.first_wait * 2 ** (failures - 1))
        return max(backoff * (0.5 + chance / 2), (asked or 0.0) * (1 + chance / 10))


class Breaker:
    """A circuit breaker: gives a dead server up, so that a run ends instead of waiting for ever.

    The circuit opens when a call has failed for good, or nothing was heard for ``patience``
    seconds, and no other call is waiting for a reply or got one meanwhile: one prompt that a server
    chokes on must not end the run of the others. Where several calls met that silence, it is the
    server's, though more may be waiting: there is always one where many are sent. While it is open
    nothing is sent; after ``rest`` seconds one call may try. An answer such as 429 is a sign of
    life.
    """

    def __init__(
        self,
        patience: float = 45.0,
        rest: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.patience = patience
        self.rest = rest
        self.clock = clock
        self.waiting = 0
        """The number of attempts in flight."""
        self._last_reply = self._last_heard = float("-inf")
        self._unheard: set[float] = set()  # calls, by their beginnings, that met silence since
        self._opened: float | None = None
        self._trying = False
        self._reason = ""

    def admit(self) -> bool:
        """Allow a call, or raise `LLMUnreachable`; true for the one that tries after a rest."""
        if self._opened is None:
            return False
        if self._trying or self.clock() - self._opened < self.rest:
            raise LLMUnreachable(self._reason)
        self._trying = True
        return True

    def leave(self, tried: bool) -> None:
        """Note that a call has ended; ``tried`` is what `admit` said."""
        if tried:
            self._trying = False

    def check(self) -> None:
        """Raise `LLMUnreachable` if the circuit was opened while a call was waiting."""
        if self._opened is not None and not self._trying:
            raise LLMUnreachable(self._reason)

    def answered(self) -> None:
        """Note that a reply came."""
        self._last_reply = self._last_heard = self.clock()
        self._unheard.clear()
        self._opened = None

    def failed(self, began: float, failure: LLMFailure, reason: str) -> None:
        """Note a failed attempt of a call that began at ``began``."""
        now = self.clock()
        if failure.alive:
            self._last_heard = now
            self._unheard.clear()
        if now - max(began, self._last_heard) >= self.patience:
            self._unheard.add(began)
            if len(self._unheard) > 1 or not self.waiting:
                self._open(reason)

    def gave_up(self, began: float, reason: str) -> None:
        """Note a call that failed for good."""
        if self._last_reply < began and not self.waiting:
            self._open(reason)

    def _open(self, reason: str) -> None:
        self._opened = self.clock()
        self._reason = reason
        raise LLMUnreachable(reason)


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs per million tokens, in any currency; cached input may be cheaper."""

    tokens_in: float
    tokens_out: float
    cached: float | None = None

    @classmethod
    def parse(cls, text: str) -> Price:
        """Read ``IN/OUT`` or ``IN/OUT/CACHED``.

        >>> Price.parse("0.15/0.6")
        Price(tokens_in=0.15, tokens_out=0.6, cached=None)
        """
        try:
            parts = [float(part) for part in text.split("/")]
        except ValueError:
            parts = []
        if len(parts) not in (2, 3) or not all(0 <= part < 1e9 for part in parts):
            raise InputError(
                f"a price is IN/OUT or IN/OUT/CACHED per million tokens, such as 0.15/0.60, "
                f"not {shown(text)}"
            )
        return cls(*parts)

    def of(self, usage: Usage) -> float:
        """Return what a reply cost."""
        cached = self.tokens_in if self.cached is None else self.cached
        computed = max(0, usage.tokens_in - usage.cached_tokens)
        paid = computed * self.tokens_in + usage.cached_tokens * cached
        return (paid + usage.tokens_out * self.tokens_out) / 1e6

    def most(self, request: Request) -> float:
        """Return the most a request can cost."""
        dearest = max(self.tokens_in, self.cached or 0.0)
        return (request.most_tokens_in * dearest + request.max_tokens * self.tokens_out) / 1e6


def _counted_already() -> None:
    pass


class Caller:
    """Sends requests to a backend: within the budget, with retries, charged to the ledger.

    Share one between all searches that share a backend: they learn together that it is gone.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        retry: Retry | None = None,
        breaker: Breaker | None = None,
        price: Price | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] | None = None,
    ) -> None:
        self.backend = backend
        self.retry = retry or Retry()
        self.breaker = breaker or Breaker()
        self.price = price
        self._sleep = sleep
        self._chance = chance or random.Random(0).random

    async def call(self, request: Request, ledger: Ledger) -> Reply:
        """Return the reply to a request, paid for in the ledger.

        Raises `BudgetSpent` before anything is sent that could pass a limit, `LLMFailure` where
        this call failed for good, and `LLMUnreachable` where nothing answers any more.
        """
        if ledger.budget.money is not None and self.price is None:
            raise InputError(
                f"a limit in money needs the prices of {self.backend.name}: give them per million "
                "tokens, as IN/OUT or IN/OUT/CACHED"
            )
        tried = self.breaker.admit()
        try:
            most_money = self.price.most(request) if self.price else 0.0
            # One token per byte: the only bound that holds for every tokenizer.
            most_tokens = request.most_tokens_in + request.max_tokens
            reserved = ledger.reserve_call(most_tokens, most_money)
            try:
                reply = await self._with_retries(request, ledger)
            except BaseException:
                reserved.release()
                raise
        finally:
            self.breaker.leave(tried)
        # A backend that does not count would never spend anything: it is charged the most.
        usage = reply.usage if reply.usage.counted else request.most_usage(reply.text)
        reserved.settle(
            tokens_in=usage.tokens_in,
            tokens_out=usage.tokens_out,
            cached_tokens=usage.cached_tokens,
            money=self.price.of(usage) if self.price else 0.0,
        )
        return replace(reply, usage=usage)

    async def _with_retries(self, request: Request, ledger: Ledger) -> Reply:
        began = self.breaker.clock()
        for failures in range(1, self.retry.attempts + 1):
            self.breaker.check()
            ledger.check_deadline()
            count = ledger.count_attempt
            if not self.backend.notes_sent:
                count()
                count = _counted_already
            left = ledger.seconds_left
            self.breaker.waiting += 1
            try:
                async with asyncio.timeout(None if left == float("inf") else left):
                    with counting(count):
                        reply = await self.backend.complete(request)
            except TimeoutError:
                ledger.check_deadline()
                failure = LLMFailure("no reply in time")
            except LLMFailure as error:
                failure = error
            else:
                self.breaker.answered()
                return reply
            finally:
                self.breaker.waiting -= 1
            reason = f"{self.backend.name} does not answer: {failure}"
            if failure.retry_after:
                reason += f"; it asks to come back in {failure.retry_after:g} s"
            self.breaker.failed(began, failure, reason)
            too_long = (failure.retry_after or 0.0) > self.retry.longest_asked
            if failures == self.retry.attempts or too_long:
                break
            wait = self.retry.wait(failures, self._chance(), failure.retry_after)
            if wait >= ledger.seconds_left:
                raise BudgetSpent(
                    f"the deadline of {ledger.budget.seconds:g} seconds comes before the LLM can "
                    f"be asked again ({failure})"
                )
            await self._sleep(wait)
        self.breaker.gave_up(began, reason)
        raise LLMFailure(reason, retry_after=failure.retry_after)
