from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from audit_world import NOTES, Made, ended, found, write_batch

from waysout.audit import Audit, audit
from waysout.audit.figures import Group, LeverUse
from waysout.audit.people import About
from waysout.audit.words import coverage
from waysout.batch.marks import PEOPLE, part_name, unmark
from waysout.batch.tables import Contents
from waysout.errors import InputError, IntegrityError

pytest.importorskip("pyarrow", reason="needs pyarrow (waysout[parquet])")

WOMEN = [
    Made({"sex": "F"}, options=((3.0, ("income", "debt")), (4.0, ("income",)))),
    found(2.0, "savings", sex="F"),
    ended("infeasible", "age is fixed", sex="F"),
    ended("infeasible", "age is fixed", "no debt", sex="F"),
    ended("budget-spent", sex="F"),
    ended("already-approved", sex="F"),
]
MEN = [
    found(1.0, "income", sex="M"),
    found(1.5, "debt", sex="M"),
    ended("exhausted", sex="M"),
    ended("failed", sex="M"),
    ended("interrupted", sex="M"),
    ended("already-approved", sex="M"),
]


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return write_batch(tmp_path / "out", [*WOMEN, *MEN], **NOTES)


def grouped(made: Audit, section: int = 0) -> dict[str, Group]:
    return {group.name: group for group in made.sections[section].groups}


def sizes(out: Path, by: str) -> dict[str, int]:
    return {name: group.people for name, group in grouped(audit(out, [by])).items()}


def test_everybody_is_counted_and_only_the_rejected_enter_rates(world: Path) -> None:
    all_ = audit(world).everybody
    assert (all_.people, all_.with_way_out, all_.without, all_.approved) == (8, 4, 4, 2)
    assert all_.approval_rate == 0.2
    assert all_.share_without is not None
    assert all_.share_without.value == 0.5
    assert all_.outcomes["failed"] == all_.outcomes["interrupted"] == 1
    assert sum(all_.outcomes.values()) == 12
    assert all_.share_difference is None


def test_the_figures_of_a_group_are_those_of_its_people(world: Path) -> None:
    women = grouped(audit(world, ["sex"]))["F"]
    assert (women.people, women.without, women.few, women.few_costs) == (5, 3, True, True)
    assert women.why_without == {"infeasible": 2, "budget-spent": 1, "exhausted": 0}
    assert women.binding == {"age is fixed": 2, "no debt": 1}
    assert women.cost is not None
    assert (women.cost.low, women.cost.median, women.cost.high) == (1.125, 1.25, 1.375)
    assert (women.changes, women.fewest_changes) == (1.5, 1.0)
    assert (women.ways, women.holds, women.options) == (1.5, 1.0, 1.5)
    assert (women.chance, women.llm_calls) == (0.25, 2.0)


def test_differences_are_to_all_others(world: Path) -> None:
    groups = grouped(audit(world, ["sex"]))
    shares = [groups[name].share_difference for name in "FM"]
    costs = [groups[name].cost_difference for name in "FM"]
    assert [round(d.value, 6) for d in shares if d] == [round(3 / 5 - 1 / 3, 6), -round(4 / 15, 6)]
    assert [d.value for d in costs if d] == [0.625, -0.625]
    assert all(d.low <= d.value <= d.high for d in [*shares, *costs] if d)


def test_levers_count_nearest_alone_and_some(world: Path) -> None:
    women = grouped(audit(world, ["sex"]))["F"]
    assert women.levers == (
        LeverUse("income", 1, 1, 1),
        LeverUse("savings", 1, 1, 1),
        LeverUse("debt", 1, 0, 1),
    )


def test_cost_and_levers_are_those_of_ways_and_of_what_holds(tmp_path: Path) -> None:
    nearer = ((0.5, ("debt", "savings")),)
    pocket = Made({}, options=((1.0, ("debt",)), (2.0, ("income",))), pockets=(0,), padding=nearer)
    only = Made({}, options=((4.0, ("debt",)),), pockets=(0,))
    made = audit(write_batch(tmp_path, [pocket, only]))
    all_ = made.everybody
    assert made.nearest == "way"
    assert all_.cost is not None
    assert (all_.cost.low, all_.cost.high) == (1.25, 1.75)  # quartiles of 1 and 2
    assert (all_.holds, all_.ways, all_.options) == (0.5, 1.5, 2.0)
    assert all_.levers == (LeverUse("debt", 1, 2, 2), LeverUse("income", 1, 1, 1))


def test_a_folder_of_an_earlier_release_is_told_by_its_options(tmp_path: Path) -> None:
    people = [Made({"sex": "F"}, options=((2.0, ("income",)),), padding=((1.0, ("debt",)),))]
    new = audit(write_batch(tmp_path / "new", people), ["sex"])
    old = audit(write_batch(tmp_path / "old", people, contents=Contents.BEFORE_WAYS), ["sex"])
    costs = [made.everybody.cost.median for made in (new, old) if made.everybody.cost]
    assert (costs, new.nearest, old.nearest) == ([1.0, 1.0], "way", "option")
    assert [lever.name for lever in old.everybody.levers] == ["debt", "income"]
    assert (old.everybody.ways, old.everybody.holds, old.everybody.options) == (None, None, 2.0)
    assert old.as_dict()["nearest"] == "option"


def test_how_the_rows_are_parted_changes_nothing(tmp_path: Path) -> None:
    people = [*WOMEN, *MEN]
    told = [
        audit(write_batch(tmp_path / str(n), people, n), ["sex"]).as_dict() | {"parts": 0}
        for n in (1, 5, 12)
    ]
    assert told[0] == told[1] == told[2]


def test_a_group_and_the_others_make_everybody(world: Path) -> None:
    made = audit(world, ["sex"])
    for name in ("people", "approved", "with_way_out", "without"):
        parts = [getattr(group, name) for group in made.sections[0].groups]
        assert sum(parts) == getattr(made.everybody, name)


def test_columns_are_crossed_with_a_comma_and_repeated_for_sections(tmp_path: Path) -> None:
    people = [found(sex=s, town=t) for s, t in ("Fa", "Fa", "Mb", "Fb")]
    made = audit(write_batch(tmp_path, people), ["sex", "sex,town", "town", "sex"])
    assert [section.by for section in made.sections] == [("sex",), ("sex", "town"), ("town",)]
    assert {name: g.people for name, g in grouped(made, 1).items()} == {
        "F, a": 2,
        "F, b": 1,
        "M, b": 1,
    }


def test_a_column_may_have_a_comma_in_its_name(tmp_path: Path) -> None:
    row: dict[str, Any] = {"sex, at birth": "F"}
    assert sizes(write_batch(tmp_path, [Made(row)]), "sex, at birth") == {"F": 1}


def test_an_unknown_column_is_named_with_the_nearest(world: Path) -> None:
    with pytest.raises(InputError, match="unknown column 'sx'; did you mean 'sex'"):
        audit(world, ["sx"])


def test_numbers_are_grouped_by_the_quartiles_of_those_rejected(tmp_path: Path) -> None:
    people = [found(age=age) for age in range(1, 41)]
    people += [ended("already-approved", age=90) for _ in range(50)]
    made = audit(write_batch(tmp_path, people, 50), ["age"])
    section = made.sections[0]
    assert section.edges == {"age": (10.0, 20.0, 30.0)}
    assert {g.name: (g.people, g.approved) for g in section.groups} == {
        "up to 10": (10, 0),
        "over 10 to 20": (10, 0),
        "over 20 to 30": (10, 0),
        "over 30": (10, 50),
    }


def test_equal_quartiles_make_fewer_groups(tmp_path: Path) -> None:
    people = [found(gain=gain) for gain in [0] * 80 + list(range(1, 21))]
    assert sizes(write_batch(tmp_path, people, 100), "gain") == {"up to 0": 80, "over 0": 20}


def test_few_numbers_are_groups_in_their_order_however_written(tmp_path: Path) -> None:
    people = [found(kids=kids) for kids in ("10", "2", "2.0", " 2", "0", "10.0")]
    out = write_batch(tmp_path, people)
    assert list(sizes(out, "kids").items()) == [("0", 1), ("2", 3), ("10", 2)]


def test_missing_cells_and_stray_texts_are_groups_of_their_own(tmp_path: Path) -> None:
    cells = [str(age) for age in range(97)] + ["old", None, "NA", ""]
    out = write_batch(tmp_path, [found(age=cell) for cell in cells], 50)
    told = sizes(out, "age")
    assert (told["(missing)"], told["(not a number)"]) == (3, 1)
    assert sum(told.values()) == len(cells)


def test_the_largest_twenty_groups_are_told_and_the_rest_as_one(tmp_path: Path) -> None:
    people = [found(town=f"t{i}") for i in range(25) for _ in range(25 - i)]
    section = audit(write_batch(tmp_path, people, 400), ["town"]).sections[0]
    counts = [group.people for group in section.groups]
    assert counts == [*range(25, 5, -1), 5 + 4 + 3 + 2 + 1]
    assert (section.groups[-1].name, section.merged) == ("(5 others)", 5)


def test_twentyone_groups_are_all_told(tmp_path: Path) -> None:
    people = [found(town=f"t{i}") for i in range(21)]
    assert len(sizes(write_batch(tmp_path, people, 30), "town")) == 21


def test_text_groups_come_by_size(tmp_path: Path) -> None:
    people = [found(town=town) for town in "abbccc"]
    told = sizes(write_batch(tmp_path, people), "town")
    assert all(a >= b for a, b in pairwise(told.values()))
    assert list(told) == ["c", "b", "a"]


def test_a_group_nobody_of_which_was_rejected_has_no_figures(tmp_path: Path) -> None:
    people = [found(sex="F"), ended("already-approved", sex="M")]
    men = grouped(audit(write_batch(tmp_path, people), ["sex"]))["M"]
    assert (men.people, men.approval_rate) == (0, 1.0)
    figures = (men.share_without, men.share_difference, men.cost, men.llm_calls, men.chance)
    assert figures == (None,) * 5


def test_only_parts_that_are_done_count(world: Path) -> None:
    unmark(world, 2)
    made = audit(world, ["sex"])
    assert (made.about.rows, made.rows, made.parts) == (12, 8, 2)
    assert sum(made.everybody.outcomes.values()) == 8


def test_a_damaged_part_is_named_with_the_remedy(world: Path) -> None:
    path = world / part_name(1)
    path.write_bytes(path.read_bytes()[:-20] + bytes(20))
    with pytest.raises(IntegrityError, match=r"part-000001\.parquet is damaged.*batch command"):
        audit(world)


def test_a_batch_needs_no_notes(world: Path) -> None:
    (world / "_manifest.json").unlink()
    made = audit(world)
    assert (made.about, made.rows) == (About(), 12)
    assert "12 rows of the input; of how many is unknown" in coverage(made)


@pytest.mark.parametrize("notes", ["", "{", "[]", '{"problem": 3, "llm": 7, "rows": "x"}'])
def test_notes_that_are_damaged_are_not_passed_over(world: Path, notes: str) -> None:
    (world / "_manifest.json").write_text(notes)
    with pytest.raises(IntegrityError, match=r"_manifest\.json is damaged .*put back a copy"):
        audit(world)


def test_notes_name_the_batch(world: Path) -> None:
    about = audit(world).about
    assert (about.title, about.llm, about.method, about.stand_in) == (
        "Loans", "simulated:1", "recombine", "simulated",
    )  # fmt: skip


def test_a_folder_without_a_done_part_is_refused(tmp_path: Path) -> None:
    (tmp_path / PEOPLE).mkdir()
    with pytest.raises(InputError, match="holds no finished part"):
        audit(tmp_path)
    with pytest.raises(InputError, match="no folder"):
        audit(tmp_path / "elsewhere")


def test_an_empty_batch_is_no_error(tmp_path: Path) -> None:
    from part_files import write_part

    from waysout.batch.job import PartTask
    from waysout.domain.schema import Feature, Schema

    schema = Schema((Feature("income", "integer"),))
    write_part(tmp_path, PartTask(0, 0, []), schema, ["sex"], [])
    made = audit(tmp_path, ["sex"])
    assert (made.rows, made.everybody.people, made.sections[0].groups) == (0, 0, ())


def test_as_dict_is_plain_data(world: Path) -> None:
    told = audit(world, ["sex"]).as_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert (told["waysout_audit"], told["stand_in"]) == (1, "simulated")
    assert told["sections"][0]["by"] == ["sex"]
