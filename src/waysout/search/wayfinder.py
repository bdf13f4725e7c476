"""Wayfinder: the few ways out that a person would take, for as few oracle rows as possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np

from waysout.domain.known import Known, approved
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.domain.ways import LESS
from waysout.search.base import Case, Method, OnLearning, Search, least, within
from waysout.search.finish import WIDE, Finisher
from waysout.search.pool import RANDOM, around, distinct, random_combos, singles
from waysout.search.process import Process
from waysout.search.space import Projection
from waysout.search.steps import Combos, Matrix, Moves, Steps
from waysout.search.students import Students, students_of
from waysout.search.surrogate import LogitScale
from waysout.search.work import Work

_PARENTS = 10
_LOOKED_AT = 400
_BATCH_SHARE = 20
_BARREN = 20
_POOLS = 6
_NEIGHBOURS = 500
_FINISH_BATCH = 10
MOST_ROWS = 300
SOFT = 0.01
FIRST = 0.25


@dataclass(frozen=True)
class Wayfinder(Method):
    """Searches for ways."""

    name: ClassVar[str] = "wayfinder"

    quality: float = least(0, 0.8)
    tried: float = least(0, 0.3)
    levers: float = least(0, 0.25)
    finish: float = within(0, 0.9, 0.5)
    most_finish: int = least(0, 150)
    batch: int = least(1, 5)
    students: bool = True
    hold: int = least(0, 6)

    def learn(self, problem: Problem, known: Known | None, tell: OnLearning) -> None:
        """Learn the students of the table's labels."""
        if self.students and known is not None:
            tell("students of the table's labels", 0.0)
            students_of(known, problem.schema)

    def start(self, case: Case) -> Search:
        """Return a search."""
        return WayfinderSearch(case.with_row_limit(), self)


@dataclass(frozen=True, slots=True)
class _Trial:
    row: Row
    reasons: tuple[str, ...] = ()


class WayfinderSearch(Search):
    """Explores by chance and worth, then finishes what it found."""

    def __init__(self, case: Case, method: Wayfinder) -> None:
        super().__init__(case)
        self.method = method
        self._rng = case.generator()
        self.steps = Steps(case.problem, case.query, case.known)
        self._students: Students | None = None
        if method.students and case.known is not None:
            self._students = students_of(case.known, case.problem.schema)
        self._at_query = np.zeros((1, 0))
        if self._students is not None:
            self._at_query = self._students.logits(self.steps.start[None, :])
        self._scale = LogitScale(case)
        self._finisher = Finisher(self.archive, self._guess)
        self._asked: list[Row] = []
        self._logits: list[float] = []
        self._said: dict[Row, Matrix] = {}
        self._guessed: dict[Row, float] = {}  # until the next answer
        self._process = Process(self.steps.moves([]), self._taught([]), np.zeros(0))
        self._valid = 0
        self._seen: set[Row] = {case.query}
        self._tried: Counter[bytes] = Counter()
        self._mark = 0

    # Asking ------------------------------------------------------------------------------------

    def _next(self) -> Work | None:
        if self.waiting:
            return None
        if self.rows_left < 1:
            rows = self.case.budget.oracle_rows
            self._end(OutcomeKind.BUDGET_SPENT, f"all {rows} oracle rows are spent")
            return None
        trials = self._trials()
        if not trials:
            self._end(OutcomeKind.EXHAUSTED, "every combination within reach was asked")
            return None
        self.archive.generated += len(trials)
        self._seen.update(trial.row for trial in trials)
        return self._evaluate([trial.row for trial in trials], trials)

    def _trials(self) -> list[_Trial]:
        most = int(min(max(self.method.batch, len(self._asked) // _BATCH_SHARE), self.rows_left))
        if self._is_barren():
            return self._wide_rows(most) or self._explore(most)
        if self.rows_left <= self._reserve():
            # In small batches: what is walked back goes step by step.
            return self._finishing(min(most, _FINISH_BATCH)) or self._explore(most)
        checks = self._narrowed(most) or self._hold_checks(most)
        return checks or self._explore(most) or self._finishing(most)

    def _reserve(self) -> float:
        total = self._rows + self.rows_left
        return min(self.method.finish * total, self.method.most_finish)

    def _finishing(self, most: int) -> list[_Trial]:
        return [_Trial(row, reasons) for row, reasons in self._finisher.rows(most)]

    def _narrowed(self, most: int) -> list[_Trial]:
        """Take the best option apart where all that were found move many levers."""
        first = next(self._finisher.order(), None)
        if (
            first is None
            or len(first) <= WIDE
            or any(len(s) <= WIDE for s in self._finisher.order())
        ):
            return []
        best = self._finisher.best(first)
        assert best is not None
        return [_Trial(row) for row in self._finisher.apart(best)[:most]]

    def _hold_checks(self, most: int) -> list[_Trial]:
        """Push the best new options farther: one that does not hold must not hide others."""
        found = []
        for levers in islice(self._finisher.order(), self.method.hold):
            best = self._finisher.best(levers)
            if best is not None and not self._finisher.goes_on(best):
                found += self._finisher.checks.farther(best)[-1:]
        return [_Trial(row) for row in found if row not in self.archive.answered][:most]

    # Exploring ---------------------------------------------------------------------------------

    def _explore(self, most: int) -> list[_Trial]:
        if not len(self.steps):
            return []
        parents, tables = self._parents(), self.steps.tables
        for dry in range(_POOLS):
            drawn = random_combos(tables, self._rng, RANDOM, 2, 4 + dry)
            pool = distinct(
                np.concatenate([singles(tables), around(tables, parents, self._rng), drawn])
            )
            pool, scores = self._best(pool)
            near = around(tables, pool[:_PARENTS], self._rng)
            pool, scores = self._best(distinct(np.concatenate([pool, near])))
            trials = self._take(pool, scores, most)
            if trials:
                return trials
        return []

    def _parents(self) -> Combos:
        """Return the best options, and the refused rows that came nearest."""
        rows = [self._finisher.best(levers) for levers in islice(self._finisher.order(), _PARENTS)]
        order = np.argsort(-np.array(self._logits), kind="stable")
        near = (self._asked[i] for i in order.tolist())
        rows += islice((r for r in near if not self.archive.answered[r].valid), _PARENTS // 2)
        combos = [self.steps.combo(row) for row in rows if row is not None]
        return self.steps.padded(combo for combo in combos if combo is not None)

    def _best(self, pool: Combos) -> tuple[Combos, Matrix]:
        scores = self._scores(pool)
        best = np.argsort(-scores, kind="stable")[:_LOOKED_AT]
        best = best[np.isfinite(scores[best])]
        return pool[best], scores[best]

    def _scores(self, combos: Combos) -> Matrix:
        """Return the logarithm of the chance of a yes times what it would be worth."""
        tables, method = self.steps.tables, self.method
        scores = np.full(len(combos), -np.inf)
        worth = self._worth(combos, tables.costs(combos))
        hopeful = np.flatnonzero(worth > 0)
        if not len(hopeful):
            return scores
        chosen = combos[hopeful]
        encoded = tables.rows(chosen, self.steps.start)
        students = self._taught_codes(encoded)
        margins, spread = self._margins(tables.moves(chosen), students)
        chance = log_chances(margins, spread)
        moved = chosen > 0
        tried = np.array([self._tried.get(levers.tobytes(), 0) for levers in moved], dtype=float)
        scores[hopeful] = (
            chance
            + np.log(worth[hopeful])
            - method.levers * (moved.sum(axis=1) - 1)
            - method.tried * np.log1p(tried)
        )
        return scores

    def _worth(self, combos: Combos, cost: Matrix) -> Matrix:
        """Return what a yes would be worth: the less it costs the more, if it saves anything."""
        moved = combos > 0
        count = moved.sum(axis=1)
        slots = {slot.lever: i for i, slot in enumerate(self.steps.slots)}
        saved = np.ones(len(combos))
        for levers in self._finisher.order():
            best = self._finisher.best(levers)
            assert best is not None
            inside = moved[:, [slots[name] for name in levers if name in slots]].all(axis=1)
            limit = np.where(count > len(levers), LESS, 1.0) * self._finisher.cost[best]
            saved = np.where(inside, np.minimum(saved, 1.0 - cost / limit), saved)
        # Until there is an option, any is worth more than a cheaper chance.
        power = self.method.quality * (1.0 if self._valid else FIRST)
        worth: Matrix = np.maximum(saved, 0.0) * np.maximum(cost, 1e-9) ** -power
        return worth

    def _take(self, pool: Combos, scores: Matrix, most: int) -> list[_Trial]:
        found: list[_Trial] = []
        problem, query = self.case.problem, self.case.query
        moved, cost = pool > 0, self.steps.tables.costs(pool)
        left = np.isfinite(scores)
        while left.any() and len(found) < most:
            i = int(np.argmax(np.where(left, scores, -np.inf)))
            left[i] = False
            row = self.steps.row(pool[i].tolist())
            if row in self._seen:
                continue
            self._seen.add(row)
            if problem.violations(query, row):
                continue
            self._tried[moved[i].tobytes()] += 1
            # If this is a yes, those that add to it are worth nothing.
            inside = ~(moved[i] & ~moved).any(axis=1)
            left &= ~(inside & (cost > LESS * cost[i]))
            found.append(_Trial(row))
        return found

    # Wide rows ---------------------------------------------------------------------------------

    def _is_barren(self) -> bool:
        return not self._valid and len(self._asked) - self._mark >= _BARREN

    def _wide_rows(self, most: int) -> list[_Trial]:
        self._mark += _BARREN // 2
        tables = self.steps.tables
        width = len(tables.first)
        pool = random_combos(tables, self._rng, 20 * most, max(1, width // 3), width)
        rows = (self.steps.row(combo) for combo in pool.tolist())
        broken, query = self.case.problem.violations, self.case.query
        fresh = (r for r in rows if r not in self._seen and not broken(query, r))
        likeness = islice(self._like_approved(), most - most // 3)
        return [_Trial(row) for row in [*likeness, *islice(fresh, most // 3)]]

    def _like_approved(self) -> Iterator[Row]:
        """Yield the query made as like the nearest approved rows as the rules allow."""
        case = self.case
        if case.known is None:
            return
        known = approved(case.known, case.problem.schema)
        distances = case.problem.distance.between(self.steps.start, known.matrix)
        near = np.argsort(distances, kind="stable")[:_NEIGHBOURS]
        # Labels may be wrong: every other one is the likeliest to be a yes for the students.
        opinions = self._taught_codes(known.matrix[near]).sum(axis=1)
        likely = near[np.argsort(-opinions, kind="stable")]
        project, rows = Projection(case.problem, case.query), case.known.rows
        for i in np.stack([likely, near], axis=1).ravel().tolist():
            row = project(rows[int(known.numbers[i])])
            if row not in self._seen and not case.problem.violations(case.query, row):
                self._seen.add(row)
                yield row

    # Learning ----------------------------------------------------------------------------------

    def _taught(self, rows: Sequence[Row]) -> Matrix:
        """Return what the students say of rows, above what they say of the query."""
        new = [row for row in rows if row not in self._said]
        if new:
            said = self._taught_codes(self.case.problem.schema.encode(new))
            self._said.update(zip(new, said, strict=True))
        found = np.array([self._said[row] for row in rows])
        return found.reshape(len(rows), self._at_query.shape[1])

    def _taught_codes(self, encoded: Matrix) -> Matrix:
        if self._students is None:
            return np.zeros((len(encoded), 0))
        return self._students.logits(encoded) - self._at_query

    def _margins(self, moves: Moves, students: Matrix) -> tuple[Matrix, Matrix]:
        """Return how far above the border an answer is expected, and how sure that is."""
        mean, variance = self._process.guess(moves, students)
        return mean + self._scale.start - self._scale.border, np.sqrt(variance + SOFT)

    def _guess(self, rows: Sequence[Row]) -> list[float]:
        """Return the chance of a yes for any rows."""
        new = [row for row in dict.fromkeys(rows) if row not in self._guessed]
        if new:
            found = np.exp(log_chances(*self._margins(self.steps.moves(new), self._taught(new))))
            self._guessed.update(zip(new, found.tolist(), strict=True))
        return [self._guessed[row] for row in rows]

    def _learn(self, rows: Sequence[Row], logits: Sequence[float]) -> None:
        self._asked += rows
        self._logits += logits
        if len(self._process) + len(rows) > MOST_ROWS:
            self._process = self._relearned()
        else:
            above = np.array(logits) - self._scale.start
            self._process.learn(self.steps.moves(rows), self._taught(rows), above)
        self._guessed.clear()

    def _relearned(self) -> Process:
        """Return a process of fewer answers: the latest, and those nearest to the border."""
        logits = np.array(self._logits)
        early, late = np.split(np.arange(len(logits)), [len(logits) - MOST_ROWS // 3])
        near = np.argsort(np.abs(logits[early] - self._scale.border), kind="stable")
        kept = np.concatenate([early[near[: MOST_ROWS // 3]], late])
        rows = [self._asked[i] for i in kept.tolist()]
        return Process(self.steps.moves(rows), self._taught(rows), logits[kept] - self._scale.start)

    def _on_answers(self, trials: Sequence[_Trial], rows: Sequence[Row], answers: Answers) -> None:
        judged = self.archive.judge(rows, answers)
        met = self.case.problem.goal.met(answers).tolist()
        for trial, (chance, valid) in zip(trials, judged, strict=True):
            key = self.case.problem.key(trial.row)
            self.archive.take(trial.row, key, chance, valid, trial.reasons)
            self._valid += valid
        pairs = zip(judged, met, strict=True)
        self._learn(rows, [self._scale.logit(chance, yes) for (chance, _), yes in pairs])


def log_chances(margins: Matrix, spread: Matrix) -> Matrix:
    """Return the logarithm of the chance of a yes, in the form that tells hopeless ones apart."""
    found: Matrix = -np.logaddexp(0.0, -1.6 * margins / spread)
    return found
