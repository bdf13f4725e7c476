"""What the search itself costs: everything but the LLM and the oracle.

    python benchmarks/search.py

On the synthetic table, with the simulated LLM, K = 5; recombine, and wayfinder without an LLM, also
on those of the real tables that are there with their trained oracles (`search.py wayfinder`: that
alone; students are learned before). `search.py first` is what a person waits for: one whole
`waysout.find` on the demo's table, in a process of its own each time. The growth is a ratio within
the run. Seconds are those of the clock; beside them stand those of the processor, which other
programs do not lengthen much.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from timing import DATASETS

from waysout.datasets.load import load_dataset, training_rows
from waysout.datasets.manifest import load_oracle
from waysout.datasets.queries import queries
from waysout.domain.budget import Budget
from waysout.domain.known import Known
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.errors import WaysoutError
from waysout.llm.base import Reply
from waysout.llm.simulated import Simulated
from waysout.oracles.adapt import as_oracle
from waysout.prompts.propose import Proposer, Style
from waysout.prompts.render import Topic
from waysout.search.base import Case, Method
from waysout.search.comp_mcts import CompMCTS
from waysout.search.lats import Lats
from waysout.search.recombine import Recombine, RecombineSearch
from waysout.search.wayfinder import Wayfinder, WayfinderSearch
from waysout.search.work import Propose, Work

QUERY = 828
CALLS = 30


@dataclass
class Stopwatch:
    """Adds up the time of what is not the search's own: by the clock, and of the processor."""

    seconds: float = 0.0
    processor: float = 0.0

    def around(self, work: Callable[[], Reply | Answers]) -> Reply | Answers:
        """Do something on the watch."""
        began, worked = time.perf_counter(), time.process_time()
        try:
            return work()
        finally:
            # In this order the clocks' own time is on the watch, not the search's.
            self.processor += time.process_time() - worked
            self.seconds += time.perf_counter() - began


@dataclass
class Cost:
    """What a search took: its own seconds, and all with those of the LLM and the oracle."""

    own: float = 0.0
    processor: float = 0.0
    whole: float = 0.0
    calls: int = 0
    batches: list[int] = field(default_factory=list)
    levers: int = 0
    edits: int = 0

    @property
    def rows(self) -> int:
        """How many rows were asked."""
        return sum(self.batches)


@dataclass
class Bench:
    """A problem, one of its people, and who proposes."""

    problem: Problem
    query: Row
    known: Known
    llm: Simulated = field(default_factory=lambda: Simulated(1))

    def cost(self, method: Method, *, calls: int, rows: int) -> Cost:
        """Return what one search costs."""
        proposer = Proposer(Topic.of_problem(self.problem), self.llm.form, Style())
        chance = float(self.problem.oracle.ask([self.query]).probability[0])
        budget = Budget(llm_calls=calls, oracle_rows=rows)
        case = Case(self.problem, self.query, chance, budget, proposer=proposer, known=self.known)
        method.learn(self.problem, self.known, lambda *_: None)
        cost, watch = Cost(), Stopwatch()
        began, worked = time.perf_counter(), time.process_time()
        search = method.start(case)
        while (work := search.ask()) is not None:
            if isinstance(work, Propose):
                cost.calls += 1
            else:
                cost.batches.append(len(work.rows))
            search.tell(work, watch.around(lambda work=work: self.answer(work)))  # type: ignore[misc]
        cost.whole = time.perf_counter() - began
        cost.own = cost.whole - watch.seconds
        cost.processor = time.process_time() - worked - watch.processor
        if isinstance(search, RecombineSearch):
            cost.levers, cost.edits = len(search.library.slots), len(search.library)
        elif isinstance(search, WayfinderSearch):
            cost.levers, cost.edits = len(search.steps.slots), len(search.steps)
        return cost

    def answer(self, work: Work) -> Reply | Answers:
        """Ask the LLM or the oracle."""
        if isinstance(work, Propose):
            return asyncio.run(self.llm.complete(work.request))
        return self.problem.oracle.ask(work.rows)

    def best(self, method: Method, *, calls: int, rows: int, repeats: int) -> Cost:
        """Return the cheapest of several times the same search."""
        found = (self.cost(method, calls=calls, rows=rows) for _ in range(repeats))
        return min(found, key=lambda cost: cost.own)


def chance(table: object) -> object:
    """Approve by an easy formula, so that the oracle's time does not drown the search's."""
    import numpy as np
    import pandas as pd

    assert isinstance(table, pd.DataFrame)
    score = (
        table["credit_score"] / 850 + table["savings"] / 65_000 - table["card_use"].astype(float)
    )
    return 1 / (1 + np.exp(-4 * (score.to_numpy(dtype=float) - 0.7)))


def synthetic() -> Bench:
    """Return the table that needs no download."""
    data = load_dataset("synthetic")
    oracle = as_oracle(chance, data.card)
    problem = Problem.from_card(data.card, oracle, training=training_rows(data))
    return Bench(problem, data.rows[QUERY], data)


def benches() -> Iterator[tuple[str, Bench]]:
    """Yield the synthetic table, and those of the real ones that are there."""
    yield "synthetic", synthetic()
    for name in DATASETS:
        try:
            data = load_dataset(name)
            oracle = load_oracle(data.card)
        except WaysoutError as error:
            print(f"{name}: left out: {error}")
            continue
        problem = Problem.from_card(data.card, oracle, training=training_rows(data))
        yield name, Bench(problem, data.rows[queries(name)[0]], data)


def trees(bench: Bench) -> None:
    """Print the time per LLM call of the methods that search a tree."""
    # Deeper than usual, so that a tree of 1,000 calls is not exhausted.
    methods: dict[str, Method] = {
        "comp-mcts, gzip, path": CompMCTS(depth=8),
        "comp-mcts, gzip, global": CompMCTS(depth=8, scope="global", threshold=0.0),
        "comp-mcts, no pruning": CompMCTS(depth=8, pruning="none"),
        "lats": Lats(depth=8),
    }
    print(f"{'method':26} {'30 calls':>10} {'100 calls':>10} {'1,000 calls':>12}   1,000 to 100")
    for name, method in methods.items():
        each = {}
        for calls, repeats in ((30, 5), (100, 3), (1000, 2)):
            cost = bench.best(method, calls=calls, rows=5 * calls, repeats=repeats)
            assert cost.calls == calls
            each[calls] = cost.own / calls
        growth = 10 * each[1000] / each[100]
        cells = " ".join(f"{1e3 * each[c]:7.2f} ms" for c in (30, 100, 1000))
        print(f"{name:26} {cells}   {growth:6.1f} x the time", flush=True)


FIRST = f"""
import time, waysout, waysout.run.find
data = waysout.load_dataset("synthetic")
problem = waysout.Problem.from_card(data.card, waysout.load_oracle(data.card), training=data.rows)
began, seen = time.perf_counter(), []
note = lambda now: seen.append(time.perf_counter() - began) if now.options else None
result = waysout.find(problem, data.rows[{QUERY}], data=data, progress=note)
print(seen[0], time.perf_counter() - began, len(result.ways))
"""


def first(repeats: int = 7) -> None:
    """Print the seconds from a loaded table and model to the first yes, and to all ways."""
    found = []
    for _ in range(repeats):
        ran = subprocess.run([sys.executable, "-c", FIRST], check=True, capture_output=True)
        found.append([float(word) for word in ran.stdout.split()])
    for what, seconds in zip(("the first yes", "all ways"), zip(*found, strict=True), strict=False):
        low, middle = min(seconds), statistics.median(seconds)
        print(f"find, synthetic row {QUERY}: {what}: {middle:.2f} s (best of {repeats}: {low:.2f})")


COLUMNS = ("table", "levers", "edits", "rows", "batches", "largest", "ms a batch", "processor",
           "ms a row", "own s", "whole s", "growth")  # fmt: skip


def combinations(method: Method, found: Iterator[tuple[str, Bench]], calls: int) -> None:
    """Print the time per batch and per row, and how it grows with the rows."""
    widths = [max(9, len(column)) for column in COLUMNS]
    print(" ".join(map(str.rjust, COLUMNS, widths)))
    for name, bench in found:
        before: Cost | None = None
        for rows, repeats in ((150, 5), (1000, 3), (10_000, 1)):
            cost = bench.best(method, calls=calls, rows=rows, repeats=repeats)
            print(" ".join(map(str.rjust, _cells(name, cost, before), widths)), flush=True)
            before = cost


def _cells(name: str, cost: Cost, before: Cost | None) -> Sequence[str]:
    growth = (cost.own / before.own) / (cost.rows / before.rows) if before else None
    return (
        name, f"{cost.levers}", f"{cost.edits}", f"{cost.rows:,}", f"{len(cost.batches)}",
        f"{max(cost.batches)}", f"{1e3 * cost.own / len(cost.batches):.2f}",
        f"{1e3 * cost.processor / len(cost.batches):.2f}", f"{1e3 * cost.own / cost.rows:.2f}",
        f"{cost.own:.2f}", f"{cost.whole:.2f}",
        "" if growth is None else f"{growth:.2f}",
    )  # fmt: skip


def main() -> None:
    """Print all tables: those of trees, or those of a method named as the argument."""
    methods: dict[str, tuple[Method, int]] = {
        "recombine": (Recombine(), CALLS),
        "wayfinder": (Wayfinder(), 0),
    }
    wanted = sys.argv[1:] or ["first", "trees", *methods]
    if unknown := set(wanted) - {"trees", "first", *methods}:
        sys.exit(f"unknown: {sorted(unknown)}; there are trees, first, {', '.join(methods)}")
    if "first" in wanted:
        first()
    if "trees" in wanted:
        trees(synthetic())
    for name, (method, calls) in methods.items():
        if name in wanted:
            print(
                f"\n{name}, up to {calls} calls; batches of 5 rows, or a twentieth of those before"
            )
            print("processor: its ms a batch, all threads together")
            print("growth: how the own time grew from the line above, to how the rows did\n")
            combinations(method, benches(), calls)


if __name__ == "__main__":
    main()
