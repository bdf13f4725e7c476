"""A batch with a real LLM, held once for two workers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cli_world import in_world, world  # noqa: F401

from conftest import CommandLine
from waysout.batch.tables import people


@pytest.mark.llm
@pytest.mark.usefixtures("in_world")
def test_one_model_in_memory_serves_two_workers(waysout: CommandLine, tmp_path: Path) -> None:
    file, out = os.environ.get("WAYSOUT_GGUF"), tmp_path / "ways"
    if not file:
        assert waysout("models", "pull", "smollm2-135m")[0] == 0
    code, said, err = waysout(
        "batch", "--model", "model.txt", "--data", "loans.csv", "--card", "loans.toml",
        "--llm", f"llamacpp:{file or 'smollm2-135m'}", "--calls", "1", "--oracle-rows", "20",
        "--limit", "8", "--part-rows", "4", "--workers", "2", "--out", str(out), "--json",
    )  # fmt: skip
    assert code == 0, err
    found = json.loads(said)
    told = [person for table in people(out) for person in table.to_pylist()]
    searched = [p["llm_calls"] for p in told if p["outcome"] != "already-approved"]
    assert (len(told), len(searched), found["tokens_out"] > 0) == (8, found["searched"], True)
    assert searched == [1] * len(searched) != []
