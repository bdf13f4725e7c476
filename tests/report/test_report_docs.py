"""The letter in docs/report.md is the one that the command there writes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from conftest import CommandLine
from waysout.datasets.manifest import load_oracle_model, oracle_dir
from waysout.datasets.queries import query_list

DOCS = Path(__file__).parents[2] / "docs" / "report.md"


def test_the_letter_shown_is_the_letter_written(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = DOCS.read_text(encoding="utf-8")
    (commands,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    train, find = (shlex.split(line, comments=True)[1:] for line in commands.splitlines())
    (shown,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    if not oracle_dir("synthetic").exists():
        assert waysout(*train)[0] == 0
    code, _, err = waysout(*find, "--no-run")
    assert code == 0, err
    if load_oracle_model("synthetic")[1].model_sha256 != query_list("synthetic").oracle_sha256:
        pytest.skip("this version of LightGBM trains a slightly different model")
    assert shown in Path("letter.txt").read_text(encoding="utf-8")
    assert {path.name for path in tmp_path.iterdir()} == {
        "letter.txt",
        "report.html",
        "ways.csv",
    }
