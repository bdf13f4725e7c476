"""The scale a surrogate learns on: logits, on which effects add up, and back to chances."""

from __future__ import annotations

import math

import numpy as np

from waysout.search.base import Case
from waysout.search.library import Matrix

_SOFTNESS = 0.4  # of the step from no to yes, in logits
_CERTAIN, _LABEL = 0.005, 0.12  # how near to 0 and 1 a probability, and a mere label, are taken
_FINEST = 1e-6  # a probability, where the goal itself is as near


class LogitScale:
    """Turns the oracle's answers into logits, on which effects add up, and back into chances."""

    def __init__(self, case: Case) -> None:
        self._goal = case.problem.goal
        self._least = _LABEL if case.problem.oracle.labels_only else self._finest(case.probability)
        self._high = self._upper_end()
        self.start = self._logit_of(case.probability)
        """The query's own logit."""
        self._yes = self._logit(self._goal.threshold(0.5))
        self._highest_no, self._lowest_yes = -math.inf, math.inf

    def logit(self, probability: float, yes: bool) -> float:
        """Return an answer's logit, and learn from it where a no becomes a yes."""
        found = self._logit_of(probability)
        if yes:
            self._lowest_yes = min(self._lowest_yes, found)
        else:
            self._highest_no = max(self._highest_no, found)
        return found

    def chances(self, logits: Matrix) -> Matrix:
        """Return the chance of a yes at each logit."""
        if self._high is not None:
            return _rises(logits - self._yes) * _rises(self._high - logits)
        return _rises(logits - self._border)

    @property
    def _border(self) -> float:
        """Where a no becomes a yes; a model of several classes may decide elsewhere than at ½."""
        if self._highest_no >= self._lowest_yes:
            return self._yes
        return min(max(self._yes, self._highest_no), self._lowest_yes)

    def _finest(self, probability: float) -> float:
        """Return how near to 0 and 1 probabilities are told apart: beyond what is a yes."""
        yes, here = self._goal.threshold(0.5), self._goal.worth(probability)
        ends = (yes, 1.0 - yes, 1.0 - max(yes, here))
        return max(_FINEST, min(_CERTAIN, *(end / 10 for end in ends)))

    def _upper_end(self) -> float | None:
        """Return beyond which logit it is a no again, where the goal is an interval."""
        low, high = self._goal.at_least, self._goal.at_most
        return None if low is None or high is None else self._logit(high)

    def _logit_of(self, probability: float) -> float:
        # Within an interval, worth falls again beyond the end: no sum of effects would follow it.
        worth = probability if self._high is not None else self._goal.worth(probability)
        return self._logit(worth)

    def _logit(self, worth: float) -> float:
        inside = min(max(worth, self._least), 1.0 - self._least)
        return math.log(inside / (1.0 - inside))


def _rises(logits: Matrix) -> Matrix:
    chances: Matrix = 1.0 / (1.0 + np.exp(-logits / _SOFTNESS))
    return chances
