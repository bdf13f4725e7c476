"""Plans, run: once, side by side, resumable, and with failures that stay where they are."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_world import (  # noqa: F401
    HEAD,
    LIBRARY,
    RANDOM,
    TREE,
    in_bench,
    plan,
    timeless,
    trained_cache,
)
from run_world import Watched, a_third_fails, no_waiting

from waysout.bench.cell import Cells
from waysout.bench.measure import environment, made_of
from waysout.bench.plan import ExperimentPlan
from waysout.bench.progress import Outcome, PlanSummary, StopAll, Watch
from waysout.bench.results import Results
from waysout.bench.runner import run_plan, run_plans
from waysout.bench.tasks import Task, backlog_of
from waysout.datasets.queries import queries
from waysout.domain.distance import Distance
from waysout.errors import IntegrityError, LLMError, LLMFailure, LLMUnreachable
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


def run(made: ExperimentPlan, kept: Results, llm: Backend, **options: Any) -> PlanSummary:
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
    place, arm = environment("synthetic"), made.arms[0]
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
    work = backlog_of([one, two], results.done(), llms=[Watched()])
    assert (work.searches, work.on_file, len(work.queues)) == (6, 0, 1)
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

    llm = Loading(2)
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
        def searched(self, task: Task, outcome: Outcome) -> None:
            seen.append((task.arm.name, outcome.query))

    ended = run(alone, results, llm, progress=Order())
    assert (ended.on_file, ended.done, ended.from_file) == (0, 6, 0)
    assert (llm.most_at_once, ended.paid) == (1, llm.requests)
    people = [query for name, query in seen if name == "tree"]
    assert seen == [(name, query) for name in ("tree", "library") for query in people]
    cells = results.cells()
    for one, other in zip(crowd.arms, alone.arms, strict=True):
        together = {q: c.metrics for q, c in cells.of(one, llm.name).items()}
        assert {q: c.metrics for q, c in cells.of(other, llm.name).items()} == together


def test_arms_measured_alone_share_no_replies_with_each_other(
    results: Results, tmp_path: Path
) -> None:
    head = HEAD.replace("queries = 3", "queries = 1") + "in_flight = 1\none_by_one = true\n"
    grid = 'grid = { pruning = ["gzip", "none"] }'  # which begin with the same question
    llm = Watched()
    ended = run(plan(tmp_path, TREE, grid, head=head), results, llm)
    assert (ended.done, ended.from_file, ended.paid) == (2, 0, llm.requests)
    assert 2 in llm.seen.values()


def test_timed_arms_may_run_side_by_side_each_with_one_search(
    results: Results, tmp_path: Path
) -> None:
    now, most = Counter[float](), Counter[float]()
    both = asyncio.Event()

    async def counts(request: Request, attempt: int) -> None:
        arm = request.temperature  # which tells these arms apart
        now[arm] += 1
        most[arm] = max(most[arm], now[arm])
        if len(now) == 2:
            both.set()
        await both.wait()  # for ever, if one arm waited for the other
        now[arm] -= 1

    head = HEAD + "in_flight = 2\none_by_one = true\n"
    llm = Watched(counts)
    ended = run(plan(tmp_path, TREE, HOT, head=head), results, llm)
    assert (ended.done, ended.from_file, llm.most_at_once) == (6, 0, 2)
    assert sorted(most.values()) == [1, 1]
    assert {cell.value("at_once") for cell in results.cells()} == {2}


def test_an_llm_is_connected_once_for_all_that_ask_it(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[str]()

    def connects(text: str) -> Backend:
        opened.append(text)
        return Watched()

    monkeypatch.setattr("waysout.bench.runner.connect", connects)
    crowd = plan(tmp_path, TREE, name="crowd")
    timed = plan(tmp_path, TREE, head=HEAD + "one_by_one = true\n", name="timed")
    llms = ["openai:a@http://localhost:1/v1", "openai:b@http://localhost:1/v1"]
    work = backlog_of([crowd, timed], set(), llms=llms)
    assert [(q.llm.reached, q.alone) for q in work.queues if q.llm] == [
        (llm, alone) for llm in llms for alone in (False, True)
    ]
    ended = run_plans([crowd, timed], work, results)
    assert (ended.done, ended.failures, opened) == (12, [], llms)


# Failures ----------------------------------------------------------------------------------------


def test_faults_of_the_server_change_nothing(results: Results, tmp_path: Path) -> None:
    made = plan(tmp_path, TREE, LIBRARY)
    run(made, results, Watched())
    good = [timeless(cell).metrics for cell in results.cells()]
    forget(results, replies=True)
    ended = run(made, results, Watched(a_third_fails))
    assert (ended.done, ended.failures, ended.error) == (6, [], None)
    assert [timeless(cell).metrics for cell in results.cells()] == good


def test_an_arm_that_fails_stops_no_other_and_is_tried_again(
    results: Results, tmp_path: Path
) -> None:
    async def hot_ones_fail_first(request: Request, attempt: int) -> None:
        if request.temperature > 1:
            raise LLMFailure("too hot", alive=True)
        while len(results.failures()) < 3:  # the LLM answers the others after that: it is alive
            await asyncio.sleep(0)

    made = plan(tmp_path, HOT, TREE, LIBRARY)
    ended = run(made, results, Watched(hot_ones_fail_first))
    assert (ended.done, len(ended.failures), ended.left, ended.error) == (6, 3, 0, None)
    assert {failure.arm for failure in results.failures()} == {made.arms[0].id}
    assert "too hot" in results.failures()[0].reason
    again = run(made, results, Watched())
    assert (again.on_file, again.done, again.failures) == (6, 3, [])
    assert results.failures() == []


def test_a_call_that_fails_for_good_is_one_persons_failure(
    results: Results, tmp_path: Path
) -> None:
    async def the_first_fails(request: Request, attempt: int) -> None:
        if request.key(llm.name) == next(iter(llm.seen)):
            while not llm.replied:  # the others are answered
                await asyncio.sleep(0)
            raise LLMFailure("not this one", alive=True)

    made, llm = plan(tmp_path, TREE), Watched(the_first_fails)
    ended = run(made, results, llm)
    (failure,) = results.failures()
    assert (ended.done, ended.failures, ended.left) == (2, [failure], 0)
    assert "not this one" in failure.reason
    assert {failure.query, *results.cells().of(made.arms[0], llm.name)} == set(
        queries("synthetic")[:3]
    )
    assert ended.error is None


class Dying(Watched):
    """Answers so many requests, then no more."""

    def __init__(self, answers: int, error: LLMError) -> None:
        super().__init__(parallel=2)
        self.answers, self.error, self.refused = answers, error, 0

    async def complete(self, request: Request) -> Reply:
        if self.replied.total() >= self.answers:
            self.refused += 1
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


def test_a_server_that_is_gone_is_not_asked_by_arm_after_arm(
    results: Results, tmp_path: Path
) -> None:
    made = plan(tmp_path, TREE, f"grid = {{ seed = {[*range(32)]} }}")
    llm = Dying(0, LLMFailure("gone"))
    assert isinstance(run(made, results, llm).error, LLMUnreachable)
    assert 0 < llm.refused < 4 * 32  # four attempts of one person in each arm


def test_arms_wait_for_those_under_way_to_tell_whether_the_llm_is_gone(
    results: Results, tmp_path: Path
) -> None:
    asked = []

    async def gone_for_hot_ones(request: Request, attempt: int) -> None:
        if request.temperature > 1:
            asked.append(request)
            raise LLMUnreachable("gone")
        while asked and not results.failures():
            await asyncio.sleep(0)
        await asyncio.sleep(0.005)  # and others have heard of it

    head = HEAD.replace("queries = 3", "queries = 1")
    made = plan(tmp_path, HOT, TREE, f"grid = {{ seed = {[*range(12)]} }}", head=head)
    ended = run(made, results, Watched(gone_for_hot_ones, parallel=4))
    assert (ended.done, len(ended.failures), ended.error) == (12, 1, None)


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
    with pytest.raises(IntegrityError, match=r"searches on synthetic in .* a different oracle"):
        run(made, results, Watched())


def test_a_full_disk_ends_the_run_and_says_so(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from waysout.errors import UnavailableError
    from waysout.store.tables import full

    def fails(*_: object) -> None:
        raise full(results.path)

    monkeypatch.setattr(Results, "add", fails)
    monkeypatch.setattr(Results, "add_failure", fails)
    with pytest.raises(UnavailableError, match="the disk is full"):
        run(plan(tmp_path, TREE, LIBRARY), results, Watched())


@pytest.mark.parametrize("table", ["keep_reply", "add"])
def test_what_cannot_be_filed_ends_the_run_before_more_is_paid_for(
    table: str, results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from waysout.errors import UnavailableError
    from waysout.store.tables import full

    file, filed = getattr(Results, table), list[object]()

    def fills_up(self: Results, *values: object) -> None:
        if filed:  # and there is room again for what is smaller
            raise full(results.path)
        file(self, *values)
        filed.append(values)

    monkeypatch.setattr(Results, table, fills_up)
    llm = Watched(parallel=1)
    with pytest.raises(UnavailableError, match="the disk is full"):
        run(plan(tmp_path, TREE, LIBRARY, HOT), results, llm)
    assert results.failures() == []
    assert llm.requests == 2 if table == "keep_reply" else len(filed) == 1


def test_a_reply_that_is_damaged_is_said_to_be(results: Results, tmp_path: Path) -> None:
    made = plan(tmp_path, TREE)
    run(made, results, Watched())
    forget(results, replies=False)
    with sqlite3.connect(results.path) as db:
        db.execute("UPDATE replies SET body = '{}'")
    db.close()
    ended = run(made, results, Watched())
    assert {f"{results.path} is damaged" in failure.reason for failure in ended.failures} == {True}


# What decides a search ---------------------------------------------------------------------------


def test_searches_made_of_something_else_are_not_added_to(results: Results, tmp_path: Path) -> None:
    made = plan(tmp_path, TREE)
    run(made.cut(queries=1), results, Watched())
    (cell,) = results.cells()
    assert cell.made_of == made_of(made.arms[0], environment("synthetic"))
    results.add(replace(cell, made_of="f" * 12))
    llm = Watched()
    with pytest.raises(IntegrityError, match=r"of tree on synthetic in .* with different inputs"):
        run(made, results, llm)
    assert llm.requests == 0
    assert run(plan(tmp_path, LIBRARY), results, llm).done == 3  # of another arm
    results.add(replace(cell, made_of=""))  # it is older, and does not say
    assert run(made, results, llm).done == 2


@pytest.mark.usefixtures("in_bench")
def test_what_an_arm_is_made_of_is_the_card_the_scales_and_the_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from waysout.search.comp_mcts import CompMCTS

    (arm,), place = plan(tmp_path, TREE).arms, environment("synthetic")
    problem, today = place.problem(arm.rules), made_of(arm, place)

    def with_problem(**changes: Any) -> str:
        key = ("problem", arm.rules, arm.binning)
        return made_of(arm, replace(place, _made={key: replace(problem, **changes)}))

    def with_scales(factor: float) -> Distance:
        scales = {name: scale * factor for name, scale in problem.distance.scales.items()}
        return replace(problem.distance, scales=scales)

    assert with_problem() == with_problem(distance=with_scales(1 + 1e-15)) == today
    assert with_problem(title="another") != today
    assert with_problem(distance=with_scales(1.001)) != today
    monkeypatch.setattr(CompMCTS, "settings", lambda self: {"encoder": "another"})
    assert made_of(arm, place) != today


def test_searches_without_an_llm_come_first(results: Results, tmp_path: Path) -> None:
    llm = Watched()
    work = backlog_of([plan(tmp_path, TREE, RANDOM)], results.done(), llms=[llm])
    assert [(queue.llm and queue.llm.name, queue.tasks[0].arm.name) for queue in work.queues] == [
        (None, "random"),
        (llm.name, "tree"),
    ]


# Stopping ----------------------------------------------------------------------------------------


def test_a_run_that_is_stopped_keeps_what_is_done_and_blames_nobody(
    results: Results, tmp_path: Path
) -> None:
    made, stop = plan(tmp_path, TREE, LIBRARY, HOT), StopAll()

    class Impatient(Watch):
        def searched(self, task: Task, outcome: Outcome) -> None:
            stop("enough")

    async def holds_the_hot(request: Request, attempt: int) -> None:
        while request.temperature > 1 and not stop.reason:  # else they may end before the stop
            await asyncio.sleep(0)

    ended = run(made, results, Watched(holds_the_hot), progress=Impatient(), stop=stop)
    assert (ended.stopped, ended.failures, results.failures()) == ("enough", [], [])
    assert 1 <= ended.done <= 6
    assert ended.left == 9 - ended.done
    again = run(made, results, Watched())
    assert again.on_file + again.done == 9


def test_who_stops_while_the_llm_fails_is_told_of_no_failures(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = StopAll()

    async def fails(*_: object, **__: object) -> AsyncGenerator[object]:
        stop("enough")
        for nothing in list[object]():
            yield nothing
        raise LLMUnreachable("gone")

    monkeypatch.setattr("waysout.bench.llm_queue.afind_many", fails)
    ended = run(plan(tmp_path, TREE, LIBRARY), results, Watched(), stop=stop)
    assert (ended.stopped, ended.failures, results.failures()) == ("enough", [], [])


def test_replies_that_were_under_way_at_a_stop_are_on_file(
    results: Results, tmp_path: Path
) -> None:
    stop = StopAll()

    async def stops(request: Request, attempt: int) -> None:
        stop("enough")
        await asyncio.sleep(0.05)  # until nobody waits for it any more

    made, llm = plan(tmp_path, TREE), Watched(stops)
    ended = run(made, results, llm, stop=stop)
    assert (ended.done, ended.paid) == (0, llm.requests)
    rest = Watched()
    run(made, results, rest)
    assert llm.requests > 0 == (llm.seen & rest.seen).total()


def test_cells_read_from_an_export_are_those_of_the_folder(
    results: Results, tmp_path: Path
) -> None:
    from waysout.bench.cell import write_cells

    run(plan(tmp_path, TREE), results, Watched())
    write_cells(tmp_path / "x.jsonl.gz", results.cells())
    assert list(Cells.read([tmp_path / "x.jsonl.gz"])) == list(results.cells())
