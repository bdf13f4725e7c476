"""One LLM for several processes; here the pipes lead from this process back into it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from waysout.errors import (
    CardError,
    LLMError,
    LLMFailure,
    LLMUnreachable,
    MissingExtra,
    UnavailableError,
    WaysoutError,
)
from waysout.llm.base import (
    Backend,
    Constraint,
    Editable,
    Form,
    Message,
    Reply,
    Request,
    Usage,
    counting,
    note_sent,
)
from waysout.llm.check import check_backend
from waysout.llm.shared import BackendClient, BackendServer, RemoteError, pipe_pair
from waysout.llm.simulated import Simulated

LONGEST = 20.0


def question(text: str, **more: object) -> Request:
    return Request((Message("user", text),), **more)  # type: ignore[arg-type]


@contextmanager
def workers(backend: Backend, count: int = 1) -> Iterator[list[BackendClient]]:
    server = BackendServer(backend)
    try:
        yield [BackendClient(server.open()) for _ in range(count)]
    finally:
        server.close()


def until(met: Callable[[], object]) -> None:
    began = time.monotonic()
    while not met():
        assert time.monotonic() - began < LONGEST
        time.sleep(0.002)


class Scripted(Backend):
    """Does what the prompt says, and knows what is under way."""

    name = "scripted"

    def __init__(self) -> None:
        self.under_way: set[str] = set()
        self.most_at_once = 0
        self.cancelled: set[str] = set()
        self.threads: set[int] = set()
        self.errors: dict[str, BaseException] = {}
        self.closed = 0

    async def complete(self, request: Request) -> Reply:
        text = request.messages[0].content
        self.threads.add(threading.get_ident())
        self.under_way.add(text)
        self.most_at_once = max(self.most_at_once, len(self.under_way))
        try:
            if text.startswith("wait"):
                await asyncio.sleep(LONGEST)
            if text in self.errors:
                raise self.errors[text]
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled.add(text)
            raise
        finally:
            self.under_way.discard(text)
        return Reply(f"{text}!", Usage(3, 2, 1), 0.5, "length", "who")

    async def aclose(self) -> None:
        self.closed += 1


def test_a_backend_through_the_server_keeps_the_protocol_and_answers_alike() -> None:
    direct = Simulated(7)
    asked = question(
        "Edit this.",
        k=3,
        seed=5,
        draw=2,
        constraint=Constraint("root ::= x", {"type": "object"}),
        menu=(Editable("income", "1", (), 0, 9), Editable("job", "a", ("b", "c"))),
    )
    with workers(Simulated(7)) as (backend,):
        assert (backend.name, backend.form, backend.parallel) == (
            direct.name,
            direct.form,
            direct.parallel,
        )
        check_backend(backend)
        assert asyncio.run(backend.complete(asked)) == asyncio.run(direct.complete(asked))


def test_the_requests_of_all_workers_meet_in_one_loop_and_each_gets_its_own_reply() -> None:
    scripted = Scripted()

    async def ask(backends: list[BackendClient]) -> list[Reply]:
        asked = [b.complete(question(f"{w} {i}")) for w, b in enumerate(backends) for i in range(9)]
        return await asyncio.gather(*asked)

    with workers(scripted, 3) as backends:
        replies = asyncio.run(ask(backends))
    assert [r.text for r in replies] == [f"{w} {i}!" for w in range(3) for i in range(9)]
    assert replies[0] == Reply("0 0!", Usage(3, 2, 1), 0.5, "length", "who")
    assert scripted.most_at_once > 9
    assert len(scripted.threads) == 1
    assert scripted.closed == 1


def test_a_request_that_cannot_be_noted_ends_no_connection() -> None:
    """A cancelled one may be told of when the run is closed that it belongs to."""

    class Noting(Scripted):
        notes_sent = True

        async def complete(self, request: Request) -> Reply:
            note_sent()
            return await super().complete(request)

    def closed() -> None:
        raise UnavailableError("the run is closed")

    async def ask(backend: BackendClient) -> list[Reply]:
        with counting(closed):
            return [await backend.complete(question(text)) for text in ("one", "two")]

    with workers(Noting()) as (backend,):
        assert [reply.text for reply in asyncio.run(ask(backend))] == ["one!", "two!"]


class Theirs(LLMFailure):
    """An error that another process may not know."""


class Twisted(Exception):
    """Can be pickled, but not made again."""

    def __init__(self, _: int, __: int) -> None:
        super().__init__("of two numbers")


class Laden(LLMFailure):
    """Carries what cannot travel."""

    def __init__(self, load: object) -> None:
        super().__init__("laden", retry_after=2.0)
        self.load = load


def test_errors_keep_their_class_their_words_and_what_they_know() -> None:
    scripted = Scripted()
    put_off = LLMFailure("busy", alive=True, retry_after=1.5)
    scripted.errors = {
        "busy": put_off,
        "gone": LLMUnreachable("nobody there"),
        "wrong": LLMError("no such model"),
        "missing": MissingExtra("torch", "transformers"),
        "theirs": Theirs("of another module", alive=True),
        "bug": ValueError("a bug"),
        "lock": Laden(threading.Lock()),
        "twisted": Laden(Twisted(1, 2)),
        "within": LLMError("because", Twisted(1, 2)),
        "cancelled": asyncio.CancelledError(),
    }

    async def raised(backend: Backend, text: str) -> Exception:
        with pytest.raises(WaysoutError) as caught:
            await backend.complete(question(text))
        return caught.value

    with workers(scripted) as (backend,):
        found = {text: asyncio.run(raised(backend, text)) for text in scripted.errors}
        assert asyncio.run(backend.complete(question("still there"))).text == "still there!"
    told = {text: (type(error), str(error)) for text, error in found.items()}
    assert told == {
        "busy": (LLMFailure, "busy"),
        "gone": (LLMUnreachable, "nobody there"),
        "wrong": (LLMError, "no such model"),
        "missing": (MissingExtra, str(scripted.errors["missing"])),
        "theirs": (LLMFailure, "of another module"),
        "bug": (LLMError, "ValueError: a bug"),
        "lock": (LLMFailure, "laden"),
        "twisted": (LLMFailure, "laden"),
        "within": (LLMError, "('because', 'of two numbers')"),
        "cancelled": (LLMFailure, "the request was cancelled"),
    }
    assert vars(found["twisted"]) == {"alive": True, "retry_after": 2.0}
    assert vars(found["busy"]) == vars(put_off)
    assert vars(found["theirs"]) == {"alive": True, "retry_after": None}


def test_an_error_that_was_taken_apart_can_be_raised_again_as_it_was() -> None:
    error = CardError("a wrong range", source="card.toml", line=3)
    again = RemoteError.of(error, LLMError).restore()
    assert (type(again), str(again)) == (CardError, "card.toml, line 3: a wrong range")
    assert again.exit_code == error.exit_code


def test_what_is_cancelled_in_a_worker_is_cancelled_in_the_server_and_nothing_else_is() -> None:
    scripted = Scripted()

    async def ask(backend: BackendClient) -> str:
        given_up = asyncio.create_task(backend.complete(question("wait for me")))
        other = asyncio.create_task(backend.complete(question("other")))
        while "wait for me" not in scripted.under_way:
            await asyncio.sleep(0.002)
        given_up.cancel()
        assert isinstance((await asyncio.gather(given_up, return_exceptions=True))[0],
                          asyncio.CancelledError)  # fmt: skip
        return (await other).text

    with workers(scripted) as (backend,):
        assert asyncio.run(ask(backend)) == "other!"
        until(lambda: scripted.cancelled)
        assert scripted.cancelled == {"wait for me"}


def test_a_worker_that_leaves_takes_its_requests_along() -> None:
    scripted = Scripted()

    async def ask(leaving: BackendClient, staying: BackendClient) -> str:
        asked = [asyncio.create_task(leaving.complete(question(f"wait {i}"))) for i in range(3)]
        while len(scripted.under_way) < 3:
            await asyncio.sleep(0.002)
        await leaving.aclose()
        ended = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(error) for error in ended] == [LLMUnreachable] * 3
        with pytest.raises(LLMUnreachable, match="resumed"):
            await leaving.complete(question("too late"))
        return (await staying.complete(question("here"))).text

    with workers(scripted, 2) as (leaving, staying):
        assert asyncio.run(ask(leaving, staying)) == "here!"
        assert scripted.cancelled == {"wait 0", "wait 1", "wait 2"}


def test_a_server_that_is_gone_is_an_llm_that_nobody_reaches() -> None:
    scripted = Scripted()
    server = BackendServer(scripted)
    backend = BackendClient(server.open())

    async def ask() -> object:
        asked = asyncio.create_task(backend.complete(question("wait")))
        while not scripted.under_way:
            await asyncio.sleep(0.002)
        await asyncio.to_thread(server.close)
        return (await asyncio.gather(asked, return_exceptions=True))[0]

    assert isinstance(asyncio.run(ask()), LLMUnreachable)
    assert scripted.cancelled == {"wait"}
    server.close()  # once more does no harm
    (_, writes), theirs = pipe_pair()
    writes.close()
    with pytest.raises(LLMUnreachable):
        BackendClient(theirs)


class Learning(Simulated):
    """Finds out with the first request what it can do."""

    form: Form = "json_schema"
    parallel = 4

    async def complete(self, request: Request) -> Reply:
        self.form, self.parallel = "none", 512
        return await super().complete(request)


def test_what_the_backend_finds_out_reaches_the_workers_with_the_reply() -> None:
    with workers(Learning(1), 2) as backends:
        for backend in backends:
            assert (backend.form, backend.parallel) == ("json_schema", 4)
        for backend in backends:
            asyncio.run(backend.complete(question("hello")))
            assert (backend.form, backend.parallel) == ("none", 512)


def test_more_than_a_pipe_holds_goes_through_in_both_directions_at_once() -> None:
    long = "x" * 100_000

    async def ask(backend: BackendClient) -> list[Reply]:
        return await asyncio.gather(*(backend.complete(question(long, draw=i)) for i in range(30)))

    with workers(Scripted()) as (backend,):
        assert {reply.text for reply in asyncio.run(ask(backend))} == {f"{long}!"}
