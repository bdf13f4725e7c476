"""How much each pruning threshold drops, next to the paper's sweep.

    python benchmarks/pruning.py --llm simulated:1 --queries 10 loan adult

The paper's figures (Gemma-3-12B, 30 queries) stand beside ours; the proposer is another one, and
what it proposes decides what there is to prune. Needs the tables and their trained oracles.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from waysout.datasets.load import load_dataset
from waysout.datasets.manifest import load_oracle
from waysout.datasets.queries import queries
from waysout.datasets.split import training_rows
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.prompts.propose import Style
from waysout.run.find import find_many
from waysout.search.comp_mcts import CompMCTS
from waysout.search.prune.base import Scope

SCOPES: tuple[Scope, ...] = ("global", "path", "window")
COMPRESSION = (0.001, 0.005, 0.01, 0.02)
EMBEDDING = (0.01, 0.03, 0.05, 0.1)

# Prune % of the paper's sweep: global, path, window for each threshold.
PAPER = {
    ("loan", "gzip"): ((0.09, 0.24, 0.24), (1.76, 4.56, 4.60), (23.86, 35.23, 34.79),
                       (74.88, 82.01, 82.42)),
    ("adult", "gzip"): ((0.07, 0.25, 0.07), (1.84, 3.69, 3.54), (11.83, 18.20, 18.33),
                        (77.31, 52.76, 53.58)),
    ("credit", "gzip"): ((0.02, 0.00, 0.00), (2.61, 2.71, 2.67), (17.81, 21.59, 21.57),
                         (69.86, 90.29, 90.45)),
    ("heloc", "gzip"): ((0.00, 0.00, 0.00), (0.05, 0.72, 0.67), (4.47, 6.37, 6.34),
                        (22.40, 90.05, 90.06)),
    ("loan", "embedding"): ((49.32, 10.95, 12.04), (63.93, 23.28, 23.19), (75.86, 35.17, 33.52),
                            (82.39, 77.53, 77.04)),
    ("adult", "embedding"): ((40.65, 6.95, 6.83), (59.37, 15.91, 14.87), (64.08, 20.27, 19.64),
                             (80.79, 72.83, 71.15)),
    ("credit", "embedding"): ((29.25, 7.50, 6.84), (45.27, 16.63, 16.54), (52.47, 23.41, 23.22),
                              (63.01, 60.09, 58.40)),
    ("heloc", "embedding"): ((10.34, 16.97, 17.56), (14.25, 25.43, 23.15), (20.51, 33.64, 35.32),
                             (24.82, 67.96, 66.17)),
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    scope: Scope
    threshold: float
    prune_pct: float
    paper_pct: float
    unique_valid: float
    evaluated: float


def sweep(name: str, pruning: str, llm: str, count: int, style: Style) -> Iterator[Line]:
    """Run Comp-MCTS at every scope and threshold."""
    data = load_dataset(name)
    oracle = load_oracle(data.card)
    problem = Problem.from_card(data.card, oracle, training=training_rows(data), rule_set="paper")
    people: list[Row] = [data.rows[i] for i in queries(name)[:count]]
    for t, threshold in enumerate(COMPRESSION if pruning == "gzip" else EMBEDDING):
        for s, scope in enumerate(SCOPES):
            method = CompMCTS(pruning=pruning, scope=scope, threshold=threshold)  # type: ignore[arg-type]
            found = [r.metrics for r in find_many(problem, people, method=method, llm=llm,
                                                  style=style)]  # fmt: skip
            pruned = sum(int(m["pruned"] or 0) for m in found)
            evaluated = sum(int(m["evaluated"] or 0) for m in found)
            yield Line(
                scope,
                threshold,
                100 * pruned / (pruned + evaluated),
                PAPER[name, pruning][t][s],
                statistics.fmean(float(m["unique_valid"] or 0) for m in found),
                evaluated / len(found),
            )


def main() -> None:
    """Print a table for each data set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="+", choices=sorted({name for name, _ in PAPER}))
    parser.add_argument("--llm", default="simulated:1")
    parser.add_argument("--queries", type=int, default=10)
    parser.add_argument("--pruning", choices=("gzip", "embedding"), default="gzip")
    parser.add_argument("--free", action="store_true", help="the paper's prompt, unconstrained")
    given = parser.parse_args()
    style = Style("paper", constrain=False) if given.free else Style()
    for name in given.datasets:
        print(f"\n{name}, {given.pruning}, {given.queries} queries, proposer {given.llm}")
        print("scope   threshold   pruned   paper's   unique valid   rows a query")
        for line in sweep(name, given.pruning, given.llm, given.queries, style):
            print(
                f"{line.scope:7} {line.threshold:9g} {line.prune_pct:7.1f}% {line.paper_pct:8.1f}% "
                f"{line.unique_valid:14.1f} {line.evaluated:14.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
