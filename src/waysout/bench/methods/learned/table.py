"""The known rows as what a model is trained on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waysout.domain.known import Known, PerData, check_lengths
from waysout.domain.schema import Schema
from waysout.errors import InputError

FEWEST_PER_OUTCOME = 2


@dataclass(frozen=True)
class TrainingTable:
    """Encoded rows (see `Schema.encode`), which of them were approved, and a hash of it all."""

    schema: Schema
    matrix: NDArray[np.float64]
    labels: NDArray[np.bool_]
    sha256: str

    def __len__(self) -> int:
        return len(self.matrix)


def _table(known: Known, schema: Schema) -> TrainingTable:
    check_lengths(known)
    matrix, labels = schema.encode(known.rows), np.asarray(known.labels, dtype=np.bool_)
    features = [(f.name, f.kind, f.level_texts, f.ordered, f.decimals) for f in schema]
    digest = hashlib.sha256(json.dumps(features).encode())
    digest.update(matrix.astype("<f8").tobytes())
    digest.update(labels.tobytes())
    return TrainingTable(schema, matrix, labels, digest.hexdigest())


training_table = PerData(_table)
"""Return the table of some data, made once."""


def check_table(name: str, table: TrainingTable) -> None:
    """Raise `InputError` unless there is something to learn from."""
    yes = int(table.labels.sum())
    for count, outcome in ((yes, "approved"), (len(table) - yes, "rejected")):
        if count < FEWEST_PER_OUTCOME:
            raise InputError(
                f"{name} learns from rows of both outcomes, and your data has {count} {outcome}: "
                f"give it at least {FEWEST_PER_OUTCOME} of each (data=…, --data)"
            )
