"""What a search is asked to do, checked before anything happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from os import PathLike
from typing import Any, TypedDict, cast

from waysout.domain.budget import Budget
from waysout.domain.known import Known, check_lengths
from waysout.domain.memory import Memory
from waysout.domain.problem import Problem
from waysout.errors import InputError, shown, unknown
from waysout.llm.base import Backend
from waysout.llm.call import Price
from waysout.methods import DEFAULT as DEFAULT_METHOD
from waysout.methods import as_method
from waysout.prompts.propose import Style
from waysout.run.context import Stop
from waysout.run.plan import MOST_K, Plan, check_whole
from waysout.run.progress import OnProgress
from waysout.search.base import Method, Tell

CALLS = 30


class Options(TypedDict, total=False):
    """What `find`, `find_many` and their asynchronous twins take, all by keyword.

    ``method`` is a name (see `waysout methods`) or a method with its own settings; ``settings``
    change those of a named one. ``llm`` is a connection string or a backend; methods that ask no
    LLM need none. ``calls``, ``oracle_rows``, ``tokens``, ``money`` (with ``price``) and
    ``seconds`` are hard limits for each person, and ``None`` is no limit; rows default to ``k`` ×
    ``calls``, for ``recombine`` to no fewer than ``k`` × 30. ``polish`` sets so many of the rows
    aside to make options leaner when the method has ended, and uses those that are left over, too;
    without a limit of rows, it has them on top. ``data`` holds rows with known outcomes: the oracle
    is tried on them before anything is spent, ``nearest`` starts from them, and options are
    compared with them. ``memory`` is a `Memory` of earlier searches with this model: what it holds
    of a person need not be asked again, and what comes is added; one search after the other.
    ``run`` is a file to record in; if it is there, the run goes on where it stopped; ``about`` is
    kept in it. ``record`` is a file for the LLM's replies, for `replay:`. ``in_flight`` bounds the
    LLM requests under way and, where ``seconds`` are limited, the people: time counts from when a
    person's search begins. ``learning`` is called while a method learns from ``data`` before the
    first search, with what it does and the share that is done; ``progress`` is called after every
    answer; ``stop`` ends all searches from another thread, each with what it has found. ``None``
    for any but the limits, ``k`` and ``seed`` is as if not given.
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
    data: Known | None
    memory: Memory | None
    run: str | PathLike[str] | None
    record: str | PathLike[str] | None
    in_flight: int | None
    learning: Tell | None
    progress: OnProgress | None
    stop: Stop | None
    about: Mapping[str, Any] | None


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
    "stop": (Stop, "a Stop, which ends the run when somebody calls it"),
    "about": (Mapping, "a mapping"),
}
# There ``None`` says something: no limit, or (for k and seed) a mistake.
_NONE_COUNTS = ("calls", "oracle_rows", "tokens", "money", "seconds", "k", "seed")


def checked(options: Options) -> Options:
    """Return the options that were given, or say which of them is wrong."""
    for name in options:
        if name not in Options.__annotations__:
            raise InputError(unknown("option", name, Options.__annotations__))
    given = {n: v for n, v in options.items() if v is not None or n in _NONE_COUNTS}
    for name, (kind, what) in _KINDS.items():
        if name in given and not isinstance(given[name], kind):
            raise InputError(f"{name} is {what}, not {shown(given[name])}")
    check_whole("in_flight", given.get("in_flight", 1), 1)
    check_whole("polish", given.get("polish", 0), 0)
    if given.get("settings") and not isinstance(given.get("method", ""), str):
        raise InputError("settings change those of a method given by name; this one has its own")
    if "data" in given:
        _check_known(given["data"])
    if isinstance(price := given.get("price"), str):
        Price.parse(price)  # refused now, not when the LLM is asked
    return cast(Options, given)


def _check_known(data: Any) -> None:
    if not all(isinstance(getattr(data, name, None), Sized) for name in ("rows", "labels")):
        raise InputError(
            "data is a Dataset, or anything with rows and labels (which of them were approved), "
            f"not {_a(data)}"
        )
    check_lengths(data)


def _a(thing: object) -> str:
    """Name what a table may be: to write all of it out would take long, and fill the screen."""
    return f"a {type(thing).__name__}"


def check_problem(problem: object) -> None:
    """Raise `InputError` unless this is a problem."""
    if not isinstance(problem, Problem):
        raise InputError(
            f"the first argument is a Problem (Problem.from_card makes one), not {_a(problem)}"
        )


def check_people(problem: Problem, rows: Any) -> Iterable[Any]:
    """Return many rows, those of a data frame one by one; or say that it is one row, or none."""
    if getattr(rows, "ndim", None) == 2 and hasattr(rows, "to_dict"):
        rows = rows.to_dict("records")
    one = isinstance(rows, (Mapping, str, bytes)) or hasattr(rows, "to_dict")
    if one or (isinstance(rows, tuple) and _is_row(problem, rows)):
        raise InputError(f"find_many takes many rows, not one ({_a(rows)}): use find for that")
    if not isinstance(rows, Iterable):
        raise InputError(f"find_many takes rows, one after the other, not {_a(rows)}")
    return rows


def _is_row(problem: Problem, values: tuple[Any, ...]) -> bool:
    plain = all(value is None or isinstance(value, (str, int, float)) for value in values)
    return plain and len(values) == len(problem.schema)


def _rows(method: Method, k: int, calls: int | None) -> int | None:
    """Return how many oracle rows go with so many calls.

    Where rows do not hang on calls, fewer calls than usual mean no fewer rows; and who asks no LLM
    is not left without rows because somebody forbade calls.
    """
    if calls is None:
        return None
    if not method.needs_llm:
        calls = calls or CALLS
    return k * (calls if method.needs_calls else max(calls, CALLS))


def make_plan(options: Options) -> Plan:
    """Return the plan that some options describe."""
    given = checked(options)
    k, calls = given.get("k", 5), given.get("calls", CALLS)
    check_whole("k", k, 1, MOST_K)
    Budget(llm_calls=calls)  # refused by its own name, also where no LLM is asked
    name, method = as_method(given.get("method", DEFAULT_METHOD), given.get("settings"))
    money = given.get("money")
    if money is not None and method.needs_llm and "price" not in given:
        raise InputError("a limit in money needs the prices: price='IN/OUT', per million tokens")
    return Plan(
        name=name,
        method=method,
        budget=Budget(
            llm_calls=calls if method.needs_llm else 0,
            oracle_rows=given.get("oracle_rows", _rows(method, k, calls)),
            tokens=given.get("tokens"),
            money=money,
            seconds=given.get("seconds"),
        ),
        k=k,
        seed=given.get("seed", 0),
        style=given.get("style") or Style(),
        polish=given.get("polish") or 0,
    )
