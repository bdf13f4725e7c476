from __future__ import annotations

import csv
import json
from collections import Counter
from dataclasses import replace
from typing import get_args

import pytest
from bench_cells import figures_of, made_cell

from measured_world import lively
from waysout.bench.cell import Cells
from waysout.bench.judge import known_plan
from waysout.bench.render import WIDTH, Format, render, slug
from waysout.bench.table import Figure, ResultTable, TableLine
from waysout.bench.tables import TABLES, build
from waysout.errors import InputError

NASTY = "<script>a|b_*c*</script> & \\cmd{x} 100% $y$ #1 ~^ `t` [z]"
ID = "0123456789ab"


def line(labels: tuple[str, ...], *figures: Figure, runs: str = ID) -> TableLine:
    return TableLine(labels, figures, runs)


SMALL = ResultTable(
    name="small",
    title="A small table",
    about=("LLM: simulated:1 (simulated: no language model)", "Δ is b − a"),
    label_columns=("data set", "arm"),
    columns=("n", "unique valid", "prune %", "Δ", "p"),
    lines=(
        line(("Loan", "one"), Figure(30.0, None, 0), Figure(24.126, 24.07), Figure(0.0, 0.24),
             Figure(1.5, -0.4, 1, signed=True), Figure(0.00012345, 1e-7, 2, general=True)),
        line(("Loan", "two"), Figure("12 of 30"), Figure(3.0), Figure(None), Figure("n/a"),
             Figure(0.5, None, 2, general=True)),
        line(("Adult", "one"), Figure("not run"), Figure(None, 47.93), Figure(None, 18.33),
             Figure(None), Figure(None), runs=""),
    ),
    notes=("a note",),
    command="waysout bench table small",
)  # fmt: skip
OTHER = ResultTable(
    "other", "Other", (), ("arm",), ("ratio",), (line(("x",), Figure(1.25, digits=1)),)
)
HOSTILE = ResultTable(
    NASTY, NASTY, (NASTY,), (NASTY, "arm"), (NASTY,),
    (line((NASTY, "[first"), Figure(NASTY, NASTY), runs="a|b`c"),), (NASTY,), NASTY,
)  # fmt: skip


def test_text_to_the_letter() -> None:
    assert render([SMALL], "text") == (
        "A small table\n"
        "LLM: simulated:1 (simulated: no language model)\n"
        "Δ is b − a\n"
        "\n"
        "data                         unique  prune\n"
        "set    arm                n   valid      %     Δ        p\n"
        "─────────────────────────────────────────────────────────\n"
        "Loan   one  ours         30   24.13   0.00  +1.5  0.00012\n"
        "            paper             24.07   0.24  -0.4  1.0e-07\n"
        "       two  ours   12 of 30    3.00      –   n/a     0.50\n"
        "\n"
        "Adult  one  ours    not run\n"
        "            paper             47.93  18.33\n"
        "\n"
        "a note\n"
        "\n"
        "Made with: waysout bench table small\n"
        "The arms of each line: --format csv; what they are: waysout bench show ID\n"
    )


def test_text_says_once_what_tables_share() -> None:
    again = replace(SMALL, title="Again", about=(*SMALL.about, "More"))
    text = render([SMALL, again], "text")
    assert text.count("LLM: simulated:1") == text.count("Made with") == 1
    assert "\nAgain\nMore\n" in text


def wide(label: str, columns: int) -> ResultTable:
    figures = tuple(Figure(1000.0 + i, 2000.0) for i in range(columns))
    names = tuple(f"column{i}" for i in range(columns))
    lines = (TableLine(("Loan", "none → compression", label), figures),)
    return ResultTable("w", "wide", (), ("data set", "comparison", "metric"), names, lines)


def test_long_labels_fold_beside_the_papers_figures() -> None:
    text = render([wide("a label of many words that would not fit into the line", 6)], "text")
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "2000.00" in next(row for row in text.splitlines() if "words" in row)


def test_no_figure_is_cut_off_where_a_table_is_too_wide() -> None:
    text = render([wide("proximity", 12)], "text")
    assert "…" not in text
    assert all(f"{1000 + i}.00" in text for i in range(12))
    assert max(map(len, text.splitlines())) > WIDTH


def test_a_table_too_wide_for_the_terminal_continues_below() -> None:
    table = wide("a label of some words", 6)
    others = (replace(table.lines[0], labels=(f"Set {i}", "none", "it")) for i in range(20))
    text = render([replace(table, lines=(*table.lines, *others))], "text", 60)
    assert max(map(len, text.splitlines())) <= 60
    heads = [row.split() for row in text.splitlines() if "column" in row]
    assert heads[0][-1] == "column2"
    assert heads[1][-3:] == ["column3", "column4", "column5"]
    assert heads == heads[:2] * 3  # for ten lines, ten more and the last one


# What searches of some kinds are measured by besides; the values do not matter here.
MORE = {
    "combinations": 4000, "ways_out": 120, "ways_irreducible": 40, "among_irreducible": 7,
    "ways": 4, "firm_sets": 3, "cheapest": 0.15, "cheapest_firm": 0.2, "shown": 5,
    "enumerated_whole": 1, "least_proved": 1, "least_cost": 0.1, "reference_cost": 0.4,
    "shown_real": 0.57, "processor_ms": 80.0,
}  # fmt: skip
OPTIONS = (
    "proximity", "sparsity", "novelty", "plausibility", "shortlist_novelty",
    "shortlist_lever_sets", "shown_cost", "shown_lasts", "shown_ynn", "way_levers", "way_cost",
    "way_firm",
)  # fmt: skip


@pytest.fixture(scope="module")
def world() -> Cells:
    """Two queries of every plan that a table needs."""
    plans = {entry.plan for entry in TABLES.values()} | {"pruning-sweep@first"}
    return Cells(
        made_cell(
            arm, place, {**figures_of(9), **MORE, **lively(arm, place)}, query=query,
            columns={name: [1.0, 0.25, 0.5] for name in OPTIONS},
        )
        for name in sorted(plans) for arm in known_plan(name).arms
        for place, query in enumerate(arm.query_rows[:2])
    )  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_no_figure_of_any_table_is_ever_cut(name: str, world: Cells) -> None:
    pytest.importorskip("scipy", reason="needs waysout[bench]")
    tables = build(name, world, queries=2)
    assert tables
    for table in {table.name: table for table in tables}.values():
        some = table.lines[:: len(table.lines) // 25 + 1]  # all would take long
        wanted = Counter(
            word for line in some for figure in line.figures
            for text in (figure.ours_text, figure.paper_text) for word in text.split()
        )  # fmt: skip
        heads = {word for title in table.columns for word in title.split()}
        for width in (60, 80, 100, 200, None):
            shown = replace(table, lines=some, about=(), notes=(), command="")
            text = render([shown], "text", width)
            found = Counter(text.split())
            assert wanted <= found
            assert heads <= found.keys()
            assert "…" not in text
            assert width is None or max(map(len, text.splitlines())) <= width


def test_labels_are_not_repeated_line_by_line() -> None:
    table = wide("proximity", 2)
    other = replace(table.lines[0], labels=("Loan", "none → compression", "novelty"))
    text = render([replace(table, lines=(*table.lines, other))], "text")
    assert text.count("Loan") == text.count("none → compression") == 1
    assert "novelty" in text


def test_markdown_is_a_table_of_github() -> None:
    rows = render([SMALL], "markdown").splitlines()
    assert rows[0] == "### A small table"
    assert rows[2:5] == ["```sh", "waysout bench table small", "```"]
    table = [row for row in rows if row.startswith("|")]
    assert table[0] == "| data set | arm | from | n | unique valid | prune % | Δ | p | runs |"
    assert table[2] == (f"| Loan | one | ours | 30 | 24.13 | 0.00 | +1.5 | 0.00012 | `{ID}` |")
    assert table[3] == "|  |  | paper |  | 24.07 | 0.24 | -0.4 | 1.0e-07 |  |"
    assert len({row.count("|") for row in table}) == 1


def test_markdown_shows_names_as_they_are() -> None:
    text = render([HOSTILE], "markdown")
    outside = text.partition("```\n\n")[2]
    assert r"&lt;script&gt;a\|b\_\*c\*&lt;/script&gt; &amp;" in outside
    assert "<script" not in outside
    rows = [row for row in text.splitlines() if row.startswith("| ")]
    assert {row.replace("\\|", "").count("|") for row in rows} == {6}


def test_latex_is_booktabs_and_escaped() -> None:
    text = render([SMALL], "latex")
    assert r"\begin{tabular}{lllrrrrr}" in text
    assert r"Loan & one & ours & 30 & 24.13 & 0.00 & +1.5 & 0.00012 \\ % 0123456789ab" in text
    assert r" &  & paper &  & 24.07 & 0.24 & -0.4 & 1.0e-07 \\" in text
    assert r"prune \% & $\Delta$ & p \\" in text
    assert text.count(r"\midrule") == 2  # under the heads, and between the data sets
    hostile = render([HOSTILE], "latex")
    assert (
        r"\textbackslash{}cmd\{x\} 100\% \$y\$ \#1 \textasciitilde{}\textasciicircum{}" in hostile
    )
    # After a line end a bracket would be taken for the end's argument.
    assert "{[}first" in hostile


def test_csv_is_one_table_of_all() -> None:
    rows = list(csv.DictReader(render([SMALL, OTHER], "csv").splitlines()))
    assert len(rows) == 4
    one = rows[0]
    assert (one["table"], one["data_set"], one["arm"]) == ("small", "Loan", "one")
    assert (one["unique_valid"], one["unique_valid_paper"]) == ("24.126", "24.07")
    assert (one["n"], one["prune_pct"], one["delta"]) == ("30", "0", "1.5")
    assert one["runs"] == ID
    assert "n_paper" not in one  # the paper has none in any line
    assert (rows[2]["n"], rows[2]["unique_valid"]) == ("not run", "")
    assert (rows[3]["table"], rows[3]["ratio"], rows[3]["n"]) == ("other", "1.25", "")
    assert list(one)[-1] == "runs"


def test_csv_runs_no_formula() -> None:
    risky = ResultTable("t", "t", (), ("arm",), ("x",), (TableLine(("=cmd()",), (Figure(-1.5),)),))
    assert render([risky], "csv").splitlines()[1] == "t,'=cmd(),-1.5,"


def test_words_of_html_are_not_broken_and_stand_left() -> None:
    page = render([SMALL], "html")
    assert page.index("overflow-wrap: anywhere") < page.index("th, td { overflow-wrap: normal; }")
    assert ".words-3 td:nth-child(-n + 3) { text-align: left;" in page
    assert '<table class="dataframe words-3">' in page


def test_html_has_every_line_and_cuts_nothing() -> None:
    long = "a name " * 20
    lines = tuple(line((f"{long}{i}", "x"), Figure(1.0)) for i in range(100))
    page = render([replace(SMALL, columns=("n",), lines=lines)], "html")
    assert all(f"<td>{long}{i}</td>" in page for i in range(100))


def test_html_is_a_page_that_does_nothing() -> None:
    page = render([HOSTILE, SMALL], "html")
    assert page.startswith("<!DOCTYPE html>")
    assert "<script" not in page
    assert "&lt;script&gt;a|b_*c*" in page
    assert "default-src 'none'" in page
    assert page.count("<table ") == page.count("</table>") == 2
    assert "<td>24.13</td>" in page


def test_json_has_everything() -> None:
    (document,) = json.loads(render([SMALL], "json"))
    assert document["lines"][0]["figures"][1] == {
        "ours": 24.126, "paper": 24.07, "digits": 2, "signed": False, "general": False,
        "printed": "",
    }  # fmt: skip
    assert document["command"] == SMALL.command
    assert document["lines"][2]["figures"][0]["ours"] == "not run"


@pytest.mark.parametrize("fmt", get_args(Format))
def test_every_format_is_the_same_every_time_and_ends_a_line(fmt: Format) -> None:
    for tables in ([SMALL, OTHER], [HOSTILE], []):
        text = render(tables, fmt)
        assert text == render(tables, fmt)
        assert text.endswith("\n")


@pytest.mark.parametrize("fmt", get_args(Format))
def test_no_format_lets_control_characters_through(fmt: Format) -> None:
    bad = ResultTable("t", "a\x1b[31mb\u202ec", (), ("arm",), ("x",),
                (TableLine(("d\x1b]0;e\x07",), (Figure("f\x00"),)),))  # fmt: skip
    text = render([bad], fmt)
    assert not set(text) & set("\x1b\x07\x00")


def test_unknown_format_is_told() -> None:
    with pytest.raises(InputError, match="did you mean 'markdown'"):
        render([SMALL], "markdwn")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "figure", "written"),
    [
        (-0.004, Figure(None), "0.00"),
        (0.004, Figure(None, signed=True), "0.00"),
        (-1.5, Figure(None, digits=0), "-2"),
        (1e-30, Figure(None, digits=2, general=True), "1.0e-30"),
        (None, Figure(None), ""),
    ],
)
def test_how_numbers_are_written(value: float | None, figure: Figure, written: str) -> None:
    assert replace(figure).write(value) == written


def test_the_papers_figures_are_to_the_letter() -> None:
    figure = Figure(0.0104, 0.001, 4, signed=True, printed="0.001")
    table = ResultTable("t", "t", (), ("arm",), ("x",), (TableLine(("a",), (figure,)),))
    assert [row.split()[-1] for row in render([table], "text").splitlines()[-2:]] == [
        "+0.0104", "0.001"
    ]  # fmt: skip
    assert render([table], "csv").splitlines()[1] == "t,a,0.0104,0.001,"


def test_slugs() -> None:
    assert slug("valid, first query") == "valid_first_query"
    assert slug("LLM share %") == "llm_share_pct"
