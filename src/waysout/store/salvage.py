"""Reads the rows of a damaged SQLite file page by page, without SQLite.

SQLite reaches a row through the pages above it and gives up where one of them is broken. Here every
page that holds rows is read by itself, those in the write-ahead log included; the caller's checksum
tells our rows from garbage. (The format is described on sqlite.org: "Database File Format".)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from waysout.store.records import Cell
from waysout.store.tables import PAGE_SIZE

_LEAF = 0x0D
_FILE_HEADER = 100
_WAL_HEADER, _FRAME_HEADER = 32, 24
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
# In a crafted file every row may lead to the same bytes, or have thousands of columns.
_MOST_READ = 4  # times what there is
_MOST_COLUMNS = 20


class _Torn(Exception):
    """These bytes are not a row."""


def read_pages(path: Path) -> Iterator[tuple[int, list[Cell]]]:
    """Yield whatever looks like a row in a file and its log: row number and columns."""
    log = path.with_name(f"{path.name}-wal")
    with path.open("rb") as file:
        if not log.is_file():
            yield from _Pages(file, None)
            return
        with log.open("rb") as wal:
            yield from _Pages(file, wal)


class _Pages:
    """The pages of a file, the newest version of each."""

    def __init__(self, file: IO[bytes], wal: IO[bytes] | None) -> None:
        self._file = file
        self._wal = wal
        self._in_wal = {} if wal is None else _committed(wal)
        in_file = range(1, -(-file.seek(0, 2) // PAGE_SIZE) + 1)
        # The log may name any page: there need not be others before it.
        self._numbers = [*in_file, *sorted(n for n in self._in_wal if n > len(in_file))]
        self._to_read = _MOST_READ * len(self._numbers) * PAGE_SIZE

    def _page(self, number: int) -> bytes:
        if self._wal is not None and number in self._in_wal:
            self._wal.seek(self._in_wal[number])
            return self._wal.read(PAGE_SIZE)
        self._file.seek((number - 1) * PAGE_SIZE)
        return self._file.read(PAGE_SIZE)

    def __iter__(self) -> Iterator[tuple[int, list[Cell]]]:
        for number in self._numbers:
            page = self._page(number)
            start = _FILE_HEADER if number == 1 else 0
            if len(page) < start + 8 or page[start] != _LEAF:
                continue
            (count,) = struct.unpack_from(">H", page, start + 3)
            for slot in range(start + 8, min(start + 8 + 2 * count, len(page) - 1), 2):
                (place,) = struct.unpack_from(">H", page, slot)
                try:
                    size, place = _varint(page, place)
                    row, place = _varint(page, place)
                    if row >= 2**63:  # negative, which no number of ours is
                        raise _Torn
                    yield row, _columns(self._payload(page, place, size))
                except (_Torn, UnicodeDecodeError):
                    continue

    def _payload(self, page: bytes, place: int, size: int) -> bytes:
        """Return the bytes of a row, most of which may be on a chain of further pages."""
        if size > len(self._numbers) * PAGE_SIZE:
            raise _Torn
        # SQLite's rule for how many bytes of a row are on its own page.
        most, least = PAGE_SIZE - 35, (PAGE_SIZE - 12) * 32 // 255 - 23
        here = size
        if size > most:
            kept = least + (size - least) % (PAGE_SIZE - 4)
            here = kept if kept <= most else least
        self._take(here)
        parts, left = [page[place : place + here]], size - here
        if left:
            following = _page_number(page, place + here)
        while left > 0:
            self._take(PAGE_SIZE)
            more = self._page(following) if following else b""
            parts.append(more[4 : 4 + left])
            left -= PAGE_SIZE - 4
            following = _page_number(more, 0)
        return b"".join(parts)

    def _take(self, size: int) -> None:
        self._to_read -= size
        if self._to_read < 0:
            raise _Torn


def _committed(wal: IO[bytes]) -> dict[int, int]:
    """Return where in the log the newest committed version of each page is."""
    start = wal.read(_WAL_HEADER + _FRAME_HEADER)
    # Of this round of writing: the head says its salt, and so does the first frame.
    salts = {start[16:24], start[_WAL_HEADER + 8 : _WAL_HEADER + 16]}
    wal.seek(_WAL_HEADER)
    found: dict[int, int] = {}
    waiting: dict[int, int] = {}
    while len(head := wal.read(_FRAME_HEADER)) == _FRAME_HEADER:
        if head[8:16] not in salts:
            wal.seek(PAGE_SIZE, 1)
            continue
        number, pages_after_commit = struct.unpack_from(">II", head)
        waiting[number] = wal.tell()
        wal.seek(PAGE_SIZE, 1)
        if pages_after_commit:
            found |= waiting
            waiting = {}
    return found


def lost_entries(path: Path) -> int:
    """Return how many entries SQLite passes over in the log of a run that nobody writes.

    It reads the log up to the first frame whose checksum is wrong, without a word. At the end of
    the log that is no damage, but what a kill left half written.
    """
    log = path.with_name(f"{path.name}-wal")
    if not log.is_file():
        return 0
    with log.open("rb") as wal:
        head = wal.read(_WAL_HEADER)
        if len(head) < _WAL_HEADER:
            return 0
        order = "<" if head[3] == 0x82 else ">"
        sums = _wal_checksum(order, head[:24], (0, 0))
        intact = sums == struct.unpack(">II", head[24:])
        salt = head[16:24] if intact else b""
        commits = [] if intact else [False]  # of the first damaged part, and all after it
        while len(frame := wal.read(_FRAME_HEADER + PAGE_SIZE)) == _FRAME_HEADER + PAGE_SIZE:
            if not commits:
                sums = _wal_checksum(order, frame[:8] + frame[_FRAME_HEADER:], sums)
                if frame[8:16] == salt and sums == struct.unpack(">II", frame[16:24]):
                    continue
            if not salt and any(frame[8:16]):  # the head, which tells it, is damaged
                salt = frame[8:16]
            # Frames of an earlier round have another salt: they are in the file already.
            commits.append(frame[8:16] == salt and any(frame[4:8]))
    return sum(commits) if any(commits[1:]) else 0


def _wal_checksum(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    """Go on with the checksum of a log, which runs through all of its frames."""
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    first, second = sums
    for one, two in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second


def _columns(payload: bytes) -> list[Cell]:
    head, place = _varint(payload, 0)
    kinds: list[int] = []
    while place < head:
        if len(kinds) == _MOST_COLUMNS:
            raise _Torn
        kind, place = _varint(payload, place)
        kinds.append(kind)
    values: list[Cell] = []
    place = head
    for kind in kinds:
        if kind in (0, 8, 9):
            values.append({0: None, 8: 0, 9: 1}[kind])
            continue
        if kind in (7, 10, 11):  # floats, which none of our columns holds, and reserved codes
            raise _Torn
        size = _INTEGER_BYTES[kind] if kind in _INTEGER_BYTES else (kind - 12) // 2
        data = payload[place : place + size]
        place += size
        if len(data) < size:
            raise _Torn
        if kind in _INTEGER_BYTES:
            values.append(int.from_bytes(data, signed=True))
        else:
            values.append(data.decode() if kind % 2 else data)
    return values


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Read a number of 1 to 9 bytes, 7 bits in each but the ninth."""
    value = 0
    for offset, byte in enumerate(data[place : place + 9]):
        if offset == 8:
            return (value << 8) | byte, place + 9
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            return value, place + offset + 1
    raise _Torn


def _page_number(data: bytes, place: int) -> int:
    if len(data) < place + 4:
        raise _Torn
    return int.from_bytes(data[place : place + 4])
