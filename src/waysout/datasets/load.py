"""A table with its card: typed rows, and for each whether the outcome was a yes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from waysout.datasets import registry
from waysout.datasets.table import Table, read_table
from waysout.domain.card import Card
from waysout.domain.schema import Row
from waysout.errors import IntegrityError, RowError, TableError, unknown


@dataclass(frozen=True)
class Dataset:
    """Rows and labels, as a card reads them; ``sha256`` is that of the file they came from."""

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


def load_dataset(name: str, *, fetch: bool = True) -> Dataset:
    """Load a data set by name, verified, downloading it first where it is not here.

    With ``fetch=False`` nothing is downloaded; what is not here raises `DataUnavailable`.
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
        raise TableError(
            f"{source}, column {target!r}: {unknown('positive value', positive, seen)}"
        )
    rows = card.schema.parse_many(table.records)
    return Dataset(card, tuple(rows), tuple(labels), source, table.sha256)
