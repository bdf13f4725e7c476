"""What foreign code finds in the process while it runs: its own randomness, and nobody to talk to.

Such code draws from the global generators of numpy and Python and prints as it likes. Both belong
to the user, who gets the generators back as they were, and does not hear the talk.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

import numpy as np

# The generators are there once in a process, so one foreign code runs at a time.
_floor = threading.Lock()
_unheard: set[int] = set()


class GlobalDraws:
    """The states of the global generators, as one foreign code left them."""

    def __init__(self, rng: np.random.Generator) -> None:
        seed = int(rng.integers(2**32))
        self._states: tuple[Any, Any] = (
            np.random.RandomState(seed).get_state(),
            random.Random(seed).getstate(),
        )

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Let foreign code run inside, alone, with its own states and without being heard."""
        with _floor, _muffled():
            users = _get_states()
            _set_states(self._states)
            try:
                yield
            finally:
                self._states = _get_states()
                _set_states(users)


def _get_states() -> tuple[Any, Any]:
    return np.random.get_state(), random.getstate()


def _set_states(states: tuple[Any, Any]) -> None:
    np.random.set_state(states[0])
    random.setstate(states[1])


@contextmanager
def unheard() -> Iterator[None]:
    """Drop what this thread prints inside, as long as it does so while `GlobalDraws` are lent."""
    me = threading.get_ident()
    _unheard.add(me)
    try:
        yield
    finally:
        _unheard.discard(me)


class _Muffled:
    """A stream that passes on what all but the unheard threads write."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if threading.get_ident() in _unheard:
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _muffled() -> Iterator[None]:
    # Not contextlib.redirect_stdout: the user's other threads may print meanwhile.
    own = sys.stdout, sys.stderr
    lent = [stream and cast(TextIO, _Muffled(stream)) for stream in own]
    sys.stdout, sys.stderr = lent
    try:
        yield
    finally:
        # Whoever put another stream there meanwhile will take it away again.
        if sys.stdout is lent[0]:
            sys.stdout = own[0]
        if sys.stderr is lent[1]:
            sys.stderr = own[1]
