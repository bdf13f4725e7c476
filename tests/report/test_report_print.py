"""On paper a report is two pages and a letter is one: counted as Chromium prints them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

import pytest
from report_samples import MISSED, STUCK, TIPPED, TOLD

import waysout
from waysout.cli.demo import demo_problem
from waysout.datasets.queries import queries
from waysout.report.result import Result

if TYPE_CHECKING:
    from playwright.sync_api import Page

DAY = date(2026, 3, 1)
APPLICANTS = (0, 2, 13, 24, 27)  # among them those with the longest plans, and with most to tell


@pytest.fixture(scope="module")
def paper() -> Iterator[Page]:
    playwright = pytest.importorskip("playwright.sync_api")
    names = (os.environ.get("WAYSOUT_CHROMIUM", "chromium"), "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


@pytest.fixture(scope="module")
def demo() -> list[Result]:
    problem, dataset = demo_problem(quiet=True)
    rows = [dataset.rows[queries("synthetic")[i]] for i in APPLICANTS]
    return list(waysout.find_many(problem, rows, data=dataset, calls=0))


def pages(paper: Page, source: str | None) -> int:
    assert source is not None
    paper.set_content(source)
    return len(re.findall(rb"/Type\s*/Page\b", paper.pdf(prefer_css_page_size=True)))


def test_a_report_is_two_pages_and_a_letter_one(paper: Page, demo: list[Result]) -> None:
    for result in (*demo, TIPPED, TOLD, MISSED, STUCK):
        assert pages(paper, result.to_html(when=DAY)) <= 2, result
        assert pages(paper, result.to_letter(html=True, when=DAY)) == 1, result


def test_what_is_folded_is_not_printed(paper: Page, demo: list[Result]) -> None:
    longest = max(demo, key=lambda result: len(result.ways))
    many = replace(longest, ways=(*longest.ways,) * 40, options=(*longest.options,) * 40)
    assert pages(paper, many.to_html(when=DAY)) <= 2
