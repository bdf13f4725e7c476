"""What is found without any LLM: the floors that every method must beat.

    python benchmarks/floors.py --queries 10

Mean options, proximity and changes for 150 oracle rows, with each card's own rules. Needs the
tables and their trained oracles.
"""

from __future__ import annotations

import argparse
import statistics

from waysout.datasets.load import load_dataset
from waysout.datasets.manifest import load_oracle
from waysout.datasets.queries import queries
from waysout.datasets.split import training_rows
from waysout.domain.problem import Problem
from waysout.run.find import find_many


def main() -> None:
    """Print a line for each data set and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=10)
    count = parser.parse_args().queries
    print("data     rules       method   options  proximity  changes")
    for name in ("loan", "adult", "credit", "heloc"):
        data = load_dataset(name)
        problem = Problem.from_card(data.card, load_oracle(data.card), training=training_rows(data))
        people = [data.rows[i] for i in queries(name)[:count]]
        for method in ("random", "nearest"):
            found = [r.metrics for r in find_many(problem, people, method=method, data=data)]
            means = [
                statistics.fmean(float(m[key]) for m in found if m[key] is not None)  # type: ignore[arg-type]
                for key in ("unique_valid", "proximity", "sparsity")
            ]
            figures = f"{means[0]:8.1f} {means[1]:10.3f} {means[2]:8.2f}"
            print(f"{name:8} {problem.rules.name:11} {method:8} {figures}", flush=True)


if __name__ == "__main__":
    main()
