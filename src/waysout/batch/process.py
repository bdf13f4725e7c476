"""Processes of a batch on this machine: how they are started, settle in, and are ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import current_process, get_context, parent_process, resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any

from waysout.run.machine import one_thread_each

EXIT_SECONDS = 3.0
"""How long a process may take to exit."""
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux


def start_process(target: Callable[..., None], *args: Any) -> BaseProcess:
    """Start a process with one core for its libraries; ``target`` first calls `settle_in`."""
    process = get_context("spawn").Process(
        target=target, args=args, name="waysout worker", daemon=True
    )
    with one_thread_each(), _interrupts_blocked():
        process.start()
    return process


def end_process(process: BaseProcess, patience: float) -> str:
    """Wait for a process to exit, and kill it after that; return how it ended."""
    process.join(patience)
    if process.is_alive():
        process.kill()
        process.join()
    code = process.exitcode or 0
    process.close()
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Leave Ctrl-C to the parent from the first moment: blocked signals are inherited."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which unblocks them when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def settle_in() -> None:
    """Leave signals and standard output to the parent, in the process that it has started."""
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # For the parent we are daemonic: it ends us at its exit. Within this process that would only
    # keep a model from having processes of its own.
    current_process().daemon = False
    sys.stdout = sys.stderr
    with suppress(OSError):  # libraries also print without Python's help
        os.dup2(2, 1)


def _die_with_parent() -> None:
    """Have the system kill this process when its parent dies, where it can (on Linux).

    A call of the model that holds the interpreter's lock lets no thread of ours notice that, and
    the process would hold its store for as long as the call takes. No clock is used for this: it
    goes on while processes are suspended. What counts is the parent's thread that has started the
    process; that one lasts, since it waits for the batch.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, AttributeError):  # a libc without it: as on other systems
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        parent = parent_process()
        if parent is not None and parent.pid != os.getppid():  # it has died before
            os._exit(0)
