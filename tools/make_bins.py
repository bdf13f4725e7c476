"""Print the range, bins and scale of every numeric column of one of the four data sets.

    python tools/make_bins.py loan loan.csv

The lines are pasted into src/waysout/datasets/cards/. They were written once, before any search was
run, and are never tuned: bins decide which options count as different, so a bin moved afterwards
would move every result. They look only at the rows the oracle is trained on (80 %, stratified by
whether the outcome is a yes, seed 42: the split of waysout.datasets.load).

- range: lowest and highest value, rounded outwards to two significant digits;
- bins: for a column of more than 10 distinct values, its deciles (10 % to 90 %, each an observed
  value) rounded to two significant digits (more where two would merge most deciles), each edge
  once, without those that would leave a bin empty at either end;
- scale: the median absolute deviation, or the standard deviation where that is zero (or 1 where
  that is zero too), rounded to three significant digits.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from waysout.datasets.infer import outer_range
from waysout.domain.distance import scale_of
from waysout.domain.key import bin_edges, rounded
from waysout.domain.schema import format_number

# Per data set: the label, its positive value, and the whole numbers that are no quantities.
COLUMNS: dict[str, tuple[str, object, list[str]]] = {
    "loan": ("loan_status", "Approved", ["loan_id"]),
    "adult": ("income", ">50K", []),
    "credit": ("default.payment.next.month", 0, ["ID", "SEX", "EDUCATION", "MARRIAGE"]),
    "heloc": ("RiskPerformance", "Good", []),
}


def main(dataset: str, path: str) -> None:
    """Print the lines for one data set."""
    target, positive, other = COLUMNS[dataset]
    table = pd.read_csv(path, keep_default_na=False)
    labels = table[target] == positive
    rows, _ = train_test_split(range(len(table)), test_size=0.2, stratify=labels, random_state=42)
    training = table.iloc[rows].drop(columns=[target, *other])
    for name in training.select_dtypes("number"):
        sys.stdout.write(f"[features.{name}]\n{lines(training[name].to_numpy(float))}\n")


def lines(values: NDArray[np.float64]) -> str:
    """Return the three lines of one column, ready to paste."""
    low, high = outer_range(values)
    edges = ", ".join(format_number(edge) for edge in bin_edges(values))
    return (
        f"range = [{format_number(low)}, {format_number(high)}]\n"
        + (f"bins = [{edges}]\n" if edges else "")
        + f"scale = {format_number(rounded(scale_of(values).value, 3))}\n"
    )


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in COLUMNS:
        sys.exit(f"usage: python tools/make_bins.py {{{','.join(COLUMNS)}}} FILE.csv")
    main(sys.argv[1], sys.argv[2])
