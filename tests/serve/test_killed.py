"""What a service that was killed leaves, as the next one finds it.

The folder of runs is copied while the first is at work: that is what a kill would leave.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from serve_world import (
    ROW,
    Adder,
    Client,
    Gate,
    Watched,
    client,
    ended,
    go_on,
    make_service,
    run,
    small,
    start,
    until,
)

from waysout.domain.oracle import Answers
from waysout.domain.schema import Row
from waysout.errors import UnavailableError
from waysout.llm.base import Request
from waysout.run import find
from waysout.serve.saved_run import new_id, run_path
from waysout.serve.service import Service
from waysout.store import Store


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYSOUT_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


@pytest.fixture
def kill(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Copy the runs, and have the next service find the copy."""

    def copied() -> Path:
        place = runs.with_name("killed")
        shutil.copytree(runs, place)
        monkeypatch.setenv("WAYSOUT_RUNS", str(place))
        return place

    return copied


class Hangs(Adder):
    """Hangs once it is told to, until the test ends."""

    row_seconds = 60.0

    def __init__(self) -> None:
        super().__init__()
        self.when: Callable[[Sequence[Row]], bool] = lambda rows: False
        self.end, self.hung = threading.Event(), threading.Event()

    def ask(self, rows: Sequence[Row]) -> Answers:
        if self.when(rows):
            self.hung.set()
            self.end.wait()
        return super().ask(rows)


@pytest.fixture
def model() -> Iterator[Hangs]:
    yield (hangs := Hangs())
    hangs.end.set()


def after(**options: Any) -> Service:
    return make_service(small(), keep_runs=True, **options)


async def pin(c: Client, place: str, *rows: dict[str, Any]) -> Any:
    return await c.http.put(f"{place}/pins", json={"rows": list(rows)})


async def hanging_as_it_settles(c: Client, model: Hangs, **body: Any) -> str:
    """Start a search, and wait until the model hangs on what is asked after it."""
    place = f"/api/searches/{(await c.started(method='random', **body))['id']}"
    [search] = c.app.state.service.searches.values()
    model.when = lambda rows: not search._is_searching or model.hung.is_set()
    await until(model.hung.is_set)
    return place


def settling(model: Hangs) -> Service:
    return make_service(small(model), llm=None, keep_runs=True, part_rows=50, settling_rows=300)


def test_what_is_being_deleted_does_not_come_back(
    runs: Path, kill: Callable[[], Path], model: Hangs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waysout.serve.service._DELETING_SECONDS", 0.01)

    async def story() -> None:
        async with client(settling(model)) as c:
            place = await hanging_as_it_settles(c, model, oracle_rows=100)
            assert (await c.http.delete(place)).status_code == 202
            left = kill()
            assert list(left.glob("*.db"))
            async with client(after(llm=None)) as again:
                assert not list(left.iterdir())
                assert (await again.get(place)).status_code == 404
                assert (await again.http.delete(place)).status_code == 404
            monkeypatch.setenv("WAYSOUT_RUNS", str(runs))
            model.end.set()
            await until(lambda: not list(runs.iterdir()))

    run(story())


def test_a_stop_ends_a_part_though_the_model_hangs_on_what_makes_it_exact(
    runs: Path, model: Hangs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waysout.serve.search_session._PATIENCE", 0.05)

    async def story() -> None:
        async with client(settling(model)) as c:
            place = await hanging_as_it_settles(c, model, oracle_rows=200)
            [search] = c.app.state.service.searches.values()
            before = search.spent.oracle_rows
            await c.post(f"{place}/stop")
            view = await c.waited(search.id)
            assert (view["outcome"], model.end.is_set()) == ("found", False)
            assert view["ledger"]["oracle_rows"] > before, "what was sent counts"
            assert view["ledger"]["oracle_rows"] + view["budget"]["oracle_rows_left"] == 200
            assert (await c.get(f"{place}/letter.txt")).status_code == 200
            model.end.set()
            model.when = lambda rows: False
            assert (await c.post(f"{place}/continue")).status_code == 202
            await asyncio.sleep(0.1)  # the patience with the part before is over
            assert (await c.waited(search.id))["outcome"] == "found"

    run(story())


@pytest.mark.parametrize("part", [1, 2])
def test_the_draft_of_a_run_goes_with_its_search(runs: Path, part: int) -> None:
    id = new_id()
    runs.mkdir()
    draft = run_path("small", id, part)
    for name in (f".{draft.name}.new", f".{draft.name}.new-journal", f"{draft.name}.lock"):
        (runs / name).write_text("a person's row")
    (runs / "another-file").write_text("")

    async def story() -> None:
        async with client(after()) as c:
            place = f"/api/searches/{id}"
            assert (await c.get(place)).status_code == 404
            assert (await c.http.delete(place)).status_code == 204
            assert [file.name for file in runs.iterdir()] == ["another-file"]
            assert (await c.http.delete(place)).status_code == 404

    run(story())


@pytest.mark.usefixtures("runs")
def test_what_is_pinned_while_a_part_runs_is_on_file(kill: Callable[[], Path]) -> None:
    gate, own = Gate(), {**ROW, "a": 9, "b": 9}

    async def story() -> None:
        service = make_service(llm=(llm := Watched(gate)), keep_runs=True)
        async with client(service) as c:
            place = f"/api/searches/{(await c.started(calls=3))['id']}"
            [search] = service.searches.values()
            await until(lambda: llm.requests)
            assert (await pin(c, place, own)).status_code == 200
            assert search.running
            kill()
            async with client(after()) as again:
                pins = (await again.get(place)).json()["pins"]
                assert [each["row"] for each in pins] == [own]
            gate.opened.set()

    run(story())


@pytest.mark.usefixtures("runs")
def test_what_is_pinned_before_a_run_is_made_is_in_it(kill: Callable[[], Path]) -> None:
    gate, opened, own = Gate(), asyncio.Event(), {**ROW, "a": 9, "b": 9}

    async def story() -> None:
        service = make_service(llm=(llm := Watched(gate)), keep_runs=True)
        open_llm = service._context.open_llm

        async def slowly() -> Any:
            await opened.wait()
            return await open_llm()

        object.__setattr__(service._context, "open_llm", slowly)
        async with client(service) as c:
            place = f"/api/searches/{(await c.started(calls=3))['id']}"
            assert (await pin(c, place, own)).status_code == 200
            opened.set()
            await until(lambda: llm.requests)
            kill()
            async with client(after()) as again:
                pins = (await again.get(place)).json()["pins"]
                assert [each["row"] for each in pins] == [own]
            gate.opened.set()

    run(story())


@pytest.mark.usefixtures("runs")
def test_pins_that_cannot_be_filed_are_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = {**ROW, "a": 9, "b": 9}

    def full(run: str, rows: Any) -> None:
        raise UnavailableError(f"cannot write {run}.db: the disk is full")

    async def story() -> None:
        async with client(after(llm=None)) as c:
            view = await c.waited((await c.started())["id"])
            place = f"/api/searches/{view['id']}"
            way = view["ways"][0]["row"]
            assert (await pin(c, place, way)).status_code == 200
            monkeypatch.setattr("waysout.serve.filing.save_pins", full)
            answer = await pin(c, place, own)
            assert answer.status_code == 503
            assert "not on file: cannot write" in answer.text
            assert "the disk is full" in answer.text
            assert [each["row"] for each in (await c.get(place)).json()["pins"]] == [way]
            assert (await c.post(f"{place}/continue", {"oracle_rows": 60})).status_code == 202
            await c.waited(view["id"])
            await until(lambda: "pins were not filed" in caplog.text)
            assert view["id"] not in caplog.text

    run(story())


@pytest.mark.usefixtures("runs")
def test_a_call_that_was_sent_before_a_kill_counts(kill: Callable[[], Path]) -> None:
    """Restarts would give any number of calls else: the LLM's server works and bills."""
    held, gate = Watched(), Gate()

    async def second(request: Request, attempt: int) -> None:
        if held.requests > 1:
            await gate(request, attempt)

    held.before = second

    async def story() -> None:
        service = make_service(llm=held, keep_runs=True)
        async with client(service) as c:
            id = (await c.started(calls=2, oracle_rows=1000))["id"]
            [search] = service.searches.values()
            await until(lambda: held.requests == 2)
            assert search.spent.llm_calls == 1
            kill()
            async with client(after()) as again:
                view = (await again.get(f"/api/searches/{id}")).json()
                assert (view["ledger"]["llm_calls"], view["ledger"]["attempts"]) == (2, 2)
                assert view["budget"]["calls_left"] == 0
            gate.opened.set()

    run(story())


@pytest.mark.usefixtures("runs")
def test_a_pin_on_which_the_model_fails_keeps_the_others_and_stays_on_file(model: Hangs) -> None:
    own = {**ROW, "a": 9, "b": 9}

    class Fails(Adder):
        def ask(self, rows: Sequence[Row]) -> Answers:
            if any(row[:2] == (9, 9) for row in rows):
                raise RuntimeError("not this one")
            return super().ask(rows)

    async def story() -> None:
        async with client(after(llm=None)) as c:
            view = await c.waited((await c.started())["id"])
            place, way = f"/api/searches/{view['id']}", view["ways"][0]["row"]
            assert (await pin(c, place, own, way)).status_code == 200
        async with client(make_service(small(Fails()), llm=None, keep_runs=True)) as c:
            pins = (await c.get(place)).json()["pins"]
            assert [each["row"] for each in pins] == [way]
            await c.post(f"{place}/continue", {"oracle_rows": 60})
            await c.waited(view["id"])
        async with client(after(llm=None)) as c:
            pins = (await c.get(place)).json()["pins"]
            assert sorted(each["row"]["a"] for each in pins) == sorted([9, way["a"]])

    run(story())


@pytest.mark.usefixtures("runs")
def test_pins_outlive_a_kill_before_the_run_of_their_part_is_made(
    kill: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = asyncio.Event()

    async def story() -> None:
        async with client(after(llm=None)) as c:
            view = await c.waited((await c.started())["id"])
            place, way = f"/api/searches/{view['id']}", view["ways"][0]["row"]
            learn = find.learn

            async def slowly(*given: Any, **options: Any) -> None:
                await held.wait()
                await learn(*given, **options)

            monkeypatch.setattr(find, "learn", slowly)
            assert (await c.post(f"{place}/continue", {"oracle_rows": 60})).status_code == 202
            await until(lambda: c.app.state.service.search(view["id"]).filing.is_of_part)
            assert (await pin(c, place, way)).status_code == 200
            left = kill()
            assert len(list(left.glob("*.db"))) == 1
            monkeypatch.setattr(find, "learn", learn)
            async with client(after(llm=None)) as again:
                pins = (await again.get(place)).json()["pins"]
                assert [each["row"] for each in pins] == [way]
            held.set()

    run(story())


@pytest.mark.usefixtures("runs")
def test_a_part_whose_run_cannot_be_made_changes_nothing_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(path: Path, *_: object) -> Store:
        raise UnavailableError(f"cannot write {path}: the disk is full")

    async def story() -> None:
        async with client(after(llm=None, settling_rows=300)) as c:
            before = await c.waited((await c.started())["id"])
            place = f"/api/searches/{before['id']}"
            with monkeypatch.context() as patched:
                patched.setattr(Store, "create", full)
                await c.post(f"{place}/continue", {"oracle_rows": 200})
                view = await c.waited(before["id"])
            assert (view["outcome"], "the disk is full" in view["reason"]) == ("failed", True)
        async with client(after(llm=None, settling_rows=300)) as c:
            view = (await c.get(place)).json()
            for same in ("outcome", "ways", "ledger", "part"):
                assert view[same] == before[same]

    run(story())


def test_what_a_kill_loses_of_what_was_asked_after_a_search_counts(
    runs: Path, kill: Callable[[], Path], model: Hangs
) -> None:
    async def story() -> None:
        async with client(settling(model)) as c:
            place = await hanging_as_it_settles(c, model, oracle_rows=120)
            kill()
            async with client(settling(Hangs())) as again:
                view = (await again.get(place)).json()
                assert view["ledger"]["oracle_rows"] == 120
                assert view["budget"]["oracle_rows_left"] == 0
            model.end.set()

    run(story())


@pytest.mark.parametrize("name", ["mine-{}-part1", "20261119-120000-mine-{}-part1"])
def test_a_run_of_somebody_else_does_not_go_with_a_search_of_its_name(
    runs: Path, name: str
) -> None:
    id = new_id()
    path = runs / f"{name.format(id)}.db"
    Store.create(path, {"method": "random"}).close()

    async def story() -> None:
        async with client(after()) as c:
            assert (await c.http.delete(f"/api/searches/{id}")).status_code == 404
        (runs / f".{id}.deleted").touch()
        async with client(after()) as c:
            assert (await c.get(f"/api/searches/{id}")).status_code == 404
        assert [file.name for file in runs.iterdir()] == [path.name]

    run(story())


def test_the_first_row_counts_wherever_a_search_ends() -> None:
    class Gone(Adder):
        def ask(self, rows: Sequence[Row]) -> Answers:
            raise RuntimeError("no model")

    async def story() -> None:
        async with make_service(small(Gone()), llm=None) as service:
            search = start(service)
            (end,) = await ended(search)
            assert end["outcome"] == "failed"
            assert (search.spent.setup_rows, search.spent.oracle_rows) == (1, 0)
            go_on(service, search)
            await ended(search)
            assert search.spent.setup_rows == 2

    run(story())
