from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from audit_world import NOTES, ended, found, write_batch

from waysout.audit import Audit, audit
from waysout.audit.plots import pictures
from waysout.errors import MissingExtra
from waysout.report.plot import check_can_draw

pytest.importorskip("pyarrow", reason="needs pyarrow (waysout[parquet])")


@pytest.fixture
def made(tmp_path: Path) -> Audit:
    people = [found(1.0, "income", town="<a> $x^2$"), found(2.0, "debt", town="b")]
    people += [ended("budget-spent", town="b")]
    return audit(write_batch(tmp_path, people, **NOTES), ["town"])


def test_the_same_audit_gives_the_same_pictures(made: Audit) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib (waysout[bench])")
    drawn = dict(pictures(made))
    assert list(drawn) == ["without-by-town.svg", "cost-by-town.svg", "levers-by-town.svg"]
    assert drawn == dict(pictures(made))
    for picture in drawn.values():
        text = "".join(ElementTree.fromstring(picture).itertext())
        assert "<a> $x^2$ (n = 1, few)" in text
        assert "simulated: no language model" in text


def test_any_script_is_drawn_as_text(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib (waysout[bench])")
    told = audit(write_batch(tmp_path, [ended("budget-spent", town="东京")]), ["town"])
    ((_, picture),) = pictures(told)
    assert "东京" in picture.decode()
    assert not [w for w in recwarn if "Glyph" in str(w.message)]


def test_columns_of_like_names_have_files_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib (waysout[bench])")
    row = {"A b": "x", "a/B": "y", "../é": "z"}
    told = audit(write_batch(tmp_path, [ended("budget-spent", **row)]), list(row))
    assert [name for name, _ in pictures(told)] == [
        "without-by-a-b.svg",
        "without-by-a-b-2.svg",
        "without-by-column.svg",
    ]


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"waysout\[bench\]"):
        check_can_draw()
