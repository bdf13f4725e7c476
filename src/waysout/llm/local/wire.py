"""What goes between the backend and its engine."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import IO, Any

from waysout.llm.base import Finish, Usage


@dataclass(frozen=True, slots=True)
class Setup:
    """What to load, and how. ``place`` is a file, a folder or a name on the hub; 0: as it fits."""

    name: str
    place: str
    kind: str
    device: str = "auto"
    slots: int = 0
    context: int = 0
    threads: int = 0
    seconds: float = 900.0
    bytes: int = 64 * 1024


@dataclass(frozen=True, slots=True)
class Ask:
    """What the engine needs to know of a request."""

    messages: tuple[tuple[str, str], ...]
    max_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """What became of a request; ``error`` says why there is no text."""

    text: str = ""
    usage: Usage = field(default_factory=Usage)
    finish: Finish = "stop"
    error: str = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The model can be asked now; ``about`` says how it runs, in words."""

    slots: int
    context: int
    about: str
    parallel: int


@dataclass(frozen=True, slots=True)
class EngineFailure:
    """The engine ends here; ``kind`` is the class of the error to raise."""

    kind: type[Exception]
    reason: str


def send(item: object, stream: IO[bytes]) -> None:
    """Write one item to a stream, at once."""
    pickle.dump(item, stream, pickle.HIGHEST_PROTOCOL)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one item; `EOFError` where the other end is gone. Both ends are ours alone."""
    try:
        return pickle.load(stream)
    except (pickle.UnpicklingError, OSError, ValueError) as error:
        raise EOFError("the other end broke off") from error
