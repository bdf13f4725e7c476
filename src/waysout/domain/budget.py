"""Hard limits, and the ledger every call and row goes through.

A reply that came back costs one call, however bad it is; a transport failure costs none. Every
request that was sent is counted under ``attempts``. A call is reserved before it is sent, so that
calls in flight can never pass the limit together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from waysout.errors import BudgetSpent, InputError, unknown

# Trying the model, scoring the query and asking again are not the method's work.
SETUP_ROWS = 60


@dataclass(frozen=True, slots=True)
class Budget:
    """What a search may spend. ``None`` means no limit.

    ``setup_rows`` are on top of ``oracle_rows``. Most of them (`probe_rows`) try the model, once
    for all people of a run; the others (`own_setup_rows`) are each person's own. `find` makes a
    budget of its keywords; whoever asks a model or an LLM by hand gives one to a `Ledger`.

    >>> import waysout
    >>> waysout.Budget(llm_calls=0, oracle_rows=100, seconds=60)
    Budget(llm_calls=0, oracle_rows=100, tokens=None, money=None, seconds=60, setup_rows=60)
    """

    llm_calls: int | None = 30
    oracle_rows: int | None = 150
    tokens: int | None = None
    money: float | None = None
    seconds: float | None = None
    setup_rows: int = SETUP_ROWS

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
            whole = "" if name in ("money", "seconds") else "whole "
            if value is not None and not (_is_count(value) if whole else number):
                raise InputError(f"budget: {name} is a {whole}number of 0 or more, not {value!r}")

    @property
    def probe_rows(self) -> int:
        """How many of the set-up rows may try the model, once for all people of a run."""
        return self.setup_rows * 4 // 5

    @property
    def own_setup_rows(self) -> int:
        """How many of the set-up rows each person has: to be scored, and for asking again."""
        return self.setup_rows - self.probe_rows

    @property
    def again_rows(self) -> int:
        """How many of their own may go into asking again what was found.

        The others are for the row itself, and for checks that a resumed run has the same model.
        """
        return self.own_setup_rows * 2 // 3


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent, as results report it."""

    llm_calls: int = 0
    attempts: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cached_tokens: int = 0
    oracle_rows: int = 0
    setup_rows: int = 0
    money: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        """Return the sum of both.

        >>> Spent(llm_calls=1, seconds=2.0) + Spent(llm_calls=2)
        Spent(llm_calls=3, attempts=0, tokens_in=0, tokens_out=0, cached_tokens=0, oracle_rows=0, \
setup_rows=0, money=0.0, seconds=2.0)
        """
        mine, others = self.as_dict(), other.as_dict()
        return Spent.from_dict({name: mine[name] + others[name] for name in mine})

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
            if isinstance(table[name], bool) or not isinstance(table[name], (int, float)):
                raise InputError(f"ledger: {name} is a number, not {table[name]!r}")
        return cls(**table)


@dataclass(eq=False)
class Ledger:
    """Counts what is spent and refuses what would pass a limit. Safe to share between threads.

    >>> import waysout
    >>> ledger = waysout.Ledger(waysout.Budget(oracle_rows=100))
    >>> ledger.take_rows(60)
    >>> ledger.rows_left, ledger.spent.oracle_rows
    (40, 60)
    >>> ledger.take_rows(60)
    Traceback (most recent call last):
    waysout.errors.BudgetSpent: 60 more oracle rows would pass the limit of 100 (60 spent)
    """

    budget: Budget = field(default_factory=Budget)
    before: Spent = field(default_factory=Spent)  # what an interrupted run had spent already
    clock: Callable[[], float] = time.monotonic
    # Told of each attempt before it is sent, and how many calls are under way with it.
    attempted: Callable[[Spent, int], object] = lambda spent, calls: None
    added: Callable[[int], object] = lambda rows: None  # told of set-up rows beyond the allowance

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {name: n for name, n in self.before.as_dict().items() if name != "seconds"}
        self._in_flight: set[Reservation] = set()
        self._started = self.clock()

    @property
    def seconds(self) -> float:
        """Time since the search began, earlier sessions included, less what was given back."""
        return self.before.seconds + self.clock() - self._started

    @property
    def spent(self) -> Spent:
        """Return what has been spent so far."""
        with self._lock:
            return self._spent()

    def _spent(self) -> Spent:
        return Spent.from_dict({**self._counts, "seconds": self.seconds})

    def _left(self, name: str) -> float:
        limit = getattr(self.budget, name)
        return float("inf") if limit is None else limit - self._counts[name]

    @property
    def rows_left(self) -> float:
        """How many candidate rows may still be asked (infinite without a limit)."""
        return self._left("oracle_rows")

    @property
    def setup_rows_left(self) -> float:
        """How many rows of the allowance for probing and checking are left."""
        return self._left("setup_rows")

    @property
    def calls_left(self) -> float:
        """How many calls may still be sent, those in flight counted as spent."""
        return self._left("llm_calls") - len(self._in_flight)

    @property
    def seconds_left(self) -> float:
        """How much time is left (infinite without a limit)."""
        limit = self.budget.seconds
        return float("inf") if limit is None else max(0.0, limit - self.seconds)

    def check_deadline(self) -> None:
        """Raise `BudgetSpent` once the time is up."""
        if self.budget.seconds is not None and self.seconds >= self.budget.seconds:
            raise self.out_of_time()

    def out_of_time(self) -> BudgetSpent:
        """Return the error of a search whose time is up."""
        return BudgetSpent(f"the deadline of {self.budget.seconds:g} seconds has passed")

    def return_seconds(self, seconds: float) -> None:
        """Give back time that passed for no fault of this search."""
        with self._lock:
            self._started += seconds

    def take_rows(self, count: int) -> None:
        """Spend candidate rows, or raise `BudgetSpent` and spend none."""
        self._take("oracle_rows", count)

    def take_setup_rows(self, count: int) -> None:
        """Spend rows of the small allowance for probing and checking."""
        self._take("setup_rows", count)

    def add_setup_rows(self, count: int) -> None:
        """Count set-up rows beyond the allowance, which have a limit of their own."""
        with self._lock:
            self.budget = replace(self.budget, setup_rows=self.budget.setup_rows + count)
            self._counts["setup_rows"] += count
        self.added(count)

    def return_setup_rows(self, count: int) -> None:
        """Give back set-up rows whose answers never came."""
        with self._lock:
            self._counts["setup_rows"] -= count

    def _take(self, name: str, count: int) -> None:
        if not _is_count(count):
            raise ValueError(f"a number of rows is a whole number of 0 or more, not {count!r}")
        self.check_deadline()
        with self._lock:
            if count > self._left(name):
                limit = getattr(self.budget, name)
                words = name.replace("_", " ")
                raise BudgetSpent(
                    f"{count} more {words} would pass the limit of {limit} "
                    f"({self._counts[name]} spent)"
                )
            self._counts[name] += count

    def reserve_call(self, most_tokens: int = 0, most_money: float = 0.0) -> Reservation:
        """Set one call aside before it is sent, at the most it can cost."""
        self.check_deadline()
        with self._lock:
            if self.calls_left < 1:
                raise BudgetSpent(f"all {self.budget.llm_calls} LLM calls are spent or under way")
            tokens = self._counts["tokens_in"] + self._counts["tokens_out"] + most_tokens
            tokens += sum(call.most_tokens for call in self._in_flight)
            if self.budget.tokens is not None and tokens > self.budget.tokens:
                raise BudgetSpent(f"a call could pass the limit of {self.budget.tokens} tokens")
            money = self._counts["money"] + sum(call.most_money for call in self._in_flight)
            limit = self.budget.money
            if limit is not None and (money >= limit or money + most_money > limit):
                raise BudgetSpent(f"a call could pass the limit of {limit:g} in money")
            call = Reservation(self, most_tokens, most_money)
            self._in_flight.add(call)
            return call

    def count_attempt(self) -> None:
        """Count one request that is being sent, whether or not a reply comes back."""
        with self._lock:  # or an earlier count could be filed after a later one
            self._counts["attempts"] += 1
            self.attempted(self._spent(), len(self._in_flight))

    def _end(self, call: Reservation, paid: Mapping[str, float]) -> None:
        with self._lock:
            if call not in self._in_flight:
                raise RuntimeError("this call was settled or released before")
            self._in_flight.remove(call)
            for name, amount in paid.items():
                self._counts[name] += amount


@dataclass(frozen=True, eq=False, slots=True)
class Reservation:
    """One call set aside. It ends once: settled when a reply arrives, otherwise released."""

    ledger: Ledger
    most_tokens: int = 0
    most_money: float = 0.0

    def settle(
        self, *, tokens_in: int = 0, tokens_out: int = 0, cached_tokens: int = 0, money: float = 0.0
    ) -> None:
        """Charge the call: its reply came back, however bad it is."""
        paid = {"llm_calls": 1, "tokens_in": tokens_in, "tokens_out": tokens_out,
                "cached_tokens": cached_tokens, "money": money}  # fmt: skip
        self.ledger._end(self, paid)

    def release(self) -> None:
        """Give the call back: no reply came, so nothing is charged."""
        self.ledger._end(self, {})
