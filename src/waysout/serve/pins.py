"""What a person keeps at hand: ways of the search, ways carried farther, plans of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from waysout.domain.problem import Problem
from waysout.domain.result import Option, Safer, Way
from waysout.domain.schema import Row
from waysout.domain.ways import Checks
from waysout.errors import InputError
from waysout.serve.problems import ServedProblem


@dataclass(frozen=True)
class Pin:
    """An option that a person keeps at hand; ``own`` if it is no finding of the search.

    A `Safer` is a way of the search, only farther.
    """

    option: Option
    own: bool = False


class PinMaker:
    """Makes pins of rows, given what a search has found. ``problem`` has the locks of today."""

    def __init__(
        self,
        served: ServedProblem,
        problem: Problem,
        query: Row,
        ways: Sequence[Way],
        options: Iterable[Option],
    ) -> None:
        self._served, self._problem, self._query = served, problem, query
        self._checks = Checks(problem, query)
        self._ways = [problem.row(way.row) for way in ways]
        near = [o for way in ways for o in (way, *way.variants, *way.safer)]
        self._found: dict[Row, Option] = {}
        for option in (*near, *options):  # a way comes before the option that it is
            self._found.setdefault(problem.row(option.row), option)

    def pin(self, row: Row, where: str) -> Pin:
        """Return a row as a pin; one that was not asked is, and refused if it is no way out."""
        option = self._found.get(row)
        if option is not None and type(option) is not Option:
            return Pin(option)
        made = option or self._asked(row, where)
        if self._is_carried_on(row):
            return Pin(Safer(**vars(made), at_least=made.probability))
        return Pin(made, own=option is None)

    def _asked(self, row: Row, where: str) -> Option:
        if row == self._query:
            raise InputError(f"{where}: it changes nothing, so there is nothing to keep")
        if broken := self._problem.violations(self._query, row):
            raise InputError(f"{where}: it breaks a rule: {broken[0].reason}")
        verdict = self._served.verdict(self._query, row)
        if not verdict["approved"]:
            raise InputError(f"{where}: the model says no to it: only what is approved can be kept")
        return self._problem.option(self._query, row, verdict["probability"])

    def _is_carried_on(self, row: Row) -> bool:
        """Whether a row is one of the ways, only farther."""
        moves, covers = self._checks.moves, self._checks.covers
        alike = (way for way in self._ways if moves(way).keys() == moves(row).keys())
        return any(covers(way, row) for way in alike)
