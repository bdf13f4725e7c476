"""What a compressor is, and the compression history H: what one more key would add to it.

``ΔC(φ | H) = (C(H ⊕ φ) − C(H)) / (|φ| + 1)``

H is the keys joined by line breaks, in UTF-8; C is the compressed size in bytes; |φ| counts
characters. Before the first key, H ⊕ φ is φ alone. Near 0 means that the key says nothing new. It
can fall below 0: a longer text is sometimes written more shortly.

**What gzip forgets.** DEFLATE finds repeats at most 32 KB back: about 140 keys of 230 characters.
In a longer history a key that was seen only before that counts as new. `rlbwt` and `repair` see the
whole history, and take time in proportion to it for each key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

SEPARATOR = "\n"


class Compressor(ABC):
    """Turns bytes into fewer where they repeat themselves.

    Sizes must be those of an encoding that can be undone; the tests hold a decoder for each.
    """

    name: ClassVar[str]

    @abstractmethod
    def compress(self, data: bytes) -> bytes:
        """Return ``data``, compressed."""

    def size(self, data: bytes) -> int:
        """Return the compressed size in bytes."""
        return len(self.compress(data))

    def stream(self) -> Stream:
        """Return an empty text to grow and measure."""
        return Stream(self)


class Stream:
    """A text that grows at its end, and its compressed size with one more piece on trial.

    This one compresses from the beginning each time. A compressor that can continue from where it
    was may have a faster one, whose sizes must be the same.
    """

    def __init__(self, compressor: Compressor) -> None:
        self._compressor = compressor
        self._text = bytearray()

    def feed(self, data: bytes) -> None:
        """Add to the text for good."""
        self._text += data

    def size_with(self, data: bytes) -> int:
        """Return the compressed size of the text followed by ``data``; the text stays as it is."""
        return self._compressor.size(bytes(self._text + data))


class History:
    """Keys seen so far, in order. It only grows.

    >>> from waysout.search.compress import compressor
    >>> history = History(compressor("gzip"), ['{"age":3,"income":4,"job":"clerk"}'])
    >>> again, near = '{"age":3,"income":4,"job":"clerk"}', '{"age":7,"income":4,"job":"cook"}'
    >>> history.gain(again) < history.gain(near) < history.gain('{"home":"rented","children":2}')
    True
    """

    def __init__(self, compressor: Compressor, keys: Iterable[str] = ()) -> None:
        self._stream = compressor.stream()
        self._count = 0
        self._size: int | None = None
        for key in keys:
            self.append(key)

    def __len__(self) -> int:
        return self._count

    def append(self, key: str) -> None:
        """Add a key."""
        self._stream.feed(self._following(key))
        self._count += 1
        self._size = None

    def gain(self, key: str) -> float:
        """Return ΔC, the share of a key's length that it adds to the compressed history."""
        if self._size is None:
            self._size = self._stream.size_with(b"")
        grown = self._stream.size_with(self._following(key))
        return (grown - self._size) / (len(key) + 1)

    def _following(self, key: str) -> bytes:
        # A level may hold half a character (a lone surrogate); it must not end a search.
        return f"{SEPARATOR if self._count else ''}{key}".encode("utf-8", "surrogatepass")
