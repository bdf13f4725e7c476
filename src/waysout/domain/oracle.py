"""What an oracle is: rows in, an answer for each out. Adapters live in `waysout.oracles`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from waysout.domain.schema import Row
from waysout.errors import InputError


@dataclass(frozen=True, slots=True)
class Answers:
    """What the model says of a batch of rows, in the order they were asked.

    ``probability`` is the chance of the wanted class (1.0 or 0.0 where the model gives labels
    only); ``decision`` is the model's own verdict: the wanted class wins.
    """

    probability: NDArray[np.float64]
    decision: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.probability)


class Oracle(Protocol):
    """A black box that answers for batches of rows. It knows no budget and no goal."""

    @property
    def name(self) -> str:
        """A short name for logs and reports."""
        ...

    @property
    def labels_only(self) -> bool:
        """Whether the model tells yes from no but gives no probability."""
        ...

    def ask(self, rows: Sequence[Row]) -> Answers:
        """Answer for each row, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Goal:
    """What counts as a yes.

    The plain goal is the model's own decision. ``at_least``/``at_most`` ask for a probability in an
    interval instead, and ``rise`` for a probability that much above the query's.

    >>> Goal(rise=0.25).for_query(0.5)
    Goal(at_least=0.75, at_most=None, rise=None)
    """

    at_least: float | None = None
    at_most: float | None = None
    rise: float | None = None

    def __post_init__(self) -> None:
        for name in ("at_least", "at_most", "rise"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= 1.0:
                raise InputError(f"goal: {name} is a probability from 0 to 1, not {value!r}")
        if self.rise is not None and (self.at_least, self.at_most) != (None, None):
            raise InputError("goal: set either rise or an interval, not both")
        if None not in (self.at_least, self.at_most) and self.at_least > self.at_most:  # type: ignore[operator]
            raise InputError(f"goal: the interval [{self.at_least}, {self.at_most}] is empty")

    @property
    def needs_probability(self) -> bool:
        """Whether a model that gives labels only cannot serve this goal."""
        return (self.at_least, self.at_most, self.rise) != (None, None, None)

    def for_query(self, probability: float) -> Goal:
        """Return the goal with ``rise`` resolved against the query's own probability."""
        if self.rise is None:
            return self
        return Goal(at_least=min(1.0, probability + self.rise))

    def threshold(self, usual: float) -> float:
        """Return the least worth that is a yes: ``usual``, unless the goal names one."""
        if self.at_least is None:
            return usual if self.at_most is None else 1.0 - self.at_most
        return self.at_least

    def worth(self, probability: float) -> float:
        """Return how good a probability is for this goal, the higher the better.

        Where only less is asked for, less is better; within an interval, it falls again beyond it.

        >>> Goal().worth(0.9), Goal(at_most=0.25).worth(0.75), Goal(0.5, 0.75).worth(1.0)
        (0.9, 0.25, 0.5)
        """
        if self.at_most is None:
            return probability
        if self.at_least is None:
            return 1.0 - probability
        return probability if probability <= self.at_most else 2 * self.at_most - probability

    def met(self, answers: Answers) -> NDArray[np.bool_]:
        """Return which of the answers are a yes."""
        if not self.needs_probability:
            return answers.decision
        if self.rise is not None:
            raise InputError("goal: rise must be resolved with for_query before it is asked")
        met = answers.probability >= (0.0 if self.at_least is None else self.at_least)
        return met & (answers.probability <= (1.0 if self.at_most is None else self.at_most))
