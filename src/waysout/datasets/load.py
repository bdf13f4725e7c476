"""A table with its card: typed rows, and for each whether the outcome was a yes.

There is one split of a data set: 80 % to train on, 20 % held out, stratified by outcome.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waysout.datasets import registry
from waysout.datasets.table import Table, read_table
from waysout.domain.card import Card
from waysout.domain.schema import Row
from waysout.errors import IntegrityError, MissingExtra, RowError, TableError, unknown

if TYPE_CHECKING:
    import pandas as pd

SEED = 42
HELD_OUT = 0.2
# Fewer leave a fold of the search or the held-out part without one of the two classes.
FEWEST_PER_CLASS = 15

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Dataset:
    """Rows and labels, as a card reads them; ``sha256`` is that of the file they came from.

    Those that come with Waysout are loaded by `load_dataset`. One of your own, from a card and
    records (mappings, such as the rows of a CSV file):

    >>> import waysout
    >>> card = waysout.Card.parse('''
    ... card = 1
    ... name = "loans"
    ... outcome = { target = "repaid", positive = 1 }
    ... features.income = { kind = "integer", range = [0, 200000] }
    ... ''')
    >>> records = [{"income": "21000", "repaid": "0"}, {"income": "54000", "repaid": "1"}]
    >>> rows = card.schema.parse_many(records)
    >>> labels = [card.is_positive(record["repaid"]) for record in records]
    >>> data = waysout.Dataset(card, tuple(rows), tuple(labels))
    >>> len(data), data.positives
    (2, 1)
    """

    card: Card
    rows: tuple[Row, ...]
    labels: tuple[bool, ...]
    source: str = "table"
    sha256: str = ""

    @property
    def name(self) -> str:
        """The card's name."""
        return self.card.name

    @property
    def positives(self) -> int:
        """How many labels are a yes."""
        return sum(self.labels)

    def __len__(self) -> int:
        return len(self.rows)

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a data frame, in the table's own spelling, without the labels.

        >>> load_dataset("synthetic").to_frame().shape
        (2000, 11)
        """
        import pandas as pd

        return pd.DataFrame([self.card.schema.raw(row) for row in self.rows])


def load_dataset(name: str, *, fetch: bool = True) -> Dataset:
    """Load a data set by name, verified, downloading it first where it is not here.

    With ``fetch=False`` nothing is downloaded; what is not here raises `DataUnavailable`.

    >>> import waysout
    >>> data = waysout.load_dataset("synthetic")  # made here; needs no download
    >>> len(data), data.positives, data.card.outcome.positive
    (2000, 910, 'approved')
    """
    known = registry.info(name)
    table = read_table(registry.get(name) if fetch else registry.need(name))
    dataset = labelled(registry.card(name), table)
    found = (len(dataset), dataset.positives, len(dataset.card.schema))
    wanted = (known.rows, known.positives, known.features)
    if found != wanted:
        raise IntegrityError(
            f"the {name} table read with its card has {found[0]:,} rows, {found[1]:,} positives "
            f"and {found[2]} features; {wanted[0]:,}, {wanted[1]:,} and {wanted[2]} were expected"
        )
    return dataset


def labelled(card: Card, table: Table) -> Dataset:
    """Read a table as its card says; an error names the zero-based row and the column."""
    target, positive, source = card.outcome.target, card.outcome.positive, table.source
    if target not in table.columns:
        raise TableError(f"{source}: target: {unknown('column', target, table.columns)}")
    labels = []
    for i, record in enumerate(table.records):
        raw = record[target]
        blank = isinstance(raw, str) and not raw.strip()
        if raw is None or blank or (isinstance(raw, float) and math.isnan(raw)):
            raise RowError("the label is missing; leave such rows out", column=target, row=i)
        labels.append(card.is_positive(raw))
    if not labels:
        raise TableError(f"{source} has no rows")
    if all(labels):
        raise TableError(f"{source}: {target} is {positive!r} in every row, so no row was refused")
    if not any(labels):
        seen = sorted({str(record[target]) for record in table.records})
        reason = unknown("positive value", positive, seen)
        raise TableError(f"{source}, column {target!r}: {reason}")
    rows = card.schema.parse_many(table.records)
    return Dataset(card, tuple(rows), tuple(labels), source, table.sha256)


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
