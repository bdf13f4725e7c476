"""The one split of a data set: 80 % to train on, 20 % held out, stratified by outcome."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.datasets.load import Dataset
from waysout.domain.schema import Row
from waysout.errors import MissingExtra, TableError

SEED = 42
HELD_OUT = 0.2
# Fewer leave a fold of the search or the held-out part without one of the two classes.
FEWEST_PER_CLASS = 15

Indices = NDArray[np.int64]


def split(dataset: Dataset, seed: int = SEED) -> tuple[Indices, Indices]:
    """Return the row indices to train on and those held out, both in rising order."""
    try:
        from sklearn.model_selection import train_test_split
    except ImportError:
        raise MissingExtra("scikit-learn", "train") from None
    rarer = min(dataset.positives, len(dataset) - dataset.positives)
    if rarer < FEWEST_PER_CLASS:
        raise TableError(
            f"{dataset.source}: one outcome has only {rarer} rows; "
            f"to train, both need at least {FEWEST_PER_CLASS}"
        )
    parts: list[Any] = train_test_split(
        np.arange(len(dataset)), test_size=HELD_OUT, stratify=dataset.labels, random_state=seed
    )
    train, held_out = (np.sort(part).astype(np.int64) for part in parts)
    return train, held_out


def training_rows(dataset: Dataset, seed: int = SEED) -> list[Row]:
    """Return the rows an oracle was trained on, to measure distances by."""
    train, _ = split(dataset, seed)
    return [dataset.rows[i] for i in train]


def indices_sha256(indices: Indices) -> str:
    """Return a fingerprint of a list of row indices, to tell whether two splits are the same."""
    return hashlib.sha256(",".join(map(str, indices)).encode()).hexdigest()
