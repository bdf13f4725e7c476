"""Polish: rows set aside to make the options of any search leaner, once it is over.

An option is taken apart lever by lever: levers it does not need are put back. One that needs all of
its levers is walked back: each of its numbers goes half of the way to the query's, and half of the
rest, as long as the oracle approves. A leaner row is an option beside the longer one.

Drops come before walks: a change less is worth more than a smaller one, and a row spent on the size
of a change that is not needed is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any, cast

from waysout.domain.distance import simplicity
from waysout.domain.key import rounded
from waysout.domain.oracle import Answers
from waysout.domain.rules import Lever
from waysout.domain.schema import Row
from waysout.llm.base import Reply
from waysout.search.base import Case, Search
from waysout.search.work import Evaluate, Propose, Work

BATCH = 5
# Of the way between an option's number and the query's: finer than this is not worth a row.
_FINEST = 1 / 16
_FEW_DIGITS = (1, 2, 3)


@dataclass(frozen=True)
class _Way:
    """An option or a possible one: its row, and the reasons given for its changes."""

    row: Row
    key: str
    reasons: tuple[str, ...] = ()
    levers: frozenset[str] = frozenset()


# Yields ways for the oracle and is sent which of them are options now.
_Steps = Generator[Sequence[_Way], Any, Any]


def without_set_aside(case: Case, rows: int) -> Case:
    """Return the case of a search that leaves ``rows`` of its rows to polishing."""
    limit = case.budget.oracle_rows
    if limit is None:
        return case
    return replace(case, budget=replace(case.budget, oracle_rows=max(0, limit - rows)))


class Polishing(Search):
    """A search, and the polishing of its options after it.

    The work items of the search pass through under their own numbers, and those of polishing
    follow. Polishing may use every row that the search leaves of the budget of ``case``; where rows
    have no limit, it has ``rows`` of its own.
    """

    def __init__(self, case: Case, search: Search, rows: int, batch: int = BATCH) -> None:
        super().__init__(case)
        self.archive = search.archive
        self.named = search.named
        self._search = search
        self._most = rows
        self._batch = batch
        self._levers = case.problem.rules.levers(case.query)
        self._read = 0
        # The ways of each set of levers, best first; and the sets, the least polished first.
        self._open: dict[frozenset[str], list[tuple[float, int, _Way]]] = {}
        self._turns: list[tuple[int, float, int, frozenset[str]]] = []
        self._done: set[Row] = set()
        self._polished: Counter[frozenset[str]] = Counter()
        self._used = 0
        self._leaner = 0
        self._steps = self._polish_all()
        self._approved: list[bool] | None = None  # what the steps are sent next

    @property
    def thinks(self) -> bool:
        """Whether the search does; polishing itself is quick."""
        return self._search.thinks

    def origin(self, work: Work) -> Row | None:
        """Return the search's answer; polished rows come from no row of a tree."""
        return self._search.origin(work)

    def close(self) -> None:
        """Close the search."""
        self._search.close()

    # Asking ------------------------------------------------------------------------------------

    def _next(self) -> Work | None:
        if not self._search.done:
            work = self._search.ask()
            if work is not None:
                self._calls += isinstance(work, Propose)
                self._rows += len(work.rows) if isinstance(work, Evaluate) else 0
                self.asked += 1
                self._pending[work.id] = (work, work)
                return work
        if self.waiting or not self._search.done:
            return None
        limited = self.case.budget.oracle_rows is not None
        left = int(self.rows_left) if limited else self._most - self._used
        try:
            ways = self._steps.send(self._approved)[:left] if left >= 1 else []
        except StopIteration:
            ways = []
        if not ways:
            ending = self._search.ending
            assert ending is not None
            leaner = f"{self._leaner} leaner option{'s' * (self._leaner != 1)}"
            used = f"{self._used} row{'s' * (self._used != 1)}{'' if limited else ' on top'}"
            self._end(ending.kind, f"{ending.reason}; polish: {leaner} for {used}")
            return None
        self.archive.generated += len(ways)
        self._used += len(ways)
        return self._evaluate([way.row for way in ways], ways)

    def refuse(self, work: Work) -> bool:
        """Let the search go on without a call that cannot be paid, if it can."""
        if not self._search.refuse(work):
            return False
        self._calls -= 1
        del self._pending[work.id]
        return True

    # Taking answers in -------------------------------------------------------------------------

    def _on_reply(self, work: Propose, reply: Reply) -> None:
        self._search.tell(work, reply)

    def _on_answers(self, asked: Any, rows: Sequence[Row], answers: Answers) -> None:
        if isinstance(asked, Evaluate):
            self._search.tell(asked, answers)
            return
        ways: list[_Way] = asked
        self._approved = [
            self.archive.take(way.row, way.key, chance, valid, way.reasons)
            for way, (chance, valid) in zip(ways, self.archive.judge(rows, answers), strict=True)
        ]
        self._leaner += sum(self._approved)

    # Polishing ---------------------------------------------------------------------------------

    def _polish_all(self) -> _Steps:
        while (way := self._choose()) is not None:
            shorter = yield from self._drop(way)
            if not shorter:
                yield from self._walk_back(way)

    def _choose(self) -> _Way | None:
        """Return the option to polish next: other levers first, then the best, then the first."""
        problem, query = self.case.problem, self.case.query
        new = self.archive.options(self._read)
        pairs = zip(self.archive.rows[self._read :], new, strict=True)
        for order, (row, option) in enumerate(pairs, self._read):
            quality = option.proximity * simplicity(option.sparsity)
            way = _Way(row, option.key, option.reasons, problem.rules.moved(query, row))
            heappush(self._open.setdefault(way.levers, []), (-quality, order, way))
            self._queue(way.levers)
        self._read += len(new)
        while self._turns:
            times, _, order, levers = heappop(self._turns)
            ways = self._open[levers]
            if times != self._polished[levers] or not ways or ways[0][1] != order:
                continue  # a later entry of this set is up to date
            way = heappop(ways)[2]
            fresh = way.row not in self._done
            if fresh:
                self._polished[levers] += 1
                self._done.add(way.row)
            self._queue(levers)
            if fresh:
                return way
        return None

    def _queue(self, levers: frozenset[str]) -> None:
        if ways := self._open[levers]:
            least, order, _ = ways[0]
            heappush(self._turns, (self._polished[levers], least, order, levers))

    def _drop(self, way: _Way) -> _Steps:
        """Put each lever back; returns whether the option is longer than necessary."""
        put_back, query = self.case.problem.rules.put_back, self.case.query
        rows = [put_back(query, way.row, name) for name in sorted(way.levers)]
        shorter = [self._way(way, row) for row in rows if row != query]
        if any(found.key in self.archive for found in shorter):
            return True
        new = list(self._new(shorter))
        for start in range(0, len(new), self._batch):
            if any((yield new[start : start + self._batch])):
                return True  # the rest is for the leaner one
        return False

    def _walk_back(self, way: _Way) -> _Steps:
        """Walk each number back from its approved value, up to where it was refused."""
        levers = [self._levers[name] for name in sorted(way.levers)]
        bounds = {  # the query's own numbers, to begin with
            lever.feature.name: float(lever.now)
            for lever in levers
            if lever.feature.is_numeric and lever.now is not None
        }
        least = {name: _FINEST * abs(self._at(way, name) - to) for name, to in bounds.items()}
        while True:
            steps: dict[str, _Way] = {}
            for name in bounds:
                step, bounds[name] = self._half_way(way, name, bounds[name], least[name])
                if step is not None and len(steps) < self._batch:
                    steps[name] = step
            if not steps:
                return
            found = dict(zip(steps, (yield list(steps.values())), strict=True))
            bounds |= {name: self._at(steps[name], name) for name in steps if not found[name]}
            approved = [steps[name] for name in steps if found[name]]
            # The nearest, for all of them have the same levers.
            distance, query = self.case.problem.distance, self.case.query
            way = min(approved, key=lambda step: distance(query, step.row), default=way)
            self._done.add(way.row)

    def _half_way(
        self, way: _Way, name: str, bound: float, least: float
    ) -> tuple[_Way | None, float]:
        """Return a way with a number half-way to a bound, and the bound as far as it is known.

        A row asked before is not asked again; its earlier answer halves the way.
        """
        now, lever = self._at(way, name), self._levers[name]
        while abs(now - bound) >= least and (value := _between(lever, now, bound)) is not None:
            row = self.case.problem.rules.apply(way.row, {name: value})
            step = self._way(way, row)
            if any(self._new([step])):
                return step, bound
            if step.key in self.archive:
                now = value
            else:
                bound = value
        return None, bound

    def _new(self, ways: Iterable[_Way]) -> Iterator[_Way]:
        """Yield the ways that may be asked: each key once, and never that of the query."""
        archive, broken = self.archive, self.case.problem.violations
        taken = {archive.query_key}
        for way in ways:
            fresh = way.key not in taken and way.key not in archive.asked
            if fresh and not broken(self.case.query, way.row):
                taken.add(way.key)
                yield way

    def _way(self, before: _Way, row: Row) -> _Way:
        """Return a row made from a way, with the reasons that still hold for it.

        The reason ("feature: text") for a number that went less far holds, unless it names a number
        itself, which is likely the old one; that for a feature put back does not.
        """
        schema, query = self.case.problem.schema, self.case.query
        touched = schema.changed(before.row, row)
        left = set(touched).intersection(schema.changed(query, row))

        def holds(reason: str) -> bool:
            name = next((name for name in touched if reason.startswith(f"{name}: ")), None)
            if name is None:
                return True
            return name in left and not any(c.isdigit() for c in reason[len(name) :])

        return _Way(row, self.case.problem.key(row), tuple(filter(holds, before.reasons)))

    def _at(self, way: _Way, name: str) -> float:
        return cast(float, way.row[self.case.problem.schema.index(name)])


def _between(lever: Lever, now: float, bound: float) -> float | None:
    """Return an admitted number near the middle of two, one of few digits if there is such."""
    middle, room = (now + bound) / 2, abs(now - bound)
    for digits in _FEW_DIGITS:
        short = cast(float, lever.feature.coerce(rounded(middle, digits)))
        if abs(short - middle) <= room / 4 and lever.admits(short):
            return short
    near = cast(float, lever.towards(lever.feature.coerce(middle), must_move=True))
    return near if min(now, bound) < near < max(now, bound) else None
