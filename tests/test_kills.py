"""A few of the kills of benchmarks/kills.py: all is resumed, and nothing on file is asked again."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.slow
def test_nothing_on_file_is_asked_again_after_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    kills = import_module("kills")
    tallies = kills.run(9, 1, ["find", "driver", "worker", "serve"])
    assert kills.landed(tallies) == 9
    assert [fault for tally in tallies.values() for fault in tally.faults] == []
    assert all(tally.equal == tally.runs for tally in tallies.values())
