"""A run-length-encoded Burrows–Wheeler transform.

The transform sorts all suffixes of the text and puts down the byte before each. Repeats bring
equal bytes together, so that one more key like the others makes runs longer rather than more.

The encoding, in the codes of `bits`:

1. gamma(n + 1) for the length n; an empty text ends here,
2. the alphabet, of σ byte values,
3. below(n + 1) for the place of the whole text among its sorted suffixes, where the transform has
   no byte,
4. gamma(u) for the unit u of the runs' lengths, the most common one above 1,
5. for each run, without that place, until n bytes are covered: its byte, by rank among the σ
   values (the first run) or the σ − 1 that differ from the run before, then its length: a 1 and
   gamma(length / u) for whole units, else a 0 and gamma(length).

The unit is there because most runs of a history are as long as it has keys. Without it, their codes
would all grow when that number reaches a power of two, and a mere repeat would look new.
The size is that of these bits, rounded up to whole bytes.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from waysout.search.compress.base import Compressor
from waysout.search.compress.bits import BitWriter

Places = NDArray[np.int64]

_PACKED = 7  # as many symbols of 257 kinds as fit into 63 bits


class RLBWT(Compressor):
    """Runs of the Burrows–Wheeler transform."""

    name = "rlbwt"

    def compress(self, data: bytes) -> bytes:
        """Return ``data``, compressed."""
        bits = BitWriter()
        bits.gamma(len(data) + 1)
        if data:
            alphabet = sorted(set(data))
            transformed, start = transform(data)
            bits.alphabet(alphabet)
            bits.below(start, len(data) + 1)
            column = np.frombuffer(transformed, np.uint8)
            starts = np.flatnonzero(np.concatenate(([True], column[1:] != column[:-1])))
            lengths = np.diff(starts, append=len(column)).tolist()
            # The most common length above 1, among equals the shortest; 1 if there is none.
            counts = Counter(length for length in lengths if length > 1)
            unit = min(counts, key=lambda length: (-counts[length], length), default=1)
            bits.gamma(unit)
            rank = {symbol: i for i, symbol in enumerate(alphabet)}
            previous = len(alphabet)
            for symbol, length in zip(column[starts].tolist(), lengths, strict=True):
                own = rank[symbol]
                choices = len(alphabet) - (previous < len(alphabet))
                bits.below(own - (own > previous), choices)
                whole = length % unit == 0
                bits.flag(whole)
                bits.gamma(length // unit if whole else length)
                previous = own
        return bits.packed()


def transform(data: bytes) -> tuple[bytes, int]:
    """Return the byte before each suffix, sorted, and where the suffix without one stands.

    >>> transform(b"banana")
    (b'annbaa', 4)
    """
    before = suffix_array(data) - 1
    start = int(np.flatnonzero(before < 0)[0])
    text = np.frombuffer(data, np.uint8)
    return text[np.delete(before, start)].tobytes(), start


def suffix_array(data: bytes) -> Places:
    """Return the beginnings of all suffixes, the empty one included, in sorted order.

    By prefix doubling: ranks by the first h symbols give ranks by the first 2h.
    """
    size = len(data) + 1
    # Ranking by the first few symbols at once saves the first rounds of doubling.
    symbols = np.zeros(len(data) + _PACKED, np.int64)
    symbols[: len(data)] = np.frombuffer(data, np.uint8).astype(np.int64) + 1
    ranks, known = np.zeros(size, np.int64), _PACKED
    for i in range(_PACKED):
        ranks = ranks * 257 + symbols[i : i + size]
    while True:
        order = np.argsort(ranks, kind="stable")
        in_order = ranks[order]
        dense = np.concatenate(([0], np.cumsum(in_order[1:] != in_order[:-1])))
        if dense[-1] == size - 1:
            return order
        ranks[order] = dense
        ahead = ranks[known:] + 1
        ranks *= size + 1
        ranks[: len(ahead)] += ahead
        known *= 2
