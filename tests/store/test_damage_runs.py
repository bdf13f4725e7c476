"""A few files of ``benchmarks/damage_runs.py``: damaged at random, and shown truly or refused."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "damage_runs.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("damage_runs", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "damage_runs", module)  # its dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_no_damage_is_shown_as_truth(script: Any) -> None:
    counts, problems = script.damage_runs(files=20, seed=1)
    assert problems == []
    outcomes = {outcome for _, outcome in counts}
    assert {"unharmed", "repaired", "refused"} <= outcomes  # else it would notice nothing
