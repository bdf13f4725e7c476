from __future__ import annotations

import json
import sys
import threading

import pytest

from conftest import CommandLine
from waysout import __version__
from waysout.cli import data
from waysout.cli.main import COMMANDS, _leave_model_behind


def test_help_teaches(waysout: CommandLine) -> None:
    code, out, _ = waysout("--help")
    assert code == 0
    assert "waysout demo" in out
    for command in ("card", "data", "demo", "doctor", "oracle"):
        assert command in out
    assert waysout("card", "infer", "--help")[1].count("Example") == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_a_line_of_the_help_is_the_first_of_the_command_s_own(
    waysout: CommandLine, name: str
) -> None:
    command = COMMANDS[name][1]
    assert command in waysout(name, "--help")[1]
    assert command in waysout("--help")[1]


def test_an_unknown_command_is_wrong_usage_and_the_nearest_is_named(waysout: CommandLine) -> None:
    code, _, err = waysout("fnd")
    assert (code, "Did you mean 'find'?" in err) == (2, True)


def test_version(waysout: CommandLine) -> None:
    assert waysout("--version")[:2] == (0, f"waysout {__version__}\n")


def test_wrong_usage_is_exit_code_2(waysout: CommandLine) -> None:
    code, out, err = waysout("card", "infer")
    assert (code, out) == (2, "")
    assert "Missing argument" in err


def test_an_error_is_a_message_and_a_code(waysout: CommandLine) -> None:
    code, out, err = waysout("data", "get", "adlt")
    assert (code, out) == (3, "")
    assert err.startswith("error: unknown data set 'adlt'; did you mean 'adult'?")


def test_with_json_an_error_is_a_document_too(waysout: CommandLine) -> None:
    code, out, err = waysout("data", "get", "adlt", "--json")
    assert code == 3
    assert json.loads(out)["error"]["type"] == "InputError"
    assert "did you mean" in err


def test_with_json_wrong_usage_is_a_document_too(waysout: CommandLine) -> None:
    code, out, err = waysout("data", "get", "--json")
    assert code == 2
    assert json.loads(out)["error"]["type"] == "UsageError"
    assert "Missing argument" in err


def test_the_unexpected_is_not_a_traceback(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(data, "print_json", broken)
    code, _, err = waysout("data", "list", "--json")
    assert code == 1
    assert err == "error: unexpected ZeroDivisionError: oh (WAYSOUT_DEBUG=1 shows where)\n"


def test_a_process_that_may_have_no_further_thread_ends_in_peace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.delitem(sys.modules, "waysout.oracles.watchdog", raising=False)
    monkeypatch.setattr(threading.Thread, "start", none_left)
    _leave_model_behind(0)  # as it was when this file was imported: conftest takes it away


def test_ctrl_c_leaves_with_130(waysout: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(data, "print_json", interrupted)
    assert waysout("data", "list", "--json")[0] == 130
