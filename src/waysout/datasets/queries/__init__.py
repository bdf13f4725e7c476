"""The query rows of each data set: 30 held-out rows that its oracle rejects.

The lists are stored beside this file, so that every experiment starts from the same people; they
hold row numbers, never data. `choose_queries` made them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from waysout.datasets import registry
from waysout.datasets.load import Dataset
from waysout.datasets.manifest import load_oracle, load_oracle_model
from waysout.datasets.split import SEED, split
from waysout.errors import InputError, IntegrityError

QUERIES = 30


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


def query_list(name: str) -> QueryList:
    """Return the stored list of a data set."""
    registry.info(name)
    text = (resources.files(__name__) / f"{name}.json").read_text("utf-8")
    table = json.loads(text)
    return QueryList(**(table | {"rows": tuple(table["rows"])}))


def queries(name: str) -> list[int]:
    """Return the row numbers of a data set's queries, counted from 0, in the order drawn."""
    return list(query_list(name).rows)


def choose_queries(
    dataset: Dataset, oracle: str | Path, *, n: int = QUERIES, seed: int = SEED
) -> QueryList:
    """Draw queries from the held-out rows that a trained oracle rejects."""
    model, manifest = load_oracle_model(oracle)
    if manifest.data_sha256 != dataset.sha256:
        raise IntegrityError(f"the oracle in {model.parent} was trained on another table")
    _, held_out = split(dataset, manifest.seed)
    answers = load_oracle(dataset.card, oracle).ask([dataset.rows[i] for i in held_out])
    rejected = held_out[~answers.decision]
    if len(rejected) < n:
        raise InputError(f"the oracle rejects {len(rejected)} held-out rows, fewer than {n}")
    rows = np.random.default_rng(seed).choice(rejected, size=n, replace=False)
    return QueryList(
        name=dataset.name,
        seed=seed,
        n=n,
        rows=tuple(int(row) for row in rows),
        oracle_sha256=manifest.model_sha256,
        accuracy=manifest.accuracy,
        lightgbm=manifest.versions["lightgbm"],
    )
