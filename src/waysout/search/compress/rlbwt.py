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
from waysout.search.compress.bits import BitReader, BitWriter

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
            _write_runs(bits, alphabet, transformed)
        return bits.packed()

    def decompress(self, data: bytes) -> bytes:
        """Return what `compress` was given."""
        bits = BitReader(data)
        length = bits.gamma() - 1
        if not length:
            return b""
        alphabet = bits.alphabet()
        start = bits.below(length + 1)
        return restore(_read_runs(bits, alphabet, length), start)


def transform(data: bytes) -> tuple[bytes, int]:
    """Return the byte before each suffix, sorted, and where the suffix without one stands.

    >>> transform(b"banana")
    (b'annbaa', 4)
    """
    before = suffix_array(data) - 1
    start = int(np.flatnonzero(before < 0)[0])
    text = np.frombuffer(data, np.uint8)
    return text[np.delete(before, start)].tobytes(), start


def restore(transformed: bytes, start: int) -> bytes:
    """Return the text that was transformed.

    >>> restore(b"annbaa", 4)
    b'banana'
    """
    # The end of the text, a symbol below all bytes, stands before the whole text.
    last = np.insert(np.frombuffer(transformed, np.uint8).astype(np.int16) + 1, start, 0)
    # The k-th x of the transform is the k-th x among the suffixes' first symbols: sorting the
    # transform stably leads from each suffix to the one that follows it in the text.
    following = np.argsort(last, kind="stable").tolist()
    places, place = [], start
    for _ in transformed:
        place = following[place]
        places.append(place)
    return (last[places] - 1).astype(np.uint8).tobytes()


def suffix_array(data: bytes) -> Places:
    """Return the beginnings of all suffixes, the empty one included, in sorted order.

    By prefix doubling: ranks by the first h symbols give ranks by the first 2h.
    """
    size = len(data) + 1
    ranks, known = _packed_ranks(data), _PACKED
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


def _packed_ranks(data: bytes) -> Places:
    """Rank suffixes by their first few symbols at once: it saves the first rounds of doubling."""
    symbols = np.zeros(len(data) + _PACKED, np.int64)
    symbols[: len(data)] = np.frombuffer(data, np.uint8).astype(np.int64) + 1
    ranks = np.zeros(len(data) + 1, np.int64)
    for i in range(_PACKED):
        ranks = ranks * 257 + symbols[i : i + len(ranks)]
    return ranks


def _write_runs(bits: BitWriter, alphabet: list[int], transformed: bytes) -> None:
    column = np.frombuffer(transformed, np.uint8)
    starts = np.flatnonzero(np.concatenate(([True], column[1:] != column[:-1])))
    lengths = np.diff(starts, append=len(column)).tolist()
    unit = _unit(lengths)
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


def _unit(lengths: list[int]) -> int:
    """Return the most common length above 1, of equals the shortest; 1 if there is none.

    >>> _unit([1, 1, 1, 6, 3, 3, 6])
    3
    """
    counts = Counter(length for length in lengths if length > 1)
    return min(counts, key=lambda length: (-counts[length], length), default=1)


def _read_runs(bits: BitReader, alphabet: list[int], length: int) -> bytes:
    column, unit = bytearray(), bits.gamma()
    previous = len(alphabet)
    while len(column) < length:
        own = bits.below(len(alphabet) - (previous < len(alphabet)))
        own += own >= previous
        column += bytes([alphabet[own]]) * ((unit if bits.flag() else 1) * bits.gamma())
        previous = own
    return bytes(column)
