from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_world import FIND, ROW, in_world, world  # noqa: F401

from waysout.cli.main import main
from waysout.cli.streams import Outlet
from waysout.store import Store


class Narrow(io.RawIOBase):
    """Takes a few bytes at a time, and after ``room`` of them fails as it is told to."""

    def __init__(self, room: int, failure: int = errno.ENOSPC) -> None:
        self.got, self.room, self.failure = b"", room, failure

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if len(self.got) >= self.room:
            raise OSError(self.failure, os.strerror(self.failure))
        taken = bytes(data)[: min(7, self.room - len(self.got))]
        self.got += taken
        return len(taken)


def left(
    monkeypatch: pytest.MonkeyPatch, stdout: io.RawIOBase | None, *args: str | Path
) -> tuple[int, str]:
    """Run a command with such a stdout; return its exit code and what it said on stderr."""
    errors = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    with monkeypatch.context() as patched:
        text = None if stdout is None else io.TextIOWrapper(stdout, "utf-8")  # type: ignore[type-var]
        patched.setattr(sys, "stdout", text)
        patched.setattr(sys, "stderr", errors)
        patched.setattr(sys, "argv", ["waysout", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert sys.stdout is text  # as it was
    assert isinstance(ended.value.code, int)
    return ended.value.code, errors.buffer.getvalue().decode()


def test_what_takes_a_part_of_a_write_gets_the_rest_too() -> None:
    narrow = Narrow(1000)
    assert Outlet(narrow).write(b"0123456789" * 20) == 200
    assert narrow.got == b"0123456789" * 20


@pytest.mark.parametrize("args", [["methods"], ["methods", "--json"], ["--help"], ["--version"]])
@pytest.mark.parametrize("room", [0, 10])
def test_output_that_is_cut_is_an_error(
    monkeypatch: pytest.MonkeyPatch, args: list[str], room: int
) -> None:
    code, said = left(monkeypatch, Narrow(room), *args)
    assert code == 5
    assert said.count("standard output could not be written: No space left on device") == 1


def test_a_closed_stdout_is_an_error_where_something_was_to_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, said = left(monkeypatch, None, "methods", "--json")
    assert (code, "could not be written: it is closed" in said) == (5, True)


@pytest.mark.parametrize("args", [["methods"], ["methods", "--json"]])
def test_a_reader_that_went_away_is_no_error(
    monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    assert left(monkeypatch, Narrow(20, errno.EPIPE), *args) == (0, "")


@pytest.mark.parametrize("head", [0, 1])
def test_a_search_into_a_pipe_that_closes_is_no_error(world: Path, head: int) -> None:  # noqa: F811
    """As `waysout find … | head -1`; closed before anything is written, the writing must fail."""
    search = subprocess.Popen(
        [sys.executable, "-m", "waysout", *FIND, *ROW, "--method", "random", "--no-run"],
        cwd=world, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    )  # fmt: skip
    assert search.stdout is not None
    assert search.stderr is not None
    if head:
        assert b"ways out" in search.stdout.readline()
    search.stdout.close()
    said = search.stderr.read().decode()
    search.stderr.close()
    cost = "random may cost at most 150 oracle rows for the search and 60 for set-up\n"
    assert (search.wait(60), said) == (0, cost)


def test_a_terminal_of_no_columns_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    stdout = Narrow(100_000)
    assert left(monkeypatch, stdout, "methods") == (0, "")
    assert b"wayfinder" in stdout.got


@pytest.mark.usefixtures("in_world")
@pytest.mark.parametrize(("failure", "expected"), [(errno.EPIPE, 0), (errno.ENOSPC, 5)])
def test_a_search_is_stored_though_its_output_is_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failure: int, expected: int
) -> None:
    run, page = tmp_path / "a.db", tmp_path / "a.html"
    search = (*FIND, *ROW, "--method", "random", "--run", run, "--html", page, "--json")
    assert left(monkeypatch, Narrow(10, failure), *search)[0] == expected
    assert page.exists()
    with Store.open(run) as store:
        assert store.finished(0) is not None


def test_an_error_keeps_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = left(monkeypatch, Narrow(10), "data", "get", "nope", "--json")
    assert code == 3
    assert "unknown data set 'nope'" in said
    assert "could not be written" in said


def test_messages_that_cannot_be_written_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = io.BytesIO()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", io.TextIOWrapper(stdout, "utf-8"))
        patched.setattr(sys, "stderr", io.TextIOWrapper(Narrow(0), "utf-8"))  # type: ignore[type-var]
        patched.setattr(sys, "argv", ["waysout", "data", "get", "nope", "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 3
        assert json.loads(stdout.getvalue())["error"]["code"] == 3


@pytest.mark.usefixtures("in_world")
def test_a_closed_stdin_is_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    code, said = left(monkeypatch, io.BytesIO(), *FIND, "--json-row", "-", "--no-run")  # type: ignore[arg-type]
    assert code == 3
    assert "stdin" in said
