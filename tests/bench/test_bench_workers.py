"""Searches in processes: the same as in one, and a process that dies takes nothing with it."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest
from bench_world import RANDOM, TREE, in_bench, plan, timeless, trained_cache  # noqa: F401

from waysout.bench.arms import Arm
from waysout.bench.cell import Cell
from waysout.bench.progress import Outcome, StopAll, Watch
from waysout.bench.results import Failure, Results
from waysout.bench.runner import run_plan
from waysout.bench.tasks import Queue, Task
from waysout.bench.workers import DIED, WorkerPool, search
from waysout.datasets.queries import queries
from waysout.errors import MissingExtra
from waysout.search.random import RandomEdits


class Bomb(Arm):
    """Ends the process that it is sent to."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (3,)


def as_bomb(arm: Arm) -> Bomb:
    return Bomb(**{field.name: getattr(arm, field.name) for field in fields(Arm)})


@pytest.mark.usefixtures("in_bench")
def test_processes_find_what_one_finds_and_methods_that_miss_something_fail_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[int] = []

    def learn(self: RandomEdits, problem: object, known: object, tell: object) -> None:
        learned.append(self.batch)
        if self.batch == 7:
            raise MissingExtra("torch", "torch")

    monkeypatch.setattr(RandomEdits, "learn", learn)
    monkeypatch.setenv("WAYSOUT_MINILM", str(tmp_path / "nowhere"))
    grids = 'grid = { pruning = ["embedding", "gzip"] }', "grid = { batch = [5, 7] }"
    made, before = plan(tmp_path, TREE, grids[0], RANDOM, grids[1]), dict(os.environ)
    with Results.open(tmp_path / "results") as results:
        ended = run_plan(made, results, jobs=1)
        found, reasons = results.cells(), {f.arm: f.reason for f in results.failures()}
    embedding, gzip, random, missing = made.arms
    assert learned == [5, 7]  # here, before any process began
    assert dict(os.environ) == before
    assert (ended.done, len(ended.failures), ended.paid) == (6, 6, 0)
    assert set(reasons) == {embedding.id, missing.id}
    assert "waysout[torch]" in reasons[missing.id]
    for arm, llm in ((gzip, "simulated:1"), (random, "")):
        there = found.of(arm, llm)
        assert len(there) == 3
        for query, cell in there.items():
            assert _figures(search(Task(arm, llm, (query,)), "", tmp_path)) == _figures(cell)


def _figures(outcome: Outcome) -> tuple[object, ...]:
    assert isinstance(outcome, Cell)
    cell = timeless(outcome)
    return cell.key, cell.oracle, cell.outcome, cell.metrics, cell.found, cell.spent, cell.spec


@pytest.mark.slow
@pytest.mark.usefixtures("in_bench")
def test_a_process_that_dies_is_reported_for_what_it_did_and_nothing_else_is_lost(
    tmp_path: Path,
) -> None:
    *trees, random = plan(tmp_path, TREE, "grid = { seed = [0, 1, 2] }", RANDOM).arms
    person = tuple(queries("synthetic")[:1])
    kept: list[Outcome] = []
    pool = WorkerPool(
        2, "", lambda task, outcome: kept.append(outcome), Watch(), StopAll(), tmp_path
    )
    # The process that follows the dead one has nobody of its own left, and helps the other.
    todos = [
        *(Task(tree, "simulated:1", person) for tree in trees),
        Task(as_bomb(random), "", person),
    ]
    pool.run(Queue(None, tasks=todos))
    failures = [outcome for outcome in kept if isinstance(outcome, Failure)]
    assert [(f.arm, f.query, f.reason) for f in failures] == [(random.id, *person, DIED)]
    cells = [outcome for outcome in kept if isinstance(outcome, Cell)]
    assert sorted(cell.arm for cell in cells) == sorted(tree.id for tree in trees)


@pytest.mark.slow
@pytest.mark.usefixtures("in_bench")
def test_what_takes_long_goes_first_and_the_arms_of_a_person_one_after_the_other(
    tmp_path: Path,
) -> None:
    grid = 'grid = { pruning = ["none", "gzip"] }'
    random, none, gzip = plan(tmp_path, RANDOM, TREE, grid).arms
    assert none.calls > random.rows // 100
    people = tuple(queries("synthetic")[:2])
    begun: list[tuple[str, int]] = []
    pool = WorkerPool(
        1,
        "",
        lambda task, _: begun.append((task.arm.name, task.queries[0])),
        Watch(),
        StopAll(),
        tmp_path,
    )
    pool.run(Queue(None, tasks=[Task(arm, "simulated:1", people) for arm in (random, none, gzip)]))
    by_person = [(arm.name, person) for person in people for arm in (none, gzip)]
    assert begun == [*by_person, *((random.name, person) for person in people)]
