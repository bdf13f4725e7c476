"""Rows on which the model fails or hangs: each fails alone, is remembered, and holds up few."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from serve_world import (
    ROW,
    Adder,
    Broken,
    Table,
    client,
    make_service,
    problem,
    run,
    small,
    until,
)

from waysout.domain.oracle import Answers
from waysout.domain.schema import Row
from waysout.errors import OracleError, OracleTimeout
from waysout.oracles import watchdog
from waysout.serve.concurrency import FairLock, SerializedOracle
from waysout.serve.models import DecideRequest, FartherRequest, StripsRequest
from waysout.serve.problems import ServedProblem
from waysout.serve.service import Service

# What hangs here hangs until the test ends, so the limit only has to be long enough for the rest.
SOON = 0.3
DECIDE = "/api/problems/small/decide"
BAD = 4  # the number of a row of the table; two others have its values


class Hangs(Adder):
    """Hangs on rows that a test picks, until it ends."""

    row_seconds = SOON

    def __init__(self, when: Callable[[Row], bool]) -> None:
        super().__init__()
        self.when = when
        self.event = threading.Event()

    def ask(self, rows: Sequence[Row]) -> Answers:
        answers = super().ask(rows)
        if any(map(self.when, rows)):
            self.event.wait()
        return answers

    def times(self, row: Row) -> int:
        return sum(row in batch for batch in self.batches)


Hanging = Callable[[Callable[[Row], bool]], Hangs]


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    """Make models; all their calls have come back when the test has ended."""
    made: list[Hangs] = []

    def make(when: Callable[[Row], bool]) -> Hangs:
        made.append(Hangs(when))
        return made[-1]

    yield make
    for model in made:
        model.event.set()
    for hand in list(watchdog._left):
        hand.join(60)


def with_table(oracle: Adder) -> ServedProblem:
    return ServedProblem.of(problem(oracle=oracle), Table())


def is_bad(row: Row) -> bool:
    return row == Table().rows[BAD]


# Who waits for whom ------------------------------------------------------------------------------


@dataclass
class Queue:
    """Threads that wait for a lock, one behind the other."""

    lock: FairLock
    came: list[str] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def add(self, name: str) -> None:
        def wait() -> None:
            with self.lock, self.lock:  # its holder may take it again
                self.came.append(name)

        self.threads.append(threading.Thread(target=wait))
        self.threads[-1].start()
        while len(self.lock._waiting) < len(self.threads):
            threading.Event().wait(0.001)

    def join(self) -> list[str]:
        for thread in self.threads:
            thread.join(10)
        return self.came


@pytest.mark.parametrize(("turned", "order"), [(False, "abc"), (True, "cba")])
def test_a_lock_is_handed_on_in_order(turned: bool, order: str) -> None:
    queue = Queue(FairLock())
    with queue.lock:
        for name in "abc":
            queue.add(name)
        if turned:
            queue.lock.reverse()
    assert queue.join() == list(order)
    with queue.lock:  # nobody has it
        pass


@pytest.mark.parametrize("is_next", [False, True])
def test_who_is_interrupted_while_they_wait_gets_no_lock(
    is_next: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = FairLock()
    holder = threading.Thread(target=lock.__enter__)
    holder.start()
    holder.join(10)

    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if is_next:  # it is handed on just before
                lock.__exit__()
            raise KeyboardInterrupt

    patched = SimpleNamespace(Event=Interrupted, get_ident=threading.get_ident)
    monkeypatch.setattr("waysout.serve.concurrency.threading", patched)
    with pytest.raises(KeyboardInterrupt):
        lock.__enter__()
    if not is_next:
        lock.__exit__()  # the holder's
    assert (lock._depth, lock._waiting) == (0, [])


def test_a_row_that_hung_is_not_asked_again_and_others_are(hanging: Hanging) -> None:
    oracle = hanging(lambda row: row[0] == 13)
    shared = SerializedOracle(oracle)
    bad, good = (13, 0, "x"), (12, 0, "x")
    with pytest.raises(OracleTimeout, match="did not answer a row"):
        shared.ask([bad])
    for rows, what in (([bad], "this row"), ([good, bad], "one of these 2 rows")):
        with pytest.raises(OracleError, match=f"hung on {what} before, .* for another [0-9]+ s"):
            shared.ask(rows)
    assert shared.ask([good]).decision.tolist() == [True]
    assert oracle.batches == [[bad], [good]]


def test_each_hang_of_a_row_puts_it_off_for_longer(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waysout.serve.concurrency._TIMES_AS_LONG", 2)
    shared = SerializedOracle(hanging(lambda row: True))
    waits = []
    for _ in range(3):
        shared._suspects = {row: (0.0, wait) for row, (_, wait) in shared._suspects.items()}
        with pytest.raises(OracleTimeout, match="did not answer"):
            shared.ask([(1, 1, "x")])
        waits += [wait for _, wait in shared._suspects.values()]
    assert waits[0] >= 2 * SOON
    assert waits[1:] == [2 * waits[0], 4 * waits[0]]


def test_of_rows_that_hung_together_the_one_that_hangs_is_found_and_put_off(
    hanging: Hanging,
) -> None:
    """The same batch again and again, as a page asks it, costs two calls that hang, and no more."""
    oracle = hanging(lambda row: row[0] == 13)
    shared = SerializedOracle(oracle)
    rows: list[Row] = [(a, 0, "x") for a in (11, 12, 13, 14)]
    with pytest.raises(OracleTimeout, match="did not answer 4 rows"):
        shared.ask(rows)
    with pytest.raises(OracleTimeout, match="did not answer a row"):
        shared.ask(rows)
    for _ in range(40):
        with pytest.raises(OracleError, match="hung on one of these 4 rows before"):
            shared.ask(rows)
    assert oracle.batches == [rows, *([row] for row in rows[:3])]


def test_suspects_are_asked_alone_until_they_are_answered(hanging: Hanging) -> None:
    oracle = hanging(lambda row: True)
    shared = SerializedOracle(oracle)
    suspects: list[Row] = [(a, 0, "x") for a in (4, 2)]
    with pytest.raises(OracleTimeout):
        shared.ask(suspects)
    oracle.event.set()
    new: list[Row] = [(a, 0, "y") for a in (1, 3, 5)]
    mixed = [new[0], suspects[0], new[1], suspects[1], new[2]]
    answers = shared.ask(mixed)
    assert (answers.probability * 20).tolist() == [1, 4, 3, 2, 5]
    assert oracle.batches[1:] == [[suspects[0]], [suspects[1]], new]
    shared.ask(mixed)
    assert oracle.batches[4:] == [mixed]


def test_suspects_have_the_time_of_their_batch_and_do_not_fill_the_memory(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waysout.serve.concurrency._MOST_SUSPECTS", 20)
    oracle = hanging(lambda row: len(oracle.batches) == 1)
    shared = SerializedOracle(oracle)
    rows: list[Row] = [(a, 0, "x") for a in range(30)]
    with pytest.raises(OracleTimeout):
        shared.ask(rows)
    assert list(shared._suspects) == rows[10:]
    oracle.row_seconds = 60.0
    clock = SimpleNamespace(monotonic=lambda: 20.0 * len(oracle.batches))  # each call takes so long
    monkeypatch.setattr("waysout.serve.concurrency.time", clock)
    with pytest.raises(OracleTimeout, match="did not answer 20 rows one by one within 72 s"):
        shared.ask(rows)
    assert oracle.batches[1:] == [[row] for row in rows[10:14]]
    assert list(shared._suspects) == rows[14:]


def test_what_is_answered_waits_for_no_call_and_what_is_new_for_one(hanging: Hanging) -> None:
    """Eight rows hang, more than decisions once had threads; then somebody else comes."""
    oracle = hanging(lambda row: row[2] == "z")

    async def story() -> None:
        async with client(make_service(small(oracle), llm=None)) as c:
            assert (await c.post(DECIDE, {"row": ROW})).status_code == 200
            hung = [
                asyncio.create_task(c.post(DECIDE, {"row": {**ROW, "a": a, "c": "z"}}))
                for a in range(8)
            ]
            await until(lambda: oracle.batches[1:])
            known = await c.post(DECIDE, {"row": ROW})
            assert (known.status_code, len(oracle.batches)) == (200, 2)  # within the first call
            assert not any(task.done() for task in hung)
            new = await c.post(DECIDE, {"row": {**ROW, "a": 9}})
            assert new.status_code == 200
            assert sum(task.done() for task in hung) <= 1
            assert {answer.status_code for answer in await asyncio.gather(*hung)} == {502}

    run(story())


@pytest.mark.parametrize("path", ["decide", "strips", "farther"])
def test_what_is_answered_waits_for_none_of_many_that_wait(path: str, hanging: Hanging) -> None:
    """And none of those that wait is kept from the queue, which is turned round after a hang."""
    oracle = hanging(lambda row: False)
    oracle.row_seconds = 60.0  # the test ends it
    served = small(oracle)
    lock = served.problem.oracle.oracle.call_lock  # type: ignore[attr-defined]
    place = f"/api/problems/small/{path}"

    async def story() -> None:
        async with client(make_service(served, llm=None)) as c:
            known = {"row": ROW, "query": ROW}
            first = await c.post(place, known)
            assert first.status_code == 200
            oracle.when = lambda row: True
            rows = [{**ROW, "a": 2, "b": b, "c": "z"} for b in range(40)]
            hung = [asyncio.create_task(c.post(DECIDE, {"row": row})) for row in rows]
            await until(lambda: len(lock._waiting) == len(rows) - 1 > watchdog.MOST_HUNG)
            assert (await c.post(place, known)).json() == first.json()
            assert not any(task.done() for task in hung)
            oracle.event.set()
            assert {answer.status_code for answer in await asyncio.gather(*hung)} == {200}

    run(story())


@pytest.mark.parametrize("path", ["decide", "strips", "farther", "people"])
def test_nobody_waits_for_the_model_on_behalf_of_who_has_left(path: str, hanging: Hanging) -> None:
    oracle = hanging(lambda row: False)
    oracle.row_seconds = 60.0  # the test ends it
    served = small(oracle, known=True)
    lock = served.problem.oracle.oracle.call_lock  # type: ignore[attr-defined]
    ask: dict[str, Callable[[Callable[[], bool]], Awaitable[object]]] = {
        "decide": lambda left: served.decide(DecideRequest(row=ROW), left),
        "strips": lambda left: served.strips(StripsRequest(row=ROW), left),
        "farther": lambda left: served.farther(
            FartherRequest(row={**ROW, "a": 9}, query=ROW), left
        ),
        "people": lambda left: served.look_up("1", 0, 5, left),
    }

    async def story() -> None:
        oracle.when, gone = lambda row: True, threading.Event()
        hung = asyncio.create_task(served.decide(DecideRequest(row={**ROW, "a": 20})))
        await until(lambda: oracle.batches)
        asked = [asyncio.ensure_future(ask[path](gone.is_set)) for _ in range(3)]
        await until(lambda: len(lock._waiting) == 3)
        gone.set()
        for error in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(error, OracleError)
            assert "nobody waits for its answer" in str(error)
        assert (len(oracle.batches), hung.done()) == (1, False)
        oracle.event.set()
        await hung

    run(story())


def test_a_page_that_asks_for_the_same_strips_again_and_again_waits_once(hanging: Hanging) -> None:
    oracle = hanging(lambda row: row[0] == 13)

    async def story() -> None:
        async with client(make_service(small(oracle), llm=None)) as c:
            for _ in range(5):
                answer = await c.post("/api/problems/small/strips", {"row": ROW})
                assert answer.status_code == 200
                asked = {s["feature"]: s["asked"] for s in answer.json()["strips"]}
                assert 13 not in [point["value"] for point in asked["a"]]
                assert len(asked["a"]) > 5
            assert sum(any(row[0] == 13 for row in batch) for batch in oracle.batches) == 2

    run(story())


def test_nobody_but_who_pins_waits_for_a_pin(hanging: Hanging) -> None:
    oracle = hanging(lambda row: row[:2] == (20, 20))
    oracle.row_seconds = 60.0  # the test ends it

    async def story() -> None:
        async with client(make_service(small(oracle), llm=None)) as c:
            place = f"/api/searches/{(await c.waited((await c.started())['id']))['id']}"
            asked = len(oracle.batches)
            rows = [{**ROW, "a": 20, "b": 20}]
            pinning = asyncio.create_task(c.http.put(f"{place}/pins", json={"rows": rows}))
            await until(lambda: len(oracle.batches) > asked)
            assert (await c.get(place)).status_code == 200
            assert (await c.post(f"{place}/stop")).status_code == 202
            assert (await c.http.delete(place)).status_code == 204
            assert not pinning.done()
            oracle.event.set()
            assert (await pinning).status_code == 200

    run(story())


def test_who_deletes_or_stops_what_was_before_a_restart_asks_no_model(
    hanging: Hanging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fourteen people come back to their links at once, more than there are threads for others."""
    monkeypatch.setenv("WAYSOUT_RUNS", str(tmp_path))
    oracle = hanging(lambda row: True)
    oracle.row_seconds = 60.0  # the test ends it

    def service(oracle: Adder) -> Service:
        return make_service(small(oracle), llm=None, keep_runs=True, searches=1, kept=20)

    async def story() -> None:
        async with client(service(Adder())) as c:
            ids = list[str]()
            for _ in range(16):
                ids.append((await c.started(oracle_rows=5, method="random"))["id"])
                await c.waited(ids[-1])
        async with client(service(oracle)) as c:
            deleted, stopped, *looked_at = (f"/api/searches/{id}" for id in ids)
            assert (await c.post(f"{stopped}/stop")).status_code == 202
            assert (await c.http.delete(deleted)).status_code == 204
            assert not oracle.batches
            looking = [asyncio.create_task(c.get(place)) for place in looked_at]
            await until(lambda: len(c.app.state.service.searches) == 15 and oracle.batches)
            assert (await c.get("/api/problems/small")).status_code == 200
            assert (await c.http.delete(looked_at[0])).status_code == 204
            assert (await c.http.delete(stopped)).status_code == 204
            assert len(oracle.batches) == 1
            assert not any(task.done() for task in looking[1:])
            assert len(list(tmp_path.glob("*.db"))) == 13
            oracle.event.set()
            answers = await asyncio.gather(*looking)
            assert [answer.status_code for answer in answers] == [404] + 13 * [200]

    run(story())


def test_what_is_deleted_while_it_waits_for_the_model_goes_afterwards(
    hanging: Hanging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYSOUT_RUNS", str(tmp_path))
    monkeypatch.setattr("waysout.serve.service._DELETING_SECONDS", 0.01)
    oracle = hanging(lambda row: False)
    oracle.row_seconds = 60.0

    async def story() -> None:
        async with client(make_service(
            small(oracle), llm=None, keep_runs=True, part_rows=50, settling_rows=300
        )) as c:  # fmt: skip
            place = f"/api/searches/{(await c.started(oracle_rows=100, method='random'))['id']}"
            [search], hung = c.app.state.service.searches.values(), threading.Event()

            def hangs(row: Row) -> bool:  # a search ends at a stop, and what follows it waits
                if not search._is_searching:
                    hung.set()
                return hung.is_set()

            oracle.when = hangs
            await until(hung.is_set)
            assert (await c.http.delete(place)).status_code == 202
            asked = len(oracle.batches)
            assert (await c.get(place)).status_code == 404
            oracle.event.set()
            await until(lambda: not list(tmp_path.iterdir()))
            assert len(oracle.batches) == asked, "nothing more is asked for it"

    run(story())


def test_searches_that_were_stopped_do_not_wait_for_the_model(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More searches than there are threads, as somebody changes a lock again and again."""
    monkeypatch.setattr("waysout.serve.search_session._PATIENCE", 0.0)
    monkeypatch.setattr("waysout.serve.concurrency._LOOK_SECONDS", 0.01)
    oracle = hanging(lambda row: True)
    oracle.row_seconds = 60.0  # the test ends it
    served = small(oracle)
    lock = served.problem.oracle.oracle.call_lock  # type: ignore[attr-defined]

    async def story() -> None:
        async with client(make_service(served, llm=None, searches=1)) as c:
            hung = asyncio.create_task(c.post(DECIDE, {"row": {**ROW, "c": "z"}}))
            await until(lambda: oracle.batches)
            place = f"/api/searches/{(await c.started())['id']}"
            for i in range(20):
                await until(lambda: lock._waiting)
                await c.post(f"{place}/stop")
                view = await c.waited(place.rpartition("/")[2])
                assert (view["outcome"], view["reason"]) == ("interrupted", "stopped by request")
                await until(lambda: not lock._waiting)
                locks = {"locks": {"ranges": {"a": {"max": 20 - i}}}}
                assert (await c.post(f"{place}/continue", locks)).status_code == 202
            assert (len(oracle.batches), hung.done()) == (1, False)
            oracle.event.set()
            assert (await hung).status_code == 200
            assert (await c.waited(place.rpartition("/")[2]))["outcome"] != "failed"

    run(story())


def test_what_asks_no_model_needs_no_thread_in_which_searches_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYSOUT_RUNS", str(tmp_path))
    go = threading.Event()

    async def story() -> None:
        async with client(make_service(llm=None, keep_runs=True, searches=1)) as c:
            place = f"/api/searches/{(await c.waited((await c.started())['id']))['id']}"
            waiting = [asyncio.create_task(asyncio.to_thread(go.wait)) for _ in range(50)]
            try:
                await asyncio.sleep(0)  # they begin
                assert (await c.get("/api/problems/small")).status_code == 200
                for name in ("letter.txt", "report.html", "options?sort=difference"):
                    assert (await c.get(f"{place}/{name}")).status_code == 200
                assert (await c.http.delete(place)).status_code == 204
                assert not list(tmp_path.iterdir())
                assert (await c.get(place)).status_code == 404  # looked for on file
                assert (await c.started())["status"] == "running"
            finally:
                go.set()
                await asyncio.gather(*waiting)

    run(story())


def test_others_have_threads_before_the_first_search_begins() -> None:
    async def story() -> None:
        async with make_service(searches=40):
            together = threading.Barrier(40)
            await asyncio.gather(*(asyncio.to_thread(together.wait, 10) for _ in range(40)))

    run(story())


# Rows of the table -------------------------------------------------------------------------------


def make_bad(kind: str, hanging: Hanging) -> Any:
    return hanging(is_bad) if kind == "hangs" else Broken("raises", is_bad)


@pytest.mark.parametrize("kind", ["raises", "hangs"])
def test_a_row_without_an_answer_is_no_example_and_spoils_none(kind: str, hanging: Hanging) -> None:
    oracle = make_bad(kind, hanging)

    async def story() -> None:
        async with client(make_service(with_table(oracle), llm=None)) as c:
            path = "/api/problems/small/examples"
            found = (await c.get(path)).json()["examples"]
            rows = Table().rows
            assert [one["number"] for one in found] == [
                i
                for i, row in enumerate(rows)
                if not is_bad(row) and float(row[0] or 0) + float(row[1] or 0) < 10
            ]
            asked = len(oracle.batches)
            assert (await c.get(path)).json()["examples"] == found
            assert len(oracle.batches) == asked, "nothing is asked at another opening"

    run(story())


@pytest.mark.parametrize("kind", ["raises", "hangs"])
def test_a_row_without_an_answer_leaves_the_others_of_a_page(kind: str, hanging: Hanging) -> None:
    oracle = make_bad(kind, hanging)

    async def story() -> None:
        async with client(make_service(with_table(oracle), llm=None)) as c:
            path = "/api/problems/small/people"
            found = (await c.get(path, q="c=y")).json()
            numbers = [one["number"] for one in found["people"]]
            assert (found["total"], numbers) == (20, [i for i in range(1, 60, 3) if i % 21 != BAD])
            alone = await c.get(path, q="c=y a=4")
            assert alone.status_code == 502, "its reason is told where no other row is"
            if kind == "hangs":
                assert oracle.times(Table().rows[BAD]) == 2  # with the others, and alone

    run(story())


def test_a_look_up_that_was_answered_waits_for_none_that_hangs(hanging: Hanging) -> None:
    oracle = hanging(lambda row: False)
    oracle.row_seconds = 60.0  # the test ends it

    async def story() -> None:
        async with client(make_service(with_table(oracle), llm=None)) as c:
            path = "/api/problems/small/people"
            first = (await c.get(path, q="c=y a=5")).json()
            oracle.when = lambda row: True
            asked = len(oracle.batches)
            hung = asyncio.create_task(c.get(path, q="c=z"))
            await until(lambda: len(oracle.batches) > asked)
            assert (await c.get(path, q="c=y a=5")).json() == first
            assert not hung.done()
            oracle.event.set()
            assert (await hung).status_code == 200

    run(story())


def test_a_model_that_answers_no_row_is_said_to_and_asked_again() -> None:
    oracle = Broken("raises", lambda row: True)

    async def story() -> None:
        async with client(make_service(with_table(oracle), llm=None)) as c:
            path = "/api/problems/small/examples"
            assert (await c.get(path)).status_code == 502
            oracle.when = is_bad
            assert len((await c.get(path)).json()["examples"]) > 5

    run(story())
