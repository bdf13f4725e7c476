"""Processes that a model forks are the model's own: a signal ends them as if we were not there."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What ends a command, or a server."""
_before: list[Mapping[signal.Signals, Any]] = []


@contextmanager
def own_handlers() -> Iterator[Mapping[signal.Signals, Any]]:
    """Within it, handlers are for this process alone: what it forks gets those of before.

    Else `multiprocessing.Pool.terminate` would have our handlers end the search in each process of
    the pool, and wait for that. Yields the handlers of before.
    """
    found = {number: signal.getsignal(number) for number in SIGNALS}
    before = {number: signal.SIG_DFL if h is None else h for number, h in found.items()}
    _before.append(before)
    try:
        yield before
    finally:
        _before.remove(before)


def _hold() -> None:
    """Let no signal meet our handlers in a process that is being forked: it would be lost there."""
    if _before:
        _held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _let_go() -> None:
    if (mask := _held.__dict__.pop("mask", None)) is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _give_back() -> None:
    """Forget our handlers in a process that was forked, and wake no event loop of its parent."""
    if _before:
        signal.set_wakeup_fd(-1)
        for number, handler in _before[0].items():
            signal.signal(number, handler)
    _let_go()


_held = threading.local()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_give_back)
