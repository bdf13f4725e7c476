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
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from waysout.llm.local.wire import Loaded, Setup, receive, send

# -P: else the folder it is started in comes first, where a file may be named like a package.
_ENGINE = ("-P", "-m", "waysout.llm.local.engine")
_SETTINGS = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "USE_HUB_KERNELS": "NO",  # they are code, fetched while a model is loaded
}
_LAST_WORDS = 400
_GOING = 15.0
# How long an engine may be silent: while it loads, which can be a download, and beyond the longest
# time that it writes at one reply.
_LOADING, _MARGIN = 7200.0, 60.0


class Process:
    """An engine that was started; ``hear`` is told what it says, and ``None`` when it is gone."""

    def __init__(self, setup: Setup, hear: Callable[[Process, Any], None]) -> None:
        self._hear = hear
        self._seconds = setup.seconds
        self._stuck = ""
        self.loaded = False
        self.heard = time.monotonic()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._outbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._started = subprocess.Popen(
            [sys.executable, *_ENGINE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **_SETTINGS, "PYTHONPATH": _path()},
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

    def is_stuck(self, asked: float) -> bool:
        """Whether it has been silent for too long towards one who asked then."""
        return time.monotonic() - max(asked, self.heard) > self._silence

    def give_up(self) -> None:
        """End an engine that is stuck; ``hear`` is told as of any that is gone."""
        self._stuck = f"it said nothing for {self._silence:g} s and was stopped"
        self._started.kill()

    @property
    def _silence(self) -> float:
        return self._seconds + _MARGIN if self.loaded else _LOADING

    @property
    def last_words(self) -> str:
        """What it wrote before it ended, for whoever wonders why."""
        code = self._started.wait()
        if self._stuck:
            return self._stuck
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
                said = receive(stream)
                self.heard = time.monotonic()
                self.loaded = self.loaded or isinstance(said, Loaded)
                self._hear(self, said)
        self._hear(self, None)
        self.say(None)  # else the speaker would wait for more
        self._errors.close()


def _path() -> str:
    """Return where the engine finds packages: as here, but for the folder it is started in.

    That is on our own path after ``python -m``, and where Waysout is only found there it stays.
    """
    places = [place for place in sys.path if place and not _is_here(place)]
    return os.pathsep.join([*places, str(Path(__file__).parents[3])])


def _is_here(place: str) -> bool:
    try:
        return Path(place).samefile(os.curdir)
    except OSError:
        return False
