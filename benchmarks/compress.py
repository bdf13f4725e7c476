"""What pruning by compression costs for each candidate, as ratios within one run.

    .venv/bin/python benchmarks/compress.py

The keys are made from the Loan card alone: chains of single random edits, so that neighbours differ
in a few places, as in a search. Absolute times are this machine's; the ratios are what to compare.
"""

from __future__ import annotations

import random

from timing import seconds

from waysout.datasets import registry
from waysout.domain.key import Key
from waysout.domain.schema import Feature, Row, Value
from waysout.search.compress import History, compressor

CHAIN = 5  # edits before a chain begins again at the query: a tree's depth


def some_value(feature: Feature, rng: random.Random) -> Value:
    """Return any value in a feature's domain."""
    if feature.range is None:
        return rng.choice(feature.values())
    low, high = feature.range
    return rng.randint(int(low), int(high))


def loan_keys(count: int) -> list[str]:
    """Return keys of rows along chains of single edits."""
    card, rng = registry.card("loan"), random.Random(0)
    key, features = Key(card.schema, card.bins), list(card.schema)
    query: Row = tuple(some_value(feature, rng) for feature in features)
    row, keys = query, list[str]()
    for i in range(count):
        at = rng.randrange(len(features))
        row = query if i % CHAIN == 0 else row
        row = (*row[:at], some_value(features[at], rng), *row[at + 1 :])
        keys.append(key(row))
    return keys


def going_on(keys: list[str], candidate: str) -> None:
    """Compare gzip that goes on from the history with gzip from scratch."""
    gzip = compressor("gzip")
    for count in (10, 100, 1000, 5000):
        history = History(gzip, keys[:count])
        history.gain(candidate)  # the history's own size is found once, not for each candidate
        whole = "\n".join([*keys[:count], candidate]).encode()
        going = seconds(lambda h=history: h.gain(candidate))  # type: ignore[misc]
        scratch = seconds(lambda w=whole: gzip.size(w))  # type: ignore[misc]
        print(f"gzip, {count:>5} keys: {going * 1e6:>4.0f} µs a candidate, "
              f"{scratch / going:.1f} × faster than from scratch")  # fmt: skip


def building(keys: list[str]) -> None:
    """Show what it costs to make the short history of a path anew."""
    gzip = compressor("gzip")
    path = seconds(lambda: History(gzip, keys[:6]))
    print(f"gzip, a history of 6 keys: made in {path * 1e6:.1f} µs")


def others(keys: list[str]) -> None:
    """Compare the sizes of the other compressors with gzip's, from scratch."""
    gzip = compressor("gzip")
    for count in (1, 10, 150):
        text = "\n".join(keys[:count]).encode()
        yardstick = seconds(lambda t=text: gzip.size(t))  # type: ignore[misc]
        for c in (compressor("rlbwt"), compressor("repair")):
            own = seconds(lambda c=c, t=text: c.size(t))  # type: ignore[misc]
            print(f"{c.name}, {count:>3} keys: {own * 1e3:>5.1f} ms, {own / yardstick:.0f} × gzip; "
                  f"{c.size(text)} bytes, gzip {gzip.size(text)}")  # fmt: skip


if __name__ == "__main__":
    made = loan_keys(5001)
    going_on(made[:-1], made[-1])
    building(made)
    others(made)
