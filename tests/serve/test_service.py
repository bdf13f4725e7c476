from __future__ import annotations

import asyncio
import time
from datetime import date
from typing import Any, Self

import pytest
from serve_world import (
    PEOPLE,
    ROW,
    Adder,
    Gate,
    Table,
    Watched,
    ended,
    go_on,
    make_service,
    person,
    problem,
    run,
    small,
    start,
    until,
)

from waysout.domain.budget import Spent
from waysout.domain.memory import Memory
from waysout.domain.oracle import Answers, Goal
from waysout.errors import InputError, IntegrityError, UnavailableError
from waysout.llm.base import Backend, Request
from waysout.llm.simulated import Simulated
from waysout.oracles.cache import CachedOracle
from waysout.oracles.http import HttpOracle
from waysout.report.result import Result
from waysout.run.find import find
from waysout.serve.errors import Full, NotFound, TooMany
from waysout.serve.filing import Filing
from waysout.serve.limits import ServiceLimits
from waysout.serve.models import DecideRequest, Locks
from waysout.serve.option_forms import OptionForms
from waysout.serve.problems import MOST_EXAMPLES, ServedProblem
from waysout.serve.saved_run import SavedRun
from waysout.serve.search_session import SearchSession
from waysout.serve.service import Service


def test_as_many_run_at_once_as_may_and_the_next_is_put_off() -> None:
    async def story() -> None:
        gate = Gate()
        async with make_service(llm=Watched(gate)) as service:
            rows = [*PEOPLE, *PEOPLE[:8]]
            searches = [start(service, row=person(r), calls=2, oracle_rows=20) for r in rows]
            assert service.running == service.limits.searches == 20
            with pytest.raises(TooMany, match="20 searches"):
                start(service)
            gate.opened.set()
            for search in searches:
                await ended(search)
                assert search.options
            await until(lambda: not service.running)
            await ended(start(service))

    run(story())


def test_a_search_that_has_told_its_end_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        filed = asyncio.Event()
        filed.set()

        async def slow_disk(*_: object) -> None:
            await filed.wait()

        monkeypatch.setattr(Filing, "pins_at_last", slow_disk)
        async with make_service(searches=1) as service:
            search = start(service, calls=0)
            await ended(search)
            await search.pin([{**ROW, "a": 19}])
            filed.clear()
            go_on(service, search, oracle_rows=60)
            await ended(search)
            assert service.running == 0  # though its pins are being filed
            await ended(start(service, calls=0))
            filed.set()

    run(story())


def test_searches_share_one_model_that_is_asked_one_at_a_time() -> None:
    class Watchful(Adder):
        now = most = 0

        def ask(self, rows: Any) -> Answers:
            self.now += 1
            self.most = max(self.most, self.now)
            answers = super().ask(rows)
            time.sleep(0.0005)
            self.now -= 1
            return answers

    async def story() -> None:
        oracle = Watchful()
        world = small(oracle, known=True)
        async with make_service(world) as service:
            for search in [start(service, row=person(r), oracle_rows=20) for r in PEOPLE[:6]]:
                await ended(search)
            cache = world.problem.oracle
            assert isinstance(cache, CachedOracle)
            assert cache.hits > 0
            asked = cache.asked
            for search in [start(service, row=person(r), oracle_rows=20) for r in PEOPLE[:6]]:
                await ended(search)
            assert cache.asked == asked  # the same again, and not a row of it was asked
        assert oracle.most == 1

    run(story())


def test_the_llm_is_asked_no_more_at_once_than_it_is_good_for() -> None:
    async def story() -> None:
        gate = Gate()
        llm = Watched(gate, parallel=3)
        async with make_service(llm=llm) as service:
            searches = [start(service, row=person(r), oracle_rows=20) for r in PEOPLE]
            await until(lambda: llm.now == 3)
            gate.opened.set()
            for search in searches:
                await ended(search)
            assert llm.most_at_once == 3

    run(story())


class Opened(Simulated):
    """Counts how often it is opened and closed, and fails to open at first."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__(7)
        self.opened = self.closed = 0
        self.failures = failures

    async def __aenter__(self) -> Self:
        if self.failures:
            self.failures -= 1
            raise UnavailableError("the model file is missing: waysout models pull it")
        self.opened += 1
        return self

    async def aclose(self) -> None:
        self.closed += 1


def test_the_llm_is_opened_once_for_all_and_closed_with_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    llm = Opened()
    monkeypatch.setattr("waysout.serve.service.connect", lambda name: llm)

    async def story() -> None:
        async with make_service() as service:
            assert llm.opened == 0
            for search in [start(service, row=person(row)) for row in PEOPLE[:3]]:
                await ended(search)
            await service.close()
        assert (llm.opened, llm.closed) == (1, 1)

    run(story())


def test_an_llm_that_cannot_be_opened_ends_the_search_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    llm = Opened(failures=1)
    monkeypatch.setattr("waysout.serve.service.connect", lambda name: llm)

    async def story() -> None:
        async with make_service() as service:
            (end,) = await ended(start(service))
            assert end["outcome"] == "failed"
            assert "waysout models pull" in end["reason"]
            (end,) = await ended(start(service))
            assert end["outcome"] == "found"

    run(story())


def test_a_backend_that_was_given_stays_open() -> None:
    llm = Opened()

    async def story() -> None:
        async with make_service(llm=llm) as service:
            await ended(start(service))
        assert (llm.opened, llm.closed) == (0, 0)

    run(story())


def test_a_wrong_name_of_an_llm_is_refused_at_once_but_a_missing_package_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InputError, match="unknown LLM backend"):
        make_service(llm="gpt")

    def missing(name: str) -> None:
        raise UnavailableError("no such package")

    monkeypatch.setattr("waysout.serve.service.connect", missing)
    assert make_service(llm="openai:m@http://u:p@here").llm_name == "openai:m"


def test_the_oldest_ended_search_makes_room() -> None:
    async def story() -> None:
        gate = Gate()
        gate.opened.set()
        llm = Watched(gate)
        async with make_service(llm=llm, searches=2, kept=3) as service:
            first, second = start(service), start(service, seed=1)
            await ended(first)
            await ended(second)
            await until(lambda: not service.running)
            gate.opened.clear()
            waiting = start(service, row=person(PEOPLE[2]))
            assert list(service.searches) == [first.id, second.id, waiting.id]
            newest = start(service, row=person(PEOPLE[3]))
            assert list(service.searches) == [second.id, waiting.id, newest.id]
            assert first.log.closed
            with pytest.raises(NotFound):
                service.search(first.id)
            gate.opened.set()

    run(story())


def test_deleting_stops_what_runs_and_it_still_counts_until_it_has_ended() -> None:
    async def story() -> None:
        llm = Watched(Gate())
        async with make_service(llm=llm) as service:
            search = start(service)
            await until(lambda: llm.now)
            await service.delete(search.id)
            assert not service.searches
            assert service.running == 1
            await until(lambda: not service.running)
            assert search.log.events[-1].kind == "gone"
            assert llm.now == 0

    run(story())


def test_closing_stops_searches_and_streams_and_lets_nobody_in() -> None:
    async def story() -> None:
        llm = Watched(Gate())
        service = make_service(llm=llm)
        search = start(service)
        stream = asyncio.create_task(_all(search))
        await until(lambda: llm.now and search.log.subscribers)
        await service.close()
        assert (await stream)[-1] == "gone"
        assert not search.running
        assert search.result is not None
        assert "shutting down" in search.result.outcome.reason
        with pytest.raises(Full, match="shutting down"):
            start(service)
        await service.close()

    run(story())


async def _all(search: SearchSession) -> list[str]:
    return [event.kind async for events in search.log.follow() for event in events]


def test_a_run_on_file_is_taken_over_and_gone_on_with() -> None:
    memory = Memory()
    world = small()
    found = find(world.problem, ROW, llm="simulated:7", calls=3, oracle_rows=40, memory=memory)

    async def story() -> None:
        service = make_service(world, calls=5, oracle_rows=100)
        result = Result.from_json(found.to_json())
        search = service.adopt("small", SavedRun(result, memory, date(2026, 3, 1)))
        assert service.searches == {search.id: search}
        kinds = [event.kind for event in search.log.events]
        assert kinds == [
            "part", "decided", "options", "shortlist", "ways", "ledger", "ended"
        ]  # fmt: skip
        view = search.view()
        assert (view["status"], view["outcome"], view["part"]) == ("ended", "found", 1)
        assert view["ledger"] == found.ledger.as_dict()
        assert view["budget"] == {
            "calls": 5, "calls_left": 5, "oracle_rows": 100, "oracle_rows_left": 100,
        }  # fmt: skip
        form = OptionForms(search.problem, search.query).form
        assert view["shortlist"] == [form(way) for way in found.pick(5)]
        assert view["ways"][:5] == view["shortlist"]
        assert [tips["feature"] for tips in view["tipping"]]
        assert search.so_far() == found
        async with service:
            search.begin(Locks(fixed=["a"]))
            await ended(search)
            assert search.options
            assert all(option.row["a"] == ROW["a"] for option in search.options.values())
            assert search.spent.oracle_rows - 40 == 100 - search.rows_left <= 100
            assert search.spent.llm_calls <= found.ledger.llm_calls + 5
            assert search.result is not None
            assert search.result.ledger == search.spent

    run(story())


def test_a_watcher_hears_of_every_part() -> None:
    class Heard:
        def __init__(self) -> None:
            self.begun = 0
            self.ends: list[tuple[str, int, Spent]] = []

        def began(self) -> None:
            self.begun += 1

        def ended(self, outcome: str, options: int, spent: Spent) -> None:
            self.ends.append((outcome, options, spent))

    async def story() -> None:
        heard = Heard()
        async with Service({"small": small()}, "simulated:7", listener=heard) as service:
            search = start(service, calls=2, oracle_rows=300)
            await ended(search)
            found = len(search.options)
            search.begin(Locks(fixed=["a"]))
            await ended(search)
        assert heard.begun == len(heard.ends) == 2
        assert heard.ends[0][:2] == ("found", found)
        assert heard.ends[0][2] + heard.ends[1][2] == search.spent

    run(story())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"method": "magic"}, "unknown method 'magic'"),
        ({"method": "comp-mcts", "settings": {"depth": "deep"}}, "depth must be a whole number"),
        ({"settings": {"magic": 1}}, "unknown setting 'magic'"),
        ({"method": "comp-mcts", "settings": {"encoder": "/etc/passwd"}}, "encoder cannot be set"),
        ({"method": "cchvae", "settings": {"device": "cuda"}}, "device cannot be set"),
        ({"method": "recombine", "settings": {"draws": 161}}, "draws is at most 160 here, not 161"),
        ({"method": "random", "settings": {"tries": 10**9}}, "tries is at most 20000 here"),
        ({"method": "nearest"}, "learns from a table"),
        ({"calls": 31}, "calls is at most 30 here, not 31"),
        ({"oracle_rows": 3001}, "oracle_rows is at most 3000 here"),
        ({"problem": "large"}, "unknown problem 'large'"),
    ],
)
def test_what_cannot_be_searched_is_said(asked: dict[str, Any], said: str) -> None:
    async def story() -> None:
        async with make_service() as service:
            with pytest.raises(InputError) as raised:
                start(service, **asked)
            assert said in str(raised.value)

    run(story())


def test_without_an_llm_there_are_no_calls_to_spend() -> None:
    service = make_service(llm=None)
    view = service.problem_view("small")
    assert (view["limits"]["calls"], view["suggested_calls"], view["llm"]) == (0, 0, None)
    with pytest.raises(InputError, match="at most 0 here"):
        start(service, calls=1)
    with pytest.raises(InputError, match="asks an LLM, and this service has none"):
        start(service, method="lats")
    with pytest.raises(InputError, match="asks an LLM"):
        Service({"small": small()}, method="lats")


def test_searches_begin_by_themselves_where_the_model_is_at_hand() -> None:
    class Far(Adder):
        remote = True

    def instant(world: ServedProblem, **other: Any) -> bool:
        return bool(Service({"small": world}, **other).problem_view("small")["instant"])

    assert instant(small())
    assert not instant(small(), wait=True)
    assert not instant(small(Far()))
    assert not instant(ServedProblem.of(small(Far()).problem))  # within its cache
    assert HttpOracle.remote


@pytest.mark.parametrize(
    ("llm", "local"),
    [(None, False), ("simulated:7", True), (Watched(), True), ("openai:m@http://h/v1", False)],
)
def test_prompts_stay_here_unless_a_server_gets_them(
    llm: str | Backend | None, local: bool
) -> None:
    view = make_service(small(known=True), llm).problem_view("small")
    assert (view["llm_local"], view["people"]) == (local, 60)


def test_a_harmless_text_setting_is_taken() -> None:
    async def story() -> None:
        async with make_service() as service:
            search = start(service, method="comp-mcts", settings={"reward": "quality"}, calls=2)
            (end,) = await ended(search)
            assert end["outcome"] in ("found", "budget-spent")

    run(story())


def test_examples_are_rejected_rows_asked_once() -> None:
    async def story() -> None:
        oracle = Adder()
        world = ServedProblem.of(problem(oracle=oracle), Table())
        assert oracle.rows == 0
        found, again = await asyncio.gather(world.examples(), world.examples())
        assert found is again
        assert len(oracle.batches) == 1
        rows = Table().rows
        assert [e["number"] for e in found] == [
            i for i, row in enumerate(rows) if float(row[0] or 0) + float(row[1] or 0) < 10
        ]
        assert all(tuple(e["row"].values()) == rows[e["number"]] for e in found)
        assert all(e["probability"] < 0.5 for e in found)

    run(story())


def test_examples_are_few_and_from_all_over_a_large_table() -> None:
    async def story() -> None:
        oracle = Adder()
        table = Table([(i % 5, i % 5, "x") for i in range(5000)])
        found = await ServedProblem.of(problem(oracle=oracle), table).examples()
        assert len(found) == MOST_EXAMPLES
        assert oracle.rows <= 500
        named = await ServedProblem.of(problem(), table, examples=[4999, 7]).examples()
        assert [e["number"] for e in named] == [4999, 7]
        assert await small().examples() == []

    run(story())


def test_a_decision_tells_the_answer_the_levers_and_what_is_broken() -> None:
    async def story() -> None:
        request = DecideRequest(row={**ROW, "a": 12, "c": "x"}, query=ROW, locks=Locks(fixed=["c"]))
        told = await small().decide(request)
        assert (told["approved"], told["decision"], told["probability"]) == (True, "approved", 0.6)
        assert told["changes"] == {"a": [1, 12], "c": ["y", "x"]}
        assert [broken["features"] for broken in told["broken"]] == [["c"]]
        assert told["levers"]["c"]["open"] is False
        assert 0 < told["proximity"] < 1
        assert told["sparsity"] == 2
        alone = await small().decide(DecideRequest(row=ROW))
        assert (alone["changes"], alone["proximity"], alone["sparsity"]) == ({}, 1.0, 0)
        assert alone["broken"] == []

    run(story())


def test_a_decision_heeds_the_goal() -> None:
    async def story() -> None:
        world = ServedProblem.of(problem(goal=Goal(rise=0.5)))
        said = [
            (await world.decide(DecideRequest(row={**ROW, "a": a}, query=ROW)))["approved"]
            for a in (10, 11)
        ]
        assert said == [False, True]
        strict = ServedProblem.of(problem(goal=Goal(at_least=0.75)))
        told = await strict.decide(DecideRequest(row={**ROW, "a": 12}))
        assert (told["approved"], told["decision"]) == (False, "approved")

    run(story())


def test_limits_that_cannot_be_are_refused() -> None:
    for wrong in ({"calls": -1}, {"searches": 0}, {"seconds": float("nan")}, {"kept": 5}):
        with pytest.raises(InputError, match="limits"):
            ServiceLimits(**wrong)


async def _slow(request: Request, attempt: int) -> None:
    await asyncio.sleep(0.2)


def test_a_part_has_a_deadline() -> None:
    async def story() -> None:
        async with make_service(llm=Watched(_slow), seconds=1) as service:
            search = start(service, method="comp-mcts")
            (end,) = await ended(search)
            assert "deadline of 1 seconds" in end["reason"]

    run(story())


@pytest.mark.parametrize("locks", [{"fixed": 1}, {"unheard": []}, {"ranges": {"a": {"min": "x"}}}])
def test_locks_that_no_release_wrote_are_named(locks: dict[str, Any]) -> None:
    world = small()
    found = Result.of(find(world.problem, ROW, calls=0, oracle_rows=5))
    adopted = SavedRun(found, Memory(), date(2026, 3, 1), locks)
    with pytest.raises(IntegrityError, match="the run's locks cannot be read"):
        make_service(world).adopt("small", adopted)
