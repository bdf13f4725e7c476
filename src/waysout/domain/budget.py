"""Hard limits, and the ledger every call and row goes through.

A reply that came back costs one call, however bad it is; a transport failure costs none and is
counted under ``attempts``. A call is reserved before it is sent, so that calls in flight can never
pass the limit together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from waysout.errors import BudgetSpent, InputError, unknown

# Probing the oracle, scoring the query and asking again for stability are not the method's work.
SETUP_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Budget:
    """What a search may spend. ``None`` is no limit."""

    llm_calls: int | None = 30
    oracle_rows: int | None = 150
    tokens: int | None = None
    money: float | None = None
    seconds: float | None = None
    setup_rows: int = SETUP_ROWS

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is not None and (isinstance(value, bool) or not value >= 0):
                raise InputError(f"budget: {limit.name} must be 0 or more, not {value!r}")


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent, as it stands in results."""

    llm_calls: int = 0
    attempts: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cached_tokens: int = 0
    oracle_rows: int = 0
    setup_rows: int = 0
    money: float = 0.0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, int | float]:
        """Return plain numbers for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Spent:
        """Read what `as_dict` wrote."""
        known = [f.name for f in fields(cls)]
        for name in table:
            if name not in known:
                raise InputError(f"ledger: {unknown('field', name, known)}")
        return cls(**table)


@dataclass
class Ledger:
    """Counts what is spent and refuses what would pass a limit. Safe to share between threads."""

    budget: Budget = field(default_factory=Budget)
    before: Spent = field(default_factory=Spent)  # what an interrupted run had spent already
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {name: n for name, n in self.before.as_dict().items() if name != "seconds"}
        self._calls_in_flight = 0
        self._tokens_in_flight = 0
        self._started = self.clock()

    @property
    def seconds(self) -> float:
        """Time since the search began, earlier sittings included."""
        return self.before.seconds + self.clock() - self._started

    @property
    def spent(self) -> Spent:
        """Return what has been spent so far."""
        with self._lock:
            return Spent.from_dict({**self._counts, "seconds": self.seconds})

    def _left(self, name: str, in_flight: int = 0) -> float:
        limit = getattr(self.budget, name)
        return float("inf") if limit is None else limit - self._counts[name] - in_flight

    @property
    def rows_left(self) -> float:
        """How many candidate rows may still be asked (infinite without a limit)."""
        return self._left("oracle_rows")

    @property
    def calls_left(self) -> float:
        """How many calls may still be sent, those in flight counted as spent."""
        return self._left("llm_calls", self._calls_in_flight)

    def check_deadline(self) -> None:
        """Raise `BudgetSpent` once the time is up."""
        if self.budget.seconds is not None and self.seconds >= self.budget.seconds:
            raise BudgetSpent(f"the deadline of {self.budget.seconds:g} seconds has passed")

    def take_rows(self, count: int) -> None:
        """Spend candidate rows, or raise `BudgetSpent` and spend none."""
        self._take("oracle_rows", count)

    def take_setup_rows(self, count: int) -> None:
        """Spend rows of the small allowance for probing and checking."""
        self._take("setup_rows", count)

    def _take(self, name: str, count: int) -> None:
        with self._lock:
            if count > self._left(name):
                limit = getattr(self.budget, name)
                words = name.replace("_", " ")
                raise BudgetSpent(
                    f"{count} more {words} would pass the limit of {limit} "
                    f"({self._counts[name]} spent)"
                )
            self._counts[name] += count

    def reserve_call(self, most_tokens: int = 0) -> None:
        """Set one call aside before it is sent; ``most_tokens`` is the most it can cost."""
        self.check_deadline()
        with self._lock:
            if self.calls_left < 1:
                raise BudgetSpent(f"all {self.budget.llm_calls} LLM calls are spent or under way")
            used = self._counts["tokens_in"] + self._counts["tokens_out"] + self._tokens_in_flight
            if self.budget.tokens is not None and used + most_tokens > self.budget.tokens:
                raise BudgetSpent(f"a call could pass the limit of {self.budget.tokens} tokens")
            if self.budget.money is not None and self._counts["money"] >= self.budget.money:
                raise BudgetSpent(f"the limit of {self.budget.money:g} in money is reached")
            self._calls_in_flight += 1
            self._tokens_in_flight += most_tokens

    def count_attempt(self) -> None:
        """Count one request that was sent, whether or not a reply comes back."""
        with self._lock:
            self._counts["attempts"] += 1

    def settle_call(
        self,
        *,
        most_tokens: int = 0,
        tokens_in: int = 0,
        tokens_out: int = 0,
        cached_tokens: int = 0,
        money: float = 0.0,
    ) -> None:
        """Charge a reserved call whose reply came back."""
        with self._lock:
            self._end_flight(most_tokens)
            paid = {"llm_calls": 1, "tokens_in": tokens_in, "tokens_out": tokens_out,
                    "cached_tokens": cached_tokens, "money": money}  # fmt: skip
            for name, amount in paid.items():
                self._counts[name] += amount

    def release_call(self, *, most_tokens: int = 0) -> None:
        """Give a reserved call back: no reply came, so nothing is charged."""
        with self._lock:
            self._end_flight(most_tokens)

    def _end_flight(self, most_tokens: int) -> None:
        if self._calls_in_flight < 1:
            raise RuntimeError("a call was settled or released that was never reserved")
        self._calls_in_flight -= 1
        self._tokens_in_flight -= most_tokens
