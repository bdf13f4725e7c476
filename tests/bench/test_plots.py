from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import bench_cells
import pytest

from measured_world import LLM, SIMULATED, all_of, cells_of, lively
from waysout.bench.arms import Arm
from waysout.bench.cell import Cells
from waysout.bench.plan import load_plan
from waysout.bench.plots import PICTURES, draw
from waysout.datasets.queries import query_list
from waysout.errors import InputError, MissingExtra
from waysout.report.plot import to_svg

pytest.importorskip("matplotlib", reason="needs waysout[bench]")
PAIR = ("Comp-MCTS", "recombine")
QUERIES = 6


@pytest.fixture(scope="module")
def cells() -> Cells:
    plans = ("llm-budget", "pruning-sweep", "yields")
    some = {"llm": SIMULATED, "datasets": ("loan",)}
    return Cells(cell for plan in plans for cell in cells_of(plan, lively, **some))  # type: ignore[arg-type]


def points(line: Any) -> list[list[float]]:
    """Return what a line goes through."""
    return [[float(x), float(y)] for x, y in line.get_xydata()]


def heights(line: Any) -> list[float]:
    return [y for _, y in points(line)]


def texts(svg: bytes) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter()
            if node.tag.endswith("}text")]  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_the_same_cells_give_the_same_bytes(name: str, cells: Cells) -> None:
    arms = PAIR if name == "paired" else ()
    one, other = (to_svg(draw(name, cells, llm=SIMULATED, arms=arms)) for _ in range(2))
    assert one == other
    assert b"<dc:date>" not in one
    said = " ".join(texts(one))
    assert "Loan" in said
    assert "Adult" not in said  # nothing was run on it
    assert "simulated:1 (simulated: no language model)" in said


def test_pictures_say_on_how_many_queries_they_rest(cells: Cells) -> None:
    def titles(name: str, of: Cells) -> set[str]:
        panels = draw(name, of, llm=SIMULATED).axes
        return {panel.get_title() for panel in panels}

    whole = QUERIES
    assert titles("trade-off", cells) == titles("yields", cells) == {f"Loan (n = {whole})"}
    assert titles("sweep", cells) == {
        f"Loan, {method} (n = {whole})" for method in ("compression", "embedding")
    }
    one = next(arm for arm in load_plan("llm-budget").arms if arm.name == "recombine")
    last = query_list("loan").rows[whole - 1]
    fewer = Cells(cell for cell in cells if (cell.arm, cell.query) != (one.id, last))
    assert titles("trade-off", fewer) == {f"Loan (n = {whole - 1} to {whole})"}


def test_the_papers_marks_are_beside_its_own_settings_only(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('like = "pruning-sweep"\ntitle = "own"\ndatasets = ["loan"]\ncalls = 7\n')
    made = bench_cells.cells_of(load_plan(str(file)).cut(queries=2))
    (legend,) = draw("sweep", made, llm=SIMULATED, plan=str(file)).legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "no pruning", "global", "path", "window",
    ]  # fmt: skip


def test_every_arm_of_the_plan_is_in_the_legend_and_none_else(cells: Cells) -> None:
    def legend(arms: tuple[str, ...]) -> set[str]:
        (found,) = draw("trade-off", cells, llm=SIMULATED, arms=arms).legends
        return {text.get_text() for text in found.get_texts()}

    assert legend(()) == {arm.name for arm in load_plan("llm-budget").arms}
    assert legend(PAIR) == set(PAIR)


def test_points_lie_where_the_means_are(cells: Cells) -> None:
    panel = draw("trade-off", cells, llm=SIMULATED, arms=["Comp-MCTS"]).axes[0]
    (dot,) = panel.lines
    mine = cells.of(load_plan("llm-budget").arm("loan", "Comp-MCTS"), SIMULATED).values()
    assert points(dot)[0] == pytest.approx(
        [
            sum(c.value(name) or 0 for c in mine) / len(mine)
            for name in ("proximity", "unique_valid")
        ]
    )


def test_sweeps_have_a_line_a_scope_and_the_papers_beside_it(cells: Cells) -> None:
    panel = draw("sweep", cells, llm=SIMULATED).axes[1]
    assert panel.get_title() == f"Loan, compression (n = {QUERIES})"
    lines = [line for line in panel.lines if len(points(line)) == 4]
    assert len(lines) == 6
    theirs = [line for line in lines if line.get_color() == "0.55"]
    assert heights(theirs[0]) == [0.09, 1.76, 23.86, 74.88]


def test_yields_rise_to_the_mean_at_the_end() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": 4 + place}

    cells = all_of(value, "yields")
    calls, rows = draw("yields", cells, llm=LLM).axes[:2]
    assert len(rows.lines) == 12
    assert len(calls.lines) == 5  # those that ask an LLM
    assert heights(calls.lines[0])[-1] == heights(rows.lines[0])[-1] == 6.5
    assert heights(rows.lines[0])[0] == 0


def test_searches_that_do_not_tell_when_are_not_drawn(cells: Cells) -> None:
    silent = Cells(replace(cell, found=()) for cell in cells)
    assert not draw("yields", silent, llm=SIMULATED).axes[0].lines


def test_paired_differences_are_sorted_and_sum_to_the_mean() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": 10 + (place * 7 % 11 if arm.name == "recombine" else 0)}

    panel = draw("paired", all_of(value, "llm-budget"), llm=LLM, arms=PAIR).axes[0]
    dots = next(line for line in panel.lines if line.get_marker() == "o")
    assert heights(dots) == sorted(place * 7 % 11 for place in range(6))
    assert panel.get_title() == "Loan: +4.7 (n = 6)"


@pytest.mark.parametrize("arms", [(), ("Comp-MCTS",), ("Comp-MCTS", "recombine", "random")])
def test_paired_takes_two_arms(arms: tuple[str, ...], cells: Cells) -> None:
    with pytest.raises(InputError, match="two arms"):
        draw("paired", cells, llm=SIMULATED, arms=arms)


def test_an_unknown_arm_and_nothing_to_draw(cells: Cells) -> None:
    with pytest.raises(InputError, match="unknown arm 'recombin'; did you mean 'recombine'"):
        draw("trade-off", cells, llm=SIMULATED, arms=["recombin"])
    with pytest.raises(InputError, match="waysout bench run pruning-sweep"):
        draw("sweep", Cells(), llm=SIMULATED)


def test_names_are_text_whatever_they_hold(cells: Cells) -> None:
    name = "openai:<script>alert(1)</script>&$x$"
    evil = Cells(replace(cell, llm=name if cell.llm else "") for cell in cells)
    svg = to_svg(draw("trade-off", evil, llm=name))
    assert b"<script" not in svg
    assert any("<script>alert(1)</script>&$x$" in said for said in texts(svg))


def test_without_matplotlib_the_extra_is_named(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"waysout\[bench\]"):
        draw("sweep", cells, llm=SIMULATED)
