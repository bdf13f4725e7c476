"""Codes for whole numbers, in bits, and the bytes they are packed into.

- *flag*: one bit.
- *gamma* (Elias): a number ≥ 1 in 2⌊log₂ x⌋ + 1 bits, so that small numbers are short.
- *below*: a number in 0…limit−1 in ⌊log₂ limit⌋ or one more bits (truncated binary), so that a
  limit just over a power of two does not make every number a whole bit longer.
- *alphabet*: which byte values occur, as the gaps between them.

The last byte is filled up with zeros; a reader knows from what it reads where the end is.
"""

from __future__ import annotations

from collections.abc import Sequence


class BitWriter:
    """Collects bits.

    >>> bits = BitWriter()
    >>> bits.gamma(5), bits.below(2, 3), len(bits)
    (None, None, 7)
    >>> bits.packed().hex()
    '2e'
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def __len__(self) -> int:
        return sum(map(len, self._pieces))

    def flag(self, value: bool) -> None:
        """Write one bit."""
        self._pieces.append("1" if value else "0")

    def gamma(self, number: int) -> None:
        """Write a number ≥ 1: as many zeros as it has bits after the first, then its bits."""
        digits = f"{number:b}"
        self._pieces.append("0" * (len(digits) - 1) + digits)

    def below(self, number: int, limit: int) -> None:
        """Write a number that the reader knows to lie in 0…limit−1."""
        width, short = truncated(limit)
        if number >= short:
            number, width = number + short, width + 1
        if width:
            self._pieces.append(f"{number:0{width}b}")

    def alphabet(self, symbols: Sequence[int]) -> None:
        """Write at least one and at most 256 different byte values, in rising order."""
        self.below(len(symbols) - 1, 256)
        previous = -1
        for symbol in symbols:
            self.gamma(symbol - previous)
            previous = symbol

    def packed(self) -> bytes:
        """Return the bits as bytes, the last one filled up with zeros."""
        bits = "".join(self._pieces)
        size = (len(bits) + 7) // 8
        return int(bits.ljust(8 * size, "0") or "0", 2).to_bytes(size, "big")


def truncated(limit: int) -> tuple[int, int]:
    """Return the width of the short codes and how many numbers get one."""
    width = limit.bit_length() - 1
    return width, 2 ** (width + 1) - limit
