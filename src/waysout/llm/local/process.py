"""The engine's process as its parent sees it, and the messages between the two.

Nothing here blocks: one thread writes to the engine, another reads from it. Unlike with
``multiprocessing``, a script that starts an engine needs no ``__main__`` guard.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from waysout.errors import InputError, LLMError, UnavailableError
from waysout.llm.base import Finish, Usage

# -P: otherwise a file in the current folder could shadow a package.
_ENGINE = ("-P", "-m", "waysout.llm.local.engine")
_SETTINGS = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "USE_HUB_KERNELS": "NO",  # hub kernels are code, downloaded while a model is loaded
}
_STDERR_TAIL = 400
_EXIT_SECONDS = 15.0
# Seconds an engine may be silent: while it loads (this may include a download), and beyond the time
# limit of one reply.
_LOADING, _MARGIN = 7200.0, 60.0


@dataclass(frozen=True, slots=True)
class Setup:
    """What to load, and how. ``place`` is a file, a folder or a hub name; 0 means automatic.

    ``sampling`` holds fields of `Sampling`. With ``sampling_of_model`` the model's own, which are
    known once it is loaded, add to them.
    """

    name: str
    place: str
    kind: str
    device: str = "auto"
    slots: int = 0
    context: int = 0
    threads: int = 0
    seconds: float = 900.0
    bytes: int = 64 * 1024
    sampling: Mapping[str, Any] = field(default_factory=dict)
    sampling_of_model: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """The part of a request that the engine needs."""

    messages: tuple[tuple[str, str], ...]
    max_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """The reply to a request; ``error`` is why there is none."""

    text: str = ""
    usage: Usage = field(default_factory=Usage)
    finish: Finish = "stop"
    error: str = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The model is loaded; ``about`` describes how it runs."""

    about: str
    parallel: int


@dataclass(frozen=True, slots=True)
class EngineFailure:
    """The engine has ended; ``kind`` is the class of the error to raise."""

    kind: type[Exception]
    reason: str

    @classmethod
    def of(cls, error: Exception) -> Self:
        """Return the message for an error, with a class that takes only a text."""
        kinds = (InputError, UnavailableError, LLMError)
        return cls(next((k for k in kinds if isinstance(error, k)), LLMError), str(error))


def send(message: object, stream: IO[bytes]) -> None:
    """Write one message to a stream, and flush it."""
    pickle.dump(message, stream, pickle.HIGHEST_PROTOCOL)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message; raise `EOFError` if the other end is closed. Both ends are trusted."""
    try:
        return pickle.load(stream)
    except (pickle.UnpicklingError, OSError, ValueError) as error:
        raise EOFError("the other end closed unexpectedly") from error


class Process:
    """A running engine; ``on_message`` gets its messages, and ``None`` when it has ended."""

    def __init__(self, setup: Setup, on_message: Callable[[Process, Any], None]) -> None:
        self._on_message = on_message
        self._seconds = setup.seconds
        self._stuck = ""
        self.loaded = False
        self.last_message = time.monotonic()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._outbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._started = subprocess.Popen(
            [sys.executable, *_ENGINE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **_SETTINGS, "PYTHONPATH": _python_path()},
        )
        self.send(setup)
        for work in (self._write, self._read):
            threading.Thread(target=work, daemon=True).start()

    def send(self, message: object) -> None:
        """Send the engine a message; ``None`` ends it."""
        self._outbox.put(message)

    def end(self) -> None:
        """End the engine, and wait until it has exited."""
        self.send(None)
        try:
            self._started.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._started.kill()
            self._started.wait()

    def is_stuck(self, requested: float) -> bool:
        """Whether it has been silent for too long since a request sent at ``requested``."""
        return time.monotonic() - max(requested, self.last_message) > self._silence

    def kill(self) -> None:
        """Kill an engine that is stuck; ``on_message`` gets ``None`` as usual."""
        self._stuck = f"it sent nothing for {self._silence:g} s and was stopped"
        self._started.kill()

    @property
    def _silence(self) -> float:
        return self._seconds + _MARGIN if self.loaded else _LOADING

    @property
    def why_it_ended(self) -> str:
        """How the process ended, with the last lines it wrote."""
        code = self._started.wait()
        if self._stuck:
            return self._stuck
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _STDERR_TAIL))
        written = self._errors.read().decode(errors="replace").strip()
        return f"exit code {code}{': …' + written if written else ''}"

    def _write(self) -> None:
        stream = self._started.stdin
        assert stream is not None
        with suppress(OSError, ValueError):  # the engine has ended, which the reader notices
            while (message := self._outbox.get()) is not None:
                send(message, stream)
        with suppress(OSError):
            stream.close()

    def _read(self) -> None:
        stream = self._started.stdout
        assert stream is not None
        with suppress(EOFError), stream:
            while True:
                message = receive(stream)
                self.last_message = time.monotonic()
                self.loaded = self.loaded or isinstance(message, Loaded)
                self._on_message(self, message)
        self._on_message(self, None)
        self.send(None)  # otherwise the writer would wait forever
        self._errors.close()


def _python_path() -> str:
    """Return the engine's import path: ours, without the current folder, and Waysout's own.

    ``python -m`` puts the current folder on our path.
    """
    places = []
    for place in filter(None, sys.path):
        with suppress(OSError):
            if Path(place).samefile(os.curdir):
                continue
        places.append(place)
    return os.pathsep.join([*places, str(Path(__file__).parents[3])])
