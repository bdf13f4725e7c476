"""Decoders of the compressors: they prove that sizes are those of encodings that can be undone."""

from __future__ import annotations

import gzip

import numpy as np

from waysout.search.compress.bits import truncated
from waysout.search.compress.repair import Grammar


def decompress(name: str, data: bytes) -> bytes:
    """Return what the compressor of this name was given."""
    if name == "gzip":
        return gzip.decompress(data)
    bits = BitReader(data)
    length = bits.gamma() - 1
    if not length:
        return b""
    if name == "repair":
        return _expanded(_read(bits, length))
    alphabet = bits.alphabet()
    start = bits.below(length + 1)
    return restore(_read_runs(bits, alphabet, length), start)


class BitReader:
    """Reads what a `BitWriter` packed, in the same order."""

    def __init__(self, data: bytes) -> None:
        self._bits = f"{int.from_bytes(data, 'big'):0{8 * len(data)}b}"
        self._at = 0

    def flag(self) -> bool:
        """Read one bit."""
        return self._take(1) == 1

    def gamma(self) -> int:
        """Read a number ≥ 1."""
        zeros = self._bits.index("1", self._at) - self._at
        self._at += zeros
        return self._take(zeros + 1)

    def below(self, limit: int) -> int:
        """Read a number in 0…limit−1."""
        width, short = truncated(limit)
        number = self._take(width)
        return number if number < short else 2 * number + self._take(1) - short

    def alphabet(self) -> list[int]:
        """Read byte values in rising order."""
        symbols: list[int] = []
        for _ in range(self.below(256) + 1):
            symbols.append((symbols[-1] if symbols else -1) + self.gamma())
        return symbols

    def _take(self, width: int) -> int:
        taken = self._bits[self._at : self._at + width]
        self._at += width
        return int(taken or "0", 2)


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


def _read(bits: BitReader, length: int) -> Grammar:
    alphabet = bits.alphabet()
    count = bits.gamma() - 1
    symbols = len(alphabet) + count
    left: list[int] = []
    for symbol in range(symbols):
        while bits.flag():
            left.append(symbol)
    rules = [(symbol, bits.below(symbols)) for symbol in left]
    return Grammar(alphabet, rules, [bits.below(symbols) for _ in range(length)])


def _expanded(grammar: Grammar) -> bytes:
    alphabet, rules, sequence = grammar
    text, waiting = bytearray(), sequence[::-1]
    while waiting:
        symbol = waiting.pop()
        if symbol < len(alphabet):
            text.append(alphabet[symbol])
        else:
            left, right = rules[symbol - len(alphabet)]
            waiting += (right, left)
    return bytes(text)


def _read_runs(bits: BitReader, alphabet: list[int], length: int) -> bytes:
    column, unit = bytearray(), bits.gamma()
    previous = len(alphabet)
    while len(column) < length:
        own = bits.below(len(alphabet) - (previous < len(alphabet)))
        own += own >= previous
        column += bytes([alphabet[own]]) * ((unit if bits.flag() else 1) * bits.gamma())
        previous = own
    return bytes(column)
