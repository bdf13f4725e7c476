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
ENDED = "#bar:not(.is-running) #actions button:has-text('Continue')"


def main(folder: str) -> None:
    """Write the screenshots into a folder."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with serving() as address, sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        on_a_desktop(opened(chromium, address, DESKTOP), target)
        on_a_phone(opened(chromium, address, PHONE), target)
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


def opened(chromium: Browser, address: str, size: tuple[int, int]) -> Page:
    """Open the page and wait for the model's answer to the first case."""
    width, height = size
    page = chromium.new_page(
        viewport={"width": width, "height": height}, color_scheme="light", reduced_motion="reduce"
    )
    page.goto(address)
    page.locator("#decision").wait_for()
    return page


def on_a_desktop(page: Page, target: Path) -> None:
    """Walk through the story."""
    lock(page, "education")
    keep(page, target / "serve-1-case.png")
    find(page)
    keep(page, target / "serve-2-found.png")
    rule_out(page, "Credit score")
    go_on(page)
    keep(page, target / "serve-3-continued.png")
    ask_what_if(page)
    keep(page, target / "serve-4-what-if.png")
    page.locator("#what-if-close").click()
    page.locator("#views > summary").click()
    page.get_by_role("tab", name="Map").click()
    page.locator(".map").wait_for()
    show(page, "#views")
    keep(page, target / "serve-5-map.png")


def on_a_phone(page: Page, target: Path) -> None:
    """Find ways out, and look at the first."""
    find(page)
    show(page, "#shortlist")
    keep(page, target / "serve-6-phone.png")


def lock(page: Page, name: str) -> None:
    """Say that something cannot change."""
    page.get_by_role("button", name=f"lock {name}").click()
    page.get_by_role("button", name=f"locked {name}").wait_for()


def find(page: Page) -> None:
    """Search to the end."""
    page.get_by_role("button", name="Find ways out").click()
    page.locator(ENDED).wait_for()
    page.locator("#shortlist-cards .card").first.wait_for()


def rule_out(page: Page, what: str) -> None:
    """Leave out the first way that changes something."""
    card = page.locator("#shortlist-cards .card", has_text=what).first
    card.get_by_text("Not possible for me").click()
    card.get_by_role("button", name="Leave this one out").click()
    page.locator("#excluded-list li").wait_for()


def go_on(page: Page) -> None:
    """Continue to the end."""
    page.get_by_role("button", name="Continue with these locks").click()
    page.locator(f"{ENDED}:text-is('Continue')").wait_for()
    show(page, "#excluded")
    show(page, "#outcome")


def ask_what_if(page: Page) -> None:
    """Open the first way out and move its income up."""
    page.locator("#shortlist-cards").get_by_role("button", name="What if…").first.click()
    page.locator("#what-if").get_by_label("Income", exact=True).fill("52000")
    page.locator(".what-if-changes", has_text="52,000").wait_for()


def show(page: Page, selector: str) -> None:
    """Scroll so that something begins at the top."""
    page.locator(selector).evaluate("node => node.scrollIntoView()")


def keep(page: Page, path: Path) -> None:
    """Write what is seen."""
    page.mouse.move(0, 0)
    page.evaluate("() => document.activeElement?.blur()")
    page.wait_for_load_state("networkidle")
    page.screenshot(path=path, animations="disabled")
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{path.name} is larger than {MOST_BYTES:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
