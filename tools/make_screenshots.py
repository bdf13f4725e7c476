"""Take the screenshots of the page that the documentation shows.

    python tools/make_screenshots.py docs/figures

It serves the demo without an LLM on a free port, walks through the story in Chromium (the
one on the PATH, or that WAYSOUT_CHROMIUM names) and writes one PNG for each step. Needs
playwright, besides what `waysout serve` needs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

DESKTOP, PHONE = (1280, 900), (390, 844)
MOST_BYTES = 250_000
ENDED = "#bar[data-state='ended']"


def main(folder: str) -> None:
    """Write the screenshots into a folder."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with serving() as address, sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        on_a_desktop(opened(chromium, address, DESKTOP), target)
        on_a_phone(opened(chromium, address, PHONE, dark=True), target)
        chromium.close()


@contextmanager
def serving() -> Iterator[str]:
    """Serve the demo; yields its address."""
    command = [sys.executable, "-m", "waysout", "serve", "--calls", "0", "--no-run"]
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as server:
        try:
            yield address_of(server)
        finally:
            server.terminate()


def address_of(server: subprocess.Popen[str]) -> str:
    """Return the address that the server says it is reached by."""
    for line in server.stdout or ():
        if found := re.search(r"http://[\d.]+:\d+/", line):
            return found.group()
    raise SystemExit("waysout serve ended before it said where it is")


def browser_path() -> str | None:
    """Return where the system's Chromium is; playwright looks for its own where there is none."""
    return os.environ.get("WAYSOUT_CHROMIUM") or shutil.which("chromium")


def opened(chromium: Browser, address: str, size: tuple[int, int], *, dark: bool = False) -> Page:
    """Open the page and wait for the routes of the first case."""
    width, height = size
    page = chromium.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
    )
    page.goto(address)
    searched(page)
    return page


def searched(page: Page) -> None:
    """Wait for the end of the search and for the strips that follow it."""
    page.locator(ENDED).wait_for()
    page.locator(".strip-said", has_text="A yes from").first.wait_for()


def on_a_desktop(page: Page, target: Path) -> None:
    """Walk through the story."""
    keep(page, target / "serve-1-answer.png")
    find_customer(page, "employment=part-time")
    keep(page, target / "serve-2-customer.png")
    page.keyboard.press("Escape")
    rule_out(page)
    keep(page, target / "serve-3-ruled-out.png")
    for place in (0, 2):
        page.locator("#cards .pin").nth(place).click()
        page.locator(f"#compare-table thead th:nth-child({3 + place // 2})").wait_for()
    try_values(page)
    show(page, "#try")
    keep(page, target / "serve-4-what-if.png")
    page.locator("#try-keep").click()
    page.locator("#compare-table", has_text="put together by you").wait_for()
    show(page, "#compare")
    keep(page, target / "serve-5-compare.png")
    show(page, "#plot")
    page.locator(".plot .dot").first.hover()
    page.screenshot(path=target / "serve-6-plot.png", animations="disabled")


def on_a_phone(page: Page, target: Path) -> None:
    """Read the sentence, a card and the strips, in the dark."""
    keep(page, target / "serve-7-phone.png")
    show(page, "#found")
    keep(page, target / "serve-8-phone-cards.png")
    show(page, "#try")
    keep(page, target / "serve-9-phone-what-if.png")


def find_customer(page: Page, text: str) -> None:
    """Look a customer up, and leave the list open."""
    page.get_by_role("combobox", name="Find a customer").fill(text)
    page.locator("#find-list li", has_text="employed part-time").first.wait_for()


def rule_out(page: Page) -> None:
    """Rule out the first route, and wait for the others."""
    card, spent = page.locator("#cards .card").first, page.locator("#status").inner_text()
    card.get_by_text("Not possible for me").click()
    card.get_by_role("button", name="Rule out this one").click()
    page.locator(f"{ENDED} #status", has_not_text=spent).wait_for()
    searched(page)


def try_values(page: Page) -> None:
    """Move two values until the model says yes."""
    page.get_by_label("Savings, value to try").fill("8000")
    page.get_by_label("Card use, value to try").fill("0.6")
    page.locator("#try-answer.is-yes:not(.is-old)", has_text="Card use").wait_for()
    page.locator(".strip-said", has_text="Still enough").first.wait_for()


def show(page: Page, selector: str) -> None:
    """Scroll so that something begins at the top."""
    page.locator(selector).evaluate("node => node.scrollIntoView()")


def keep(page: Page, path: Path) -> None:
    """Write what is seen."""
    page.mouse.move(0, 0)
    if page.locator("#find-list").is_hidden():
        page.evaluate("() => document.activeElement?.blur()")
    page.wait_for_load_state("networkidle")
    page.screenshot(path=path, animations="disabled")
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{path.name} is larger than {MOST_BYTES:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
