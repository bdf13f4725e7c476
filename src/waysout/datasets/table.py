"""Reading a table from a file, with nothing lost and nothing guessed.

The cells of a CSV file stay text, exactly as written; a card gives them their types later.
"""

from __future__ import annotations

import csv
import gzip
import io
import unicodedata
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path

from waysout.cache import sha256
from waysout.errors import MissingExtra, TableError

DELIMITERS = (",", ";", "\t")
WIDEST = 10_000
_LINES_SNIFFED = 20
_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"


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
    stored = _read(Path(path))
    digest = sha256(stored)
    data = _unzipped(stored, source) if stored.startswith(_GZIP) else stored
    if data.startswith(_PARQUET):
        columns, records = _from_parquet(data, source)
    elif data.startswith(_ZIP):
        raise TableError(f"{source} is a spreadsheet or a zip archive: save it as CSV or Parquet")
    else:
        columns, records = _from_csv(data, source)
    return Table(columns, records, source, digest)


def read_cells(data: bytes, source: str) -> list[list[str]]:
    """Return the lines of CSV data, the header among them, as lists of cells of one length."""
    text = _decoded(data, source)
    # A newline inside a quoted cell must reach the csv module untranslated.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    lines: list[list[str]] = []
    try:
        for cells in reader:
            if len(cells) <= 1 and not "".join(cells).strip():
                continue
            if lines and len(cells) != len(lines[0]):
                raise TableError(
                    f"{source}, line {reader.line_num} has {len(cells)} cells where the header "
                    f"has {len(lines[0])}; put cells that hold the separator in double quotes"
                )
            lines.append(cells)
    except csv.Error as error:
        raise TableError(f"{source}, line {reader.line_num} is not proper CSV: {error}") from None
    if not lines:
        raise TableError(f"{source} is empty: a table needs at least a line of column names")
    return lines


def _read(path: Path) -> bytes:
    if path.is_dir():
        raise TableError(f"{path} is a folder; name a file in it")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise TableError(f"no such file: {path}") from None
    except (OSError, ValueError) as error:  # ValueError: a path that holds a NUL character
        raise TableError(f"cannot read {path}: {error}") from None


def _unzipped(data: bytes, source: str) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{source} is a damaged gzip file: {error}") from None


def _decoded(data: bytes, source: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TableError(
            f"{source} is not UTF-8: byte 0x{data[error.start]:02x} at position {error.start} "
            f"(line {line}); save the file again as UTF-8"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise TableError(f"{source}, line {line} holds a NUL byte: this is not a text file")
    return text


def _delimiter(text: str) -> str:
    def fit(delimiter: str) -> tuple[bool, bool, int]:
        widths = _widths(text, delimiter)
        # Splitting the header comes before an even split: otherwise a comma-separated file with one
        # short line would pass for a table of a single column.
        return widths[0] > 1, len(set(widths)) == 1, widths[0]

    return max(DELIMITERS, key=fit)


def _widths(text: str, delimiter: str) -> list[int]:
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        return [len(cells) for cells in islice(lines, _LINES_SNIFFED) if cells] or [0]
    except csv.Error:
        return [0]


def _from_csv(data: bytes, source: str) -> tuple[tuple[str, ...], list[Mapping[str, object]]]:
    header, *lines = read_cells(data, source)
    columns = _column_names(header, source)
    return columns, [dict(zip(columns, cells, strict=True)) for cells in lines]


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


def _from_parquet(data: bytes, source: str) -> tuple[tuple[str, ...], list[Mapping[str, object]]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet") from None
    try:
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(data))
        columns = _column_names(table.column_names, source)
        # Straight to Python values: by way of pandas, integers with gaps would become floats.
        cells = [table.column(i).to_pylist() for i in range(len(columns))]
    except (pyarrow.ArrowException, OSError) as error:
        raise TableError(f"{source} is a damaged Parquet file: {error}") from None
    lines = zip(*cells, strict=True)
    return columns, [dict(zip(columns, map(_plain, line), strict=True)) for line in lines]


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Decimal) else value
