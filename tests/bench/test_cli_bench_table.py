from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from bench_cells import LLM, cells_of, figures_of

from conftest import CommandLine
from waysout.bench.cell import write_cells
from waysout.bench.commands import pages
from waysout.bench.plan import load_plan
from waysout.errors import InputError


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """An export of three queries of the reward weights on Loan."""
    plan = load_plan("reward-weights").cut(queries=3, only=["loan"])
    path = tmp_path / "cells.jsonl.gz"
    write_cells(path, cells_of(plan, lambda arm, place: figures_of(10 + place)))
    return path


def test_a_table_from_an_export(waysout: CommandLine, export: Path) -> None:
    code, out, err = waysout(
        "bench", "table", "reward-weights", "--results", export, "--queries", "3"
    )
    assert (code, err) == (0, "")
    first = out.split("\n\n")[1]
    assert "BASELINE   ours         3    11.0     0.7000" in first
    assert "           paper             27.4     0.6499" in first
    assert f"Made with: waysout bench table reward-weights --results {export} --queries 3\n" in out


def test_a_table_is_folded_to_the_terminal_alone(
    waysout: CommandLine, export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = ("bench", "table", "reward-paired", "--results", export)
    piped = waysout(*args)[1]
    monkeypatch.setattr(pages, "terminal_width", lambda: 60)
    folded = waysout(*args)[1]
    grid = folded.partition("Made with")[0].splitlines()
    assert max(map(len, grid)) <= 60 < max(map(len, piped.splitlines()))
    numbers = {word for word in piped.split() if re.fullmatch(r"[+-]?[\d.]+", word)}
    assert len(numbers) > 10
    assert numbers <= set(folded.split())


def test_missing_searches_are_shown_without_asking_for_fewer(
    waysout: CommandLine, export: Path
) -> None:
    code, out, _ = waysout(
        "bench", "table", "reward-weights", "--results", export, "--format", "csv"
    )
    rows = list(csv.DictReader(out.splitlines()))
    assert code == 0
    assert (rows[0]["setting"], rows[0]["n"]) == ("BASELINE", "3 of 30")
    missing = [row["data_set"] for row in rows if row["n"] == "not run"]
    assert missing == ["Adult, Credit, HELOC"] * 2


def test_json_goes_to_a_file(waysout: CommandLine, export: Path, tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    args = ("--results", export, "--format", "json", "--out", file)
    code, out, err = waysout("bench", "table", "reward-paired", *args)
    assert (code, out) == (0, "")
    assert f"wrote {file}" in err
    (table,) = json.loads(file.read_text())
    assert table["name"] == "reward-paired"
    assert table["lines"][0]["labels"] == ["Loan", "BASELINE → BALANCED", "unique valid"]


def test_a_plan_of_ones_own(waysout: CommandLine, export: Path, tmp_path: Path) -> None:
    plan = tmp_path / "mine.toml"
    plan.write_text(
        'like = "reward-weights"\ntitle = "mine"\ndatasets = ["loan"]\nqueries = 2\n'
        '[[more_arms]]\nname = "first"\nmethod = "comp-mcts"\n'
        'settings = { pruning = "none", reward = "baseline" }\n'
    )
    args = ("--results", export, "--plan", plan, "--format", "csv")
    code, out, _ = waysout("bench", "table", "reward-weights", *args)
    rows = list(csv.DictReader(out.splitlines()))
    assert code == 0
    found = {row["setting"]: (row["n"], row["unique_valid"]) for row in rows}
    assert found["first"] == found["BASELINE"] == ("2", "10.5")
    by_name = ("--results", export, "--plan", "pruning-sweep", "--format", "csv")
    assert waysout("bench", "table", "reward-weights", *by_name)[0] == 0  # one of ours
    assert "FILE" not in waysout("bench", "table", "--help")[1].partition("--plan")[2][:60]


def test_a_name_that_is_wrong_is_told_before_anything_is_read(waysout: CommandLine) -> None:
    code, _, err = waysout("bench", "table", "reward-weight", "--results", "nowhere")
    assert code == InputError.exit_code
    assert "did you mean 'reward-weights'?" in err
    assert "'llm-sizes'" in err


def test_results_without_the_searches_say_what_to_run(waysout: CommandLine, export: Path) -> None:
    code, _, err = waysout("bench", "table", "compressors", "--results", export)
    assert code == InputError.exit_code
    assert "waysout bench run compressors" in err


def test_the_usual_folder_is_looked_in(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYSOUT_RUNS", str(tmp_path / "runs"))
    code, _, err = waysout("bench", "table", "llm-budget")
    assert code == InputError.exit_code
    assert str(tmp_path / "bench") in err


def test_an_llm_that_is_not_there(waysout: CommandLine, export: Path) -> None:
    args = ("--results", export, "--llm", "simulated:9")
    code, _, err = waysout("bench", "table", "reward-weights", *args)
    assert code == InputError.exit_code
    assert f"did you mean '{LLM}'?" in err


def test_results_are_never_overwritten(waysout: CommandLine, export: Path) -> None:
    before = export.read_bytes()
    code, _, err = waysout("bench", "table", "reward-weights", "--results", export, "--out", export)
    assert code == InputError.exit_code
    assert "would overwrite" in err
    assert export.read_bytes() == before
