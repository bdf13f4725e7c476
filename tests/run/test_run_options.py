"""What is given wrongly is named at once, with the value and what to give instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pandas as pd
import pytest
from run_world import PEOPLE, Watched, person, problem, timeless

import waysout
from waysout.domain.result import OutcomeKind
from waysout.errors import InputError, RowError, UnavailableError
from waysout.methods import make_method
from waysout.run.context import Stop
from waysout.run.options import make_plan
from waysout.search.base import Case, Method, Search
from waysout.search.comp_mcts import CompMCTS

SMALL: dict[str, Any] = {"calls": 2, "k": 3}
KNOWN = SimpleNamespace(rows=PEOPLE, labels=[True] * 3)


class Unshowable:
    """Cannot even be shown."""

    def __str__(self) -> str:
        raise OSError("gone")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"k": "5"}, "k is a whole number from 1 to 50, not '5'"),
        ({"k": 2.5}, "k is a whole number from 1 to 50, not 2.5"),
        ({"k": None}, "k is a whole number from 1 to 50, not None"),
        ({"seed": None}, "seed is a whole number"),
        ({"calls": "3"}, "llm_calls is a whole number .* not '3'"),
        ({"calls": 2.5, "method": "random"}, "llm_calls is a whole number"),
        ({"polish": -1}, "polish is a whole number of at least 0, not -1"),
        ({"polish": False}, "polish is a whole number of at least 0, not False"),
        ({"polish": "6"}, "polish is a whole number of at least 0, not '6'"),
        (
            {"polish": 9, "oracle_rows": 8},
            r"polish reserves 9 of 8 oracle rows, which leaves none for wayfinder: .*oracle_rows",
        ),
        ({"polish": 6, "method": "comp-mcts"}, "of 6 oracle rows, which leaves none for comp-mcts"),
        ({"in_flight": 0}, "in_flight is a whole number of at least 1, not 0"),
        (
            {"data": tuple(PEOPLE)},
            "anything with rows and labels .* not a tuple",
        ),
        ({"data": pd.DataFrame([person(PEOPLE[0])])}, "data is a Dataset.* not a DataFrame"),
        ({"data": KNOWN}, "12 rows are known, but 3 labels"),
        ({"llm": 5}, "llm is a connection string such as 'simulated:1', or a Backend, not 5"),
        ({"style": "paper"}, r"style is a Style, such as Style\('paper'\), not 'paper'"),
        ({"price": 3.0}, "price is a text such as '0.15/0.60'.* not 3.0"),
        ({"price": "dear"}, "a price is IN/OUT"),
        ({"money": 1.0}, "needs the prices: price='IN/OUT'"),
        ({"stop": print}, "stop is a Stop"),
        ({"progress": True}, "progress is a function of one Progress, not True"),
        ({"run": 7}, "run is the path of a file, not 7"),
        ({"record": 7}, "record is the path of a file, not 7"),
        ({"about": "me"}, "about is a mapping, not 'me'"),
        ({"settings": "depth=3"}, "settings is a mapping such as {'depth': 3}, not 'depth=3'"),
        ({"method": CompMCTS}, r"method is the class CompMCTS: make one, CompMCTS\("),
        ({"method": 5}, "method is a name .*comp-mcts.* or a Method, not 5"),
        ({"method": "cmop"}, "unknown method 'cmop'"),
        ({"method": "nearest"}, "outcome is known"),
        ({"settings": {"quality": "inf"}}, "quality must be a number, not 'inf'"),
    ],
    ids=lambda value: "-".join(f"{k}" for k in value) if isinstance(value, dict) else "",
)
def test_wrong_values_are_named_before_anybody_is_asked_for(
    given: dict[str, Any], reason: str
) -> None:
    options: dict[str, Any] = {"llm": Watched(), **SMALL, **given}
    for ask in (waysout.find_many, waysout.afind_many):
        with pytest.raises(InputError, match=reason):
            ask(problem(), PEOPLE, **options)
    with pytest.raises(InputError, match=reason):
        waysout.find(problem(), PEOPLE[0], **options)


def test_none_is_as_if_not_given() -> None:
    names = ("run", "record", "stop", "price", "data", "style", "progress", "method", "settings",
             "in_flight", "about", "polish")  # fmt: skip
    nothing: dict[str, Any] = dict.fromkeys(names)
    [plain] = waysout.find_many(problem(), PEOPLE[:1], llm=Watched(), **SMALL)
    [result] = waysout.find_many(problem(), PEOPLE[:1], llm=Watched(), **SMALL, **nothing)
    assert timeless(result) == timeless(plain)
    [result] = waysout.find_many(problem(), PEOPLE[:1], llm=None, method="random", oracle_rows=9)
    assert result.ledger.oracle_rows == 9


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        ({}, 150),
        ({"k": 2}, 60),
        ({"llm": "simulated:1"}, 150),
        ({"llm": "simulated:1", "calls": 6}, 150),
        ({"llm": "simulated:1", "calls": 6, "k": 2}, 60),
        ({"llm": "simulated:1", "calls": 40}, 200),
        ({"llm": "simulated:1", "calls": 6, "method": "comp-mcts"}, 30),
        ({"calls": 6, "method": "random"}, 30),
        ({"calls": 0}, 150),
        ({"calls": 0, "k": 2}, 60),
        ({"calls": 0, "oracle_rows": 7}, 7),
        ({"calls": 0, "oracle_rows": None}, None),
        ({"llm": "simulated:1", "calls": None}, None),
    ],
    ids=str,
)
def test_rows_go_with_the_calls_unless_they_do_not_hang_on_them(
    given: dict[str, Any], rows: int | None
) -> None:
    assert make_plan(given).budget.oracle_rows == rows  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "calls", "asks"),
    [
        ("wayfinder", 0, False),
        ("wayfinder", 1, True),
        ("recombine", 0, False),
        ("recombine", 1, True),
        ("recombine", None, True),
        ("comp-mcts", 0, True),
        ("random", 30, False),
    ],
)
def test_an_llm_is_asked_where_a_method_has_calls_or_is_nothing_without_them(
    method: str, calls: int | None, asks: bool
) -> None:
    plan = make_plan({"method": method, "calls": calls, "llm": "simulated:1"})
    assert plan.asks_llm is asks
    assert (plan.as_dict(None)["style"] is not None) is asks


def test_without_an_llm_none_is_asked() -> None:
    result = waysout.find(problem(), PEOPLE[0], oracle_rows=20)
    assert result.options
    assert (result.ledger.llm_calls, result.settings["llm"]) == (0, None)
    assert not any(option.reasons for option in result.options)
    # As with no calls, so that a run of an earlier release with none is the same run.
    without, forbidden = make_plan({}), make_plan({"calls": 0, "llm": "simulated:1"})
    assert without.as_dict(None) == forbidden.as_dict(None)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"method": "comp-mcts"}, "the method 'comp-mcts' cannot search without an LLM: give one"),
        ({"method": "lats", "calls": 0}, "the method 'lats' cannot .* llm=…, such as 'llamacpp:"),
        ({"calls": 6}, "6 LLM calls are allowed, but there is no LLM .* leave calls=… out"),
        ({"calls": None}, "any number of LLM calls is allowed, but there is no LLM"),
        ({"record": "replies.jsonl"}, "no replies to record: .* leave record=… out"),
    ],
    ids=str,
)
def test_what_needs_an_llm_is_refused_without_one(given: dict[str, Any], reason: str) -> None:
    asked = problem()
    with pytest.raises(InputError, match=reason):
        waysout.find_many(asked, PEOPLE, **given)
    assert make_plan({**given, "llm": "simulated:1"}).asks_llm  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (person(PEOPLE[0]), "many rows, not one"),
        (pd.Series(person(PEOPLE[0])), "many rows, not one"),
        (PEOPLE[0], "many rows, not one"),
        ("people.csv", "many rows, not one"),
        (7, "one after the other, not a int"),
    ],
    ids=["mapping", "series", "tuple", "text", "number"],
)
def test_one_row_for_many(rows: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        waysout.find_many(problem(), rows, llm=Watched())


def test_something_else_for_the_problem() -> None:
    with pytest.raises(InputError, match="the first argument is a Problem"):
        waysout.find_many(KNOWN, PEOPLE[0], llm=Watched())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="data is missing"):
        waysout.find(KNOWN, PEOPLE[0], llm=Watched())


def test_a_table_for_one_row() -> None:
    with pytest.raises(RowError, match="a whole table was given for one row"):
        waysout.find(problem(), pd.DataFrame([person(PEOPLE[0])]), llm=Watched())


def test_rows_that_cannot_be_looked_at_fail_alone() -> None:
    class Torn:
        def to_dict(self) -> dict[str, Any]:
            raise OSError("gone")

    bad = [Torn(), {**person(PEOPLE[0]), "c": Unshowable()}, PEOPLE[1]]
    found = list(waysout.find_many(problem(), bad, llm=Watched(), **SMALL))
    by_index = {r.index: r for r in found}
    assert [by_index[i].outcome.kind == OutcomeKind.FAILED for i in range(3)] == [1, 1, 0]
    assert by_index[0].outcome.reason == "row 0: it cannot be read (OSError)"
    assert by_index[1].query == {"a": "0", "b": "0", "c": "Unshowable"}
    assert by_index[0].query == {}


# Methods of one's own ---------------------------------------------------------------------------


def _declared(kind: Any) -> Callable[[], Method]:
    def make() -> Method:
        @dataclass(frozen=True)
        class Own(Method):
            name: ClassVar[str] = "own"
            setting: kind = None

            def start(self, case: Case) -> Search:
                raise AssertionError

        Own.__annotations__["setting"] = kind
        return Own()

    return make


@pytest.mark.parametrize("kind", [str | None, tuple[str, ...], dict], ids=str)
def test_settings_of_a_type_no_command_line_can_give(kind: Any) -> None:
    with pytest.raises(InputError, match=r"setting is declared as .* int, float, bool"):
        _declared(kind)()


class Nameless(Method):
    def start(self, case: Case) -> Search:
        raise AssertionError


class Startless(Method):
    name = "startless"

    def start(self, case: Case) -> Search:
        return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        (Nameless(), "the method Nameless has no name"),
        (Startless(), r"'startless': start\(\) returns a Search, not None"),
    ],
    ids=["nameless", "startless"],
)
def test_methods_that_are_none(method: Method, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        waysout.find(problem(), PEOPLE[0], method=method)
    with pytest.raises(InputError, match=reason):
        waysout.check_method(method)


def test_what_a_method_needs_is_there_before_a_run_is_made(tmp_path: Path) -> None:
    class Needy(CompMCTS):
        def prepare(self) -> None:
            raise UnavailableError("no such encoder")

    with pytest.raises(UnavailableError, match="no such encoder"):
        waysout.find(problem(), PEOPLE[0], method=Needy(), llm=Watched(), run=tmp_path / "run.db")
    with pytest.raises(UnavailableError, match="no such encoder"):
        waysout.check_method(Needy())
    assert list(tmp_path.iterdir()) == []


def test_numbers_without_end_are_no_settings() -> None:
    for text in ("inf", "-inf", "nan", "1e999"):
        with pytest.raises(InputError, match="threshold must be a number"):
            make_method("comp-mcts", {"threshold": text})


def test_a_stop_is_given_once_and_used_again() -> None:
    stop = Stop()
    stop("enough")
    for _ in range(2):
        result = waysout.find(problem(), PEOPLE[0], llm=Watched(), stop=stop, **SMALL)
        assert result.outcome.reason == "enough"
