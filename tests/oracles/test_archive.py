from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from waysout.errors import OracleError
from waysout.oracles import archive
from waysout.oracles.archive import unpacked
from waysout.oracles.estimators import read_model

KINDS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]


def zipped(file: Path, kind: int, **parts: bytes) -> Path:
    with zipfile.ZipFile(file, "w", kind) as made:
        for name, data in parts.items():
            made.writestr(name, data)
    return file


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_comes_back_with_all_its_parts(tmp_path: Path, kind: int) -> None:
    parts = {"a.json": b"{}", "b/c.npy": bytes(range(256)) * 100, "empty": b""}
    data = unpacked(zipped(tmp_path / "m.zip", kind, **parts))
    with zipfile.ZipFile(io.BytesIO(data)) as found:
        assert {name: found.read(name) for name in found.namelist()} == parts
        assert {part.compress_type for part in found.infolist()} == {zipfile.ZIP_STORED}


def test_a_model_that_unpacks_to_far_more_than_its_file_is_refused_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("skops.io")
    monkeypatch.setattr(archive, "ROOM", 2**20)
    file = zipped(tmp_path / "m.skops", zipfile.ZIP_DEFLATED, schema=b" " * 5 * 2**20)
    tracemalloc.start()
    try:
        with pytest.raises(OracleError, match="unpacks to 5 MB, and one of its size may have 1:"):
            read_model(file, frozenset())
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_no_more_is_unpacked_than_was_declared(tmp_path: Path) -> None:
    file = zipped(tmp_path / "m.zip", zipfile.ZIP_DEFLATED, part=bytes(50_000_000))
    size = (50_000_000).to_bytes(4, "little")
    data = file.read_bytes()
    assert data.count(size) == 2  # before the part, and in the archive's list of parts
    file.write_bytes(data.replace(size, (100).to_bytes(4, "little")))
    tracemalloc.start()
    try:
        with pytest.raises(zipfile.BadZipFile):  # its checksum is that of all
            unpacked(file)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
