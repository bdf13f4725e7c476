"""Re-Pair: a grammar made by replacing the most frequent pair of neighbours, again and again.

Every round gives the pair that occurs most often (left to right, without overlap; of equals the
one of the lowest symbols) a new symbol and a rule, until no pair occurs twice. One more key like
the others becomes a few symbols.

The encoding, in the codes of `bits`:

1. gamma(s + 1) for the length s of the final sequence; an empty text ends here,
2. the alphabet, of σ byte values, which are the symbols 0…σ−1, and gamma(r + 1) for the r rules,
3. the left sides: rules are numbered from σ so that these never fall (see `_renumbered`), and it is
   enough to say after each symbol how many rules begin with it: a 1 for each rule, then a 0,
4. the right sides, in order of the rules, and then the final sequence, each below(σ + r).

The size is that of these bits, rounded up to whole bytes.
"""

from __future__ import annotations

import heapq
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from typing import NamedTuple

from waysout.search.compress.base import Compressor
from waysout.search.compress.bits import BitWriter


class Grammar(NamedTuple):
    """A text as symbols. 0…σ−1 stand for the alphabet's bytes, σ + i for the pair of rule i."""

    alphabet: list[int]
    rules: list[tuple[int, int]]
    sequence: list[int]


class RePair(Compressor):
    """A grammar of pairs and what is left of the text."""

    name = "repair"

    def compress(self, data: bytes) -> bytes:
        """Return ``data``, compressed."""
        bits = BitWriter()
        alphabet, rules, sequence = _renumbered(data, *pair_up(data))
        bits.gamma(len(sequence) + 1)
        if not data:
            return bits.packed()
        symbols = len(alphabet) + len(rules)
        bits.alphabet(alphabet)
        bits.gamma(len(rules) + 1)
        begins = Counter(left for left, _ in rules)
        for symbol in range(symbols):
            for _ in range(begins[symbol]):
                bits.flag(True)
            bits.flag(False)
        for symbol in [right for _, right in rules] + sequence:
            bits.below(symbol, symbols)
        return bits.packed()


def pair_up(data: bytes) -> tuple[list[str], str]:
    """Return the pairs, in the order in which they were replaced, and what remains.

    Symbols are characters, so that finding and replacing pairs is left to `str`: a byte is the
    character of its number, the i-th pair becomes character 256 + i.

    >>> pairs, rest = pair_up(b"abcabcab")
    >>> pairs, [ord(symbol) for symbol in rest]
    (['ab', 'cĀ'], [256, 257, 257])
    """
    text = data.decode("latin-1")
    pairs: list[str] = []
    counts = Counter(map("".join, pairwise(text)))
    # A pair's count only ever falls, so an entry is never too low; it is mended when it comes up.
    queue = [(-count, pair) for pair, count in counts.items() if count > 1]
    heapq.heapify(queue)
    while queue and len(pairs) < sys.maxunicode - 255:
        expected, pair = heapq.heappop(queue)
        pieces = text.split(pair)
        count = len(pieces) - 1
        if 1 < count < -expected:
            heapq.heappush(queue, (-count, pair))
        elif count > 1:
            symbol = chr(256 + len(pairs))
            pairs.append(pair)
            text = symbol.join(pieces)
            # The pairs that the new symbol makes between the pieces; counted never too few.
            made = Counter([(piece[-1:] or symbol) + symbol for piece in pieces[:-1]])
            made.update([symbol + piece[0] for piece in pieces[1:] if piece])
            for new, times in made.items():
                if times > 1:
                    heapq.heappush(queue, (-times, new))
    return pairs, text


def _renumbered(data: bytes, pairs: list[str], rest: str) -> Grammar:
    """Number the bytes in rising order and the rules so that their left sides never fall.

    Rules form trees in which a rule hangs below its left side; numbered breadth first, they stand
    in the order of their parents. A right side may then be a rule with a higher number.
    """
    alphabet = sorted(set(data))
    below: defaultdict[str, list[int]] = defaultdict(list)
    for i, pair in enumerate(pairs):
        below[pair[0]].append(i)
    order = [chr(byte) for byte in alphabet]
    made: list[str] = []
    for parent in order:  # which grows on the way
        made += [pairs[i] for i in below[parent]]
        order += [chr(256 + i) for i in below[parent]]
    number = {symbol: i for i, symbol in enumerate(order)}
    rules = [(number[pair[0]], number[pair[1]]) for pair in made]
    return Grammar(alphabet, rules, [number[symbol] for symbol in rest])
