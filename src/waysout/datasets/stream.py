"""Reading a table record by record: a file of any length takes no more memory than a short one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from waysout.datasets.table import opened, read_records
from waysout.errors import TableError
from waysout.files import file_sha256

_TELL_EVERY = 10_000


@dataclass(frozen=True, slots=True)
class RowStream:
    """The records of a file, the same that `read_table` gives; each iteration reads it anew."""

    path: Path
    columns: tuple[str, ...]

    @property
    def source(self) -> str:
        """Where the records come from, for messages."""
        return str(self.path)

    def __iter__(self) -> Iterator[Mapping[str, object]]:
        _, records = read_records(partial(opened, self.path), self.source)
        return records


def open_stream(path: str | Path) -> RowStream:
    """Read the header of a CSV file (also gzipped) or of a Parquet file; its records can follow."""
    if Path(path).is_fifo():
        raise TableError(f"{path} is a pipe, which can be read only once: save it as a file first")
    columns, _ = read_records(partial(opened, path), str(path))
    return RowStream(Path(path), columns)


@dataclass(frozen=True, slots=True)
class Survey:
    """What one pass over a file tells; ``sample`` are records with their numbers, in order."""

    rows: int
    sha256: str
    sample: list[tuple[int, Mapping[str, object]]]


def survey(
    stream: RowStream, *, most: int = 20_000, tell: Callable[[int], None] | None = None
) -> Survey:
    """Read a file once from end to end: what is wrong with it is known before anything is spent.

    The sample is uniform, without replacement and always the same for the same file; it is all of
    the records where there are no more than ``most``. ``tell`` hears now and then how many records
    have been read.
    """
    rows, sample, draws = 0, [], random.Random(0)
    for record in stream:
        if rows < most:
            sample.append((rows, record))
        # Each record so far has the same chance to be in the sample (reservoir sampling).
        elif (place := int(draws.random() * (rows + 1))) < most:
            sample[place] = (rows, record)
        rows += 1
        if tell is not None and rows % _TELL_EVERY == 0:
            tell(rows)
    sample.sort(key=lambda numbered: numbered[0])
    return Survey(rows, file_sha256(stream.path), sample)
