from __future__ import annotations

import gzip
import hashlib
import io
import tracemalloc
from decimal import Decimal
from pathlib import Path

import pytest

from waysout.datasets import table as module
from waysout.datasets.table import WIDEST, open_stream, read_records, read_table
from waysout.errors import TableError


def write(tmp_path: Path, data: bytes | str, name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.mark.parametrize(
    ("data", "columns", "first"),
    [
        ("a,b\n1, x \n", ("a", "b"), {"a": "1", "b": " x "}),
        ("\ufeffa,b\n007,1.50\n", ("a", "b"), {"a": "007", "b": "1.50"}),
        ("a;b\n1,5;2\n", ("a", "b"), {"a": "1,5", "b": "2"}),
        ("a\tb\n1\t2\n", ("a", "b"), {"a": "1", "b": "2"}),
        ("a,b\r\n1,2\r\n\r\n", ("a", "b"), {"a": "1", "b": "2"}),
        ("a,b\r1,2\r", ("a", "b"), {"a": "1", "b": "2"}),
        (" a , b\n1,2\n   \n", ("a", "b"), {"a": "1", "b": "2"}),
        ('a,b\n"1,\n2",3\n', ("a", "b"), {"a": "1,\n2", "b": "3"}),
        ("cafe\u0301\n1\n", ("caf\u00e9",), {"caf\u00e9": "1"}),
        ("x\n1,5\n2,5\n", ("x",), {"x": "1,5"}),
        (",x\n0,1\n", ("unnamed_1", "x"), {"unnamed_1": "0", "x": "1"}),
        ("a;x,b,c\n1,2,3\n", ("a;x", "b", "c"), {"a;x": "1", "b": "2", "c": "3"}),
    ],
)
def test_reads_csv_as_written(
    tmp_path: Path, data: str, columns: tuple[str, ...], first: dict[str, str]
) -> None:
    table = read_table(write(tmp_path, data))
    assert table.columns == columns
    assert table.records[0] == first


def test_header_alone_is_a_table_of_no_rows(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a,b\n"))
    assert (table.columns, len(table)) == (("a", "b"), 0)


def test_knows_where_it_came_from(tmp_path: Path) -> None:
    path = write(tmp_path, "a\n1\n")
    table = read_table(str(path))
    assert table.source == str(path)
    assert table.sha256 == hashlib.sha256(b"a\n1\n").hexdigest()


def test_reads_gzip(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, gzip.compress(b"a,b\n1,2\n", mtime=0), "t.csv.gz"))
    assert table.records == [{"a": "1", "b": "2"}]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b" \n\n", "is empty"),
        (b"a,b,a\n1,2,3\n", "2 columns called 'a'"),
        (b"a, a\n1,2\n", "2 columns called 'a'"),
        (b"a,b\n1,2\n3\n", "line 3 has 1 cells where the header has 2"),
        (b"a,b,c\n1,2\n", "line 2 has 2 cells where the header has 3"),
        (b"a,b\n1,2,3\n", "line 2 has 3 cells"),
        (b"a\n1\ncaf\xe9\n", "byte 0xe9 at position 7 (line 3)"),
        ("a,b\n1,2\n".encode("utf-16"), "not UTF-8"),
        (b"a,b\n1,\x00\n", "line 2 holds a NUL byte"),
        (b'a,b\n1,"2\n', "is not proper CSV"),
        (b'a,b\n"1"x,2\n', "is not proper CSV"),
        (b"a,b\n1," + b"x" * 200_000 + b"\n", "field larger than field limit"),
        (",".join(f"c{i}" for i in range(WIDEST + 1)).encode(), "10,001 columns"),
        (b"PK\x03\x04rest", "spreadsheet or a zip archive"),
        (b"\x1f\x8bno", "damaged gzip"),
        (gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:-12], "damaged gzip"),
        (b"PAR1 but not really", "damaged Parquet"),
    ],
)
def test_faults_are_typed_and_name_the_file(tmp_path: Path, data: bytes, says: str) -> None:
    if says == "damaged Parquet":
        pytest.importorskip("pyarrow")
    path = write(tmp_path, data)
    with pytest.raises(TableError) as caught:
        read_table(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


def test_no_such_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="no such file"):
        read_table(tmp_path / "absent.csv")
    with pytest.raises(TableError, match="is a folder"):
        read_table(tmp_path)
    with pytest.raises(TableError, match="cannot read"):
        read_table("a\0b")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there are no such files here")
def test_a_device_without_an_end_is_refused() -> None:
    with pytest.raises(TableError, match="is a device"):
        read_table("/dev/zero")
    with pytest.raises(TableError, match="is a device"):
        open_stream("/dev/zero")


def test_thousand_columns_are_read(tmp_path: Path) -> None:
    header = ",".join(f"c{i}" for i in range(1000))
    table = read_table(write(tmp_path, f"{header}\n{','.join('1' * 1000)}\n"))
    assert len(table.columns) == 1000


def test_parquet_keeps_types_and_gaps(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {
        "n": [1, None],
        "t": ["a", "b"],
        "yes": [True, False],
        "cost": [Decimal("1.50"), None],
    }
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    table = read_table(path)
    assert table.columns == ("n", "t", "yes", "cost")
    assert table.records[0] == {"n": 1, "t": "a", "yes": True, "cost": 1.5}
    assert table.typed
    path.write_text("n,t\n1,a\n")
    assert not read_table(path).typed
    assert table.records[1] == {"n": None, "t": "b", "yes": False, "cost": None}
    assert isinstance(table.records[0]["n"], int)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"x" * 10**7, r"line 2: .* has more than 1,000 characters"),
        (b"x\n" + b'"\n",' * 10**6, r"line \d+: .* has more than 1,000 characters"),
        (b"x" * 900 + b"\xff" * 10**7, r"not UTF-8: byte 0xff at position 904 \(line 2\)"),
    ],
)
def test_a_record_without_an_end_is_not_read_whole(
    body: bytes, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of gigabytes takes megabytes in a gzip file; the machine may have less memory."""
    monkeypatch.setattr(module, "LONGEST", 1000)
    longest = 0

    class Measured(io.BytesIO):
        def tell(self) -> int:
            nonlocal longest
            longest = max(longest, super().tell())
            return super().tell()

        def close(self) -> None:
            self.tell()
            super().close()

    with pytest.raises(TableError, match=says):
        list(read_records(lambda: Measured(b"a,b\n" + body), "t.csv")[1])
    assert 0 < longest < 100_000


def test_a_table_may_be_longer_than_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST", 10)
    text = b'a,b\n"1\n23",4\n' * 100
    assert len(list(read_records(lambda: io.BytesIO(text), "t.csv")[1])) == 199


def test_what_calls_itself_parquet_in_a_gzip_file_is_not_unpacked_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_UNPACKED", 2**20)
    path = write(tmp_path, gzip.compress(b"PAR1" + bytes(50_000_000)), "t.parquet.gz")
    for read in (read_table, open_stream):
        tracemalloc.start()
        try:
            with pytest.raises(TableError, match=r"t.parquet.gz is .* more than 1 MB of Parquet"):
                read(path)
            assert tracemalloc.get_traced_memory()[1] < 5_000_000
        finally:
            tracemalloc.stop()
