"""What a search of the service may spend, over all its parts, whatever happens in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from serve_world import (
    BRIEF,
    Adder,
    Broken,
    Gate,
    Watched,
    ended,
    go_on,
    make_service,
    run,
    small,
    start,
    until,
)

from waysout.errors import InputError, LLMFailure, UnavailableError
from waysout.llm.base import Reply, Request, note_sent
from waysout.serve.errors import Conflict
from waysout.serve.models import Locks
from waysout.serve.search_session import SearchSession
from waysout.serve.settling import settled
from waysout.store import Store

METHODS = ("wayfinder", "recombine", "comp-mcts", "random")


@pytest.fixture
def full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no answer put on file."""
    monkeypatch.setenv("WAYSOUT_RUNS", str(tmp_path))

    def full(store: Store, *_: object, **__: object) -> None:
        raise UnavailableError(f"cannot write {store.path}: the disk is full")

    monkeypatch.setattr(Store, "record", full)


@pytest.mark.parametrize("seed", range(8))
def test_no_budget_is_passed_however_often_it_is_stopped(seed: int) -> None:
    rng = random.Random(seed)
    calls, rows = rng.randint(0, 9), rng.randint(1, 120)
    stopping: list[SearchSession] = []
    chance = rng.choice((0.05, 0.3, 0.9))

    async def before(request: Request, attempt: int) -> None:
        await asyncio.sleep(0)
        if rng.random() < chance:
            stopping[0].stop()

    class Stopping(Adder):
        def ask(self, rows: Any) -> Any:
            if stopping and rng.random() < chance:
                stopping[0].stop()
            return super().ask(rows)

    llm = Watched(before)

    async def story() -> None:
        async with make_service(small(Stopping()), llm, part_rows=rng.choice((5, 40))) as service:
            search = start(service, calls=calls, oracle_rows=rows, method=rng.choice(METHODS))
            stopping.append(search)
            for _ in range(12):
                await ended(search)
                spent = search.spent
                assert spent.llm_calls <= calls
                assert spent.oracle_rows <= rows
                assert llm.replied.total() >= spent.llm_calls
                assert search.result is not None
                assert search.result.ledger == spent
                lock = Locks(fixed=rng.sample(["b", "c"], rng.randint(0, 2)))
                try:
                    go_on(service, search, locks=lock)
                except Conflict:
                    assert (search.calls_left, search.rows_left) == (0, 0)
                    break

    run(story())


def test_totals_may_be_raised_within_the_limits_and_not_below_what_is_spent() -> None:
    async def story() -> None:
        async with make_service(calls=5, oracle_rows=100) as service:
            search = start(service, calls=2, oracle_rows=30)
            await ended(search)
            assert (search.calls_left, search.rows_left) == (0, 0)
            with pytest.raises(Conflict, match="neither"):
                go_on(service, search)
            with pytest.raises(InputError, match="30 are spent"):
                go_on(service, search, oracle_rows=29)
            with pytest.raises(InputError, match="at most 100 here"):
                go_on(service, search, oracle_rows=101)
            go_on(service, search, oracle_rows=45)
            await ended(search)
            assert search.spent.oracle_rows == 45

    run(story())


def test_calls_without_a_row_left_to_try_are_not_spent() -> None:
    async def story() -> None:
        async with make_service(calls=30) as service:
            search = start(service, calls=1, oracle_rows=20)
            await ended(search)
            go_on(service, search, calls=9)
            await ended(search)
            assert search.spent.llm_calls <= 1
            assert search.options

    run(story())


def test_who_stops_and_goes_on_has_no_call_more_than_they_may() -> None:
    async def story() -> None:
        held = Watched(Gate())
        async with make_service(llm=held) as service:
            search = start(service, calls=2)
            for sent in (1, 2):
                await until(lambda: held.now)
                search.stop()
                await ended(search)
                assert (held.requests, search.spent.llm_calls) == (sent, sent)
                go_on(service, search)
            await ended(search)
            assert (held.requests, search.calls_left) == (2, 0)

    run(story())


@pytest.mark.usefixtures("full_disk")
def test_a_reply_that_cannot_be_put_on_file_is_paid_for() -> None:
    async def story() -> None:
        llm = Watched()
        async with make_service(llm=llm, keep_runs=True) as service:
            search = start(service, calls=1)
            (end,) = await ended(search)
            assert end["reason"] == f"cannot write {search.filing.run}.db: the disk is full"
            go_on(service, search)
            await ended(search)
            assert (llm.requests, search.spent.llm_calls) == (1, 1)

    run(story())


@pytest.mark.usefixtures("full_disk")
def test_rows_whose_answers_cannot_be_put_on_file_are_paid_for() -> None:
    async def story() -> None:
        async with make_service(llm=None, keep_runs=True) as service:
            search = start(service, oracle_rows=12)
            for part in range(1, 10):
                await ended(search)
                assert search.spent.oracle_rows == min(12, 5 * part)
                if not search.rows_left:
                    break
                go_on(service, search)
            assert search.rows_left == 0

    run(story())


def test_rows_that_fail_while_it_settles_are_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Broken("raises", lambda row: False)

    def failing(*given: Any) -> Any:
        model.when = lambda row: 20 in row  # where strips end
        try:
            return settled(*given)
        finally:
            model.when = lambda row: False

    monkeypatch.setattr("waysout.serve.search_session.settled", failing)

    async def story() -> None:
        world = small(model)
        async with make_service(world, llm=None, part_rows=10, settling_rows=300) as service:
            search = start(service, oracle_rows=100, method="random")
            while search.rows_left:
                await ended(search)
                spent = search.spent
                assert model.rows <= spent.oracle_rows + spent.setup_rows
                assert spent.oracle_rows <= 100
                if search.rows_left:
                    go_on(service, search)

    run(story())


def test_a_call_that_was_not_sent_costs_nothing() -> None:
    class Waits(Watched):
        """Finds out first what the server takes."""

        notes_sent = True

        async def complete(self, request: Request) -> Reply:
            if self.before is not None:
                self.now += 1
                await self.before(request, 1)
            note_sent()
            return await self.inner.complete(request)

    async def story() -> None:
        llm = Waits(Gate())
        async with make_service(llm=llm) as service:
            search = start(service, calls=2)
            await until(lambda: llm.now)
            search.stop()
            await ended(search)
            assert (search.spent.llm_calls, search.spent.attempts) == (0, 0)
            llm.before.opened.set()
            go_on(service, search)
            await ended(search)
            assert (search.spent.llm_calls, search.spent.attempts) == (2, 2)

    run(story())


def test_a_call_that_failed_costs_nothing() -> None:
    async def fails_once(request: Request, attempt: int) -> None:
        if attempt == 1:
            raise LLMFailure("a fault on purpose", alive=True)

    async def story() -> None:
        llm = Watched(fails_once)
        async with make_service(llm=llm) as service:
            search = start(service, calls=1)
            await ended(search)
            assert (llm.requests, search.spent.llm_calls, search.spent.attempts) == (2, 1, 2)

    run(story())


def test_what_is_left_goes_down_while_a_part_runs() -> None:
    async def go() -> list[Mapping[str, Any]]:
        told: list[Mapping[str, Any]] = []
        async with make_service() as service:
            search = start(service)
            add = search.log.add

            def listen(kind: str, data: Mapping[str, Any]) -> None:
                told.extend([data] if kind == "ledger" else [])
                add(kind, data)

            search.log.add = listen  # type: ignore[method-assign]
            await ended(search)
        return told

    told = run(go())
    assert len({one["oracle_rows_left"] for one in told}) > 2
    rows = BRIEF["oracle_rows"]
    assert all(one["oracle_rows"] + one["oracle_rows_left"] == rows for one in told)


def test_the_model_is_tried_once_for_all_searches() -> None:
    async def go() -> tuple[int, int]:
        async with make_service(small(known=True), calls=0) as service:
            first, second = (start(service) for _ in range(2))
            await ended(first)
            await ended(second)
            third = start(service)
            await ended(third)
            return first.spent.setup_rows, third.spent.setup_rows

    before, after = run(go())
    assert after == 1 < before  # the row itself
