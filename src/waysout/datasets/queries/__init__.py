"""The query rows of each data set: 30 held-out rows that its oracle rejects, and 30 others.

The lists are stored beside this file, so that every experiment starts from the same people; they
hold row numbers, never data, so that another version of LightGBM, which trains a slightly
different model, changes nothing. `waysout.bench.choose_queries` made them. The *others* are for
reporting what was chosen on the first list.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Literal

from waysout.datasets import registry

QUERIES = 30
QuerySet = Literal["stored", "others"]
_ENDINGS = {"stored": "", "others": "-others"}


@dataclass(frozen=True, kw_only=True)
class QueryList:
    """Which rows of a table are queries (counted from 0), and the oracle that rejected them."""

    name: str
    seed: int
    n: int
    rows: tuple[int, ...]
    oracle_sha256: str
    accuracy: float
    lightgbm: str

    def to_json(self) -> str:
        """Write the list as it is stored."""
        return json.dumps(asdict(self), indent=2) + "\n"


@cache  # a plan asks for them for each of its arms
def query_list(name: str, which: QuerySet = "stored") -> QueryList:
    """Return one of the two lists of a data set."""
    registry.info(name)
    text = (resources.files(__name__) / f"{name}{_ENDINGS[which]}.json").read_text("utf-8")
    table = json.loads(text)
    return QueryList(**(table | {"rows": tuple(table["rows"])}))


def queries(name: str, which: QuerySet = "stored") -> list[int]:
    """Return the row numbers of a data set's queries, counted from 0, in the order drawn."""
    return list(query_list(name, which).rows)
