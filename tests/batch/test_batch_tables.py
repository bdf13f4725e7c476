from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from part_files import write_part

from waysout.batch.job import PartTask
from waysout.batch.marks import DONE, PEOPLE, part_name
from waysout.batch.tables import (
    Contents,
    PartRows,
    has_ways,
    options,
    people,
    people_done,
    sweep,
)
from waysout.domain.budget import Spent
from waysout.domain.result import Option, Outcome, OutcomeKind, ResultData, Safer, Way
from waysout.domain.rules import Violation
from waysout.domain.schema import Feature, Schema
from waysout.errors import InputError, IntegrityError, MissingExtra, UnavailableError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

SCHEMA = Schema(
    (
        Feature("income", "number"),
        Feature("term", "integer", missing="keep"),
        Feature("owner", "boolean"),
        Feature("job", "category", levels=("clerk", "cook")),
    )
)
COLUMNS = ("income", "term", "owner", "job", "note")
RAW: dict[str, Any] = {"income": "1.50", "term": "", "owner": "no", "job": "cook", "note": None}


def way_out(proximity: float = 0.5, sparsity: int = 1, **changes: tuple[Any, Any]) -> Option:
    changes = changes or {"term": (12, 24)}
    row = {"income": 1.5, "term": None, "owner": False, "job": "cook"}
    row |= {name: pair[1] for name, pair in changes.items()}
    return Option(row, changes, 0.75, proximity, sparsity, key=f"key {sorted(changes)}")


def as_way(option: Option, cost: float = 0.25, **more: Any) -> Way:
    return Way(**vars(option), levers=tuple(option.changes), cost=cost, **more)


def person(index: int, *found: Option, **more: Any) -> ResultData:
    kind = OutcomeKind.FOUND if found else OutcomeKind.EXHAUSTED
    return ResultData({}, more.pop("outcome", Outcome(kind)), options=found, index=index, **more)


def write(out: Path, results: Iterable[ResultData], part: int = 0, **more: Any) -> None:
    results = list(results)
    first = min((result.index for result in results), default=0)
    rows = more.pop("rows", [RAW] * len(results))
    task = PartTask(part, first, rows)
    schema, columns = more.pop("schema", SCHEMA), more.pop("columns", COLUMNS)
    write_part(out, task, schema, columns, results, more.pop("contents", Contents.WAYS))


def all_of(tables: Iterable[Any]) -> list[dict[str, Any]]:
    return [row for table in tables for row in table.to_pylist()]


# What is written -------------------------------------------------------------------------------


NOT_A_WAY = dict.fromkeys(
    ("way", "levers", "cost", "irreducible", "tight", "holds", "variants", "at_least")
)


@pytest.mark.parametrize("contents", [Contents.WAYS, Contents.OPTIONS])
def test_a_safer_variant_follows_its_way(tmp_path: Path, contents: Contents) -> None:
    near, far = way_out(0.5, 1, term=(12, 24)), way_out(0.4, 1, term=(12, 36))
    ways = (
        as_way(near, safer=(Safer(**vars(far), at_least=0.8),)),
        as_way(way_out(owner=(False, True))),
    )
    write(tmp_path, [person(0, near, ways=ways)], contents=contents)
    rows = all_of(options(tmp_path))
    assert [(row["way"], row["at_least"], row["term"]) for row in rows] == [
        (0, None, 24), (0, 0.8, 36), (1, None, None),
    ]  # fmt: skip


def test_a_way_is_a_row_with_the_whole_person_after_the_change(tmp_path: Path) -> None:
    option = replace(way_out(0.5, 2, term=(12, 24), owner=(False, True)), reasons=("longer",))
    other = way_out(0.5, 1, term=(12, 36))
    known = {"irreducible": True, "tight": False, "holds": None, "variants": (other, other)}
    best, second = as_way(option, 0.125, **known), as_way(replace(way_out(), stable=True))
    write(tmp_path, [person(0, other, way_out(), option, ways=(best, second))])
    first, last = all_of(options(tmp_path))
    assert first == {
        "row_id": 0, "option": 2, "key": "key ['owner', 'term']",
        "changes": '{"term": [12, 24], "owner": [false, true]}', "changed": ["term", "owner"],
        "probability": 0.75, "proximity": 0.5, "distance": 1.0, "sparsity": 2, "stable": None,
        "reasons": ["longer"], "way": 0, "levers": ["term", "owner"], "cost": 0.125,
        "irreducible": True, "tight": False, "holds": None, "variants": 2, "at_least": None,
        "income": 1.5, "term": 24, "owner": True, "job": "cook",
    }  # fmt: skip
    assert (last["way"], last["cost"], last["stable"], last["variants"]) == (1, 0.25, True, 0)


def test_all_options_are_rows_as_they_were_found_and_ways_are_marked(tmp_path: Path) -> None:
    padded = way_out(0.25, 2, term=(12, 24), owner=(False, True))
    far, near = way_out(0.25, 1, job=("cook", "clerk")), way_out(0.5, 1, term=(12, 24))
    back = replace(near, row={**near.row, "term": 20}, changes={"term": (12, 20)})
    ways = (as_way(back, 0.1), as_way(far, 0.2))
    write(tmp_path, [person(0, padded, far, near, ways=ways)], contents=Contents.OPTIONS)
    rows = all_of(options(tmp_path))
    assert [(row["option"], row["way"], row["term"]) for row in rows] == [
        (0, None, 24), (1, 1, None), (2, None, 24), (2, 0, 20),
    ]  # fmt: skip
    assert [row["cost"] for row in rows] == [None, 0.2, None, 0.1]
    assert rows[2]["key"] == rows[3]["key"]


@pytest.mark.parametrize("contents", [Contents.WAYS, Contents.OPTIONS])
def test_a_result_without_ways_has_its_options_written(tmp_path: Path, contents: Contents) -> None:
    write(tmp_path, [person(0, way_out(), way_out(0.4, 1, owner=(False, True)))], contents=contents)
    rows = all_of(options(tmp_path))
    assert [(row["option"], row["changed"]) for row in rows] == [(0, ["term"]), (1, ["owner"])]
    assert all({name: row[name] for name in NOT_A_WAY} == NOT_A_WAY for row in rows)
    (asked,) = all_of(people(tmp_path))
    assert (asked["options"], asked["ways"], asked["nearest_way_cost"]) == (2, 0, None)


def test_a_folder_that_was_begun_before_ways_keeps_its_columns(tmp_path: Path) -> None:
    schema = Schema((*SCHEMA, Feature("cost", "integer")))
    told = [person(0, way_out(), ways=(as_way(way_out()),))]
    write(tmp_path / "old", told, contents=Contents.BEFORE_WAYS, schema=schema)
    write(tmp_path / "new", told, schema=schema)
    (old,), (new,) = options(tmp_path / "old"), options(tmp_path / "new")
    assert set(new.column_names) - set(old.column_names) == {*NOT_A_WAY, "feature_cost"} - {"cost"}
    assert [has_ways(tmp_path / name) for name in ("old", "new")] == [False, True]
    (asked,) = people(tmp_path / "old")
    assert not [name for name in asked.column_names if "way" in name or name == "approved_rows"]


def test_a_person_is_a_row_with_what_was_found_and_spent_and_the_input_as_text(
    tmp_path: Path,
) -> None:
    spent = Spent(3, 4, 500, 60, 7, 80, 9, 0.25, 1.5)
    result = person(
        5,
        way_out(0.4, 1, job=("cook", "clerk")),
        way_out(0.5, 2, term=(12, 24), owner=(False, True)),
        outcome=Outcome(OutcomeKind.FOUND, "all asked", best_probability=0.9),
        ledger=spent,
        metrics={"calls_saved": 2, "valid": 40},
        ways=(
            as_way(way_out(0.4, 2, owner=(False, True), term=(12, 13)), 0.1, holds=None),
            as_way(way_out(0.3, 1, job=("cook", "clerk")), 0.5, holds=True, irreducible=True),
        ),
        settings={"query_probability": 0.125},
    )
    write(tmp_path, [result], part=3)
    (row,) = all_of(people(tmp_path))
    assert row == {
        "row_id": 5, "outcome": "found", "reason": "all asked", "probability": 0.125,
        "best_probability": 0.9, "options": 2, "nearest_distance": 1.0, "nearest_changes": 2,
        "fewest_changes": 1, "nearest": ["term", "owner"], "alone": ["job"],
        "levers": ["job", "term", "owner"], "binding": [], **spent.as_dict(), "calls_saved": 2,
        "ways": 2, "approved_rows": 40, "nearest_way": ["job"], "nearest_way_cost": 0.5,
        "nearest_way_distance": 1 / 0.3 - 1, "nearest_way_changes": 1, "nearest_way_holds": True,
        "ways_fewest_changes": 1, "ways_alone": ["job"], "ways_levers": ["owner", "term", "job"],
        "input.income": "1.50", "input.term": "", "input.owner": "no", "input.job": "cook",
        "input.note": None,
    }  # fmt: skip


def test_the_types_are_those_promised_even_where_there_is_nothing(tmp_path: Path) -> None:
    write(tmp_path, [])
    (found,), (asked,) = options(tmp_path), people(tmp_path)
    assert {f.name: str(f.type) for f in found.schema} == {
        "row_id": "int64", "option": "int32", "key": "string", "changes": "string",
        "changed": "list<element: string>", "probability": "double", "proximity": "double",
        "distance": "double", "sparsity": "int32", "stable": "bool",
        "reasons": "list<element: string>", "way": "int32", "levers": "list<element: string>",
        "cost": "double", "irreducible": "bool", "tight": "bool", "holds": "bool",
        "variants": "int32", "at_least": "double",
        "income": "double", "term": "int64", "owner": "bool", "job": "string",
    }  # fmt: skip
    assert [str(asked.schema.field(n).type) for n in ("options", "tokens_in", "money")] == [
        "int32", "int64", "double",
    ]  # fmt: skip
    assert found.schema.metadata[b"waysout_batch"] == asked.schema.metadata[b"waysout_batch"]
    assert found.num_rows == asked.num_rows == people_done(tmp_path, 0) == 0


def test_results_come_in_any_order_and_meet_their_own_rows(tmp_path: Path) -> None:
    rows = [{"note": f"row {i}"} for i in range(10, 14)]
    results = [person(i, *[way_out()] * (i % 2)) for i in (12, 10, 13, 11)]
    write(tmp_path, results, rows=rows, columns=("note",))
    found = all_of(people(tmp_path, ["row_id", "input.note"]))
    assert found == [{"row_id": i, "input.note": f"row {i}"} for i in range(10, 14)]
    assert [row["row_id"] for row in all_of(options(tmp_path))] == [11, 13]


def test_why_nothing_was_found(tmp_path: Path) -> None:
    binding = [Violation("immutable", (n,), f"{n} stays") for n in ("job", "term")]
    outcome = Outcome(OutcomeKind.INFEASIBLE, "nothing may change", tuple(binding))
    write(tmp_path, [person(0, outcome=outcome)])
    (row,) = all_of(people(tmp_path))
    assert (row["outcome"], row["binding"]) == ("infeasible", ["immutable"])
    empty = ("nearest_distance", "nearest_changes", "fewest_changes", "probability")
    assert [row[name] for name in empty] == [None] * 4
    assert row["nearest"] == row["alone"] == row["levers"] == []


def test_of_equally_near_options_the_simplest_then_the_first_is_the_nearest(
    tmp_path: Path,
) -> None:
    both = way_out(0.5, 2, term=(12, 24), owner=(False, True))
    one, other = way_out(0.5, 1, job=("cook", "clerk")), way_out(0.5, 1, owner=(False, True))
    far = way_out(0.4, 1, term=(12, 13))
    write(tmp_path, [person(0, far, both, one, other), person(1, far, both, other, one)])
    assert [row["nearest"] for row in all_of(people(tmp_path))] == [["job"], ["owner"]]


def test_a_part_that_is_written_anew_is_not_done_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, [person(0, way_out())])
    real, renamed = Path.replace, list[Path]()

    def dies(self: Path, target: Path) -> Path:
        if renamed:
            raise KeyboardInterrupt
        renamed.append(target)
        return real(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, [person(0, way_out()), person(1, way_out())])
    assert renamed == [tmp_path / PEOPLE / part_name(0)]
    assert people_done(tmp_path, 0) is None
    assert all_of(options(tmp_path)) == []


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    write(tmp_path, [person(0, way_out())])
    for folder in (tmp_path, tmp_path / PEOPLE):
        (folder / f"_{part_name(3)}.0a1b2c3d").touch()
    sweep(tmp_path)
    left = sorted(path.name for path in tmp_path.rglob("*.parquet*"))
    assert left == [part_name(0)] * 2


# Odd values and names --------------------------------------------------------------------------


def test_half_a_character_and_numbers_that_are_none_do_not_stop_a_part(tmp_path: Path) -> None:
    odd = Option(
        {"income": math.inf, "term": None, "owner": None, "job": "c\ud800"},
        {"job": ("cook", "c\ud800")}, math.nan, 0.0, 1, key="\udfff", reasons=("\ud83d", "é"),
    )  # fmt: skip
    outcome = Outcome(OutcomeKind.FAILED, "bad \ud800", best_probability=math.nan)
    write(tmp_path, [person(0, odd, outcome=outcome)], rows=[{**RAW, "note": "x\ud800\0"}])
    (found,), (asked,) = all_of(options(tmp_path)), all_of(people(tmp_path))
    assert (found["key"], found["job"], found["reasons"]) == ("?", "c?", ["?", "é"])
    assert json.loads(found["changes"]) == {"job": ["cook", "c?"]}
    assert {found[n] for n in ("probability", "distance", "income")} == {None}
    assert (asked["reason"], asked["input.note"]) == ("bad ?", "x?\0")
    assert asked["nearest_distance"] is asked["best_probability"] is None


def test_cells_of_any_kind_become_text(tmp_path: Path) -> None:
    cells = [b"caf\xc3\xa9", b"\xff", date(2024, 2, 29), [1, None], {"a": 1}, True, 1.0, math.nan]
    cells.append(10**5000)
    rows = [{"x": cell} for cell in cells]
    write(tmp_path, [person(i) for i in range(len(rows))], rows=rows, columns=("x",))
    assert [row["input.x"] for row in all_of(people(tmp_path))] == [
        "café", "�", "2024-02-29", "[1, None]", "{'a': 1}", "True", "1.0", None,
        "a number of thousands of digits",
    ]  # fmt: skip


ODD_NAMES = ("a", "a.b", "a.b.c", "naïve 'quote' \"x\"", "年収", "n" * 300, "row_id", "changes")


def test_odd_names_are_kept_and_ours_come_first(tmp_path: Path) -> None:
    schema = Schema(tuple(Feature(n, "integer") for n in (*ODD_NAMES, "feature_row_id")))
    row = {name: i for i, name in enumerate(schema.names)}
    option = Option(row, {"a.b": (0, 1)}, 0.5, 0.5, 1, "k")
    raw = {name: name for name in ODD_NAMES}
    write(tmp_path, [person(0, option)], schema=schema, columns=ODD_NAMES, rows=[raw])
    (found,), (asked,) = all_of(options(tmp_path)), all_of(people(tmp_path))
    own = {name: row[name] for name in (*ODD_NAMES[:6], "feature_row_id")}
    moved = {"feature_feature_row_id": 6, "feature_changes": 7, "row_id": 0}
    assert found == found | own | moved
    assert asked == asked | {f"input.{name}": name for name in ODD_NAMES}
    assert all_of(options(tmp_path, ["a", "a.b"])) == [{"a": 0, "a.b": 1}]


# The folder ------------------------------------------------------------------------------------


def test_a_folder_reads_as_one_data_set(tmp_path: Path) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    pandas = pytest.importorskip("pandas")
    write(tmp_path, [person(0, way_out()), person(1)], part=0)
    write(tmp_path, [person(2)], part=1)  # nothing but empty columns
    write(tmp_path, [person(3, way_out(term=(12, None)))], part=2)
    (tmp_path / "_stores").mkdir()
    for name in ("_stores/part-000003.db", "_part-000003.parquet.0a1b", "_summary.json"):
        (tmp_path / name).write_bytes(b"PAR1 torn")
    whole = dataset.dataset(tmp_path)
    assert whole.to_table().column("row_id").to_pylist() == [0, 3]
    assert whole.schema.equals(next(options(tmp_path)).schema, check_metadata=True)
    frame = pandas.read_parquet(tmp_path)
    assert (frame["row_id"].tolist(), frame["job"].tolist()) == ([0, 3], ["cook", "cook"])
    asked = pandas.read_parquet(tmp_path / PEOPLE, columns=["row_id", "input.income"])
    assert asked["row_id"].tolist() == [0, 1, 2, 3]
    assert set(asked["input.income"]) == {"1.50"}
    assert dataset.dataset(tmp_path / PEOPLE).count_rows() == 4


def test_nothing_is_left_beside_the_files_and_the_mark_and_nobody_else_may_read_them(
    tmp_path: Path,
) -> None:
    write(tmp_path, [person(0, way_out())], part=7)
    write(tmp_path, [person(0, way_out())], part=7)  # a worker taken for dead comes late
    names = {str(p.relative_to(tmp_path)): p.stat().st_mode & 0o777 for p in tmp_path.rglob("*")}
    files = ("_done/part-000007.json", "_people/part-000007.parquet", "part-000007.parquet")
    assert names == dict.fromkeys((DONE, PEOPLE), 0o700) | dict.fromkeys(files, 0o600)


def test_the_people_come_before_the_options_and_a_failed_write_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_file = Path.replace
    renamed: list[str] = []

    def full_disk(self: Path, target: Path) -> Path:
        assert self.name.startswith("_")
        renamed.append(str(target.relative_to(tmp_path)))
        if target.parent == tmp_path:
            raise OSError(28, "No space left on device")
        return replace_file(self, target)

    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(UnavailableError, match=r"part-000000.parquet: the disk is full"):
        write(tmp_path, [person(0)])
    assert renamed == ["_people/part-000000.parquet", "part-000000.parquet"]
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == [part_name(0)]
    assert people_done(tmp_path, 0) is None
    assert all_of(people(tmp_path)) == []


def test_a_part_counts_once_both_files_are_there(tmp_path: Path) -> None:
    write(tmp_path, [person(i) for i in range(3)])
    assert (people_done(tmp_path, 0), people_done(tmp_path, 1)) == (3, None)
    (tmp_path / PEOPLE / part_name(0)).unlink()
    assert people_done(tmp_path, 0) is None
    with pytest.raises(IntegrityError, match=r"_people.*is missing: run the same .* again"):
        next(people(tmp_path))


def test_parts_come_in_the_order_of_their_numbers_and_strangers_are_passed_over(
    tmp_path: Path,
) -> None:
    numbers = [1_000_000, 999_999, 2, 10_000_000]
    for number in numbers:
        write(tmp_path, [person(number)], part=number)
    for name in ("part-7.parquet", "part-0000002.parquet", "part-000001.parquet.bak", "x.parquet"):
        (tmp_path / name).write_bytes(b"whatever")
    assert [row["row_id"] for row in all_of(people(tmp_path))] == sorted(numbers)


# Faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 3, 200, -1, -9])
@pytest.mark.parametrize("marked", [True, False])
def test_a_torn_file_is_named_with_the_remedy(tmp_path: Path, keep: int, marked: bool) -> None:
    write(tmp_path, [person(0, way_out())])
    if not marked:
        shutil.rmtree(tmp_path / DONE)  # as earlier releases wrote it
    path = tmp_path / PEOPLE / part_name(0)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(IntegrityError) as caught:
        list(people(tmp_path))
    said = str(caught.value)
    assert f"{path} is damaged" in said
    assert "run the same waysout batch command again" in said
    assert len(all_of(options(tmp_path))) == 1


def test_no_flipped_bit_is_believed(tmp_path: Path) -> None:
    write(tmp_path, [person(i, way_out()) for i in range(5)])
    for path in (tmp_path / part_name(0), tmp_path / PEOPLE / part_name(0)):
        whole = path.read_bytes()
        for i in range(0, len(whole), 37):
            path.write_bytes(whole[:i] + bytes([whole[i] ^ 1 << i % 8]) + whole[i + 1 :])
            with pytest.raises(IntegrityError, match="its bytes are not those written"):
                list(options(tmp_path) if path.parent == tmp_path else people(tmp_path))
        path.write_bytes(whole)
    assert len(all_of(people(tmp_path))) == 5


def test_without_a_digest_no_flipped_byte_breaks_a_reader(tmp_path: Path) -> None:
    write(tmp_path, [person(i, way_out()) for i in range(5)])
    shutil.rmtree(tmp_path / DONE)  # as earlier releases wrote it
    path = tmp_path / part_name(0)
    whole = path.read_bytes()
    damaged = 0
    for i in range(0, len(whole), 37):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 0xFF]) + whole[i + 1 :])
        try:
            all_of(options(tmp_path))
        except (IntegrityError, InputError):
            damaged += 1
    assert damaged > 10


def test_files_of_others_and_of_other_releases_are_refused(tmp_path: Path) -> None:
    path = tmp_path / part_name(0)
    foreign = pyarrow.table({"row_id": [1]})
    parquet.write_table(foreign, path)
    with pytest.raises(InputError, match="was not written by a batch"):
        list(options(tmp_path))
    parquet.write_table(foreign.replace_schema_metadata({"waysout_batch": "2"}), path)
    with pytest.raises(InputError, match=r"has version b'2'; this release reads 1"):
        list(options(tmp_path))


def test_unknown_columns_and_folders_are_named(tmp_path: Path) -> None:
    write(tmp_path, [person(0)])
    with pytest.raises(InputError, match=r"unknown column 'row'; did you mean 'row_id'"):
        list(people(tmp_path, ["row"]))
    with pytest.raises(InputError, match="there is no folder"):
        list(people(tmp_path / "absent"))


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"waysout\[parquet\]"):
        write(tmp_path, [person(0)])


def test_features_hold_the_table_s_values_in_their_own_types(tmp_path: Path) -> None:
    schema = Schema((
        Feature("insured", "boolean", levels=("N", "Y")), Feature("owns", "boolean", levels=(0, 1)),
        Feature("plain", "boolean"), Feature("job", "category", levels=(1, 2), missing="keep"),
        Feature("rate", "category", levels=(1, 2.5)), Feature("odd", "category", levels=(1, "x")),
    ))  # fmt: skip
    raw = schema.raw((True, False, True, None, "2.5", "1"))
    found = Option(raw, {"insured": ("N", "Y")}, 0.75, 0.5, 1, key="key")
    for name, as_in_table in (("new", True), ("old", False)):
        rows = PartRows(schema, (), as_in_table=as_in_table)
        rows.add({}, person(0, found))
        rows.write(tmp_path / name, 0)
    (new,), (old,) = options(tmp_path / "new"), options(tmp_path / "old")
    assert [str(new.schema.field(name).type) for name in schema.names] == [
        "string", "int64", "bool", "int64", "double", "string",
    ]  # fmt: skip
    assert new.select(schema.names).to_pylist() == [{**raw, "odd": "1"}]
    assert json.loads(new["changes"][0].as_py()) == {"insured": ["N", "Y"]}
    # A folder that an earlier release began goes on as it was.
    assert [str(old.schema.field(name).type) for name in schema.names] == [
        "bool", "bool", "bool", "string", "string", "string",
    ]  # fmt: skip
    assert old["insured"].to_pylist() == [True]
    assert json.loads(old["changes"][0].as_py()) == {"insured": [False, True]}
