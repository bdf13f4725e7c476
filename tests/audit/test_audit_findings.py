from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from audit_world import NOTES, Made, ended, found, write_batch

from waysout.audit import Audit, audit
from waysout.audit.figures import FEW
from waysout.audit.findings import Finding, findings
from waysout.audit.render import render
from waysout.audit.words import charts, lead, sections, tables
from waysout.batch.tables import Contents

pytest.importorskip("pyarrow", reason="needs pyarrow (waysout[parquet])")

WORDS: dict[str, Any] = {
    "wording": {
        "savings": {"unit": "euros", "label": "money put by"},
        "job": {"words": {"cook": "working as a cook"}},
        "age": {"unit": "years"},
    },
    "rules_in_words": {"12*age <= 840": "The loan is repaid by 70 (the lender wants it)"},
}


def saver(amount: int, **row: Any) -> Made:
    return Made(row, options=((1.0, ("savings",)),), to={"savings": amount})


def told(out: Path, people: list[Made], *by: str, **notes: Any) -> dict[str, Finding]:
    made = audit(write_batch(out, people, 100, **NOTES, **notes), by)
    return {finding.title: finding for finding in findings(made)}


def text(found: dict[str, Finding]) -> str:
    return " ".join(f"{one.says} {' '.join(one.items)} {one.caveat}" for one in found.values())


# What the nearest way asks for ------------------------------------------------------------------


def test_amounts_are_told_in_the_units_of_the_card(tmp_path: Path) -> None:
    people = [saver(amount) for amount in range(100, 4100, 100)]
    people += [Made({}, options=((1.0, ("job",)),), to={"job": "cook"}) for _ in range(35)]
    people += [Made({}, options=((1.0, ("debt",)),), to={"debt": -500}) for _ in range(FEW - 1)]
    asked = told(tmp_path, people, **WORDS)["What the nearest way asks for"]
    assert "takes 1 change (median of 104 people)" in asked.says
    assert asked.items == (
        "Money put by: 2,050 euros more (median; middle half 1,075 to 3,025), for 40 of 104 people",
        "Job: to working as a cook, for 35 of 104 people",
    )


def test_without_the_card_columns_have_their_names_and_no_unit(tmp_path: Path) -> None:
    people = [Made({}, options=((1.0, ("debt",)),), to={"debt": -500}) for _ in range(FEW)]
    asked = told(tmp_path, people)["What the nearest way asks for"]
    assert asked.items == ("Debt: 500 less, for 30 of 30 people",)


def test_the_way_that_is_told_is_the_nearest(tmp_path: Path) -> None:
    # The first does not hold, so that the second is the nearest.
    ways = ((1.0, ("debt",)), (3.0, ("income",)), (4.0, ("savings",)))
    people = [Made({}, options=ways, pockets=(0,), to={"income": 70}) for _ in range(FEW)]
    for contents in (Contents.WAYS, Contents.OPTIONS):
        made = audit(write_batch(tmp_path / contents, people, contents=contents))
        (asked,) = made.everybody.asked
        assert (asked.lever, asked.move, asked.people) == ("income", "more", FEW)
        assert asked.amount is not None
        assert asked.amount.median == 70


def test_an_earlier_batch_is_told_by_its_nearest_option(tmp_path: Path) -> None:
    options = ((2.0, ("savings",)),)
    people = [Made({}, options=options, padding=((1.0, ("debt",)),)) for _ in range(FEW)]
    made = audit(write_batch(tmp_path, people, contents=Contents.BEFORE_WAYS))
    (asked,) = findings(made)
    assert asked.title == "What the nearest option asks for"
    assert asked.items == ("Debt: 1 more, for 30 of 30 people",)


def test_every_lever_of_a_nearest_way_is_asked_for(tmp_path: Path) -> None:
    people = [found(1.0, "income", "debt"), found(2.0, "income"), saver(5)]
    all_ = audit(write_batch(tmp_path, people)).everybody
    counts = {lever.name: lever.nearest for lever in all_.levers}
    assert {asked.lever: asked.people for asked in all_.asked} == counts


def test_codes_are_levels_and_no_amounts(tmp_path: Path) -> None:
    words = {"income": {"coded": True, "words": {"3": "over 40,000"}}}
    people = [Made({}, options=((1.0, ("income",)),), to={"income": 3}) for _ in range(FEW)]
    asked = told(tmp_path, people, wording=words)["What the nearest way asks for"]
    assert asked.items == ("Income: to over 40,000, for 30 of 30 people",)


# Few people -------------------------------------------------------------------------------------


def test_nothing_typical_is_said_of_few_people(tmp_path: Path) -> None:
    people = [saver(100 + i % 3, sex="FM"[i % 2]) for i in range(FEW - 1)]
    said = told(tmp_path, people, "sex", **WORDS)
    assert not [item for finding in said.values() for item in finding.items]
    assert "too few to say what it typically takes" in text(said)
    assert "No group can be compared" in text(said)


def test_few_others_are_no_ground_for_a_comparison(tmp_path: Path) -> None:
    people = [found(1.0, sex="F") for _ in range(60)] + [found(9.0, sex="M") for _ in range(20)]
    assert "No group can be compared" in told(tmp_path, people, "sex")["Which groups differ"].says


def test_nobody_rejected_is_no_finding(tmp_path: Path) -> None:
    assert not told(tmp_path, [ended("already-approved", sex="F")], "sex")


# Groups -----------------------------------------------------------------------------------------


def test_groups_that_differ_clearly_come_largest_first(tmp_path: Path) -> None:
    people = [found(2.0 + i % 5 / 10, town="a") for i in range(40)]
    people += [found(4.0 + i % 5 / 10, town="b") for i in range(20)]
    people += [ended("budget-spent", town="b") for _ in range(28)]
    people += [found(2.0 + i % 5 / 10, town="c") for i in range(30)]
    people += [ended("budget-spent", town="c") for _ in range(10)]
    differ = told(tmp_path, people, "town")["Which groups differ"]
    assert differ.items[0].startswith(
        "Town, b (48 people): 58\u00a0% have no way out, 45.8 points more"
    )
    assert [item.partition(" (")[0] for item in differ.items[:2]] == ["Town, b", "Town, a"]
    assert "one in twenty" in differ.caveat
    assert "no proof of unfairness" in differ.caveat
    # Only 20 of town b have a way out.
    assert not [item for item in differ.items if "costs" in item and "Town, b" in item]


def test_what_a_yes_costs_a_group_is_told_in_real_units_too(tmp_path: Path) -> None:
    people = [saver(1000, sex="M") for _ in range(40)]
    dear = Made({"sex": "F"}, options=((3.0, ("savings",)),), to={"savings": 2500})
    differ = told(tmp_path, [*people, *[dear] * 30], "sex", **WORDS)["Which groups differ"]
    (item,) = differ.items  # of two groups one says it for both
    assert item.startswith("Sex, F (30 people): a yes costs 3.0 times as much as for the others")
    assert "money put by 2,500 euros more, where everybody's median is 1,000 euros" in item


def test_groups_that_do_not_differ_are_not_made_to(tmp_path: Path) -> None:
    people = [found(1.0 + i % 7, sex="FM"[i % 2]) for i in range(140)]
    differ = told(tmp_path, people, "sex")["Which groups differ"]
    assert (differ.items, differ.caveat) == ((), "")
    assert "None differs clearly" in differ.says


def test_groups_have_the_words_and_units_of_the_card(tmp_path: Path) -> None:
    people = [found(1.0, job="cook", age=age) for age in range(20, 60)]
    made = audit(write_batch(tmp_path, people, **NOTES, **WORDS), ["job", "age"])
    names = [
        frame.index.tolist() for s in made.sections for _, frame in [tables(made, s, 1)["cost"]]
    ]
    assert names[0] == ["working as a cook"]
    assert names[1][:2] == ["up to 29 years", "over 29 to 39 years"]


# Nobody's way out -------------------------------------------------------------------------------


def test_rules_that_leave_none_are_told_in_words(tmp_path: Path) -> None:
    people = [found() for _ in range(10)]
    people += [ended("infeasible", "12*age <= 840", "domain") for _ in range(3)]
    people += [ended("budget-spent"), ended("exhausted")]
    made = audit(write_batch(tmp_path, people, **NOTES, **WORDS))
    none = findings(made)[0]
    assert "The rules leave 3 of 15 people no way out: 20\u00a0%" in none.says
    assert "For 1 person none was found within the budget" in none.says
    assert "the search had nothing left to try" in none.says
    assert none.items[0] == "The loan is repaid by 70 (the lender wants it): 3 people"
    for format in ("html", "markdown"):
        assert "12*age" not in render(made, format).replace("\\", "")
        assert "domain" not in render(made, format)


def test_rules_without_words_have_their_label(tmp_path: Path) -> None:
    none = told(tmp_path, [ended("infeasible", "age is fixed")])["Who has no way out"]
    assert none.items == ("age is fixed: 1 person",)


# What has nothing to tell -----------------------------------------------------------------------


def everybody_found(out: Path) -> Audit:
    people = [Made({"sex": s}, options=((1.0, ("income",)),), calls=0) for s in "FFM"]
    return audit(write_batch(out, people, **NOTES), ["sex"])


def test_what_is_all_zero_is_not_shown(tmp_path: Path) -> None:
    made = everybody_found(tmp_path)
    shown = tables(made, made.sections[0], 5)
    assert list(shown) == ["cost", "ways", "levers", "search"]
    assert list(shown["search"][1]) == ["chance"]
    assert list(charts(made, made.sections[0])) == ["cost"]
    for format in ("html", "markdown"):
        page = render(made, format)
        assert not [
            x for x in ("Why without", "LLM calls", "No way out found", "Budget:") if x in page
        ]
        assert "all 3 have a way out" in page


def test_reasons_that_nobody_has_are_not_shown(tmp_path: Path) -> None:
    people = [found(sex="F"), ended("budget-spent", sex="M")]
    made = audit(write_batch(tmp_path, people, **NOTES), ["sex"])
    shown = tables(made, made.sections[0], 5)
    assert list(shown["why"][1]) == ["budget"]
    assert shown["why"][1].index.tolist() == ["M"]
    assert shown["cost"][1].index.tolist() == ["F"]


def test_a_page_without_a_way_out_has_no_empty_tables(tmp_path: Path) -> None:
    made = audit(write_batch(tmp_path, [ended("budget-spent", sex="F")], **NOTES), ["sex"])
    assert list(tables(made, made.sections[0], 5)) == ["without", "why", "search"]
    assert "The cost of a yes" not in render(made, "html")


# The page ---------------------------------------------------------------------------------------


def test_every_text_opens_with_the_findings(tmp_path: Path) -> None:
    people = [saver(100 * i, sex="F") for i in range(1, FEW + 1)]
    made = audit(write_batch(tmp_path, people, **NOTES, **WORDS), ["sex"])
    for format in ("html", "markdown"):
        page = render(made, format)
        places = [
            page.index(x) for x in (lead(made), "Money put by: 1,550 euros more", "cost of a")
        ]
        assert places == sorted(places)
    assert sections(made) == made.sections
