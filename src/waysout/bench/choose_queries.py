"""Drawing the query rows of a data set, to be stored in `waysout.datasets.queries`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np

from waysout.datasets.load import SEED, Dataset, split
from waysout.datasets.manifest import load_oracle, load_oracle_model
from waysout.datasets.queries import QUERIES, QueryList
from waysout.errors import InputError, IntegrityError


def choose_queries(
    dataset: Dataset,
    oracle: str | Path,
    *,
    n: int = QUERIES,
    seed: int = SEED,
    without: Collection[int] = (),
) -> QueryList:
    """Draw queries from the held-out rows that a trained oracle rejects, but for some of them."""
    model, manifest = load_oracle_model(oracle)
    if manifest.data_sha256 != dataset.sha256:
        raise IntegrityError(f"the oracle in {model.parent} was trained on another table")
    _, held_out = split(dataset, manifest.seed)
    answers = load_oracle(dataset.card, oracle).ask([dataset.rows[i] for i in held_out])
    rejected = held_out[~answers.decision & ~np.isin(held_out, list(without))]
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
