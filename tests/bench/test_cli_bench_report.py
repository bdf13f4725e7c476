from __future__ import annotations

import sys
from pathlib import Path

import pytest

from conftest import CommandLine
from measured_world import LLM, SIMULATED, all_of, cells_of, lively
from waysout.bench.cell import write_cells

pytest.importorskip("matplotlib", reason="needs waysout[bench]")


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of some searches under the same calls, with one LLM."""
    path = tmp_path_factory.mktemp("export") / "cells.jsonl.gz"
    write_cells(path, cells_of("llm-budget", lively, llm=SIMULATED, datasets=("loan",)))
    return path


@pytest.fixture(scope="module")
def of_two(export: Path) -> Path:
    """The same with another LLM, to be read with it."""
    path = export.parent / "other.jsonl"
    write_cells(path, all_of(lively, "reward-weights", llm=LLM, queries=2))
    return path


def test_a_picture_goes_to_a_file_or_a_folder(
    waysout: CommandLine, export: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.svg"
    code, out, err = waysout("bench", "plot", "trade-off", "--results", export, "--out", file)
    assert (code, out, err) == (0, "", f"wrote {file}\n")
    code, _, err = waysout("bench", "plot", "trade-off", "--results", export, "--out", tmp_path)
    assert (code, err) == (0, f"wrote {tmp_path / 'trade-off.svg'}\n")
    assert file.read_bytes() == (tmp_path / "trade-off.svg").read_bytes()
    assert b"<svg" in file.read_bytes()


def test_two_arms_are_compared(waysout: CommandLine, export: Path, tmp_path: Path) -> None:
    file = tmp_path / "paired.svg"
    args = ("bench", "plot", "paired", "--results", export, "--out", file)
    code, _, err = waysout(*args)
    assert code == 3
    assert "--arms A --arms B" in err
    code, _, err = waysout(*args, "--arms", "Comp-MCTS", "--arms", "recombine")
    assert code == 0, err
    assert b"recombine less Comp-MCTS" in file.read_bytes()


def test_of_several_llms_one_must_be_named(
    waysout: CommandLine, export: Path, of_two: Path, tmp_path: Path
) -> None:
    file = tmp_path / "picture.svg"
    both = ("--results", export, "--results", of_two, "--out", file)
    code, _, err = waysout("bench", "plot", "trade-off", *both)
    assert code == 3
    assert SIMULATED in err
    assert LLM in err
    code, _, err = waysout("bench", "plot", "trade-off", *both, "--llm", "simulated:2")
    assert code == 3
    assert "unknown LLM in these results" in err
    assert waysout("bench", "plot", "trade-off", *both, "--llm", SIMULATED)[0] == 0
    code, _, err = waysout("bench", "plot", "trade-off", *both, "--llm", f"{LLM}?parallel=8")
    assert code == 0, err  # no_pruning is also among the reward weights


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("trade-of", "--out", "x.svg"), "did you mean 'trade-off'"),
        (("sweep", "--out", "x.png"), "FILE.svg"),
        (("sweep", "--out", "x.svg", "--results", "none.jsonl"), "cannot read none.jsonl"),
    ],
)
def test_what_is_wrong_is_said(
    waysout: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WAYSOUT_RUNS", str(tmp_path / "runs"))
    code, _, err = waysout("bench", "plot", *args)
    assert code == 3
    assert said in err


def test_results_are_not_overwritten(waysout: CommandLine, export: Path) -> None:
    code, _, err = waysout("bench", "report", "--results", export, "--out", export)
    assert code == 3
    assert "would overwrite" in err


def test_the_page_and_its_tables(waysout: CommandLine, export: Path, tmp_path: Path) -> None:
    page, tables = tmp_path / "page.md", tmp_path / "tables"
    args = ("bench", "report", "--results", export, "--out", page)
    assert waysout(*args) == (0, "", f"wrote {page}\n")
    code, out, err = waysout(*args, "--tables", tables)
    assert (code, out) == (0, "")
    files = sorted(file.name for file in tables.iterdir())
    assert {"claims.md", "llm-budget.md", "no-llm.md", "yields.md"} <= set(files)
    assert err.count("wrote ") == 1 + len(files)
    text = page.read_text()
    assert f"--results {export}" in text.partition("\n## ")[0]


def test_a_pattern_stands_for_several_exports(
    waysout: CommandLine, export: Path, of_two: Path
) -> None:
    for pattern, n in (("*.jsonl*", 2), ("cells*", 1)):
        args = ("table", "reward-weights", "--results", export.parent / pattern, "--llm", LLM)
        code, out, _ = waysout("bench", *args)
        assert (code == 0) is (n == 2), out
    code, _, err = waysout("bench", "table", "llm-budget", "--results", export.parent / "no*")
    assert code == 3
    assert "no file matches" in err


def test_a_picture_of_nothing_says_what_to_run(
    waysout: CommandLine, export: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "my plan.toml"
    plan.write_text('like = "llm-budget"\ntitle = "other"\ncalls = 3\n')
    args = ("--results", export, "--plan", plan, "--out", tmp_path)
    code, _, err = waysout("bench", "plot", "trade-off", *args)
    assert (code, f"to draw: waysout bench run '{plan}'\n" in err) == (3, True), err


def test_the_help_of_the_commands_loads_nothing_heavy(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for heavy in ("matplotlib", "scipy"):
        monkeypatch.setitem(sys.modules, heavy, None)
    for command in ("plot", "report"):
        code, out, _ = waysout("bench", command, "--help")
        assert code == 0
        assert "--results" in out
