from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from serve_world import ROW, Adder, client, make_service, problem, run, small, until

from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.errors import IntegrityError, UnavailableError
from waysout.report.result import Result
from waysout.run.context import Stop
from waysout.run.find import find
from waysout.run.progress import Progress
from waysout.serve.saved_run import SavedRun, delete_saved, find_saved
from waysout.serve.search_session import SearchSession
from waysout.serve.service import Service
from waysout.store import Store, delete_run, find_run, list_runs


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


def test_pins_of_a_run_that_is_gone_are_kept_and_the_log_names_no_run(
    runs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with client(kept()) as c:
            views = [await c.waited((await c.started(calls=0))["id"]) for _ in range(2)]
            mine, other = (view["run"] for view in views)
            delete_run(runs / f"{mine}.db")
            pins = f"/api/searches/{views[0]['id']}/pins"
            answer = await c.http.put(pins, json={"rows": [{**ROW, "a": 9, "b": 9}]})
            assert (answer.status_code, len(answer.json()["pins"])) == (200, 1)
            assert not any(id in caplog.text for id in (mine, other))
            assert [run.stem for run in list_runs(runs)] == [other]

    run(story())


@pytest.mark.usefixtures("runs")
def test_no_row_on_file_is_asked_again_for_the_strips() -> None:
    async def story() -> None:
        async with client(settling(Adder())) as c:
            before = await c.waited((await c.started(calls=0, oracle_rows=300))["id"])
        oracle = Adder()
        async with client(settling(oracle)) as c:
            after = (await c.get(f"/api/searches/{before['id']}")).json()
            assert len(oracle.batches) == 1, "to see whether it is still the same model"
            drawn = await c.post("/api/problems/small/strips", {"row": ROW})
            assert drawn.json()["rows"] > 10
        assert after["tipping"] == before["tipping"]
        asked = {row for batch in oracle.batches[1:] for row in batch}
        assert asked <= {problem().row(ROW)}, "all else is on file"

    run(story())


def settling(oracle: Adder | None = None, **limits: Any) -> Service:
    """Return a service that asks 300 rows to make exact what it shows."""
    return make_service(small(oracle), keep_runs=True, settling_rows=300, **limits)


# What is the same before a restart and after it; streams go by other ids.
SAME = ("row", "ways", "tipping", "shortlist", "pins", "locks", "outcome", "reason", "sentence",
        "ledger", "budget", "options", "part", "run")  # fmt: skip


def same(view: dict[str, Any]) -> dict[str, Any]:
    return {name: view[name] for name in SAME}


@pytest.mark.usefixtures("runs")
def test_a_restart_shows_what_was_shown_within_the_searchs_own_budget() -> None:
    async def story() -> None:
        async with client(settling(part_rows=20)) as c:
            id = (await c.started(calls=2, oracle_rows=40))["id"]
            await c.waited(id)
            place = f"/api/searches/{id}"
            body = {"locks": {"fixed": ["c"]}, "calls": 3, "oracle_rows": 60}
            await c.post(f"{place}/continue", body)
            before = await c.waited(id)
            assert (before["budget"]["calls"], before["budget"]["oracle_rows"]) == (3, 60)
            document = (await c.get(f"{place}/result.json")).json()
        for _ in range(2):
            oracle = Adder()
            async with client(settling(oracle)) as c:
                assert same((await c.get(place)).json()) == same(before)
                assert (await c.get(f"{place}/result.json")).json() == document
                assert len(oracle.batches) == 1, "to see whether it is still the same model"
        async with client(settling()) as c:
            await c.post(f"{place}/continue")
            spent = (await c.waited(id))["ledger"]
            assert spent["llm_calls"] <= 3
            assert before["ledger"]["oracle_rows"] < spent["oracle_rows"] <= 60

    run(story())


@pytest.mark.usefixtures("runs")
def test_a_part_that_ended_unseen_is_made_exact_once_within_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kept_settling(oracle: Adder) -> Service:
        return make_service(small(oracle), keep_runs=True, part_rows=40, settling_rows=40)

    async def story() -> None:
        with monkeypatch.context() as killed:  # before what it shows is on file
            killed.setattr("waysout.serve.filing.save_shown", lambda *_: None)
            async with client(kept_settling(Adder())) as c:
                before = await c.waited((await c.started(calls=0, oracle_rows=200))["id"])
        assert 40 < before["ledger"]["oracle_rows"] <= 80
        place, seen = f"/api/searches/{before['id']}", []
        for _ in range(2):
            oracle = Adder()
            async with client(kept_settling(oracle)) as c:
                seen.append((await c.get(place)).json())
            _, *exact = oracle.batches  # the first is to see whether it is the same model
            assert bool(exact) is (len(seen) == 1)
            assert sum(map(len, exact)) <= 40
        assert same(seen[0]) == same(seen[1])
        # What the kill has lost was asked all the same.
        assert 80 < seen[0]["ledger"]["oracle_rows"] <= 120

    run(story())


@pytest.mark.parametrize(("calls", "rows"), [(1, 30), (0, 90)])
@pytest.mark.usefixtures("runs")
def test_a_service_may_allow_less_than_the_one_before_it(calls: int, rows: int) -> None:
    async def story() -> None:
        async with client(settling(part_rows=40)) as c:
            before = await c.waited((await c.started(calls=2, oracle_rows=40))["id"])
            spent = before["ledger"]
            assert (spent["llm_calls"], spent["oracle_rows"]) == (2, 40)
        place = f"/api/searches/{before['id']}"
        async with client(settling(calls=calls, oracle_rows=rows)) as c:
            budget = (await c.get(place)).json()["budget"]
            assert (budget["calls_left"], budget["oracle_rows_left"]) == (0, 0)
            more = await c.post(f"{place}/continue", {"oracle_rows": 60})
            assert more.status_code == (202 if rows >= 60 else 422)

    run(story())


@pytest.mark.parametrize(
    ("noted", "budget"),
    [
        ({"spent": {"llm_calls": 1, "oracle_rows": 30}}, (30, 27, 3000, 2930)),
        ({"spent": {"llm_calls": 1, "oracle_rows": 30}, "budget": {"calls": 4}},
         (4, 1, 3000, 2930)),
        ({"spent": {"llm_calls": -1000, "oracle_rows": -1000}, "budget": {"calls": -4}},
         (30, 30, 3000, 3000)),
        ({"spent": 3, "budget": []}, (30, 30, 3000, 3000)),
    ],
)  # fmt: skip
def test_runs_of_other_releases_are_read(
    tmp_path: Path, noted: dict[str, Any], budget: tuple[int, ...]
) -> None:
    """Earlier ones noted two numbers of what was spent, and no totals."""
    world, path = small(), tmp_path / "run.db"
    with Store.create(path, {"method": "random", "about": {"search": noted}}) as store:
        result = find(world.problem, ROW, llm="simulated:7", calls=2, oracle_rows=40)
        store.add_query(0, ROW)
        store.finish(0, result)
    saved = read(path, world.problem)
    view = make_service(world).adopt("small", saved).view()
    assert tuple(view["budget"].values()) == budget
    before = 1 if saved.before else 0
    assert view["ledger"]["llm_calls"] == result.ledger.llm_calls + before
    assert view["ledger"]["tokens_in"] == result.ledger.tokens_in


@pytest.mark.usefixtures("runs")
def test_a_part_that_never_had_a_run_leaves_the_one_before_it_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(name: str) -> Any:
        raise UnavailableError("no server is there")

    async def story() -> None:
        async with client(settling()) as c:
            before = await c.waited((await c.started(calls=0, oracle_rows=40))["id"])
            place = f"/api/searches/{before['id']}"
            with monkeypatch.context() as away:
                away.setattr("waysout.serve.service.connect", fails)
                await c.post(f"{place}/continue", {"calls": 2, "oracle_rows": 90})
                assert (await c.waited(before["id"]))["outcome"] == "failed"
        async with client(settling()) as c:
            assert same((await c.get(place)).json()) == same(before)

    run(story())


def test_a_part_that_is_killed_as_it_begins_knows_what_went_before(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, add_query = runs / "killed", Store.add_query

    def copied(store: Store, *query: Any) -> None:
        """Copy the runs as a kill would leave them, once the second part has its query."""
        add_query(store, *query)
        if "-part2" in store.path.name and not killed.exists():
            killed.mkdir()
            for file in runs.glob("*-part*.db*"):
                shutil.copy(file, killed)

    async def story() -> None:
        async with client(kept()) as c:
            before = await c.waited((await c.started(calls=2, oracle_rows=60))["id"])
            place = f"/api/searches/{before['id']}"
            with Store.read(find_run(before["run"])) as store:
                on_file = {row for recorded in store.answers(0) for row in recorded.rows}
            monkeypatch.setattr(Store, "add_query", copied)
            await c.post(f"{place}/continue", {"locks": {"fixed": ["c"]}, "oracle_rows": 90})
            await c.waited(before["id"])
        monkeypatch.setenv("WAYSOUT_RUNS", str(killed))
        async with kept() as service:
            search = await service.find(before["id"])
            assert (search.part, search.locks.fixed) == (2, ["c"])
            remembered = search._memory.of(search.problem, search.query)
            assert remembered.answered.keys() >= on_file

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
            left = after["budget"]["oracle_rows_left"]  # totals hold over all parts, and restarts
            assert left == 60 - spent
            assert len((await c.get("/api/searches")).json()["searches"]) == 1
            again = await c.post(
                f"{place}/continue", {"locks": {"fixed": ["a"]}, "oracle_rows": 90}
            )
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


def test_a_search_that_is_deleted_twice_while_its_part_ends_stays_deleted(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, erased = asyncio.Event(), list[str]()

    async def written(search: SearchSession) -> None:
        await go.wait()

    def delete(id: str) -> bool:
        erased.append(id)
        return delete_saved(id)

    monkeypatch.setattr("waysout.serve.service._DELETING_SECONDS", 0.01)
    monkeypatch.setattr("waysout.serve.service.delete_saved", delete)
    monkeypatch.setattr(SearchSession, "written", written)

    async def story() -> None:
        async with client(kept()) as c:
            id = (await c.waited((await c.started())["id"]))["id"]
            place = f"/api/searches/{id}"
            for _ in range(3):
                assert (await c.http.delete(place)).status_code == 202
                assert (await c.get(place)).status_code == 404
            go.set()
            await until(lambda: not list(runs.iterdir()))
            assert erased == [id], "not before its part has ended, and once"
            assert (await c.get(place)).status_code == 404
            assert not c.app.state.service.searches

    run(story())


def test_what_cannot_be_deleted_says_so_and_may_be_deleted_again(
    runs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        before = await searched()
        place = f"/api/searches/{before['id']}"
        async with client(kept()) as c:
            for _ in range(2):
                with Store.open(runs / f"{before['run']}.db"):  # as another server might
                    refused = await c.http.delete(place)
                assert refused.status_code == 503
                said = refused.json()["error"]["message"]
                assert "1 of 2 runs of this search stay on file" in said or "1 of 1" in said
                assert f"{before['run']}.db is being written by another process" in said
                assert str(runs) not in said
                assert "was not deleted" in caplog.text
                assert before["id"] not in caplog.text
                assert (await c.get(place)).status_code == 200
            assert (await c.http.delete(place)).status_code == 204
            assert not list(runs.iterdir())
            assert (await c.http.delete(place)).status_code == 404
        async with client(kept()) as c:
            assert (await c.get(place)).status_code == 404

    run(story())


def test_a_search_that_is_being_opened_is_deleted_for_good(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, go = threading.Event(), threading.Event()

    def slowly(*given: Any) -> Any:
        found = find_saved(*given)
        opening.set()
        go.wait(10)
        return found

    monkeypatch.setattr("waysout.serve.service.find_saved", slowly)

    async def story() -> None:
        before = await searched()
        place = f"/api/searches/{before['id']}"
        async with client(kept()) as c:
            looking = asyncio.create_task(c.get(place))
            await until(opening.is_set)
            deleting = asyncio.create_task(c.http.delete(place))
            await asyncio.sleep(0.05)
            go.set()
            assert (await deleting).status_code == 204
            assert (await looking).status_code == 404
            assert (await c.get(place)).status_code == 404
        assert not list(runs.iterdir())

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
