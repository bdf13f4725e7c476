"""A package that adds a method and a command to Waysout."""

from dataclasses import dataclass
from typing import ClassVar

from waysout.search.random import RandomEdits


@dataclass(frozen=True)
class Lucky(RandomEdits):
    """Random edits under another name."""

    name: ClassVar[str] = "lucky"
    about: ClassVar[str] = "what the plugin says of itself"


def hello(name: str = "world") -> None:
    """Say hello."""
    print(f"hello {name}")  # noqa: T201
