"""What the page shows of the demo's 30 cases, read off the screen and put to the model again."""

from __future__ import annotations

import re
import socket
from itertools import combinations
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fastapi", reason="needs fastapi (waysout[serve])")
pytest.importorskip("playwright", reason="needs playwright, and Chromium")

from browser_world import browser, visiting
from guard_world import serving

from test_asked_again import Judge, read_plan
from waysout.cli.demo import demo_problem
from waysout.datasets.queries import queries
from waysout.domain.schema import Value
from waysout.serve.app import create_app
from waysout.serve.hosts import Hosts
from waysout.serve.problems import ServedProblem
from waysout.serve.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MOST_CARDS = 12


@pytest.mark.slow
def test_the_demo_on_the_page() -> None:
    problem, dataset = demo_problem(quiet=True)
    service = Service({"synthetic": ServedProblem.of(problem, dataset, queries("synthetic"))})
    cards = plans = 0
    with browser() as chrome, socket.create_server(("127.0.0.1", 0)) as opened:
        port = opened.getsockname()[1]
        app = create_app(service, Hosts.of("127.0.0.1", port))
        with serving(app, opened, service.close):
            for number in queries("synthetic"):
                judge = Judge(problem, dataset.rows[number])
                sentence, shown, folded = read_page(chrome, f"http://127.0.0.1:{port}/", number)
                assert 0 < len(shown) <= MOST_CARDS
                told = re.fullmatch(r"The \(synthetic\) loan is approved if you (.*)\.", sentence)
                assert told, sentence
                for plan in told[1].split(", or "):
                    check(judge, plan)
                    plans += 1
                for title in (*shown, *folded):
                    check(judge, title[0].lower() + title[1:])
                    cards += 1
    assert plans >= 60
    assert cards >= 100


def read_page(chrome: Browser, address: str, number: int) -> tuple[str, list[str], list[str]]:
    """Open a customer by the address; return the sentence and the titles of the cards."""
    with visiting(chrome, f"{address}#row={number}") as visit:
        visit.sees("#whose", f"Row {number}")
        visit.sees("#bar[data-state='ended']")
        visit.sees("#cards .place")
        titles = [
            [
                text.partition(": ")[2]
                for text in visit.page.locator(f"{where} h3").all_text_contents()
            ]
            for where in ("#cards", "#more-cards")
        ]
        return visit.page.locator("#sentence").inner_text(), titles[0], titles[1]


def check(judge: Judge, plan: str) -> None:
    """A plan in words is a yes, and no part of it alone is."""
    now = judge.problem.schema.as_dict(judge.query)
    changes: dict[str, Value] = read_plan(plan, now)
    assert judge.is_yes(changes), plan
    for size in range(1, len(changes)):
        for names in combinations(changes, size):
            assert not judge.is_yes({name: changes[name] for name in names}), (plan, names)
