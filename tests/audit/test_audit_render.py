from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from audit_world import NOTES, Made, ended, found, write_batch

from waysout.audit import Audit, audit
from waysout.audit.render import FORMATS, render
from waysout.audit.words import lead, notes, tables
from waysout.batch.tables import Contents
from waysout.errors import InputError

pytest.importorskip("pyarrow", reason="needs pyarrow (waysout[parquet])")

NASTY = "=1+1|<script>alert(1)</script>\u202e*x*"
TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "section", "div", "h1", "h2", "h3",
    "main", "p", "strong", "bdi", "ul", "ol", "li", "table", "caption", "thead", "tbody", "tr",
    "th", "td", "small", "figure", "figcaption", "svg", "line", "circle", "text",
}  # fmt: skip


class Tags(HTMLParser):
    """The tags of a page, all of which it closes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def made(tmp_path: Path, by: str = "sex", **other: object) -> Audit:
    people = [found(1.0 + i % 3, "income", **{by: "F"}) for i in range(40)]
    people += [ended("infeasible", "age is fixed", **{by: "M"}) for _ in range(35)]
    people += [found(2.0, "debt", **{by: "M"}) for _ in range(5)]
    people += [ended("already-approved", **{by: "M"}), ended("failed", **{by: "M"})]
    return audit(write_batch(tmp_path, people, 50, **{**NOTES, "rows": 82, **other}), [by])


def nasty(tmp_path: Path) -> Audit:
    row = {NASTY: NASTY}
    people = [Made(row, options=((1.0, ("income",)),)), ended("infeasible", NASTY, **row)]
    problem = {"title": NASTY, "rules": [NASTY]}
    return audit(write_batch(tmp_path, people, **{**NOTES, "problem": problem}), [NASTY])


@pytest.mark.parametrize("stand_in", ["simulated", "scripted"])
def test_what_stands_in_for_an_llm_is_named_in_every_format(tmp_path: Path, stand_in: str) -> None:
    told = made(tmp_path, llm=f"{stand_in}:1")
    for format in ("markdown", "csv", "html"):
        assert f"{stand_in}: no language model" in render(told, format)
    assert json.loads(render(told, "json"))["stand_in"] == stand_in


def test_a_real_llm_is_named_without_its_address(tmp_path: Path) -> None:
    told = made(tmp_path, llm="openai:gemma@http://10.0.0.1:80")
    assert "LLM openai:gemma" in render(told, "markdown")
    assert not re.search("10.0.0.1|imulated", render(told, "html") + render(told, "markdown"))


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown format 'pdf'"):
        render(made(tmp_path), "pdf")


def test_the_lead_says_who_has_a_way_out(tmp_path: Path) -> None:
    told = lead(made(tmp_path))
    assert "80 people whom the model rejected, 45 have a way out: 56\u00a0% (95\u00a0%" in told
    everyone = audit(write_batch(tmp_path / "all", [found() for _ in range(4)]))
    assert (
        "of 4 people whom the model rejected, all 4 have a way out: 100" in lead(everyone).lower()
    )


def test_a_percent_sign_keeps_to_its_number(tmp_path: Path) -> None:
    told = made(tmp_path)
    for text in (render(told, "html").partition("<body>")[2], render(told, "markdown")):
        assert re.search(r"\d\u00a0%", text)
        assert not re.search(r"\d ?%", text)


def test_what_was_written_before_ways_says_so_in_every_format(tmp_path: Path) -> None:
    people = [found(2.0, "income", sex="F")]
    old, new = (
        audit(write_batch(tmp_path / contents, people, contents=contents), ["sex"])
        for contents in (Contents.BEFORE_WAYS, Contents.WAYS)
    )
    for format in ("markdown", "html"):
        told = render(old, format)
        assert "An earlier release wrote this batch, without ways" in told
        assert "distance of the nearest option found" in told
        assert "nearest way" not in told
        assert "An earlier release" not in render(new, format)
        assert "nearest option" not in render(new, format)
    heads = [list(tables(made, made.sections[0], 1)["ways"][1]) for made in (old, new)]
    assert heads[0] == ["changes", "fewest", "options"]
    assert heads[1] == ["changes", "fewest", "ways", "hold", "options"]


def test_the_notes_say_what_the_figures_are_not(tmp_path: Path) -> None:
    told = " ".join(notes(made(tmp_path)))
    assert "does not mean that there is none" in told
    assert "not adjusted for many comparisons: of the 4 reported here" in told
    assert "1 person whose search failed: left out of every figure" in told
    assert "few: fewer than 30" in told
    assert "cover" not in told


@pytest.mark.parametrize(
    ("limit", "said"), [(None, "those of the 2 parts that are done so far"), (82, "limited")]
)
def test_figures_that_do_not_cover_the_input_say_so(
    tmp_path: Path, limit: int | None, said: str
) -> None:
    told = made(tmp_path, rows=100, limit=limit)
    for format in ("markdown", "html"):
        assert "82 of the 100 rows of the input" in render(told, format)
        assert said in render(told, format)


def test_csv_has_a_figure_in_each_row(tmp_path: Path) -> None:
    rows = list(csv.DictReader(render(made(tmp_path), "csv").splitlines()))
    men = {(r["figure"], r["of"]): r for r in rows if (r["by"], r["group"]) == ("sex", "M")}
    share = men["share_without", ""]
    assert float(share["value"]) == 35 / 40
    assert float(share["low"]) < 35 / 40 < float(share["high"])
    assert men["binding", "age is fixed"]["value"] == "35"
    assert (men["lever_nearest", "debt"]["value"], men["lever_nearest", "debt"]["few"]) == (
        "1.0",
        "True",
    )
    assert men["people", ""]["few"] == "False"
    assert {r["group"] for r in rows} == {"everybody", "F", "M"}


def test_the_docs_name_every_figure(tmp_path: Path) -> None:
    rows = csv.DictReader(render(made(tmp_path), "csv").splitlines())
    docs = (Path(__file__).parents[2] / "docs/audit.md").read_text("utf-8")
    assert not [name for name in {row["figure"] for row in rows} if f"`{name}`" not in docs]


def test_csv_runs_no_formula(tmp_path: Path) -> None:
    rows = list(csv.reader(render(nasty(tmp_path), "csv").splitlines()))
    cells = [cell for row in rows for cell in row]
    assert not [cell for cell in cells if cell.startswith("=")]
    assert f"'{NASTY}" in cells


def test_a_page_runs_nothing_and_shows_names_as_they_are(tmp_path: Path) -> None:
    page = render(nasty(tmp_path), "html")
    assert Tags(page).seen <= TAGS
    assert "<script" not in page
    assert "=1+1|&lt;script&gt;alert(1)&lt;/script&gt;*x*" in page
    assert "\u202e" not in page


def test_a_page_draws_shares_and_costs(tmp_path: Path) -> None:
    page = render(made(tmp_path), "html")
    assert Tags(page).seen <= TAGS
    assert page.count("<svg") == 2
    assert page.count("<circle") == 4
    assert "M (few)" in page


def test_everybody_is_one_section(tmp_path: Path) -> None:
    made(tmp_path)
    page = render(audit(tmp_path), "html")
    assert "<h2>Everybody</h2>" in page
    assert "<svg" not in page
    assert "not adjusted" not in page


def test_nobody_rejected_is_a_page_too(tmp_path: Path) -> None:
    write_batch(tmp_path, [ended("already-approved", sex="F")])
    told = audit(tmp_path, ["sex"])
    assert "nobody was rejected" in lead(told)
    for format in FORMATS:
        assert render(told, format)


def test_markdown_is_a_table_whatever_the_names(tmp_path: Path) -> None:
    lines = [x for x in render(nasty(tmp_path), "markdown").splitlines() if x.startswith("|")]
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in lines]
    assert set(widths) <= {4, 5, 6, 7}
    assert not [line for line in lines if "<script" in line]


def test_levers_are_as_many_as_asked(tmp_path: Path) -> None:
    levers = ("income", "debt", "savings")
    people = [Made({"sex": "F"}, options=((1.0, levers),)) for _ in range(3)]
    told = audit(write_batch(tmp_path, people), ["sex"])
    shown = [tables(told, told.sections[0], n)["levers"][1] for n in (1, 2)]
    assert [list(frame["lever"]) for frame in shown] == [["debt"], ["debt", "income"]]
    assert [render(told, "markdown", n).count("| 100\u00a0%") for n in (1, 2)] == [
        3,
        5,
    ]  # and "hold"
    assert render(told, "csv").count("lever_nearest") == 2 * 3
