"""MOC: counterfactuals as a problem of four objectives, solved by NSGA-II of the package pymoo.

After Dandl, Molnar, Binder and Bischl (2020). At once as small as possible: how far a row misses
the goal, its distance to the query, how many features change, and its distance to the nearest known
row. pymoo selects; the children are made here, since features are of many kinds and rows must keep
the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from waysout.bench.methods.dice_frame import observed_range
from waysout.bench.methods.rows import RowBatches, encoded
from waysout.domain.known import Known, need_known
from waysout.domain.schema import Row
from waysout.errors import MissingExtra
from waysout.search.base import Case, Method, Search, least, within
from waysout.search.batches import Candidate
from waysout.search.candidates import DECIMALS
from waysout.search.space import Matrix, Space

_OBJECTIVES = 4
# Of more known rows, so many spread over them all: measuring each child against 30,000 would take
# longer than all else.
_OBSERVED = 2000
_ROUNDS = 10  # of breeding, to fill a generation with rows that were not asked


@dataclass(frozen=True)
class Moc(Method):
    """Keeps the ``population`` best rows by NSGA-II and breeds as many anew.

    Two parents are crossed with the chance ``crossover``, in each feature with the chance
    ``crossover_feature``; a child is mutated with the chance ``mutation``, in each feature with the
    chance ``mutation_feature``, and each of its features then goes back to the query's value with
    the chance ``reset``. The defaults are those that the authors' package was tuned to. Rows that
    miss the goal by more than ``epsilon`` come after all others; 1 treats all alike, as published.
    """

    name: ClassVar[str] = "moc"
    about: ClassVar[str] = "MOC: four objectives at once, by NSGA-II of the package pymoo"
    needs_known: ClassVar[bool] = True

    population: int = least(4, 20)
    crossover: float = within(0, 1, 0.71)
    crossover_feature: float = within(0, 1, 0.62)
    mutation: float = within(0, 1, 0.73)
    mutation_feature: float = within(0, 1, 0.5)
    reset: float = within(0, 1, 0.4)
    epsilon: float = within(0, 1, 1.0)

    def prepare(self) -> None:
        """Raise `MissingExtra` where pymoo is not installed."""
        try:
            import pymoo  # noqa: F401
        except ImportError:
            raise MissingExtra("pymoo", "moc") from None

    def start(self, case: Case) -> Search:
        """Return a search whose draws follow from the seed and the query."""
        known = need_known(case.known, "the method 'moc'")
        return _MocSearch(case.with_row_limit(), known, self)


class _MocSearch(RowBatches):
    def __init__(self, case: Case, known: Known, method: Moc) -> None:
        super().__init__(case, method.population)
        self._method = method
        self._seen = encoded(known, case.problem.schema)
        self._observed = self._seen[:: -(-len(self._seen) // _OBSERVED) or 1]
        self._space = Space(case.problem, case.query)
        self._genes = Genes(self._space, self._seen)
        self._rng = case.generator()
        self._nsga: Any = None
        self._generation: Any = None
        self._rows_bred: list[Row] = []

    @property
    def thinks(self) -> bool:
        """Whether `ask` may take long: pymoo is loaded by the first."""
        return True

    def _batch(self, most: int) -> list[Candidate]:
        if not self._space.levers:
            return []
        if self._nsga is None:
            first = self._new(lambda count: self._genes.drawn(count, self._rng), self._size)
            self._nsga = self._started(first) if len(first) else None
        self._generation = None if self._nsga is None else self._nsga.ask()
        if self._generation is None:
            return []
        self._rows_bred = self._genes.rows(self._generation.get("X"))
        return self._candidates(self._rows_bred, most)

    def _nothing_left(self) -> str:
        if not self._space.levers:
            return "no feature may change"
        return "neither breeding nor mutation gave anything new that the rules allow"

    def _learn(
        self, batch: Sequence[Candidate], chances: Sequence[float], valid: Sequence[bool]
    ) -> None:
        from pymoo.core.evaluator import Evaluator
        from pymoo.problems.static import StaticProblem

        worth, missed_by = self.case.problem.goal.worth, dict[Row, float]()
        for candidate, chance, is_valid in zip(batch, chances, valid, strict=True):
            missed_by[candidate.row] = 0.0 if is_valid else 1.0 - worth(chance)
        # A budget that ends within a generation leaves its last rows without an answer.
        answered = [i for i, row in enumerate(self._rows_bred) if row in missed_by]
        generation, rows = self._generation[answered], [self._rows_bred[i] for i in answered]
        missed = np.array([missed_by[row] for row in rows])
        problem = StaticProblem(
            self._nsga.problem,
            F=np.round(self._objectives(rows, missed), DECIMALS),
            G=np.round(missed - self._method.epsilon, DECIMALS)[:, None],
        )
        Evaluator().eval(problem, generation)
        self._nsga.tell(infills=generation)

    def _objectives(self, rows: Sequence[Row], missed: Matrix) -> Matrix:
        problem, query = self.case.problem, self.case.query
        matrix = problem.schema.encode(rows)
        to_known = np.zeros(len(rows))
        if len(self._observed):
            between = problem.distance.between
            to_known = np.array([between(row, self._observed).min() for row in matrix])
        changes = [problem.rules.count_changes(query, row) for row in rows]
        return np.column_stack([missed, self._space.distances(matrix), changes, to_known])

    # Breeding -----------------------------------------------------------------------------------

    def _started(self, first: Matrix) -> Any:
        """Return NSGA-II with its first generation."""
        from pymoo.algorithms.moo.nsga2 import NSGA2
        from pymoo.config import Config
        from pymoo.core.problem import Problem
        from pymoo.core.termination import NoTermination

        Config.warnings["not_compiled"] = False  # it would be printed
        genes = self._genes
        problem = Problem(
            n_var=len(genes.home), n_obj=_OBJECTIVES, n_ieq_constr=1, xl=genes.low, xu=genes.high
        )
        nsga = NSGA2(
            pop_size=self._size, sampling=first, mating=_Mating(self), eliminate_duplicates=False
        )
        nsga.setup(problem, seed=int(self._rng.integers(2**32)))
        nsga.termination = NoTermination()
        return nsga

    def _new(self, make: Any, count: int) -> Matrix:
        """Return up to ``count`` made by ``make``, as the rules leave them, that are new rows."""
        found = dict[Row, None]()
        for _ in range(_ROUNDS):
            for row in self._genes.rows(self._genes.rounded(make(max(count - len(found), 2)))):
                known = row in self._asked_rows or row == self.case.query
                if not known and not self.case.problem.violations(self.case.query, row):
                    found[row] = None
            if len(found) >= count:
                break
        return self._genes.of_rows(list(found)[:count])


class _Mating:
    """Makes children, with the interface that pymoo expects."""

    def __init__(self, search: _MocSearch) -> None:
        from pymoo.algorithms.moo.nsga2 import binary_tournament
        from pymoo.operators.crossover.sbx import SBX
        from pymoo.operators.crossover.ux import UX
        from pymoo.operators.selection.tournament import TournamentSelection

        self._search, method = search, search._method
        self._select = TournamentSelection(func_comp=binary_tournament)
        self._cross = (
            SBX(prob=method.crossover, prob_var=method.crossover_feature),
            UX(prob=method.crossover),
        )

    def do(
        self, problem: Any, pop: Any, n_offsprings: int, *, algorithm: Any, random_state: Any
    ) -> Any:
        """Return a population of children that were not asked yet."""
        from pymoo.core.population import Population

        method, genes = self._search._method, self._search._genes

        def bred(count: int) -> Matrix:
            parents = self._select(problem, pop, -(-count // 2), n_parents=2,
                                   algorithm=algorithm, random_state=random_state)  # fmt: skip
            blended, swapped = (
                cross(problem, parents, random_state=random_state).get("X") for cross in self._cross
            )
            children = np.where(genes.is_choice, swapped, blended)
            return genes.mutated(children, method, random_state)

        return Population.new("X", self._search._new(bred, n_offsprings))


class Genes:
    """The levers as variables of pymoo, the query at ``home``.

    A number stands for itself; anything else is the index among the values it may take, the present
    one first. A number that is missing in the query is at home below all that it may become.
    """

    def __init__(self, space: Space, seen: Matrix) -> None:
        self._space = space
        self._codes: list[Matrix | None] = []
        low, high, home, spread = (list[float]() for _ in range(4))
        for column, lever in space.levers.items():
            choices, values = lever.choices(), seen[:, column]
            if choices is None:
                lowest, highest = observed_range(lever, values)
                present, own = values[~np.isnan(values)], float(space.start[column])
                deviation = float(np.std(present)) if len(present) else 0.0
                spread.append(deviation or (highest - lowest) / 4 or 1.0)
                # Half a last digit lower: no value rounded to the feature's grid is taken for home.
                missing = round(lowest - spread[-1], DECIMALS) - 0.5 * 10**-DECIMALS
                home.append(missing if np.isnan(own) else own)
                low.append(min(lowest, home[-1]))
                high.append(max(highest, home[-1]))
                self._codes.append(None)
            else:
                encode = lever.feature.encode
                self._codes.append(np.array([encode(value) for value in (lever.now, *choices)]))
                low.append(0.0)
                high.append(float(len(choices)))
                home.append(0.0)
                spread.append(0.0)
        self.low, self.high, self.home = np.array(low), np.array(high), np.array(home)
        self._spread = np.array(spread)
        self.is_choice: NDArray[np.bool_] = np.array([c is not None for c in self._codes])

    def drawn(self, count: int, rng: np.random.Generator) -> Matrix:
        """Draw a first generation: each row moves some levers, every number of them as likely."""
        most = rng.integers(len(self.home), size=(count, 1))
        places = np.argsort(rng.random((count, len(self.home))), axis=1)
        found: Matrix = np.where(places <= most, self._anywhere(count, rng), self.home)
        return found

    def _anywhere(self, count: int, rng: np.random.Generator) -> Matrix:
        shares = rng.random((count, len(self.home)))
        wide = self.high - self.low + self.is_choice
        found: Matrix = self.low + shares * wide
        return np.where(self.is_choice, np.minimum(np.floor(found), self.high), found)

    def mutated(self, children: Matrix, method: Moc, rng: np.random.Generator) -> Matrix:
        """Move some numbers, redraw some of the rest, and put some features back."""
        shape = children.shape
        moved = np.clip(children + rng.standard_normal(shape) * self._spread, self.low, self.high)
        moved = np.where(self.is_choice, self._anywhere(len(children), rng), moved)
        chosen = rng.random(shape) < method.mutation_feature
        found = np.where(chosen, moved, children)
        found = np.where(rng.random(shape) < method.reset, self.home, found)
        mutants = rng.random((len(children), 1)) < method.mutation
        result: Matrix = np.where(mutants, found, children)
        return result

    def rounded(self, points: Matrix) -> Matrix:
        """Return points without the last digits, which differ from processor to processor."""
        found: Matrix = np.where(points == self.home, points, np.round(points, DECIMALS))
        return found

    def rows(self, points: Matrix) -> list[Row]:
        """Return points as typed rows that keep the rules, where any do."""
        matrix = np.tile(self._space.start, (len(points), 1))
        for place, (column, codes) in enumerate(zip(self._space.levers, self._codes, strict=True)):
            values = points[:, place]
            if codes is not None:
                matrix[:, column] = codes[np.rint(values).astype(np.intp)]
            else:
                stays = values == self.home[place]
                matrix[:, column] = np.where(stays, self._space.start[column], values)
        return self._space.rows(matrix)

    def of_rows(self, rows: Sequence[Row]) -> Matrix:
        """Return typed rows as points."""
        matrix = self._space.problem.schema.encode(rows)
        points = np.tile(self.home, (len(rows), 1))
        for place, (column, codes) in enumerate(zip(self._space.levers, self._codes, strict=True)):
            values = matrix[:, column]
            if codes is None:
                points[:, place] = np.where(np.isnan(values), self.home[place], values)
            else:
                index = {code: number for number, code in enumerate(codes.tolist())}
                points[:, place] = [index.get(value, 0) for value in values.tolist()]
        return points
