"""The process that `held` starts: it ends its parent where that is silent during a call.

It is run as a file, by an interpreter without any package, so that it costs some milliseconds; so
it must import nothing of ours. Its input has a line for each sign of life of its parent: for how
many seconds a call of the model may go on from now, or ``-`` where none is under way.
"""

import os
import select
import signal
import sys
import time

STEP_SECONDS = 0.5
"""How often it looks whether its parent is still there."""
SIGNAL_SECONDS = 5.0
"""How long a parent may be silent once somebody has tried to stop it."""


def keep(parent: int, grace: float, last_words: str, gone: str) -> None:
    """Watch a parent until it closes the pipe or is ended; say so if that was within a call."""
    asked_to_end = False

    def note(*_: object) -> None:
        nonlocal asked_to_end
        asked_to_end = True

    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal, or `timeout`, tells us as well
        signal.signal(number, note)
    limit, silent, line = float("inf"), 0.0, b""
    while True:
        is_there, began = os.getppid() == parent, time.monotonic()
        if select.select([0], [], [], STEP_SECONDS if is_there else 0)[0]:
            data = os.read(0, 65_536)
            if not data:
                break
            *whole, line = (line + data).split(b"\n")
            if whole:
                limit = float("inf") if whole[-1] == b"-" else float(whole[-1]) + grace
            silent = 0.0
            continue
        if not is_there:  # what it has forked may hold the pipe open
            break
        # Not by the clock: it goes on while both processes are suspended.
        silent += min(time.monotonic() - began, 2 * STEP_SECONDS)
        is_called = limit < float("inf")
        if silent > (min(limit, SIGNAL_SECONDS) if asked_to_end and is_called else limit):
            os.write(2, last_words.format(seconds=round(silent)).encode())
            os.kill(parent, signal.SIGKILL)
            return
    if limit < float("inf"):
        os.write(2, gone.encode())


if __name__ == "__main__":
    keep(int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:])
