"""The way to the engine's process, from the side of those who ask.

Nothing here waits: what is said to the engine is written by one thread, and what it says is heard
by another. A script that starts one need not guard its main part, as it would for a process of
``multiprocessing``.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from waysout.llm.local.wire import Setup, receive, send

_QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
_LAST_WORDS = 400
_GOING = 15.0


class Process:
    """An engine that was started; ``hear`` is told what it says, and ``None`` when it is gone."""

    def __init__(self, setup: Setup, hear: Callable[[Process, Any], None]) -> None:
        self._hear = hear
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._outbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._started = subprocess.Popen(
            [sys.executable, "-m", "waysout.llm.local.work"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **_QUIET, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self.say(setup)
        for work in (self._speak, self._listen):
            threading.Thread(target=work, daemon=True).start()

    def say(self, item: object) -> None:
        """Tell the engine something; ``None`` sends it away."""
        self._outbox.put(item)

    def end(self) -> None:
        """Send the engine away, and wait until it is gone."""
        self.say(None)
        try:
            self._started.wait(_GOING)
        except subprocess.TimeoutExpired:
            self._started.kill()
            self._started.wait()

    @property
    def last_words(self) -> str:
        """What it wrote before it ended, for whoever wonders why."""
        code = self._started.wait()
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _LAST_WORDS))
        written = self._errors.read().decode(errors="replace").strip()
        return f"exit code {code}{': …' + written if written else ''}"

    def _speak(self) -> None:
        stream = self._started.stdin
        assert stream is not None
        with suppress(OSError, ValueError):  # it is gone, which the listener notices
            while (item := self._outbox.get()) is not None:
                send(item, stream)
        with suppress(OSError):
            stream.close()

    def _listen(self) -> None:
        stream = self._started.stdout
        assert stream is not None
        with suppress(EOFError), stream:
            while True:
                self._hear(self, receive(stream))
        self._hear(self, None)
