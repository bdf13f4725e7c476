from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from importlib import resources
from typing import Any

import pytest

from waysout.bench import paper
from waysout.bench.paper import Disagreement, PaperRow, disagreements

PAIRED = (
    "reward_weights_paired",
    *(f"pruning_paired_{kind}_{data}" for kind in ("matched", "scope")
      for data in ("loan", "adult", "credit")),
    "pruning_paired_selected",
)  # fmt: skip


def paired_rows() -> Iterator[tuple[str, PaperRow]]:
    for table in PAIRED:
        for row in paper.read(table):
            yield f"{table}: {row.get('comparison', '')}", row


def unit(text: str) -> float:
    """Return half of what the last printed digit stands for."""
    return float(Decimal(1).scaleb(int(Decimal(text).as_tuple().exponent)) / 2)


def test_every_file_is_in_the_package() -> None:
    folder = resources.files("waysout.bench") / "paper"
    names = {file.name.removesuffix(".csv") for file in folder.iterdir()}
    assert {"llm_budget", "oracle_budget", "cost", "compressors", "pruning_sweep24"} <= names
    assert set(PAIRED) < names
    for name in names:
        assert all(None not in row for row in paper.read(name)), name


def test_counts_of_rows_are_those_of_the_paper() -> None:
    assert len(paper.read("pruning_sweep24")) == 4 * 24
    assert len(paper.read("llm_budget")) == 4 * 7
    assert len(paper.read("reward_weights")) == 4 * 6


def test_finding_numbers() -> None:
    row = paper.find("llm_budget", dataset="Loan", setting="Comp-MCTS")
    assert paper.number(row, "unique_valid") == 24.07
    assert paper.number(row, "no such column") is None
    assert paper.find("llm_budget", dataset="Loan", setting="recombine") == {}
    empty = paper.find("oracle_budget", dataset="Loan", method="DiCE", n_oracle="150")
    assert paper.number(empty, "unique_valid") == 0.0
    assert paper.number(empty, "proximity") is None
    same = paper.scope_row("loan", 0.02, "path", "window")
    assert paper.number(same, "t") == "n/a"
    assert paper.number(paper.with_ends(same), "high") == 0.0
    assert paper.scope_row("heloc", 0.02, "path", "window") == {}
    assert paper.with_ends({}) == {}


def test_settings_are_read() -> None:
    assert paper.setting(paper.selected_row("pruning_heldout", "heloc", "Compression")) == (
        "global",
        0.001,
    )
    assert paper.setting(paper.selected_row("pruning_best_all30", "adult", "Embedding")) == (
        "path",
        0.03,
    )
    assert paper.setting(paper.selected_row("pruning_best_all30", "adult", "No pruning")) is None
    assert paper.selected_row("pruning_best_all30", "synthetic", "No pruning") == {}


def test_matched_pairs_are_read() -> None:
    pairs = {data: list(paper.matched(data)) for data in paper.NAMES}
    assert pairs["loan"] == [("global", 0.02, 0.05), ("path", 0.01, 0.05)]
    assert pairs["credit"] == [("global", 0.02, 0.1), ("path", 0.01, 0.05)]
    assert pairs["heloc"] == []
    rows = next(iter(paper.matched("adult").values()))
    assert set(rows) == {"unique_valid", "proximity", "sparsity", "novelty"}
    assert rows["unique_valid"]["t"] == "-5.03"


def test_rows_of_the_paper_hold_together() -> None:
    """Effect, difference and interval of every published row follow from each other."""
    for where, row in paired_rows():
        ends, delta = paper.with_ends(row), float(row["delta"])
        assert float(ends["low"]) <= delta <= float(ends["high"]), where
        if "mean_a" in row:
            told = float(row["mean_b"]) - float(row["mean_a"])
            spare = sum(unit(row[name]) for name in ("mean_a", "mean_b", "delta"))
            assert told == pytest.approx(delta, abs=spare + 1e-9), where
        if row["t"] != "n/a" and "dz" in row:
            root = math.sqrt(int(row["n"]))
            spare = unit(row["dz"]) + unit(row["t"]) / root
            assert float(row["t"]) / root == pytest.approx(float(row["dz"]), abs=spare), where


def test_p_values_of_the_paper_follow_from_t() -> None:
    scipy_stats: Any = pytest.importorskip("scipy.stats", reason="needs scipy (waysout[bench])")
    wrong = []
    for where, row in paired_rows():
        if row["t"] == "n/a":
            continue
        t, spare, free = abs(float(row["t"])), unit(row["t"]), int(row["n"]) - 1
        most, least = (2 * scipy_stats.t.sf(t + side * spare, free) for side in (-1, 1))
        if not least - unit(row["p"]) <= float(row["p"]) <= most + unit(row["p"]):
            wrong.append((where, row["p"]))
    # One of them by four in the last digit; the other is the same comparison, as both are equal.
    assert wrong == [
        ("pruning_paired_scope_loan: Compression theta=0.02: Global vs Path", "0.0787"),
        ("pruning_paired_scope_loan: Compression theta=0.02: Global vs Window", "0.0787"),
    ]


@pytest.mark.parametrize(
    "known",
    [
        Disagreement("loan", "BALANCED without pruning: unique_valid", "reward_weights", "26.2",
                     "pruning_best_all30", "23.77"),
        Disagreement("adult", "BALANCED without pruning: unique_valid", "reward_weights", "51.5",
                     "pruning_best_all30", "41.33"),
        Disagreement("loan", "compression window 0.001: proximity", "pruning_best_all30", "0.658",
                     "pruning_sweep24", "0.643"),
        Disagreement("loan", "Compression vs Embedding: difference of oracle_evals",
                     "pruning_paired_selected", "-49.8", "pruning_best_all30, its means", "-17.4"),
        Disagreement("loan", "compression global 0.02: unique_valid",
                     "pruning_paired_matched_loan", "8.67", "pruning_sweep24", "8.00"),
    ],
)  # fmt: skip
def test_known_contradictions_are_found(known: Disagreement) -> None:
    assert known in disagreements()


def test_contradictions_are_listed_once_and_are_not_rounding() -> None:
    found = disagreements()
    assert len(found) == len(set(found)) == 35
    for one in found:
        apart = abs(float(one.one_value) - float(one.other_value))
        assert apart > unit(one.one_value) + unit(one.other_value), one
    # What agrees is not in it: the sweep's yields and the best settings' are the same.
    assert not any(d.one == "pruning_best_all30" and d.what.endswith("unique_valid") for d in found)
