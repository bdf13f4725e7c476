from __future__ import annotations

import csv
import io
from dataclasses import fields, replace
from pathlib import Path

import pandas as pd
import pytest
from report_samples import EVERY, FOUND, HOSTILE, MISSED, QUERY, WAYS, option

from waysout.domain import result as domain
from waysout.domain.pick import pick
from waysout.domain.schema import Value
from waysout.report.result import Result, to_csv


def cells(text: str | None) -> list[list[str]]:
    assert text is not None
    return list(csv.reader(io.StringIO(text, newline="")))


def test_a_plain_result_is_lifted_and_read_back_as_one_that_shows_itself() -> None:
    plain = domain.ResultData(**{f.name: getattr(FOUND, f.name) for f in fields(FOUND)})
    assert Result.of(plain) == FOUND
    again = Result.from_json(FOUND.to_json())
    assert isinstance(again, Result)
    assert again == FOUND
    assert again.pick(2) == pick(plain, 2)


def test_what_an_earlier_release_took_for_a_reason_is_left_out() -> None:
    said = ("income: 0.25", "term: up to eight words", "income: a steady income")
    told = option(0.6, 0.9, *said, income=1.0, term=60)
    way = domain.Way(**vars(told), levers=("income", "term"), variants=(told,))
    old = domain.ResultData(QUERY, FOUND.outcome, (told,), near_misses=(told,), ways=(way,))
    for read in (Result.of(old), Result.from_json(old.to_json())):
        shown = (*read.options, *read.near_misses, *read.ways, *read.ways[0].variants)
        assert [o.reasons for o in shown] == [("income: a steady income",)] * 4
    nonsense = replace(old, settings={"llm": "llamacpp:smollm2-135m"})
    read = Result.from_json(nonsense.to_json())
    assert '"reasons": ["' not in read.to_json()
    assert "a steady income" not in str(read)


def test_a_frame_shows_changed_cells_only() -> None:
    frame = FOUND.to_frame()
    assert list(frame.columns) == [
        "income", "term", "home", "car", "probability", "proximity", "sparsity", "reasons",
        "stable",
    ]  # fmt: skip
    assert frame["term"].tolist()[1] == 60
    assert frame["term"].isna().tolist() == [True, False, True]
    assert frame["income"].isna().tolist() == [False, False, True]
    assert frame["home"].isna().tolist() == [True, True, False]
    assert str(frame["term"].dtype) == "Int64"
    assert str(frame["income"].dtype) == "Float64"
    assert str(frame["car"].dtype) == "boolean"
    assert frame["reasons"].tolist() == ["More income", "More income; A longer term", ""]


def test_a_frame_of_whole_rows_is_typed() -> None:
    frame = FOUND.to_frame(all_features=True)
    assert list(frame.columns[:5]) == list(QUERY)
    assert [str(frame[name].dtype) for name in ("income", "term", "car")] == [
        "float64", "int64", "bool",
    ]  # fmt: skip
    assert frame["income"].tolist() == [52000.0, 60000.5, 40500.0]
    assert frame["age"].isna().all()


def test_a_frame_has_ways_best_first_and_all_options_where_asked() -> None:
    dearer, cheaper = WAYS.ways[1], WAYS.ways[0]
    frame = replace(WAYS, ways=(dearer, cheaper)).to_frame()
    assert list(frame.columns) == [
        "income", "home", "car", "probability", "proximity", "sparsity", "cost", "irreducible",
        "tight", "holds", "reasons", "stable",
    ]  # fmt: skip
    assert frame["cost"].tolist() == [0.1, 0.3]
    assert frame["income"].tolist()[0] == 49000.0
    assert [str(frame[name].dtype) for name in ("irreducible", "tight", "holds")] == [
        "bool", "boolean", "boolean",
    ]  # fmt: skip
    assert frame["holds"].isna().tolist() == [False, True]
    assert WAYS.to_frame(all_options=True).equals(FOUND.to_frame())
    assert WAYS.to_csv(all_options=True) == FOUND.to_csv()


def test_a_table_of_several_queries_has_their_ways() -> None:
    other = replace(FOUND, index=1)
    table = cells(to_csv([WAYS, other]))
    assert [row[0] for row in table] == ["query", "0", "0", "1", "1", "1"]
    assert table[1][table[0].index("holds")] == "True"
    assert table[3][table[0].index("holds")] == ""
    every = cells(to_csv([WAYS, other], all_options=True))
    assert [row[0] for row in every[1:]] == ["0"] * 3 + ["1"] * 3
    assert "holds" not in every[0]


def test_a_frame_without_options_still_has_columns() -> None:
    frame = MISSED.to_frame(all_features=True)
    assert len(frame) == 0
    assert list(frame.columns[:5]) == list(QUERY)
    assert "probability" in frame.columns


def test_a_feature_that_is_called_like_a_score_keeps_its_column() -> None:
    frame = HOSTILE.to_frame()
    assert frame["probability"].tolist()[0] == -4
    assert frame["option_probability"].tolist()[0] == 0.5


def test_csv_reads_back() -> None:
    table = cells(FOUND.to_csv())
    assert table[0][:4] == ["income", "term", "home", "car"]
    assert table[1][:4] == ["52000.0", "", "", ""]
    assert table[2][1] == "60"
    assert len(table) == 1 + len(FOUND.options)
    frame = pd.read_csv(io.StringIO(FOUND.to_csv(all_features=True)))
    assert frame["income"].tolist() == [52000.0, 60000.5, 40500.0]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+1+1", "'+1+1"),
        ("-cmd", "'-cmd"),
        ("@SUM(1)", "'@SUM(1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("  =1+1", "'  =1+1"),
        ("＝1+1", "'＝1+1"),
        ("-inf", "'-inf"),
        ("-5", "-5"),
        ("+1.5e3", "+1.5e3"),
        ("a=b", "a=b"),
        ("-12,5 %", "-12,5 %"),
        ("-$1,234.50", "-$1,234.50"),
        ("+1 000", "+1 000"),
        ("-1,A1", "'-1,A1"),
        ("-1+2", "'-1+2"),
        (-5, "-5"),
        (-0.5, "-0.5"),
    ],
)
def test_no_cell_is_a_formula(value: Value, written: str) -> None:
    result = replace(FOUND, options=(option(0.5, 0.5, home=value),))
    assert cells(result.to_csv())[1][0] == written


def test_no_header_and_no_reason_is_a_formula() -> None:
    table = cells(HOSTILE.to_csv())
    assert "'=cmd|' /C calc'!A0" in table[0]
    begins = ("=", "+", "@", "\t", "\r")
    assert not any(cell.startswith(begins) for row in table for cell in row)
    reasoned = replace(FOUND, options=(option(0.5, 0.5, "=SUM of all", income=1.0),))
    assert "'=SUM of all" in cells(reasoned.to_csv())[1]


@pytest.mark.parametrize("name", EVERY)
def test_files_hold_what_is_returned(name: str, tmp_path: Path) -> None:
    result = EVERY[name]
    assert result.to_csv(tmp_path / "a.csv", all_features=True) is None
    assert result.to_html(str(tmp_path / "a.html")) is None
    text = result.to_csv(all_features=True)
    assert text is not None
    assert (tmp_path / "a.csv").read_bytes() == text.encode("utf-8", "replace")
    assert (tmp_path / "a.html").read_bytes() == (result.to_html() or "").encode()


def test_a_notebook_shows_a_short_text() -> None:
    assert repr(FOUND) == (
        "<Result found: 3 options; 30 LLM calls (32 attempts; 41,230 tokens in, 3,120 out), "
        "150 oracle rows, 48.3 s>"
    )
    assert repr(WAYS).startswith("<Result found: 2 ways out (41 of 150 rows approved); 30 LLM")
    assert str(FOUND).startswith("3 options.")
    assert "<script" not in HOSTILE._repr_html_()
    assert "… and 55 more" in HOSTILE._repr_html_()


def test_notes_are_kept_and_shown_but_not_in_the_letter() -> None:
    noted = replace(FOUND, notes=("class 1 was taken for a yes", "age <was> fixed"))
    assert Result.from_json(noted.to_json()).notes == noted.notes
    older = noted.as_dict()
    del older["notes"]
    assert Result.from_dict(older).notes == ()
    assert "Note: class 1 was taken for a yes" in str(noted)
    for markup in (str(noted.to_html()), noted._repr_html_()):
        assert "Note: age &lt;was&gt; fixed" in markup
    assert "class 1" not in str(noted.to_letter())
    assert "class 1" not in str(noted.to_letter(html=True))


def test_what_a_frame_is_to_be_like_is_no_part_of_the_result() -> None:
    table = pd.DataFrame({"income": pd.Series([1.0], dtype="float32"), "other": [1]})
    result = WAYS.with_like(table)
    assert result == WAYS
    assert result.to_json() == WAYS.to_json()
    assert len(result.like) == 0
    frame = replace(result, index=3).to_frame(all_features=True)
    assert frame["income"].dtype == "float32"
    assert "other" not in frame.columns


def test_all_options_come_the_easiest_first() -> None:
    hard, easy = option(0.9, 0.2, income=1.0, term=1), option(0.6, 0.9, term=48)
    wavers = option(0.9, 0.95, term=40, stable=False)
    result = replace(FOUND, options=(hard, wavers, easy))
    assert result.to_frame()["proximity"].tolist() == [0.9, 0.2, 0.95]


def test_the_csv_tells_the_present_values_if_asked() -> None:
    text = WAYS.to_csv(present=True)
    assert text is not None
    head, first, second = csv.reader(io.StringIO(text))
    assert head[:7] == ["way", "income", "income (now)", "home", "home (now)", "car", "car (now)"]
    assert first[:7] == ["1", "49000.0", "40500.0", "", "rent", "", "False"]
    assert second[:7] == ["2", "", "40500.0", "own", "rent", "True", "False"]
    default = list(csv.reader(io.StringIO(str(WAYS.to_csv()))))
    assert default[0] == [name for name in head if name != "way" and "(now)" not in name]
    whole = csv.reader(io.StringIO(str(WAYS.to_csv(present=True, all_features=True))))
    assert next(whole)[:5] == ["way", "income", "income (now)", "term", "home"]
    assert str(MISSED.to_csv(present=True)).startswith("way,")


def test_a_feature_may_have_the_name_of_a_column() -> None:
    named = domain.Option({"way": 2, "way (now)": 1}, {"way": (1, 2)}, 0.6, 0.5, 1, "k")
    odd = replace(FOUND, query={"way": 1, "way (now)": 1}, options=(named,))
    text = str(odd.to_csv(present=True, all_features=True))
    head = next(csv.reader(io.StringIO(text)))
    assert head[:4] == ["option_way", "way", "option_way (now)", "way (now)"]
