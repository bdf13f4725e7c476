from __future__ import annotations

import struct
from pathlib import Path

import pytest

from waysout.store import salvage, tables
from waysout.store.salvage import read_pages

PAGE = tables.PAGE_SIZE
SLOTS = 2000


def varint(number: int) -> bytes:
    """Write a number below 2 ** 28."""
    digits = [number >> shift & 0x7F for shift in (21, 14, 7, 0)]
    return bytes([*(digit | 0x80 for digit in digits[:-1]), digits[-1]])


def leaf(cell: bytes) -> bytes:
    """Return a page all of whose slots lead to the one cell at its end."""
    slots = struct.pack(">H", PAGE - len(cell)) * min(SLOTS, (PAGE - len(cell) - 8) // 2)
    head = b"\x0d\0\0" + struct.pack(">H", len(slots) // 2) + b"\0\0\0"
    return (head + slots).ljust(PAGE - len(cell), b"\0") + cell


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pages that were read, in order."""
    found: list[int] = []
    read = salvage._Pages._page

    def counted(pages: salvage._Pages, number: int) -> bytes:
        found.append(number)
        return read(pages, number)

    monkeypatch.setattr(salvage._Pages, "_page", counted)
    return found


def test_rows_that_all_claim_the_whole_file_are_not_all_read(
    tmp_path: Path, reads: list[int]
) -> None:
    pages = 200
    size = (pages - 2) * (PAGE - 4)
    least = (PAGE - 12) * 32 // 255 - 23
    here = least + (size - least) % (PAGE - 4)
    here = here if here <= PAGE - 35 else least
    first = leaf(varint(size) + varint(1) + bytes(here) + struct.pack(">I", 3))
    chain = [struct.pack(">I", number + 1).ljust(PAGE, b"x") for number in range(3, pages + 1)]
    path = tmp_path / "run.db"
    path.write_bytes(b"".join([bytes(PAGE), first, *chain]))
    list(read_pages(path))
    assert 2 * pages < len(reads) < 6 * pages


def test_a_log_that_names_a_page_far_away_is_read_all_the_same(
    tmp_path: Path, reads: list[int]
) -> None:
    path = tmp_path / "run.db"
    path.write_bytes(bytes(PAGE))
    row = varint(4) + varint(7) + b"\x02\x0f" + b"a"  # of one column, a text
    salt = b"saltsalt"
    frame = struct.pack(">II", 3_000_000, 3_000_000) + salt + bytes(8) + leaf(row)
    path.with_name("run.db-wal").write_bytes(bytes(16) + salt + bytes(8) + frame)
    assert set(map(repr, read_pages(path))) == {"(7, ['a'])"}
    assert reads == [1, 3_000_000]


def test_a_row_of_thousands_of_columns_is_none_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    row = varint(3004) + bytes(3000)
    path.write_bytes(bytes(PAGE) + leaf(varint(len(row)) + varint(1) + row))
    assert list(read_pages(path)) == []
