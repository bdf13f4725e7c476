"""A model that holds the interpreter: the process beside a command ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="elsewhere pipes cannot be waited for")

# What a command does around the calls of a model, with a grace that a test can wait for.
_COMMAND = """
import ctypes, sys, time
from waysout.cli import held
from waysout.errors import OracleError
from waysout.oracles.watchdog import watched
held.GRACE_SECONDS = float(sys.argv[2])
held.ready_for_models()
held.ready_for_models()
print("ready", flush=True)
holds = lambda: ctypes.PyDLL(None).sleep(60)
def row_by_row():
    for _ in range(5):
        watched(lambda: time.sleep(0.2), 1, 0.3)
def late():
    try:
        watched(lambda: time.sleep(60), 1, 0.3)
    except OracleError as error:
        print(error)
    time.sleep(1)
{name}
print("ended")
"""


def start(work: str, grace: float = 3.0) -> subprocess.Popen[str]:
    code = _COMMAND.replace("{name}", work)
    return subprocess.Popen(
        [sys.executable, "-c", code, work, str(grace)],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def test_a_command_whose_model_holds_the_interpreter_is_ended() -> None:
    began = time.monotonic()
    process = start("watched(holds, 1, 0.5)", grace=0.5)
    out, err = process.communicate(timeout=50)
    assert (process.returncode, out) == (-signal.SIGKILL, "ready\n")
    assert "the model has held Python's interpreter for" in err
    assert "`waysout runs list`" in err
    assert time.monotonic() - began < 40, "it waited for the model"


@pytest.mark.parametrize("work", ["row_by_row()", "late()", "holds = 0"])
def test_a_command_that_is_slow_or_idle_is_left_alone(work: str) -> None:
    out, err = (process := start(work)).communicate(timeout=50)
    assert (process.returncode, err) == (0, "")
    assert out.endswith("ended\n")
    assert ("did not answer a row" in out) == (work == "late()")


def test_the_time_for_which_both_are_suspended_does_not_count() -> None:
    process = start("watched(lambda: time.sleep(0.5), 1, 1.5)", grace=1.0)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(4.0)  # longer than the call may take, and the grace
    os.killpg(process.pid, signal.SIGCONT)
    out, err = process.communicate(timeout=50)
    assert (process.returncode, out, err) == (0, "ended\n", "")


@pytest.mark.slow
def test_ctrl_c_ends_it_sooner() -> None:
    process = start("watched(holds, 1, 60.0)", grace=60.0)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=50)
    assert process.returncode == -signal.SIGKILL
    assert "the process was ended" in err


def test_a_model_that_ends_the_command_is_told_of() -> None:
    """It may do so with the exit code of success."""
    out, err = (process := start("import os\nwatched(lambda: os._exit(0), 1, 9.0)")).communicate(
        timeout=50
    )
    assert (process.returncode, out) == (0, "ready\n")
    assert "error: the process has ended within a call of the model" in err
    out, err = (
        process := start(
            "import threading\nfrom waysout.oracles.watchdog import end_process\n"
            "threading.Timer(0.5, end_process, [3]).start()\nwatched(lambda: time.sleep(9), 1, 9.0)"
        )
    ).communicate(timeout=50)
    assert (process.returncode, out, err) == (3, "ready\n", "")


def test_it_leaves_with_the_command_whatever_that_has_forked(tmp_path: Path) -> None:
    """A fork holds the pipe open, and its calls are none of the command's."""
    log = tmp_path / "pid"
    process = start(
        "import os, pathlib\n"
        "if fork := os.fork():\n"
        f"    pathlib.Path({str(log)!r}).write_text(str(fork))\n"
        "else:\n"
        "    sys.stdout.close(); os.close(1); os.close(2)\n"
        "    watched(lambda: time.sleep(60), 1, 60.0)\n"
        "    os._exit(0)\n"
    )
    try:
        # What the process beside it has inherited ends when that process does, not before.
        out, err = process.communicate(timeout=30)
    finally:
        os.kill(int(log.read_text()), signal.SIGKILL)
    assert (process.returncode, out, err) == (0, "ready\nended\n", "")
