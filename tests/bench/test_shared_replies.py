"""One LLM for all searches: each request is asked once, and what was answered is never lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from waysout.bench import replies as module
from waysout.bench.measure import FoundAt
from waysout.bench.replies import TALLY, ReplyTally, SharedReplies
from waysout.bench.results import Results
from waysout.llm.base import Backend, Message, Reply, Request
from waysout.store.tables import full

ONE, OTHER = (Request((Message("user", text),), k=1) for text in ("one", "other"))


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Results]:
    with Results.open(tmp_path / "results") as opened:
        yield opened


class Held(Backend):
    """Answers when it is let."""

    name = "held"
    parallel = 4

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.let = asyncio.Event()

    async def complete(self, request: Request) -> Reply:
        text = request.messages[0].content
        self.seen[text] += 1
        await self.let.wait()
        return Reply(f"to {text}")


async def a_moment() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def searching(replies: SharedReplies, request: Request, tally: ReplyTally) -> str:
    TALLY.set(tally)
    return (await replies.complete(request)).text


@pytest.mark.parametrize("in_flight", [1, 3])
def test_who_asks_the_same_meanwhile_waits_for_the_same_reply(
    in_flight: int, results: Results
) -> None:
    async def ask() -> None:
        llm, tallies = Held(), [ReplyTally(), ReplyTally(), ReplyTally()]
        replies = SharedReplies(llm, results, in_flight=in_flight)
        asked = [
            asyncio.create_task(searching(replies, request, tally))
            for request, tally in zip((OTHER, ONE, ONE), tallies, strict=True)
        ]
        await a_moment()
        llm.let.set()
        assert await asyncio.gather(*asked) == ["to other", "to one", "to one"]
        assert llm.seen == {"one": 1, "other": 1}
        assert [tally.from_file for tally in tallies] == [0, 0, 1]

    asyncio.run(ask())


def test_an_arm_that_is_measured_alone_shares_with_itself_only(results: Results) -> None:
    async def ask() -> None:
        llm = Held()
        llm.let.set()
        replies = SharedReplies(llm, results)
        tallies = [ReplyTally(), ReplyTally("arm"), ReplyTally("arm"), ReplyTally("another")]
        for tally in tallies:
            await asyncio.create_task(searching(replies, ONE, tally))
        assert [tally.from_file for tally in tallies] == [0, 0, 1, 0]
        assert (llm.seen.total(), results.replies()) == (3, {llm.name: 3})

    asyncio.run(ask())


def test_nothing_is_asked_once_a_reply_could_not_be_filed(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = full(results.path)

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(Results, "keep_reply", fails)

    async def ask() -> None:
        llm = Held()
        llm.let.set()
        replies = SharedReplies(llm, results)
        for request in (ONE, ONE, OTHER):
            with pytest.raises(type(error)) as caught:
                await replies.complete(request)
            assert caught.value is error is replies.lost
        assert llm.seen == {"one": 1}

    asyncio.run(ask())


def test_a_reply_under_way_is_kept_though_its_search_was_stopped(results: Results) -> None:
    async def ask() -> None:
        llm = Held()
        replies = SharedReplies(llm, results, in_flight=1)
        stopped = [asyncio.create_task(replies.complete(request)) for request in (ONE, OTHER)]
        await a_moment()
        for task in stopped:
            task.cancel()
        await a_moment()
        again = asyncio.create_task(searching(replies, ONE, tally := ReplyTally()))
        await a_moment()
        llm.let.set()
        await replies.settle()
        assert (await again, tally.from_file) == ("to one", 1)
        assert all(task.cancelled() for task in stopped)
        assert llm.seen == {"one": 1}  # the other one had not been sent
        assert (replies.paid, results.replies()) == (1, {llm.name: 1})

    asyncio.run(ask())


def test_an_llm_that_hangs_is_not_waited_for_to_the_end(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LAST_SECONDS", 0.01)

    async def ask() -> None:
        replies = SharedReplies(Held(), results)
        hanging = asyncio.create_task(replies.complete(ONE))
        await a_moment()
        await asyncio.wait_for(replies.settle(), 30)
        with pytest.raises(asyncio.CancelledError):
            await hanging

    asyncio.run(ask())


def test_an_option_with_the_key_of_the_query_is_not_among_those_found() -> None:
    found = FoundAt()
    for options, calls in ((1, 1), (3, 2)):
        heard: Any = SimpleNamespace(index=0, llm_calls=calls, oracle_rows=5 * calls,
                                     options=options)  # fmt: skip
        found(heard)
    problem: Any = SimpleNamespace(key=lambda row: row, row=lambda raw: tuple(raw.values()))
    result: Any = SimpleNamespace(
        index=0,
        query={"a": 1},
        ledger=SimpleNamespace(llm_calls=9, oracle_rows=45),
        options=[SimpleNamespace(key=key) for key in ((2,), (1,), (3,), (4,))],
    )
    assert found.of(problem, result) == ((1, 5), (2, 10), (9, 45))
