"""Processes of a batch on this machine: how they are started, settle in, and are ended."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import current_process, get_context, resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any

from waysout.run.machine import one_thread_each

EXIT_SECONDS = 3.0
"""How long a process may take to exit."""


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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # For the parent we are daemonic: it ends us at its exit. Within this process that would only
    # keep a model from having processes of its own.
    current_process().daemon = False
    sys.stdout = sys.stderr
    with suppress(OSError):  # libraries also print without Python's help
        os.dup2(2, 1)
