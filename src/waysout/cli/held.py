"""A process beside a command: what a model can do to a process, only another one can tell or mend.

Where a model holds Python's interpreter, nothing within the process can end the call. A regular
expression that backtracks, or code in C that does not let go of the lock, stops the watch on calls
as well as the handlers of signals: the command would ignore its limits, Ctrl-C and SIGTERM, and use
up a core until somebody kills it. So a small process beside it (`keeper`) hears of each call, and
ends the command where it falls silent for longer than the call may take. What was found until then
is on file. A model may also end the process, with an exit code of its own: that is said there too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

from waysout.cli import keeper
from waysout.cli.streams import models_may_print

GRACE_SECONDS = 30.0
"""How much longer than a call may take the interpreter may be silent: the machine may be busy."""
_LAST_WORDS = (
    "\nerror: the model has held Python's interpreter for {seconds} s, which no limit and no "
    "Ctrl-C can end: the process was ended. What it had is on file, unless it kept none: "
    "`waysout runs list`\n"
)
_GONE = (
    "\nerror: the process has ended within a call of the model, by the model itself or from "
    "outside, whatever its exit code says. What it had is on file, unless it kept none: "
    "`waysout runs list`\n"
)
_keeper: _Keeper | None = None


def ready_for_models() -> None:
    """Make ready for models, rules and methods: they may print, and they may never come back."""
    global _keeper
    models_may_print()
    if _keeper is None and os.name == "posix":  # elsewhere pipes cannot be waited for
        from waysout.oracles.watchdog import tell_calls

        with suppress(OSError):  # no process can be started: then there is none to help
            _keeper = _Keeper()
            tell_calls(_keeper.tell)


class _Keeper:
    """The process beside this one, which lives as long as its input is open."""

    def __init__(self) -> None:
        ours, theirs = os.pipe()
        try:
            # No environment variable, and nothing in the folder, may change what it runs.
            command = [sys.executable, "-I", "-S", keeper.__file__]
            about = [str(os.getpid()), str(GRACE_SECONDS), _LAST_WORDS, _GONE]
            self._process = subprocess.Popen(
                [*command, *about], stdin=ours, stdout=subprocess.DEVNULL
            )
        except OSError:
            os.close(theirs)
            raise
        finally:
            os.close(ours)
        os.set_blocking(theirs, False)
        self._pipe, self._pid = theirs, os.getpid()
        self._inode = os.fstat(theirs).st_ino

    def tell(self, seconds: float | None) -> None:
        """Say that this process lives, and for how long a call may go on."""
        with suppress(OSError):  # it is gone, or has not read for long
            # A model may have closed the pipe and opened another file; or forked this process.
            is_ours = os.fstat(self._pipe).st_ino == self._inode and os.getpid() == self._pid
            if is_ours:
                os.write(self._pipe, b"-\n" if seconds is None else b"%f\n" % seconds)
