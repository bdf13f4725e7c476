"""Wayfinder: the few ways out that a person would take, for few oracle rows and without an LLM.

1. *Values* are tried finely (`waysout.search.steps`), whatever the key's bins.
2. *Students* of the table's labels make a first guess; a Gaussian process over moves corrects it
   by the oracle's answers (`waysout.search.process`).
3. What is asked next is the likeliest yes that is worth most: cheap, with few levers, and cheaper
   than what is known with these levers or some of them. More of the same is worth nothing, as long
   as what is known *holds*: the best options are pushed farther to see that.
4. Where nothing was found, *wide* rows are asked, which move many levers, and taken apart.
5. The last part of the rows *finishes* what was found (`waysout.search.finish`).
6. Where all steps were asked in vain, rows that are left go to values between them.

`docs/wayfinder.md` draws it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np

from waysout.domain.known import Known, approved
from waysout.domain.memory import Past
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Edit, Row, Value
from waysout.domain.ways import LESS
from waysout.search.base import (
    ROWS_WITHOUT_LIMIT,
    Case,
    Method,
    OnLearning,
    Search,
    least,
    within,
)
from waysout.search.finish import WIDE, Finisher
from waysout.search.naming import Ask, Naming, NamingSearch
from waysout.search.pool import RANDOM, Tried, around, distinct, farthest, random_combos, singles
from waysout.search.process import MoveProcess
from waysout.search.space import Projection
from waysout.search.steps import Combos, Matrix, StepMoves, Steps
from waysout.search.students import Students, students_of
from waysout.search.surrogate import LogitScale
from waysout.search.tips import Tips
from waysout.search.work import Work

_PARENTS = 10
_LOOKED_AT = 80  # combinations looked at again with their neighbours, for each that is asked
_POOLS = 6  # rules may forbid all that was looked at in one: in the next, twice as many are
# A batch is at most a twentieth of the rows before it, as for a few rows more nothing is learned.
_BATCH_SHARE = 20
_FINISH_BATCH = 10  # what is walked back goes step by step
_MOST_FINISHED = 300  # rows beyond which finishing more ways is less use than finding others
_BARREN = 20  # rows without an option after which a batch of wide ones is asked, and so on
_LIKE_OTHERS = 2  # batches of wide rows with values of others, before any go to the end
_NEIGHBOURS = 500
_MOST_LEARNED = 300  # answers in the process at once
_NOISE = 0.01  # of the oracle's logit, as far as a chance is concerned
_SLOPE = 1.6  # of the logistic curve that is nearest to the normal distribution's
# Until there is an option, any is worth more than a small chance of a cheap one.
_FIRST = 0.25
_ALMOST = 0.999  # nothing is so sure to be a yes that what adds to it is not worth a row at all
_LITTLE = 0.3  # of what the cheapest option costs
# Named edits have a reason; small on purpose, to decide between near equals only.
_UNNAMED = 0.05


@dataclass(frozen=True)
class Wayfinder(Method):
    """Searches for ways, the cheapest of each set of levers that hold and need all their changes.

    ``quality`` is the weight of a low cost against the chance of a yes; ``levers`` counts against
    each further lever, ``tried`` against levers that were tried together often. ``finish`` is the
    share of the rows (at most 300 of them) that is kept to finish what was found, ``hold`` how many
    of the best options are pushed farther before that. ``tips`` is the share of the rows that may
    go to tipping points, once what is shown is finished. ``students`` are learned from the data's
    labels, where there are any. ``batch`` rows are asked at once, later a twentieth of those
    before. ``edits`` is how many values an LLM call asks for; they are tried and preferred at equal
    quality, and without calls nothing is missing but the reasons. ``ask`` says when it is asked:
    throughout, or only when stuck.

    >>> import waysout
    >>> data = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, data.card)
    >>> problem = waysout.Problem.from_card(data.card, oracle, training=data.rows)
    >>> quick = waysout.Wayfinder(finish=0.25, tips=0)
    >>> result = waysout.find(problem, data.rows[828], method=quick, oracle_rows=60)
    >>> [list(way.changes) for way in result.ways]
    [['credit_score']]
    """

    name: ClassVar[str] = "wayfinder"
    needs_llm: ClassVar[bool] = True
    needs_calls: ClassVar[bool] = False

    quality: float = least(0, 0.4)
    levers: float = least(0, 0.25)
    tried: float = least(0, 0.8)
    finish: float = within(0, 0.9, 0.5)
    hold: int = least(0, 6)
    tips: float = within(0, 0.5, 0.1)
    students: bool = True
    batch: int = least(1, 5)
    edits: int = within(1, 50, 10)
    ask: Ask = "throughout"
    temperature: float = least(0, 0.7)

    def edits_a_call(self, k: int) -> int:
        """Return ``edits``; ``k`` only sets the rows, so that methods compare at equal rows."""
        return self.edits

    def learn(self, problem: Problem, known: Known | None, tell: OnLearning) -> None:
        """Learn the students of the table's labels."""
        if self.students and known is not None:
            tell("learning from the known outcomes", 0.0)
            students_of(known, problem.schema)

    def start(self, case: Case) -> Search:
        """Return a search whose draws follow from the seed and the query."""
        return WayfinderSearch(case.with_row_limit(), self)


@dataclass(frozen=True, slots=True)
class _Trial:
    """A row on its way to the oracle, and the reasons given for its changes."""

    row: Row
    reasons: tuple[str, ...] = ()


class WayfinderSearch(NamingSearch):
    """Explores by chance and worth, then finishes what it found."""

    def __init__(self, case: Case, method: Wayfinder) -> None:
        naming = Naming(method.edits, method.temperature, method.batch, ask=method.ask)
        super().__init__(case, naming)
        self.method = method
        self._rng = case.generator()
        self.steps = Steps(case.problem, case.query, case.known)
        self._students: Students | None = None
        self._at_query = np.zeros((1, 0))
        if method.students and case.known is not None:
            self._students = students_of(case.known, case.problem.schema)
        if self._students is not None:
            self._at_query = self._students.logits(self.steps.start[None, :])
        self._scale = LogitScale(case)
        tips = Tips(self.archive, self.steps.values, int(method.tips * self.rows_left))
        self._finisher = Finisher(self.archive, self._guess, tips)
        self._asked: list[Row] = []
        self._logits: list[float] = []
        self._said: dict[Row, Matrix] = {}  # what the students say
        self._guessed: dict[Row, float] = {}  # until the next answer
        self._process = MoveProcess(self.steps.moves([]), self._taught([]), np.zeros(0))
        self._seen: set[Row] = {case.query}
        self._tried = Tried()
        self._wide = 0
        self._is_refined = False
        self._rest: Iterator[Row] | None = None  # of all rows, those to ask when all else was
        self._why: dict[tuple[str, Value], str] = {}  # of named values
        if case.past:
            self._resume(case.past)

    def _resume(self, past: Past) -> None:
        """Learn from an earlier search for this person, as far as today's rules allow."""
        for edit in past.edits:
            lever = self.steps.levers[edit.feature]
            if lever.is_open and lever.admits(edit.value):
                self._is_new(edit)
                self._add_named(edit)
        if self._recalled:
            self._seen.update(self._recalled)
            self._learn(self._recalled, past.answers(self._recalled))

    def _add_named(self, edit: Edit) -> str | None:
        if edit.reason:
            self._why.setdefault((edit.feature, edit.value), edit.reason)
        return None if self.steps.add(edit, named=True) else "moves two levers at once"

    # Asking ------------------------------------------------------------------------------------

    def _nothing_left(self) -> str:
        """Return why there is nothing left to ask."""
        if not len(self.steps):
            return "no edit is known"
        if not self.archive.answered:
            return "none of the combinations that were made keeps the rules"
        if self._all_asked():
            return "every combination within reach was asked"
        if self._has_way():
            return "no other row seemed worth asking"
        count = len(self.steps.slots)
        levers = f"{count} features" if count > 1 else "one feature"
        return f"every value tried of {levers} was asked, not every combination there is"

    def _next(self) -> Work | None:
        if self.waiting:
            return None
        if self.rows_left < 1:
            rows = self.case.budget.oracle_rows
            self._over(OutcomeKind.BUDGET_SPENT, f"all {rows} oracle rows are spent")
            return None
        work = self._more_edits(self.case.query) if self._is_time_to_ask() else None
        work = work or self._asking(self._trials()) or self._more_edits(self.case.query)
        work = work or self._asking(self._refined(self._batch_size()))
        if work is None:
            self._over(OutcomeKind.EXHAUSTED, self._nothing_left())
        return work

    def _asking(self, trials: Sequence[_Trial]) -> Work | None:
        if not trials:
            return None
        self.archive.generated += len(trials)
        self._seen.update(trial.row for trial in trials)
        return self._evaluate([trial.row for trial in trials], trials)

    def _batch_size(self) -> int:
        return int(min(max(self.method.batch, len(self._asked) // _BATCH_SHARE), self.rows_left))

    def _trials(self) -> list[_Trial]:
        """Return the next rows to ask; none where all steps were asked that are worth a row."""
        most = self._batch_size()
        if not len(self.archive) and len(self._asked) >= _BARREN * (1 + self._wide):
            found = self._wide_rows(most)
        elif self.rows_left <= self._kept_to_finish():
            found = self._finishing(min(most, _FINISH_BATCH))
        else:
            found = self._narrowed(most) or self._pushed(most)
        return found or self._alone(most) or self._explored(most) or self._finishing(most)

    def _kept_to_finish(self) -> float:
        return min(self.method.finish * (self._rows + self.rows_left), _MOST_FINISHED)

    def _finishing(self, most: int) -> list[_Trial]:
        return [_Trial(row, reasons) for row, reasons in self._finisher.rows(most)]

    def _best_options(self) -> Iterator[Row]:
        """Yield the best option of each set of levers that may have a way, best first."""
        return filter(None, map(self._finisher.best, self._finisher.order()))

    def _narrowed(self, most: int) -> list[_Trial]:
        """Take the best option apart where all that were found move many levers."""
        best = list(self._best_options())
        moved = (len(self._finisher.checks.moves(option)) for option in best)
        if not best or min(moved) <= WIDE:
            return []
        return self._about(best[0], self._finisher.apart(best[0]))[:most]

    def _pushed(self, most: int) -> list[_Trial]:
        """Push the best options farther: one that does not hold must not hide others."""
        found: list[_Trial] = []
        for option in islice(self._best_options(), self.method.hold):
            if not self._finisher.goes_on(option):
                farther = self._finisher.checks.farther(option)[-1:]
                found += self._about(option, [r for r in farther if r not in self._seen])
        return found[:most]

    def _about(self, option: Row, rows: Iterable[Row]) -> list[_Trial]:
        return [_Trial(row, self._finisher.reasons(option, row)) for row in rows]

    # Exploring ---------------------------------------------------------------------------------

    def _explored(self, most: int) -> list[_Trial]:
        """Return the likeliest and worthiest rows of a pool and of the neighbours of its best."""
        if not len(self.steps):
            return []
        parents, tables, rng = self._parents(), self.steps.tables, self._rng
        for dry in range(_POOLS):
            drawn = random_combos(tables, rng, RANDOM * most, 2, 4 + dry)
            looked_at = _LOOKED_AT * most << dry
            near = around(tables, parents, rng)
            pool, _ = self._best(looked_at, singles(tables), near, drawn)
            near = around(tables, pool[: 2 * most], rng)
            pool, scores = self._best(looked_at, pool, near)
            trials = self._take(pool, scores, most)
            if trials:
                return trials
        return []

    def _parents(self) -> Combos:
        """Return the best options, and the refused rows that came nearest."""
        rows = list(islice(self._best_options(), _PARENTS))
        order = np.argsort(-self._scale.chances(np.array(self._logits)), kind="stable")
        near = (self._asked[i] for i in order.tolist())
        rows += islice((r for r in near if not self.archive.answered[r].valid), _PARENTS // 2)
        combos = map(self.steps.combo, rows)
        return self.steps.padded([combo for combo in combos if combo is not None])

    def _best(self, most: int, *combos: Combos) -> tuple[Combos, Matrix]:
        """Return the best of some combinations, and their scores."""
        pool = distinct(np.concatenate(combos))
        scores = self._scores(pool)
        best = np.argsort(-scores, kind="stable")[:most]
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
        moved = chosen > 0
        students = self._taught_codes(tables.rows(chosen, self.steps.start))
        chances = self._log_chances(tables.moves(chosen), students) + self._log_needed(chosen)
        tried = self._tried.alike(moved)
        unnamed = tables.unnamed[tables.places(chosen)].sum(axis=1) if self._named else 0.0
        scores[hopeful] = (
            chances
            + np.log(worth[hopeful])
            - method.levers * (moved.sum(axis=1) - 1)
            - method.tried * np.log1p(tried)
            - _UNNAMED * unnamed
        )
        return scores

    def _log_needed(self, combos: Combos) -> Matrix:
        """Return the logarithm of the chance that what is added to a pocket is needed.

        A pocket does not hold, so it hides nothing; but what only adds to it can be shorter.
        """
        tables, moved, found = self.steps.tables, combos > 0, np.zeros(len(combos))
        for levers in self._finisher.pockets():
            part = np.isin(np.arange(combos.shape[1]), self._slots(levers))
            more = np.flatnonzero((moved | ~part).all(axis=1) & (moved & ~part).any(axis=1))
            if not len(more):
                continue
            alone, which = np.unique(combos[more] * part, axis=0, return_inverse=True)
            students = self._taught_codes(tables.rows(alone, self.steps.start))
            chances = np.exp(self._log_chances(tables.moves(alone), students))
            found[more] += np.log1p(-np.minimum(chances, _ALMOST))[which.ravel()]
        return found

    def _slots(self, levers: Iterable[str]) -> list[int]:
        return [i for i, slot in enumerate(self.steps.slots) if slot.lever in levers]

    def _worth(self, combos: Combos, cost: Matrix) -> Matrix:
        """Return what a yes would be worth: the less it costs the more, and only if it saves."""
        moved = combos > 0
        count = moved.sum(axis=1)
        saved = np.ones(len(combos))
        for option in self._best_options():
            levers = self._slots(self._finisher.checks.moves(option))
            limit = np.where(count > len(levers), LESS, 1.0) * self._finisher.cost[option]
            inside = moved[:, levers].all(axis=1)
            saved = np.where(inside, np.minimum(saved, 1.0 - cost / limit), saved)
        power = self.method.quality * (1.0 if len(self.archive) else _FIRST)
        # Next to nothing is worth no more than little, or rows would go to whatever costs least.
        usual = min(map(self._finisher.cost.__getitem__, self._best_options()), default=None)
        least = _LITTLE * (float(np.median(cost)) if usual is None else usual)
        worth: Matrix = np.maximum(saved, 0.0) * np.maximum(cost, least + 1e-12) ** -power
        return worth

    def _take(self, pool: Combos, scores: Matrix, most: int) -> list[_Trial]:
        """Return the best of a pool that may be asked, and are no more of the same."""
        found: list[_Trial] = []
        problem, query = self.case.problem, self.case.query
        moved, cost = pool > 0, self.steps.tables.costs(pool)
        left = scores.copy()
        while len(found) < most and len(left) and np.isfinite(left.max()):
            i = int(np.argmax(left))
            left[i] = -np.inf
            row = self.steps.row(pool[i].tolist())
            if row in self._seen:
                continue
            self._seen.add(row)
            if broken := problem.violations(query, row):
                self.archive.rejections[f"breaks rule: {broken[0].rule}"] += 1
                continue
            self._tried.add(moved[i])
            # If this is a yes, those that add to it are worth nothing.
            adds = ~(moved[i] & ~moved).any(axis=1)
            left[adds & (cost > LESS * cost[i])] = -np.inf
            found.append(_Trial(row))
        return found

    # Finer than the steps ----------------------------------------------------------------------

    def _has_way(self) -> bool:
        """Whether an option is known that may hold."""
        return next(self._best_options(), None) is not None

    def _refined(self, most: int) -> list[_Trial]:
        """Return rows with values between the steps, where the steps led to no way.

        Where all values are steps, and few enough: every row that was not asked.
        """
        if not self.archive.answered or self._has_way():
            return []
        for _ in range(_POOLS):  # rules may forbid all that was added
            if not self.steps.refine():
                break
            self._is_refined = True
            if trials := self._alone(most) or self._explored(most):
                return trials
        if self._rest is None:
            rules, query = self.case.problem.rules, self.case.query
            every = dict.fromkeys(rules.every_row(query, ROWS_WITHOUT_LIMIT) or ())
            self._rest = iter(sorted(every, key=lambda row: rules.count_changes(query, row)))
        return list(map(_Trial, islice(self._fresh(self._rest), most)))

    def _alone(self, most: int) -> list[_Trial]:
        """Return values that were added between the steps, each alone, before any combination."""
        if not self._is_refined or self._has_way():
            return []
        alone = singles(self.steps.tables)
        return self._take(*self._best(len(alone), alone), most)

    # Wide rows ---------------------------------------------------------------------------------

    def _wide_rows(self, most: int) -> list[_Trial]:
        """Return rows that move many levers: like approved ones, and some at random."""
        self._wide += 1
        tables, width = self.steps.tables, len(self.steps.slots)
        if not width:
            return []
        pool = random_combos(tables, self._rng, 20 * most, max(1, width // 3), width)
        if self.case.known is None or self._wide > _LIKE_OTHERS:
            # Nobody's values say how far is far enough: every other row goes to the end.
            pool[::2] = farthest(tables, pool[::2])
        drawn = map(self.steps.row, pool.tolist())
        alike = list(islice(self._fresh(self._like_approved()), most - most // 3))
        rows = [*alike, *islice(self._fresh(drawn), most - len(alike))]
        return [_Trial(row) for row in dict.fromkeys(rows)]

    def _like_approved(self) -> Iterator[Row]:
        """Yield the query made as like approved rows as the rules allow."""
        case, known = self.case, self.case.known
        if known is None:
            return
        yes = approved(known, case.problem.schema)
        distances = case.problem.distance.between(self.steps.start, yes.matrix)
        near = np.argsort(distances, kind="stable")[:_NEIGHBOURS]
        # Labels may be wrong: every other one is the likeliest to be a yes for the students.
        opinions = self._taught_codes(yes.matrix[near]).sum(axis=1)
        likely = near[np.argsort(-opinions, kind="stable")]
        project = Projection(case.problem, case.query)
        for i in np.stack([likely, near], axis=1).ravel().tolist():
            yield project(known.rows[int(yes.numbers[i])])

    def _fresh(self, rows: Iterable[Row]) -> Iterator[Row]:
        broken, query = self.case.problem.violations, self.case.query
        return (row for row in rows if row not in self._seen and not broken(query, row))

    # Guessing and learning ---------------------------------------------------------------------

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

    def _log_chances(self, moves: StepMoves, students: Matrix) -> Matrix:
        """Return the logarithms of chances, which tell hopeless ones apart too."""
        mean, variance = self._process.guess(moves, students)
        logits, slope = mean + self._scale.start, _SLOPE / np.sqrt(variance + _NOISE)
        found: Matrix = -np.logaddexp(0.0, slope * (self._scale.border - logits))
        if self._scale.end is not None:
            found -= np.logaddexp(0.0, slope * (logits - self._scale.end))
        return found

    def _guess(self, rows: Sequence[Row]) -> list[float]:
        """Return the chance of a yes for any rows."""
        new = [row for row in dict.fromkeys(rows) if row not in self._guessed]
        if new:
            found = np.exp(self._log_chances(self.steps.moves(new), self._taught(new)))
            self._guessed.update(zip(new, found.tolist(), strict=True))
        return [self._guessed[row] for row in rows]

    def _on_answers(self, trials: Sequence[_Trial], rows: Sequence[Row], answers: Answers) -> None:
        judged = self.archive.judge(rows, answers)
        for trial, (chance, valid) in zip(trials, judged, strict=True):
            key = self.case.problem.key(trial.row)
            self.archive.take(trial.row, key, chance, valid, self._reasons(trial))
        self._barren = 0 if any(valid for _, valid in judged) else self._barren + len(rows)
        self._learn(rows, answers)

    def _reasons(self, trial: _Trial) -> tuple[str, ...]:
        """Return the reasons of named values in a trial, and for others those it was made with."""
        changes = self.case.problem.changes(self.case.query, trial.row)
        named = {name: self._why.get((name, value)) for name, (_, value) in changes.items()}
        own = {f"{name}: ": why for name, why in named.items() if why}
        others = (reason for reason in trial.reasons if not reason.startswith(tuple(own)))
        return (*others, *map("".join, own.items()))

    def _learn(self, rows: Sequence[Row], answers: Answers) -> None:
        """Learn from answers of this search or an earlier one."""
        met = self.case.problem.goal.met(answers).tolist()
        said = zip(answers.probability.tolist(), met, strict=True)
        logits = [self._scale.logit(chance, yes) for chance, yes in said]
        self._asked += rows
        self._logits += logits
        self._guessed.clear()
        if len(self._process) + len(rows) > _MOST_LEARNED:
            self._process = self._relearned()
        else:
            above = np.array(logits) - self._scale.start
            self._process.learn(self.steps.moves(rows), self._taught(rows), above)

    def _relearned(self) -> MoveProcess:
        """Return a process of fewer answers: the latest, and those nearest to the border."""
        logits, third = np.array(self._logits), _MOST_LEARNED // 3
        early, late = np.split(np.arange(len(logits)), [-third])
        near = np.argsort(np.abs(logits[early] - self._scale.border), kind="stable")[:third]
        kept = np.concatenate([early[near], late])
        rows = [self._asked[i] for i in kept.tolist()]
        return MoveProcess(
            self.steps.moves(rows), self._taught(rows), logits[kept] - self._scale.start
        )
