from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from waysout.domain.budget import Budget, Ledger
from waysout.errors import (
    BudgetSpent,
    InputError,
    LLMError,
    LLMFailure,
    LLMUnreachable,
    WaysoutError,
)
from waysout.llm.base import Backend, Constraint, Message, Reply, Request, Usage
from waysout.llm.call import Breaker, Caller, Price, Retry

REQUEST = Request((Message("user", "hello"),), max_tokens=100)
USAGE = Usage(tokens_in=10, tokens_out=5, cached_tokens=4)


class Scripted(Backend):
    """Answers by a script: an exception is raised, anything else is a reply."""

    name = "scripted"

    def __init__(self, *script: Exception | str | float) -> None:
        self.script = list(script)
        self.asked = 0

    async def complete(self, request: Request) -> Reply:
        step = self.script.pop(0) if self.script else "ok"
        self.asked += 1
        if isinstance(step, Exception):
            raise step
        if isinstance(step, float):
            await asyncio.sleep(step)
            return Reply("late", USAGE)
        return Reply(step, USAGE)


class Clock:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def caller_of(backend: Backend, clock: Clock, chance: Callable[[], float] = lambda: 1.0) -> Caller:
    return Caller(backend, breaker=Breaker(clock=clock), sleep=clock.sleep, chance=chance)


def test_a_reply_costs_one_call_and_its_tokens() -> None:
    ledger = Ledger()
    reply = asyncio.run(Caller(Scripted("hi")).call(REQUEST, ledger))
    spent = ledger.spent
    assert reply.text == "hi"
    assert (spent.llm_calls, spent.attempts) == (1, 1)
    assert (spent.tokens_in, spent.tokens_out, spent.cached_tokens) == (10, 5, 4)


def test_failures_are_tried_again_and_cost_no_call() -> None:
    clock, ledger = Clock(), Ledger()
    backend = Scripted(LLMFailure("429"), LLMFailure("503"), LLMFailure("cut"), "at last")
    reply = asyncio.run(caller_of(backend, clock).call(REQUEST, ledger))
    assert reply.text == "at last"
    assert (ledger.spent.llm_calls, ledger.spent.attempts) == (1, 4)
    assert clock.waits == [0.5, 1.0, 2.0]


def test_waits_are_shortened_by_chance_and_lengthened_by_the_server() -> None:
    clock = Clock()
    backend = Scripted(LLMFailure("x"), LLMFailure("x", retry_after=9.0), "ok")
    asyncio.run(caller_of(backend, clock, lambda: 0.0).call(REQUEST, Ledger()))
    assert clock.waits == [0.25, 9.0]
    # Clients that were put off together do not come back together.
    assert Retry().wait(1, 0.5, 9.0) == pytest.approx(9.45)


def test_a_server_that_asks_for_an_hour_is_given_up_at_once() -> None:
    clock, ledger = Clock(), Ledger()
    backend = Scripted(LLMFailure("busy", retry_after=3600.0))
    with pytest.raises(LLMUnreachable, match="come back in 3600 s"):
        asyncio.run(caller_of(backend, clock).call(REQUEST, ledger))
    assert backend.asked == 1
    assert clock.waits == []


def test_at_most_four_attempts_then_the_circuit_opens() -> None:
    clock, ledger = Clock(), Ledger()
    backend = Scripted(*[LLMFailure("refused")] * 9)
    caller = caller_of(backend, clock)
    for _ in range(3):
        with pytest.raises(LLMUnreachable, match="scripted does not answer: refused"):
            asyncio.run(caller.call(REQUEST, ledger))
    assert backend.asked == 4  # the second and third call were not sent at all
    assert (ledger.spent.llm_calls, ledger.spent.attempts) == (0, 4)
    assert ledger.calls_left == 30
    assert clock.now < 60


def test_after_a_rest_the_server_gets_another_chance() -> None:
    clock, ledger = Clock(), Ledger()
    caller = caller_of(Scripted(*[LLMFailure("refused")] * 4, "back"), clock)
    with pytest.raises(LLMUnreachable):
        asyncio.run(caller.call(REQUEST, ledger))
    clock.now += caller.breaker.rest
    assert asyncio.run(caller.call(REQUEST, ledger)).text == "back"


def test_one_unlucky_call_does_not_open_the_circuit_while_others_are_answered() -> None:
    clock, ledger = Clock(), Ledger()

    class Unlucky(Backend):
        name = "unlucky"

        async def complete(self, request: Request) -> Reply:
            if request.draw:
                raise LLMFailure("500")
            return Reply("fine")

    caller = caller_of(Unlucky(), clock)

    async def both() -> tuple[BaseException | Reply, list[Reply]]:
        unlucky = asyncio.create_task(caller.call(Request(REQUEST.messages, draw=1), ledger))
        others = []
        for _ in range(20):
            others.append(await caller.call(REQUEST, ledger))
            await asyncio.sleep(0)
        return (await asyncio.gather(unlucky, return_exceptions=True))[0], others

    lost, others = asyncio.run(both())
    assert isinstance(lost, LLMFailure)
    assert len(others) == 20
    assert (ledger.spent.llm_calls, ledger.spent.attempts) == (20, 24)


class Slow(Backend):
    """Takes its time, by the clock of the test: each step is (seconds, outcome)."""

    name = "slow"

    def __init__(self, clock: Clock, *script: tuple[float, Exception | str]) -> None:
        self.clock = clock
        self.script = list(script)

    async def complete(self, request: Request) -> Reply:
        seconds, outcome = self.script.pop(0)
        self.clock.now += seconds
        if isinstance(outcome, Exception):
            raise outcome
        return Reply(outcome, USAGE)


def test_a_silent_server_is_given_up_within_a_minute() -> None:
    clock, ledger = Clock(), Ledger()
    silent = [(50.0, LLMFailure("no sign of life"))] * 9
    with pytest.raises(LLMUnreachable, match="no sign of life"):
        asyncio.run(caller_of(Slow(clock, *silent), clock).call(REQUEST, ledger))
    assert clock.now < 60
    assert (ledger.spent.llm_calls, ledger.spent.attempts) == (0, 1)


@pytest.mark.parametrize("asked", [(57.0,), (30.0, 30.0), (20.0, 20.0, 20.0)])
def test_a_server_that_puts_us_off_is_alive(asked: tuple[float, ...]) -> None:
    clock = Clock()
    busy = [(0.1, LLMFailure("429", retry_after=seconds)) for seconds in asked]
    backend = Slow(clock, *busy, (1.0, "at last"))
    assert asyncio.run(caller_of(backend, clock).call(REQUEST, Ledger())).text == "at last"


def test_a_long_reply_after_a_failure_is_waited_for() -> None:
    clock = Clock()
    backend = Slow(clock, (0.1, LLMFailure("503", alive=True)), (200.0, "long"))
    assert asyncio.run(caller_of(backend, clock).call(REQUEST, Ledger())).text == "long"


def test_a_prompt_that_always_fails_does_not_close_the_door_to_others() -> None:
    clock, ledger = Clock(), Ledger()
    reply_now = asyncio.Event()

    class Poisoned(Backend):
        name = "poisoned"

        async def complete(self, request: Request) -> Reply:
            if request.draw == 0:
                raise LLMFailure("500", alive=True)
            await reply_now.wait()
            return Reply("fine", USAGE)

    caller = caller_of(Poisoned(), clock)

    async def go() -> list[Reply | BaseException]:
        good = [asyncio.create_task(caller.call(Request(REQUEST.messages, draw=i), ledger))
                for i in range(1, 4)]  # fmt: skip
        await asyncio.sleep(0)
        with pytest.raises(LLMFailure):
            await caller.call(REQUEST, ledger)
        reply_now.set()
        return await asyncio.gather(*good, return_exceptions=True)

    assert [type(answer) for answer in asyncio.run(go())] == [Reply] * 3


@pytest.mark.parametrize("heard", ["nothing", "a reply", "a refusal"])
def test_a_silence_that_several_calls_met_is_the_servers_though_more_are_waiting(
    heard: str,
) -> None:
    clock = Clock()
    breaker = Breaker(patience=45, clock=clock)
    breaker.waiting = 3  # as ever, where many are sent
    silence = LLMFailure("no sign of life for 50 s")
    clock.now = 50
    breaker.failed(0.0, silence, "gone")  # perhaps it chokes on this one
    clock.now = 51
    if heard == "a reply":
        breaker.answered()
    elif heard == "a refusal":
        breaker.failed(20.0, LLMFailure("busy", alive=True), "busy")
    clock.now = 60
    if heard == "nothing":
        with pytest.raises(LLMUnreachable, match="gone"):
            breaker.failed(10.0, silence, "gone")
    else:
        breaker.failed(10.0, silence, "gone")
        breaker.check()


def test_after_a_rest_one_call_tries_and_the_others_wait() -> None:
    clock, ledger = Clock(), Ledger()
    backend = Scripted(*[LLMFailure("refused")] * 99)
    caller = caller_of(backend, clock)

    async def many() -> list[Reply | BaseException]:
        calls = (caller.call(REQUEST, ledger) for _ in range(20))
        return await asyncio.gather(*calls, return_exceptions=True)

    asyncio.run(many())
    clock.now += caller.breaker.rest
    asked = backend.asked
    assert {type(answer) for answer in asyncio.run(many())} == {LLMUnreachable}
    assert backend.asked == asked + 4
    assert ledger.calls_left == 30


def test_a_backend_that_does_not_count_is_charged_the_most() -> None:
    class Careless(Backend):
        name = "careless"

        async def complete(self, request: Request) -> Reply:
            return Reply("x" * 1000)

    ledger = Ledger(Budget(tokens=185))
    reply = asyncio.run(Caller(Careless()).call(REQUEST, ledger))
    assert reply.usage == Usage(85, 100, estimated=True)
    assert ledger.spent.tokens_in + ledger.spent.tokens_out == 185


@pytest.mark.parametrize("error", [LLMError("no such model"), ValueError("a bug")])
def test_what_no_attempt_can_mend_is_not_tried_again(error: Exception) -> None:
    ledger, backend = Ledger(), Scripted(error)
    with pytest.raises(type(error)):
        asyncio.run(Caller(backend).call(REQUEST, ledger))
    assert backend.asked == 1
    assert ledger.spent.llm_calls == 0
    assert ledger.calls_left == 30


def test_calls_in_flight_never_pass_the_limit() -> None:
    ledger = Ledger(Budget(llm_calls=3))
    backend = Scripted(*[0.01] * 10)

    async def many() -> list[Reply | BaseException]:
        calls = (Caller(backend).call(REQUEST, ledger) for _ in range(10))
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(many())
    assert sum(isinstance(a, Reply) for a in answers) == 3
    assert sum(isinstance(a, BudgetSpent) for a in answers) == 7
    assert backend.asked == ledger.spent.llm_calls == 3


def test_a_cancelled_call_gives_its_place_back() -> None:
    ledger = Ledger(Budget(llm_calls=1))

    async def cancelled() -> None:
        task = asyncio.create_task(Caller(Scripted(9.0)).call(REQUEST, ledger))
        await asyncio.sleep(0.01)
        assert ledger.calls_left == 0
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert ledger.calls_left == 1


def test_the_deadline_ends_a_call_under_way() -> None:
    ledger = Ledger(Budget(seconds=0.05))
    with pytest.raises(BudgetSpent, match="deadline"):
        asyncio.run(Caller(Scripted(9.0)).call(REQUEST, ledger))
    assert (ledger.spent.llm_calls, ledger.spent.attempts) == (0, 1)
    assert ledger.seconds < 5


def test_no_wait_goes_past_the_deadline() -> None:
    clock = Clock()
    ledger = Ledger(Budget(seconds=5), clock=clock)
    backend = Scripted(LLMFailure("busy", retry_after=8.0))
    with pytest.raises(BudgetSpent, match="comes before"):
        asyncio.run(caller_of(backend, clock).call(REQUEST, ledger))
    assert clock.now == 0


def test_tokens_are_reserved_at_the_most_they_can_be() -> None:
    # 5 bytes of prompt, 64 + 16 for a chat template, 100 for the reply.
    assert REQUEST.most_tokens_in == 85
    with pytest.raises(BudgetSpent):
        asyncio.run(Caller(Scripted()).call(REQUEST, Ledger(Budget(tokens=184))))
    ledger = Ledger(Budget(tokens=185))
    asyncio.run(Caller(Scripted()).call(REQUEST, ledger))
    assert ledger.spent.tokens_in == 10
    schema = Constraint(json_schema={"type": "object"})
    assert Request(REQUEST.messages, constraint=schema).most_tokens_in == 85 + 18


def test_money_is_counted_and_capped() -> None:
    price = Price(tokens_in=2.0, tokens_out=10.0, cached=0.5)
    # 6 tokens at 2, 4 cached ones at 0.5, 5 out at 10, per million.
    assert price.of(USAGE) == pytest.approx((12 + 2 + 50) / 1e6)
    assert price.most(REQUEST) == pytest.approx((85 * 2 + 100 * 10) / 1e6)
    ledger = Ledger(Budget(money=0.0012))
    caller = Caller(Scripted(), price=price)
    asyncio.run(caller.call(REQUEST, ledger))
    assert ledger.spent.money == pytest.approx(64 / 1e6)
    with pytest.raises(BudgetSpent, match="money"):
        asyncio.run(caller.call(REQUEST, ledger))


def test_a_money_cap_needs_prices() -> None:
    with pytest.raises(InputError, match="prices of scripted"):
        asyncio.run(Caller(Scripted()).call(REQUEST, Ledger(Budget(money=1.0))))


@pytest.mark.parametrize("text", ["", "1", "1/2/3/4", "a/b", "-1/2", "nan/1", "inf/1"])
def test_a_price_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="per million tokens"):
        Price.parse(text)


def test_own_exit_codes() -> None:
    codes = [error.exit_code for error in (WaysoutError, LLMError, LLMFailure, LLMUnreachable)]
    assert codes == [1, 8, 8, 9]
