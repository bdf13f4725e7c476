"""Rewards: how good an evaluated candidate is for the search that goes on from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from waysout.domain.distance import gate, proximity, simplicity
from waysout.errors import InputError, shown, unknown

GATE_THRESHOLD = 0.5
GATE_SOFTNESS = 0.1
SELF_CONSISTENCY = 0.3


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about a candidate when it is rewarded.

    ``probability`` is its chance with the oracle, ``distance`` and ``changes`` are from the query,
    ``novelty`` is its score against the options found before it. ``gain`` is its ΔC where that was
    computed, ``agreement`` the share of the edits proposed at its parent that equal its own.
    """

    probability: float
    approved: bool
    distance: float
    changes: int
    novelty: float
    gain: float | None = None
    agreement: float = 0.0


Reward = Callable[[Evidence], float]


@dataclass(frozen=True, slots=True)
class Weights:
    """The multi-objective reward: a soft gate times the weighted mean of four scores.

    >>> sure = Evidence(probability=1.0, approved=True, distance=1.0, changes=1, novelty=1.0)
    >>> round(Weights(1, 1, 1, 1)(sure), 4)  # gate(1) · (1 + 1/2 + 1/2 + 1) / 4
    0.745
    """

    validity: float
    proximity: float
    sparsity: float
    novelty: float
    threshold: float = GATE_THRESHOLD
    softness: float = GATE_SOFTNESS

    def __post_init__(self) -> None:
        weights = (self.validity, self.proximity, self.sparsity, self.novelty)
        if not (all(0 <= w < 1e9 for w in weights) and sum(weights) > 0):
            raise InputError(f"reward weights are numbers of 0 or more, not all 0; not {weights}")
        if not (0 <= self.threshold <= 1 and self.softness > 0):
            raise InputError(
                f"the gate's threshold lies from 0 to 1 and its softness above 0, not at "
                f"{self.threshold} and {self.softness}"
            )

    def __call__(self, evidence: Evidence) -> float:
        """Return the reward, between 0 and 1."""
        total = self.validity + self.proximity + self.sparsity + self.novelty
        scores = (
            self.validity * evidence.probability
            + self.proximity * proximity(evidence.distance)
            + self.sparsity * simplicity(evidence.changes)
            + self.novelty * evidence.novelty
        )
        return gate(evidence.probability, self.threshold, self.softness) * scores / total


@dataclass(frozen=True, slots=True)
class Baseline:
    """The paper's BASELINE: 1 if approved, else at most a half for novelty.

    ``0.5 · min(min(max(ΔC, 0), 2s) / s, 1)``, and 0 where no gain is known.

    >>> no = Evidence(probability=0.2, approved=False, distance=1.0, changes=1, novelty=1.0)
    >>> Baseline()(no)
    0.0
    """

    scale: float = 1.0

    def __call__(self, evidence: Evidence) -> float:
        """Return the reward, between 0 and 1."""
        if evidence.approved:
            return 1.0
        if evidence.gain is None:
            return 0.0
        clipped = min(max(evidence.gain, 0.0), 2.0 * self.scale)
        return 0.5 * min(clipped / self.scale, 1.0)


@dataclass(frozen=True, slots=True)
class SelfConsistency:
    """LATS: 1 if approved, and a bonus for edits that the LLM proposes repeatedly."""

    bonus: float = SELF_CONSISTENCY

    def __call__(self, evidence: Evidence) -> float:
        """Return the reward."""
        return float(evidence.approved) + self.bonus * evidence.agreement


PRESETS: Mapping[str, tuple[float, float, float, float]] = {
    "balanced": (1.0, 0.5, 0.5, 0.2),
    "validity": (2.0, 0.3, 0.3, 0.1),
    "quality": (1.0, 1.0, 1.0, 0.3),
    "diversity": (1.0, 0.5, 0.5, 1.0),
    "equal": (1.0, 1.0, 1.0, 1.0),
}
BASELINE = "baseline"


def reward(name: str, threshold: float = GATE_THRESHOLD, softness: float = GATE_SOFTNESS) -> Reward:
    """Return a reward by name, or by its four weights: ``"1,0.5,0.5,0.2"``."""
    if name == BASELINE:
        return Baseline()
    try:
        weights = PRESETS.get(name) or tuple(float(part) for part in name.split(","))
    except ValueError:
        raise InputError(
            f"{unknown('reward', name, [BASELINE, *PRESETS])}, or four weights such as 1,0.5,0.5,1"
        ) from None
    if len(weights) != 4:
        raise InputError(
            f"a reward has four weights (validity, proximity, sparsity, novelty), not "
            f"{len(weights)}: {shown(name)}"
        )
    validity, near, few, new = weights
    return Weights(validity, near, few, new, threshold, softness)
