"""Ctrl-C and SIGTERM: a search ends with what it has, anything else at once, and both say so."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock, Timer
from types import FrameType
from typing import Any, Self

from waysout.cli.places import resume_hint, run_name

# How long a stopped search may take to hand over what it has; a model may be thinking.
PATIENCE = 4.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STDOUT, _STDERR = 1, 2


@dataclass
class Signals:
    """Catches signals while it is entered.

    Without a search to ``stop``, or at a second signal, the process ends at once; with ``json``
    it still prints one document. ``run`` is where what was answered is kept, asked of ``llm``.
    """

    json: bool
    run: Path | None = None
    llm: str = ""
    stop: Callable[[str], object] | None = None
    caught: int = 0
    _timer: Timer | None = None
    _over: bool = False
    _ending: RLock = field(default_factory=RLock)
    _before: dict[signal.Signals, Any] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        with self._ending:
            self._over = True
        if self._timer is not None:
            self._timer.cancel()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.caught or self.stop is None:
            self._end_now(number)
        else:
            self.caught = number
            self._timer = Timer(PATIENCE, self._end_now, [number])
            self._timer.start()
            self.stop(f"stopped by {signal.Signals(number).name}")

    def _end_now(self, number: int) -> None:
        """End the process though something in it hangs. What was answered is in the run."""
        with self._ending:
            if self._over:  # the result is there, and about to be printed
                return
            message, code = f"stopped by {signal.Signals(number).name}", 128 + number
            if self.json:
                error = {"type": "Interrupted", "message": message, "code": code}
                os.write(_STDOUT, f"{json.dumps({'error': error})}\n".encode())
            show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar hides it
            lines = [f"{show_cursor}\n{message}", *self._where()]
            os.write(_STDERR, "".join(f"{line}\n" for line in lines).encode())
            os._exit(code)

    def _where(self) -> list[str]:
        if self.run is None or not self.run.exists():
            return []
        return [f"run: {run_name(self.run)}", resume_hint(self.run, self.llm)]
