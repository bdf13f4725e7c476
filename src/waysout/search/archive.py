"""What a search has found: one option per key, the nearest misses, and the run's counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from waysout.domain.distance import Neighbours, novelty
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import Option, Tip, Way
from waysout.domain.schema import Row
from waysout.domain.tipping import tipping_points
from waysout.domain.ways import Asked, Checks, find_ways

NEAR_MISSES = 5
# An option may be found later in the bin of a miss, which then is none.
_MISSES_KEPT = 4 * NEAR_MISSES


@dataclass(frozen=True, slots=True)
class Found:
    """An evaluated row, and the reasons given for its changes."""

    row: Row
    probability: float
    reasons: tuple[str, ...] = ()


class Archive:
    """Keeps the first valid row of each key. A row is valid if it is approved and breaks no rule.

    A valid row whose key equals the query's is an option (it may be the smallest way out), but it
    is counted apart and never among the unique ones.
    """

    def __init__(self, problem: Problem, query: Row) -> None:
        self.problem = problem
        self.query = query
        self.query_key = problem.key(query)
        # Only then can an evaluated row break a rule: proposals break nothing else.
        self._starts_broken = bool(problem.violations(query, query))
        self.best_probability: float | None = None
        self.asked: set[str] = set()
        """The keys of all rows taken in, so that none is asked twice."""
        self.evaluated = 0
        self.valid = 0
        self.pruned = 0
        self.generated = 0
        self.rejections: Counter[str] = Counter()
        self.answered: dict[Row, Asked] = {}
        """Every row with its answer, whatever its key: ways are made of these."""
        self._found: dict[str, Found] = {}
        # The same as a list: of a hundred thousand, only the last few are asked for at each step.
        self._in_order: list[tuple[str, Found]] = []
        self._misses: dict[str, Found] = {}
        self._options: list[Option] = []  # each is made once, though `options` is called often
        self._unique, self._scaled = Neighbours(problem.distance), 0

    def is_valid(self, row: Row, approved: bool) -> bool:
        """Whether a row is a way out: approved, changed, and within the rules."""
        return approved and row != self.query and not self.problem.violations(self.query, row)

    def judge(self, rows: Sequence[Row], answers: Answers) -> list[tuple[float, bool]]:
        """Return the probability of each row, and whether it is valid."""
        met = self.problem.goal.met(answers).tolist()
        valid = map(self.is_valid, rows, met)
        return list(zip(answers.probability.tolist(), valid, strict=True))

    def take(
        self, row: Row, key: str, probability: float, valid: bool, reasons: Sequence[str] = ()
    ) -> bool:
        """Count and keep an evaluated row; returns whether it is a new option."""
        self.evaluated += 1
        self.valid += valid
        return self.recall(row, key, probability, valid, reasons)

    def pass_by(self, row: Row, key: str, probability: float, valid: bool) -> None:
        """Count an evaluated row that is no option even if it is valid: nothing returns it.

        What is refused is kept as ever. A valid row may still be returned later: see `recall`.
        """
        if not valid:
            self.take(row, key, probability, valid)
            return
        self.evaluated += 1
        self.valid += 1
        self.asked.add(key)
        self._note_best(probability)

    def recall(
        self, row: Row, key: str, probability: float, valid: bool, reasons: Sequence[str] = ()
    ) -> bool:
        """Keep a row that was evaluated before this search; returns whether it is a new option."""
        self.asked.add(key)
        if row == self.query:  # asked by an edit that changes nothing: no option, nor a near miss
            return False
        self.answered[row] = Asked(probability, valid, tuple(reasons))
        found, worth = Found(row, probability, tuple(reasons)), self.problem.goal.worth
        if not valid and self._starts_broken and self.problem.violations(self.query, row):
            return False
        self._note_best(probability)
        if not valid:
            known = self._misses.get(key)
            if known is None or worth(known.probability) < worth(probability):
                self._misses[key] = found
            if len(self._misses) > 2 * _MISSES_KEPT:
                self._misses = dict(self._likeliest())
            return False
        if key in self._found:
            return False
        self._found[key] = found
        self._in_order.append((key, found))
        return True

    def _note_best(self, probability: float) -> None:
        worth = self.problem.goal.worth
        if self.best_probability is None or worth(probability) > worth(self.best_probability):
            self.best_probability = probability

    def _likeliest(self) -> list[tuple[str, Found]]:
        worth, misses = self.problem.goal.worth, self._misses.items()
        return sorted(misses, key=lambda item: -worth(item[1].probability))[:_MISSES_KEPT]

    def novelty(self, row: Row) -> float:
        """Return how different a row is from the unique valid ones found so far."""
        encode = self.problem.schema.encode
        for key, found in self._in_order[self._scaled :]:  # few methods ask, so not when found
            if key != self.query_key:
                self._unique.add(encode([found.row])[0])
        self._scaled = len(self._in_order)
        return novelty(self._unique.distances(encode([row])[0]))

    @property
    def unique_rows(self) -> list[Row]:
        """The unique valid rows, in the order they were found."""
        return [f.row for key, f in self._found.items() if key != self.query_key]

    @property
    def rows(self) -> list[Row]:
        """The rows of the options, in the order they were found."""
        return [found.row for found in self._found.values()]

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, key: str) -> bool:
        """Whether an option has this key."""
        return key in self._found

    def found(self, start: int = 0) -> list[Found]:
        """Return the rows behind the options, in the order they were found."""
        return [found for _, found in self._in_order[start:]]

    def options(self, start: int = 0) -> list[Option]:
        """Return the options in the order they were found, from number ``start`` on."""
        new = self._in_order[len(self._options) :]
        if new:
            problem, query, rows = self.problem, self.query, [found.row for _, found in new]
            for (key, found), distance in zip(new, problem.distance.each(query, rows), strict=True):
                self._options.append(
                    problem.option(
                        query, found.row, found.probability, found.reasons,
                        key=key, distance=distance,
                    )
                )  # fmt: skip
        return self._options[start:]

    def ways(self) -> tuple[Way, ...]:
        """Return the ways among all answered rows, best first."""
        return find_ways(self.problem, self.query, self.answered)

    def tipping(self) -> dict[str, tuple[Tip, ...]]:
        """Return what each lever does alone, as far as was asked."""
        return tipping_points(Checks(self.problem, self.query), self.answered)

    def near_misses(self, most: int = NEAR_MISSES) -> list[Option]:
        """Return the rows that came nearest to a yes without breaking a rule."""
        kept = [found for key, found in self._likeliest() if key not in self._found]
        return [self._option(found) for found in kept[:most]]

    def _option(self, found: Found) -> Option:
        return self.problem.option(self.query, found.row, found.probability, found.reasons)
