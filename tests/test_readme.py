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
SEARCH = (ROOT / "docs" / "search.md").read_text(encoding="utf-8")
RECOMBINE = (ROOT / "docs" / "recombine.md").read_text(encoding="utf-8")
WAYFINDER = (ROOT / "docs" / "wayfinder.md").read_text(encoding="utf-8")
BASELINES = (ROOT / "docs" / "baselines.md").read_text(encoding="utf-8")
SERVE = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
REPORT = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
PYTHON = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def demo(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str, str]:
    """Run the demo."""
    monkeypatch.chdir(tmp_path)
    return waysout("demo")


def test_the_python_runs(demo: object, capsys: pytest.CaptureFixture[str]) -> None:
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec"), {})
    assert "probability" in capsys.readouterr().out


def test_the_python_of_the_python_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in blocks("python", PYTHON):
        exec(compile(code, "docs/python.md", "exec", dont_inherit=True), names)
    out = capsys.readouterr().out
    assert out.count("ways out (") == 2
    assert "5 people: 5 found" in out
    assert (tmp_path / "page.html").is_file()


def test_the_python_of_the_llm_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for code in blocks("python", LLM):
        exec(compile(code, "docs/llm.md", "exec"), names)
    assert "llm_calls=1" in capsys.readouterr().out


def test_the_python_of_the_search_page_runs(
    demo: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, object] = {}
    for code in blocks("python", SEARCH):
        exec(compile(code, "docs/search.md", "exec", dont_inherit=True), names)
    assert "found" in capsys.readouterr().out


def test_the_demo_shows_what_the_readme_shows(demo: tuple[int, str, str]) -> None:
    code, out, err = demo
    assert code == 0, err
    if load_oracle_model("synthetic")[1].model_sha256 != query_list("synthetic").oracle_sha256:
        pytest.skip("this version of LightGBM trains a slightly different model")
    (console,) = blocks("console")
    assert _bare(console.partition("\n")[2]) == _bare(out)


def _bare(text: str) -> str:
    """Leave out what depends on the width of a terminal and the speed of a machine."""
    words = re.sub(r"─+", "", re.sub(r"[\d.]+ s\.", "", text)).split()
    return " ".join(words)


def test_every_command_exists(waysout: CommandLine) -> None:
    pages = README + LLM + SEARCH + WAYFINDER + RECOMBINE + BASELINES + SERVE + REPORT + PYTHON
    text = "\n".join(blocks("sh", pages) + re.findall(r"`(waysout [^`]*)`", pages))
    commands = set(re.findall(r"waysout ([a-z]+(?: [a-z]+)?)", text))
    assert len(commands) >= 8
    for command in commands:
        words = command.split()
        takes_more = words[0] in ("card", "data", "models", "oracle", "runs")
        code, out, _ = waysout(*(words if takes_more else words[:1]), "--help")
        assert code == 0, command
        assert "Usage" in out


def test_what_the_pages_lead_to_is_there() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        missing = [link for link in links if not (page.parent / link).exists()]
        assert not missing, page.name


@pytest.mark.skipif(sys.platform == "win32", reason="make is not a Windows command")
def test_make_knows_the_two_commands() -> None:
    for target in ("demo", "test"):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
