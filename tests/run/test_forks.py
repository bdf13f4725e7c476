from __future__ import annotations

import os
import signal
import socket
import time
from multiprocessing import get_context
from typing import Any

import pytest

from waysout.run.forks import own_handlers

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def end_of_forked() -> int:
    """Fork a process that gets a SIGTERM; return its exit code."""
    forked = os.fork()
    if not forked:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])


def test_what_is_forked_has_the_handlers_of_before_and_wakes_no_loop() -> None:
    caught: list[Any] = []
    ours, loops = socket.socketpair()
    loops.setblocking(False)
    with ours, loops:
        with own_handlers() as before:
            signal.signal(signal.SIGTERM, lambda *_: caught.append(_))
            signal.set_wakeup_fd(loops.fileno())
            try:
                assert end_of_forked() == -signal.SIGTERM
                os.kill(os.getpid(), signal.SIGTERM)  # this process still handles it
                assert len(caught) == 1
                assert ours.recv(10) == bytes([signal.SIGTERM])
            finally:
                signal.set_wakeup_fd(-1)
                for number, handler in before.items():
                    signal.signal(number, handler)
        # Handlers that others set are left to them.
        signal.signal(signal.SIGTERM, lambda *_: caught.append(_))
        try:
            assert end_of_forked() == 0
        finally:
            signal.signal(signal.SIGTERM, before[signal.SIGTERM])


def test_a_process_that_is_ended_as_it_begins_does_end() -> None:
    """A model may limit its own calls so: start a process, end it, wait for it."""
    ended = list[int | None]()
    with own_handlers() as before:
        signal.signal(signal.SIGTERM, lambda *_: None)
        try:
            for _ in range(50):
                process = get_context("fork").Process(target=time.sleep, args=(60,))
                process.start()
                process.terminate()
                process.join(10)
                ended.append(process.exitcode)
                if process.exitcode is None:
                    process.kill()
                    break
            assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    assert ended == [-signal.SIGTERM] * 50
