"""What is printed to be typed works as printed: elsewhere, in a shell that knows nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_world import CARD, FIND, ROW, cut_off, in_world, world  # noqa: F401

import waysout as package
from conftest import CommandLine
from waysout.store import list_runs, runs_dir

pytestmark = [
    pytest.mark.usefixtures("in_world"),
    pytest.mark.skipif(os.name == "nt", reason="the lines are for a POSIX shell"),
]
QUICK = (*ROW, "--oracle-rows", "30")
PICKLED = ("find", "--model", "model.joblib", "--trust-pickle", *FIND[3:])
CUSTOM = f'{CARD}\n[[rules.main]]\nkind = "custom"\ncall = "my_rules:fine"\n'


@pytest.fixture
def mine(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """Stand in a copy of the world whose name has spaces and an apostrophe."""
    folder = tmp_path / "it's my world"
    shutil.copytree(world, folder)
    monkeypatch.chdir(folder)
    return folder


def typed(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line in a shell of its own, in another folder and without our variables."""
    bin_ = folder / "bin"
    bin_.mkdir(exist_ok=True)
    (bin_ / "waysout").write_text(f'#!/bin/sh\nexec {sys.executable} -m waysout "$@"\n')
    (bin_ / "waysout").chmod(0o755)
    places = [str(Path(package.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("WAYSOUT_")}
    env = {**kept, "PATH": f"{bin_}:{os.environ['PATH']}", "PYTHONPATH": ":".join(places)}
    return subprocess.run(
        line, shell=True, cwd=folder, env=env, capture_output=True, text=True, timeout=120
    )


def line_of(err: str, before: str = "resume it with: ") -> str:
    return next(line for line in err.splitlines() if before in line).partition(before)[2]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(FIND, id="plain", marks=pytest.mark.slow),
        pytest.param(PICKLED, id="pickle", marks=pytest.mark.slow),
        pytest.param(
            (*FIND, "--run", "a run.db"), id="a relative path with a space", marks=pytest.mark.slow
        ),
        pytest.param(
            (*PICKLED, "--run", "-odd.db"), id="a path like an option", marks=pytest.mark.slow
        ),
    ],
)
def test_the_line_that_resumes_a_run_works(
    waysout: CommandLine, mine: Path, tmp_path: Path, given: tuple[str, ...]
) -> None:
    with cut_off():
        code, _, err = waysout(*given, *QUICK)
    assert code == 9
    done = typed(line_of(err), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "rows are on file" in done.stderr


def test_the_line_of_runs_show_works_too(waysout: CommandLine, mine: Path, tmp_path: Path) -> None:
    with cut_off():
        waysout(*PICKLED, *QUICK)
    line = line_of(waysout("runs", "show")[2])
    assert "--trust-pickle" in line
    done = typed(line, tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_run_from_elsewhere_does_not_vouch_for_itself(
    waysout: CommandLine, mine: Path, tmp_path: Path
) -> None:
    with cut_off():
        waysout(*PICKLED, *QUICK)
    [run] = list_runs(runs_dir())
    elsewhere = shutil.move(run, tmp_path / "elsewhere.db")
    line = line_of(waysout("runs", "show", elsewhere)[2])
    assert "--trust" not in line
    assert "pass --trust-pickle" in typed(line, tmp_path).stderr


@pytest.mark.slow
def test_a_name_that_means_something_else_is_printed_as_a_path(
    waysout: CommandLine, mine: Path, tmp_path: Path
) -> None:
    runs_dir().mkdir(parents=True, exist_ok=True)
    for name in ("last", "-x", "loans"):
        run = runs_dir() / f"{name}.db"
        Path("loans").touch()
        with cut_off():
            _, _, err = waysout(*FIND, *QUICK, "--run", run)
        assert f"waysout runs resume {run}" in line_of(err)


def test_the_word_for_code_of_a_card_is_asked_for(
    waysout: CommandLine, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("my_rules.py").write_text("def fine(query, candidate):\n    return True\n")
    Path("loans.toml").write_text(CUSTOM)
    monkeypatch.syspath_prepend(str(mine))
    monkeypatch.setenv("PYTHONPATH", str(mine))
    with cut_off():
        _, _, err = waysout(*FIND, *QUICK, "--trust-code")
    done = typed(line_of(err), tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_line_that_checks_a_card_works(waysout: CommandLine, mine: Path) -> None:
    infer = ("card", "infer", "loans.csv", "--target", "status", "--positive", "approved")
    _, _, err = waysout(*infer, "--out", "my card.toml")
    done = typed(line_of(err, "then: "), mine)
    assert done.returncode == 0, done.stderr
