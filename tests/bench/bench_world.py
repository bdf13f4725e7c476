"""A small plan on the synthetic data, whose oracle is trained once, and a server to ask."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from waysout.bench.cell import Cell
from waysout.bench.plan import ExperimentPlan, load_plan
from waysout.datasets.load import load_dataset
from waysout.datasets.manifest import oracle_dir

HEAD = """
title = "Some ways to search"
datasets = ["synthetic"]
rules = "realistic"
queries = 3
calls = 4
k = 2
"""
TREE = """
[[arms]]
name = "tree"
method = "comp-mcts"
"""
LIBRARY = """
[[arms]]
name = "library"
method = "recombine"
"""
RANDOM = """
[[arms]]
name = "random"
method = "random"
"""


@pytest.fixture(scope="session")
def trained_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with a quick oracle of the synthetic data, for reading."""
    pytest.importorskip("optuna", reason="needs waysout[train]")
    from waysout.datasets.train import train_oracle

    folder = tmp_path_factory.mktemp("bench-cache")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("WAYSOUT_CACHE", str(folder))
        data = load_dataset("synthetic", fetch=False)
        train_oracle(data, out=oracle_dir("synthetic"), trials=2, threads=1)
    return folder


@pytest.fixture
def in_bench(trained_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty folder, with that oracle and none of the real tables."""
    monkeypatch.setenv("WAYSOUT_CACHE", str(trained_cache))
    monkeypatch.setenv("WAYSOUT_RUNS", str(tmp_path / "state" / "runs"))
    monkeypatch.delenv("WAYSOUT_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan_file(folder: Path, *parts: str, head: str = HEAD, name: str = "small") -> Path:
    """Write a plan of some arms."""
    path = folder / f"{name}.toml"
    path.write_text(head + "".join(parts), encoding="utf-8")
    return path


def plan(folder: Path, *parts: str, head: str = HEAD, name: str = "small") -> ExperimentPlan:
    """Return a plan of some arms."""
    return load_plan(str(plan_file(folder, *parts, head=head, name=name)))


def timeless(cell: Cell) -> Cell:
    """Return a cell without what may differ between equal searches."""
    spent = {
        k: v for k, v in cell.spent.items() if k not in ("seconds", "llm_seconds", "from_file")
    }
    return replace(cell, spent=spent, at="")


_MAY = re.compile(r"^- (\w+) = ([\d.]+), may (?:rise|fall) to ([\d.]+)", re.MULTILINE)


def scripted_reply(prompt: str) -> str:
    """Return edits of two features that may change, the same for the same prompt."""
    chance = list(hashlib.sha256(prompt.encode()).digest())
    offered, lines = _MAY.findall(prompt), []
    for place in (0, 1):
        name, now, bound = offered[chance[place] % len(offered)]
        value = float(now) + (float(bound) - float(now)) * chance[place + 2] / 255
        text = f"{value:.2f}" if "." in now else str(int(value))
        lines += [
            f"CANDIDATE={place + 1}",
            f"FEATURE={name}",
            f"VALUE={text}",
            "REASONING=scripted",
        ]
    return "\n".join(lines)


def environment(cache: Path, folder: Path) -> dict[str, str]:
    """Return the environment of a command line of its own."""
    own: dict[str, Any] = {"WAYSOUT_CACHE": cache, "WAYSOUT_RUNS": folder / "runs"}
    return {**os.environ, **{name: str(value) for name, value in own.items()}, "COLUMNS": "200"}
