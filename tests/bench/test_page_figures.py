"""Ten figures of the page of results, drawn at random and made again from the searches on file.

Nothing of the page's code is used here: searches are read as lines of JSON, arms are told by what
their searches were made of, and intervals come from a bootstrap of our own.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, quantiles, stdev
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "results.md").read_text("utf-8").replace("\u00a0", " ").replace("−", "-")
TABLES = ("loan", "adult", "credit", "heloc")
PAPER = {"loan": ("window", 0.001), "adult": ("window", 0.01), "credit": ("window", 0.005),
         "heloc": ("path", 0.01)}  # fmt: skip
EMBEDDED = {"loan": ("path", 0.01), "adult": ("path", 0.03), "credit": ("window", 0.01),
            "heloc": ("path", 0.01)}  # fmt: skip

Search = dict[str, Any]
ByQuery = dict[int, Search]


@pytest.fixture(scope="module")
def searches() -> list[Search]:
    """Every search that the page is made of, the last of each."""
    found: dict[tuple[str, str, int], Search] = {}
    for path in sorted((ROOT / "benchmarks" / "results").glob("bench-*.jsonl.gz")):
        for text in gzip.decompress(path.read_bytes()).splitlines():
            one = json.loads(text)
            key = (one["arm"], one["llm"], one["query"])
            if key not in found or found[key]["at"] <= one["at"]:
                found[key] = one
    return list(found.values())


@dataclass(frozen=True)
class World:
    """The searches, and which of them an arm of the page is, as the paper is settled to be read."""

    searches: list[Search]
    llm: str

    def arm(self, data: str, method: str, llm: str | None = None, **wanted: Any) -> ByQuery:
        """Return an arm's searches by query; ``wanted`` are settings, or fields of the search."""
        return {one["query"]: one for one in self.searches
                if one["data"] == data and one["llm"] == (self.llm if llm is None else llm)
                and self._is(one["spec"], method, wanted)}  # fmt: skip

    @staticmethod
    def _is(spec: dict[str, Any], method: str, wanted: dict[str, Any]) -> bool:
        tree = method == "comp-mcts" or method.startswith("lats")
        style = {"template": "paper" if tree else "waysout", "constrain": not tree, "strict": False}
        usual = {"k": 5, "calls": 30, "rows": 150, "rules": "paper"}
        fields = {**usual, **{key: wanted[key] for key in usual if key in wanted}}
        settings = {key: value for key, value in wanted.items() if key not in usual}
        unbinned = spec["data"] == "heloc"
        return (
            spec["method"] == method
            and "kind" not in spec
            and not spec.get("alone")
            and all(spec[key] == value for key, value in fields.items())
            and (spec.get("binning") == "none") is unbinned
            and all(spec["settings"].get(key) == value for key, value in settings.items())
            and all(spec["style"][key] == v for key, v in style.items() if fields["calls"])
            and (not tree or spec["style"].get("unchanged") is True)
        )

    def without(self, data: str) -> ByQuery:
        """Recombine with no call."""
        return self.arm(data, "recombine", "", calls=0)

    def comp(self, data: str, pruning: str = "gzip", llm: str | None = None) -> ByQuery:
        """Comp-MCTS with the pruning that the paper selected, or none."""
        chosen = {"gzip": PAPER, "embedding": EMBEDDED}.get(pruning)
        more: dict[str, Any] = {"pruning": pruning, "reward": "balanced"}
        if chosen:
            more |= {"scope": chosen[data][0], "threshold": chosen[data][1]}
        if pruning == "gzip":
            more |= {"history": "approved", "patience": 2}
        return self.arm(data, "comp-mcts", llm, **more)

    def sweep(self, data: str, pruning: str, scope: str, threshold: float) -> ByQuery:
        """Comp-MCTS with a setting of the sweep."""
        read: dict[str, Any] = {"history": "approved", "patience": 2, "reward": "balanced"}
        return self.arm(
            data, "comp-mcts", pruning=pruning, scope=scope, threshold=threshold, **read
        )

    def lats(self, data: str, kind: str, k: int = 5, llm: str | None = None) -> ByQuery:
        """LATS without memory."""
        return self.arm(data, f"lats{kind}", llm, memory=0, k=k, rows=30 * k)


def value(one: Search, name: str) -> float:
    return float({**one["spent"], **one["metrics"]}[name])


def differences(a: ByQuery, b: ByQuery, name: str = "unique_valid") -> list[float]:
    assert len(a) == len(b) == 30
    return [value(b[query], name) - value(a[query], name) for query in a]


def mean(arm: ByQuery, name: str = "unique_valid") -> float:
    assert len(arm) == 30
    return fmean(value(one, name) for one in arm.values())


# The figures -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """A figure on the page, and how to make it again; ``off`` is how far apart they may be."""

    where: str
    shown: str
    again: Callable[[], float]
    off: float = 0.0

    def check(self) -> None:
        """Fail if the page shows anything else."""
        digits = len(self.shown.partition(".")[2])
        wrong = abs(float(self.shown) - self.again())
        assert wrong <= 0.51 * 10**-digits + self.off, (self.where, self.shown, self.again())


def cells(title: str) -> list[str]:
    """Return the cells of a line of the page after the first, which begins with a title."""
    text = next(text for text in PAGE.splitlines() if text.startswith(f"| {title}"))
    return [cell.strip() for cell in text.strip("|").split("|")][1:]


def effects(title: str) -> list[str]:
    """Return the effects of a claim on each data set; the table above it has its verdict."""
    told = PAGE.partition("<summary>Effects and intervals")[2]
    text = next(text for text in told.splitlines() if text.startswith(f"| {title}"))
    return [cell.strip() for cell in text.strip("|").split("|")][1:]


def interval(where: str, text: str, values: list[float]) -> Iterator[Drawn]:
    """Yield the three figures of a mean difference with its interval."""
    found = re.search(r"([+-]?[\d.]+) \[([+-]?[\d.]+), ([+-]?[\d.]+)\]", text)
    assert found, text
    yield Drawn(where, found[1], lambda: fmean(values))
    # Two bootstraps differ by chance: by some hundredths of the width of the interval.
    off = 0.1 * (float(found[3]) - float(found[2]))
    yield Drawn(f"{where}, low", found[2], lambda: resampled(values)[0], off)
    yield Drawn(f"{where}, high", found[3], lambda: resampled(values)[1], off)


def resampled(values: list[float]) -> tuple[float, float]:
    draw = random.Random(1)
    means = [fmean(draw.choices(values, k=len(values))) for _ in range(2000)]
    cuts = quantiles(means, n=40)
    return cuts[0], cuts[-1]


def figures(world: World) -> Iterator[Drawn]:
    """Yield the figures that can be drawn."""
    llms = {"random edits (simulated)": "simulated:1", "sensible edits (scripted)": "scripted:1",
            "qwen2.5-coder-1.5b": world.llm}  # fmt: skip
    for place, data in enumerate(TABLES):
        yield from lead(world, place, data)
        for called, llm in llms.items():
            yield from worth(
                f"Comp-MCTS without pruning, {called}", place, world.comp(data, "none", llm)
            )
        yield needed(world, place, data)
        yield from pruning(world, place, data)
        yield from embedding(world, place, data)
        yield from scope(world, place, data)
        yield from rewards(world, place, data)
        parts = effects("Five candidates a call")[place].split("<br>")
        for text, kind in zip(parts, ("", "-high-temp", "-diversity"), strict=True):
            one, five = world.lats(data, kind, 1), world.lats(data, kind)
            doubled = [
                value(five[q], "unique_valid") - 2 * value(one[q], "unique_valid") for q in one
            ]
            yield from interval(f"{data}: five{kind}", text.partition(" = ")[2], doubled)
            means = re.search(r"([\d.]+) - 2 × ([\d.]+) =", text)
            assert means
            yield Drawn(f"{data}: five{kind}, mean", means[1], partial(mean, five))
            yield Drawn(f"{data}: one{kind}, mean", means[2], partial(mean, one))
    yield from compressors(world)


def lead(world: World, place: int, data: str) -> Iterator[Drawn]:
    ours = world.without(data)
    best = re.fullmatch(
        r"([\d.]+) · [\d.]+ · \d+ of 30 \(LATS ([a-z-]+), K=5\)",
        cells("the paper's searches with")[place],
    )
    gain = re.search(r"recombine finds this many more than with none: (.*?)\. So ", PAGE)
    assert best
    assert gain
    kind = {"standard": "", "high-temp": "-high-temp", "diversity": "-diversity"}[best[2]]
    rival = world.lats(data, kind)
    yield from counted(f"{data}: no LLM", cells("**no LLM: recombine**")[place], ours)
    yield Drawn(f"{data}: best", best[1], lambda: mean(rival))
    yield from interval(f"{data}: lead", cells("lead over it")[place], differences(rival, ours))
    for method, called in (("random", "random search"), ("nearest", "the nearest approved")):
        arm = world.arm(data, method, "", calls=0)
        yield from counted(f"{data}: {method}", cells(f"no LLM: {called}")[place], arm)
    more = differences(ours, world.arm(data, "recombine"))
    yield from interval(f"{data}: gain", gain[1].split("; ")[place], more)


def counted(where: str, text: str, arm: ByQuery) -> Iterator[Drawn]:
    """Yield how many options a search finds, and how many features one changes where it has any."""
    options, changes, solved = text.split(" · ")
    yield Drawn(where, options, lambda: mean(arm))
    count = sum(bool(one["metrics"]["unique_valid"]) for one in arm.values())
    yield Drawn(f"{where}, solved", solved.removesuffix(" of 30"), lambda: count)
    some = [value(one, "sparsity") for one in arm.values() if one["metrics"]["unique_valid"]]
    yield Drawn(f"{where}, changes", changes, lambda: fmean(some))


def worth(title: str, place: int, arm: ByQuery) -> Iterator[Drawn]:
    found = re.fullmatch(r"([\d.]+) % × ([\d.]+) % → ([\d.]+)", cells(title)[place])
    assert found
    valid, asked = mean(arm, "valid"), mean(arm, "evaluated")
    yield Drawn(f"{place}: {title}: valid", found[1], lambda: 100 * valid / asked)
    yield Drawn(f"{place}: {title}: new", found[2], lambda: 100 * mean(arm) / valid)
    yield Drawn(f"{place}: {title}: unique", found[3], lambda: mean(arm))


def needed(world: World, place: int, data: str) -> Drawn:
    """At the share of new ones of the scripted proposals, to find as many as without an LLM."""
    shown = cells("sensible edits (scripted)")[place].removesuffix(" %")
    arm, ours = world.comp(data, "none", "scripted:1"), world.without(data)
    share = mean(arm) / mean(arm, "valid")
    return Drawn(f"{data}: needed", shown, lambda: 100 * mean(ours) / (150 * share))


def pruning(world: World, place: int, data: str) -> Iterator[Drawn]:
    text = effects("Pruning by compression saves oracle rows")[place]
    for part, name in zip(text.split("<br>"), ("rows", "unique_valid"), strict=False):
        if part != "–":  # nothing is claimed of HELOC
            found = differences(world.comp(data, "none"), world.comp(data), name)
            yield from interval(f"{data}: pruning, {name}", part, found)


def embedding(world: World, place: int, data: str) -> Iterator[Drawn]:
    text = effects("Pruning by embedding yields less")[place]
    less = differences(world.comp(data), world.comp(data, "embedding"))
    yield from interval(f"{data}: embedding", text, less)
    if found := re.search(r"n ≈ (\d+)", text):  # the next whole number
        yield Drawn(f"{data}: embedding, n", found[1],
                    lambda: (1.96 * stdev(less) / fmean(less)) ** 2 + 0.5, 0.01)  # fmt: skip


def scope(world: World, place: int, data: str) -> Iterator[Drawn]:
    """Yield how much more path prunes than global at two thresholds, and matched in strength."""
    parts = effects("Path prunes more than global")[place].split("<br>")
    for part, threshold in zip(parts, (0.005, 0.01), strict=True):
        wide, path = (world.sweep(data, "gzip", scope, threshold) for scope in ("global", "path"))
        more = differences(wide, path, "prune_pct")
        yield from interval(f"{data}: scope, {threshold}", part, more)
    text = effects("At a similar strength of pruning")[place]
    if text != "–":
        tau, theta = (world.sweep(data, kind, "path", strength)
                      for kind, strength in (("embedding", 0.05), ("gzip", 0.01)))  # fmt: skip
        yield from interval(f"{data}: matched", text, differences(theta, tau))


def rewards(world: World, place: int, data: str) -> Iterator[Drawn]:
    base, valid, good = (world.arm(data, "comp-mcts", pruning="none", reward=name)
                         for name in ("baseline", "validity", "quality"))  # fmt: skip
    text = effects("VALIDITY raises the yield")[place]
    yield from interval(f"{data}: VALIDITY", text, differences(base, valid))
    _, options = effects("QUALITY changes fewer features")[place].split("<br>")
    yield from interval(f"{data}: QUALITY", options, differences(base, good))


def compressors(world: World) -> Iterator[Drawn]:
    parts = effects("RLBWT and RePair prune more")[0].split("<br>")
    gzipped, *more = (
        world.arm("loan", "comp-mcts", pruning=name, scope="global", threshold=0.01, calls=20,
                  rows=100, reward="balanced") for name in ("gzip", "rlbwt", "repair")
    )  # fmt: skip
    for part, arm in zip(parts, more, strict=True):
        yield from interval("compressors", part, differences(gzipped, arm, "prune_pct"))


def test_a_search_that_prunes_nothing_finds_what_one_without_pruning_finds(
    searches: list[Search],
) -> None:
    """Else they asked the same of another LLM, or of another draw of it: no pairs to compare."""
    world, seen = World(searches, made_with()), 0
    for data in TABLES:
        none = world.comp(data, "none")
        for pruning, thresholds in (("gzip", (0.001, 0.005, 0.01)), ("embedding", (0.01, 0.03))):
            for threshold in thresholds:
                for where in ("global", "path", "window"):
                    for query, one in world.sweep(data, pruning, where, threshold).items():
                        if not value(one, "prune_pct"):
                            seen += 1
                            assert one["metrics"] == none[query]["metrics"], (data, where, query)
    assert seen > 500


def made_with() -> str:
    """Return the LLM that the page is of."""
    found = re.search(r"^LLM='(.*)'$", PAGE, re.MULTILINE)
    assert found
    return found[1]


def test_ten_figures_of_the_page_are_what_the_searches_on_file_give(
    searches: list[Search],
) -> None:
    every = list(figures(World(searches, made_with())))
    assert len(every) > 230
    for drawn in random.sample(every, 10):
        drawn.check()
