"""How near a way out can be, proved: `certify`, for models made of trees.

A search tells what it found. This check opens the model (with the package treecf, a
branch-and-bound search over an ensemble's splits) and tells what there is: that no yes can be
reached under the rules, or the cheapest way out, or the best one found in time and a bound below
which there is none. It is a yardstick for methods, not a method: it reads the model, and the rows
it asks are charged to no budget.

The solver adds up a cost for each feature, and the distance's root of a mean square is no sum. So
what is minimised is the distance with the mean of the gaps in its place::

    cost = α · mean(|x'_i − x_i| / MAD_i) + (1 − α) · share of categories that differ

which is never above the distance: no way out has a proximity above 1 / (1 + the least cost).

Types, steps, lists, links and one-hot groups are settled before the solver sees anything (see
`waysout.oracles.moves`). Rules that tie other features together (linear, implies, custom,
max-changes) are left out of the proof and asked of the row found: fewer rules only widen the space,
so what is infeasible without them is so with them, and a cheapest row that keeps them is cheapest.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

import numpy as np

from waysout.domain.distance import Matrix, proximity
from waysout.domain.oracle import Goal
from waysout.domain.problem import Problem
from waysout.domain.result import Option, OutcomeKind
from waysout.domain.rules import Linked, OneHot
from waysout.domain.schema import Row
from waysout.errors import InputError
from waysout.oracles.inputs import InputLayout
from waysout.oracles.moves import (
    Moves,
    RebuiltTrees,
    all_moves,
    differing,
    import_treecf,
    not_trees,
    open_trees,
)

Kind = Literal["infeasible", "optimal", "best found", "unknown"]
Interval = tuple[float, float]

# Sums of leaves in another order, or in float32: what the model itself says decides in between.
SLACK = 1e-5
AGREEMENT = 1e-6
TRIED_ROWS = 256
REPAIRS, MENDS = 6, 100
_NODES = 10**12  # time is the limit


@dataclass(frozen=True)
class Certificate:
    """What is known about the ways out of one query.

    ``infeasible``: there is none. ``optimal``: ``option`` is the cheapest. ``best found``:
    ``option`` is one, and none costs less than ``bound``. ``unknown``: none was found in time, and
    none costs less than ``bound``. Every option was approved by the oracle and breaks no rule.
    """

    kind: Kind
    cost: float | None = None
    bound: float | None = None
    row: Row | None = None
    option: Option | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def proved(self) -> bool:
        """Whether nothing is left open."""
        return self.kind in ("infeasible", "optimal")

    @property
    def nearest(self) -> float | None:
        """The proximity that no way out exceeds."""
        return None if self.bound is None else proximity(self.bound)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "kind": self.kind,
            "cost": self.cost,
            "bound": self.bound,
            "nearest": self.nearest,
            "option": None if self.option is None else self.option.as_dict(),
            "notes": list(self.notes),
            "seconds": round(self.seconds, 3),
        }


def certify(problem: Problem, query: Row, *, seconds: float = 30.0) -> Certificate:
    """Prove that a query has no way out, or find its cheapest one, within ``seconds`` seconds.

    The model is one of trees; it is opened, not searched (``pip install 'waysout[treecf]'``).

    >>> import waysout
    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> card = waysout.Card.parse('''
    ... card = 1
    ... name = "loans"
    ... outcome = { target = "repaid", positive = 1 }
    ... features.income = { kind = "integer", range = [0, 99] }
    ... ''')
    >>> incomes = [[income] for income in range(100)]
    >>> repaid = [int(income >= 50) for [income] in incomes]
    >>> model = GradientBoostingClassifier(random_state=0).fit(incomes, repaid)
    >>> oracle = waysout.as_oracle(model, card)
    >>> problem = waysout.Problem.from_card(card, oracle, training=[(n,) for n in range(100)])
    >>> proof = waysout.certify(problem, (30,))
    >>> proof.kind, proof.option.changes
    ('optimal', {'income': (30, 50)})
    """
    if not seconds > 0:
        raise InputError(f"seconds is how long to look for a proof, above 0, not {seconds!r}")
    started = time.monotonic()
    now = problem.oracle.ask([query])
    settled = problem.settled(query, now)
    if settled is not None and settled.kind is OutcomeKind.ALREADY_APPROVED:
        raise InputError(f"this row needs no way out: {settled.reason}")
    if settled is not None:
        return Certificate("infeasible", notes=(settled.reason,))
    goal = problem.goal.for_query(float(now.probability[0]))
    found = _Proof(problem, query, goal, started + seconds).certificate()
    return replace(found, seconds=time.monotonic() - started)


@dataclass(frozen=True)
class _Space:
    """What may move, and the model as it sees that."""

    trees: Any
    layout: InputLayout
    query: Row
    moves: Sequence[Moves]

    @cached_property
    def ensemble(self) -> Any:
        """The model, as the solver gets it."""
        return RebuiltTrees(self.trees, self.layout, self.query, self.moves).ensemble()

    @property
    def tolls(self) -> float:
        """The cost that is due in any case."""
        return sum(moves.toll for moves in self.moves)

    def within(self, cost: float) -> _Space:
        """Return the space without the moves that alone cost more."""
        limit = (cost - self.tolls) * (1 + 1e-9) + 1e-12
        kept = (moves.within(limit) for moves in self.moves)
        return replace(self, moves=[m for m in kept if list(m.rows) != [self.query]])

    def row(self, point: Matrix) -> Row:
        """Return the row that a point of the solver's stands for."""
        row = list(self.query)
        for moves, at in zip(self.moves, point, strict=True):
            chosen = moves.rows[int(np.abs(moves.at - at).argmin())]
            for column in moves.columns:
                row[column] = chosen[column]
        return tuple(row)


@dataclass(frozen=True)
class _Found:
    """What the solver says: the cheapest it found, whether that is proved, and a bound."""

    row: Row | None = None
    proved: bool = False
    bound: float | None = None


class _Proof:
    """One query's proof: what may move, what the trees say of it, and what the oracle confirms."""

    def __init__(self, problem: Problem, query: Row, goal: Goal, deadline: float) -> None:
        self.problem, self.query, self.goal, self.deadline = problem, query, goal, deadline
        _refuse_entangled(problem, query)
        trees, layout, splits = open_trees(problem.oracle)
        moves = all_moves(problem, query, splits)
        self.space = _Space(trees, layout, query, moves)
        self.held: set[int] = set()
        self.few = 0.0

    def certificate(self) -> Certificate:
        """Return what can be proved, or found, in time."""
        if not self.space.moves or not all(moves.rows for moves in self.space.moves):
            return Certificate("infeasible", notes=("the rules leave nothing to move to",))
        left = [r.label for r in self.problem.rules.joint if not isinstance(r, (Linked, OneHot))]
        told = f"left out of the proof (no rule makes a way out cheaper): {'; '.join(left)}"
        notes = [told] if left else []
        yes_is_high = self._check_reading()
        first = self._cheapest(self._interval(yes_is_high, SLACK), 0.7 if left else 1.0)
        if first.row is None:
            if first.proved:
                return Certificate("infeasible", notes=tuple(notes))
            return Certificate("unknown", bound=first.bound, notes=tuple(notes))
        if self._ways_out([first.row]):
            return self._told("optimal" if first.proved else "best found", first, first.row, notes)
        notes.append("the cheapest row of the trees breaks a rule left out, or its yes is too thin")
        row = self._repaired(first.row, self._interval(yes_is_high, -SLACK))
        if row is None:
            return Certificate("unknown", bound=first.bound, notes=tuple(notes))
        return self._told("best found", first, row, notes)

    def _told(self, kind: Kind, first: _Found, row: Row, notes: Sequence[str]) -> Certificate:
        answers = self.problem.oracle.ask([row])
        option = self.problem.option(self.query, row, float(answers.probability[0]))
        cost = self._cost(row)
        bound = cost if kind == "optimal" else min(cost, first.bound or 0.0)
        if option.key == self.problem.key(self.query):
            notes = [*notes, "so small a change that bins do not tell the row from the query"]
        return Certificate(kind, cost, bound, row, option, tuple(notes))

    def _cost(self, row: Row) -> float:
        return float(self.problem.costs(self.query, [row])[0])

    def _cheapest(self, interval: Interval, share: float) -> _Found:
        """Look three times: everywhere, then among moves no dearer, then for a bound alone."""
        first = self._solve(self.space, interval, 0.6 * share)
        if first.proved or first.row is None:
            return first
        # Fewer moves are mostly, not always, easier: the solver orders them by their splits.
        space = self.space.within(self._cost(first.row))
        again = self._solve(space, interval, 0.6 * share)
        if again.proved and again.row is not None:
            return again
        rows = [found.row for found in (again, first) if found.row is not None]
        row = min(rows, key=self._cost)
        # The solver's bound is 0 until it ends, and it ends far sooner if half the cost will do.
        loose = self._solve(self.space, interval, share, gap=1.0)
        return _Found(row, False, loose.bound)

    def _ways_out(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows that keep every rule and get a yes."""
        kept = [row for row in rows if not self.problem.violations(self.query, row)]
        met = self.goal.met(self.problem.oracle.ask(kept)) if kept else ()
        return [row for row, yes in zip(kept, met, strict=True) if yes]

    def _repaired(self, row: Row, interval: Interval) -> Row | None:
        """Look for a way out near a row that is none: mend it, or solve again with less to move."""
        ways: list[Row] = []
        rules, schema = self.problem.rules, self.problem.schema
        levers = rules.levers(self.query)
        for _ in range(REPAIRS):
            broken = self.problem.violations(self.query, row)
            named = dict.fromkeys(name for violation in broken for name in violation.features)
            # One more feature of a broken rule is set to something else.
            tries = {name: levers[name].sample(MENDS) for name in named if not levers[name].blocked}
            ways += self._ways_out(
                [rules.apply(row, {name: v}) for name, values in tries.items() for v in values]
            )
            # What moved and broke a rule does not move again.
            moved = {schema.index(name) for name in named} & set(differing(self.query, row))
            moves = enumerate(self.space.moves)
            self.held |= {i for i, m in moves if moved.intersection(m.columns)}
            if any(not violation.features for violation in broken):
                self.few = 10.0 * (self.few or 1.0)  # most such rules limit how much changes
            found = self._solve(self.space, interval).row
            if found is None or found == row:
                break
            row = found
            if self._ways_out([row]):
                ways.append(row)
                break
        return min(ways, key=self._cost, default=None)

    def _check_reading(self) -> bool:
        """Ask the oracle for moves drawn at random; return whether a yes is a high score."""
        from treecf.ir.evaluate import apply_link, raw_score_batch

        space, rng = self.space, np.random.default_rng(0)
        drawn = (moves.at[rng.integers(len(moves.rows), size=TRIED_ROWS)] for moves in space.moves)
        points = np.stack(list(drawn), axis=1)
        scores = raw_score_batch(space.ensemble, points)
        told = np.array([apply_link(space.ensemble.link, score) for score in scores])
        asked = self.problem.oracle.ask([space.row(point) for point in points]).probability
        high, low = (float(np.abs(t - asked).max()) <= AGREEMENT for t in (told, 1.0 - told))
        if high == low:
            raise not_trees(self.problem.oracle.name, "read as trees, it answers otherwise")
        return high

    def _interval(self, yes_is_high: bool, slack: float) -> Interval:
        """Return the scores that are a yes, wider by a slack."""
        from treecf.ir.model import Link

        plain = not self.goal.is_probability
        low = 0.5 if plain else self.goal.at_least
        high = None if plain else self.goal.at_most
        ends = (-math.inf if low is None else low, math.inf if high is None else high)
        ends = ends if yes_is_high else (1.0 - ends[1], 1.0 - ends[0])
        if self.space.trees.link is Link.SIGMOID:
            ends = (_logit(ends[0]), _logit(ends[1]))
        return ends[0] - slack, ends[1] + slack

    def _solve(
        self, space: _Space, interval: Interval, share: float = 1.0, gap: float = 0.0
    ) -> _Found:
        """Ask the solver for the cheapest moves to a score, in a share of the time left."""
        treecf = import_treecf()
        left = share * (self.deadline - time.monotonic())
        if left <= 0 or not space.moves or not interval[0] < interval[1]:
            return _Found()
        names = space.ensemble.feature_names
        pairs = list(zip(names, space.moves, strict=True))
        explainer = treecf.Explainer(
            space.ensemble,
            constraints=[treecf.Freeze(names[i]) for i in sorted(self.held)],
            weights={name: moves.cost for name, moves in pairs if moves.cost is not None},
            normalizers=np.ones(len(names)),
        )
        with warnings.catch_warnings():
            # The answer says the same.
            warnings.simplefilter("ignore", treecf.TreecfWarning)
            answer = explainer.explain(
                np.zeros(len(names)),
                treecf.Target.raw(range=interval),
                backend="exact",
                # A first, rough search takes a quarter more, at most two seconds.
                time_budget_s=max(left - 2.0, left / 1.25),
                node_budget=_NODES,
                sparsity_weight=self.few,
                seed=0,
                gap=gap,
            )
        least = float(answer.solver_stats.get("lower_bound", 0.0))
        bound = least + space.tolls if math.isfinite(least) else None
        if hasattr(answer, "x_cf"):
            return _Found(space.row(answer.x_cf), answer.proof == "optimal", bound)
        return _Found(None, answer.proof == "certified", bound)


def _refuse_entangled(problem: Problem, query: Row) -> None:
    """Refuse one-hot groups that share features with each other or with links.

    What follows what is then no list of moves, and a proof over such a list could be wrong. So it
    is where the query has a group in disorder.
    """
    groups = {rule.label for rule in problem.rules.rules if isinstance(rule, OneHot)}
    for violation in problem.violations(query, query):
        if violation.rule in groups:
            raise InputError(f"no proof: the row itself breaks {violation.rule!r}")
    ties: list[tuple[Linked | OneHot, set[str]]] = []
    for rule in problem.rules.rules:
        if isinstance(rule, OneHot):
            ties.append((rule, set(rule.features)))
        elif isinstance(rule, Linked):
            ties.append((rule, {rule.feature, rule.sets}))
    for (one, tied), (other, also) in combinations(ties, 2):
        if tied & also and (isinstance(one, OneHot) or isinstance(other, OneHot)):
            rules = f"{one.label!r} and {other.label!r}"
            raise InputError(f"no proof: the rules {rules} share {min(tied & also)!r}")


def _logit(p: float) -> float:
    if p <= 0.0 or p >= 1.0:
        return -math.inf if p <= 0.0 else math.inf
    return math.log(p / (1.0 - p))
