"""Both readings beside the paper: distances worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import pytest

from measured_world import SIMULATED, cells_of
from waysout.bench import paper
from waysout.bench.arms import Arm
from waysout.bench.cell import Cells
from waysout.bench.table import ResultTable
from waysout.bench.tables import build
from waysout.errors import InputError

# Loan, compression, path scope in the paper: prune % and rows at the four thresholds.
PRUNED = (0.24, 4.56, 35.23, 82.01)
ROWS = (149.6, 143.1, 97.0, 26.9)


def value(arm: Arm, place: int) -> Mapping[str, float]:
    """As settled everything is twice as much as as first read."""
    twice = 2.0 if arm.style.unchanged else 1.0
    valid = (5.0, 20.0, 45.0, 80.0)[place % 4]
    return {
        "unique_valid": 1.0, "prune_pct": 10.0 * twice, "rows": 50.0 * twice + place % 2,
        "sparsity": twice, "validity_pct": valid,
    }  # fmt: skip


@pytest.fixture(scope="module")
def tables() -> dict[str, ResultTable]:
    cells = [
        cell
        for reading in ("settled", "first")
        for cell in cells_of(
            f"pruning-sweep@{reading}", value, llm=SIMULATED, datasets=("loan",), queries=30
        )
    ]
    return {table.name: table for table in build("readings", Cells(cells))}


def texts(table: ResultTable, *labels: str) -> list[str]:
    (line,) = (line for line in table.lines if line.labels == labels)
    return [figure.ours_text for figure in line.figures]


def test_the_nearer_reading_is_counted(tables: dict[str, ResultTable]) -> None:
    # Each setting prunes 20 % as settled and 10 % as first read: the paper's share decides.
    shares = [float(row["prune_pct"]) for row in paper.read("pruning_sweep24")
              if row["dataset"] == "Loan"]  # fmt: skip
    settled = sum(abs(20 - share) < abs(10 - share) for share in shares)
    assert texts(tables["readings-nearer"], "Loan", "reported") == [
        "24", str(settled), str(24 - settled), "0"
    ]  # fmt: skip


def test_a_plan_of_ones_own_has_no_readings_to_compare(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('like = "pruning-sweep"\ntitle = "mine"\n')
    cells = cells_of("pruning-sweep@settled", value, llm=SIMULATED, datasets=("loan",), queries=3)
    with pytest.raises(InputError, match="leave --plan out"):
        build("readings", Cells(cells), plan=str(mine))


def test_distances_are_means_over_the_thresholds(tables: dict[str, ResultTable]) -> None:
    found = texts(tables["readings"], "Loan", "reported", "compression", "path")
    points = [fmean(abs(ours - theirs) for theirs in PRUNED) for ours in (20.0, 10.0)]
    factors = [
        fmean(max(ours / theirs, theirs / ours) for theirs in ROWS) for ours in (100.5, 50.5)
    ]
    assert found == ["4", *(f"{number:.1f}" for number in (*points, *factors))]


def test_every_cell_stands_beside_the_papers(tables: dict[str, ResultTable]) -> None:
    found = texts(tables["readings-cells"], "Loan", "compression", "path", "0.02")
    assert found == [
        "30 / 30", "82.0", "20.0", "10.0", "26.9 ± 4.2", "100.5 ± 0.5", "50.5 ± 0.5", "2.03",
        "2.00", "1.00",
    ]  # fmt: skip
    assert texts(tables["readings-cells"], "Loan", "none", "", "")[4] == "150.0"


def test_rows_are_shown_by_the_validity_of_the_unpruned_search(
    tables: dict[str, ResultTable],
) -> None:
    by_validity = tables["readings-validity"]
    # Queries 3, 7, 11, … are valid at 80 %: all of them odd.
    assert texts(by_validity, "Loan", "60 to 100")[:3] == ["7", "101.0", "51.0"]
    assert texts(by_validity, "Loan", "0 to 10")[:3] == ["8", "100.0", "50.0"]
    assert texts(by_validity, "Loan", "the paper")[-2:] == ["37.6 ± 17.7", "66"]


def test_an_llm_without_both_readings_has_no_such_table() -> None:
    cells = cells_of("pruning-sweep@settled", value, llm=SIMULATED, datasets=("loan",), queries=30)
    assert build("readings", Cells(cells)) == []
