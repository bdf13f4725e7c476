"""gzip at level 9 without a timestamp: the compressor of the paper's experiments.

DEFLATE's choices do not depend on how its input was cut into pieces (a property of the zlib in use,
and tested). So a long text is fed once to a compressor object, which is copied for each trial: the
cost of a trial no longer grows with the text.
"""

from __future__ import annotations

import gzip
import zlib

from waysout.search.compress.base import Compressor, Stream

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

    def stream(self) -> Stream:
        """Return an empty text, measured from scratch while short and incrementally once long."""
        return GzipStream(self)


class GzipStream(Stream):
    """A growing text that is handed to zlib once it is long enough to pay.

    What zlib has put out by then is counted, not kept.
    """

    def __init__(self, compressor: Gzip, incremental_from: int = INCREMENTAL_FROM) -> None:
        super().__init__(compressor)
        self._limit = incremental_from
        self._engine: zlib._Compress | None = None
        self._written = 0

    def feed(self, data: bytes) -> None:
        """Add to the text for good."""
        super().feed(data)
        if self._engine is None and len(self._text) >= self._limit:
            self._engine = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP_FORMAT)
            data = bytes(self._text)
        if self._engine is not None:
            self._written += len(self._engine.compress(data))

    def size_with(self, data: bytes) -> int:
        """Return the compressed size of the text followed by ``data``."""
        if self._engine is None:
            return super().size_with(data)
        trial = self._engine.copy()
        return self._written + len(trial.compress(data)) + len(trial.flush())
