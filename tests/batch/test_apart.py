"""A model that the driver asks in another process: what it does there costs a row its answer."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing

import pytest
from batch_world import Made
from run_world import PEOPLE, Adder, problem

from waysout.batch import apart
from waysout.batch.apart import OracleApart
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.errors import InputError, OracleError, OracleTimeout, UnavailableError
from waysout.oracles.probe import probe

ROW_SECONDS = 2.0
"""Far more than an answer takes, and how long the test waits for the call that holds its process.
"""


class Deadly(Adder):
    """Does to its process what a test says, on the rows of some people."""

    notes = ("it learns as it answers",)
    row_seconds = ROW_SECONDS

    def __init__(self, troubles: Mapping[Row, str]) -> None:
        super().__init__()
        self.troubles = troubles

    def ask(self, rows: Sequence[Row]) -> Answers:
        for trouble in filter(None, map(self.troubles.get, rows)):
            if trouble == "leaves":
                os._exit(0)
            if trouble == "crashes":
                os.kill(os.getpid(), signal.SIGSEGV)
            if trouble == "holds":
                ctypes.PyDLL(None).sleep(60)
            if trouble == "slow":
                time.sleep(0.5 * ROW_SECONDS)
                return super().ask(rows)
            raise ValueError(trouble)
        return super().ask(rows)


class Searching(Deadly):
    """Asks more rows than it is asked, to find the form of its rows."""

    extra_rows, extra_rows_left = 0, 5000

    def ask(self, rows: Sequence[Row]) -> Answers:
        self.extra_rows += 10
        self.extra_rows_left -= 10
        return super().ask(rows)


def asked_apart(troubles: Mapping[Row, str]) -> OracleApart:
    oracle = Deadly(troubles)
    found = OracleApart(Made(oracle))
    assert found.put_into(problem(oracle=oracle)).oracle is found
    return found


def test_a_row_that_ends_the_process_is_left_out_of_the_trial() -> None:
    with closing(asked_apart({PEOPLE[5]: "leaves"})) as oracle:
        found, well = probe(oracle, PEOPLE, again=4), probe(Adder(), PEOPLE, again=4)
    assert (found.stable, well.stable) == (True, True)
    assert (
        found.rows_asked == well.rows_asked == len(PEOPLE) + 4
    )  # six together, then alone; four again
    assert found.notes[0] == "it learns as it answers"  # over there
    assert found.notes[1].startswith("1 of 6 rows tried have no answer: the model ended the proc")


def test_rows_that_find_the_form_are_counted_over_all_processes() -> None:
    inner = Searching({PEOPLE[5]: "leaves"})
    oracle = OracleApart(Made(inner))
    oracle.put_into(problem(oracle=inner))
    assert (oracle.extra_rows, oracle.extra_rows_left) == (0, 5000)
    with closing(oracle):
        oracle.ask(PEOPLE[:2])
        with pytest.raises(OracleError, match="ended the process"):
            oracle.ask(PEOPLE[5:6])
        oracle.ask(PEOPLE[:2])
    assert oracle.extra_rows == 20  # what the lost one had not told is not known


def test_each_ending_is_told_and_only_so_many_are_borne(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(apart, "MOST_LOST", 2)
    crashes, holds, raises, well = PEOPLE[:4]
    with closing(asked_apart({crashes: "crashes", holds: "holds", raises: "no"})) as oracle:
        with pytest.raises(OracleError, match=r"ended the process that asked it .*SIGSEGV"):
            oracle.ask([crashes])
        with pytest.raises(OracleError, match="raised ValueError: no"):
            oracle.ask([raises])
        assert oracle.ask([well]).probability.tolist() == Adder().ask([well]).probability.tolist()
        # It holds the interpreter's lock: the watch within that process cannot end the call.
        with pytest.raises(OracleTimeout, match=r"held the process that asked it for 2\.02 s"):
            oracle.ask([holds])
        with pytest.raises(OracleError, match="has ended 2 processes, and is asked no more"):
            oracle.ask([well])


def refused() -> Problem:
    raise InputError("there is no such card")


def died() -> Problem:
    os._exit(3)


def test_a_model_that_cannot_be_loaded_there_is_an_error() -> None:
    with closing(OracleApart(refused)) as oracle, pytest.raises(InputError, match="no such card"):
        oracle.ask(PEOPLE)
    with (
        closing(OracleApart(died)) as oracle,
        pytest.raises(UnavailableError, match=r"died as it loaded it \(exit code 3\)"),
    ):
        oracle.ask(PEOPLE)


_ASKED = """
from contextlib import closing
from test_apart import PEOPLE, apart, asked_apart
apart.SILENT_SECONDS = 0.0
with closing(asked_apart({PEOPLE[0]: "slow"})) as oracle:
    oracle.ask(PEOPLE[1:2])
    print("ready", flush=True)
    print(len(oracle.ask(PEOPLE[:1]).probability))
"""


@pytest.mark.skipif(os.name != "posix", reason="needs signals that suspend")
def test_the_time_for_which_all_is_suspended_does_not_count() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _ASKED], text=True, stdout=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(3.0)  # longer than the call may take
    os.killpg(process.pid, signal.SIGCONT)
    assert process.communicate(timeout=50)[0] == "1\n"
