"""Arms, which are the lines of a comparison, and the plan that contains them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from waysout.datasets.queries import QuerySet, queries
from waysout.domain.problem import Binning
from waysout.errors import InputError, unknown
from waysout.methods import make_method
from waysout.prompts.propose import Style
from waysout.run.plan import as_before, check_whole
from waysout.search.base import Method

ID_LENGTH = 12
FIND = "find"
"""The kind of arm whose searches are measured by their own metrics alone."""


@dataclass(frozen=True)
class Arm:
    """A method on a data set, with its settings and budget: a line of a table.

    ``queries`` is the number of queries: the first of ``query_sets``, which are lists stored with
    Waysout, or of ``rows_of``, the row numbers that a plan lists itself. ``polish`` is how many of
    the rows are set aside to finish what was found. ``binning`` is that of the key
    (`Problem.from_card`). ``alone`` times its searches: one runs at a time.
    ``paper`` is what the paper calls it. ``kind`` is what is measured besides the search's own
    metrics (`waysout.bench.kinds`), and ``kind_settings`` how.
    """

    name: str
    data: str
    method: str
    settings: Mapping[str, Any]
    k: int
    calls: int
    rows: int
    seed: int
    rules: str
    style: Style
    queries: int
    paper: str = ""
    alone: bool = False
    kind: str = FIND
    kind_settings: Mapping[str, float] = field(default_factory=dict)
    rows_of: tuple[int, ...] = ()
    query_sets: tuple[QuerySet, ...] = ("stored",)
    polish: int = 0
    binning: Binning = "fixed"

    @cached_property
    def made(self) -> Method:
        """The method with its settings."""
        return make_method(self.method, self.settings)

    @property
    def asks_llm(self) -> bool:
        """Whether its searches use an LLM."""
        return self.made.needs_llm and (self.made.needs_calls or self.calls != 0)

    @cached_property
    def query_rows(self) -> tuple[int, ...]:
        """The queries, as row numbers of the data set."""
        return self.all_query_rows[: self.queries]

    @property
    def all_query_rows(self) -> tuple[int, ...]:
        """All candidate queries; the arm uses the first ``queries`` of them."""
        return self.rows_of or listed_queries(self.data, self.query_sets)

    @cached_property
    def spec(self) -> dict[str, Any]:
        """Everything that determines its searches and measures, including method defaults."""
        spec: dict[str, Any] = {
            "data": self.data,
            "rules": self.rules,
            "method": self.method,
            "settings": as_before(asdict(self.made)),
            "k": self.k,
            "calls": self.calls if self.made.needs_llm else 0,
            "rows": self.rows,
            "seed": self.seed,
        }
        if self.binning != "fixed":
            spec["binning"] = self.binning
        if self.polish:
            spec["polish"] = self.polish
        if self.asks_llm:
            spec["style"] = self.style.as_dict()
        if self.alone:
            spec["alone"] = True
        if self.kind != FIND:
            spec["kind"] = {"name": self.kind, **self.kind_settings}
            if self.kind_settings.get("pilots"):  # pilots are chosen among all candidate queries
                spec["kind"]["people"] = digest(self.all_query_rows)[:ID_LENGTH]
        return spec

    @cached_property
    def id(self) -> str:
        """A digest of the spec; arms with the same spec share it, whatever their names."""
        return digest(self.spec)[:ID_LENGTH]


def listed_queries(data: str, sets: Sequence[QuerySet]) -> tuple[int, ...]:
    """Return the queries of some lists of a data set, one list after the other."""
    return tuple(row for which in sets for row in queries(data, which))


def digest(content: object) -> str:
    """Return the sha256 of plain data, independent of the order of keys.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 2.0})
    True
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class ExperimentPlan:
    """Arms on data sets, ordered by data set, then by arm; and the LLMs to use.

    ``reading`` is how the paper is read, in a plan of the paper (`waysout.bench.readings`).
    """

    name: str
    title: str
    llms: tuple[str, ...]
    arms: tuple[Arm, ...]
    datasets: tuple[str, ...]
    queries: int
    in_flight: int | None = None
    one_by_one: bool = False
    reading: str = ""

    @property
    def hash(self) -> str:
        """The sha256 of the plan's content."""
        return digest(
            {
                "title": self.title,
                "llms": self.llms,
                "arms": [
                    [
                        arm.name,
                        arm.paper,
                        arm.queries,
                        arm.spec,
                        *([arm.rows_of] * bool(arm.rows_of)),
                    ]
                    for arm in self.arms
                ],
                "queries": self.queries,
                "in_flight": self.in_flight,
                "one_by_one": self.one_by_one,
            }
        )

    def arm(self, data: str, name: str) -> Arm:
        """Return an arm by its data set and its name."""
        if data not in self.datasets:
            raise InputError(f"{self.name}: {unknown('data set', data, self.datasets)}")
        for arm in self.arms:
            if (arm.data, arm.name) == (data, name):
                return arm
        names = [arm.name for arm in self.arms if arm.data == data]
        raise InputError(f"{self.name}, {data}: {unknown('arm', name, names)}")

    def cut(
        self, *, queries: int | None = None, only: Sequence[str] = (), llms: Sequence[str] = ()
    ) -> ExperimentPlan:
        """Return a copy with fewer queries or arms, or with other LLMs.

        ``only`` are names of data sets or arms, or ``data/arm``; ``*`` matches anything.
        """
        if queries is not None:
            check_whole("queries", queries, 1)
        _check_known([self], only)
        most = self.queries if queries is None else queries
        arms = [arm for arm in self.arms if not only or _matches(arm, only)]
        return replace(
            self,
            llms=tuple(llms) or self.llms,
            arms=tuple(replace(arm, queries=min(arm.queries, most)) for arm in arms),
            datasets=tuple(dict.fromkeys(arm.data for arm in arms)),
            queries=min(self.queries, most),
        )


def cut_all(
    plans: Sequence[ExperimentPlan],
    *,
    queries: int | None = None,
    only: Sequence[str] = (),
    llms: Sequence[str] = (),
) -> list[ExperimentPlan]:
    """Cut plans; a pattern must match in one of them, and plans without a match are dropped."""
    _check_known(plans, only)
    kept = [(plan, [p for p in only if any(_matches(arm, [p]) for arm in plan.arms)])
            for plan in plans]  # fmt: skip
    return [plan.cut(queries=queries, only=patterns, llms=llms)
            for plan, patterns in kept if patterns or not only]  # fmt: skip


def _check_known(plans: Sequence[ExperimentPlan], patterns: Sequence[str]) -> None:
    for pattern in patterns:
        if not any(_matches(arm, [pattern]) for plan in plans for arm in plan.arms):
            names = dict.fromkeys(
                name for plan in plans for name in (*plan.datasets, *(a.name for a in plan.arms))
            )
            where = ", ".join(plan.name for plan in plans)
            raise InputError(f"{where}: {unknown('data set or arm', pattern, names)}")


def _matches(arm: Arm, patterns: Iterable[str]) -> bool:
    names = (arm.data, arm.name, f"{arm.data}/{arm.name}")
    return any(name == p or fnmatchcase(name, p) for p in patterns for name in names)
