"""A table that is edited while a batch reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from waysout.batch.driver import cut
from waysout.batch.watched import WatchedTable
from waysout.datasets.table import open_stream, survey
from waysout.errors import IntegrityError, UnavailableError

ROWS = 9


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text("a,b\n" + "".join(f"{i},{i}\n" for i in range(ROWS)))
    return path


def watched(path: Path) -> WatchedTable:
    found = WatchedTable(path, Path("ways"))
    found.surveyed(survey(open_stream(path)).sha256)
    return found


def edit(path: Path, old: str, new: str) -> None:
    """Edit in place, and turn the clock's hand: two writes may fall into one of its ticks."""
    path.write_text(path.read_text().replace(old, new))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def test_an_edit_is_noticed_before_its_rows_are_handed_out(table: Path) -> None:
    guard = watched(table)
    parts = guard.checked(cut(open_stream(table), 3, total=ROWS))
    assert next(parts).part == 0
    edit(table, "7,7", "7,8")
    with pytest.raises(IntegrityError, match=r"people\.csv was changed .* in ways .* put that"):
        next(parts)


def test_half_a_table_is_a_table_that_was_changed(table: Path) -> None:
    guard = watched(table)
    edit(table, "5,5\n6,6\n", "5,")
    with pytest.raises(IntegrityError, match="was changed while"):
        list(guard.checked(cut(open_stream(table), 3, total=ROWS)))


def test_the_bytes_decide(table: Path) -> None:
    guard, whole = watched(table), table.read_text()
    table.chmod(0o600)
    edit(table, "x", "y")
    guard.check()
    looks = table.stat()
    table.write_text(whole.replace("7", "8"))
    os.utime(table, ns=(looks.st_atime_ns, looks.st_mtime_ns))
    with pytest.raises(IntegrityError, match="was changed while"):
        guard.check(whole=True)


def test_an_edit_during_the_survey_and_a_table_that_is_gone_are_noticed(table: Path) -> None:
    guard = WatchedTable(table, Path("ways"))
    edit(table, "7,7", "7,8")
    with pytest.raises(IntegrityError, match="was changed while"):
        guard.surveyed("whatever")
    table.unlink()
    with pytest.raises(UnavailableError, match="put the table back"):
        guard.check()
