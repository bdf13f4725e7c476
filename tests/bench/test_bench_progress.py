"""How long the rest takes, how all is stopped at once, and of which source cells are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bench_world import HEAD, RANDOM, TREE, plan

from waysout.bench import measure
from waysout.bench.progress import PlanProgress, StopAll
from waysout.bench.tasks import Queue, Task, backlog_of
from waysout.run.context import Stop


def test_time_left_goes_by_what_searches_take_not_by_how_many_they_are(tmp_path: Path) -> None:
    long, short = plan(tmp_path, RANDOM, "grid = { rows = [900, 100] }").arms
    queue = Queue(None, tasks=[Task(long, "", (1,)), Task(short, "", (1, 2))])
    clock = iter([100.0, 107.0, 121.0])
    pace = PlanProgress(queue, lambda: next(clock))
    before = pace.seconds_left
    assert before is None
    pace.add(queue.tasks[1])
    pace.add(queue.tasks[1])
    assert pace.seconds_left == 7.0 * 10 / 4
    assert (pace.searched, pace.searches) == (2, 3)
    pace.add(queue.tasks[0])
    assert pace.seconds_left == 0.0


def test_searches_that_will_end_together_count_before_they_end(tmp_path: Path) -> None:
    (tree,) = plan(tmp_path, TREE).arms  # of 4 calls
    queue = Queue(None, tasks=[Task(tree, "m", (1, 2))])
    clock = iter([0.0, 6.0, 9.0])
    pace = PlanProgress(queue, lambda: next(clock))
    for _ in range(6):  # three replies to each
        pace.reply()
    assert (pace.total, pace.done, pace.seconds_left) == (10, 6, 4.0)
    pace.reply()
    pace.add(queue.tasks[0], 4)  # its replies are not counted twice
    assert (pace.searched, pace.done) == (1, 5 + 3)
    pace.add(queue.tasks[0], 4)
    assert (pace.done, pace.seconds_left) == (10, 0.0)


def test_a_stop_of_all_ends_those_that_are_there_and_those_that_come() -> None:
    stop, early, gone, late = StopAll(), Stop(), Stop(), Stop()
    stop.add(early)
    stop.add(gone)
    stop.remove(gone)
    stop("enough")
    stop("again")
    stop.add(late)
    assert [part.reason for part in (stop, early, gone, late)] == ["enough", "enough", "", "enough"]


def test_queues_are_by_llm_and_by_what_is_measured_alone(tmp_path: Path) -> None:
    crowd = plan(tmp_path, TREE, RANDOM)
    alone = plan(tmp_path, TREE, head=HEAD + "one_by_one = true\nin_flight = 1\n", name="alone")
    real = "openai:m@http://127.0.0.1:1/v1"
    work = backlog_of([alone, crowd], (), llms=["simulated:1", real])
    found = [
        (
            queue.llm and queue.llm.name,
            queue.alone,
            queue.in_flight,
            queue.searches,
            queue.most_calls,
        )
        for queue in work.queues
    ]
    assert found == [
        (None, False, None, 6, 0), (None, True, None, 3, 0),
        (real, False, None, 3, 12), (real, True, 1, 3, 12),
    ]  # fmt: skip
    done = {(crowd.arms[0].id, real, query) for query in work.queues[2].tasks[0].queries}
    left = backlog_of([alone, crowd], done, llms=[real])
    assert (left.searches, left.on_file) == (6, 3)


def test_cells_say_of_which_source_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    measure.source_commit.cache_clear()
    assert re.fullmatch(r"([0-9a-f]{12}(\+changes)?)?", measure.source_commit())
    measure.source_commit.cache_clear()
    monkeypatch.setenv("PATH", "")  # no git here
    assert measure.source_commit() == ""
    measure.source_commit.cache_clear()
