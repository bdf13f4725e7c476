from __future__ import annotations

import asyncio
from typing import Any

from serve_world import (
    ROW,
    Client,
    client,
    ended,
    go_on,
    make_service,
    of_kind,
    problem,
    run,
    small,
    start,
)

from waysout.domain.result import Way
from waysout.domain.rules import Linear
from waysout.serve.models import Locks, SearchForm
from waysout.serve.problems import ServedProblem


async def put(c: Client, id: str, *rows: dict[str, Any]) -> Any:
    return await c.http.put(f"/api/searches/{id}/pins", json={"rows": list(rows)})


def test_a_way_is_kept_as_it_is_and_another_row_as_the_person_s_own() -> None:
    async def story() -> None:
        service = make_service()
        async with client(service) as c:
            view = await c.waited((await c.started(calls=0))["id"])
            way, own = view["ways"][0], {**ROW, "a": 9, "b": 9, "c": "z"}
            assert own not in [o["row"] for o in view["ways"]]
            answer = (await put(c, view["id"], way["row"], own, own)).json()
            assert SearchForm.model_validate(answer).model_dump(mode="json", by_alias=True)
            first, second = answer["pins"]
            assert first["id"] == way["id"]
            assert first["reach"] == way["reach"]
            assert [first["own"], second["own"]] == [False, True]
            assert (second["row"], second["probability"]) == (own, 0.9)
            assert second["changes"] == {"a": [1, 9], "b": [0, 9], "c": ["y", "z"]}
            search = service.searches[view["id"]]
            assert isinstance(search.pinned[0].option, Way)
            assert of_kind(search, "pins") == [{"pins": answer["pins"]}]
            shown = (await c.get(f"/api/searches/{view['id']}")).json()
            assert shown["pins"] == answer["pins"]
            assert (await put(c, view["id"])).json()["pins"] == []

    run(story())


def test_what_is_no_way_out_is_refused_and_nothing_changes() -> None:
    async def story() -> None:
        world = ServedProblem.of(problem(Linear(that="a + b <= 30")))
        async with client(make_service(world)) as c:
            id = (await c.started(calls=0, locks={"fixed": ["c"]}))["id"]
            view = await c.waited(id)
            await put(c, id, view["ways"][0]["row"])
            for row, said in (
                ({**ROW, "a": 5}, "rows.0: the model says no to it: only what is approved can be"),
                (ROW, "it changes nothing"),
                ({**ROW, "a": 20, "b": 20}, "it breaks a rule: "),
                ({**ROW, "a": 20, "c": "x"}, "c goes from y to x but is fixed"),
                ({**ROW, "a": "many"}, "'many' is not a number"),
            ):
                answer = await put(c, id, row)
                assert answer.status_code == 422, row
                assert said in answer.json()["error"]["message"]
            many = [{**ROW, "a": 12 + i} for i in range(5)]
            assert (await put(c, id, *many)).status_code == 422
            kept = (await c.get(f"/api/searches/{id}")).json()["pins"]
            assert [pin["id"] for pin in kept] == [view["ways"][0]["id"]]

    run(story())


def test_a_new_part_drops_what_its_locks_forbid() -> None:
    async def story() -> None:
        async with make_service(small()) as service:
            search = start(service, calls=0)
            await ended(search)
            await search.pin([{**ROW, "a": 19}, {**ROW, "b": 19}])
            assert len(search.pinned) == 2
            go_on(service, search, locks=Locks(fixed=["a"]), oracle_rows=60)
            assert [list(pin.option.changes) for pin in search.pinned] == [["b"]]
            assert [len(told["pins"]) for told in of_kind(search, "pins")] == [1]
            await asyncio.gather(search.pin([{**ROW, "b": 18}]), search.pin([{**ROW, "b": 17}]))
            assert [pin.option.row["b"] for pin in search.pinned] == [17]  # while it runs
            await ended(search)

    run(story())
