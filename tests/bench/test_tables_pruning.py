from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from bench_cells import Figures, cells_of, figures_of

from waysout.bench.arms import Arm
from waysout.bench.cell import Cells
from waysout.bench.plan import load_plan
from waysout.bench.stats import halves
from waysout.bench.table import Figure, ResultTable, TableLine
from waysout.bench.tables import build

VALIDATION, TEST = halves(30)
# Mean share pruned by each setting, where it is not 0.
PRUNED: Mapping[str, float] = {
    "compression scope=global threshold=0.01": 20.0,
    "compression scope=global threshold=0.02": 60.0,
    "embedding scope=global threshold=0.01": 22.0,
    "embedding scope=global threshold=0.05": 57.0,
    "compression scope=path threshold=0.01": 35.0,
    "embedding scope=path threshold=0.05": 35.5,
    # So little that it matches anything that hardly prunes.
    "compression scope=window threshold=0.001": 0.1,
    "embedding scope=window threshold=0.01": 0.1,
}


def swept(arm: Arm, place: int) -> Figures | None:
    """Return searches in which one setting is best for all, and another for one half."""
    unique = 10 + place % 3
    if arm.name == "compression scope=path threshold=0.02":
        unique = 40 if place in VALIDATION else 0  # chosen there, and poor on the other half
    elif arm.name == "compression scope=global threshold=0.001":
        unique = 25
    elif arm.name == "embedding scope=window threshold=0.1":
        if place >= 29:
            return None  # the best mean by far, of all but one query
        unique = 99
    elif arm.name in (
        "embedding scope=global threshold=0.03",
        "embedding scope=path threshold=0.03",
    ):
        unique = 30
    return figures_of(unique, prune_pct=PRUNED.get(arm.name, 0.0))


@pytest.fixture(scope="module")
def cells() -> Cells:
    return cells_of(load_plan("pruning-sweep").cut(only=["loan", "heloc"]), swept)


def line(table: ResultTable, *labels: str) -> TableLine:
    return next(line for line in table.lines if line.labels == labels)


def figure(table: ResultTable, column: str, *labels: str) -> Figure:
    return line(table, *labels).figures[table.columns.index(column)]


def test_sweep_has_every_setting_with_deviations(cells: Cells) -> None:
    (table,) = build("pruning-sweep", cells)
    assert len(table.lines) == 2 * 25 + 1
    labels = ("Loan", "compression", "path", "0.02")
    assert figure(table, "unique valid", *labels) == Figure(20.0, 8.30, 2)
    # Half 40 and half 0: squares 30 · 400 over 29.
    spread = figure(table, "unique valid sd", *labels)
    assert spread.ours == pytest.approx(math.sqrt(12000 / 29))
    assert spread.paper == 3.01
    assert figure(table, "oracle rows sd", *labels).paper == 4.2
    none = ("Loan", "none", "", "")
    assert (figure(table, "unique valid", *none).ours, figure(table, "unique valid", *none).paper) \
        == (11.0, 23.77)  # fmt: skip
    assert figure(table, "n", "Loan", "embedding", "window", "0.1").ours == "29 of 30"
    assert figure(table, "n", "Adult, Credit", "", "", "").ours == "not run"


def test_arms_without_a_place_in_the_sweep_are_named(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        'title = "own"\ndatasets = ["loan"]\nqueries = 2\n'
        '[[arms]]\nname = "gzip"\nmethod = "comp-mcts"\nrepeat = 2\n'
        'settings = { pruning = "gzip", scope = "path", threshold = 0.01 }\n'
        '[[arms]]\nname = "rlbwt"\nmethod = "comp-mcts"\nsettings = { pruning = "rlbwt" }\n'
        '[[arms]]\nname = "random"\nmethod = "random"\n'
    )
    cells = cells_of(load_plan(str(file)), lambda arm, place: figures_of(arm.seed))
    (table,) = build("pruning-sweep", cells, plan=str(file))
    assert [line.labels[1:] for line in table.lines] == [("compression", "path", "0.01")]
    assert figure(table, "unique valid", "Loan", "compression", "path", "0.01").ours == 0.0
    places, settings = table.notes
    assert places.endswith(": Loan: gzip seed=1; Loan: rlbwt; Loan: random")
    # It has another reward than the paper's.
    assert settings.endswith("left out: Loan, gzip seed=0; Loan, gzip seed=1.")
    assert not table.has_paper


def test_a_sweep_of_ones_own_is_not_held_against_the_papers_choice(tmp_path: Path) -> None:
    """Of other settings another one is best; the arms that are the paper's are still so."""
    file = tmp_path / "own.toml"
    file.write_text(
        'like = "pruning-sweep"\ntitle = "one more"\ndatasets = ["loan"]\nqueries = 2\n'
        '[[more_arms]]\nname = "compression, much"\nmethod = "comp-mcts"\n'
        'settings = { pruning = "gzip", reward = "balanced", scope = "path", threshold = 0.5 }\n'
    )
    cells = cells_of(load_plan(str(file)), swept)
    for name in ("pruning-best", "pruning-heldout"):
        (best,) = build(name, cells, plan=str(file))
        assert [line.has_paper for line in best.lines] == [True, False, True]
        assert best.notes[-1].endswith("left out: Loan, compression.")
    (sweep,) = build("pruning-sweep", cells, plan=str(file))
    assert [line.labels for line in sweep.lines if not line.has_paper] == [
        ("Loan", "compression", "path", "0.5")
    ]
    selected, matched, scopes = build("pruning-paired", cells, plan=str(file))
    assert not selected.has_paper
    assert matched.has_paper
    assert scopes.has_paper
    file.write_text('like = "pruning-sweep"\ntitle = "few"\ndatasets = ["loan"]\ncalls = 3\n')
    cells = cells_of(load_plan(str(file)), swept)
    assert not any(table.has_paper for table in build("pruning-paired", cells, plan=str(file)))


def test_best_is_chosen_among_complete_settings(cells: Cells) -> None:
    (table,) = build("pruning-best", cells)
    assert figure(table, "setting", "Loan", "compression") == Figure("global 0.001", "window 0.001")
    assert figure(table, "unique valid", "Loan", "compression").ours == 25.0
    # Equally good: path goes before global; the one with 29 queries takes no part.
    assert figure(table, "setting", "Loan", "embedding").ours == "path 0.03"
    assert any(note.startswith("Loan, embedding: only 11 of 12 settings") for note in table.notes)
    assert not any(note.startswith("Loan, compression") for note in table.notes)
    assert line(table, "Adult, Credit", "").figures[0].ours == "not run"
    assert line(table, "Adult, Credit", "").runs == ""
    assert not any(note.startswith("Adult") for note in table.notes)


def test_a_way_without_a_complete_setting_shows_what_the_paper_has() -> None:
    plan = load_plan("pruning-sweep").cut(only=["adult/none", "adult/compression*path*0.02"])
    few = [cell for cell in cells_of(plan, swept) if cell.arm == plan.arms[0].id or cell.query % 2]
    (table,) = build("pruning-best", Cells(few))
    assert figure(table, "n", "Adult", "compression").ours == "not run"
    assert figure(table, "unique valid", "Adult", "compression").paper == 47.93
    assert line(table, "Adult", "compression").runs == ""


def test_held_out_chooses_on_one_half_and_judges_on_the_other(cells: Cells) -> None:
    (table,) = build("pruning-heldout", cells)
    labels = ("Loan", "compression")
    assert figure(table, "setting", *labels) == Figure("path 0.02", "path 0.01")
    assert figure(table, "unique valid on validation", *labels).ours == 40.0
    assert figure(table, "unique valid", *labels) == Figure(0.0, 23.33, 2)
    assert figure(table, "n", *labels).ours == 15.0
    assert figure(table, "proximity", *labels).ours is None
    assert figure(table, "validity %", *labels).paper == 68.2
    none = figure(table, "unique valid", "Loan", "none")
    assert none.ours == pytest.approx(sum(10 + place % 3 for place in TEST) / 15)
    assert any(", ".join(map(str, VALIDATION)) in text for text in table.about)


def test_held_out_without_some_of_the_half_that_judges_or_chooses() -> None:
    arms = "compression scope=path threshold=0.02", "compression scope=global threshold=0.001"

    def table(lacks: Mapping[str, int]) -> ResultTable:
        plan = load_plan("pruning-sweep").cut(only=["loan"])
        some = cells_of(plan, lambda a, i: None if lacks.get(a.name) == i else swept(a, i))
        return build("pruning-heldout", some)[0]

    labels = ("Loan", "compression")
    # It is chosen as before, and judged on what there is.
    judged = table({arms[0]: TEST[3]})
    assert figure(judged, "setting", *labels).ours == "path 0.02"
    assert figure(judged, "n", *labels).ours == "14 of 15"
    assert not any(note.startswith("Loan, compression") for note in judged.notes)
    # One that lacks a search to be chosen by takes no part, and that is said.
    chosen = table({arms[0]: VALIDATION[3]})
    assert figure(chosen, "setting", *labels).ours == "global 0.001"
    assert figure(chosen, "n", *labels).ours == 15.0
    assert any(note.startswith("Loan, compression: only 11 of 12") for note in chosen.notes)


def test_held_out_halves_what_there_is(cells: Cells) -> None:
    (table,) = build("pruning-heldout", cells, queries=7)
    assert figure(table, "n", "Loan", "none").ours == 4.0
    assert any("Chosen on 3 queries, judged on the 4 others" in text for text in table.about)


def test_selected_pairs(cells: Cells) -> None:
    selected, _, _ = build("pruning-paired", cells)
    words = "none → compression global 0.001"
    delta = figure(selected, "Δ", "Loan", words, "unique valid")
    assert (delta.ours, delta.paper) == (25.0 - 11.0, 0.30)
    words = "compression global 0.001 → embedding path 0.03"
    assert figure(selected, "Δ", "Loan", words, "unique valid").ours == 5.0
    rows = figure(selected, "Δ", "Loan", words, "oracle rows")
    assert (rows.ours, rows.paper) == (0.0, -49.8)
    assert figure(selected, "n", "HELOC", words, "sparsity") == Figure(30.0, 9.0, 0)
    assert figure(selected, "n", "Adult, Credit", "", "") == Figure("not run")


def test_pairs_of_matched_strength(cells: Cells) -> None:
    _, matched, _ = build("pruning-paired", cells)
    comparisons = dict.fromkeys(
        line.labels[1] for line in matched.lines if line.labels[0] == "Loan"
    )
    assert list(comparisons) == [
        "global: compression 0.02 → embedding 0.05 (the paper's pair)",
        "path: compression 0.01 → embedding 0.05 (the paper's pair and our closest)",
        "global: compression 0.01 → embedding 0.01 (our closest)",
    ]
    words = list(comparisons)[1]
    assert figure(matched, "Δ", "Loan", words, "prune %").ours == pytest.approx(0.5)
    assert figure(matched, "Δ", "Loan", words, "unique valid").paper == -11.13
    assert figure(matched, "dz", "Loan", words, "novelty").paper == 0.70
    ours = list(comparisons)[2]
    assert not line(matched, "Loan", ours, "unique valid").has_paper
    assert len([line for line in matched.lines if line.labels[0] == "HELOC"]) == 2 * 5


def test_scopes_at_two_thresholds(cells: Cells) -> None:
    _, _, scopes = build("pruning-paired", cells)
    assert len(scopes.lines) == 2 * 6 + 1
    labels = ("Loan", "compression 0.02: global → path")
    delta = figure(scopes, "Δ", *labels)
    assert (delta.ours, delta.paper) == (20.0 - 11.0, -1.00)
    same = line(scopes, "Loan", "compression 0.02: path → window")
    assert same.figures[scopes.columns.index("t")].paper == "n/a"
    assert not line(scopes, "HELOC", "compression 0.02: path → window").has_paper
