"""The README is run, not only read."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import CommandLine
from waysout.datasets.manifest import load_oracle_model
from waysout.datasets.queries import query_list

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
LLM = (ROOT / "docs" / "llm.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_python_runs(waysout: CommandLine, capsys: pytest.CaptureFixture[str]) -> None:
    assert waysout("demo")[0] == 0
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec"), {})
    assert "->" in capsys.readouterr().out


def test_the_python_of_the_llm_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for code in blocks("python", LLM):
        exec(compile(code, "docs/llm.md", "exec"), names)
    assert "llm_calls=1" in capsys.readouterr().out


def test_the_demo_shows_what_the_readme_shows(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = waysout("demo")
    assert code == 0
    if load_oracle_model("synthetic")[1].model_sha256 != query_list("synthetic").oracle_sha256:
        pytest.skip("this version of LightGBM trains a slightly different model")
    (console,) = blocks("console")
    shown = [line.strip() for line in out.splitlines()]
    for line in console.splitlines()[1:]:
        if "─" not in line:
            assert line.strip() in shown


def test_every_command_exists(waysout: CommandLine) -> None:
    pages = README + LLM
    text = "\n".join(blocks("sh", pages) + re.findall(r"`(waysout [^`]*)`", pages))
    commands = set(re.findall(r"waysout ([a-z]+(?: [a-z]+)?)", text))
    assert len(commands) >= 8
    for command in commands:
        words = command.split()
        takes_more = words[0] in ("card", "data", "models", "oracle")
        code, out, _ = waysout(*(words if takes_more else words[:1]), "--help")
        assert code == 0, command
        assert "Usage" in out


@pytest.mark.skipif(sys.platform == "win32", reason="make is not a Windows command")
def test_make_knows_the_two_commands() -> None:
    for target in ("demo", "test"):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
