"""What a run is given, checked once: its options, from which the plan is made, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from os import PathLike
from typing import Any, TypedDict, cast

from waysout.domain.budget import Budget
from waysout.domain.known import Known, check_lengths
from waysout.domain.memory import Memory
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.errors import InputError, RowError, shown, unknown
from waysout.llm.base import Backend
from waysout.llm.call import Price
from waysout.methods import DEFAULT as DEFAULT_METHOD
from waysout.methods import as_method
from waysout.prompts.propose import Style
from waysout.run.context import Stop
from waysout.run.plan import MOST_K, Plan, check_whole
from waysout.run.progress import OnProgress
from waysout.search.base import Method, OnLearning

CALLS = 30
_SUCH_AS = "such as 'llamacpp:smollm2-135m' or 'openai:MODEL@URL'"


class SearchOptions(TypedDict, total=False):
    """The keywords of `find`, `find_many` and their asynchronous twins.

    ``method`` is a name (see `waysout methods`) or a method with its own settings; ``settings``
    change those of a named one. ``llm`` is a connection string or a backend. Without one no LLM is
    asked, ``calls`` have no meaning, and a method that cannot do without one is refused.

    ``calls``, ``oracle_rows``, ``tokens``, ``money`` (with ``price``) and ``seconds`` are hard
    limits for each person; ``None`` means no limit. Calls default to 30. Rows default to ``k`` ×
    ``calls``, and to at least ``k`` × 30 for methods that go on without an LLM: to ``k`` × 30 where
    there is none. ``polish`` reserves that many of the
    rows to finish what a method found (`waysout.search.finish`), and also uses rows left over;
    without a limit on rows, it comes on top. ``wayfinder`` finishes by itself.

    ``data`` holds rows with known outcomes: the oracle is tried on them before anything is spent,
    ``nearest`` starts from them, and options are compared with them. ``memory`` is a `Memory` of
    earlier searches with this model: what it knows about a person is not asked again, and new
    answers are added to it; use it for one search at a time.

    ``run`` is a file to record in; an existing run is resumed. ``about`` is stored in it.
    ``record`` is a file for the LLM's replies, for `replay:`. ``in_flight`` limits concurrent LLM
    requests and, where ``seconds`` are limited, concurrent people: time counts from the start of a
    person's search. ``learning`` is called with a text and the share done while a method learns
    from ``data`` before the first search; ``progress`` is called after every answer; ``stop`` ends
    all searches from another thread, each with what it has found.

    ``None`` for anything but the limits, ``k`` and ``seed`` is the same as leaving it out.
    """

    method: str | Method | None
    settings: Mapping[str, Any] | None
    llm: str | Backend | None
    calls: int | None
    k: int
    oracle_rows: int | None
    tokens: int | None
    money: float | None
    price: Price | str | None
    seconds: float | None
    polish: int | None
    seed: int
    style: Style | None
    memory: Memory | None
    run: str | PathLike[str] | None
    record: str | PathLike[str] | None
    in_flight: int | None
    learning: OnLearning | None
    progress: OnProgress | None
    stop: Stop | None
    about: Mapping[str, Any] | None


class Options(SearchOptions, total=False):
    """The same, and ``data``: see `SearchOptions`."""

    data: Known | None


# Not Options.__annotations__, which leaves out what is inherited.
_NAMES = (*SearchOptions.__annotations__, "data")
_KINDS: Mapping[str, tuple[Any, str]] = {
    "settings": (Mapping, "a mapping such as {'depth': 3}"),
    "llm": ((str, Backend), "a connection string such as 'simulated:1', or a Backend"),
    "price": ((str, Price), "a text such as '0.15/0.60' (per million tokens in/out), or a Price"),
    "style": (Style, "a Style, such as Style('paper')"),
    "memory": (Memory, "a Memory, the same for one search after the other"),
    "run": ((str, PathLike), "the path of a file"),
    "record": ((str, PathLike), "the path of a file"),
    "learning": (Callable, "a function of a text and a share"),
    "progress": (Callable, "a function of one Progress"),
    "stop": (Stop, "a Stop, which ends the run when it is called"),
    "about": (Mapping, "a mapping"),
}
# For these, None is a value: no limit or, for k and seed, a mistake.
_NONE_COUNTS = ("calls", "oracle_rows", "tokens", "money", "seconds", "k", "seed")


def checked(options: Options) -> Options:
    """Return the options without those left out, or say which one is wrong."""
    for name in options:
        if name not in _NAMES:
            raise InputError(unknown("option", name, _NAMES))
    given = {n: v for n, v in options.items() if v is not None or n in _NONE_COUNTS}
    for name, (kind, what) in _KINDS.items():
        if name in given and not isinstance(given[name], kind):
            raise InputError(f"{name} is {what}, not {shown(given[name])}")
    check_whole("k", given.get("k", 1), 1, MOST_K)
    check_whole("in_flight", given.get("in_flight", 1), 1)
    if given.get("settings") and not isinstance(given.get("method", ""), str):
        raise InputError("settings change those of a method given by name; this one has its own")
    if "data" in given:
        data: Any = given["data"]
        if not all(isinstance(getattr(data, name, None), Sized) for name in ("rows", "labels")):
            raise InputError(
                "with a Problem, data is a Dataset, or anything with rows and labels (which of "
                f"them were approved), not {_a(data)}; a frame goes with a model: find(model, row, "
                "data=frame)"
            )
        check_lengths(data)
    if isinstance(price := given.get("price"), str):
        Price.parse(price)  # refused now, not when the LLM is asked
    return cast(Options, given)


def make_plan(options: Options) -> Plan:
    """Check some options and return the plan they describe."""
    return plan_of(checked(options))


def plan_of(given: Options) -> Plan:
    """Return the plan that options describe which `checked` has returned."""
    k, calls = given.get("k", 5), given.get("calls", CALLS)
    Budget(llm_calls=calls)  # so that a bad number is refused also where no LLM is asked
    name, method = as_method(given.get("method", DEFAULT_METHOD), given.get("settings"))
    if method.needs_llm and "llm" not in given:
        _check_without_llm(name, method, given)
        calls = 0
    money = given.get("money")
    if money is not None and method.needs_llm and "price" not in given:
        raise InputError("a limit in money needs the prices: price='IN/OUT', per million tokens")
    # Fewer calls than usual do not mean fewer rows where a method goes on without calls; and a
    # method that asks no LLM keeps its rows when calls are forbidden.
    rows_for = (calls or CALLS) if calls is not None and not method.needs_llm else calls
    if rows_for is not None and not method.needs_calls:
        rows_for = max(rows_for, CALLS)
    return Plan(
        name=name,
        method=method,
        budget=Budget(
            llm_calls=calls if method.needs_llm else 0,
            oracle_rows=given.get("oracle_rows", None if rows_for is None else k * rows_for),
            tokens=given.get("tokens"),
            money=money,
            seconds=given.get("seconds"),
        ),
        k=k,
        seed=given.get("seed", 0),
        style=given.get("style") or Style(),
        polish=given.get("polish", 0),  # type: ignore[arg-type]  # `checked` drops None
    )


def _check_without_llm(name: str, method: Method, given: Options) -> None:
    """Refuse what makes no sense without an LLM, rather than leave it out silently."""
    if method.needs_calls:
        raise InputError(
            f"the method {name!r} cannot search without an LLM: give one with llm=…, {_SUCH_AS}"
        )
    calls = given.get("calls", 0)
    if calls != 0:
        allowed = "any number of LLM calls is" if calls is None else f"{calls} LLM calls are"
        raise InputError(
            f"{allowed} allowed, but there is no LLM to call: give one with llm=…, {_SUCH_AS}, or "
            "leave calls=… out"
        )
    if "record" in given:
        raise InputError(
            f"without an LLM there are no replies to record: give one with llm=…, {_SUCH_AS}, or "
            "leave record=… out"
        )


# Problems and rows ------------------------------------------------------------------------------


def check_problem(problem: object) -> None:
    """Raise `InputError` unless this is a problem."""
    if not isinstance(problem, Problem):
        raise InputError(
            f"the first argument is a Problem (Problem.from_card makes one), not {_a(problem)}"
        )


def check_rows(problem: Problem, rows: Any) -> Iterable[Any]:
    """Return many rows, those of a data frame one by one; refuse a single row."""
    if getattr(rows, "ndim", None) == 2 and hasattr(rows, "to_dict"):
        rows = rows.to_dict("records")
    one = isinstance(rows, (Mapping, str, bytes)) or hasattr(rows, "to_dict")
    if isinstance(rows, tuple) and len(rows) == len(problem.schema):
        one |= all(value is None or isinstance(value, (str, int, float)) for value in rows)
    if one:
        raise InputError(f"find_many takes many rows, not one ({_a(rows)}): use find for that")
    if not isinstance(rows, Iterable):
        raise InputError(f"find_many takes rows, one after the other, not {_a(rows)}")
    return rows


def _a(thing: object) -> str:
    """Name the type of what may be a table: writing all of it out would fill the screen."""
    return f"a {type(thing).__name__}"


def read_row(problem: Problem, raw: Any) -> Row:
    """Read one row, or raise `RowError`, whatever is wrong with it."""
    try:
        return problem.row(as_mapping(problem, raw))
    except RowError:
        raise
    except Exception as error:  # a table's own row, or a value, that cannot even be looked at
        raise RowError(f"it cannot be read ({type(error).__name__})") from error


def as_mapping(problem: Problem, raw: Any) -> Mapping[str, Any]:
    """Return a row as a mapping: it may be one, a typed row, or a row of a data frame."""
    if isinstance(raw, Mapping):
        return raw
    if getattr(raw, "ndim", 1) != 1:
        raise RowError(
            "a whole table was given for one row: take one (frame.iloc[0]), or find_many"
        )
    if hasattr(raw, "to_dict"):
        named: Mapping[str, Any] = raw.to_dict()
        return named
    schema = problem.schema
    if not isinstance(raw, (tuple, list)) or len(raw) != len(schema):
        raise RowError(
            f"a row is a mapping or a tuple of {len(schema)} values, not {type(raw).__name__}"
        )
    return {feature.name: value for feature, value in zip(schema, raw, strict=True)}
