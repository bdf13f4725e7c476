"""The cache: exact, counted, bounded, safe in threads."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from waysout.domain.oracle import Answers
from waysout.domain.schema import Row
from waysout.errors import OracleError
from waysout.oracles.cache import CachedOracle
from waysout.oracles.probe import check_oracle


class Counting:
    """Answers with the row's own number and remembers what it was asked."""

    name = "counting"
    labels_only = False

    def __init__(self) -> None:
        self.seen: list[list[Row]] = []

    def ask(self, rows: Sequence[Row]) -> Answers:
        self.seen.append(list(rows))
        p = np.array([float(row[0] or 0) / 100 for row in rows], dtype=np.float64)
        return Answers(p, p >= 0.5)


def rows(*numbers: float) -> list[Row]:
    return [(float(n), "x") for n in numbers]


def test_only_unseen_rows_are_asked_once() -> None:
    inner = Counting()
    cache = CachedOracle(inner)
    assert cache.ask(rows(1, 60, 1)).probability.tolist() == [0.01, 0.6, 0.01]
    answers = cache.ask(rows(60, 2, 1, 2))
    assert answers.probability.tolist() == [0.6, 0.02, 0.01, 0.02]
    assert answers.decision.tolist() == [True, False, False, False]
    assert inner.seen == [rows(1, 60), rows(2)]
    assert (cache.asked, cache.batches, cache.hits) == (3, 2, 4)
    assert (cache.name, cache.labels_only) == ("counting", False)


def test_what_was_answered_before_is_not_asked() -> None:
    inner = Counting()
    cache = CachedOracle(inner, max_rows=3)
    cache.ask(rows(1))
    cache.remember({rows(1)[0]: (0.9, True), rows(2)[0]: (0.02, False)})
    assert cache.ask(rows(1, 2)).probability.tolist() == [0.01, 0.02]  # its own word counts more
    assert inner.seen == [rows(1)]
    cache.remember(dict.fromkeys(rows(3, 4, 5), (0.5, True)))
    cache.ask(rows(1))
    assert inner.seen == [rows(1), rows(1)]  # as bounded as ever


def test_nothing_to_ask() -> None:
    cache = CachedOracle(Counting())
    assert len(cache.ask([])) == 0
    cache.ask(rows(1))
    cache.ask(rows(1))
    assert cache.batches == 1
    check_oracle(cache, rows(1, 2, 3))


def test_the_row_unused_for_longest_is_forgotten() -> None:
    inner = Counting()
    cache = CachedOracle(inner, max_rows=2)
    cache.ask(rows(1, 2))
    cache.ask(rows(1))
    cache.ask(rows(3))
    assert cache.ask(rows(1, 3)).probability.tolist() == [0.01, 0.03]
    assert cache.asked == 3
    cache.ask(rows(2))
    assert cache.asked == 4
    assert len(cache.ask(rows(*range(9)))) == 9  # a batch may be larger than the memory


def test_threads_never_pay_twice() -> None:
    cache = CachedOracle(Counting())
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: cache.ask(rows(i % 5, 9)), range(64)))
    assert cache.asked == 6
    assert cache.asked + cache.hits == 128
    assert all(r.probability[0] == (i % 5) / 100 for i, r in enumerate(results))


def test_a_failed_batch_is_not_remembered() -> None:
    class Broken(Counting):
        def ask(self, rows: Sequence[Row]) -> Answers:
            super().ask(rows)
            return Answers(np.zeros(1), np.zeros(1, dtype=bool))

    cache = CachedOracle(Broken())
    for _ in range(2):
        with pytest.raises(OracleError, match="asked for 2 rows"):
            cache.ask(rows(1, 2))
    assert (cache.asked, cache.hits) == (0, 0)
