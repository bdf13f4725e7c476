from __future__ import annotations

import csv
import gzip
import io
import os
import tracemalloc
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waysout.datasets import table as table_module
from waysout.datasets.table import DELIMITERS, Table, open_stream, read_table, survey
from waysout.errors import TableError
from waysout.files import file_sha256

cells = st.text(
    st.characters(codec="utf-8", exclude_characters="\0") | st.sampled_from('",;\t\n\r \ufeff'),
    max_size=8,
)
names = st.text(st.characters(codec="utf-8", exclude_characters='\0",;\t\r\n'), max_size=8)
chunks = st.sampled_from([1, 2, 3, 5, 1 << 18])


def in_pieces(size: int) -> Any:
    return patch.multiple(table_module, _CHUNK=size, _BATCH_ROWS=size)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stream") / "t"


def write(path: Path, data: bytes, *, zipped: bool = False) -> Path:
    path.write_bytes(gzip.compress(data, mtime=0) if zipped else data)
    return path


@st.composite
def csv_files(draw: st.DrawFn) -> tuple[bytes, list[dict[str, str]]]:
    """Draw a CSV file of two columns or more, and the records in it."""
    width = draw(st.integers(2, 4))
    columns = [f"{draw(names)}-{i}" for i in range(width)]
    rows = draw(st.lists(st.lists(cells, min_size=width, max_size=width), max_size=6))
    end, delimiter = draw(st.sampled_from(["\n", "\r\n", "\r"])), draw(st.sampled_from(DELIMITERS))
    written = io.StringIO(newline="")
    lines = csv.writer(
        written, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL, strict=True
    )
    written.write(draw(st.sampled_from(["", end])))
    for row in [columns, *rows]:
        lines.writerow(row)
        written.write(draw(st.sampled_from(["", end, f"  {end}"])))
    mark = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    columns = [unicodedata.normalize("NFC", name).strip() for name in columns]
    return mark + written.getvalue().encode(), [dict(zip(columns, r, strict=True)) for r in rows]


@given(csv_files(), chunks, st.booleans())
def test_records_of_a_csv_file_are_those_written(
    file: Path, written: tuple[bytes, list[dict[str, str]]], chunk: int, zipped: bool
) -> None:
    data, records = written
    path = write(file, data, zipped=zipped)
    with in_pieces(chunk):
        stream = open_stream(path)
        assert list(stream) == list(stream) == records
        assert list(read_table(path).records) == records


@given(st.lists(cells | st.sampled_from([",", "\n", ";"]), max_size=30), chunks)
def test_any_text_reads_the_same_as_a_whole_or_piece_by_piece(
    file: Path, pieces: list[str], chunk: int
) -> None:
    path = write(file, "".join(pieces).encode())
    with in_pieces(chunk):
        assert told(lambda: _streamed(path)) == told(lambda: read_table(path))


def told(read: Callable[[], Table]) -> Any:
    try:
        table = read()
    except TableError as error:
        return str(error)
    return table.columns, list(table.records)


def _streamed(path: Path) -> Table:
    stream = open_stream(path)
    return Table(stream.columns, list(stream))


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.floats(allow_nan=False),
            st.none() | cells,
            st.none() | st.binary(max_size=4),
            st.none() | st.lists(st.none() | st.booleans(), max_size=3),
            st.none() | st.decimals(-1000, 1000, places=2),
        ),
        max_size=12,
    ),
    st.sampled_from([1, 3, 1024]),
    st.booleans(),
)
def test_records_of_a_parquet_file_are_those_written(
    file: Path, rows: list[tuple[Any, ...]], batch: int, zipped: bool
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    names = ("whole", "number", "text", "bytes", "list", "money")
    types = (
        pyarrow.int64(), pyarrow.float64(), pyarrow.string(), pyarrow.binary(),
        pyarrow.list_(pyarrow.bool_()), pyarrow.decimal128(10, 2),
    )  # fmt: skip
    arrays = [pyarrow.array([r[i] for r in rows], types[i]) for i in range(len(names))]
    written = io.BytesIO()
    parquet.write_table(pyarrow.table(arrays, names), written, row_group_size=5)
    path = write(file, written.getvalue(), zipped=zipped)
    with in_pieces(batch):
        read = list(open_stream(path))
    plain = [[float(c) if isinstance(c, Decimal) else c for c in row] for row in rows]
    assert read == [dict(zip(names, row, strict=True)) for row in plain]
    assert read == list(read_table(path).records)


# Faults ----------------------------------------------------------------------------------------

GOOD = b"a,b\n" + b"1,2\n" * 3


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty: a table needs"),
        (b" \n\n", "is empty: a table needs"),
        (b"a,b,a\n1,2,3\n", "2 columns called 'a'"),
        (GOOD + b"3\n", "line 5 has 1 cells where the header has 2"),
        (b'a,b\n"1\n2",3\n4,5,6\n', "line 4 has 3 cells"),
        (GOOD + b"caf\xe9,2\n", "byte 0xe9 at position 19 (line 5)"),
        (b"\xef\xbb\xbf" + GOOD + b"caf\xe9,2\n", "byte 0xe9 at position 22 (line 5)"),
        (GOOD + b"1,\xe2\x82", "byte 0xe2 at position 18 (line 5)"),
        ("a,b\n1,2\n".encode("utf-16"), "not UTF-8: byte 0xff at position 0 (line 1)"),
        (GOOD + b"1,\x00\n", "line 5 holds a NUL byte"),
        (GOOD + b'1,"2\n', "is not proper CSV"),
        (GOOD + b"1," + b"x" * 200_000, "field larger than field limit"),
        (b"PK\x03\x04rest", "spreadsheet or a zip archive"),
        (b"\x1f\x8bno", "damaged gzip"),
        (gzip.compress(GOOD * 99, mtime=0)[:-12], "damaged gzip"),
        (gzip.compress(GOOD, mtime=0)[:-8] + b"12345678", "damaged gzip"),
        (b"PAR1 but not really", "damaged Parquet"),
        (gzip.compress(b"PAR1 but not really", mtime=0), "damaged Parquet"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 1 << 18])
def test_a_fault_is_told_as_if_the_whole_were_read(
    tmp_path: Path, data: bytes, says: str, chunk: int
) -> None:
    if "Parquet" in says:
        pytest.importorskip("pyarrow")
    path = write(tmp_path / "t.csv", data)
    with pytest.raises(TableError) as whole:
        read_table(path)
    with in_pieces(chunk), pytest.raises(TableError) as streamed:
        survey(open_stream(path))
    assert says in str(streamed.value)
    assert str(path) in str(streamed.value)
    assert str(streamed.value) == str(whole.value)


def test_no_such_file_and_folder(tmp_path: Path) -> None:
    for path, says in (
        (tmp_path / "absent.csv", "no such file"),
        (tmp_path, "is a folder"),
        ("a\0b", "cannot read"),
    ):
        with pytest.raises(TableError, match=says):
            open_stream(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TableError, match="can be read only once"):
        open_stream(tmp_path / "pipe")


def test_a_parquet_file_cut_or_with_a_date_beyond_python_is_damaged(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    days = pyarrow.array([0, 10**9], pyarrow.int32()).cast(pyarrow.date32())
    parquet.write_table(pyarrow.table({"day": days}), path)
    whole = path.read_bytes()
    for data in (whole, whole[:-1], whole[: len(whole) // 2]):
        path.write_bytes(data)
        with pytest.raises(TableError, match="is a damaged Parquet file"):
            survey(open_stream(path))


def test_what_stands_before_a_fault_can_be_read(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", GOOD + b"3\n")
    records = iter(open_stream(path))
    assert [next(records) for _ in range(3)] == [{"a": "1", "b": "2"}] * 3
    with pytest.raises(TableError, match="line 5"):
        next(records)


# Memory ----------------------------------------------------------------------------------------


def lines(count: int) -> Iterator[bytes]:
    yield b"number,word,note\n"
    for i in range(count):
        yield b'%d,w%d,"a note, of some length, for row %d"\n' % (i, i % 7, i)


@pytest.mark.parametrize("zipped", [False, True])
def test_a_long_file_takes_no_more_memory_than_a_piece(tmp_path: Path, zipped: bool) -> None:
    data = b"".join(lines(60_000))
    path = write(tmp_path / "t.csv", data, zipped=zipped)
    del data
    stream = open_stream(path)
    tracemalloc.start()
    try:
        assert sum(1 for _ in stream) == 60_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


def test_a_group_of_rows_is_never_read_at_once(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path, numbers = tmp_path / "t.parquet", list(range(500_000))
    columns = {"a": numbers, "b": numbers[::-1]}
    parquet.write_table(
        pyarrow.table(columns), path, row_group_size=len(numbers), compression="none",
        use_dictionary=False, data_page_size=1 << 16,
    )  # fmt: skip
    usual = pyarrow.default_memory_pool()
    watched = pyarrow.proxy_memory_pool(usual)
    pyarrow.set_memory_pool(watched)
    try:
        assert survey(open_stream(path), most=1).rows == 500_000
    finally:
        pyarrow.set_memory_pool(usual)
    assert 0 < watched.max_memory() < path.stat().st_size / 3


# Survey ----------------------------------------------------------------------------------------


def test_a_survey_counts_and_knows_the_stored_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", b"".join(lines(25)), zipped=True)
    told: list[int] = []
    with patch("waysout.datasets.table._TELL_EVERY", 10):
        found = survey(open_stream(str(path)), tell=told.append)
    assert (found.rows, found.sha256) == (25, file_sha256(path))
    assert [number for number, _ in found.sample] == list(range(25))
    assert [record["number"] for _, record in found.sample] == [str(i) for i in range(25)]
    assert told == [10, 20]


def test_a_sample_is_in_order_and_the_same_each_time(tmp_path: Path) -> None:
    stream = open_stream(write(tmp_path / "t.csv", b"".join(lines(500))))
    found = survey(stream, most=50)
    numbers = [number for number, _ in found.sample]
    assert (found.rows, len(set(numbers))) == (500, 50)
    assert numbers == sorted(numbers)
    assert [record["number"] for _, record in found.sample] == list(map(str, numbers))
    assert found == survey(stream, most=50)


def test_every_record_has_the_same_chance_to_be_in_the_sample(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", b"".join(lines(20_000)))
    sample = survey(open_stream(path), most=5_000).sample
    tenths = Counter(number // 2_000 for number, _ in sample)
    assert tenths.total() == 5_000
    assert all(430 < tenths[tenth] < 570 for tenth in range(10)), tenths
