"""How many searches share one event loop, one LLM and one model with everybody else.

Each answer wakes a search, which then computes for some milliseconds. If the answers of twenty
arrived at once, a request that comes just then (a slider that moves) would wait for all of them; so
they arrive one by one, and the loop serves others in between.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import ParamSpec, TypeVar

import numpy as np

from waysout.domain.oracle import Answers, Oracle
from waysout.domain.schema import Row
from waysout.errors import OracleError, OracleTimeout
from waysout.llm.base import Backend, Reply, Request, counter, counting
from waysout.oracles.answers import ask_checked
from waysout.oracles.watchdog import ROW_SECONDS, batch_seconds

P = ParamSpec("P")
T = TypeVar("T")

# In the scope of a request: a function that says whether its client has left.
LEFT = "waysout.left"
_LONGEST_WAIT = 1.0  # seconds; a loop that is busy for longer has other worries
_LOOK_SECONDS = 0.1  # how often one who waits for the model looks whether anybody wants it still
_TIMES_AS_LONG = 10
_MOST_SUSPECTS = 10_000

_may_wait: ContextVar[bool] = ContextVar("may_wait", default=True)
_is_left: ContextVar[Callable[[], bool]] = ContextVar("is_left", default=bool)

_apart = ThreadPoolExecutor(12, "apart")


async def in_thread_apart(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Do what asks no model in a thread that nobody who waits for a model can hold."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_apart, partial(work, *args, **kwargs))


class PacedExecutor(ThreadPoolExecutor):
    """Threads whose results reach the event loop one by one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        super().__init__(count, "waysout")
        self._loop = loop
        self._turn = threading.Lock()

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call in a thread; its result waits until the loop has gone round."""

        def paced() -> T:
            try:
                return work(*args, **kwargs)
            finally:
                looked = threading.Event()
                with self._turn, suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(looked.set)
                    looked.wait(_LONGEST_WAIT)

        return super().submit(paced)


class SharedBackend(Backend):
    """A backend that many searches ask, within the number of requests it takes at once.

    Each search has its own of these; ``slots`` and ``turn`` are shared. ``asked`` counts what is to
    be paid: replies, and requests whose search was stopped after they were sent, because the server
    works and bills all the same. A request that failed costs nothing.
    """

    def __init__(self, inner: Backend, slots: asyncio.Semaphore, turn: asyncio.Lock) -> None:
        self.inner = inner
        self.name = inner.name
        self.form = inner.form
        self.parallel = inner.parallel
        self.notes_sent = inner.notes_sent
        self.asked = 0
        self._slots = slots
        self._turn = turn

    async def complete(self, request: Request) -> Reply:
        """Answer one request, when there is a slot."""
        async with self._slots:
            # Before the request: a reply is paid for, and must not be lost in a queue.
            async with self._turn:
                await asyncio.sleep(0)
            tell, is_sent = counter(), False

            def sent() -> None:
                nonlocal is_sent
                self.asked += not is_sent
                is_sent = True
                tell()

            if not self.notes_sent:
                sent()
            try:
                with counting(sent):
                    return await self.inner.complete(request)
            except Exception:
                self.asked -= is_sent
                raise


class WouldWait(Exception):
    """A call of the model is under way, and whoever asks may not wait for it."""


def without_waiting(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Do what may ask the model; raise `WouldWait` if it would have to wait for another call."""
    before = _may_wait.set(False)
    try:
        return work(*args, **kwargs)
    finally:
        _may_wait.reset(before)


@contextmanager
def unless(is_left: Callable[[], bool]) -> Iterator[None]:
    """Let nobody within wait for the model, or ask it, once ``is_left`` says that it is no use.

    A task that is cancelled leaves its thread behind, which would wait on.
    """
    before = _is_left.set(is_left)
    try:
        yield
    finally:
        _is_left.reset(before)


def _check_left() -> None:
    if _is_left.get()():
        raise OracleError("the model is not asked: nobody waits for its answer any more")


class FairLock:
    """A lock that is handed on in the order it was asked for. Its holder may take it again.

    A `threading.Lock` may go back at once to whoever has just let go of it: one who asks row after
    row would keep all others waiting.
    """

    def __init__(self) -> None:
        self._state = threading.Lock()  # held for moments only
        self._waiting: list[tuple[int, threading.Event]] = []
        self._holder = self._depth = 0

    def __enter__(self) -> None:
        _check_left()
        me, turn = threading.get_ident(), threading.Event()
        with self._state:
            if self._depth and self._holder != me:
                if not _may_wait.get():
                    raise WouldWait
                self._waiting.append((me, turn))
            else:
                self._holder, self._depth = me, self._depth + 1
                turn.set()
        try:
            while not turn.wait(_LOOK_SECONDS):
                _check_left()
        except BaseException:  # whoever leaves here never comes to let go of it
            with self._state:
                if (me, turn) in self._waiting:
                    self._waiting.remove((me, turn))
                else:
                    self._let_go()
            raise

    def __exit__(self, *_: object) -> None:
        with self._state:
            self._let_go()

    def _let_go(self) -> None:
        self._depth -= 1
        if self._depth == 0 and self._waiting:
            (self._holder, turn), self._depth = self._waiting.pop(0), 1
            turn.set()

    def reverse(self) -> None:
        """Let those who came last go first, of those who wait now."""
        with self._state:
            self._waiting.reverse()


class SerializedOracle:
    """An oracle that answers one call at a time: not every model can be asked twice at once.

    Nobody knows on which rows a model will hang, but rows that wait beside one that hung are often
    of its kind. So after a hang those who came last go first: whoever comes when others wait waits
    for the call under way, and not for theirs as well. A row that hung is not asked again for ten
    times as long as it took, then for ten times that: it would cost all others their time, and the
    process a thread, each time that somebody asks it. Where several rows hung together, each is a
    suspect and is asked alone the next time, until it is answered: so the one that hangs is found.
    """

    watches = True

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.name = oracle.name
        self.labels_only = oracle.labels_only
        self.call_lock = FairLock()
        # Until when a suspect is not asked, and for how long that is: 0 if it never hung alone.
        self._suspects: dict[Row, tuple[float, float]] = {}

    def ask(self, rows: Sequence[Row]) -> Answers:
        """Return the answer for each row."""
        with self.call_lock:
            self._check_put_off(rows)
            suspects = [i for i, row in enumerate(rows) if row in self._suspects]
            if not suspects:
                return self._ask(rows)
            others = [i for i, row in enumerate(rows) if row not in self._suspects]
            said = self._ask_each([rows[i] for i in suspects])
            if others:
                said.append(self._ask([rows[i] for i in others]))
            back = np.argsort([*suspects, *others])
            return Answers(
                np.concatenate([answers.probability for answers in said])[back],
                np.concatenate([answers.decision for answers in said])[back],
            )

    def _ask_each(self, rows: Sequence[Row]) -> list[Answers]:
        """Ask suspects one by one, for as long as they may take together."""
        seconds = batch_seconds(len(rows), getattr(self.oracle, "row_seconds", ROW_SECONDS))
        began, said = time.monotonic(), []
        for row in rows:
            if time.monotonic() - began > seconds:
                raise OracleTimeout(
                    f"the model did not answer {len(rows)} rows one by one within {seconds:.4g} s; "
                    "if it is only slow, raise row_seconds"
                )
            said.append(self._ask([row]))
            self._suspects.pop(row, None)
        return said

    def _ask(self, rows: Sequence[Row]) -> Answers:
        began = time.monotonic()
        try:
            return ask_checked(self.oracle, rows)
        except OracleTimeout:
            self._suspect(rows, time.monotonic() - began)
            self.call_lock.reverse()
            raise

    def _check_put_off(self, rows: Sequence[Row]) -> None:
        now = time.monotonic()
        untils = [self._suspects[row][0] for row in rows if row in self._suspects]
        left = max(untils, default=now) - now
        if left > 0:
            what = "this row" if len(rows) == 1 else f"one of these {len(rows)} rows"
            raise OracleError(  # no time was lost, so it is no timeout
                f"the model hung on {what} before, and is not asked about it for another "
                f"{math.ceil(left)} s"
            )

    def _suspect(self, rows: Sequence[Row], took: float) -> None:
        """Note rows that hung together, and put off one that hung alone; the oldest make room."""
        for row in rows:
            until, wait = self._suspects.pop(row, (0.0, 0.0))
            if len(rows) == 1:
                wait = _TIMES_AS_LONG * max(took, wait)
                until = time.monotonic() + wait
            self._suspects[row] = until, wait
        while len(self._suspects) > _MOST_SUSPECTS:
            del self._suspects[next(iter(self._suspects))]
