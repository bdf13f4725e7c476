"""Surrogates: guesses of the oracle's answer to a combination, learned from its other answers.

A surrogate learns logits, counted from the query's own, and gives several guesses for each
combination. They differ as much as it is unsure: the mean of the chances that follow from them is a
fair chance, and one alone is a bold bet (Thompson sampling). `LogitScale` translates between the
oracle's probabilities, logits and chances.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from waysout.errors import MissingExtra
from waysout.search.base import Case
from waysout.search.library import Combos, EditLibrary, Matrix

Kind = Literal["linear", "pairwise", "trees", "none"]
Guess = Callable[[Combos], Matrix]
"""Combinations in; a row of guesses for each out."""

# How far the oracle strays from a sum of effects, in logits.
_NOISE = 0.25
# Pairs beyond these would make the model too wide to be solved between two batches.
_MOST_PAIRED = 24
_PAIR = 0.1
_TREES = 16

_SOFTNESS = 0.4  # of the step from no to yes, in logits
_CERTAIN, _LABEL = 0.005, 0.12  # how near to 0 and 1 a probability, and a mere label, are taken
_FINEST = 1e-6  # the same for a probability where the goal itself is as near


class Surrogate(ABC):
    """Learns from the oracle's answers."""

    def __init__(self, library: EditLibrary) -> None:
        self.library = library

    @abstractmethod
    def learn(self, combos: Combos, logits: Matrix) -> None:
        """Learn how far each combination moved the logit from the query's."""

    @abstractmethod
    def guess(self, draws: int, rng: np.random.Generator) -> Guess:
        """Return a function that makes ``draws`` guesses; with 0 draws, the mean alone."""


class NoSurrogate(Surrogate):
    """Expects nothing."""

    def learn(self, combos: Combos, logits: Matrix) -> None:
        """Learn nothing."""

    def guess(self, draws: int, rng: np.random.Generator) -> Guess:
        """Guess that nothing changes."""
        return lambda combos: np.zeros((len(combos), 1))


class LinearSurrogate(Surrogate):
    """Adds up the effects of the edits: Bayesian linear regression on the library's effects.

    Columns are added as the library grows; nothing that was asked before had them.
    """

    def __init__(self, library: EditLibrary) -> None:
        super().__init__(library)
        self._prior: list[float] = []
        self._effects: list[int] = []  # the column of each effect
        self._precision: Matrix = np.zeros((0, 0))
        self._moment: Matrix = np.zeros(0)

    def learn(self, combos: Combos, logits: Matrix) -> None:
        """Update the sums that the posterior is made of."""
        self._grow()
        design = self._design(combos)
        self._precision += design.T @ design / _NOISE**2
        self._moment += design.T @ logits / _NOISE**2

    def guess(self, draws: int, rng: np.random.Generator) -> Guess:
        """Draw effects from the posterior."""
        self._grow()
        factor = np.linalg.cholesky(self._precision + np.diag(1.0 / np.array(self._prior)))
        centre = np.linalg.solve(factor, self._moment)[:, None]
        noise = rng.standard_normal((len(factor), draws)) if draws else 0.0
        # The mean and what the draws add to it are solved for together.
        weights: Matrix = np.linalg.solve(factor.T, centre + noise)
        tables = self.library.tables
        each = tables.effects @ weights[self._effects]

        def guesses(combos: Combos) -> Matrix:
            sums: Matrix = each[tables.places(combos)].sum(axis=1)
            return sums + self._together(combos, weights)

        return guesses

    def _design(self, combos: Combos) -> Matrix:
        tables = self.library.tables
        design = np.zeros((len(combos), len(self._prior)))
        design[:, self._effects] = tables.effects[tables.places(combos)].sum(axis=1)
        return design

    def _together(self, combos: Combos, weights: Matrix) -> Matrix | float:
        """Return what edits do together beyond their sum."""
        return 0.0

    def _grow(self) -> None:
        for variance in self.library.prior[len(self._effects) :]:
            self._effects.append(self._column(variance))
        missing = len(self._prior) - len(self._moment)
        self._precision = np.pad(self._precision, (0, missing))
        self._moment = np.pad(self._moment, (0, missing))

    def _column(self, variance: float) -> int:
        self._prior.append(variance)
        return len(self._prior) - 1


class PairwiseSurrogate(LinearSurrogate):
    """Adds to that an effect for every two levers that are moved together."""

    def __init__(self, library: EditLibrary) -> None:
        super().__init__(library)
        self._pairs: list[tuple[int, int]] = []
        self._pair_columns: list[int] = []

    def _grow(self) -> None:
        paired = min(len(self.library.slots), _MOST_PAIRED)
        known = max((second + 1 for _, second in self._pairs), default=1)
        for second in range(known, paired):
            self._pairs += [(first, second) for first in range(second)]
            self._pair_columns += [self._column(_PAIR) for _ in range(second)]
        super()._grow()

    def _design(self, combos: Combos) -> Matrix:
        design = super()._design(combos)
        design[:, self._pair_columns] = self._moved_together(combos)
        return design

    def _together(self, combos: Combos, weights: Matrix) -> Matrix | float:
        together: Matrix = self._moved_together(combos) @ weights[self._pair_columns]
        return together

    def _moved_together(self, combos: Combos) -> Matrix:
        moved = (combos > 0).astype(np.float64)
        first, second = np.array(self._pairs, dtype=np.int64).reshape(-1, 2).T
        both: Matrix = moved[:, first] * moved[:, second]
        return both


class TreesSurrogate(Surrogate):
    """Small randomised trees over the levers' values; each tree is one guess."""

    def __init__(self, library: EditLibrary) -> None:
        super().__init__(library)
        self._combos: list[Combos] = []
        self._logits: list[Matrix] = []

    def learn(self, combos: Combos, logits: Matrix) -> None:
        """Keep the answers; the trees are grown when a guess is wanted."""
        self._combos.append(combos)
        self._logits.append(logits)

    def guess(self, draws: int, rng: np.random.Generator) -> Guess:
        """Grow trees on all answers so far, with the query itself among them."""
        try:
            from sklearn.ensemble import ExtraTreesRegressor
        except ImportError as error:
            raise MissingExtra("scikit-learn", "sklearn") from error
        width = len(self.library.slots)
        asked = [np.pad(c, ((0, 0), (0, width - c.shape[1]))) for c in self._combos]
        combos = np.concatenate([np.zeros((1, width), dtype=np.int64), *asked])
        logits = np.concatenate([np.zeros(1), *self._logits])
        seed = int(rng.integers(2**31))
        forest = ExtraTreesRegressor(draws or _TREES, bootstrap=True, random_state=seed)
        forest.fit(self._placed(combos), logits)

        def guesses(combos: Combos) -> Matrix:
            places = self._placed(combos)
            each = np.array([tree.predict(places) for tree in forest.estimators_])
            return each.T if draws else each.mean(axis=0)[:, None]

        return guesses

    def _placed(self, combos: Combos) -> NDArray[np.float32]:
        """Return the position of each lever, the numbers that a tree can split."""
        tables = self.library.tables
        return tables.position[tables.places(combos)].astype(np.float32)


_KINDS: dict[Kind, type[Surrogate]] = {
    "linear": LinearSurrogate,
    "pairwise": PairwiseSurrogate,
    "trees": TreesSurrogate,
    "none": NoSurrogate,
}


def surrogate(kind: Kind, library: EditLibrary) -> Surrogate:
    """Return a surrogate by name, for one library."""
    return _KINDS[kind](library)


class LogitScale:
    """Turns the oracle's answers into logits, on which effects add up, and back into chances."""

    def __init__(self, case: Case) -> None:
        goal = self._goal = case.problem.goal
        yes, here = goal.threshold(0.5), goal.worth(case.probability)
        # How near to 0 and 1 probabilities are kept apart: beyond where the yes begins.
        ends = (end / 10 for end in (yes, 1.0 - yes, 1.0 - max(yes, here)))
        self._least = max(_FINEST, min(_CERTAIN, *ends))
        if case.problem.oracle.labels_only:
            self._least = _LABEL
        # The end of an interval goal, beyond which it is a no again. There the logit is that of the
        # probability itself: its worth falls again, and no sum of effects would follow that.
        self.end: float | None = None
        if goal.at_least is not None and goal.at_most is not None:
            self.end = self._logit(goal.at_most)
        self.start = self.logit_of(case.probability)
        """The query's own logit."""
        self._yes = self._logit(yes)
        self._highest_no, self._lowest_yes = -math.inf, math.inf

    def logit(self, probability: float, yes: bool) -> float:
        """Return an answer's logit, and learn from it where a no becomes a yes."""
        found = self.logit_of(probability)
        if yes:
            self._lowest_yes = min(self._lowest_yes, found)
        else:
            self._highest_no = max(self._highest_no, found)
        return found

    @property
    def border(self) -> float:
        """Where a no becomes a yes, as far as is known."""
        if self.end is not None:
            return self._yes  # a no beyond the end says nothing about where the yes begins
        if self._highest_no < self._lowest_yes:  # a model of several classes may decide elsewhere
            return min(max(self._yes, self._highest_no), self._lowest_yes)
        return self._yes

    def chances(self, logits: Matrix) -> Matrix:
        """Return the chance of a yes at each logit."""
        chances = _rises(logits - self.border)
        return chances if self.end is None else chances * _rises(self.end - logits)

    def logit_of(self, probability: float) -> float:
        """Return the logit of a probability."""
        return self._logit(probability if self.end is not None else self._goal.worth(probability))

    def _logit(self, worth: float) -> float:
        inside = min(max(worth, self._least), 1.0 - self._least)
        return math.log(inside / (1.0 - inside))


def _rises(logits: Matrix) -> Matrix:
    chances: Matrix = 1.0 / (1.0 + np.exp(-logits / _SOFTNESS))
    return chances
