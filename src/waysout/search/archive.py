"""What a search has found: one option per key, the nearest misses, and the counts of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from waysout.domain.distance import Neighbours, novelty
from waysout.domain.problem import Problem
from waysout.domain.result import Option
from waysout.domain.schema import Row

NEAR_MISSES = 5
# An option may be found later in the bin of a miss, which then is none.
_MISSES_KEPT = 4 * NEAR_MISSES


@dataclass(frozen=True, slots=True)
class Found:
    """A row the oracle was asked of, and the reasons its proposer gave."""

    row: Row
    probability: float
    reasons: tuple[str, ...] = ()


class Archive:
    """Keeps the first valid row of each key. A row is valid if it is approved and breaks no rule.

    A valid row whose key is that of the query differs from it by less than the key tells: it is an
    option for the person, but counted apart and never among the unique ones.
    """

    def __init__(self, problem: Problem, query: Row) -> None:
        self.problem = problem
        self.query = query
        self.query_key = problem.key(query)
        # What is proposed breaks nothing that the query does not break.
        self._starts_broken = bool(problem.violations(query, query))
        self.best_probability: float | None = None
        self.asked: set[str] = set()
        """The keys of all rows taken in, so that nobody need ask one twice."""
        self.evaluated = 0
        self.valid = 0
        self.pruned = 0
        self.generated = 0
        self.rejections: Counter[str] = Counter()
        self._found: dict[str, Found] = {}
        self._misses: dict[str, Found] = {}
        self._options: list[Option] = []  # made once: whoever files them asks for them, too
        self._unique = Neighbours(problem.distance)

    def is_valid(self, row: Row, approved: bool) -> bool:
        """Whether a row the oracle approved or not is a way out."""
        return approved and row != self.query and not self.problem.violations(self.query, row)

    def take(
        self, row: Row, key: str, probability: float, valid: bool, reasons: Sequence[str] = ()
    ) -> bool:
        """Count an evaluated row; returns whether it is a new option."""
        self.evaluated += 1
        self.valid += valid
        return self.recall(row, key, probability, valid, reasons)

    def recall(
        self, row: Row, key: str, probability: float, valid: bool, reasons: Sequence[str] = ()
    ) -> bool:
        """Take a row in that was paid for before this search; whether it is a new option."""
        self.asked.add(key)
        found = Found(row, probability, tuple(reasons))
        if not valid and self._starts_broken and self.problem.violations(self.query, row):
            return False
        self._note_best(probability)
        if not valid:
            self._miss(key, found)
            return False
        if key in self._found:
            return False
        self._found[key] = found
        if key != self.query_key:
            self._unique.add(self.problem.schema.encode([row])[0])
        return True

    def _note_best(self, probability: float) -> None:
        best, worth = self.best_probability, self.problem.goal.worth
        if best is None or worth(probability) > worth(best):
            self.best_probability = probability

    def _miss(self, key: str, found: Found) -> None:
        known = self._misses.get(key)
        worth = self.problem.goal.worth
        if known is None or worth(known.probability) < worth(found.probability):
            self._misses[key] = found
        if len(self._misses) > 2 * _MISSES_KEPT:
            self._misses = dict(self._likeliest(_MISSES_KEPT))

    def _likeliest(self, most: int) -> list[tuple[str, Found]]:
        worth = self.problem.goal.worth
        return sorted(self._misses.items(), key=lambda item: -worth(item[1].probability))[:most]

    def novelty(self, row: Row) -> float:
        """Return how different a row is from the unique valid ones found so far."""
        return novelty(self._unique.distances(self.problem.schema.encode([row])[0]))

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
        """Return what the options are made of, in the order they were found, from one on."""
        return list(self._found.values())[start:]

    def options(self, start: int = 0) -> list[Option]:
        """Return the options in the order they were found, from one on."""
        self._options += [self._option(found) for found in self.found(len(self._options))]
        return self._options[start:]

    def near_misses(self, most: int = NEAR_MISSES) -> list[Option]:
        """Return the rows that came nearest to a yes, and break no rule."""
        kept = [found for key, found in self._likeliest(_MISSES_KEPT) if key not in self._found]
        return [self._option(found) for found in kept[:most]]

    def _option(self, found: Found) -> Option:
        return self.problem.option(self.query, found.row, found.probability, found.reasons)
