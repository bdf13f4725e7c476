from __future__ import annotations

import pytest
from dataset_helpers import REAL, real_dataset

from waysout.datasets import registry
from waysout.datasets.load import load_dataset, split
from waysout.datasets.queries import QUERIES, queries, query_list
from waysout.errors import InputError

NAMES = ("synthetic", *REAL)


@pytest.mark.parametrize("name", NAMES)
def test_thirty_distinct_rows_of_the_table(name: str) -> None:
    stored = query_list(name)
    assert (stored.name, stored.n, stored.seed) == (name, QUERIES, 42)
    assert queries(name) == list(stored.rows)
    assert len(set(stored.rows)) == QUERIES
    assert all(0 <= row < registry.info(name).rows for row in stored.rows)


@pytest.mark.parametrize("name", NAMES)
def test_thirty_others_of_the_same_oracle(name: str) -> None:
    stored, others = query_list(name), query_list(name, "others")
    assert len(set(others.rows)) == others.n == QUERIES
    assert not set(stored.rows) & set(others.rows)
    assert others.oracle_sha256 == stored.oracle_sha256
    assert queries(name, "others") == list(others.rows)


@pytest.mark.parametrize("name", NAMES)
def test_queries_are_held_out(name: str) -> None:
    pytest.importorskip("sklearn")
    data = load_dataset(name, fetch=False) if name == "synthetic" else real_dataset(name)
    _, held_out = split(data)
    assert {*queries(name), *queries(name, "others")} <= set(held_out.tolist())


def test_unknown_name() -> None:
    with pytest.raises(InputError, match="unknown data set 'lone'"):
        queries("lone")
