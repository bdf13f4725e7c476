"""A watch on every call of a model: it may never come back, or raise what no model should."""

from __future__ import annotations

import contextvars
import ctypes
import math
import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar

from waysout.errors import InputError, OracleError, OracleTimeout, WaysoutError

ROW_SECONDS = 60.0
"""How long a model may take for one row, unless the user says otherwise."""
MOST_HUNG = 32
"""How many calls may hang before a process makes no more of them."""
# Each row of a batch adds so much of that: a thousand rows may take eleven times as long as one.
_MORE_FOR_A_ROW = 0.01
_LONGEST_WAIT = 1.0

_at_most: ContextVar[float] = ContextVar("at_most", default=math.inf)
# The calls that somebody waits for, and how long each may go on; and who is told of them.
_waited_for: dict[Future[Any], float] = {}
_teller: Callable[[float | None], object] | None = None

T = TypeVar("T")
_Call = tuple["Future[Any]", Callable[[], Any]]


def check_row_seconds(seconds: float | None) -> float:
    """Return the limit of a row: what the user says, if it is one, or the usual."""
    if seconds is None:
        return ROW_SECONDS
    if not seconds > 0 or not math.isfinite(seconds):
        raise InputError(f"row_seconds is a number of seconds above 0, not {seconds!r}")
    return float(seconds)


def batch_seconds(rows: int, row_seconds: float) -> float:
    """Return how long a batch may take: what one row may, and a little more for each.

    >>> batch_seconds(1, 60.0), batch_seconds(1000, 60.0)
    (60.6, 660.0)
    """
    return row_seconds * (1.0 + _MORE_FOR_A_ROW * rows)


@contextmanager
def at_most(seconds: float | None) -> Iterator[None]:
    """Let no call of a model within take longer, whatever its own limit: a search has no more.

    The limit of a row belongs to the model and this one to who asks, past whatever wraps it.
    """
    before = _at_most.set(math.inf if seconds is None else seconds)
    try:
        yield
    finally:
        _at_most.reset(before)


def most_seconds() -> float:
    """Return how long a call may take by `at_most`; infinite where nothing limits it."""
    return _at_most.get()


def tell_calls(teller: Callable[[float | None], object]) -> None:
    """Have somebody told for how long the calls under way may go on, and ``None`` if there is none.

    They are told before a call begins, as it ends, and every second between, as long as the call
    lets others have the interpreter.
    """
    global _teller
    _teller = teller


def end_process(status: int) -> NoReturn:
    """End this process at once, also while calls are under way, and have that told as our wish."""
    if _teller is not None:
        _teller(None)
    os._exit(status)


def _tell(future: Future[Any], seconds: float | None) -> None:
    """Note for how long a call may go on from now, or that nobody waits for it any more."""
    with _lock:
        if seconds is None:
            _waited_for.pop(future, None)
        else:
            _waited_for[future] = seconds
        if _teller is not None:
            _teller(max(_waited_for.values(), default=None))


def watched(call: Callable[[], T], rows: int, row_seconds: float) -> T:
    """Return what a model returns for some rows; raise `OracleTimeout` if it takes too long.

    The call has a thread of its own, which is left behind when it hangs.
    """
    left = hung()
    if left >= MOST_HUNG:
        raise OracleTimeout(
            f"{left} calls of the model have not come back, and it is not asked again: start "
            "this process anew"
        )
    thread, future = _idle_thread() or _CallThread(), Future[T]()
    seconds, most = batch_seconds(rows, row_seconds), _at_most.get()
    try:
        _tell(future, min(seconds, most))  # before it begins: then it may let nobody tell any more
        thread.begin(call, future)
        error = _exception(future, min(seconds, most))
    except TimeoutError:
        if thread.leave(future):
            few = "a row" if rows == 1 else f"{rows} rows"
            remedy = "raise row_seconds" if seconds <= most else "give a search more time"
            raise OracleTimeout(
                f"the model did not answer {few} within {min(seconds, most):.4g} s; if it is only "
                f"slow, {remedy}"
            ) from None
        error = future.exception()
    finally:
        _tell(future, None)
    if error is None:
        return future.result()
    if isinstance(error, WaysoutError):
        raise error
    # Its text is not asked for: that is the model's own code, and may hang as well.
    raise OracleError(f"the model raised {type(error).__name__}") from error


def _exception(future: Future[Any], seconds: float) -> BaseException | None:
    """Return what a call raised, if anything; raise `TimeoutError` if it has not ended in time.

    The wait is cut into short ones, and what runs over one of them does not count: while a process
    is suspended (Ctrl-Z), the clock goes on and the model does not.
    """
    left = seconds
    while True:
        wait = min(left, seconds / 10, _LONGEST_WAIT)
        try:
            return future.exception(wait)
        except TimeoutError:
            left -= wait
            if left <= 0:
                raise
            _tell(future, left)


def hung() -> int:
    """Return how many calls were left behind and still have not come back."""
    with _lock:
        _left[:] = [thread for thread in _left if thread.is_alive()]
        return len(_left)


def is_at_work() -> bool:
    """Whether any call is under way, left behind or not."""
    calling = {thread for thread in threading.enumerate() if isinstance(thread, _CallThread)}
    with _lock:
        return not calling <= {*_idle}


def _idle_thread() -> _CallThread | None:
    with _lock:
        return _idle.pop() if _idle else None


class _CallThread(threading.Thread):
    """Makes calls one by one. The interpreter ends without it, unlike a thread of an executor."""

    def __init__(self) -> None:
        super().__init__(name="waysout-model", daemon=True)
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._is_left = False
        self.start()

    def begin(self, call: Callable[[], T], future: Future[T]) -> None:
        """Make a call, in the context of the caller, as `asyncio.to_thread` does."""
        context = contextvars.copy_context()
        self._calls.put((future, lambda: context.run(call)))

    def leave(self, future: Future[Any]) -> bool:
        """Leave a call behind, unless it has just ended; whether it is left."""
        with _lock:
            if future.done():
                return False
            self._is_left = True
            _left.append(self)
            # Raised within the call, this ends a loop written in Python, and nothing else.
            ident, error = ctypes.c_ulong(self.ident or 0), ctypes.py_object(SystemExit)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, error)
            return True

    def run(self) -> None:
        """Make calls until one is left behind."""
        process = os.getpid()
        while True:
            future, call = self._calls.get()
            value, error = None, None
            try:
                value = call()
            except BaseException as raised:
                error = raised
            if os.getpid() != process:  # a process that the model forked, and in which it has ended
                os._exit(0 if error is None else 1)
            with _lock:
                if self._is_left:
                    return
                _idle.append(self)  # before the answer: who waits for it may have the next call
                if error is None:
                    future.set_result(value)
                else:
                    future.set_exception(error)
            del future, call, value, error  # or it would keep the rows for as long as it waits


_lock = threading.Lock()  # of both lists, of whether a call has ended or was left, and who waits
_idle: list[_CallThread] = []
_left: list[_CallThread] = []


def _forget_threads() -> None:
    """Begin anew in a process that was forked: it has none of these threads, nor who held _lock."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()
    _waited_for.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
