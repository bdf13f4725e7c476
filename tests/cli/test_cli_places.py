from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from waysout.cli.kept import to_resume
from waysout.cli.places import check_places, command, resume_hint
from waysout.errors import InputError
from waysout.run.source import Source, Trust


@pytest.mark.parametrize("link", ["symlink", "hard link", "other spelling"])
def test_a_file_is_known_under_any_name(tmp_path: Path, link: str) -> None:
    table, other = tmp_path / "t.csv", tmp_path / "o.csv"
    table.write_text("a\n1\n")
    if link == "symlink":
        other.symlink_to(table)
    elif link == "hard link":
        os.link(table, other)
    else:
        (tmp_path / "sub").mkdir()
        other = tmp_path / "sub" / ".." / "t.csv"
    with pytest.raises(InputError, match=r"--csv would overwrite .*t.csv, the file of --data"):
        check_places({"--csv": other}, {"--data": str(table), "--card": ""})


def test_files_of_their_own_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "old.html").write_text("")
    outputs = {"--html": tmp_path / "old.html", "--csv": tmp_path / "new.csv", "--record": None}
    check_places(outputs, {"--data": "synthetic", "--run": None})


@pytest.mark.parametrize(
    ("folder", "llm", "end"),
    [
        ("runs", "openai:m@http://h/v1", "resume a"),
        ("else", "openai:m@http://h/v1", "a.db --llm openai:m@http://h/v1"),
        ("else", "openai:a b@http://h/v1", "a.db --llm 'openai:a b@http://h/v1'"),
        ("else", "llamacpp:m", "a.db"),
        ("else", "", "a.db"),
    ],
)
def test_the_hint_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, llm: str, end: str
) -> None:
    monkeypatch.setenv("WAYSOUT_RUNS", str(tmp_path / "runs"))
    assert resume_hint(tmp_path / folder / "a.db", llm).endswith(end)


def test_a_command_has_the_folders_it_works_with_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WAYSOUT_RUNS", "WAYSOUT_DATA", "WAYSOUT_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WAYSOUT_API_KEY", "secret")
    monkeypatch.setattr("sys.argv", ["waysout"])
    assert command("runs", "resume", "a b") == "waysout runs resume 'a b'"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WAYSOUT_DATA", "my data")
    assert command("demo") == f"WAYSOUT_DATA='{tmp_path}/my data' waysout demo"


def test_a_command_starts_the_program_that_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WAYSOUT_RUNS", "WAYSOUT_DATA", "WAYSOUT_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.argv", ["/somewhere/waysout/__main__.py", "demo"])
    assert command("demo") == f"{sys.executable} -m waysout demo"
    mine = tmp_path / "bin" / "waysout"
    mine.parent.mkdir()
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(mine), "demo"])
    assert command("demo") == f"{mine} demo"
    monkeypatch.setenv("PATH", str(mine.parent))
    assert command("demo") == "waysout demo"


def test_a_resumed_run_needs_the_word_for_code_again(tmp_path: Path) -> None:
    def needed(trust: Trust, model: str, row_seconds: float | None = None) -> list[str]:
        source = Source("people.csv", model=model, row_seconds=row_seconds)
        return to_resume(trust, tmp_path / "a run.db", source)

    assert needed(Trust(named=True), "mine:model") == ["--trust-code"]
    assert needed(Trust(code=True, pickle=True), "mine:model") == ["--trust-pickle", "--trust-code"]
    assert needed(Trust(), "http://host/score") == ["--model", "http://host/score"]
    assert needed(Trust(), "model.txt") == []
    assert needed(Trust(), "model.txt", 300.0) == ["--row-seconds", "300"]
