from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import own_cache
from waysout.cli.main import main

# Tests run side by side: a library that takes all cores in each of them mostly waits for itself.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A change is judged on its own merits, not on the luck of a draw; everywhere else draws are fresh,
# and `HYPOTHESIS_PROFILE=thorough` looks much longer.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("here", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=3000)
_usual = "ci" if os.environ.get("CI") else "here"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", _usual))

# A package as an installer leaves it; collecting it would put it on the path of every test.
collect_ignore = ["plugin"]


def pytest_xdist_auto_num_workers() -> int:
    """Start one worker more than there are cores: many tests wait for a process or a timeout."""
    return (os.cpu_count() or 1) + 1


CommandLine = Callable[..., tuple[int, str, str]]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(own_cache)


@pytest.fixture(autouse=True, scope="session")
def _no_end_of_the_process() -> Iterator[None]:
    """Let a command that runs in the process of the tests not end it, at once or after a while."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("waysout.cli.main._leave_model_behind", lambda code: None)
        yield


@pytest.fixture
def waysout(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Run the command line as `main` does; returns exit code, stdout and stderr."""

    def run(*args: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["waysout", *map(str, args)])
        monkeypatch.setenv("COLUMNS", "200")
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        code = left.value.code
        return (code if isinstance(code, int) else int(code is not None)), out, err

    return run
