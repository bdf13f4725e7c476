"""Edits shared between similar people: who the pilots are, what others get, and nothing else."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_world import PEOPLE, SCHEMA, Adder, Broken, Watched, no_waiting, person, problem, timeless

import waysout
from waysout.batch import shared_edits
from waysout.batch.job import BatchTally
from waysout.batch.sealed import read_sealed, sealed
from waysout.batch.shared_edits import (
    LIBRARY,
    PILOTS,
    Named,
    Pilot,
    SharedEdits,
    SharedLibrary,
    build_library,
    choose_pilots,
    library_in,
    sharing,
)
from waysout.domain.budget import Spent
from waysout.domain.key import Key
from waysout.domain.memory import Past
from waysout.domain.rules import Immutable, Lever, Range, RuleSet
from waysout.domain.schema import Edit, Row
from waysout.errors import InputError, IntegrityError, LLMFailure, LLMUnreachable, RuleError
from waysout.llm.base import Request
from waysout.run.options import Options
from waysout.run.progress import Progress

PILOT_OPTIONS: Options = {"calls": 3, "oracle_rows": 20}
REASON = "named for similar applicants"


def pilot(row: Row, *edits: str) -> Pilot:
    """Return a pilot: ``pilot((0, 0, "x"), "a=5", "b=3!")``; the second stands in an option."""
    pairs = (edit.rstrip("!").split("=") for edit in edits)
    named = [Edit(name, SCHEMA[name].parse(value)) for name, value in pairs]
    worked = [edit.endswith("!") for edit in edits]
    return Pilot(row, tuple(map(Named, named, worked)))


def library(*pilots: Pilot, llm: str = "openai:some") -> SharedLibrary:
    return SharedLibrary("adder", llm, pilots)


def told(past: Past) -> list[str]:
    return [f"{edit.feature}={edit.value}" for edit in past.edits]


def built(folder: Path, llm: Watched | None = None, **options: Any) -> SharedLibrary:
    given: Options = {**PILOT_OPTIONS, "llm": llm or Watched(), **options}  # type: ignore[typeddict-item]
    people = [person(row) for row in PEOPLE]
    found = build_library(problem(), people, given, 4, run=folder / "pilots.db")
    assert found is not None
    return found


# Pilots -----------------------------------------------------------------------------------------


def test_pilots_stand_for_many_before_few() -> None:
    crowd: list[Row] = [(0, i % 3, "x") for i in range(6)]
    village: list[Row] = [(19, 18 + i % 2, "y") for i in range(4)]
    hermit: Row = (0, 20, "z")
    chosen = choose_pilots(problem(), [hermit, *village, *crowd], 3)
    assert chosen[0] in crowd
    assert chosen[1] in village
    assert chosen[2] == hermit


def test_the_first_of_more_pilots_are_the_same() -> None:
    assert choose_pilots(problem(), PEOPLE, 7)[:3] == choose_pilots(problem(), PEOPLE, 3)


def test_nobody_is_a_pilot_twice() -> None:
    assert choose_pilots(problem(), [PEOPLE[0]] * 5 + [PEOPLE[7]], 4) == [PEOPLE[0], PEOPLE[7]]
    assert choose_pilots(problem(), [], 4) == []


def test_there_is_a_pilot_at_least() -> None:
    with pytest.raises(InputError, match="count is a whole number of at least 1, not 0"):
        choose_pilots(problem(), PEOPLE, 0)


def test_whoever_is_approved_or_cannot_be_read_is_no_pilot(tmp_path: Path) -> None:
    rows = [person((15, 15, "x")), {"a": "many"}, person((0, 0, "x")), person((20, 0, "y"))]
    options: Options = {**PILOT_OPTIONS, "llm": Watched()}
    found = build_library(problem(), rows, options, 4, run=tmp_path / "run.db")
    assert found is not None
    assert [p.row for p in found.pilots] == [(0, 0, "x")]
    assert found.tally.outcomes == {"found": 1}
    assert found.tally.spent.setup_rows > 3  # those three who could be read, and the pilot's own


def test_a_row_that_the_model_breaks_on_keeps_nobody_else_from_being_a_pilot(
    tmp_path: Path,
) -> None:
    rows = [person((1, 0, "x")), person((0, 0, "x")), person((0, 9, "z"))]
    broken = problem(oracle=Broken("raises", lambda row: row[0] == 1))
    options: Options = {**PILOT_OPTIONS, "llm": Watched()}
    found = build_library(broken, rows, options, 3, run=tmp_path / "run.db")
    assert found is not None
    assert {p.row for p in found.pilots} == {(0, 0, "x"), (0, 9, "z")}


def test_where_nobody_is_rejected_the_library_is_empty(tmp_path: Path) -> None:
    options: Options = {**PILOT_OPTIONS, "llm": Watched()}
    found = build_library(problem(), [person((15, 15, "x"))], options, run=tmp_path / "run.db")
    assert found is not None
    assert found == SharedLibrary("adder", "", (), BatchTally(spent=Spent(setup_rows=1)))
    assert SharedEdits(found).of(problem(), PEOPLE[0]) == Past()


# The library ------------------------------------------------------------------------------------


def test_what_was_named_is_kept_without_reasons(tmp_path: Path) -> None:
    llm = Watched()
    found = built(tmp_path, llm)
    assert [p.row for p in found.pilots] == choose_pilots(problem(), PEOPLE, 4)
    assert found.llm == "simulated:7"
    assert found.tally.spent.llm_calls == llm.requests == 12
    edits = [named for p in found.pilots for named in p.edits]
    assert len(edits) > 20
    assert not any(named.edit.reason for named in edits)
    assert {named.worked for named in edits} == {True, False}
    for p in found.pilots:
        assert len({named.edit for named in p.edits}) == len(p.edits)


def test_what_is_kept_is_what_the_search_heard(tmp_path: Path) -> None:
    found, memory = built(tmp_path), waysout.Memory()
    rows = [p.row for p in found.pilots]
    options: Options = {**PILOT_OPTIONS, "llm": Watched(), "memory": memory}
    list(waysout.find_many(problem(), rows, **options))
    for p in found.pilots:
        heard = dict.fromkeys((e.feature, e.value) for e in memory.of(problem(), p.row).edits)
        assert [(n.edit.feature, n.edit.value) for n in p.edits] == list(heard)


def test_it_survives_a_file(tmp_path: Path) -> None:
    found = built(tmp_path)
    found.save(tmp_path / LIBRARY, problem())
    again = SharedLibrary.load(tmp_path / LIBRARY, problem())
    assert again == found
    assert [type(v) for p in again.pilots for v in p.row] == [int, int, str] * 4


def saved(folder: Path, **changes: Any) -> Path:
    path = folder / LIBRARY
    library(pilot(PEOPLE[0], "a=5!")).save(path, problem())
    path.write_bytes(sealed(read_sealed(path, "") | changes))
    return path


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"waysout_library": 2}, InputError, "its version is 2, not 1"),
        ({"oracle": "other"}, InputError, "the model 'other', not 'adder'"),
        ({"features": ["a", "b"]}, InputError, r"the features \['a', 'b'\]"),
        ({"pilots": [{"row": [1, 2], "edits": []}]}, IntegrityError, "searched for again"),
        ({"pilots": [{"row": [1, 2, "x"], "edits": [["a", "many", True]]}]}, IntegrityError, "a"),
        ({"pilots": [{"row": [1, 2, "x"], "edits": [["d", 1, True]]}]}, IntegrityError, "'d'"),
        ({"pilots": 3}, IntegrityError, "searched for again"),
        ({"tally": {"people": 3}}, IntegrityError, "searched for again"),
    ],
)
def test_a_file_that_is_not_what_it_should_be(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        SharedLibrary.load(saved(tmp_path, **changes), problem())


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_file_that_is_no_library(tmp_path: Path, text: str) -> None:
    (tmp_path / LIBRARY).write_text(text, "utf-8")
    with pytest.raises(IntegrityError, match=LIBRARY):
        SharedLibrary.load(tmp_path / LIBRARY, problem())


def test_a_value_that_was_not_written_is_noticed(tmp_path: Path) -> None:
    path = saved(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"5", b"7", 1))
    with pytest.raises(IntegrityError, match=r"says other than was written.*searched for again"):
        SharedLibrary.load(path, problem())


# Going on ---------------------------------------------------------------------------------------


def test_pilots_that_were_stopped_are_gone_on_with(tmp_path: Path) -> None:
    whole = built(tmp_path)
    folder, first, second, stop = tmp_path / "cut", Watched(), Watched(), waysout.Stop()
    folder.mkdir()

    def cut(now: Progress) -> None:
        if first.replied.total() >= 6:
            stop("enough")

    options: Options = {**PILOT_OPTIONS, "llm": first, "progress": cut, "stop": stop}
    people = [person(row) for row in PEOPLE]
    assert build_library(problem(), people, options, 4, run=folder / "pilots.db") is None
    resumed = built(folder, second)
    assert resumed.pilots == whole.pilots
    assert resumed.tally.spent.llm_calls == whole.tally.spent.llm_calls
    assert 0 < second.requests < 12
    assert not set(first.replied) & set(second.replied)


def test_an_llm_that_fails_freezes_no_half_library(tmp_path: Path) -> None:
    async def fail(request: Request, attempt: int) -> None:
        raise LLMFailure("a fault on purpose", alive=True)

    with no_waiting(), pytest.raises(LLMUnreachable):
        built(tmp_path, Watched(fail))
    assert not (tmp_path / LIBRARY).exists()
    assert built(tmp_path).pilots


def test_a_folder_has_one_library(tmp_path: Path) -> None:
    first, second = Watched(), Watched()
    people = [person(row) for row in PEOPLE]
    made = library_in(tmp_path, problem(), people, {**PILOT_OPTIONS, "llm": first}, 3)
    again = library_in(tmp_path, problem(), people, {**PILOT_OPTIONS, "llm": second}, 3)
    assert made == again
    assert (first.requests, second.requests) == (9, 0)
    assert sorted(p.name for p in tmp_path.iterdir()) == [LIBRARY]
    assert PILOTS.startswith("_")


@pytest.mark.parametrize(
    ("options", "says"),
    [({"method": "lats"}, "not by 'lats'"), ({"calls": 0}, "no LLM names anything")],
)
def test_nothing_is_shared_where_nothing_can_be(
    tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        built(tmp_path, **options)


# What a person gets -----------------------------------------------------------------------------


def test_the_nearest_pilots_edits_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    far, near = pilot((15, 15, "x"), "a=3", "b=9"), pilot((1, 0, "x"), "a=9", "c=y")

    def first() -> list[str]:
        return told(SharedEdits(library(far, near)).of(problem(), (0, 0, "x")))

    assert first() == ["a=9", "c=y", "a=3", "b=9"]
    monkeypatch.setattr(shared_edits, "MOST_EDITS", 3)
    assert first() == ["a=9", "c=y", "a=3"]
    monkeypatch.setattr(shared_edits, "NEAREST", 1)
    assert first() == ["a=9", "c=y"]


def test_what_worked_and_what_many_named_counts_more() -> None:
    row: Row = (1, 0, "x")
    two = library(pilot(row, "a=3", "a=9!", "b=7"), pilot((2, 0, "x"), "a=3", "b=8", "a=4"))
    assert told(SharedEdits(two).of(problem(), (0, 0, "x"))) == ["a=9", "a=3", "b=7", "b=8", "a=4"]


def test_values_that_the_key_does_not_tell_apart_are_one() -> None:
    binned = replace(problem(), key=Key(SCHEMA, {"a": (5, 10)}))
    shared = SharedEdits(
        library(pilot((1, 0, "x"), "a=7", "a=9", "a=3"), pilot((4, 4, "x"), "a=8"))
    )
    # 3 is in the query's own bin; of 7, 8 and 9 the nearest pilot's first is taken.
    assert told(shared.of(binned, (0, 0, "x"))) == ["a=7"]


def test_nobody_gets_what_is_not_for_them() -> None:
    shared = SharedEdits(library(pilot((1, 0, "x"), "a=5", "b=9", "b=3", "c=y")))
    ruled = problem(Immutable(features=["a"]), Range(feature="b", max=5))
    assert told(shared.of(ruled, (0, 0, "x"))) == ["b=3", "c=y"]
    assert told(shared.of(problem(), (5, 9, "y"))) == ["b=3"]  # the others are as they are


@pytest.mark.parametrize(
    ("llm", "reason"),
    [
        ("openai:some", REASON),
        ("simulated:7", f"simulated: {REASON}"),
        ("scripted:7", f"scripted: {REASON}"),
    ],
)
def test_the_reason_tells_of_nobody(llm: str, reason: str) -> None:
    shared = SharedEdits(library(pilot((1, 0, "x"), "a=5"), llm=llm))
    assert shared.of(problem(), (0, 0, "x")).edits == [Edit("a", 5, reason)]


def test_nothing_is_kept_of_anybody() -> None:
    shared = SharedEdits(library(pilot((1, 0, "x"), "a=5")))
    before = pickle.dumps(shared.of(problem(), (0, 0, "x")))
    size = len(pickle.dumps(shared))
    for row in PEOPLE:
        shared.of(problem(), row).edits.append(Edit("b", 1))
    assert pickle.dumps(shared.of(problem(), (0, 0, "x"))) == before
    assert len(pickle.dumps(shared)) == size
    sent: SharedEdits = pickle.loads(pickle.dumps(shared))
    assert pickle.dumps(sent.of(problem(), (0, 0, "x"))) == before


def test_a_rule_that_breaks_is_left_to_the_search() -> None:
    class Breaks(RuleSet):
        def levers(self, query: Row) -> Mapping[str, Lever]:
            raise RuleError("on purpose")

    broken = replace(problem(), rules=Breaks(SCHEMA, ()))
    shared = SharedEdits(library(pilot((1, 0, "x"), "a=5")))
    assert shared.of(broken, (0, 0, "x")) == Past()


# Searches ---------------------------------------------------------------------------------------


def shared_options(**options: Any) -> Options:
    given: Options = {"calls": 2, "oracle_rows": 20, "llm": Watched(), **options}  # type: ignore[typeddict-item]
    return sharing(given)


def test_who_shares_asks_when_stuck_and_keeps_the_other_settings() -> None:
    made = sharing({"settings": {"edits": 4}, "calls": 2})
    assert made == {"settings": {"edits": 4, "ask": "stuck"}, "calls": 2}


def test_shared_edits_alone_are_ways_out() -> None:
    shared = SharedEdits(library(pilot((1, 0, "x"), "a=9", "b=8", "c=y")))
    options = shared_options(
        method="recombine", settings={"own_edits": False}, memory=shared, calls=0
    )
    found = waysout.find(problem(), (0, 1, "x"), **options)
    assert {(o.row["a"], o.row["b"]) for o in found.options} == {(9, 1), (9, 8)}
    assert {reason for o in found.options for reason in o.reasons} == {
        f"a: {REASON}", f"b: {REASON}", f"c: {REASON}"
    }  # fmt: skip


def test_results_do_not_hang_on_the_order_of_people(tmp_path: Path) -> None:
    made = built(tmp_path)

    def results(rows: list[Row], in_flight: int) -> dict[Row, dict[str, Any]]:
        options = shared_options(memory=SharedEdits(made), in_flight=in_flight)
        found = waysout.find_many(problem(), rows, **options)
        return {rows[r.index]: timeless(r) | {"index": 0} for r in found}

    there, back = results(PEOPLE, 1), results(PEOPLE[::-1], 8)
    for row in PEOPLE:
        for name in ("options", "outcome", "metrics"):
            assert there[row][name] == back[row][name]


def test_a_resumed_search_begins_as_it_began(tmp_path: Path) -> None:
    shared = SharedEdits(library(pilot((1, 0, "x"), "a=9", "b=8", "c=y", "a=4")))

    def sitting(file: str, **options: Any) -> waysout.Result:
        run = tmp_path / file
        given = shared_options(run=run, memory=shared, **options)
        return waysout.find(problem(oracle=Adder()), (0, 1, "x"), **given)

    stop = waysout.Stop()

    def cut(now: Progress) -> None:
        if now.oracle_rows >= 10:
            stop("enough")

    assert sitting("cut", progress=cut, stop=stop).outcome.kind == "interrupted"
    resumed, whole = sitting("cut"), sitting("whole")
    assert timeless(resumed)["options"] == timeless(whole)["options"]
    assert resumed.ledger.oracle_rows == whole.ledger.oracle_rows == 20
