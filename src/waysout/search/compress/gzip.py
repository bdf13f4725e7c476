"""gzip at level 9 without a timestamp: the compressor of the paper's experiments.

Both of its streams give the same sizes, because DEFLATE's choices do not depend on how its input
was cut into pieces. So a long text is fed once to a compressor object, which is copied for each
trial: the cost of a trial no longer grows with the text.
"""

from __future__ import annotations

import gzip
import zlib

from waysout.search.compress.base import Compressor, FromScratch

LEVEL = 9
GZIP_FORMAT = 31  # zlib's code for its largest window (15) in a gzip wrapper (16)

# A copy of the compressor's state costs the same however short the text, about as much as
# compressing ten keys of 230 characters from scratch (`benchmarks/compress.py`).
INCREMENTAL_FROM = 2_500


class Gzip(Compressor):
    """DEFLATE in a gzip wrapper, as small as zlib makes it."""

    name = "gzip"

    def compress(self, data: bytes) -> bytes:
        """Return ``data``, compressed."""
        return gzip.compress(data, LEVEL, mtime=0)

    def decompress(self, data: bytes) -> bytes:
        """Return what `compress` was given."""
        return gzip.decompress(data)

    def stream(self) -> GzipStream:
        """Return an empty text, measured from scratch while short and incrementally once long."""
        return GzipStream(self)


class GzipStream:
    """A growing text that is handed to a compressor object once it is long enough to pay."""

    def __init__(self, compressor: Gzip, incremental_from: int = INCREMENTAL_FROM) -> None:
        self._short = FromScratch(compressor)
        self._long: Incremental | None = None
        self._length = 0
        self._limit = incremental_from

    def feed(self, data: bytes) -> None:
        """Add to the text for good."""
        self._length += len(data)
        if self._long is not None:
            self._long.feed(data)
            return
        self._short.feed(data)
        if self._length >= self._limit:
            self._long = Incremental()
            self._long.feed(bytes(self._short.text))

    def size_with(self, data: bytes) -> int:
        """Return the compressed size of the text followed by ``data``."""
        return (self._short if self._long is None else self._long).size_with(data)


class Incremental:
    """A growing text inside zlib; what zlib has put out by now is counted, not kept."""

    def __init__(self) -> None:
        self._engine = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP_FORMAT)
        self._written = 0

    def feed(self, data: bytes) -> None:
        """Add to the text for good."""
        self._written += len(self._engine.compress(data))

    def size_with(self, data: bytes) -> int:
        """Return the compressed size of the text followed by ``data``."""
        trial = self._engine.copy()
        return self._written + len(trial.compress(data)) + len(trial.flush())
