from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from page_reader import Page
from report_samples import FOUND, HOSTILE, MISSED, TIPPED, TOLD

from waysout.errors import InputError, MissingExtra
from waysout.report.html import excerpt


def test_a_cell_shows_a_table_in_the_words_of_the_card() -> None:
    read = Page(excerpt(TOLD))
    assert "income: 40,500 → 52,000 euros a year" in read.text
    assert "home: a rented flat → a house of one's own" in read.text
    assert "Not approved each time" in read.text
    assert read.seen.count("tr") == 1 + len(TOLD.options)
    assert "to_frame()" not in read.text
    assert "and 1 more: to_frame()" in Page(excerpt(TOLD, n=2)).text
    assert not {"style", "script", "link"}.intersection(read.seen)


def test_a_cell_tells_what_one_change_does_alone_as_far_as_was_asked() -> None:
    text = Page(excerpt(TIPPED)).text
    assert "2 ways out (41 of 150 rows approved)." in text
    assert "a yes from 49,000 on (48,500 is a no)" in text
    assert "not asked" not in text[text.index("One change alone") :]


def test_a_cell_says_what_else_there_is_to_say() -> None:
    assert "Simulated: " in Page(excerpt(HOSTILE)).text
    assert "table" not in Page(excerpt(MISSED)).seen
    assert "No way out was found" in Page(excerpt(MISSED)).text
    labels = replace(TOLD, settings={**TOLD.settings, "labels_only": True})
    assert "%" not in Page(excerpt(labels)).text


def test_a_plot_shows_trade_offs_and_returns_its_axes() -> None:
    pytest.importorskip("matplotlib")
    ax = FOUND.plot()
    assert ax.get_xlabel() == "nearness (1: as things stand)"
    assert ax.get_ylabel() == "number of changes"
    dots, rings = ax.collections
    assert dots.get_offsets().tolist() == [[o.proximity, o.sparsity] for o in FOUND.options]  # type: ignore[union-attr]
    assert dots.get_array().tolist() == [o.probability for o in FOUND.options]  # type: ignore[union-attr]
    assert len(rings.get_offsets()) == 3  # type: ignore[arg-type]
    assert ax._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_a_plot_can_be_put_into_axes_of_ones_own() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    mine = Figure().add_subplot()
    assert FOUND.plot("probability", "proximity", ax=mine) is mine
    assert (mine.get_xlabel(), len(mine.collections)) == ("chance of a yes", 2)


def test_a_model_that_only_says_yes_or_no_has_no_scale_of_chances() -> None:
    pytest.importorskip("matplotlib")
    labels = replace(FOUND, settings={"labels_only": True})
    assert len(FOUND.plot().get_figure().axes) == 2  # type: ignore[union-attr]
    assert len(labels.plot().get_figure().axes) == 1  # type: ignore[union-attr]


def test_a_plot_of_nothing_is_empty() -> None:
    pytest.importorskip("matplotlib")
    assert MISSED.plot()._repr_png_()  # type: ignore[attr-defined]


def test_a_plot_of_what_is_no_score_is_refused() -> None:
    with pytest.raises(InputError, match="unknown score 'nearness'"):
        FOUND.plot("nearness")


def test_a_plot_without_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"waysout\[bench\]"):
        FOUND.plot()


def test_a_plot_touches_no_global_state() -> None:
    pytest.importorskip("matplotlib")
    code = (
        "import sys; import report_samples as s\n"
        "assert 'matplotlib' not in sys.modules\n"
        "s.FOUND.plot()._repr_png_(); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)
