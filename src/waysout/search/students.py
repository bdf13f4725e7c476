"""Students: small models of the labels in a table, the first guess at what the oracle will say.

They are learned once per table from rows whose outcome is known, and cost no oracle rows. A search
corrects them by the oracle's answers, so a student of other labels than the oracle's costs little.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.domain.known import Known, PerData, check_lengths
from waysout.domain.schema import Schema

Matrix = NDArray[np.float64]

STUDENTS = 6
_MOST_ROWS = 12_000
_FEWEST_ROWS = 40
_ROUNDS, _LEAVES, _RATE = 60, 16, 0.12


class Students:
    """A few models of the same labels, each of another sample of the rows."""

    def __init__(self, models: list[Any], columns: list[int]) -> None:
        self._models = models
        self._columns = columns

    def logits(self, encoded: Matrix) -> Matrix:
        """Return the logit of a yes for encoded rows, a column for each student."""
        known = encoded[:, self._columns]
        found = [model.predict(known, raw_score=True, num_threads=1) for model in self._models]
        return np.array(found).T.reshape(len(encoded), len(self._models))


@PerData
def students_of(known: Known, schema: Schema) -> Students | None:
    """Return the students of some labels; ``None`` where the labels or the package do not allow it.

    Without LightGBM a search starts from no guess, and works all the same.
    """
    check_lengths(known)
    labels = np.asarray(known.labels, dtype=np.bool_)
    if len(labels) < _FEWEST_ROWS or labels.all() or not labels.any():
        return None
    try:
        import lightgbm
    except ImportError:
        return None
    rng, rows = np.random.default_rng(0), known.rows
    drawn = np.arange(len(rows))
    if len(rows) > _MOST_ROWS:
        drawn = np.sort(rng.choice(len(rows), _MOST_ROWS, replace=False))
    # What is opaque is a constant, of which a student would only draw other columns.
    columns = [i for i, f in enumerate(schema) if not f.is_opaque]
    encoded = schema.encode([rows[i] for i in drawn.tolist()])[:, columns]
    kinds, wanted = [schema.features[i] for i in columns], labels[drawn]
    categories = [i for i, f in enumerate(kinds) if not (f.is_numeric or f.ordered)]
    models = []
    for seed in range(STUDENTS):
        sample = rng.integers(len(drawn), size=len(drawn))
        if wanted[sample].all() or not wanted[sample].any():
            continue
        settings = {
            "objective": "binary", "num_leaves": _LEAVES, "learning_rate": _RATE, "seed": seed,
            "min_data_in_leaf": max(1, min(20, len(drawn) // 40)), "feature_fraction": 0.8,
            # A category of many levels has few rows for each.
            "min_data_per_group": 5, "cat_smooth": 3.0, "cat_l2": 3.0,
            "num_threads": 1, "deterministic": True, "force_row_wise": True, "verbosity": -1,
        }  # fmt: skip
        data = lightgbm.Dataset(
            encoded[sample], wanted[sample].astype(np.float64), categorical_feature=categories,
            params={"verbosity": -1},
        )  # fmt: skip
        models.append(lightgbm.train(settings, data, _ROUNDS))
    return Students(models, columns) if models else None
