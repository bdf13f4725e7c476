"""A few of the trials of benchmarks/damage_batches.py: no damage is silently wrong."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_no_damage_is_silently_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    damage = import_module("damage_batches")
    trials = damage.run(folders=12, seed=0)
    assert {trial.kind for trial in trials} == set(damage.DAMAGES)
    assert [trial for trial in trials if trial.is_bad] == []
    assert {damage.TOLD, damage.SAME} <= {trial.resumed for trial in trials}
