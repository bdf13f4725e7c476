"""A watch on every call of a model: it may never come back, or raise what no model should."""

from __future__ import annotations

import contextvars
import ctypes
import math
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from waysout.errors import InputError, OracleError, OracleTimeout

ROW_SECONDS = 60.0
"""How long a model may take for one row, unless the user says otherwise."""
MOST_HUNG = 32
"""How many calls may hang before a process makes no more of them."""
# Each row of a batch adds so much of that: a thousand rows may take eleven times as long as one.
_MORE_FOR_A_ROW = 0.01

T = TypeVar("T")
_Call = tuple["Future[Any]", Callable[[], Any]]


def check_row_seconds(seconds: float) -> float:
    """Return the limit of a row if it is one."""
    if not seconds > 0 or not math.isfinite(seconds):
        raise InputError(f"row_seconds is a number of seconds above 0, not {seconds!r}")
    return float(seconds)


def batch_seconds(rows: int, row_seconds: float) -> float:
    """Return how long a batch may take: what one row may, and a little more for each.

    >>> batch_seconds(1, 60.0), batch_seconds(1000, 60.0)
    (60.6, 660.0)
    """
    return row_seconds * (1.0 + _MORE_FOR_A_ROW * rows)


def watched(call: Callable[[], T], rows: int, row_seconds: float) -> T:
    """Return what a model returns for some rows; raise `OracleTimeout` if it takes too long.

    The call has a thread of its own, which is left behind when it hangs.
    """
    if hung() >= MOST_HUNG:
        raise OracleTimeout(
            f"{hung()} calls of the model have not come back, and it is not asked again: start "
            "this process anew"
        )
    hand = _idle.pop() if _idle else _Hand()
    future: Future[T] = hand.begin(call)
    seconds = batch_seconds(rows, row_seconds)
    try:
        error = future.exception(seconds)
    except TimeoutError:
        if hand.leave(future):
            few = "a row" if rows == 1 else f"{rows} rows"
            raise OracleTimeout(
                f"the model did not answer {few} within {seconds:.4g} s; if it is only slow, raise "
                "row_seconds"
            ) from None
        error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, OracleError):
        raise error
    # Its text is not asked for: that is the model's own code, and may hang as well.
    raise OracleError(f"the model raised {type(error).__name__}") from error


def hung() -> int:
    """Return how many calls were left behind and still have not come back."""
    _left[:] = [hand for hand in _left if hand.is_alive()]
    return len(_left)


def is_at_work() -> bool:
    """Whether any call is under way, left behind or not."""
    return any(isinstance(t, _Hand) and t not in _idle for t in threading.enumerate())


class _Hand(threading.Thread):
    """Makes calls one by one. The interpreter ends without it, unlike a thread of an executor."""

    def __init__(self) -> None:
        super().__init__(name="waysout-model", daemon=True)
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._ending = threading.Lock()
        self._is_left = False
        self.start()

    def begin(self, call: Callable[[], T]) -> Future[T]:
        """Make a call, in the context of the caller, as `asyncio.to_thread` does."""
        future: Future[T] = Future()
        context = contextvars.copy_context()
        self._calls.put((future, lambda: context.run(call)))
        return future

    def leave(self, future: Future[Any]) -> bool:
        """Leave a call behind, unless it has just ended; whether it is left."""
        with self._ending:
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
        while True:
            future, call = self._calls.get()
            value, error = None, None
            try:
                value = call()
            except BaseException as raised:
                error = raised
            with self._ending:
                if self._is_left:
                    return
                _idle.append(self)  # before the answer: who waits for it may have the next call
                if error is None:
                    future.set_result(value)
                else:
                    future.set_exception(error)
            del future, call, value, error  # or it would keep the rows for as long as it waits


_idle: list[_Hand] = []
_left: list[_Hand] = []
if hasattr(os, "register_at_fork"):  # a forked process has none of these threads
    os.register_at_fork(after_in_child=_idle.clear)
