"""Whatever comes from outside stays a text in all that a result is shown as."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from page_reader import Page
from report_samples import CALM, CORPUS, holding

from waysout.report.html import excerpt, page
from waysout.report.letter import WIDTH, letter_page, letter_text
from waysout.report.result import Result

SHOWN: dict[str, Callable[[Result], str]] = {
    "report": page,
    "letter": letter_page,
    "notebook": excerpt,
}
TURNS = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def margin(text: str) -> list[str]:
    """Return the lines that begin where only headings may."""
    return [line for line in text.splitlines() if line and not line.startswith("  ")]


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("name", CORPUS)
def test_a_page_has_the_same_build_whatever_it_holds(shown: str, name: str) -> None:
    source = SHOWN[shown](holding(CORPUS[name]))
    source.encode()
    assert Page(source).seen == Page(SHOWN[shown](holding(CALM))).seen
    assert not TURNS.intersection(source)
    assert not any(unicodedata.category(c) == "Cc" for c in source.replace("\n", ""))


@pytest.mark.parametrize("name", CORPUS)
def test_a_letter_has_the_same_headings_whatever_it_holds(name: str) -> None:
    text = letter_text(holding(CORPUS[name]))
    text.encode()
    assert margin(text) == margin(letter_text(holding(CALM)))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert not any(unicodedata.category(c) == "Cc" for c in text.replace("\n", ""))
    assert not TURNS.intersection(text)
    assert len(text) < 20_000


@pytest.mark.parametrize("name", CORPUS)
def test_no_cell_is_run(name: str) -> None:
    text = holding(CORPUS[name]).to_csv(all_features=True)
    assert text is not None
    table = list(csv.reader(io.StringIO(text, newline="")))
    assert {len(row) for row in table} == {len(table[0])}
    for cell in (cell for row in table for cell in row):
        seen = [c for c in cell if unicodedata.category(c)[0] not in "CZ"]
        assert not (seen and seen[0] in "=+-@＝＋－＠"), cell
        assert not cell.startswith(("\t", "\r", "\n"))


@pytest.mark.parametrize("name", CORPUS)
def test_json_holds_it_to_the_letter(name: str) -> None:
    result = holding(CORPUS[name])
    assert Result.from_json(result.to_json()) == result


def unreasoned(result: Result) -> Result:
    """Leave the reasons out: a text that is none is not shown, which changes what is built."""
    return replace(result, options=tuple(replace(o, reasons=()) for o in result.options))


@settings(max_examples=20)
@given(st.text(st.characters(), max_size=40))
def test_any_text_stays_in_its_place(text: str) -> None:
    result = holding(text)
    for show in (letter_page, excerpt):
        seen = Page(show(unreasoned(result))).seen
        assert seen == Page(show(unreasoned(holding(CALM)))).seen
    assert margin(letter_text(result)) == margin(letter_text(holding(CALM)))
