from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from serve_world import ROW, Adder, client, make_service, problem, run, small

from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.errors import IntegrityError
from waysout.report.result import Result
from waysout.run.context import Stop
from waysout.run.find import find
from waysout.run.progress import Progress
from waysout.serve.limits import ServiceLimits
from waysout.serve.saved_run import SavedRun
from waysout.serve.service import Service
from waysout.store import Store


def found(world: Problem, path: Path, after: int = 0) -> Result:
    """Search, and keep the run; ``after`` so many answers it is stopped."""
    stop, seen = Stop(), list[Progress]()

    def count(now: Progress) -> None:
        seen.append(now)
        if len(seen) == after:
            stop("enough")

    return find(
        world, ROW, llm="simulated:7", calls=3, oracle_rows=40, run=path, progress=count, stop=stop
    )


def read(path: Path, world: Problem) -> SavedRun:
    with Store.read(path) as store:
        return SavedRun.read(store, world)


def test_a_finished_run_brings_its_result(tmp_path: Path) -> None:
    world = problem(oracle=Adder())
    result = found(world, tmp_path / "run.db")
    assert read(tmp_path / "run.db", world).result == result


def test_what_the_run_knows_is_not_asked_again(tmp_path: Path) -> None:
    result = found(problem(oracle=Adder()), tmp_path / "run.db")
    oracle = Adder()
    world = problem(oracle=oracle)
    memory = read(tmp_path / "run.db", world).memory
    assert oracle.rows == 0
    assert len(memory) == len(set(memory.of(world, world.row(ROW)).answered)) > 0
    again = find(world, ROW, memory=memory, calls=0, oracle_rows=0)
    assert {o.key: o.row for o in again.options} == {o.key: o.row for o in result.options}
    assert {o.key: o.reasons for o in again.options} == {o.key: o.reasons for o in result.options}
    assert again.ledger.oracle_rows == 0


def test_its_edits_are_there_to_be_combined(tmp_path: Path) -> None:
    world = problem(oracle=Adder())
    result = found(world, tmp_path / "run.db")
    past = read(tmp_path / "run.db", world).memory.of(world, world.row(ROW))
    changes = {(name, to) for o in result.options for name, (_, to) in o.changes.items()}
    assert past.edits
    assert {(edit.feature, edit.value) for edit in past.edits} <= changes
    assert all(edit.reason for edit in past.edits)  # those without are the search's own
    assert past.calls == result.ledger.llm_calls


def test_a_run_that_was_cut_off_brings_what_it_has(tmp_path: Path) -> None:
    world = problem(oracle=Adder())
    result = found(world, tmp_path / "run.db", after=2)
    assert result.outcome.kind == OutcomeKind.INTERRUPTED
    assert read(tmp_path / "run.db", world).result == result


def test_a_run_that_was_killed_brings_the_options_on_file(tmp_path: Path) -> None:
    world, path = problem(oracle=Adder()), tmp_path / "run.db"
    whole = found(problem(oracle=Adder()), tmp_path / "whole.db")
    with Store.create(path, {"method": "recombine"}) as store:
        store.add_query(0, ROW)
        store.options_found(0, whole.options)
    adopted = read(path, world)
    assert adopted.result.outcome.kind == OutcomeKind.INTERRUPTED
    assert adopted.result.options == whole.options


def test_a_run_of_nobody_cannot_be_opened(tmp_path: Path) -> None:
    Store.create(tmp_path / "run.db", {"method": "recombine"}).close()
    with pytest.raises(IntegrityError, match="holds no query yet"):
        read(tmp_path / "run.db", problem(oracle=Adder()))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYSOUT_RUNS", str(tmp_path))
    return tmp_path


def kept(name: str = "small", oracle: Adder | None = None, **about: Any) -> Service:
    """Return a service as it is after a restart."""
    return Service({name: small(oracle)}, "simulated:7", keep_runs=True, about=about)


async def searched() -> dict[str, Any]:
    """Search in two parts, and end the service; returns what it showed last."""
    async with client(kept()) as c:
        id = (await c.started(calls=2, oracle_rows=40))["id"]
        await c.waited(id)
        body = {"locks": {"fixed": ["c"]}, "oracle_rows": 60}
        assert (await c.post(f"/api/searches/{id}/continue", body)).status_code == 202
        return await c.waited(id)


class Stricter(Adder):
    """Another model behind the same name, as a function may be that calls on another one."""

    def ask(self, rows: Sequence[Row]) -> Answers:
        said = super().ask(rows)
        return Answers(0.5 * said.probability, 0.5 * said.probability >= 0.5)


@pytest.mark.usefixtures("runs")
def test_what_another_model_said_is_not_opened() -> None:
    async def story() -> None:
        before = await searched()
        async with client(kept(oracle=Stricter())) as c:
            for _ in range(2):
                assert (await c.get(f"/api/searches/{before['id']}")).status_code == 404

    run(story())


@pytest.mark.usefixtures("runs")
def test_a_page_that_was_open_before_a_restart_hears_everything() -> None:
    async def story() -> None:
        before = await searched()
        async with kept() as service:
            search = await service.find(before["id"])
            heard = 10_000  # more than any log of a search is long
            kinds = [event.kind for event in search.log.since(heard)]
            assert kinds[0] == "part"
            assert kinds[-1] == "ended"

    run(story())


@pytest.mark.usefixtures("runs")
def test_pins_survive_a_restart_and_a_new_part() -> None:
    async def story() -> None:
        before = await searched()
        place = f"/api/searches/{before['id']}"
        rows = [before["ways"][0]["row"], {**ROW, "a": 9, "b": 9}]
        async with client(kept()) as c:
            pinned = (await c.http.put(f"{place}/pins", json={"rows": rows})).json()["pins"]
            assert [pin["own"] for pin in pinned] == [False, True]
        async with client(kept()) as c:
            assert (await c.get(place)).json()["pins"] == pinned
            await c.post(f"{place}/continue", {"oracle_rows": 90})
            await c.waited(before["id"])
        async with client(kept()) as c:
            again = (await c.get(place)).json()["pins"]
            assert [pin["id"] for pin in again] == [pin["id"] for pin in pinned]

    run(story())


def test_a_link_survives_a_restart(runs: Path) -> None:
    async def story() -> None:
        before = await searched()
        place, oracle = f"/api/searches/{before['id']}", Adder()
        async with client(kept(oracle=oracle)) as c:
            seen = await asyncio.gather(c.get(place), c.get(f"{place}/result.json"))
            assert [answer.status_code for answer in seen] == [200, 200]
            after = seen[0].json()
            same = ("id", "row", "ways", "locks", "tipping", "part", "run", "outcome", "options")
            assert {name: after[name] for name in same} == {name: before[name] for name in same}
            assert 0 < oracle.rows <= 40  # to see whether it still says the same
            spent = before["ledger"]["oracle_rows"]
            assert after["ledger"]["oracle_rows"] == spent
            left = after["budget"]["oracle_rows_left"]  # limits hold over all parts, and restarts
            assert left == ServiceLimits().oracle_rows - spent
            assert len((await c.get("/api/searches")).json()["searches"]) == 1
            again = await c.post(f"{place}/continue", {"locks": {"fixed": ["a"]}})
            assert (again.status_code, again.json()["part"]) == (202, 3)
            view = await c.waited(before["id"])
            assert view["ways"]
            assert all("a" not in way["changes"] for way in view["ways"])
            assert view["run"].endswith("-part3")
        async with client(kept()) as c:
            assert (await c.get(place)).json()["locks"]["fixed"] == ["a"]
            assert list(runs.iterdir())
            await c.http.delete(place)
            assert (await c.get(place)).status_code == 404
        assert not list(runs.iterdir()), "nothing of it is left, of any part"

    run(story())


def test_a_search_that_is_deleted_while_it_runs_leaves_nothing_on_file(runs: Path) -> None:
    async def story() -> None:
        async with client(kept()) as c:
            stays, goes = await c.started(), await c.started()
            await c.http.delete(f"/api/searches/{goes['id']}")
            await c.waited(stays["id"])
        assert list(runs.iterdir())
        assert all(stays["id"] in file.name for file in runs.iterdir())

    run(story())


def test_only_the_same_problem_of_the_same_files_brings_a_search_back(runs: Path) -> None:
    async def story() -> None:
        before = await searched()
        place = f"/api/searches/{before['id']}"

        async def status(service: Service, at: str = place) -> int:
            async with client(service) as c:
                return (await c.get(at)).status_code

        class Other(Adder):
            name = "another adder"

        assert await status(kept(name="large")) == 404
        assert await status(kept(oracle=Other())) == 404
        assert await status(kept(digests={"model": "0" * 64})) == 404
        assert await status(make_service()) == 404  # keeps no runs, and looks for none
        for wrong in ("*" * 22, before["id"][:-1], f"{before['id']}x", "..%2f..%2fetc%2fpasswd"):
            assert await status(kept(), f"/api/searches/{wrong}") == 404
        latest = runs / f"{before['run']}.db"
        latest.write_bytes(b"no database")
        assert await status(kept()) == 200  # the part before it
        for file in runs.glob("*.db"):
            file.unlink()
        assert await status(kept()) == 404

    run(story())
