"""Reading a table from a file, with nothing lost and nothing guessed.

The cells of a CSV file stay text, exactly as written; a card gives them their types later. Nothing
here holds more than a piece of a file, but for who asks for it whole.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import shutil
import tempfile
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, cast

from waysout.errors import MissingExtra, TableError
from waysout.files import sha256

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

DELIMITERS = (",", ";", "\t")
WIDEST = 10_000
_LINES_SNIFFED = 20
_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
_CHUNK = 1 << 18
_BATCH_ROWS = 1024

Opener = Callable[[], AbstractContextManager[IO[bytes]]]
"""Opens the stored bytes of a table, from their beginning; as often as it is asked."""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and records of raw cells, and where they came from."""

    columns: tuple[str, ...]
    records: Sequence[Mapping[str, object]]
    source: str = "table"
    sha256: str = ""

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
    columns, records = read_records(partial(io.BytesIO, stored), source)
    return Table(columns, list(records), source, sha256(stored))


def read_records(
    opener: Opener, source: str
) -> tuple[tuple[str, ...], Iterator[Mapping[str, object]]]:
    """Return the columns of a table, and its records, which are read as they are asked for."""
    lines = _lines(opener, source)
    columns = _column_names([str(name) for name in next(lines)], source)
    return columns, (dict(zip(columns, cells, strict=True)) for cells in lines)


def read_cells(data: bytes, source: str) -> list[list[str]]:
    """Return the lines of CSV data, the header among them, as lists of cells of one length."""
    return list(_csv_lines(partial(io.BytesIO, data), source))


@contextmanager
def opened(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, or say why it cannot be read."""
    if Path(path).is_dir():
        raise TableError(f"{path} is a folder; name a file in it")
    try:
        with Path(path).open("rb") as file:
            yield file
    except FileNotFoundError:
        raise TableError(f"no such file: {path}") from None
    except (OSError, ValueError) as error:  # ValueError: a path that holds a NUL character
        raise TableError(f"cannot read {path}: {error}") from None


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
    start = _beginning(opener)
    if start.startswith(_PARQUET):
        return _parquet_lines(partial(_unpacked, opener) if zipped else opener, source)
    if start.startswith(_ZIP):
        raise TableError(f"{source} is a spreadsheet or a zip archive: save it as CSV or Parquet")
    return _csv_lines(opener, source)


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


@contextmanager
def _unpacked(opener: Opener) -> Iterator[IO[bytes]]:
    """Open a copy that can be read from any place, which a gzip file cannot within reason."""
    with tempfile.TemporaryFile() as copy:
        with opener() as file:
            shutil.copyfileobj(file, copy)
        copy.seek(0)
        yield copy


# CSV -------------------------------------------------------------------------------------------


class _Checked(io.RawIOBase):
    """Bytes that will be text: UTF-8 without a NUL, or an error that tells the line."""

    def __init__(self, file: IO[bytes], source: str) -> None:
        self._file, self._source = file, source
        self._rest = b""  # of a character whose other bytes are yet to come
        self._passed = self._lines = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        place = memoryview(buffer)
        chunk = self._file.read(len(place))
        self._check(self._rest + chunk, last=not chunk)
        place[: len(chunk)] = chunk
        return len(chunk)

    def _check(self, data: bytes, *, last: bool) -> None:
        try:
            _, read = codecs.utf_8_decode(data, "strict", last)
        except UnicodeDecodeError as error:
            raise TableError(
                f"{self._source} is not UTF-8: byte 0x{data[error.start]:02x} at position "
                f"{self._passed + error.start} (line {self._line(data, error.start)}); "
                "save the file again as UTF-8"
            ) from None
        if b"\0" in data:
            line = self._line(data, data.index(b"\0"))
            raise TableError(
                f"{self._source}, line {line} holds a NUL byte: this is not a text file"
            )
        self._rest = data[read:]
        self._passed += read
        self._lines += data.count(b"\n")

    def _line(self, data: bytes, place: int) -> int:
        return 1 + self._lines + data.count(b"\n", 0, place)


@contextmanager
def _text(opener: Opener, source: str) -> Iterator[IO[str]]:
    with opener() as file:
        checked = io.BufferedReader(_Checked(file, source), _CHUNK)
        # A newline inside a quoted cell must reach the csv module untranslated.
        yield io.TextIOWrapper(checked, encoding="utf-8-sig", newline="")


def _csv_lines(opener: Opener, source: str) -> Iterator[list[str]]:
    delimiter, width = _delimiter(opener, source), 0
    with _text(opener, source) as text:
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        try:
            for cells in reader:
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


def _delimiter(opener: Opener, source: str) -> str:
    def fit(delimiter: str) -> tuple[bool, bool, int]:
        with _text(opener, source) as text:
            widths = _widths(text, delimiter)
        # Splitting the header comes before an even split: otherwise a comma-separated file with one
        # short line would pass for a table of a single column.
        return widths[0] > 1, len(set(widths)) == 1, widths[0]

    return max(DELIMITERS, key=fit)


def _widths(text: IO[str], delimiter: str) -> list[int]:
    lines = csv.reader(text, delimiter=delimiter)
    try:
        return [len(cells) for cells in islice(lines, _LINES_SNIFFED) if cells] or [0]
    except csv.Error:
        return [0]


def _column_names(header: Sequence[str], source: str) -> tuple[str, ...]:
    if not 0 < len(header) <= WIDEST:
        raise TableError(
            f"{source} has {len(header):,} columns, and a table has 1 to {WIDEST:,}; "
            "is it transposed?"
        )
    names = [unicodedata.normalize("NFC", name).strip() for name in header]
    names = [name or f"unnamed_{i}" for i, name in enumerate(names, 1)]
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise TableError(f"{source} has {times} columns called {name!r}; rename all but one")
    return tuple(names)


# Parquet ---------------------------------------------------------------------------------------


def _parquet_lines(opener: Opener, source: str) -> Iterator[Sequence[object]]:
    pyarrow, parquet = parquet_packages()
    with opener() as stored:
        try:
            # Otherwise the columns of a whole group of rows, often a million, are read at once.
            file = parquet.ParquetFile(stored, buffer_size=_CHUNK, pre_buffer=False)
            yield file.schema_arrow.names
            for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
                # Straight to Python values: pandas would make floats of integers with gaps.
                columns = [map(_plain, column.to_pylist()) for column in batch.columns]
                yield from zip(*columns, strict=True)
        # Beyond pyarrow's own complaints: text that is none, a date that Python does not have.
        except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
            raise TableError(f"{source} is a damaged Parquet file: {error}") from None


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Decimal) else value
