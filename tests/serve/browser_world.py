"""A lender of one's own behind the whole application, and a browser in front of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from guard_world import serving

from waysout.domain.distance import Distance
from waysout.domain.key import Key
from waysout.domain.oracle import Answers, Oracle
from waysout.domain.problem import Problem
from waysout.domain.rules import Immutable, RuleSet
from waysout.domain.schema import Feature, Row, Schema
from waysout.llm.base import Backend, Request
from waysout.serve.app import create_app
from waysout.serve.hosts import Hosts
from waysout.serve.limits import ServiceLimits
from waysout.serve.problems import ServedProblem
from waysout.serve.service import Service
from waysout.serve.tokens import Gate

# The world of tests/run, which only the tests beside it find by themselves.
sys.path.append(str(Path(__file__).parents[1] / "run"))
from run_world import Watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page

DESKTOP, PHONE = (1280, 900), (390, 844)
SECONDS = 30.0

_FITS = """() => {
  const edge = document.querySelector("#answer").getBoundingClientRect().right + 1;
  const parts = [...document.querySelectorAll("#main > *, .panel, .card")];
  const { scrollWidth, clientWidth } = document.documentElement;
  return scrollWidth <= clientWidth && parts.every((p) => p.getBoundingClientRect().right <= edge);
}"""

# What a page must show and never obey.
SCRIPT = "<img src=x onerror=alert(1)>"
WORDS = "\"><script>alert('2')</script>{{7*7}}"
ABOUT = "</p><svg onload=alert(3)>"


def _schema(age: str, note: str, words: str, about: str) -> Schema:
    jobs = ("none", "part", "full")
    return Schema(
        (
            Feature(age, "integer", range=(18, 90), unit="years"),
            Feature("income", "integer", range=(0, 90000), unit="euros a year", about=about),
            Feature("other_debts", "integer", range=(0, 40000), unit="euros"),
            Feature("job", "category", levels=jobs, words={"none": words}, about="how one works"),
            Feature(note, "boolean"),
        )
    )


class Lender:
    """Says yes to those who earn much, owe little and have somebody who vouches for them."""

    name = "lender"
    labels_only = False

    def ask(self, rows: Sequence[Row]) -> Answers:
        chances = np.array([_chance(row) for row in rows])
        return Answers(chances, chances >= 0.5)


class YesOrNo(Lender):
    """The same lender, who gives no chances."""

    labels_only = True

    def ask(self, rows: Sequence[Row]) -> Answers:
        decision = super().ask(rows).decision
        return Answers(decision.astype(float), decision)


def _chance(row: Row) -> float:
    _, income, debts, job, helped = row
    earned, owed = float(income or 0) / 90000, float(debts or 0) / 40000
    steady = {"none": 0.0, "part": 0.1, "full": 0.2}[str(job)]
    return min(1.0, max(0.0, 0.6 * earned - 0.9 * owed + steady + 0.15 * bool(helped) + 0.28))


@dataclass
class People:
    """Five whom the lender refuses."""

    rows: Sequence[Row]
    labels: Sequence[bool] = (False,) * 5


def lender(
    oracle: Oracle | None = None,
    age: str = "age", note: str = "co_signer", words: str = "out of work", about: str = "",
) -> Problem:  # fmt: skip
    """Return the problem, with a model or some words of one's own in it."""
    schema = _schema(age, note, words, about)
    rules = RuleSet(schema, (Immutable(features=[age], why="today is today"),))
    key, distance = Key(schema), Distance.fit(schema, ())
    return Problem(
        schema, rules, key, distance, oracle or Lender(), yes="the loan is approved",
        no="the loan is refused", name="loans", title="Loans of a lender made up for this test",
    )  # fmt: skip


PEOPLE: tuple[Row, ...] = tuple((30 + i, 20000 + 1000 * i, 12000, "none", False) for i in range(5))


@dataclass
class Turnstile:
    """Lets some requests through and holds the others up until it is opened."""

    free: int
    came: int = 0
    opened: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, request: Request, attempt: int) -> None:
        self.came += 1
        if self.came > self.free:
            while not self.opened.is_set():
                await asyncio.sleep(0.002)


@contextmanager
def site(
    problem: Problem | None = None,
    llm: Backend | None = None,
    gate: Gate | None = None,
    limits: ServiceLimits | None = None,
    asks_llm: bool = True,
    people: Sequence[Row] = PEOPLE,
) -> Iterator[str]:
    """Serve the page on a port of its own; yields its address."""
    known = People(people)
    world = {"loans": ServedProblem.of(problem or lender(), known)}
    backend = (llm or Watched()) if asks_llm else None
    service = Service(world, backend, limits=limits or ServiceLimits(part_rows=70))
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port = opened.getsockname()[1]
        app = create_app(service, Hosts.of("127.0.0.1", port), gate=gate)
        with serving(app, opened, service.close):
            yield f"http://127.0.0.1:{port}/"


@contextmanager
def browser() -> Iterator[Browser]:
    """Start the system's Chromium, or skip."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    found = chromium()
    if found is None:
        pytest.skip("needs Chromium: set WAYSOUT_CHROMIUM to it, or put chromium on the PATH")
    api.expect.set_options(timeout=1000 * SECONDS)
    with api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


def chromium() -> str | None:
    """Return where the system's Chromium is."""
    named = os.environ.get("WAYSOUT_CHROMIUM")
    names = (named,) if named else ("chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


@dataclass
class Visit:
    """A page in a browser, and what went wrong or elsewhere while it was open."""

    page: Page
    address: str
    faults: list[str] = field(default_factory=list)

    def watch(self, context: BrowserContext) -> None:
        """Note errors, dialogs and requests to anybody else."""
        context.on("console", self._on_console)
        context.on("weberror", lambda error: self.faults.append(str(error.error)))
        context.on("dialog", self._on_dialog)
        context.on("request", self._on_request)

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"console: {message.text}")

    def _on_dialog(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.faults.append(f"request to {request.url}")

    def button(self, name: str, *, exact: bool = False) -> Locator:
        """The button of that name, or of one that begins so."""
        return self.page.get_by_role("button", name=name, exact=exact)

    def field(self, name: str) -> Locator:
        """The control of that name."""
        return self.page.locator("#features").get_by_label(name, exact=True)

    def sees(self, selector: str, text: str | None = None) -> Locator:
        """Wait until something is to be seen, which may be now."""
        found = self.page.locator(selector, has_text=text).first
        found.wait_for()
        return found

    def is_rid_of(self, selector: str) -> None:
        """Wait until something is no longer to be seen."""
        self.page.locator(selector).first.wait_for(state="hidden")

    def is_accessible(self) -> None:
        """See that axe finds nothing."""
        path = find_spec("axe_playwright_python")
        if path is None or path.origin is None:
            return
        self.page.evaluate(Path(path.origin).with_name("axe.min.js").read_text("utf-8"))
        found = self.page.evaluate("async () => (await axe.run()).violations")
        told = [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found]
        assert told == [], told

    def fits(self) -> None:
        """See that, once all is laid out, nothing sticks out to the side."""
        self.page.wait_for_function(_FITS)


@contextmanager
def visiting(
    started: Browser, address: str, size: tuple[int, int] = DESKTOP, **options: Any
) -> Iterator[Visit]:
    """Open the page; at the end, nothing must have gone wrong or elsewhere."""
    viewport: Any = {"width": size[0], "height": size[1]}
    context = started.new_context(viewport=viewport, reduced_motion="reduce", **options)
    context.set_default_timeout(1000 * SECONDS)
    visit = Visit(context.new_page(), address.partition("#")[0])
    visit.watch(context)
    try:
        visit.page.goto(address)
        yield visit
        assert visit.faults == [], visit.faults
    finally:
        context.close()
