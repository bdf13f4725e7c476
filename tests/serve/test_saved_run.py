from __future__ import annotations

from pathlib import Path

import pytest
from serve_world import ROW, Adder, problem

from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind
from waysout.errors import IntegrityError
from waysout.report.result import Result
from waysout.run.context import Stop
from waysout.run.find import find
from waysout.run.progress import Progress
from waysout.serve.service import SavedRun
from waysout.store import Store


def found(world: Problem, path: Path, after: int = 0) -> Result:
    """Search, and keep the run; ``after`` so many answers it is stopped."""
    stop, seen = Stop(), list[Progress]()

    def count(now: Progress) -> None:
        seen.append(now)
        if len(seen) == after:
            stop("enough")

    return find(
        world, ROW, llm="simulated:7", calls=3, oracle_rows=40, run=path, progress=count, stop=stop
    )


def read(path: Path, world: Problem) -> SavedRun:
    with Store.read(path) as store:
        return SavedRun.read(store, world)


def test_a_finished_run_brings_its_result(tmp_path: Path) -> None:
    world = problem(oracle=Adder())
    result = found(world, tmp_path / "run.db")
    assert read(tmp_path / "run.db", world).result == result


def test_what_the_run_knows_is_not_asked_again(tmp_path: Path) -> None:
    result = found(problem(oracle=Adder()), tmp_path / "run.db")
    oracle = Adder()
    world = problem(oracle=oracle)
    memory = read(tmp_path / "run.db", world).memory
    assert oracle.rows == 0
    assert len(memory) == len(set(memory.of(world, world.row(ROW)).answered)) > 0
    again = find(world, ROW, memory=memory, calls=0, oracle_rows=0)
    assert {o.key: o.row for o in again.options} == {o.key: o.row for o in result.options}
    assert {o.key: o.reasons for o in again.options} == {o.key: o.reasons for o in result.options}
    assert again.ledger.oracle_rows == 0


def test_its_edits_are_there_to_be_combined(tmp_path: Path) -> None:
    world = problem(oracle=Adder())
    result = found(world, tmp_path / "run.db")
    past = read(tmp_path / "run.db", world).memory.of(world, world.row(ROW))
    changes = {(name, to) for o in result.options for name, (_, to) in o.changes.items()}
    assert past.edits
    assert {(edit.feature, edit.value) for edit in past.edits} <= changes
    assert all(edit.reason for edit in past.edits)  # those without are the search's own
    assert past.calls == result.ledger.llm_calls


def test_a_run_that_was_cut_off_brings_what_it_has(tmp_path: Path) -> None:
    world = problem(oracle=Adder())
    result = found(world, tmp_path / "run.db", after=2)
    assert result.outcome.kind == OutcomeKind.INTERRUPTED
    assert read(tmp_path / "run.db", world).result == result


def test_a_run_that_was_killed_brings_the_options_on_file(tmp_path: Path) -> None:
    world, path = problem(oracle=Adder()), tmp_path / "run.db"
    whole = found(problem(oracle=Adder()), tmp_path / "whole.db")
    with Store.create(path, {"method": "recombine"}) as store:
        store.add_query(0, ROW)
        store.options_found(0, whole.options)
    adopted = read(path, world)
    assert adopted.result.outcome.kind == OutcomeKind.INTERRUPTED
    assert adopted.result.options == whole.options


def test_a_run_of_nobody_cannot_be_opened(tmp_path: Path) -> None:
    Store.create(tmp_path / "run.db", {"method": "recombine"}).close()
    with pytest.raises(IntegrityError, match="holds no query yet"):
        read(tmp_path / "run.db", problem(oracle=Adder()))
