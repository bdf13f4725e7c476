from __future__ import annotations

from pathlib import Path

import pytest

from waysout.errors import UnavailableError
from waysout.files import cache_dir, data_dir, write_atomically


def test_environment_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path / "c"))
    monkeypatch.setenv("WAYSOUT_DATA", "~/tables")
    assert cache_dir() == tmp_path / "c"
    assert data_dir() == Path.home() / "tables"
    assert not cache_dir().exists()


def test_usual_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSOUT_CACHE", "")
    monkeypatch.delenv("WAYSOUT_DATA", raising=False)
    assert cache_dir().name == "waysout"
    assert data_dir() is None


def test_write_replaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


def test_unwritable_place_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UnavailableError, match="WAYSOUT_CACHE"):
        write_atomically(tmp_path / "file" / "x", b"data")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UnavailableError, match="cannot write"):
        write_atomically(tmp_path / "folder", b"data")
    assert {p.name for p in tmp_path.iterdir()} == {"file", "folder"}
