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

from test_asked_again import Judge, nearer, read_plan
from waysout.cli.demo import demo_problem
from waysout.datasets.queries import queries
from waysout.domain.schema import Value
from waysout.serve.app import create_app
from waysout.serve.hosts import Hosts
from waysout.serve.limits import SETTLING_ROWS, ServiceLimits
from waysout.serve.problems import ServedProblem
from waysout.serve.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MOST_CARDS = 12


@pytest.mark.slow
def test_the_demo_on_the_page() -> None:
    problem, dataset = demo_problem(quiet=True)
    served = ServedProblem.of(problem, dataset, queries("synthetic"))
    service = Service({"synthetic": served}, limits=ServiceLimits(settling_rows=SETTLING_ROWS))
    cards = plans = doubts = 0
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
                for place, (title, doubtful) in enumerate((*shown, *folded)):
                    # What is not shown first is not walked back as far.
                    tight = place < len(shown) and not doubtful
                    check(judge, title[0].lower() + title[1:], tight=tight)
                    cards += 1
                    doubts += place < len(shown) and doubtful
    assert plans >= 60
    assert cards >= 100
    assert doubts <= 0.05 * cards


Card = tuple[str, bool]
"""Its title, and whether it tells of a doubt."""


def read_page(chrome: Browser, address: str, number: int) -> tuple[str, list[Card], list[Card]]:
    """Open a customer by the address; return the sentence, the cards shown and those folded."""
    with visiting(chrome, f"{address}#row={number}") as visit:
        visit.sees("#whose", f"Row {number}")
        visit.sees("#bar[data-state='ended']")
        visit.sees("#cards .place")
        shown, folded = (
            [
                ((card.locator("h3").text_content() or "").partition(": ")[2],
                 card.locator(".doubts, .tag.warn").count() > 0)
                for card in visit.page.locator(f"{where} .card").all()
            ]
            for where in ("#cards", "#more-cards")
        )  # fmt: skip
        return visit.page.locator("#sentence").inner_text(), shown, folded


def check(judge: Judge, plan: str, *, tight: bool = True) -> None:
    """A plan in words is a yes; no part of it alone is, nor is it with a number a tenth less."""
    now = judge.problem.schema.as_dict(judge.query)
    changes: dict[str, Value] = read_plan(plan, now)
    assert judge.is_yes(changes), plan
    for size in range(1, len(changes)):
        for names in combinations(changes, size):
            assert not judge.is_yes({name: changes[name] for name in names}), (plan, names)
    for less in nearer(judge, changes) if tight else ():
        assert not judge.is_yes(less), (plan, less)
