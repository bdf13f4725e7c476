"""Plans, run: once, side by side, resumable, and with failures that stay where they are."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_world import HEAD, LIBRARY, TREE, in_bench, plan, timeless, trained_cache  # noqa: F401
from run_world import Watched, a_third_fails, no_waiting

from waysout.errors import IntegrityError, LLMError, LLMFailure, LLMUnreachable
from waysout.experiments.cell import Cells
from waysout.experiments.measure import world
from waysout.experiments.plan import Plan
from waysout.experiments.progress import Outcome, StopAll, Summary, Watch
from waysout.experiments.results import Results
from waysout.experiments.runner import run_plan, run_plans
from waysout.experiments.work import Todo, work_of
from waysout.llm.base import Backend, Reply, Request
from waysout.run.find import find

HOT = """
[[arms]]
name = "hot"
method = "lats-high-temp"
"""


@pytest.fixture
def results(in_bench: Path) -> Iterator[Results]:  # noqa: F811
    with Results.open(in_bench / "results") as opened:
        yield opened


def run(made: Plan, kept: Results, llm: Backend, **options: Any) -> Summary:
    with no_waiting():
        return run_plan(made, kept, llms=[llm], **options)


def forget(results: Results, *, replies: bool) -> None:
    """Take the cells away, as if the process had died before, and maybe the replies."""
    with sqlite3.connect(results.path) as db:
        db.execute("DELETE FROM cells")
        if replies:
            db.execute("DELETE FROM replies")
    db.close()


# Finished once ---------------------------------------------------------------------------------


def test_all_searches_are_done_once(results: Results, tmp_path: Path) -> None:
    made, llm = plan(tmp_path, TREE, LIBRARY), Watched()
    ended = run(made, results, llm)
    assert (ended.done, ended.to_do, ended.on_file, ended.failures) == (6, 6, 0, [])
    cells = results.cells()
    assert {(cell.arm, cell.llm) for cell in cells} == {(arm.id, llm.name) for arm in made.arms}
    assert ended.paid == llm.requests == sum(llm.replied.values())
    before = llm.requests
    again = run(made, results, llm)
    assert (again.done, again.to_do, again.on_file, again.paid) == (0, 0, 6, 0)
    assert llm.requests == before


def test_a_cell_is_what_find_finds(results: Results, tmp_path: Path) -> None:
    made = plan(tmp_path, TREE)
    run(made, results, Watched())
    place, arm = world("synthetic"), made.arms[0]
    for query, cell in results.cells().of(arm, "simulated:7").items():
        found = find(
            place.problem("realistic"), place.data.rows[query], method="comp-mcts",
            llm="simulated:7", k=2, calls=4, oracle_rows=8, data=place.data,
        )  # fmt: skip
        assert cell.metrics == found.metrics
        assert cell.metrics["unique_valid"] == len(cell.found)
        assert cell.found == tuple(sorted(cell.found))
        assert (cell.value("calls"), cell.value("rows")) == (4, found.ledger.oracle_rows)
        assert cell.oracle == place.sha256
        assert cell.spec == arm.spec
        assert (cell.version != "", cell.outcome) == (True, str(found.outcome.kind))


def test_more_queries_add_to_what_is_there(results: Results, tmp_path: Path) -> None:
    made, llm = plan(tmp_path, TREE), Watched()
    run(made.cut(queries=2), results, llm)
    first = set(llm.seen)
    ended = run(made, results, llm)
    assert (ended.on_file, ended.done) == (2, 1)
    assert llm.requests == len(llm.seen) > len(first)


def test_two_plans_run_what_they_share_once(results: Results, tmp_path: Path) -> None:
    one = plan(tmp_path, TREE, name="one")
    two = plan(tmp_path, TREE.replace('"tree"', '"by another name"'), LIBRARY, name="two")
    work = work_of([one, two], results.done(), llms=[Watched()])
    assert (work.searches, work.on_file, len(work.lanes)) == (6, 0, 1)
    ended = run_plans([one, two], work, results)
    assert (ended.done, len(results.cells())) == (6, 6)
    assert [noted.name for noted in results.plans()] == ["one", "two"]


def test_each_llm_has_cells_of_its_own(results: Results, tmp_path: Path) -> None:
    made, other = plan(tmp_path, TREE), Watched()
    other.name = "another"
    run_plan(made, results, llms=[Watched(), other])
    assert results.cells().llms == ("another", "simulated:7")
    assert len(results.cells()) == 6


# Replies -----------------------------------------------------------------------------------------


class Slow(Watched):
    """Says of each reply that it took a quarter of a second."""

    async def complete(self, request: Request) -> Reply:
        return replace(await super().complete(request), latency=0.25)


def test_a_search_knows_its_own_replies_among_many(results: Results, tmp_path: Path) -> None:
    run(plan(tmp_path, TREE, LIBRARY, "calls = 3"), results, Slow())
    for cell in results.cells():
        assert cell.value("llm_seconds") == 0.25 * (cell.value("calls") or 0) > 0
    assert sum(cell.value("from_file") or 0 for cell in results.cells()) == 0


def test_what_was_answered_before_a_kill_is_not_asked_again(
    results: Results, tmp_path: Path
) -> None:
    made = plan(tmp_path, TREE, LIBRARY)
    run(made, results, Slow())
    before = [timeless(cell) for cell in results.cells()]
    forget(results, replies=False)
    llm = Slow()
    ended = run(made, results, llm)
    assert (llm.requests, ended.paid, ended.done) == (0, 0, 6)
    assert [timeless(cell) for cell in results.cells()] == before
    for cell in results.cells():
        assert cell.value("from_file") == cell.value("calls")
        assert cell.value("llm_seconds") == 0.25 * (cell.value("calls") or 0)


def test_searches_that_ask_the_same_share_one_reply(results: Results, tmp_path: Path) -> None:
    grid = "grid = { threshold = [0.0, 0.000001] }"  # which prune the same, so they ask the same
    llm = Watched()
    ended = run(plan(tmp_path, TREE, grid), results, llm)
    assert set(llm.seen.values()) == {1}
    assert (ended.paid, ended.from_file) == (llm.requests, llm.requests)


class Patient(Watched):
    """Answers nobody before so many have asked, for a while."""

    def __init__(self, wanted: int) -> None:
        super().__init__(self._wait)
        self.wanted = wanted

    async def _wait(self, request: Request, attempt: int) -> None:
        for _ in range(200):
            await asyncio.sleep(0.005)
            if self.most_at_once >= self.wanted:
                return


def test_requests_in_flight_are_bounded_over_all_arms(results: Results, tmp_path: Path) -> None:
    llm = Patient(2)
    run(plan(tmp_path, TREE, LIBRARY, HOT), results, llm, in_flight=2)
    assert llm.most_at_once == 2


def test_a_backend_that_takes_more_once_it_is_loaded_gets_more(
    results: Results, tmp_path: Path
) -> None:
    class Loading(Patient):
        async def complete(self, request: Request) -> Reply:
            self.parallel = 6
            return await super().complete(request)

    llm = Loading(6)
    llm.parallel = 1
    run(plan(tmp_path, TREE, LIBRARY, HOT), results, llm)
    assert 1 < llm.most_at_once <= 6


def test_people_of_many_arms_are_asked_for_at_once(results: Results, tmp_path: Path) -> None:
    llm = Patient(9)
    run(plan(tmp_path, TREE, LIBRARY, HOT), results, llm)
    assert llm.most_at_once == 9  # three people of three arms


def test_searches_measured_alone_share_neither_time_nor_replies(
    results: Results, tmp_path: Path
) -> None:
    crowd = plan(tmp_path, TREE, LIBRARY)
    alone = plan(tmp_path, TREE, LIBRARY, head=HEAD + "in_flight = 1\none_by_one = true\n")
    run(crowd, results, Watched())
    llm, seen = Watched(), list[tuple[str, int]]()

    class Order(Watch):
        def searched(self, todo: Todo, outcome: Outcome) -> None:
            seen.append((todo.arm.name, outcome.query))

    ended = run(alone, results, llm, progress=Order())
    assert (ended.on_file, ended.done, ended.from_file) == (0, 6, 0)
    assert (llm.most_at_once, ended.paid) == (1, llm.requests)
    people = [query for name, query in seen if name == "tree"]
    assert seen == [(name, query) for name in ("tree", "library") for query in people]
    cells = results.cells()
    for one, other in zip(crowd.arms, alone.arms, strict=True):
        together = {q: c.metrics for q, c in cells.of(one, llm.name).items()}
        assert {q: c.metrics for q, c in cells.of(other, llm.name).items()} == together


# Failures ----------------------------------------------------------------------------------------


def test_faults_of_the_server_change_nothing(results: Results, tmp_path: Path) -> None:
    made = plan(tmp_path, TREE, LIBRARY)
    run(made, results, Watched())
    good = [timeless(cell).metrics for cell in results.cells()]
    forget(results, replies=True)
    ended = run(made, results, Watched(a_third_fails))
    assert (ended.done, ended.failures, ended.error) == (6, [], None)
    assert [timeless(cell).metrics for cell in results.cells()] == good


async def hot_ones_fail(request: Request, attempt: int) -> None:
    if request.temperature > 1:
        raise LLMFailure("too hot", alive=True)


def test_an_arm_that_fails_stops_no_other_and_is_tried_again(
    results: Results, tmp_path: Path
) -> None:
    made = plan(tmp_path, HOT, TREE, LIBRARY)
    ended = run(made, results, Watched(hot_ones_fail))
    assert (ended.done, len(ended.failures), ended.left) == (6, 3, 0)
    assert {failure.arm for failure in results.failures()} == {made.arms[0].id}
    assert "too hot" in results.failures()[0].reason
    assert ended.error is None  # the others were answered
    again = run(made, results, Watched())
    assert (again.on_file, again.done, again.failures) == (6, 3, [])
    assert results.failures() == []


class Dying(Watched):
    """Answers so many requests, then no more."""

    def __init__(self, answers: int, error: LLMError) -> None:
        super().__init__(parallel=2)
        self.answers, self.error = answers, error

    async def complete(self, request: Request) -> Reply:
        if self.replied.total() >= self.answers:
            raise self.error
        return await super().complete(request)


def test_an_llm_that_is_gone_ends_its_searches_and_nothing_is_lost(
    results: Results, tmp_path: Path
) -> None:
    made = plan(tmp_path, TREE, LIBRARY, HOT)
    ended = run(made, results, Dying(20, LLMFailure("gone")))
    assert isinstance(ended.error, LLMUnreachable)
    assert ended.paid == 20
    assert ended.done + len(ended.failures) + ended.left == 9
    assert ended.done < 9
    llm = Watched()
    again = run(made, results, llm)
    assert (again.on_file, again.on_file + again.done) == (ended.done, 9)
    with Results.open(tmp_path / "other") as other:
        whole = Watched()
        run(made, other, whole)
        assert [timeless(c) for c in other.cells()] == [timeless(c) for c in results.cells()]
    assert llm.requests == whole.requests - 20


def test_an_llm_that_is_set_up_wrongly_is_asked_once(results: Results, tmp_path: Path) -> None:
    ended = run(plan(tmp_path, TREE, LIBRARY), results, Dying(0, LLMError("no such model")))
    assert str(ended.error) == "no such model"
    assert (ended.done, ended.paid, len(results.cells())) == (0, 0, 0)


def test_arms_that_cannot_be_run_are_listed_and_the_rest_is_done(
    results: Results, tmp_path: Path
) -> None:
    head = HEAD.replace('["synthetic"]', '["loan", "synthetic"]').replace('"realistic"', '"paper"')
    here = f'{TREE}datasets = ["synthetic"]\nrules = "basic"\n'
    absent = f'{LIBRARY}datasets = ["loan"]\n'
    ended = run(plan(tmp_path, here, absent, head=head), results, Watched())
    assert (ended.done, len(ended.failures)) == (3, 3)
    assert {failure.data for failure in ended.failures} == {"loan"}
    assert "waysout oracle train loan" in ended.failures[0].reason


def test_a_bug_in_one_arm_is_listed(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from waysout.search.recombine import Recombine

    def broken(self: Recombine, case: object) -> object:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Recombine, "start", broken)
    ended = run(plan(tmp_path, LIBRARY, TREE), results, Watched())
    assert (ended.done, len(ended.failures)) == (3, 3)
    assert "ZeroDivisionError: a bug" in ended.failures[0].reason


def test_searches_of_another_oracle_are_not_added_to(results: Results, tmp_path: Path) -> None:
    made = plan(tmp_path, TREE)
    run(made.cut(queries=1), results, Watched())
    (cell,) = results.cells()
    results.add(replace(cell, oracle="f" * 64))
    with pytest.raises(IntegrityError, match=r"searches on synthetic in .* of another oracle"):
        run(made, results, Watched())


def test_a_full_disk_ends_the_run_and_says_so(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from waysout.errors import UnavailableError
    from waysout.store.faults import full

    def fails(*_: object) -> None:
        raise full(results.path)

    monkeypatch.setattr(Results, "add", fails)
    monkeypatch.setattr(Results, "add_failure", fails)
    with pytest.raises(UnavailableError, match="the disk is full"):
        run(plan(tmp_path, TREE, LIBRARY), results, Watched())


# Stopping ----------------------------------------------------------------------------------------


def test_a_run_that_is_stopped_keeps_what_is_done_and_blames_nobody(
    results: Results, tmp_path: Path
) -> None:
    made, stop = plan(tmp_path, TREE, LIBRARY, HOT), StopAll()

    class Impatient(Watch):
        def searched(self, todo: Todo, outcome: Outcome) -> None:
            stop("enough")

    ended = run(made, results, Watched(parallel=1), progress=Impatient(), stop=stop)
    assert (ended.stopped, ended.failures, results.failures()) == ("enough", [], [])
    assert 1 <= ended.done < 9
    assert ended.left == 9 - ended.done
    again = run(made, results, Watched())
    assert again.on_file + again.done == 9


def test_cells_read_from_an_export_are_those_of_the_folder(
    results: Results, tmp_path: Path
) -> None:
    from waysout.experiments.cell import write_cells

    run(plan(tmp_path, TREE), results, Watched())
    write_cells(tmp_path / "x.jsonl.gz", results.cells())
    assert list(Cells.read([tmp_path / "x.jsonl.gz"])) == list(results.cells())
