"""Another package adds methods and commands: ``plugin`` is one, as an installer would leave it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parent / "plugin"
CommandLine = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def with_plugin() -> CommandLine:
    """Run the command line where the plugin is installed: in a process of its own."""

    def run(*args: str) -> tuple[int, str, str]:
        paths = [str(PLUGIN), *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run(
            [sys.executable, "-m", "waysout", *args],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return run


def test_its_methods_are_listed_and_one_that_is_broken_hides_nothing(
    with_plugin: CommandLine,
) -> None:
    code, out, err = with_plugin("methods", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["lucky"]["what"] == "what the plugin says of itself"
    assert {"recombine", "dice"} < set(found)
    assert "random feasible edits" in found["random"]["what"]  # a name of ours stays ours
    assert not {"lost", "leaves", "settles"} & set(found)
    assert "waysout_nowhere" in err
    assert "'leaves' of another package (waysout_leaving:Leaves) cannot be loaded: 7" in err
    assert "'settles' of another package" in err
    assert "is no dataclass of settings" in err


def test_its_commands_run_and_one_that_is_broken_stops_nothing(with_plugin: CommandLine) -> None:
    code, out, err = with_plugin("hello", "--name", "you")
    assert (code, out) == (0, "hello you\n"), err
    assert "the command gone (waysout_plugin:gone) cannot be loaded" in err
    assert "the command left (waysout_leaving:leave) cannot be loaded: 7" in err
    code, out, err = with_plugin("find", "--help")  # a name of ours stays ours
    assert (code, "--where" in out, err) == (0, True, "")
    code, _, err = with_plugin("gone")
    assert (code, "No such command 'gone'" in err) == (2, True)
    assert "cannot be loaded" in err
    code, out, err = with_plugin("--help")
    assert (code, "hello" in out, "cannot be loaded" in err) == (0, True, True)


def test_its_method_searches(with_plugin: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PLUGIN))
    from waysout.methods import all_methods, make_method

    all_methods.cache_clear()
    try:
        assert make_method("lucky").name == "lucky"
        import waysout

        waysout.check_method("lucky")
    finally:
        all_methods.cache_clear()
