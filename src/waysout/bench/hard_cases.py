"""Hard cases: small made-up models, each of which defeats some kind of search.

Every seed is another instance: other columns matter, thresholds lie elsewhere. The least that a
way costs is worked out by hand, so a search can be compared with the best there is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from waysout.domain.card import Card, CardOutcome
from waysout.domain.distance import Matrix
from waysout.domain.known import Known
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.rules import Linear, Rule
from waysout.domain.schema import Feature, Row, Schema, Value

KNOWN = 600
"""Rows of each made-up table whose outcome is known."""
_DRAWN = 4 * KNOWN  # the query is one of those beyond the known ones
_TOP = 100.0
_NO, _YES = 0.2, 0.8

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Edits = Mapping[str, Value]


@dataclass(frozen=True)
class KnownRows:
    """Rows and whether each was approved."""

    rows: Sequence[Row]
    labels: Sequence[bool]


@dataclass(frozen=True)
class Trial:
    """One query: the problem, the rows known, and the least a way costs (where that is known)."""

    problem: Problem
    query: Row
    known: Known
    least: float | None = None


@dataclass(frozen=True)
class World:
    """A made-up model and its table.

    ``rows`` are encoded, as `Schema.encode` does; ``chance`` is the model; ``starts`` says which
    rows may be the query, among those refused; ``best`` returns what a query's cheapest way may
    be; ``noise`` is the share of known labels that are wrong.
    """

    schema: Schema
    rows: Matrix
    chance: Callable[[Matrix], Floats]
    starts: Callable[[Matrix], Mask]
    best: Callable[[Problem, Row], list[Edits]]
    rules: tuple[Rule, ...] = ()
    labels_only: bool = False
    noise: float = 0.05


@dataclass(frozen=True)
class WorldOracle:
    """Asks a made-up model."""

    world: World
    name: str

    @property
    def labels_only(self) -> bool:
        """Whether it tells yes from no and nothing else."""
        return self.world.labels_only

    def ask(self, rows: Sequence[Row]) -> Answers:
        """Answer for each row, in order."""
        chance = self.world.chance(self.world.schema.encode(rows))
        met = chance >= 0.5
        return Answers(met.astype(np.float64) if self.labels_only else chance, met)


def make_trial(name: str, seed: int) -> Trial:
    """Return one instance of a hard case."""
    rng = np.random.default_rng([list(CASES).index(name), seed])
    world = CASES[name](rng)
    rows = world.schema.decode(world.rows)
    approved = world.chance(world.rows) >= 0.5
    labels = approved[:KNOWN] ^ (rng.random(KNOWN) < world.noise)
    places = np.flatnonzero(~approved & world.starts(world.rows))
    query = rows[places[places >= KNOWN][0]]
    card = Card(name, world.schema, CardOutcome("approved", 1, "approved", "refused"))
    problem = Problem.from_card(
        card, WorldOracle(world, name), training=rows[:KNOWN], rules=world.rules, binning="fit"
    )
    best = [problem.rules.apply(query, edits) for edits in world.best(problem, query)]
    least = float(problem.costs(query, best).min())
    return Trial(problem, query, KnownRows(rows[:KNOWN], labels.tolist()), least)


# Tables ------------------------------------------------------------------------------------------


def _numbers(count: int) -> list[Feature]:
    return [Feature(f"n{i}", "number", range=(0.0, _TOP), decimals=1) for i in range(count)]


def _category(name: str, levels: int) -> Feature:
    return Feature(name, "category", levels=tuple(f"level {i}" for i in range(levels)))


def _draw(rng: np.random.Generator, features: Sequence[Feature]) -> Matrix:
    """Draw rows whose columns are independent: even over its range, or over its levels."""
    columns = [
        np.round(rng.uniform(0.0, _TOP, _DRAWN), 1)
        if feature.is_numeric
        else rng.integers(0, len(feature.levels), _DRAWN).astype(np.float64)
        for feature in features
    ]
    return np.stack(columns, axis=1)


def _between(rng: np.random.Generator, low: float, high: float) -> float:
    return round(float(rng.uniform(low, high)), 1)


def _mixed(numbers: int) -> list[Feature]:
    return [*_numbers(numbers), _category("c0", 3), _category("c1", 4)]


# Cases -------------------------------------------------------------------------------------------


def _xor(rng: np.random.Generator) -> World:
    """Two levers must leave the middle, both to the same side; one alone changes nothing."""
    features = _mixed(8)
    i, j = rng.permutation(8)[:2].tolist()
    ends = {k: (_between(rng, 25, 40), _between(rng, 60, 75)) for k in (i, j)}

    def side(rows: Matrix, k: int) -> Floats:
        low, high = ends[k]
        return (rows[:, k] >= high).astype(np.float64) - (rows[:, k] <= low)

    def chance(rows: Matrix) -> Floats:
        both = side(rows, i) * side(rows, j)
        return np.where(both > 0, _YES, np.where(both < 0, 0.1, _NO))

    return World(
        Schema(tuple(features)), _draw(rng, features), chance,
        starts=lambda rows: (side(rows, i) == 0) & (side(rows, j) == 0),
        best=lambda problem, query: [{f"n{k}": ends[k][s] for k in (i, j)} for s in (0, 1)],
        noise=0.1,
    )  # fmt: skip


def _together(rng: np.random.Generator) -> World:
    """Two numbers must be high and a category right; one or two of the three change nothing."""
    features = _mixed(8)
    i, j = rng.permutation(8)[:2].tolist()
    high, level = {k: _between(rng, 60, 70) for k in (i, j)}, int(rng.integers(3))

    def right(rows: Matrix) -> Mask:
        return np.stack([rows[:, i] >= high[i], rows[:, j] >= high[j], rows[:, 8] == level])

    return World(
        Schema(tuple(features)), _draw(rng, features),
        chance=lambda rows: np.where(right(rows).all(axis=0), _YES, _NO),
        starts=lambda rows: right(rows).sum(axis=0) == 0,
        best=lambda problem, query: [
            {f"n{i}": high[i], f"n{j}": high[j], "c0": features[8].level_texts[level]}
        ],
        noise=0.1,
    )  # fmt: skip


def _weighted(
    rng: np.random.Generator, features: Sequence[Feature], count: int, *, labels_only: bool
) -> World:
    """A weighted sum of some numbers must reach a threshold."""
    numbers = [i for i, feature in enumerate(features) if feature.is_numeric]
    chosen = rng.permutation(numbers)[:count].tolist()
    weights = dict(zip(chosen, rng.uniform(0.5, 1.5, count) * rng.choice((-1, 1), count),
                       strict=True))  # fmt: skip
    rows = _draw(rng, features)

    def score(rows: Matrix) -> Floats:
        return sum((w * rows[:, k] for k, w in weights.items()), np.zeros(len(rows)))

    far, threshold = np.quantile(score(rows), (0.3, 0.65))
    slope = 4.0 / float(np.std(score(rows)))

    def best(problem: Problem, query: Row) -> list[Edits]:
        """Move what gains most for its cost as far as it goes, then the next."""
        short = float(threshold - score(problem.schema.encode([query]))[0])
        edits: dict[str, Value] = {}
        scales = problem.distance.scales
        for k in sorted(weights, key=lambda k: -abs(weights[k]) * scales[features[k].name]):
            if short <= 0:
                break
            up, now = weights[k] > 0, float(query[k] or 0.0)
            room = _TOP - now if up else now
            step = min(room, math.ceil(10 * short / abs(weights[k])) / 10)
            edits[features[k].name] = round(now + step if up else now - step, 1)
            short -= step * abs(weights[k])
        return [edits]

    return World(
        Schema(tuple(features)), rows,
        chance=lambda rows: 1.0 / (1.0 + np.exp(-slope * (score(rows) - threshold))),
        starts=lambda rows: score(rows) <= far,
        best=best, labels_only=labels_only,
    )  # fmt: skip


def _labels(rng: np.random.Generator) -> World:
    """A weighted sum against a threshold, of which only yes or no is told."""
    return _weighted(rng, _mixed(8), 5, labels_only=True)


def _columns(rng: np.random.Generator) -> World:
    """A hundred columns of which three matter."""
    return _weighted(rng, _numbers(100), 3, labels_only=False)


def _levels(rng: np.random.Generator) -> World:
    """A category with 200 levels of which three are a yes; nothing else matters."""
    features = [*_numbers(5), _category("c0", 4), _category("wide", 200)]
    good = rng.choice(200, 3, replace=False)
    return World(
        Schema(tuple(features)), _draw(rng, features),
        chance=lambda rows: np.where(np.isin(rows[:, 6], good), _YES, _NO),
        starts=lambda rows: np.ones(len(rows), dtype=np.bool_),
        best=lambda problem, query: [{"wide": features[6].level_texts[k]} for k in good],
        noise=0.01,
    )  # fmt: skip


def _pocket(rng: np.random.Generator) -> World:
    """A number with a narrow yes and a no beyond it; another lever, farther off, that holds."""
    features = _mixed(8)
    i, j = rng.permutation(8)[:2].tolist()
    start, high = _between(rng, 50, 60), _between(rng, 75, 85)

    def chance(rows: Matrix) -> Floats:
        beside = np.maximum(start - rows[:, i], rows[:, i] - start - 2.0)
        # Rising towards the pocket, so that every search that follows the chance is led there.
        tempting = _NO + 0.25 * np.exp(-np.maximum(beside, 0.0) / 15.0)
        return np.where((beside <= 0) | (rows[:, j] >= high), _YES, tempting)

    return World(
        Schema(tuple(features)), _draw(rng, features), chance,
        # So that the pocket is the nearer of the two, and narrower than a tenth of the way there.
        starts=lambda rows: (rows[:, i] <= 20) & (rows[:, j] <= rows[:, i] + 10),
        best=lambda problem, query: [{f"n{j}": high}],
    )  # fmt: skip


def _linear(rng: np.random.Generator) -> World:
    """Five numbers share a budget that is nearly spent; one of them must rise."""
    features = _mixed(8)
    parts = rng.permutation(8)[:5].tolist()
    rows = _draw(rng, features)
    rows[:, parts] = np.floor(10 * _TOP * rng.dirichlet(np.ones(6), _DRAWN)[:, :5]) / 10
    wanted = parts[0]
    high = round(float(np.quantile(rows[:, wanted], 0.85)), 1)

    def best(problem: Problem, query: Row) -> list[Edits]:
        """Raise the one, and take what is over the budget from where that costs least."""
        over = round(high - _TOP + sum(float(query[k] or 0.0) for k in parts[1:]), 1)
        edits: dict[str, Value] = {f"n{wanted}": high}
        for k in sorted(parts[1:], key=lambda k: -problem.distance.scales[f"n{k}"]):
            taken = min(max(0.0, over), float(query[k] or 0.0))
            if taken:
                edits[f"n{k}"] = round(float(query[k] or 0.0) - taken, 1)
                over = round(over - taken, 1)
        return [edits]

    return World(
        Schema(tuple(features)), rows,
        chance=lambda rows: 1.0 / (1.0 + np.exp(-(rows[:, wanted] - high) / 10.0)),
        starts=lambda rows: (rows[:, parts].sum(axis=1) >= 95) & (rows[:, wanted] <= high - 15),
        best=best,
        rules=(Linear(that=f"{' + '.join(f'n{k}' for k in parts)} <= {_TOP:g}"),),
    )  # fmt: skip


def _mostly_zero(rng: np.random.Generator) -> World:
    """A number that is 0 in 95 % of the rows and must reach a few thousand."""
    gain = Feature("gain", "integer", range=(0, 99_999))
    features = [gain, *_numbers(5), _category("c0", 3)]
    rows = _draw(rng, features)
    gains = np.minimum(np.rint(rng.lognormal(8.3, 0.8, _DRAWN)), 99_999)
    rows[:, 0] = np.where(rng.random(_DRAWN) < 0.95, 0, gains)
    high = int(rng.integers(2_500, 5_000))
    return World(
        Schema(tuple(features)), rows,
        chance=lambda rows: np.where(rows[:, 0] >= high, _YES, _NO + 0.002 * rows[:, 1]),
        starts=lambda rows: rows[:, 0] == 0,
        best=lambda problem, query: [{"gain": high}],
        noise=0.01,
    )  # fmt: skip


CASES: Mapping[str, Callable[[np.random.Generator], World]] = {
    "xor": _xor,
    "together": _together,
    "labels": _labels,
    "levels": _levels,
    "pocket": _pocket,
    "linear": _linear,
    "columns": _columns,
    "mostly-zero": _mostly_zero,
}


def trials_of(name: str, seeds: int) -> Iterator[Trial]:
    """Return the first instances of a hard case."""
    return (make_trial(name, seed) for seed in range(seeds))
