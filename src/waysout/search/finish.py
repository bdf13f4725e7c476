"""Finishing: rows that turn what a search has found into ways.

For each set of levers, the cheapest option is taken apart and walked back: levers it does not need
are dropped, each of its numbers goes back as far as the oracle allows, and it is pushed farther to
see whether it holds. What the last rows ask is exactly what `waysout.domain.ways` wants to know.
The sets that a person would be shown come first.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from waysout.domain.oracle import Answers
from waysout.domain.schema import Row
from waysout.domain.ways import FARTHER, LESS, Checks, nearest_to, overlap, place, preference
from waysout.llm.base import Reply
from waysout.search.archive import Archive
from waysout.search.base import Case, Search
from waysout.search.tips import Tips
from waysout.search.work import Evaluate, Propose, Work

BATCH = 5
SHOWN = 5
"""Ways that are finished before others: those that a person is shown first."""
# How far a refused place of a number is on the way to the approved one, from where on the exact row
# is asked that makes an option tight; before that, the middle between the two.
_NEAR = 0.8
NEAREST = 0.98
"""The same for an option that goes to the very border."""
# With so many rows, the best one does. With fewer, others are more use, and what lies a little
# beyond it lasts longer.
_PLENTY = 300
WIDE = 3
"""Levers beyond which an option is taken apart by halves."""
_FAR = 1.3  # an option so much farther with the same levers is a sign that a nearer one holds
_DWINDLED = 8.0  # times as far as an option of the same levers goes with one of them
_HOPELESS, _SURE = 0.05, 0.8  # chances below and above which a guess is taken for the answer
_PLACES = 8
_SAFE_ENOUGH = 1.1  # times as far as what is not safe enough: near enough
_FARTHEST = 64  # times as far as a way, which is beyond sense where the rules set no limit

Finish = tuple[Row, tuple[str, ...]]
"""A row to ask, and the reasons for its changes."""
Guess = Callable[[Sequence[Row]], Sequence[float]]
"""The chance of a yes for rows that were not asked."""


class Finisher:
    """Says which rows to ask next, given all that were answered, in an archive.

    A search that can ``guess`` saves rows: what is as good as known is not asked until the end.
    Once the ways that a person is shown are finished come ``tips``. Numbers are walked back as
    ``near`` to what was refused.
    """

    def __init__(
        self,
        archive: Archive,
        guess: Guess | None = None,
        tips: Tips | None = None,
        near: float = _NEAR,
    ) -> None:
        self.archive = archive
        self.problem = archive.problem
        self.query = archive.query
        self.checks = Checks(archive.problem, archive.query)
        self.cost: dict[Row, float] = {}
        """What each option costs."""
        self._guess = guess
        self._read = 0
        self._options: dict[frozenset[str], list[Row]] = {}  # by levers, the cheapest first
        self._refused: dict[frozenset[str], list[Row]] = {}
        self._order: list[frozenset[str]] = []
        self._tips = tips
        self._near = near

    def rows(self, most: int) -> list[Finish]:
        """Return at most ``most`` rows to ask next."""
        found: dict[Row, Row] = {}
        for option, stages in self._turns():
            # Tips only wait for what is shown first: they must not fill up its batches.
            if option not in found.values() and not (found and option == self.query):
                for row in self._first_unknown(stages):
                    found.setdefault(row, option)
            if len(found) >= most:
                break
        pairs = list(found.items())[:most]
        if self._tips is not None:
            self._tips.left -= sum(option == self.query for _, option in pairs)
        return [(row, self.reasons(option, row)) for row, option in pairs]

    def _turns(self) -> Iterator[tuple[Row, Iterable[Sequence[Row]]]]:
        """Yield options, and what is to be asked about them, in order; the query for tips."""
        order = self.order()
        for start in range(0, len(order), SHOWN):
            best = list(filter(None, map(self.best, order[start : start + SHOWN])))
            # All are improved before any is proved: what changes must be proved again.
            yield from ((option, self._improving(option)) for option in best)
            yield from ((option, self._proving(option)) for option in best)
            if start == 0:
                yield from ((option, self._carried_on(option)) for option in best)
                yield self.query, self._tipping(best)
        if len(self.archive.answered) > _PLENTY:
            for option in filter(None, map(self.best, order[:1])):
                yield option, [self._walked_back(option, NEAREST)]

    def reasons(self, option: Row, row: Row) -> tuple[str, ...]:
        """Return the reasons given for an option that still hold for a row made from it.

        The reason ("feature: text") for a number that went less far holds, unless it names a number
        itself, which is likely the old one; that for a feature put back does not.
        """
        if option not in self.archive.answered:
            return ()  # a tip starts from the query
        touched = self.problem.schema.changed(option, row)
        left = set(touched).intersection(self.problem.schema.changed(self.query, row))

        def holds(reason: str) -> bool:
            name = next((name for name in touched if reason.startswith(f"{name}: ")), None)
            if name is None:
                return True
            return name in left and not any(c.isdigit() for c in reason[len(name) :])

        return tuple(filter(holds, self.archive.answered[option].reasons))

    def valid(self, row: Row) -> bool | None:
        """Whether a row is an option; ``None`` if it was not asked."""
        found = self.archive.answered.get(row)
        return None if found is None else found.valid

    def _take_in(self) -> None:
        """Sort what is new by the levers that it moves."""
        answered = list(islice(self.archive.answered.items(), self._read, None))
        self._read += len(answered)
        new = [row for row, asked in answered if asked.valid]
        costs = self.problem.costs(self.query, new).tolist() if new else []
        self.cost.update(zip(new, costs, strict=True))
        for row, asked in answered:
            levers = self.problem.rules.moved(self.query, row)
            if asked.valid:
                insort(self._options.setdefault(levers, []), row, key=self._preference)
            else:
                self._refused.setdefault(levers, []).append(row)

    def _preference(self, row: Row) -> tuple[float, float, bool]:
        """Return the order of options that `find_ways` has: what it shows is what is finished."""
        named = bool(self.archive.answered[row].reasons)
        return preference(self.checks, row, self.cost[row], named)

    def best(self, levers: frozenset[str]) -> Row | None:
        """Return the cheapest option of some levers that may be a way, as far as is known."""
        holds, needed = self.checks.holds, self.checks.irreducible
        for row in self._options.get(levers, ()):
            if needed(row, self.valid) is not False and holds(row, self.valid) is not False:
                return row
        return None

    def pockets(self) -> Iterator[frozenset[str]]:
        """Yield the sets of levers whose cheapest option is needed in full, but does not hold."""
        holds, needed = self.checks.holds, self.checks.irreducible
        for levers, (cheapest, *_) in self._options.items():
            pocket = holds(cheapest, self.valid) is False
            if pocket and needed(cheapest, self.valid) is not False:
                yield levers

    def order(self) -> Sequence[frozenset[str]]:
        """Return the sets of levers that may have a way: cheap ones, and with other levers."""
        if self._read < len(self.archive.answered):
            self._take_in()
            self._order = list(self._ordered())
        return self._order

    def _ordered(self) -> Iterator[frozenset[str]]:
        found = {levers: row for levers in self._options if (row := self.best(levers)) is not None}
        costs = {levers: self.cost[row] for levers, row in found.items()}
        for levers in sorted(costs, key=len):
            if any(o < levers and costs[levers] > LESS * costs[o] for o in costs):
                del costs[levers]
        taken: list[frozenset[str]] = []
        while costs:
            levers = min(costs, key=lambda s: costs[s] * (1.0 + overlap(s, taken)))
            del costs[levers]
            taken.append(levers)
            yield levers

    # What to ask about one option --------------------------------------------------------------

    def _first_unknown(self, stages: Iterable[Sequence[Row]]) -> list[Row]:
        for rows in stages:
            unknown = [row for row in rows if row not in self.archive.answered]
            if unknown:
                return unknown
        return []

    def apart(self, row: Row) -> list[Row]:
        """Return the rows to ask in order to do with fewer levers; none where all was asked."""
        return self._first_unknown(self._taken_apart(row))

    def _improving(self, row: Row) -> Iterator[Sequence[Row]]:
        yield from self._taken_apart(row)
        if not self.goes_on(row):
            yield self.checks.farther(row)  # a pocket is not worth walking back in
        yield self._walked_back(row, self._near)

    def _proving(self, row: Row) -> Iterator[Sequence[Row]]:
        yield [*self.checks.nearer(row), *self.checks.farther(row)]
        yield self.checks.shorter(row)

    def _carried_on(self, row: Row) -> Iterator[Sequence[Row]]:
        """Yield rows with all numbers farther, until the least that is as safe as was asked for."""
        for level in self.problem.goal.safer:
            if self.archive.answered[row].probability >= level:
                continue
            low, high, share = 0.0, math.inf, FARTHER[-1]
            while math.isinf(high) or (1 + high) / (1 + low) > _SAFE_ENOUGH:
                ends = [self.checks.pushed(row, end) for end in (low, high) if math.isfinite(end)]
                pushed = self.checks.pushed(row, share)
                if pushed in ends or share > _FARTHEST:
                    break  # no farther, or nothing between
                yield [pushed]
                answer = self.archive.answered[pushed]
                if answer.valid and answer.probability >= level:
                    high = share
                else:
                    low = share
                share = 2 * share + 0.5 if math.isinf(high) else (low + high) / 2
            if math.isfinite(high):
                yield from self._not_needed(row, self.checks.pushed(row, high), level)

    def _not_needed(self, row: Row, safer: Row, level: float) -> Iterator[Sequence[Row]]:
        """Yield a safer row with each number in turn no farther than in its way, and keep that."""
        at = self.problem.schema.index
        names = [name for name in self.checks.numbers(row) if safer[at(name)] != row[at(name)]]
        for name in names if len(names) > 1 else ():
            back = self.problem.rules.apply(safer, {name: row[at(name)]})
            if back == row or not self._may_be_asked(back):
                continue
            yield [back]
            answer = self.archive.answered[back]
            if answer.valid and answer.probability >= level:
                safer = back

    def _tipping(self, best: Sequence[Row]) -> Iterator[Sequence[Row]]:
        if self._tips is not None:
            yield from self._tips.stages(name for row in best for name in self.checks.moves(row))

    def _taken_apart(self, row: Row) -> Iterator[Sequence[Row]]:
        """Yield the row without a half of its levers, without a quarter, and so on to each one."""
        rules, query = self.problem.rules, self.query
        alone = {name: rules.only(query, row, {name}) for name in rules.moved(query, row)}
        costs = dict(zip(alone, self.problem.costs(query, list(alone.values())), strict=True))
        levers = sorted(alone, key=lambda name: (-costs[name], name))
        parts = 2 if len(levers) > WIDE else len(levers)
        while len(levers) > 1:
            size = math.ceil(len(levers) / parts)
            cut = [levers[i : i + size] for i in range(0, len(levers), size)]
            rows = [rules.only(query, row, set(levers).difference(part)) for part in cut]
            rows = [r for r in rows if self._may_be_asked(r) and not self._falls_short(r)]
            # Guesses add up what levers do, and know nothing of many that work only together.
            yield rows if len(levers) > WIDE else self._hopeful(row, rows)
            if size == 1:
                return
            parts = min(2 * parts, len(levers))

    def _may_be_asked(self, row: Row) -> bool:
        return row != self.query and not self.problem.violations(self.query, row)

    def _hopeful(self, row: Row, shorter: Sequence[Row]) -> Sequence[Row]:
        """Return those of the shorter rows that may be a yes.

        What is left of a lever may be next to nothing: then a guess that it is needed is not taken
        for the answer, or it would be walked back for ever.
        """
        if self._guess is None or not shorter:
            return shorter
        moves = self.problem.rules.moved
        dwindled, levers = self._dwindled(row), moves(self.query, row)
        return [
            other
            for other, chance in zip(shorter, self._guess(shorter), strict=True)
            if chance > _HOPELESS or levers - moves(self.query, other) <= dwindled
        ]

    def _dwindled(self, row: Row) -> set[str]:
        """Return the levers of an option that another one with the same levers moves far more."""
        numbers, found = self.checks.numbers(row), set()
        for other in self._options.get(self.problem.rules.moved(self.query, row), ()):
            for name, (now, far) in self.checks.numbers(other).items():
                if name in numbers and abs(far - now) > _DWINDLED * abs(numbers[name][1] - now):
                    found.add(name)
        return found

    def _falls_short(self, row: Row) -> bool:
        """Whether one that goes at least as far with the same levers was refused.

        One that lies beyond an option says nothing: that option is a pocket.
        """
        levers, covers = self.problem.rules.moved(self.query, row), self.checks.covers
        options = self._options.get(levers, ())
        farther = (other for other in self._refused.get(levers, ()) if covers(row, other))
        return any(not any(covers(option, other) for option in options) for other in farther)

    def goes_on(self, row: Row) -> bool:
        """Whether an option much farther on with the same levers is known, or as good as known."""
        numbers = self.checks.numbers(row)
        if not numbers:
            return True
        for other in self._options.get(self.problem.rules.moved(self.query, row), ()):
            there = self.checks.numbers(other)
            if all(
                name in there and (there[name][1] - now) / (at - now) >= _FAR
                for name, (now, at) in numbers.items()
            ):
                return True
        farther = self.checks.farther(row)[-1:]
        return self._guess is not None and all(c > _SURE for c in self._guess(farther))

    def _walked_back(self, row: Row, near: float) -> list[Row]:
        """Return, for each number, the row with it nearer, unless that is as good as known."""
        found = []
        for name, (now, there) in self.checks.numbers(row).items():
            bound = self._bound(row, name, now, there)
            if abs(bound - now) >= near * abs(there - now):
                continue
            rows = self._between(row, name, bound, there)
            if rows and self._guess is not None:
                if bound != now:  # the farther half: a refusal must leave half as far to go
                    rows = rows[len(rows) // 2 :]
                at = self.problem.schema.index(name)
                saved = [abs(there - (place(self.checks.levers[name], r[at]) or 0.0)) for r in rows]
                chances = self._guess(rows)
                best = max(range(len(rows)), key=lambda i: chances[i] * saved[i])
                rows = [rows[best]] if chances[best] > _HOPELESS else []
            found += rows[len(rows) // 2 :][:1]
        return found

    def _between(self, row: Row, name: str, bound: float, there: float) -> list[Row]:
        """Return rows with a number at several places between two, in order."""
        lever = self.checks.levers[name]
        aims = (bound + (there - bound) * i / _PLACES for i in range(1, _PLACES))
        room = abs(there - bound) / _PLACES
        values = dict.fromkeys(nearest_to(lever, aim, room) for aim in aims)
        inside = {
            value: at
            for value in values
            if (at := place(lever, value)) is not None
            and min(bound, there) < at < max(bound, there)
        }
        rows = [self.problem.rules.apply(row, {name: value}) for value in inside]
        return [r for r in rows if self._may_be_asked(r)]

    def _bound(self, row: Row, name: str, now: float, there: float) -> float:
        """Return the farthest place of a number, short of where it is, that was refused.

        Refused rows that go farther with the other levers count too: with less, it would not be
        a yes either. That need not be so, and what a person is told is asked exactly in the end.
        """
        at, bound = self.problem.schema.index(name), now
        for other in self._refused.get(self.problem.rules.moved(self.query, row), ()):
            found = place(self.checks.levers[name], other[at])
            if found is not None and min(bound, there) < found < max(bound, there):
                same = (*other[:at], row[at], *other[at + 1 :])
                if self.checks.covers(row, same):
                    bound = found
        return bound


# After any search --------------------------------------------------------------------------------


def without_set_aside(case: Case, rows: int) -> Case:
    """Return the case of a search that leaves ``rows`` of its rows to finishing."""
    limit = case.budget.oracle_rows
    if limit is None:
        return case
    return replace(case, budget=replace(case.budget, oracle_rows=max(0, limit - rows)))


class Finishing(Search):
    """A search, and the finishing of what it found after it.

    The work items of the search pass through under their own numbers, and those of finishing
    follow. Finishing may use every row that the search leaves of the budget of ``case``; where rows
    have no limit, it has ``rows`` of its own.
    """

    def __init__(self, case: Case, search: Search, rows: int, batch: int = BATCH) -> None:
        super().__init__(case)
        self.archive = search.archive
        self.named = search.named
        self._search = search
        self._most = rows
        self._batch = batch
        self._used = 0
        self._finisher = Finisher(search.archive)

    @property
    def thinks(self) -> bool:
        """Whether the search does; finishing itself is quick."""
        return self._search.thinks

    def close(self) -> None:
        """Close the search."""
        self._search.close()

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
        rows = self._finisher.rows(min(self._batch, left)) if left >= 1 else []
        if not rows:
            ending = self._search.ending
            assert ending is not None
            used = f"{self._used} row{'s' * (self._used != 1)}{'' if limited else ' on top'}"
            self._end(ending.kind, f"{ending.reason}; polish: {used}")
            return None
        self.archive.generated += len(rows)
        self._used += len(rows)
        return self._evaluate([row for row, _ in rows], rows)

    def refuse(self, work: Work) -> bool:
        """Let the search go on without a call that cannot be paid, if it can."""
        if not self._search.refuse(work):
            return False
        self._calls -= 1
        del self._pending[work.id]
        return True

    def _on_reply(self, work: Propose, reply: Reply) -> None:
        self._search.tell(work, reply)

    def _on_answers(self, asked: Any, rows: Sequence[Row], answers: Answers) -> None:
        if isinstance(asked, Evaluate):
            self._search.tell(asked, answers)
            return
        judged = self.archive.judge(rows, answers)
        for (row, reasons), (chance, valid) in zip(asked, judged, strict=True):
            self.archive.take(row, self.case.problem.key(row), chance, valid, reasons)
