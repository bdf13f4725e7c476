from __future__ import annotations

import asyncio
import itertools
import logging
import random
import selectors
import sys
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
import scripted_server
from scripted_server import (
    Answer,
    Exchange,
    ScriptedServer,
    cut,
    dead_url,
    echo,
    hang,
    ok,
    refusing,
    reset,
    run,
    serving,
    serving_apart,
    status,
    unless,
)

from waysout.domain.budget import Budget, Ledger, Spent
from waysout.errors import InputError, LLMError, LLMFailure, LLMRefused, LLMUnreachable
from waysout.llm.base import Constraint, Limits, Message, Reply, Request
from waysout.llm.call import Breaker, Caller
from waysout.llm.check import check_backend
from waysout.llm.connect import connect
from waysout.llm.openai import pool as pool_module
from waysout.llm.openai.backend import OpenAIBackend
from waysout.llm.openai.pool import ServerPool, pooled
from waysout.llm.simulated import Simulated

QUICK = Limits(connect=2.0, silence=0.8, seconds=2.5, bytes=1000)
CALLS = 60

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAYSOUT_API_KEY", raising=False)
    monkeypatch.setitem(sys.modules, "keyring", None)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers rest for moments."""
    monkeypatch.setattr(pool_module, "_SHORTEST_REST", 0.02)
    monkeypatch.setattr(pool_module, "_LONGEST_REST", 0.1)


def question(number: int) -> Request:
    return Request((Message("user", f"question {number}"),), max_tokens=40)


def reply_to(number: int) -> str:
    return f"reply 0 to question {number}"


def pool_of(*urls: str, limits: Limits = QUICK, patience: float = 5.0) -> ServerPool:
    return ServerPool([OpenAIBackend("m", url, limits=limits) for url in urls], patience=patience)


class Counted(ServerPool):
    """Counts what was asked of it, and what came of that."""

    asked = failed = 0

    async def complete(self, request: Request) -> Reply:
        self.asked += 1
        try:
            return await super().complete(request)
        except LLMError:
            self.failed += 1
            raise


class Home(ScriptedServer):
    """A server that can die and return to its address."""

    async def __aenter__(self) -> Home:
        await super().__aenter__()
        return self

    async def die(self) -> None:
        await self.__aexit__()

    async def come_back(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)


async def looked_at(server: ScriptedServer) -> None:
    while not server.looks:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)  # for the answer to be heard


def by_turns(question: Callable[[int], Coroutine[Any, Any, Reply]], wide: int) -> Any:
    """Ask all questions, so many at a time."""
    numbers = iter(range(CALLS))

    async def ask() -> list[tuple[int, str]]:
        return [(number, (await question(number)).text) for number in numbers]

    return asyncio.gather(*(ask() for _ in range(wide)))


# Who is asked


def test_the_least_busy_server_is_asked() -> None:
    released = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        await released.wait()
        await echo(exchange)

    async def go() -> tuple[int, int]:
        async with serving(slow) as one, serving(echo) as two:
            async with pool_of(one.url, two.url) as pool:
                stuck = [asyncio.create_task(pool.complete(question(i))) for i in range(2)]
                await stuck[1]
                for i in range(2, 8):
                    await pool.complete(question(i))
                released.set()
                await stuck[0]
            return len(one.seen), len(two.seen)

    assert run(go()) == (1, 7)


def test_equally_busy_servers_take_turns() -> None:
    async def go() -> list[int]:
        async with serving(echo) as one, serving(echo) as two, serving(echo) as three:
            async with pool_of(one.url, two.url, three.url) as pool:
                for i in range(6):
                    await pool.complete(question(i))
            return [len(server.seen) for server in (one, two, three)]

    assert run(go()) == [2, 2, 2]


def test_a_busy_server_rests_while_others_are_there() -> None:
    async def go() -> tuple[LLMFailure, int, int]:
        async with serving(status(429, retry_after="50"), echo) as one, serving(echo) as two:
            async with pool_of(one.url, two.url) as pool:
                with pytest.raises(LLMFailure) as caught:
                    await pool.complete(question(0))
                for i in range(1, 4):
                    await pool.complete(question(i))
            return caught.value, len(one.seen), len(two.seen)

    failure, one, two = run(go())
    assert failure.alive
    assert failure.retry_after is None  # nobody need wait: the other one is asked next
    assert (one, two) == (1, 3)


def test_a_busy_server_that_is_alone_is_asked_when_it_says() -> None:
    async def go() -> tuple[LLMFailure, str]:
        answers = (status(503, retry_after="7"), echo)
        async with serving(*answers) as one, pool_of(one.url) as pool:
            with pytest.raises(LLMFailure) as caught:
                await pool.complete(question(0))
            return caught.value, (await pool.complete(question(1))).text

    failure, text = run(go())
    assert failure.retry_after == 7
    assert text == reply_to(1)


# Leaving and coming back


@pytest.mark.usefixtures("hurried")
def test_a_server_dies_half_way_and_returns() -> None:
    async def go() -> tuple[Counted, Ledger, list[Any], int, int]:
        async with Home([echo]) as one, Home([echo]) as two:
            servers = [OpenAIBackend("m", url, limits=QUICK) for url in (one.url, two.url)]
            pool, ledger = Counted(servers), Ledger(Budget(llm_calls=CALLS))
            caller, before, both_there = Caller(pool), 0, asyncio.Event()

            async def ask(number: int) -> Reply:
                nonlocal before
                if number == 15:
                    before = len(one.seen)
                    await one.die()
                elif number == 35:
                    await one.come_back()
                    await looked_at(one)
                    both_there.set()
                elif number > 35:
                    await both_there.wait()
                return await caller.call(question(number), ledger)

            answers = await by_turns(ask, 4)
            await pool.aclose()
            reached = len(one.seen) + len(two.seen)
            return pool, ledger, answers, len(one.seen) - before, reached

    pool, ledger, answers, since, reached = run(go())
    assert sorted(itertools.chain(*answers)) == sorted((i, reply_to(i)) for i in range(CALLS))
    assert ledger.spent.llm_calls == CALLS
    assert pool.asked == CALLS + pool.failed
    assert pool.failed > 0
    # One that met nobody was not sent, and one that was may have met its server's end.
    assert CALLS <= reached <= ledger.spent.attempts <= pool.asked
    assert since > 5


@pytest.mark.usefixtures("hurried")
def test_failing_requests_change_nothing_but_the_attempts() -> None:
    draws = {f"question {i}": random.Random(i) for i in range(CALLS)}
    failed = dict.fromkeys(draws, 0)
    kinds = [status(429), status(500), status(503), reset, cut("never finished")]

    def script(_: int, body: dict[str, Any]) -> Answer:
        prompt = body["messages"][-1]["content"]
        if failed[prompt] < 3 and draws[prompt].random() < 0.3:
            failed[prompt] += 1
            return draws[prompt].choice(kinds)
        return echo

    async def no_wait(seconds: float) -> None:
        await asyncio.sleep(0)

    async def go() -> tuple[list[Any], Ledger, int]:
        async with ScriptedServer(script) as one, ScriptedServer(script) as two:
            async with pool_of(one.url, two.url) as pool:
                caller, ledger = Caller(pool, sleep=no_wait), Ledger(Budget(llm_calls=CALLS))
                answers = await by_turns(lambda i: caller.call(question(i), ledger), 8)
            return answers, ledger, one.requests + two.requests

    answers, ledger, requests = run(go())
    assert sorted(itertools.chain(*answers)) == sorted((i, reply_to(i)) for i in range(CALLS))
    assert sum(failed.values()) > 10
    assert requests == CALLS + sum(failed.values())
    timeless = Spent.from_dict({**ledger.spent.as_dict(), "seconds": 0.0})
    assert timeless == Spent(CALLS, requests, 11 * CALLS, 7 * CALLS)


def test_with_one_dead_server_the_circuit_stays_closed() -> None:
    async def go() -> tuple[Ledger, list[Any]]:
        async with serving(echo) as server, pool_of(dead_url(), server.url) as pool:
            # A breaker that opens at the first silence it hears of.
            caller, ledger = Caller(pool, breaker=Breaker(patience=1e-6)), Ledger(Budget(CALLS))
            return ledger, await by_turns(lambda i: caller.call(question(i), ledger), 1)

    ledger, answers = run(go())
    assert (ledger.spent.llm_calls, ledger.spent.attempts) == (CALLS, CALLS)
    assert [text for _, text in answers[0]] == [reply_to(i) for i in range(CALLS)]


class Leaping(asyncio.SelectorEventLoop):
    """An event loop that never waits: where nothing is to be done, the clock leaps ahead.

    All that is asked here answers within this very loop, and so at once.
    """

    def __init__(self) -> None:
        super().__init__(_Leaps(self))
        self.leapt = 0.0

    def time(self) -> float:
        return self.leapt


class _Leaps(selectors.DefaultSelector):
    def __init__(self, loop: Leaping) -> None:
        super().__init__()
        self._clock = loop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(timeout and min(timeout, 0.01))
        if not ready and timeout:
            self._clock.leapt += timeout
        return ready


def leaping(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=Leaping) as runner:
        return runner.run(work)


def patient(pool: ServerPool) -> tuple[Caller, Callable[[], float]]:
    """Return a caller with everything as it is by default, and the clock it goes by."""
    now = asyncio.get_running_loop().time
    return Caller(pool, breaker=Breaker(clock=now)), now


@pytest.mark.parametrize(("seconds", "patience"), [(10, 40), (120, 600)])
@pytest.mark.parametrize("together", [1, 8])
def test_an_outage_of_all_is_survived(seconds: int, patience: int, together: int) -> None:
    async def go() -> tuple[list[str], float, Ledger]:
        async with Home([echo, *[reset] * together, echo]) as one:
            servers = [OpenAIBackend("m", url) for url in (one.url, dead_url())]
            async with ServerPool(servers, patience=patience) as pool:
                (caller, now), ledger = patient(pool), Ledger(Budget(llm_calls=CALLS))
                await caller.call(question(0), ledger)
                await one.die()
                calls = (caller.call(question(i), ledger) for i in range(1, together + 1))
                waiting = asyncio.gather(*calls)
                await asyncio.sleep(seconds)
                await one.come_back()
                return [reply.text for reply in await waiting], now(), ledger

    texts, took, ledger = leaping(go())
    assert texts == [reply_to(i) for i in range(1, together + 1)]
    assert seconds < took < 3 * seconds
    assert ledger.spent.llm_calls == together + 1


@pytest.mark.parametrize("together", [1, 8])
def test_when_all_are_dead_the_run_ends_within_a_minute(together: int) -> None:
    async def go() -> tuple[list[Any], float, Ledger]:
        async with ServerPool([OpenAIBackend("m", dead_url()) for _ in range(2)]) as pool:
            (caller, now), ledger = patient(pool), Ledger()
            calls = (caller.call(question(i), ledger) for i in range(together))
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            return outcomes, now(), ledger

    outcomes, took, ledger = leaping(go())
    assert {type(outcome) for outcome in outcomes} == {LLMUnreachable}
    assert 30 < took < 60
    assert (ledger.spent.llm_calls, ledger.spent.attempts) == (0, 0)  # nothing could be sent


@pytest.mark.parametrize("together", [2, 8])
def test_when_all_hang_the_run_ends_within_a_minute(
    monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(scripted_server, "LONGEST", 1000.0)

    async def go() -> tuple[list[Any], float]:
        async with (
            serving(hang) as one,
            serving(hang) as two,
            ServerPool([OpenAIBackend("m", server.url) for server in (one, two)]) as pool,
        ):
            (caller, now), ledger = patient(pool), Ledger()
            calls = [asyncio.create_task(caller.call(question(i), ledger)) for i in range(together)]
            await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
            took = now()
            for call in calls:
                call.cancel()
            return await asyncio.gather(*calls, return_exceptions=True), took

    outcomes, took = leaping(go())
    assert LLMUnreachable in map(type, outcomes)
    assert 40 < took < 60


@pytest.mark.usefixtures("hurried")
def test_after_the_last_patience_a_server_may_still_return() -> None:
    async def go() -> str:
        async with Home([echo]) as one, pool_of(one.url, patience=0.1) as pool:
            await one.die()
            with pytest.raises(LLMFailure):
                await pool.complete(question(0))
            with pytest.raises(LLMUnreachable, match=r"from http://127.*0\.1 s: .*refused"):
                await pool.complete(question(1))
            await one.come_back()
            await looked_at(one)
            return (await pool.complete(question(2))).text

    assert run(go()) == reply_to(2)


def test_a_late_reply_of_one_that_has_left_makes_nobody_wait_for_ever() -> None:
    async def go() -> str:
        released = asyncio.Event()

        async def slow(exchange: Exchange) -> None:
            await released.wait()
            await echo(exchange)

        async with Home([echo, slow, reset]) as one, pool_of(one.url, patience=0.2) as pool:
            await pool.complete(question(0))
            late = asyncio.create_task(pool.complete(question(1)))
            await asyncio.sleep(0.05)
            with pytest.raises(LLMFailure):
                await pool.complete(question(2))
            released.set()
            text = (await late).text
            await one.die()
            with pytest.raises(LLMUnreachable):
                await pool.complete(question(3))
            return text

    assert run(go()) == reply_to(1)


# Servers that answer, but not as they should


@pytest.mark.parametrize("code", [401, 404])
def test_what_is_set_up_wrongly_from_the_start_is_an_error(code: int) -> None:
    async def go() -> None:
        async with serving(status(code)) as one, pool_of(one.url, dead_url()) as pool:
            await pool.complete(question(0))

    with pytest.raises(LLMError, match=str(code)) as caught:
        run(go())
    assert type(caught.value) is LLMError


@pytest.mark.parametrize("code", [401, 404])
def test_one_that_no_longer_lets_us_in_leaves_with_a_note(code: int) -> None:
    async def go() -> tuple[Ledger, list[Any], int]:
        async with serving(echo, status(code)) as one, serving(echo) as two:
            async with pool_of(one.url, two.url) as pool:
                caller, ledger = Caller(pool), Ledger(Budget(llm_calls=CALLS))
                answers = await by_turns(lambda i: caller.call(question(i), ledger), 1)
            return ledger, answers, len(one.seen)

    with pytest.warns(UserWarning, match=f"the other servers: .*{code}") as noted:
        ledger, answers, asked = run(go())
    assert len(noted) == 1
    assert (len(answers[0]), ledger.spent.attempts, asked) == (CALLS, CALLS + 1, 2)


def test_when_the_last_one_does_not_let_us_in_that_is_an_error() -> None:
    async def go() -> None:
        async with serving(echo, status(401)) as one, pool_of(one.url) as pool:
            await pool.complete(question(0))
            await pool.complete(question(1))

    with pytest.raises(LLMError, match="401") as caught:
        run(go())
    assert type(caught.value) is LLMError


def test_a_request_that_is_refused_costs_no_server() -> None:
    async def go() -> str:
        async with serving(status(413), echo) as one, pool_of(one.url) as pool:
            with pytest.raises(LLMRefused):
                await pool.complete(question(0))
            return (await pool.complete(question(1))).text

    assert run(go()) == reply_to(1)


def test_servers_may_differ_in_what_they_take() -> None:
    held = Constraint(json_schema={"type": "object"})

    async def go() -> tuple[list[str], list[str]]:
        picky = refusing("response_format")
        async with (
            serving(picky) as one,
            serving(*[echo] * 3, picky) as two,
            pool_of(one.url, two.url) as pool,
        ):
            asked = [Request((Message("user", f"{i}"),), constraint=held) for i in range(8)]
            texts = [(await pool.complete(request)).text for request in asked[:6]]
            forms: list[str] = [pool.form]
            for request in asked[6:]:
                await pool.complete(request)
            return texts, [*forms, pool.form]

    texts, forms = run(go())
    assert texts == [f"reply 0 to {i}" for i in range(6)]
    assert forms == ["json_schema", "none"]


# Event loops, and the end


def test_nobody_is_looked_at_after_the_end() -> None:
    async def go() -> set[asyncio.Task[Any]]:
        async with pool_of(dead_url(), dead_url()) as pool:
            for i in range(2):
                with pytest.raises(LLMFailure):
                    await pool.complete(question(i))
            assert len(asyncio.all_tasks()) == 3
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(go()) == set()


def test_a_pool_outlives_event_loops_and_is_never_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool = pool_of(dead_url(), dead_url())

    async def once() -> None:
        with pytest.raises(LLMFailure):
            await pool.complete(question(0))

    with caplog.at_level(logging.WARNING), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            asyncio.run(once())
    assert not caplog.records


def test_it_keeps_the_protocol() -> None:
    held = unless({"response_format": ok('{"answer": "yes"}')}, echo)
    with serving_apart(held) as one, serving_apart(held) as two:
        check_backend(pool_of(one.url, two.url))


def test_who_is_cancelled_leaves_no_trace() -> None:
    async def go() -> list[int]:
        async with serving(hang) as one, pool_of(one.url) as pool:
            task = asyncio.create_task(pool.complete(question(0)))
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return [server.in_flight for server in pool._loops.get().servers]

    assert run(go()) == [0]


# Connection strings


def test_several_addresses_make_a_pool() -> None:
    pool = connect("openai:org/m@http://one:8000,https://two/v1/?parallel=8&patience=90")
    assert isinstance(pool, ServerPool)
    assert pool.name == "openai:org/m@*"
    assert [server.url for server in pool.servers] == ["http://one:8000/v1", "https://two/v1"]
    assert (pool.parallel, pool.patience) == (16, 90.0)


def test_one_address_is_a_pool_where_that_is_asked_for() -> None:
    alone = "openai:m@http://one:8000/v1"
    assert isinstance(connect(alone), OpenAIBackend)
    for backend in (pooled(alone), connect(f"{alone}?patience=5")):
        assert isinstance(backend, ServerPool)
        assert backend.name == "openai:m@*"
    assert isinstance(pooled("simulated:1"), Simulated)


def test_replies_may_be_asked_for_at_once() -> None:
    async def go() -> dict[str, Any]:
        async with serving(echo) as server, connect(f"openai:m@{server.url}?stream=no") as llm:
            await llm.complete(question(0))
            return server.seen[0].body

    assert not {"stream", "stream_options"} & set(run(go()))


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("m@http://one/v1,two:8000", "not the address"),
        ("m@http://one/v1,", "not the address"),
        ("m@http://one/v1,http://one/v1", "named once"),
        ("m@http://one/v1,http://u:p@two/v1", "password"),
        ("m@http://one/v1,n@http://two/v1", "not the address"),
        ("m@http://one/v1?stream=perhaps", "stream is yes or no"),
        ("m@http://one/v1?patience=0", "patience"),
    ],
)
def test_a_wrong_list_of_servers_says_so(target: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        connect(f"openai:{target}")
