from __future__ import annotations

from pathlib import Path

import pytest
from bench_cells import cells_of, figures_of

from waysout.bench.arms import Arm
from waysout.bench.cell import Cells
from waysout.bench.plan import load_plan
from waysout.bench.table import Figure, ResultTable
from waysout.bench.tables import build


def found(arm: Arm, place: int) -> dict[str, float | int | None]:
    """BASELINE finds nothing for every third query; the others find one or two more."""
    if arm.name == "BASELINE":
        return figures_of(0 if place % 3 == 0 else 6)
    return figures_of(7 + place % 2, proximity=0.8)


@pytest.fixture(scope="module")
def cells() -> Cells:
    return cells_of(load_plan("reward-weights").cut(only=["loan", "heloc"]), found)


def figure(table: ResultTable, column: str, *labels: str) -> Figure:
    line = next(line for line in table.lines if line.labels == labels)
    return line.figures[table.columns.index(column)]


def test_empties_count_as_nothing_found_as_in_the_paper(cells: Cells) -> None:
    with_zeros, non_empty = build("reward-weights", cells)
    # 20 of 30 queries have proximity 0.7.
    one = figure(with_zeros, "proximity", "Loan", "BASELINE")
    assert one.ours == pytest.approx(0.7 * 2 / 3)
    assert one.paper == 0.6499
    other = figure(non_empty, "proximity", "Loan", "BASELINE")
    assert other.ours == pytest.approx(0.7)
    assert other.paper is None
    assert figure(with_zeros, "unique valid", "Loan", "BASELINE") == Figure(4.0, 27.4, 1)
    assert figure(non_empty, "unique valid", "Loan", "BASELINE").ours == 4.0
    assert figure(with_zeros, "empty", "Loan", "BASELINE").ours == 10.0
    assert "empties as 0" in with_zeros.title
    assert "non-empty means" in non_empty.title
    assert with_zeros.lines[-1].figures[0].ours == "not run"
    assert figure(with_zeros, "unique valid", "HELOC", "EQUAL").paper is not None


def test_rewards_that_are_not_the_papers_stand_alone(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    head = 'like = "reward-weights"\ntitle = "own"\ndatasets = ["loan"]\nqueries = 2\n'
    file.write_text(f"{head}calls = 7\n")
    for name in ("reward-weights", "reward-paired"):
        first, *_ = build(name, cells_of(load_plan(str(file))), plan=str(file))
        assert not first.has_paper
        assert "Loan, BASELINE; " in first.notes[0]
    file.write_text(head)
    for name in ("reward-weights", "reward-paired"):
        first, *_ = build(name, cells_of(load_plan(str(file))), plan=str(file))
        assert first.has_paper


def test_pairs_keep_the_empty_queries(cells: Cells) -> None:
    (table,) = build("reward-paired", cells)
    labels = ("Loan", "BASELINE → BALANCED", "proximity")
    assert figure(table, "n", *labels) == Figure(30.0, 30.0, 0)
    delta = figure(table, "Δ", *labels)
    # 0.8 − 0.7 for twenty queries and 0.8 − 0 for ten.
    assert delta.ours == pytest.approx((20 * 0.1 + 10 * 0.8) / 30)
    assert delta.paper == 0.0102
    assert figure(table, "dz", *labels).paper == 1.314
    assert figure(table, "low", "HELOC", *labels[1:]).paper == -0.1258


def test_pairs_the_paper_does_not_have_are_ours(cells: Cells) -> None:
    (table,) = build("reward-paired", cells)
    for pair in ("BASELINE → VALIDITY", "BASELINE → QUALITY"):
        found = figure(table, "Δ", "Loan", pair, "unique valid")
        assert (found.ours, found.paper) == (3.5, None)
    assert figure(table, "t", "Loan", "BALANCED → QUALITY", "novelty").ours == "n/a"
    assert figure(table, "t", "Loan", "BALANCED → QUALITY", "novelty").paper == -1.63
