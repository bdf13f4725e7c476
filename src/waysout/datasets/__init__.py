"""Data sets: tables with their cards, where they come from, and the oracles trained on them.

`table` reads files, `load` puts a card to a table, `registry` knows the data sets by name, `train`
makes an oracle, and `queries` names the rows that experiments start from.
"""

from waysout.datasets.load import Dataset, labelled, load_dataset
from waysout.datasets.table import Table, read_table

__all__ = ["Dataset", "Table", "labelled", "load_dataset", "read_table"]
