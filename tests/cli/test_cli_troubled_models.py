"""Models that go wrong on the row of one person, asked by the commands and by worker processes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cli_world import REFUSED, in_world, world  # noqa: F401
from inline_executor import InlineExecutor, work_inline

from conftest import CommandLine
from waysout.batch.apart import OracleApart
from waysout.batch.tables import people

# What a model does on the rows of some people.
SCORE = """
import multiprocessing, os, time
class Panic(BaseException):
    pass
def score(frame):
    rows = list(zip(frame["age"], frame["income"], frame["debt"]))
    for person, trouble in {0}.items():
        if person in rows:
            trouble()
    return frame["income"] / 100
def waits():
    while True:
        time.sleep(0.01)
def panics():
    raise Panic("at src/lib.rs:7")
def leaves():
    raise SystemExit(3)
def dies():
    if multiprocessing.parent_process():  # else it would end the tests
        os._exit(9)
"""
FIRST = (40, 42, 20)
SOON = ("--row-seconds", "0.3")
NO_LLM = ("--calls", "0", "--oracle-rows", "10")


@pytest.fixture
def files(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:  # noqa: F811
    """Stand in a folder where models may be written; return the options of table and card."""
    monkeypatch.chdir(tmp_path)
    return ["--data", str(world / "loans.csv"), "--card", str(world / "loans.toml")]


def model(name: str, **troubles: tuple[int, int, int]) -> list[str]:
    """Write a model that does this on these people; return the option."""
    on = ", ".join(f"{person}: {trouble}" for trouble, person in troubles.items())
    Path(f"{name}.py").write_text(SCORE.replace("{0}", f"{{{on}}}"), "utf-8")
    return ["--model", f"{name}:score"]


def told(out: Path) -> dict[int, tuple[str, str]]:
    """Return how the searches of a batch ended, and why."""
    found: list[dict[str, Any]] = [person for table in people(out) for person in table.to_pylist()]
    return {person["row_id"]: (person["outcome"], person["reason"]) for person in found}


def person(table: Path, row: int) -> tuple[int, int, int]:
    """Return a row of the table: its age, income and debt."""
    _, age, income, debt, *_ = table.read_text("utf-8").splitlines()[1 + row].split(",")
    return int(age), int(income), int(debt)


def test_a_row_that_hangs_is_given_up_when_the_user_says(
    waysout: CommandLine, files: list[str]
) -> None:
    hangs = model("hangs_for_find", waits=FIRST)
    code, out, err = waysout("find", *hangs, *files, "--row", "0", *SOON, *NO_LLM, "--no-run")
    assert code == 4, err
    assert "did not answer a row within 0.303 s" in " ".join(out.split())


def test_a_batch_gives_up_a_row_that_hangs_when_the_user_says(
    waysout: CommandLine, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_inline(monkeypatch)
    out = tmp_path / "ways"
    hangs = model("hangs_for_batch", waits=FIRST)
    code, _, err = waysout("batch", *hangs, *files, *SOON, *NO_LLM, "--limit", "4", "--out", out)
    assert code == 0, err
    outcomes = told(out)
    assert "did not answer a row within 0.303 s" in outcomes[REFUSED][1]
    assert Counter(outcome for outcome, _ in outcomes.values())["failed"] == 1
    # By it a worker is waited for that says nothing.
    assert InlineExecutor.made.pop().job.row_seconds == 0.3


def test_in_worker_processes_panics_and_exits_fail_one_person_each(
    waysout: CommandLine, files: list[str], tmp_path: Path
) -> None:
    out, table = tmp_path / "ways", Path(files[1])
    troubled = model("troubled", panics=FIRST, leaves=person(table, 3))
    given = ("--limit", "8", "--part-rows", "4", "--workers", "1", "--out", out)
    code, _, err = waysout("batch", *troubled, *files, *NO_LLM, *given)
    assert code == 0, err
    outcomes = told(out)
    failed = {row: reason for row, (kind, reason) in outcomes.items() if kind == "failed"}
    assert failed.keys() == {REFUSED, 3}
    assert "raised Panic" in failed[REFUSED]
    assert "raised SystemExit" in failed[3]
    assert Counter(kind for kind, _ in outcomes.values())["found"] >= 3


def test_a_model_that_ends_its_process_is_tried_on_others(
    waysout: CommandLine, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_inline(monkeypatch)  # where it does no harm
    monkeypatch.setattr("waysout.batch.run.OracleApart", OracleApart)
    out, fatal = tmp_path / "ways", model("fatal_on_trial", dies=FIRST)
    code, _, err = waysout("batch", *fatal, *files, *NO_LLM, "--limit", "8", "--out", out)
    assert code == 0, err
    ended = "the model ended the process that asked it (exit code 9)"
    assert f"1 of 20 rows tried have no answer: {ended}" in " ".join(err.split())
    assert len(told(out)) == 8


@pytest.mark.slow
@pytest.mark.parametrize("row", [0, 5])  # the model is tried on the first
def test_a_model_that_ends_its_process_fails_one_person(
    row: int, waysout: CommandLine, files: list[str], tmp_path: Path
) -> None:
    out, table = tmp_path / "ways", Path(files[1])
    fatal = model(f"fatal_{row}", dies=person(table, row))
    given = ("--limit", "8", "--part-rows", "4", "--workers", "1", "--out", out)
    code, _, err = waysout("batch", *fatal, *files, *NO_LLM, *given)
    assert code == 0, err
    outcomes = told(out)
    failed = {row: reason for row, (kind, reason) in outcomes.items() if kind == "failed"}
    assert failed.keys() == {row}
    assert "the process that searched this row died" in failed[row]
    assert Counter(kind for kind, _ in outcomes.values())["found"] >= 3
