"""What a compressor is, and how it measures a text that only ever grows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol


class Stream(Protocol):
    """A text that grows at its end, and its compressed size with one more piece on trial."""

    def feed(self, data: bytes) -> None:
        """Add to the text for good."""
        ...

    def size_with(self, data: bytes) -> int:
        """Return the compressed size of the text followed by ``data``; the text stays as it is."""
        ...


class Compressor(ABC):
    """Turns any bytes into fewer where they repeat themselves, and back again, exactly."""

    name: ClassVar[str]

    @abstractmethod
    def compress(self, data: bytes) -> bytes:
        """Return ``data``, compressed."""

    @abstractmethod
    def decompress(self, data: bytes) -> bytes:
        """Return what `compress` was given; made for its output only."""

    def size(self, data: bytes) -> int:
        """Return the compressed size in bytes."""
        return len(self.compress(data))

    def stream(self) -> Stream:
        """Return an empty text to grow and measure.

        This one compresses from the beginning each time. A compressor that can go on from where it
        was has a better one, whose sizes must be the same.
        """
        return FromScratch(self)


class FromScratch:
    """The stream of any compressor: keeps the text, compresses all of it for each size."""

    def __init__(self, compressor: Compressor) -> None:
        self._compressor = compressor
        self.text = bytearray()

    def feed(self, data: bytes) -> None:
        """Add to the text for good."""
        self.text += data

    def size_with(self, data: bytes) -> int:
        """Return the compressed size of the text followed by ``data``."""
        return self._compressor.size(bytes(self.text + data))
