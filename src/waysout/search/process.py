"""A Gaussian process over moves: what the oracle's answers say about combinations not yet asked.

It works on logits, counted from the query's own. Two combinations share, for each lever that both
move in the same direction, a constant and a part that grows with the smaller of the two steps (a
random walk over steps); levels of a category share a constant, and more where they are the same.
The mean is that of the students, where there are any, and how far each of them can be trusted is
learned too. So is the size of what they leave unexplained.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from waysout.search.steps import LEVEL, StepMoves

Matrix = NDArray[np.float64]

# Variances in squared logits: of moving a lever at all, of a full step, of one level beside the
# others, and of what is nobody's effect.
MOVE, WALK, OWN_LEVEL, NOISE = 0.1, 3.0, 1.0, 0.02
# Students leave less to explain. What they agree on may count for more or less than they say, and
# so may how far each is from that.
TAUGHT, AGREED, APART = 0.15, 0.1, 0.3
_BELIEF = 12.0  # answers that the prior size of the unexplained counts for


class MoveProcess:
    """What is known after some answers. Logits are counted from the query's own."""

    def __init__(self, moves: StepMoves, students: Matrix, logits: Matrix) -> None:
        self._moves = moves[:0]
        self._opinions = _opinions(students[:0])
        self._left = np.zeros(0)
        self._factor = np.zeros((0, 0))  # of the covariance's inverse
        self._weights = np.zeros(0)
        self._size = 1.0
        self.learn(moves, students, logits)

    def __len__(self) -> int:
        return len(self._left)

    def learn(self, moves: StepMoves, students: Matrix, logits: Matrix) -> None:
        """Take in answers."""
        if not len(moves):
            return
        opinions = _opinions(students)
        left = logits - students.mean(axis=1) if students.shape[1] else logits
        before = self._moves.padded(moves.way.shape[1])
        shared = _covariance(before, moves, self._opinions, opinions)
        own = _covariance(moves, moves, opinions, opinions)
        own[np.diag_indices_from(own)] += NOISE
        # The inverse of the Cholesky factor is grown by the new rows: factoring the whole anew for
        # every few answers would take most of a search's time.
        known = self._factor @ shared
        corner = np.linalg.inv(np.linalg.cholesky(own - known.T @ known))
        side = -corner @ known.T @ self._factor
        above = np.zeros((len(self._factor), len(corner)))
        self._factor = np.block([[self._factor, above], [side, corner]])
        self._moves = before.joined(moves)
        self._opinions = np.concatenate([self._opinions, opinions])
        self._left = np.concatenate([self._left, left])
        surprise = self._factor @ self._left
        self._weights = self._factor.T @ surprise
        self._size = (_BELIEF + float(surprise @ surprise)) / (_BELIEF + len(self._left))

    def guess(self, moves: StepMoves, students: Matrix) -> tuple[Matrix, Matrix]:
        """Return the mean and the variance of each combination."""
        opinions = _opinions(students)
        mean = students.mean(axis=1) if students.shape[1] else np.zeros(len(moves))
        own = _variance(moves, opinions)
        if not len(self):
            return mean, own
        shared = _covariance(moves, self._moves, opinions, self._opinions)
        known = shared @ self._factor.T
        left = own - np.einsum("ij,ij->i", known, known)
        return mean + shared @ self._weights, self._size * np.maximum(left, 1e-6)


def _covariance(one: StepMoves, other: StepMoves, opinions: Matrix, others: Matrix) -> Matrix:
    """Return how much each combination of one array shares with each of another."""
    taught = TAUGHT if opinions.shape[1] else 1.0
    shared: Matrix = opinions @ others.T
    for slot in range(one.way.shape[1]):
        for way in np.unique(other.way[:, slot]):
            here = np.flatnonzero(one.way[:, slot] == way)
            if way < 0 or not len(here):
                continue
            there = np.flatnonzero(other.way[:, slot] == way)
            if way == LEVEL:
                same = one.level[here, slot][:, None] == other.level[there, slot]
                block = MOVE + OWN_LEVEL * same
            else:
                steps = np.minimum(one.at[here, slot][:, None], other.at[there, slot])
                block = MOVE + WALK * steps
            shared[np.ix_(here, there)] += taught * block
    return shared


def _variance(moves: StepMoves, opinions: Matrix) -> Matrix:
    """Return the variance of each combination before any answer."""
    alone = MOVE + np.where(moves.way == LEVEL, OWN_LEVEL, WALK * moves.at)
    found: Matrix = np.where(moves.way < 0, 0.0, alone).sum(axis=1)
    if opinions.shape[1]:
        found = TAUGHT * found + np.einsum("ij,ij->i", opinions, opinions)
    return found


def _opinions(students: Matrix) -> Matrix:
    """Return what the students agree on and how far each is from it, by how much it may count."""
    if not students.shape[1]:
        return students
    mean = students.mean(axis=1, keepdims=True)
    return np.hstack([np.sqrt(AGREED) * mean, np.sqrt(APART) * (students - mean)])
