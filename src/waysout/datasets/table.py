"""Reading a table from a file, with nothing lost and nothing guessed.

The cells of a CSV file stay text, exactly as written; a card gives them their types later. Files
are read piece by piece: `read_table` keeps it all, `open_stream` no more than a record at a time.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import IO, cast

from waysout.errors import MissingExtra, TableError
from waysout.files import file_sha256, sha256

DELIMITERS = (",", ";", "\t")
WIDEST = 10_000
LONGEST = 2**24
"""How many characters a record may take: a gzip file of megabytes may hold one of gigabytes."""
MOST_UNPACKED = 2**28
"""How many bytes of Parquet may be in a gzip file, for the same reason."""
_LINES_SNIFFED = 20
_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
_CHUNK = 1 << 18
_BATCH_ROWS = 1024
_TELL_EVERY = 10_000

Opener = Callable[[], AbstractContextManager[IO[bytes]]]
"""Opens the stored bytes of a table, from their beginning; it may be called repeatedly."""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and records of raw cells, and where they came from.

    The cells of a ``typed`` table (Parquet, a data frame) have types of their own: what is text
    there is text, also where it looks like a number.
    """

    columns: tuple[str, ...]
    records: Sequence[Mapping[str, object]]
    source: str = "table"
    sha256: str = ""
    typed: bool = False

    def __len__(self) -> int:
        return len(self.records)


def read_table(path: str | Path) -> Table:
    """Read a CSV file (also gzipped) or a Parquet file; its content decides which, not its name.

    CSV is UTF-8, with or without a byte-order mark, and separated by commas, semicolons or tabs.
    Header names are stripped and brought to NFC; a nameless column is called ``unnamed_2`` by its
    position; blank lines are skipped.
    """
    source = str(path)
    with opened(path) as file:
        stored = file.read()
    opener = partial(io.BytesIO, stored)
    columns, records = read_records(opener, source)
    return Table(columns, list(records), source, sha256(stored), _is_parquet(opener, source))


def read_records(
    opener: Opener, source: str
) -> tuple[tuple[str, ...], Iterator[Mapping[str, object]]]:
    """Return the columns of a table, and its records, which are read as they are asked for."""
    lines = _lines(opener, source)
    header = [str(name) for name in next(lines)]
    if not 0 < len(header) <= WIDEST:
        raise TableError(
            f"{source} has {len(header):,} columns, and a table has 1 to {WIDEST:,}; "
            "is it transposed?"
        )
    names = [unicodedata.normalize("NFC", name).strip() for name in header]
    columns = tuple(name or f"unnamed_{i}" for i, name in enumerate(names, 1))
    name, times = Counter(columns).most_common(1)[0]
    if times > 1:
        raise TableError(f"{source} has {times} columns called {name!r}; rename all but one")
    return columns, (dict(zip(columns, cells, strict=True)) for cells in lines)


def read_cells(data: bytes, source: str) -> list[list[str]]:
    """Return the lines of CSV data, the header among them, as lists of cells of one length."""
    return list(_csv_lines(partial(io.BytesIO, data), source))


@contextmanager
def opened(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, or say why it cannot be read."""
    if Path(path).is_dir():
        raise TableError(f"{path} is a folder; name a file in it")
    if Path(path).is_char_device() or Path(path).is_block_device():
        raise TableError(f"{path} is a device, which may have no end: save its data as a file")
    try:
        with Path(path).open("rb") as file:
            yield file
    except FileNotFoundError:
        raise TableError(f"no such file: {path}") from None
    except (OSError, ValueError) as error:  # ValueError: a path that holds a NUL character
        raise TableError(f"cannot read {path}: {error}") from None


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
        return read_records(partial(opened, self.path), self.source)[1]


def open_stream(path: str | Path) -> RowStream:
    """Read the header of a CSV (also gzipped) or Parquet file; its records can follow."""
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
    """Read a file once from end to end, so that errors show before any budget is spent.

    The sample is uniform, without replacement and always the same for the same file; it is all of
    the records where there are no more than ``most``. ``tell`` is called now and then with the
    number of records read.
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


def parquet_packages() -> tuple[ModuleType, ModuleType]:
    """Return pyarrow and its part for Parquet, which load on use, or say what to install."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet") from None
    return pyarrow, pyarrow.parquet


def _lines(opener: Opener, source: str) -> Iterator[Sequence[object]]:
    """Return the lines of a table: its header, then the cells of each record."""
    zipped = _beginning(opener).startswith(_GZIP)
    if zipped:
        opener = partial(_unzipped, opener, source)
    if _is_parquet(opener, source):
        if zipped:  # pyarrow seeks, which a gzip file cannot do within reason
            opener = partial(io.BytesIO, _all_of(opener, source))
        return _parquet_lines(opener, source)
    if _beginning(opener).startswith(_ZIP):
        raise TableError(f"{source} is a spreadsheet or a zip archive: save it as CSV or Parquet")
    return _csv_lines(opener, source)


def _all_of(opener: Opener, source: str) -> bytes:
    with opener() as file:
        data = file.read(MOST_UNPACKED + 1)
    if len(data) > MOST_UNPACKED:
        raise TableError(
            f"{source} is a gzip file with more than {MOST_UNPACKED / 2**20:,.0f} MB of Parquet, "
            "which would all be in memory: unpack it first (gunzip)"
        )
    return data


def _is_parquet(opener: Opener, source: str) -> bool:
    if _beginning(opener).startswith(_GZIP):
        opener = partial(_unzipped, opener, source)
    return _beginning(opener).startswith(_PARQUET)


def _beginning(opener: Opener) -> bytes:
    with opener() as file:
        return file.read(len(_PARQUET))


@contextmanager
def _unzipped(opener: Opener, source: str) -> Iterator[IO[bytes]]:
    with opener() as stored:
        try:
            with gzip.GzipFile(fileobj=stored) as file:
                yield cast(IO[bytes], file)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise TableError(f"{source} is a damaged gzip file: {error}") from None


class _Lines:
    """Lines of text, or an error that tells the line: none holds a NUL, no record is too long."""

    def __init__(self, file: IO[bytes], source: str) -> None:
        # A newline inside a quoted cell must reach the csv module untranslated.
        self.text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        self.source, self.number, self.taken = source, 0, 0

    def __iter__(self) -> Iterator[str]:
        while line := self.text.readline(LONGEST + 1):
            self.number += 1
            self.taken += len(line)
            if "\0" in line:
                raise TableError(f"{self._here()} holds a NUL byte: this is not text")
            if self.taken > LONGEST:
                raise TableError(
                    f"{self._here()}: the record that it belongs to has more than {LONGEST:,} "
                    "characters, which no table's has: is this a CSV file?"
                )
            yield line

    def _here(self) -> str:
        return f"{self.source}, line {self.number}"

    def records(self, reader: Iterable[list[str]]) -> Iterator[list[str]]:
        """Return the records that a reader makes of these lines."""
        for cells in reader:
            self.taken = 0
            yield cells


@contextmanager
def _text(opener: Opener, source: str) -> Iterator[_Lines]:
    """Open lines of text: UTF-8 or an error that tells the line."""
    with opener() as file:
        try:
            yield _Lines(file, source)
            return
        except UnicodeDecodeError:
            pass
    position = 0
    with opener() as file:
        # What is wrong stands within the longest record, of four bytes a character.
        for number, line in enumerate(iter(partial(file.readline, 5 * LONGEST), b""), 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise TableError(
                    f"{source} is not UTF-8: byte 0x{line[error.start]:02x} at position "
                    f"{position + error.start} (line {number}); save the file again as UTF-8"
                ) from None
            position += len(line)


def _csv_lines(opener: Opener, source: str) -> Iterator[list[str]]:
    fits: dict[str, tuple[bool, bool, int]] = {}
    for delimiter in DELIMITERS:
        widths = [0]
        with _text(opener, source) as text:
            lines = islice(text.records(csv.reader(text, delimiter=delimiter)), _LINES_SNIFFED)
            with suppress(csv.Error):
                widths = [len(cells) for cells in lines if cells] or [0]
        # Splitting the header comes before an even split: otherwise a comma-separated file with one
        # short line would pass for a table of a single column.
        fits[delimiter] = widths[0] > 1, len(set(widths)) == 1, widths[0]
    delimiter, width = max(DELIMITERS, key=fits.__getitem__), 0
    with _text(opener, source) as text:
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        try:
            for cells in text.records(reader):
                if len(cells) <= 1 and not "".join(cells).strip():
                    continue
                width = width or len(cells)
                if len(cells) != width:
                    raise TableError(
                        f"{source}, line {reader.line_num} has {len(cells)} cells where the header "
                        f"has {width}; put cells that hold the separator in double quotes"
                    )
                yield cells
        except csv.Error as error:
            raise TableError(
                f"{source}, line {reader.line_num} is not proper CSV: {error}"
            ) from None
    if not width:
        raise TableError(f"{source} is empty: a table needs at least a line of column names")


def _parquet_lines(opener: Opener, source: str) -> Iterator[Sequence[object]]:
    pyarrow, parquet = parquet_packages()
    with opener() as stored:
        try:
            # Otherwise the columns of a whole group of rows, often a million, are read at once.
            file = parquet.ParquetFile(stored, buffer_size=_CHUNK, pre_buffer=False)
            yield file.schema_arrow.names
            for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
                # Straight to Python values: pandas would make floats of integers with gaps.
                for cells in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    yield [float(c) if isinstance(c, Decimal) else c for c in cells]
        # Beyond pyarrow's own complaints: text that is none, a date that Python does not have.
        except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
            raise TableError(f"{source} is a damaged Parquet file: {error}") from None
