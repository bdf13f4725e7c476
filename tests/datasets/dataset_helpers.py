"""What several tests of the data sets share."""

from __future__ import annotations

import zipfile
from functools import cache
from pathlib import Path

import pytest

from waysout.datasets import registry
from waysout.datasets.load import Dataset, load_dataset
from waysout.files import data_dir

REAL = ("loan", "adult", "credit", "heloc")


def real_table(name: str) -> Path:
    """Return the real table in WAYSOUT_DATA, or skip the test."""
    folder = data_dir()
    if folder is None or not (folder / f"{name}.csv").is_file():
        pytest.skip(f"needs the real table: set WAYSOUT_DATA to a folder that holds {name}.csv")
    path = registry.find(name)
    assert path is not None
    return path


@cache
def real_dataset(name: str) -> Dataset:
    """Return the real data set, read once for all tests, or skip the test."""
    real_table(name)
    return load_dataset(name, fetch=False)


def make_wheel(folder: Path, name: str, version: str, members: dict[str, bytes]) -> Path:
    """Write a wheel that pip takes for one."""
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        archive.writestr(f"{info}/WHEEL", tag)
        archive.writestr(f"{info}/RECORD", "")
    return path
