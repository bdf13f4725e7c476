"""What an oracle is: rows in, an answer for each out. Adapters live in `waysout.oracles`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from waysout.domain.schema import Row
from waysout.errors import InputError

_EVEN = 0.5  # what a model's own decision asks for, as a rule


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
    interval instead, and ``rise`` for a probability that much above the query's. ``safer`` are
    higher probabilities that each way is pushed to as well, where that can be done.

    >>> import waysout
    >>> waysout.Goal(rise=0.25).for_query(0.5)
    Goal(at_least=0.75, at_most=None, rise=None, safer=())
    """

    at_least: float | None = None
    at_most: float | None = None
    rise: float | None = None
    safer: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        given = [(name, getattr(self, name)) for name in ("at_least", "at_most", "rise")]
        for name, value in [*given, *(("safer", level) for level in self.safer)]:
            if value is not None and not 0.0 <= value <= 1.0:
                raise InputError(f"goal: {name} is a probability from 0 to 1, not {value!r}")
        if self.safer and self.at_most is not None:
            raise InputError("goal: a probability of at most something has nothing safer above it")
        object.__setattr__(self, "safer", tuple(sorted(set(self.safer))))
        if self.safer and self.at_least is not None and self.safer[0] <= self.at_least:
            raise InputError(
                f"goal: {self.safer[0]} is not safer than the {self.at_least} asked for anyway"
            )
        if self.rise is not None and (self.at_least, self.at_most) != (None, None):
            raise InputError("goal: set either rise or an interval, not both")
        if None not in (self.at_least, self.at_most) and self.at_least > self.at_most:  # type: ignore[operator]
            raise InputError(f"goal: the interval [{self.at_least}, {self.at_most}] is empty")

    @property
    def needs_probability(self) -> bool:
        """Whether a model that gives labels only cannot serve this goal."""
        return self.is_probability or bool(self.safer)

    @property
    def is_probability(self) -> bool:
        """Whether a yes is a probability, and not the model's own decision."""
        return (self.at_least, self.at_most, self.rise) != (None, None, None)

    @classmethod
    def of_levels(cls, levels: Iterable[float]) -> Goal:
        """Return the goal of a yes, and besides of each of some probabilities above it.

        One that the model's own decision includes, 0.5 or less, takes its place.

        >>> Goal.of_levels([0.9, 0.8]).safer, Goal.of_levels([0.3, 0.8])
        ((0.8, 0.9), Goal(at_least=0.3, at_most=None, rise=None, safer=(0.8,)))
        """
        goal = cls(safer=tuple(levels))
        if goal.safer and goal.safer[0] <= _EVEN:
            return cls(at_least=goal.safer[0], safer=goal.safer[1:])
        return goal

    def for_query(self, probability: float, approved: bool = False) -> Goal:
        """Return the goal of one query, given what the model says of it.

        ``rise`` becomes a probability. Where the query is a yes already, what is left to reach is
        the next safer level.
        """
        risen = None if self.rise is None else min(1.0, probability + self.rise)
        at_least = self.at_least if risen is None else risen
        above = tuple(level for level in self.safer if level > max(probability, at_least or 0))
        met = approved if at_least is None else probability >= at_least
        if met and above:
            return Goal(at_least=above[0], safer=above[1:])
        return Goal(at_least=at_least, at_most=self.at_most, safer=above)

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
        if not self.is_probability:
            return answers.decision
        if self.rise is not None:
            raise InputError("goal: rise must be resolved with for_query before it is asked")
        met = answers.probability >= (0.0 if self.at_least is None else self.at_least)
        return met & (answers.probability <= (1.0 if self.at_most is None else self.at_most))
