"""The paper's published numbers (the CSV files in ``paper/``), and where they are inconsistent.

They are shown for comparison. No test depends on them, because they are not consistent with each
other: `disagreements` lists the differences that are larger than rounding explains.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib import resources

from waysout.bench.stats import Setting

LLM = "Gemma-3-12B"
NAMES: Mapping[str, str] = {
    "loan": "Loan", "adult": "Adult", "credit": "Credit", "heloc": "HELOC"
}  # fmt: skip
"""Our name of each data set, and the paper's."""

PaperRow = Mapping[str, str]
_SETTING = re.compile(r"(?P<scope>Global|Path|Window), (?:theta|tau)=(?P<threshold>[\d.]+)")
_MATCHED = re.compile(r"(?P<scope>Global|Path) .*theta=(?P<theta>[\d.]+) vs .*tau=(?P<tau>[\d.]+)")
_SCOPES = re.compile(r"Compression theta=(?P<theta>[\d.]+): (?P<a>\w+) vs (?P<b>\w+)")
# Metric names in the paired tables, and the columns of the tables of means.
METRICS: Mapping[str, str] = {
    "Unique Valid CFs": "unique_valid",
    "Yield": "unique_valid",
    "Oracle Evals/q": "oracle_evals",
    "Proximity": "proximity",
    "Sparsity": "sparsity",
    "Sparsity (Num. Changes)": "sparsity",
    "Novelty": "novelty",
    "Novelty (NN Dist.)": "novelty",
}


@cache
def read(name: str) -> tuple[PaperRow, ...]:
    """Return the rows of one of the files, all cells as printed."""
    file = resources.files("waysout.bench") / "paper" / f"{name}.csv"
    return tuple(csv.DictReader(file.read_text("utf-8").splitlines()))


def find(name: str, **where: str) -> PaperRow:
    """Return the row with these cells, or an empty one if there is none."""
    return next((row for row in read(name) if where.items() <= row.items()), {})


def number(row: PaperRow, column: str) -> float | str | None:
    """Return a cell as a number, text such as "n/a" unchanged, and None where it is empty.

    >>> number({"t": "+7.19", "p": "n/a"}, "t"), number({"t": "+7.19", "p": "n/a"}, "p")
    (7.19, 'n/a')
    """
    text = row.get(column, "")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        return text


def with_ends(row: PaperRow) -> PaperRow:
    """Return a row with the two ends of its interval as cells of their own.

    >>> with_ends({"ci95": "[-1.00, 1.60]"})["low"]
    '-1.00'
    """
    if "ci95" not in row:
        return row
    low, high = row["ci95"].strip("[]").split(",")
    return {**row, "low": low.strip(), "high": high.strip()}


def selected_row(table: str, data: str, method: str) -> PaperRow:
    """Return the row of the selected ``No pruning``, ``Compression`` or ``Embedding`` setting."""
    rows = (row for row in read(table) if row["dataset"] == NAMES.get(data))
    return next((row for row in rows if row["setting"].startswith(method)), {})


def best_yield(data: str) -> float | None:
    """Return the most unique valid options that any table has for a data set and the LLM.

    >>> best_yield("credit")
    47.07
    """
    tables = ("llm_budget", "pruning_sweep24", "pruning_best_all30", "pruning_heldout",
              "reward_weights")  # fmt: skip
    rows = (row for table in tables for row in read(table) if row["dataset"] == NAMES[data])
    found = (number(row, "yield" if "yield" in row else "unique_valid") for row in rows)
    return max((value for value in found if isinstance(value, float)), default=None)


def setting(row: PaperRow) -> Setting | None:
    """Return the scope and threshold that a row's setting names.

    >>> setting({"setting": "Compression (Window, theta=0.001)"})
    ('window', 0.001)
    """
    found = _SETTING.search(row.get("setting", ""))
    return (found["scope"].lower(), float(found["threshold"])) if found else None


def matched(data: str) -> dict[tuple[str, float, float], dict[str, PaperRow]]:
    """Return the pairs of settings that the paper compares as equally strict, for a data set.

    A pair is a scope, a threshold of compression (theta) and one of embeddings (tau); each has a
    row for every metric. For HELOC the paper has none.
    """
    pairs: dict[tuple[str, float, float], dict[str, PaperRow]] = {}
    for row in _of_data("pruning_paired_matched", data):
        if found := _MATCHED.match(row["comparison"]):
            pair = (found["scope"].lower(), float(found["theta"]), float(found["tau"]))
            pairs.setdefault(pair, {})[METRICS[row["metric"]]] = row
    return pairs


def scope_row(data: str, theta: float, a: str, b: str) -> PaperRow:
    """Return the comparison of two scopes of compression at one threshold."""
    wanted = f"Compression theta={theta:g}: {a.capitalize()} vs {b.capitalize()}"
    rows = _of_data("pruning_paired_scope", data)
    return next((row for row in rows if row["comparison"] == wanted), {})


def _of_data(table: str, data: str) -> tuple[PaperRow, ...]:
    return read(f"{table}_{data}") if data in ("loan", "adult", "credit") else ()


# Where the paper contradicts itself -------------------------------------------------------------


@dataclass(frozen=True)
class Disagreement:
    """One quantity with two published values further apart than rounding explains."""

    data: str
    what: str
    one: str
    one_value: str
    other: str
    other_value: str


def _half(text: str) -> Decimal:
    """Return half a unit of a printed number's last digit: the largest rounding error."""
    exponent = Decimal(text).as_tuple().exponent
    return Decimal(1).scaleb(int(exponent)) / 2


def _swept(dataset: str, method: str, scope: str, threshold: float) -> PaperRow:
    where = {"scope": scope.capitalize(), "threshold": f"{threshold:g}"}
    return find("pruning_sweep24", dataset=dataset, method=method, **where)


@cache
def disagreements() -> tuple[Disagreement, ...]:
    """Return every quantity the tables report inconsistently, in the order of the files."""
    found: dict[Disagreement, None] = {}

    def compare(data: str, what: str, *values: str) -> None:
        _, one, _, other = values
        if abs(Decimal(one) - Decimal(other)) > _half(one) + _half(other):
            found[Disagreement(data, what, *values)] = None

    for data, name in NAMES.items():
        weights = find("reward_weights", dataset=name, setting="BALANCED")["yield"]
        plain = selected_row("pruning_best_all30", data, "No pruning")["unique_valid"]
        what = "BALANCED without pruning: unique_valid"
        compare(data, what, "reward_weights", weights, "pruning_best_all30", plain)
    for row in read("pruning_best_all30"):
        if chosen := setting(row):
            method, data = row["setting"].split(" ", 1)[0], row["dataset"].lower()
            swept = _swept(row["dataset"], method, *chosen)
            for column in [name for name in row if name in swept and name != "dataset"]:
                what = f"{method.lower()} {chosen[0]} {chosen[1]:g}: {column}"
                compare(data, what, "pruning_best_all30", row[column], "pruning_sweep24",
                        swept[column])  # fmt: skip
    for data, table, row, end, metric, (method, scope, threshold) in _paired_means():
        # A mean over the queries that both sides solved may well differ from one over one side's.
        if row["n"] == "30":
            swept = _swept(NAMES[data], method, scope, threshold)
            what = f"{method.lower()} {scope} {threshold:g}: {metric}"
            compare(data, what, f"pruning_paired_{table}_{data}", row[end], "pruning_sweep24",
                    swept[metric])  # fmt: skip
    for row in read("pruning_paired_selected"):
        metric, data = METRICS[row["metric"]], row["dataset"].lower()
        a, b = (selected_row("pruning_best_all30", data, side)[metric]
                for side in row["comparison"].split(" vs "))  # fmt: skip
        difference, delta = Decimal(b) - Decimal(a), Decimal(row["delta"])
        rounding = _half(a) + _half(b) + _half(row["delta"])
        if row["n"] == "30" and abs(difference - delta) > rounding:
            what = f"{row['comparison']}: difference of {metric}"
            means = ("pruning_best_all30, its means", f"{difference:+}")
            one = Disagreement(data, what, "pruning_paired_selected", f"{delta:+}", *means)
            found[one] = None
    return tuple(found)


def _paired_means() -> Iterator[tuple[str, str, PaperRow, str, str, tuple[str, str, float]]]:
    """Yield the means of the paired tables: data, table, row, column, metric, pruning setting."""
    for data in NAMES:
        for (scope, theta, tau), rows in matched(data).items():
            for metric, row in rows.items():
                yield data, "matched", row, "mean_a", metric, ("Compression", scope, theta)
                yield data, "matched", row, "mean_b", metric, ("Embedding", scope, tau)
        for row in _of_data("pruning_paired_scope", data):
            if found := _SCOPES.match(row["comparison"]):
                for end in ("a", "b"):
                    where = ("Compression", found[end].lower(), float(found["theta"]))
                    yield data, "scope", row, f"mean_{end}", "unique_valid", where
