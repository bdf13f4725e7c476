"""What a resumed batch takes for done: nothing whose files are not what was written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from part_files import write_part
from run_world import SCHEMA, Adder, Broken

from waysout.batch.driver import BatchEnd
from waysout.batch.job import PartTask
from waysout.batch.marks import DONE, ID, MANIFEST, PEOPLE, mark_of, marked, part_name
from waysout.batch.resume import ASKED_AGAIN, check_end, check_model, check_parts, sweep_stores
from waysout.batch.sealed import read_sealed, sealed
from waysout.batch.tables import STORES, people_done, people_of, store_path
from waysout.domain.oracle import Answers, Oracle
from waysout.domain.result import Option, Outcome, OutcomeKind, ResultData
from waysout.domain.schema import Row, Value
from waysout.errors import IntegrityError
from waysout.store.lock import WriterLock

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
    given = {"query_probability": (index + 9) / 20}  # as the adder says
    return ResultData(
        query=row, outcome=Outcome(OutcomeKind.FOUND), options=[option], index=index, settings=given
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
    check_parts(out, PART_ROWS, 4 * PART_ROWS, said.append)
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


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)  # who opens it waits for a writer


@pytest.mark.parametrize("damage", [cut_off, emptied, flipped, swapped, piped, Path.unlink])
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


@pytest.mark.parametrize("path", [MARK, OPTIONS, WHO])
def test_a_folder_in_the_place_of_a_file_is_named_and_left_alone(out: Path, path: Path) -> None:
    (out / path).unlink()
    (out / path / "somebody's").mkdir(parents=True)
    with pytest.raises(IntegrityError, match=f"{path} is a folder.*: move it away"):
        taken_back(out)
    task = PartTask(1, PART_ROWS, [{}])
    with pytest.raises(IntegrityError, match=f"{path} is a folder.*: move it away"):
        write_part(out, task, SCHEMA, ["who"], [result(PART_ROWS)])
    assert (out / path / "somebody's").is_dir()


def test_a_batch_that_lacks_people_in_the_end_has_failed(out: Path) -> None:
    def ended(rows: int, was: BatchEnd) -> BatchEnd:
        return check_end(out, PART_ROWS, rows, was, lambda said: None)

    well = BatchEnd(9, 1.0)
    assert ended(9, well) == ended(8, well) == well
    write_part(out, PartTask(1, PART_ROWS, [{}]), SCHEMA, ["who"], [])
    assert (ended(9, well).left, ended(9, well).exit_code) == (1, 6)
    assert (ended(12, well).left, ended(3, well).left) == (2, 0)
    stopped = BatchEnd(9, 1.0, 1, "enough")
    assert ended(9, stopped) == stopped


def test_a_part_of_nobody_is_told_of(out: Path) -> None:
    said: list[str] = []
    shutil.copy(out / OPTIONS, out / part_name(99))
    check_end(out, PART_ROWS, 9, BatchEnd(9, 1.0), said.append)
    assert [part_name(99) in line and "remove it" in line for line in said] == [True]


def test_a_damaged_mark_is_nothing_to_count_on(out: Path) -> None:
    (out / MARK).write_bytes((out / MARK).read_bytes().replace(b'"rows": 3', b'"rows": 9'))
    assert people_done(out, 1) is None
    with pytest.raises(IntegrityError, match="says other than was written"):
        mark_of(out, 1)


@pytest.mark.parametrize(
    "changes", [{"rows": None}, {"rows": "3"}, {"rows": -1}, {"files": None}, {"files": []}]
)
def test_a_mark_that_does_not_say_what_the_part_has_is_damaged(
    out: Path, changes: dict[str, Any]
) -> None:
    (out / MARK).write_bytes(sealed(read_sealed(out / MARK, "") | changes))
    with pytest.raises(IntegrityError, match="does not say what the part has"):
        mark_of(out, 1)
    assert len(taken_back(out)) == 1
    assert marked(out) == [0, 2]


def test_a_part_of_another_batch_is_not_done_for_its_mark(out: Path) -> None:
    for batch, parts in (("this", (0, 2)), ("that", (1, 7))):
        (out / MANIFEST).write_bytes(sealed({ID: batch}))
        for part in parts:
            write_part(out, PartTask(part, 0, []), SCHEMA, ["who"], [])
    (out / MANIFEST).write_bytes(sealed({ID: "this"}))
    with pytest.raises(IntegrityError, match=r"part-000001\.parquet is damaged .*another batch"):
        people_of(out, 1)
    again, beyond = taken_back(out)
    assert again.startswith("part 1 has to be done again: ")
    assert beyond.endswith(
        "part-000007.parquet is of another batch, with a longer table: remove it"
    )
    assert marked(out) == [0, 2]
    (out / MANIFEST).unlink()  # nothing tells whose they are
    assert people_of(out, 2).num_rows == 0


def test_stores_that_a_kill_has_left_are_removed_and_no_others(out: Path) -> None:
    write_part(out, PartTask(1, 0, []), SCHEMA, ["who"], [], keeps_store=True)
    (out / STORES).mkdir()
    for part in (0, 1, 2, 3):  # the last is under way
        store_path(out, part).touch()
        for ending in ("-wal", ".lock"):
            store_path(out, part).with_name(f"part-00000{part}.db{ending}").touch()
    with WriterLock.take(store_path(out, 2)):  # its worker still runs
        sweep_stores(out)
    left = {file.name[:11] for file in (out / STORES).iterdir()}
    assert left == {"part-000001", "part-000002", "part-000003"}


# The same model ----------------------------------------------------------------------------------

SAMPLE = [(i, {"a": str(i), "b": "9", "c": "x"}) for i in range(4 * PART_ROWS)]
"""The people of the folder, and of a part that is not done."""


def asked_again(out: Path, oracle: Oracle, turn: int = 0) -> int:
    return check_model(out, PART_ROWS, oracle, SCHEMA, SAMPLE, turn)


def test_a_model_that_gives_what_it_gave_may_go_on(out: Path) -> None:
    oracle, people = Adder(), set[Row]()
    for turn in range(3):
        assert asked_again(out, oracle, turn * ASKED_AGAIN) == ASKED_AGAIN
        people |= {*oracle.batches[-1]}
    assert len(oracle.batches) == 3  # in batches
    assert people == {(i, 9, "x") for i in range(3 * PART_ROWS)}  # who are done, and all in turn


def test_another_model_under_the_same_name_is_noticed(out: Path) -> None:
    class Trained(Adder):
        def ask(self, rows: Sequence[Row]) -> Answers:
            was = super().ask(rows)
            return Answers(was.probability * 0.9, was.decision)

    with pytest.raises(IntegrityError, match=r"adder is not the model of the batch.*not 0\.45"):
        asked_again(out, Trained())


def test_a_row_that_the_model_breaks_on_or_broke_on_tells_nothing(out: Path) -> None:
    assert asked_again(out, Broken("raises", lambda row: row[0] == 0)) == 2 * ASKED_AGAIN
    write_part(out, PartTask(0, 0, [{}]), SCHEMA, ["who"], [failed(0)])
    for part in (1, 2):
        (out / DONE / f"part-00000{part}.json").unlink()
    assert asked_again(out, Adder()) == 0


def failed(index: int) -> ResultData:
    return ResultData(query={}, outcome=Outcome(OutcomeKind.FAILED, "it broke"), index=index)
