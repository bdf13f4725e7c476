from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serve_world import (
    ROW,
    Adder,
    Broken,
    Gate,
    Watched,
    ended,
    go_on,
    make_service,
    of_kind,
    person,
    problem,
    run,
    small,
    start,
    until,
)

from waysout.domain.budget import Spent
from waysout.domain.oracle import Answers
from waysout.domain.pick import pick
from waysout.domain.schema import Row
from waysout.errors import LLMError, RowError, RuleError
from waysout.llm.base import Request
from waysout.oracles.cache import CachedOracle
from waysout.serve.errors import Conflict
from waysout.serve.events import Shortlist
from waysout.serve.limits import ServiceLimits
from waysout.serve.models import ContinueRequest, Locks
from waysout.serve.option_forms import OptionForms
from waysout.serve.problems import ServedProblem
from waysout.serve.search_session import SearchSession
from waysout.serve.service import Service
from waysout.serve.settling import settled
from waysout.store import Store, runs_dir


def kinds(search: SearchSession) -> list[str]:
    return [event.kind for event in search.log.events]


def told_options(search: SearchSession) -> dict[str, Any]:
    """Return what somebody who has followed from the start shows now."""
    found: dict[str, Any] = {}
    for event in search.log.events:
        if event.kind == "part":
            found = {}
        if event.kind == "options":
            found |= {option["key"]: option for option in event.data["options"]}
    return found


def test_a_search_tells_its_story_from_the_decision_to_the_end() -> None:
    async def story() -> None:
        async with make_service() as service:
            search = start(service, calls=3)
            (end,) = await ended(search)
            assert kinds(search)[:2] == ["part", "decided"]
            assert kinds(search)[-4:] == ["shortlist", "ways", "ledger", "ended"]
            assert of_kind(search, "decided") == [
                {"approved": False, "decision": "rejected", "probability": 0.05}
            ]
            assert end["outcome"] == "found"
            assert end["options"] == len(search.options) == len(told_options(search)) > 10
            assert 10 < end["approved"] < end["asked"] == search.spent.oracle_rows
            assert end["sentence"].startswith("Approved if you raise your ")
            assert end["ways"] == len(search.ways)

    run(story())


def test_what_is_told_is_what_the_result_says() -> None:
    async def story() -> None:
        async with make_service() as service:
            search = start(service, calls=3)
            await ended(search)
            result = search.result
            assert result is not None
            assert list(told_options(search)) == [o.key for o in result.options]
            assert search.shortlist.options == pick(result, 5)
            assert all(way in result.ways for way in search.shortlist.options)
            form = OptionForms(search.problem, search.query).form
            shown = [form(way) for way in search.shortlist.options]
            assert of_kind(search, "shortlist") == [{"options": shown}]
            (told,) = of_kind(search, "ways")
            in_order = pick(result, len(result.ways))
            assert told["ways"] == [form(way) for way in in_order]
            assert {tips["feature"]: tips["moves"] for tips in told["tipping"]} == {
                name: [tip.as_dict() for tip in tips] for name, tips in result.tipping.items()
            }
            assert {name: search.view()[name] for name in told} == told
            (ledger,) = of_kind(search, "ledger")
            left = {"calls_left": search.calls_left, "oracle_rows_left": search.rows_left}
            assert ledger == {**result.ledger.as_dict(), **left}

    run(story())


def test_each_part_ends_with_its_own_ways() -> None:
    async def story() -> None:
        async with make_service() as service:
            search = start(service, calls=0, oracle_rows=60)
            await ended(search)
            (before,) = of_kind(search, "ways")
            go_on(service, search, locks=Locks(fixed=["a"]), oracle_rows=120)
            assert of_kind(search, "ways") == []  # the next part may not allow them
            await ended(search)
            (after,) = of_kind(search, "ways")
            assert "a" in {name for way in before["ways"] for name in way["changes"]}
            assert after["ways"]
            assert "a" not in {name for way in after["ways"] for name in way["changes"]}
            assert {tips["feature"] for tips in after["tipping"]} == {"b", "c"}
            assert {name: search.view()[name] for name in after} == after

    run(story())


def test_without_calls_or_an_llm_it_still_finds() -> None:
    async def story(llm: str | None) -> Spent:
        async with make_service(llm=llm) as service:
            search = start(service, calls=0)
            await ended(search)
            assert search.options
            return search.spent

    assert [run(story(llm)).llm_calls for llm in ("simulated:7", None)] == [0, 0]


def test_going_on_within_a_lock_asks_no_row_twice_and_keeps_what_holds() -> None:
    async def story() -> None:
        world = small()
        async with make_service(world) as service:
            # Wayfinder would know all ways after the first part, and ask nothing more.
            search = start(service, calls=4, oracle_rows=1000, seed=1, method="recombine")
            await ended(search)
            before = dict(search.options)
            rows_before = search.spent.oracle_rows
            go_on(service, search, locks=Locks(fixed=["a"]))
            still = {key for key, option in before.items() if option.row["a"] == ROW["a"]}
            assert still
            assert set(search.options) == still  # at once, before anything is asked
            await ended(search)
            assert search.spent.oracle_rows > rows_before
            assert set(search.options) >= still
            assert all(option.row["a"] == ROW["a"] for option in search.options.values())
            assert set(told_options(search)) == set(search.options)
            cache = world.problem.oracle
            assert isinstance(cache, CachedOracle)
            assert cache.asked == search.spent.oracle_rows + 1  # and the query itself

    run(story())


def goes_as_far(row: Mapping[str, Any], changes: Mapping[str, tuple[Any, Any]]) -> bool:
    def far(value: Any, old: Any, new: Any) -> bool:
        if isinstance(new, str):
            return bool(value == new)
        return bool(value >= new if new > old else value <= new)

    return all(far(row[name], old, new) for name, (old, new) in changes.items())


def test_an_excluded_option_does_not_come_back_nor_does_what_goes_further() -> None:
    async def story() -> None:
        async with make_service() as service:
            search = start(service, calls=4, oracle_rows=1000)
            await ended(search)
            out = search.shortlist.options[0]
            changes = {name: list(pair) for name, pair in out.changes.items()}
            go_on(service, search, locks=Locks(excluded=[changes]))
            assert out.key not in search.options
            await ended(search)
            assert search.options
            for option in search.options.values():
                assert not goes_as_far(option.row, out.changes)

    run(story())


def test_taking_a_lock_off_brings_back_what_was_known() -> None:
    async def story() -> None:
        async with make_service(part_rows=60) as service:
            search = start(service, calls=3, oracle_rows=1000)
            await ended(search)
            before = set(search.options)
            go_on(service, search, locks=Locks(fixed=["a"]))
            await ended(search)
            assert not before <= set(search.options)
            go_on(service, search, locks=Locks())
            await ended(search)
            assert before <= set(search.options)

    run(story())


def test_a_stop_keeps_what_was_found() -> None:
    async def story() -> None:
        gate = Gate()
        held = Watched(gate)
        async with make_service(llm=held) as service:
            search = start(service, oracle_rows=1000)
            await until(lambda: held.now)
            assert search.running
            with pytest.raises(Conflict, match="running"):
                go_on(service, search)
            search.stop()
            (end,) = await ended(search)
            assert end["outcome"] == "interrupted"
            assert "stopped by request" in end["reason"]
            assert search.spent.llm_calls == 1  # it was sent, and somebody works on it
            gate.opened.set()
            go_on(service, search)
            await ended(search)
            found = set(search.options)
            assert search.part == 2
            assert found
            gate.opened.clear()
            go_on(service, search)
            search.stop()  # before it has looked around
            await ended(search)
            assert set(search.options) == found
            assert search.result is not None
            assert {option.key for option in search.result.options} == found

    run(story())


def test_a_model_that_hangs_holds_up_nobody_who_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waysout.serve.search_session._PATIENCE", 0.02)
    opened, waited = threading.Event(), []

    class Hanging(Adder):
        def ask(self, rows: Sequence[Row]) -> Answers:
            waited.append(opened.wait(10))
            return super().ask(rows)

    async def story() -> None:
        async with make_service(small(Hanging())) as service:
            search = start(service)
            await asyncio.sleep(0)
            search.stop()
            (end,) = await ended(search)
            assert not opened.is_set()
            assert (end["outcome"], end["reason"]) == ("interrupted", "stopped by request")
            opened.set()
            go_on(service, search)
            assert (await ended(search))[1]["outcome"] == "found"
            assert all(waited)  # nobody has sat it out

    run(story())


def test_a_stop_at_the_very_end_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waysout.serve.search_session._PATIENCE", 0.0)
    ending = asyncio.Event()

    async def slowly(self: Shortlist) -> None:
        ending.set()
        await asyncio.sleep(0.02)

    monkeypatch.setattr(Shortlist, "settle", slowly)

    async def story() -> None:
        async with make_service() as service:
            search = start(service, calls=1)
            await ending.wait()
            search.stop()
            (end,) = await ended(search)
            assert end["outcome"] == "found"

    run(story())


def test_a_stop_ends_what_makes_the_result_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    search: SearchSession
    asked = list[int]()

    class Stopping(Adder):
        def ask(self, rows: Sequence[Row]) -> Answers:
            if asked:
                asked.append(len(rows))
                search.stop()
            return super().ask(rows)

    def begun(*given: Any) -> Any:
        asked.append(0)
        return settled(*given)

    monkeypatch.setattr("waysout.serve.search_session.settled", begun)

    async def story() -> None:
        nonlocal search
        async with make_service(small(Stopping()), llm=None, settling_rows=300) as service:
            search = start(service, oracle_rows=300)
            (end,) = await ended(search)
            assert end["outcome"] == "found"
            assert len(asked) == 2, "nothing after the batch that was under way"

    run(story())


def test_a_failing_llm_ends_the_part_with_its_reason() -> None:
    async def refuse(request: Request, attempt: int) -> None:
        raise LLMError("the key is wrong")

    async def story() -> None:
        async with make_service(llm=Watched(refuse)) as service:
            search = start(service)
            (end,) = await ended(search)
            assert (end["outcome"], end["reason"]) == ("interrupted", "the key is wrong")
            assert "the key is wrong" in end["ending"]
            assert search.view()["outcome"] == "interrupted"
            go_on(service, search, calls=0)  # without it
            await ended(search)
            assert search.options

    run(story())


@pytest.mark.parametrize(
    ("how", "reason"), [("raises", "fell over"), ("nan", "is nan"), ("shape", "shape (4,)")]
)
def test_a_failing_model_ends_the_part_with_its_reason(how: str, reason: str) -> None:
    async def story() -> None:
        world = small(Broken(how, lambda row: row != tuple(ROW.values())))
        async with make_service(world) as service:
            search = start(service)
            (end,) = await ended(search)
            assert end["outcome"] == "failed"
            assert reason in end["reason"]

    run(story())


def test_what_nobody_foresaw_ends_the_part_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def surprise(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("waysout.serve.search_session.afind_many", surprise)

    async def story() -> None:
        async with make_service() as service:
            search = start(service)
            (end,) = await ended(search)
            assert end["outcome"] == "failed"
            assert end["reason"] == "unexpected ZeroDivisionError; the service's log says more"
            assert search.result is not None

    run(story())


def test_what_a_surprise_says_is_for_the_log_and_for_nobody_else() -> None:
    async def surprise(request: Request, attempt: int) -> None:
        raise ValueError("a-key-and-a-path")

    async def story() -> None:
        async with make_service(llm=Watched(surprise)) as service:
            search = start(service)
            (end,) = await ended(search)
            assert end["reason"] == "unexpected ValueError; the service's log says more"
            assert search.result is not None
            assert "a-key-and-a-path" not in str(search.result.as_dict()) + str(search.log.events)

    run(story())


def test_the_log_does_not_grow_with_parts_that_cost_nothing() -> None:
    async def story() -> None:
        async with make_service() as service:
            search = start(service, locks=Locks(fixed=["a", "b", "c"]))
            await ended(search)
            for _ in range(3):
                go_on(service, search)
                await ended(search)
            assert [told["part"] for told in of_kind(search, "part")] == [4]

    run(story())


def test_an_approved_row_and_one_without_a_way_out_end_at_once() -> None:
    async def story() -> None:
        async with make_service() as service:
            fine = start(service, row=person((9, 9, "x")))
            stuck = start(service, locks=Locks(fixed=["a", "b", "c"]))
            assert (await ended(fine))[0]["outcome"] == "already-approved"
            assert (await ended(stuck))[0]["outcome"] == "infeasible"
            assert "ruled out by you" in (await ended(stuck))[0]["reason"]
            assert (fine.spent.llm_calls, stuck.spent.llm_calls) == (0, 0)

    run(story())


def test_what_cannot_be_started_is_refused_and_leaves_nothing() -> None:
    async def story() -> None:
        async with make_service() as service:
            with pytest.raises(RowError, match="column 'a'"):
                start(service, row={**ROW, "a": "many"})
            with pytest.raises(RuleError, match="unknown feature"):
                start(service, locks=Locks(fixed=["d"]))
            assert not service.searches
            assert service.running == 0

    run(story())


def test_learning_is_told_from_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def learn(self: object, problem: object, known: object, tell: Any) -> None:
        tell("fitting", 0.25)
        tell("fitting", 1)

    monkeypatch.setattr("waysout.search.random.RandomEdits.learn", learn)

    async def story() -> None:
        async with make_service() as service:
            search = start(service, method="random")
            await ended(search)
            assert of_kind(search, "learning") == [{"what": "fitting", "share": 1.0}]

    run(story())


def test_runs_are_kept_where_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSOUT_RUNS", str(tmp_path))

    async def story() -> None:
        async with make_service(keep_runs=True) as service:
            search = start(service, calls=2, oracle_rows=40, locks=Locks(fixed=["c"]))
            await ended(search)
            assert search.filing.run is not None
            with Store.read(runs_dir() / f"{search.filing.run}.db") as store:
                about = store.manifest["about"]
                result = store.finished(0)
            assert result is not None
            assert about["service"] is True
            assert "row" not in about  # nobody said what the problem is made of
            assert about["locks"]["fixed"] == ["c"]
            assert [option.key for option in result.options] == list(search.options)

    run(story())


def test_searches_with_a_long_name_that_begin_together_keep_a_run_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYSOUT_RUNS", str(tmp_path))

    async def story() -> None:
        world = ServedProblem.of(replace(problem(), name="n" * 64))
        async with make_service(world, keep_runs=True) as service:
            searches = [start(service, calls=1, seed=seed) for seed in range(4)]
            for search in searches:
                assert (await ended(search))[0]["outcome"] == "found"
            assert len({search.filing.run for search in searches}) == 4

    run(story())


class Wavering(Adder):
    """Says yes to a row the first time only."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[Row] = Counter()

    def ask(self, rows: Sequence[Row]) -> Answers:
        said = super().ask(rows)
        again = np.array([self.seen[row] > 0 for row in rows], dtype=bool)
        self.seen.update(rows)
        return Answers(np.where(again, 0.0, said.probability), said.decision & ~again)


def test_who_follows_hears_that_an_option_wavers() -> None:
    async def go() -> list[Mapping[str, Any]]:
        async with make_service(small(Wavering())) as service:
            search = start(service)
            await ended(search)
            return [option for event in of_kind(search, "options") for option in event["options"]]

    told = run(go())
    last = {option["key"]: option["stable"] for option in told}
    assert last
    assert set(last.values()) == {False, None}  # as far as the rows for set-up go


class Counts:
    def __init__(self) -> None:
        self.options: list[int] = []

    def began(self) -> None:
        """Count nothing."""

    def ended(self, outcome: str, options: int, spent: Spent) -> None:
        self.options.append(options)


def test_options_known_before_are_not_counted_again() -> None:
    async def go() -> tuple[list[int], int]:
        counts = Counts()
        async with Service(
            {"small": small()}, None, limits=ServiceLimits(), listener=counts
        ) as service:
            search = start(service, oracle_rows=20)
            await ended(search)
            service.go_on(search.id, ContinueRequest(oracle_rows=40))
            await ended(search)
            return counts.options, len(search.options)

    told, options = run(go())
    assert min(told) > 0
    assert sum(told) == options
