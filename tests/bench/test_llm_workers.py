"""Searches with a real LLM in several processes: as in one, whatever happens to them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_world import LIBRARY, TREE, in_bench, plan, timeless, trained_cache  # noqa: F401
from run_world import Watched
from test_runner import HOT, Dying, Slow, run

from waysout.bench import llm_workers
from waysout.bench.llm_workers import processes_for
from waysout.bench.progress import Outcome, StopAll, Watch
from waysout.bench.results import Results
from waysout.bench.tasks import Queue, Task, backlog_of
from waysout.bench.workers import DIED
from waysout.errors import LLMFailure, LLMUnreachable, UnavailableError
from waysout.llm.base import Request
from waysout.store.tables import full


@pytest.fixture
def results(in_bench: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Results]:  # noqa: F811
    monkeypatch.setattr(llm_workers, "SEARCHES_EACH", 1)
    with Results.open(in_bench / "results") as opened:
        yield opened


def test_small_queues_and_searches_that_are_timed_stay_in_one_process(tmp_path: Path) -> None:
    (queue,) = backlog_of([plan(tmp_path, TREE, LIBRARY)], set(), llms=[Watched()]).queues
    assert queue.searches == 6
    assert processes_for(queue, 8) == 1
    large = Queue(queue.llm, None, tasks=queue.tasks * 100)
    assert (large.searches, processes_for(large, 8), processes_for(large, 4)) == (600, 6, 4)
    assert processes_for(Queue(queue.llm, None, alone=True, tasks=large.tasks), 8) == 1


def test_several_processes_find_what_one_finds_and_ask_no_more(
    results: Results, tmp_path: Path
) -> None:
    grid = "grid = { threshold = [0.0, 0.000001] }"  # which prune the same, so they ask the same
    made, llm = plan(tmp_path, TREE, grid, LIBRARY), Slow()
    ended = run(made, results, llm, jobs=2)
    assert (ended.done, ended.failures, ended.error) == (9, [], None)
    with Results.open(tmp_path / "other") as other:
        alone = Slow()
        run(made, other, alone, jobs=1)
        assert [timeless(c) for c in other.cells()] == [timeless(c) for c in results.cells()]
    assert ended.paid == llm.requests == alone.requests
    assert max(llm.seen.values()) == 1
    filed = sum(cell.value("from_file") or 0 for cell in results.cells())
    calls = sum(cell.value("calls") or 0 for cell in results.cells())
    assert filed == ended.from_file == calls - ended.paid > 0
    for cell in results.cells():
        assert cell.value("llm_seconds") == 0.25 * (cell.value("calls") or 0) > 0


def test_a_process_that_dies_fails_its_searches_and_no_others(
    results: Results, tmp_path: Path
) -> None:
    killed: list[int] = []

    async def kills(request: Request, attempt: int) -> None:
        children = sorted(multiprocessing.active_children(), key=lambda child: child.pid or 0)
        if not killed and len(children) == 2:
            killed.append(children[0].pid or 0)
            children[0].kill()

    made = plan(tmp_path, TREE, LIBRARY)
    ended = run(made, results, Watched(kills), jobs=2)
    assert killed
    assert {failed.reason for failed in ended.failures} == {DIED}
    assert ended.done + len(ended.failures) == 6
    assert ended.done > 0 < len(ended.failures)
    again = run(made, results, Watched(), jobs=2)
    assert (again.on_file, again.done, again.failures) == (ended.done, 6 - ended.done, [])


@pytest.mark.slow
def test_a_stop_ends_all_processes_and_blames_nobody(results: Results, tmp_path: Path) -> None:
    made, stop = plan(tmp_path, TREE, LIBRARY, HOT), StopAll()

    class Impatient(Watch):
        def searched(self, task: Task, outcome: Outcome) -> None:
            stop("enough")

    ended = run(made, results, Watched(parallel=2), progress=Impatient(), stop=stop, jobs=2)
    assert (ended.stopped, ended.failures, results.failures()) == ("enough", [], [])
    assert 1 <= ended.done < 9
    assert not multiprocessing.active_children()
    again = run(made, results, Watched(), jobs=2)
    assert again.on_file + again.done == 9


@pytest.mark.slow
def test_an_llm_that_is_gone_ends_all_and_its_replies_are_kept(
    results: Results, tmp_path: Path
) -> None:
    made = plan(tmp_path, TREE, LIBRARY, HOT)
    ended = run(made, results, Dying(20, LLMFailure("gone")), jobs=2)
    assert isinstance(ended.error, LLMUnreachable)
    assert (ended.paid, ended.done < 9) == (20, True)
    llm, whole = Watched(), Watched()
    run(made, results, llm, jobs=2)
    with Results.open(tmp_path / "other") as other:
        run(made, other, whole, jobs=1)
        assert [timeless(c) for c in other.cells()] == [timeless(c) for c in results.cells()]
    assert llm.requests == whole.requests - 20


@pytest.mark.slow
@pytest.mark.parametrize("table", ["keep_reply", "add"])
def test_a_full_disk_ends_the_run_and_says_so(
    table: str, results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise full(results.path)

    monkeypatch.setattr(Results, table, fails)
    with pytest.raises(UnavailableError, match="the disk is full"):
        run(plan(tmp_path, TREE, LIBRARY), results, Watched(), jobs=2)
    assert results.failures() == []
