"""What the search itself costs: everything but the LLM and the oracle.

    python benchmarks/search.py

On the synthetic table, with the simulated LLM, K = 5. Times are per LLM call; the growth is a ratio
within the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from waysout.datasets.load import load_dataset
from waysout.datasets.split import training_rows
from waysout.domain.budget import Budget
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.llm.base import Reply, Request
from waysout.llm.simulated import Simulated
from waysout.oracles.adapt import as_oracle
from waysout.prompts.propose import Proposer, Style
from waysout.prompts.render import Topic
from waysout.search.base import Case, Method
from waysout.search.comp_mcts import CompMCTS
from waysout.search.lats import Lats
from waysout.search.work import Propose

QUERY = 828


@dataclass
class Stopwatch:
    """Adds up the time of what is not the search's own."""

    seconds: float = 0.0

    def around(self, work: Callable[[], Reply | Answers]) -> Reply | Answers:
        """Do something on the watch."""
        began = time.perf_counter()
        try:
            return work()
        finally:
            self.seconds += time.perf_counter() - began


@dataclass
class Bench:
    """A problem, its people, and who proposes."""

    problem: Problem
    rows: Sequence[Row]
    llm: Simulated = field(default_factory=lambda: Simulated(1))

    def engine_seconds(self, method: Method, calls: int) -> tuple[float, int]:
        """Return the search's own time, and how many calls it made."""
        proposer = Proposer(Topic.of_problem(self.problem), self.llm.form, Style())
        budget = Budget(llm_calls=calls, oracle_rows=5 * calls)
        case = Case(self.problem, self.rows[QUERY], 0.3, budget, proposer=proposer)
        watch, began, made = Stopwatch(), time.perf_counter(), 0
        search = method.start(case)
        while (work := search.ask()) is not None:
            if isinstance(work, Propose):
                made += 1
                request = work.request
                answer = watch.around(lambda request=request: self.reply(request))  # type: ignore[misc]
            else:
                rows = work.rows
                answer = watch.around(lambda rows=rows: self.problem.oracle.ask(rows))  # type: ignore[misc]
            search.tell(work, answer)
        return time.perf_counter() - began - watch.seconds, made

    def reply(self, request: Request) -> Reply:
        """Ask the LLM."""
        return asyncio.run(self.llm.complete(request))


def chance(table: object) -> object:
    """Approve by an easy formula, so that the oracle's time does not drown the search's."""
    import numpy as np
    import pandas as pd

    assert isinstance(table, pd.DataFrame)
    score = (
        table["credit_score"] / 850 + table["savings"] / 65_000 - table["card_use"].astype(float)
    )
    return 1 / (1 + np.exp(-4 * (score.to_numpy(dtype=float) - 0.7)))


def main() -> None:
    """Print the table."""
    data = load_dataset("synthetic")
    oracle = as_oracle(chance, data.card)
    bench = Bench(Problem.from_card(data.card, oracle, training=training_rows(data)), data.rows)
    # Deeper than usual, so that a tree of 1,000 calls is not exhausted.
    methods: dict[str, Method] = {
        "comp-mcts, gzip, path": CompMCTS(depth=8),
        "comp-mcts, gzip, global": CompMCTS(depth=8, scope="global", threshold=0.0),
        "comp-mcts, no pruning": CompMCTS(depth=8, pruning="none"),
        "lats": Lats(depth=8),
    }
    print(f"{'method':26} {'30 calls':>10} {'100 calls':>10} {'1,000 calls':>12}   1,000 to 100")
    for name, method in methods.items():
        best = {}
        for calls, repeats in ((30, 5), (100, 3), (1000, 2)):
            times = [bench.engine_seconds(method, calls) for _ in range(repeats)]
            assert all(made == calls for _, made in times)
            best[calls] = min(seconds for seconds, _ in times) / calls
        growth = 10 * best[1000] / best[100]
        cells = " ".join(f"{1e3 * best[c]:7.2f} ms" for c in (30, 100, 1000))
        print(f"{name:26} {cells}   {growth:6.1f} x the time")


if __name__ == "__main__":
    main()
