"""How long a person waits on the page, in a real browser: to the first way, to all, after a slider.

    python benchmarks/page.py
    python benchmarks/page.py --other ../earlier     # beside the page of another checkout, in turns

Starts `waysout serve` on the demo, opens it in Chromium and goes from customer to customer. Times
are taken inside the page, from the press of a button (or the move of a slider) to the frame in
which the answer stands there. The page before searches began by themselves is driven by its button.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parents[1]

# Resolve, for a page whose search begins by itself, with the ms from a press to each thing seen.
ONWARD = """async () => {
  const frame = () => new Promise(requestAnimationFrame);
  const before = location.hash;
  const began = performance.now();
  document.querySelector("#example-on").click();
  const found = {};
  const cards = () => document.querySelectorAll("#cards .card").length;
  while (location.hash === before) await frame();
  while (!cards()) await frame();
  found["first way"] = performance.now() - began;
  while (document.querySelector("#bar").dataset.state !== "ended") await frame();
  while (!document.querySelector("#cards .place")) await frame();
  found["all ways"] = performance.now() - began;
  return found;
}"""
SLIDE = """async () => {
  const frame = () => new Promise(requestAnimationFrame);
  const slider = document.querySelector("#cards .safer input");
  slider.focus();
  const said = document.querySelector("#cards .safer p");
  while (!said.textContent) await frame();
  const began = performance.now();
  slider.value = "2";
  slider.dispatchEvent(new Event("input"));
  while (!/farther|far:/.test(said.textContent)) await frame();
  const safer = performance.now() - began;
  const strip = [...document.querySelectorAll("#strips input[type=range]")].at(-1);
  const answer = document.querySelector("#try-answer");
  const start = performance.now();
  strip.value = strip.value === "0" ? strip.max : "0";
  strip.dispatchEvent(new Event("input"));
  while (!answer.classList.contains("is-old")) await frame();
  while (answer.classList.contains("is-old")) await frame();
  const moved = performance.now() - start;
  document.querySelector("#try-reset").click();
  return { "slider of a card": safer, "slider of what if": moved };
}"""
# The same for the page with a button.
ONWARD_BEFORE = """async () => {
  const frame = () => new Promise(requestAnimationFrame);
  const press = (words) => [...document.querySelectorAll("#actions button")]
    .find((each) => each.textContent === words);
  if (press("Start anew")) press("Start anew").click();
  const began = performance.now();
  document.querySelector("#example-on").click();
  while (!press("Find ways out") || press("Find ways out").disabled) await frame();
  press("Find ways out").click();
  const found = {};
  while (!document.querySelectorAll("#shortlist-cards .card").length) await frame();
  found["first way"] = performance.now() - began;
  while (!press("Continue")) await frame();
  found["all ways"] = performance.now() - began;
  return found;
}"""
SLIDE_BEFORE = """async () => {
  const frame = () => new Promise(requestAnimationFrame);
  document.querySelector("#shortlist-cards .card-foot button").click();
  while (!document.querySelector(".lever input[type=range]")) await frame();
  const strip = [...document.querySelectorAll(".lever input[type=range]")].at(-1);
  const answer = document.querySelector("#what-if-answer");
  const start = performance.now();
  strip.value = strip.value === strip.min ? strip.max : strip.min;
  strip.dispatchEvent(new Event("input"));
  while (!answer.classList.contains("is-old")) await frame();
  while (answer.classList.contains("is-old")) await frame();
  const moved = performance.now() - start;
  document.querySelector("#what-if-close").click();
  return { "slider of what if": moved };
}"""


@contextmanager
def serving(checkout: Path) -> Iterator[str]:
    """Serve the demo with the code of a checkout; yields its address."""
    command = [sys.executable, "-m", "waysout", "serve", "--no-run", "--port", "0"]
    source = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=source) as server:
        assert server.stdout is not None
        try:
            for line in server.stdout:
                if found := re.search(r"http://[\d.]+:\d+/", line):
                    threading.Thread(target=server.stdout.read, daemon=True).start()
                    yield found.group()
                    return
            raise SystemExit("the server did not start")
        finally:
            server.terminate()


def measure(page: Page) -> dict[str, float]:
    """Go on to the next customer, and move a slider; returns milliseconds."""
    before = page.locator("#views").count() > 0
    found: dict[str, float] = page.evaluate(ONWARD_BEFORE if before else ONWARD)
    page.wait_for_timeout(300)  # the strips are drawn after the routes
    found |= page.evaluate(SLIDE_BEFORE if before else SLIDE)
    return found


def main() -> None:
    """Print medians and the slowest, and the ratio where there are two pages."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--other", type=Path, help="another checkout, to compare with")
    parser.add_argument("--customers", type=int, default=15)
    given = parser.parse_args()
    checkouts = {"this": HERE, **({"other": given.other} if given.other else {})}
    times: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in checkouts}
    with ExitStack() as stack:
        driver = stack.enter_context(sync_playwright())
        found = os.environ.get("WAYSOUT_CHROMIUM") or shutil.which("chromium")
        chromium = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        pages = {}
        for name, checkout in checkouts.items():
            pages[name] = chromium.new_page(viewport={"width": 1280, "height": 900})
            pages[name].goto(stack.enter_context(serving(checkout)))
            pages[name].locator("#decision").wait_for()
            pages[name].wait_for_timeout(3000)  # the first search loads what all others find loaded
            measure(pages[name])
        for _ in range(given.customers):
            for name, page in pages.items():
                for what, ms in measure(page).items():
                    times[name][what].append(ms)
        chromium.close()
    for what in times["this"]:
        told = [
            f"{name} {statistics.median(of[what]):6.0f} ms (slowest {max(of[what]):.0f})"
            for name, of in times.items()
            if of[what]
        ]
        print(f"{what:18} {'   '.join(told)}")


if __name__ == "__main__":
    main()
