"""What a resumed batch takes for done: nothing whose files are not what was written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from part_files import write_part
from run_world import SCHEMA

from waysout.batch.job import PartTask
from waysout.batch.marks import DONE, PEOPLE, mark_of, marked, part_name
from waysout.batch.resume import check_parts
from waysout.batch.tables import people_done
from waysout.domain.result import Option, Outcome, OutcomeKind, ResultData
from waysout.domain.schema import Value
from waysout.errors import IntegrityError

pytest.importorskip("pyarrow")

PART_ROWS = 3
OPTIONS, WHO = Path(part_name(1)), Path(PEOPLE, part_name(1))
MARK = Path(DONE, "part-000001.json")


def result(index: int) -> ResultData:
    row: dict[str, Value] = {"a": index, "b": 9, "c": "x"}
    option = Option(
        row=row, changes={"a": (0, index)}, probability=0.8, proximity=0.5, sparsity=1,
        key=str(index),
    )  # fmt: skip
    return ResultData(
        query=row, outcome=Outcome(OutcomeKind.FOUND), options=[option], index=index
    )  # fmt: skip


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder of three parts that are done."""
    for part in range(3):
        first = part * PART_ROWS
        task = PartTask(part, first, [{}] * PART_ROWS)
        results = [result(first + i) for i in range(PART_ROWS)]
        write_part(tmp_path, task, SCHEMA, ["who"], results)
    return tmp_path


def taken_back(out: Path) -> list[str]:
    said: list[str] = []
    check_parts(out, PART_ROWS, said.append)
    return said


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(data)


def swapped(path: Path) -> None:
    other = path.with_name(path.name.replace("1", "2"))
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize("damage", [cut_off, emptied, flipped, swapped, Path.unlink])
@pytest.mark.parametrize("file", [OPTIONS, WHO, MARK])
def test_only_a_damaged_part_is_done_again(
    out: Path, file: Path, damage: Callable[[Path], object]
) -> None:
    damage(out / file)
    said = taken_back(out)
    assert marked(out) == [0, 2]
    assert people_done(out, 1) is None
    assert [people_done(out, part) for part in (0, 2)] == [PART_ROWS] * 2
    if (file, damage) == (MARK, Path.unlink):
        assert said == []  # as a kill leaves it
    else:
        assert len(said) == 1
        assert said[0].startswith(f"part 1 has to be done again: {out / file} is ")
        assert "run the same" not in said[0]  # it is being done
    assert taken_back(out) == []


def test_what_is_whole_stays(out: Path) -> None:
    before = {file: file.read_bytes() for file in out.rglob("part-*")}
    assert taken_back(out) == []
    assert {file: file.read_bytes() for file in out.rglob("part-*")} == before


def test_parts_of_an_earlier_release_are_read_whole_and_marked(out: Path) -> None:
    shutil.rmtree(out / DONE)
    (out / "_done.new").mkdir()  # a kill left it
    (out / "_done.new" / "part-000007.json").touch()
    cut_off(out / OPTIONS)
    said = taken_back(out)
    assert len(said) == 1
    assert said[0].startswith(f"part 1 has to be done again: {out / OPTIONS} is damaged")
    assert marked(out) == [0, 2]
    assert people_done(out, 2) == PART_ROWS
    assert not (out / "_done.new").exists()


def test_swapped_parts_of_an_earlier_release_are_noticed(out: Path) -> None:
    shutil.rmtree(out / DONE)
    swapped(out / OPTIONS)
    (out / PEOPLE / part_name(0)).unlink()  # being written anew at a kill
    assert taken_back(out) == [
        f"part 1 has to be done again: {out / OPTIONS} has rows of another part"
    ]
    assert marked(out) == [2]


def test_a_damaged_mark_is_nothing_to_count_on(out: Path) -> None:
    (out / MARK).write_bytes((out / MARK).read_bytes().replace(b'"rows": 3', b'"rows": 9'))
    assert people_done(out, 1) is None
    with pytest.raises(IntegrityError, match="says other than was written"):
        mark_of(out, 1)
