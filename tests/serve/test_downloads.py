from __future__ import annotations

import csv
import io

from serve_world import Gate, Watched, client, make_service, run, small, until

from waysout.domain.result import plain
from waysout.report.result import Result
from waysout.serve.models import ResultDocument

PAGES = ("result.json", "report.html", "letter.html", "letter.txt")


def test_the_result_is_that_of_the_command_line() -> None:
    async def story() -> None:
        service = make_service(small(known=True))
        async with client(service) as c:
            id = (await c.started(calls=2))["id"]
            await c.waited(id)
            document = (await c.get(f"/api/searches/{id}/result.json")).json()
            result = service.search(id).result
            assert result is not None
            assert document == plain(result.as_dict())
            assert Result.from_dict(document).options == result.options
            ResultDocument.model_validate(document)

    run(story())


def test_the_result_of_several_parts_tells_what_all_have_spent() -> None:
    async def story() -> None:
        async with client(make_service()) as c:
            id = (await c.started(calls=2, oracle_rows=50))["id"]
            await c.waited(id)
            more = {"oracle_rows": 90, "locks": {"fixed": ["c"]}}
            assert (await c.post(f"/api/searches/{id}/continue", more)).status_code == 202
            view = await c.waited(id)
            document = (await c.get(f"/api/searches/{id}/result.json")).json()
            assert document["ledger"] == view["ledger"]
            assert 50 < document["ledger"]["oracle_rows"] <= 90
            assert len(document["options"]) == view["options"]

    run(story())


KINDS = {
    "report.html": ("text/html; charset=utf-8", "<!DOCTYPE html>"),
    "letter.html": ("text/html; charset=utf-8", "<!DOCTYPE html>"),
    "letter.txt": ("text/plain; charset=utf-8", "imulated"),
    "options.csv": ("text/csv; charset=utf-8", "probability"),
    "result.json": ("application/json", '"waysout":1'),
}


def test_what_can_be_taken_away() -> None:
    async def story() -> None:
        async with client(make_service()) as c:
            id = (await c.started(calls=2))["id"]
            await c.waited(id)
            for name, (kind, holds) in KINDS.items():
                shown = await c.get(f"/api/searches/{id}/{name}")
                assert (shown.status_code, shown.headers["content-type"]) == (200, kind)
                assert holds in shown.text
                assert "content-disposition" not in shown.headers
                saved = await c.get(f"/api/searches/{id}/{name}", download=1)
                attached = f'attachment; filename="waysout-{name}"'
                assert saved.headers["content-disposition"] == attached
                assert saved.text == shown.text

    run(story())


def test_while_a_search_runs_only_the_table_of_what_was_found_can_be_had() -> None:
    async def story() -> None:
        gate = Gate()
        gate.opened.set()
        service = make_service(llm=Watched(gate), part_rows=40)
        async with client(service) as c:
            id = (await c.started(method="comp-mcts", oracle_rows=200))["id"]
            found = (await c.waited(id))["options"]
            assert found
            gate.opened.clear()  # what comes next waits for the LLM
            await c.post(f"/api/searches/{id}/continue")
            for name in PAGES:
                answer = await c.get(f"/api/searches/{id}/{name}")
                assert answer.status_code == 409, name
                assert answer.json()["error"]["type"] == "Conflict"
            table = await c.get(f"/api/searches/{id}/options.csv")
            assert len(list(csv.reader(io.StringIO(table.text)))) == 1 + found
            assert service.search(id).running

    run(story())


def test_nothing_can_be_had_of_a_search_that_is_not_there() -> None:
    async def story() -> None:
        async with client(make_service()) as c:
            for name in (*PAGES, "options.csv", "passwd", "../../etc/passwd"):
                assert (await c.get(f"/api/searches/none/{name}")).status_code == 404

    run(story())


def test_a_reason_with_half_a_character_stops_no_download() -> None:
    async def story() -> None:
        service = make_service()
        async with client(service) as c:
            id = (await c.started(calls=1, oracle_rows=20))["id"]
            await c.waited(id)
            search = service.search(id)
            for option in search.options.values():
                object.__setattr__(option, "reasons", ("a: half \ud800 of it",))
            assert search.result is not None
            object.__setattr__(search.result, "options", tuple(search.options.values()))
            for name in (*PAGES, "options.csv", "options"):
                answer = await c.get(f"/api/searches/{id}/{name}")
                assert answer.status_code == 200, name
                answer.content.decode("utf-8")
            await until(lambda: not service.running)

    run(story())
