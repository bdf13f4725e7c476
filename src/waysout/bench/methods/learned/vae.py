"""A conditional autoencoder of a table: how it is learned, and rows to latent places and back.

Every feature has a likelihood of its kind. A number is held to the stretch of ranks its value owns
(see `coding`), under a logistic curve: what is skewed, counted or ordered, and a value that half of
all rows share, needs no likelihood of its own then. Categories have a softmax. A missing value is
masked, and has a flag of its own where there are any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waysout.bench.methods.learned.coding import Coding, FeatureCode, LevelCode, Matrix, NumberCode
from waysout.bench.methods.learned.devices import import_torch
from waysout.bench.methods.learned.kept import Recipe, Weights
from waysout.bench.methods.learned.table import TrainingTable
from waysout.domain.schema import Feature, Row, Schema
from waysout.search.base import Tell

if TYPE_CHECKING:
    from waysout.bench.methods.learned.vae_net import Heads, Latent, Network, Sizes

_BATCH = 256
_STEPS_PER_ROW = 10  # a table of few rows is learned in few steps
_TOLD = 50  # how often is told how far it is
_COOLEST = 0.3
_FARTHEST = 50.0  # stands for no end of a stretch; an infinite one has no gradient
_CROWD = 1000


@dataclass(frozen=True)
class VaeRecipe(Recipe["Vae"]):
    """How wide the network is and how it learns; ``fixed`` features are given, not explained."""

    fixed: tuple[str, ...] = ()
    latent: int = 4
    mixture: int = 3
    hidden: int = 128
    kl_weight: float = 0.3
    steps: int = 4000
    rate: float = 2e-3
    seed: int = 0

    name = "cchvae"

    def settings(self) -> Mapping[str, Any]:
        """Return all that decides what is learned."""
        return {**asdict(self), "fixed": sorted(self.fixed), "version": 1}

    def train(
        self, table: TrainingTable, device: Any, tell: Tell
    ) -> tuple[Weights, dict[str, Any]]:
        """Learn the network; what it costs at the end stands in the manifest."""
        layout = VaeLayout.of(table, self.fixed)
        net = self._network(layout).to(device)
        steps = min(self.steps, _STEPS_PER_ROW * len(table))
        costs = _Training(self, layout, table.matrix, device).run(net, steps, tell)
        weights = {name: value.cpu().numpy() for name, value in net.state_dict().items()}
        return weights, {"steps": steps, **costs}

    def load(self, table: TrainingTable, weights: Weights, device: Any) -> Vae:
        """Return the model of some weights."""
        torch = import_torch()
        layout = VaeLayout.of(table, self.fixed)
        net = self._network(layout)
        net.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
        return Vae(layout, net.to(device).eval(), device, table.matrix)

    def _network(self, layout: VaeLayout) -> Network:
        """Return a network that knows nothing, the same each time."""
        torch = import_torch()
        from waysout.bench.methods.learned.vae_net import Network

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return Network(layout.sizes(self))


# Rows as the network sees them ------------------------------------------------------------------


@dataclass(frozen=True)
class VaeLayout:
    """Which features are given and which explained, and how each is written."""

    coding: Coding
    given: tuple[int, ...]
    numbers: tuple[int, ...]
    levels: tuple[int, ...]
    flags: tuple[int, ...]

    @classmethod
    def of(cls, table: TrainingTable, fixed: Collection[str]) -> VaeLayout:
        """Return the layout of a table some of whose features are held fixed."""
        codes = tuple(_code(f, table.matrix[:, j]) for j, f in enumerate(table.schema))
        free = [j for j, feature in enumerate(table.schema) if feature.name not in fixed]
        return cls(
            coding=Coding(table.schema, codes),
            given=tuple(j for j in range(len(codes)) if j not in free),
            numbers=tuple(j for j in free if isinstance(codes[j].code, NumberCode)),
            levels=tuple(j for j in free if isinstance(codes[j].code, LevelCode)),
            flags=tuple(j for j in free if codes[j].may_be_missing),
        )

    @cached_property
    def free(self) -> tuple[int, ...]:
        """The features that are explained."""
        return tuple(sorted((*self.numbers, *self.levels)))

    def sizes(self, recipe: VaeRecipe) -> Sizes:
        """Return how wide the network is."""
        from waysout.bench.methods.learned.vae_net import Sizes

        codes = self.coding.codes
        return Sizes(
            inputs=sum(codes[j].width for j in self.free),
            given=sum(codes[j].width for j in self.given),
            numbers=len(self.numbers),
            levels=tuple(codes[j].code.width for j in self.levels),
            flags=len(self.flags),
            latent=recipe.latent,
            mixture=recipe.mixture,
            hidden=recipe.hidden,
        )

    def places(self, matrix: Matrix, features: Sequence[int]) -> Matrix:
        """Return encoded rows as the network reads some features of them."""
        blocks = [self._block(j, matrix[:, j]) for j in features]
        return np.hstack(blocks) if blocks else np.zeros((len(matrix), 0))

    def _block(self, feature: int, column: Matrix) -> Matrix:
        found = self.coding.codes[feature]
        if isinstance(found.code, LevelCode):
            return found.encode(column, np.random.default_rng(0))  # it draws nothing
        middle = _deviates(_stretch(found.code, column).mean(1))
        missing = np.isnan(column)
        parts = [np.where(missing, 0.0, middle)]
        if found.may_be_missing:
            parts.append(np.where(missing, 1.0, -1.0))
        return np.column_stack(parts)

    def stretches(self, matrix: Matrix) -> tuple[Matrix, Matrix]:
        """Return from which deviate to which each number's value reaches."""
        ends = [self._ends(j, matrix[:, j]) for j in self.numbers]
        both = np.stack(ends, 1) if ends else np.zeros((len(matrix), 0, 2))
        return both[:, :, 0], both[:, :, 1]

    def _ends(self, feature: int, column: Matrix) -> Matrix:
        code = self.coding.codes[feature].code
        assert isinstance(code, NumberCode)
        return _deviates(_stretch(code, column))

    def level_numbers(self, matrix: Matrix) -> NDArray[np.int64]:
        """Return each category's level; the first where it is missing."""
        return np.nan_to_num(matrix[:, list(self.levels)]).astype(np.int64)


def _code(feature: Feature, column: Matrix) -> FeatureCode:
    """Return how a feature is written; an ordered category as a number is."""
    found, known = FeatureCode.fit(feature, column), column[~np.isnan(column)]
    if feature.ordered and len(known):
        return FeatureCode(NumberCode.fit(known), found.may_be_missing)
    return found


def _stretch(code: NumberCode, column: Matrix) -> Matrix:
    """Return the shares of rows below and up to each number."""
    known = np.where(np.isnan(column), code.values[0], column)
    at = np.clip(np.searchsorted(code.values, known, side="right") - 1, 0, None)
    return np.column_stack([np.concatenate([[0.0], code.ends[:-1]])[at], code.ends[at]])


def _deviates(shares: Matrix) -> Matrix:
    """Return shares as normal deviates."""
    torch = import_torch()
    found: Matrix = torch.special.ndtri(torch.from_numpy(shares)).numpy()
    return np.clip(found, -_FARTHEST, _FARTHEST)


# Learning ---------------------------------------------------------------------------------------


class _Training:
    """A table on the device, and draws that follow from the seed."""

    def __init__(self, recipe: VaeRecipe, layout: VaeLayout, matrix: Matrix, device: Any) -> None:
        from waysout.bench.methods.learned.vae_net import Targets

        self._torch = torch = import_torch()
        self._recipe, self._device = recipe, device
        self._rng = torch.Generator().manual_seed(recipe.seed)
        self._rows = len(matrix)

        def put(values: NDArray[Any], kind: Any = torch.float32) -> Any:
            return torch.tensor(values, dtype=kind).to(device)

        low, high = layout.stretches(matrix)
        missing = np.isnan(matrix)
        self._inputs = put(layout.places(matrix, layout.free))
        self._given = put(layout.places(matrix, layout.given))
        self._targets = Targets(
            low=put(low),
            high=put(high),
            has_number=put(~missing[:, list(layout.numbers)]),
            level=put(layout.level_numbers(matrix), torch.int64),
            has_level=put(~missing[:, list(layout.levels)]),
            missing=put(missing[:, list(layout.flags)]),
        )

    def run(self, net: Network, steps: int, tell: Tell) -> dict[str, float]:
        """Let a network learn; return what rows cost it in the last tenth of the steps."""
        torch = self._torch
        optimizer = torch.optim.Adam(net.parameters(), lr=self._recipe.rate)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: _slower(at / steps))
        last = list[Any]()
        for step, some in zip(range(steps), self._batches(), strict=False):
            if step % max(1, steps // _TOLD) == 0:
                tell("", step / steps)
            costs = self._loss(net, some, 1 - (1 - _COOLEST) * step / steps)
            optimizer.zero_grad(set_to_none=True)
            (costs[0] + self._recipe.kl_weight * costs[1]).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
            optimizer.step()
            schedule.step()
            if step >= steps * 9 // 10:
                last.append(torch.stack(costs).detach())
        means = torch.stack(last).mean(0).tolist()
        return {"reconstruction": round(means[0], 3), "kl": round(means[1], 3)}

    def _loss(self, net: Network, some: Any, heat: float) -> tuple[Any, Any]:
        torch, sizes = self._torch, net.sizes
        uniform = torch.rand((len(some), sizes.mixture), generator=self._rng)
        normal = torch.randn((len(some), sizes.latent), generator=self._rng)
        noise = uniform.clamp(1e-6, 1 - 1e-6).to(self._device), normal.to(self._device)
        targets = type(self._targets)(*(part[some] for part in self._targets))
        return net.loss(self._inputs[some], self._given[some], targets, noise, heat)

    def _batches(self) -> Iterator[Any]:
        """Yield the rows of one batch after the other; every row once in a pass."""
        while True:
            order = self._torch.randperm(self._rows, generator=self._rng).to(self._device)
            yield from order.split(_BATCH)


def _slower(share: float) -> float:
    """Return how much of its rate is left to a network that has learned for so long."""
    return min(1.0, 1.5 * (1.0 - share) + 0.01)


# The model --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EncodedPerson:
    """One row: where it is, what is given of it, its decoded means, and what it holds itself."""

    latent: Matrix
    given: Matrix
    mean: Matrix
    low: Matrix
    high: Matrix
    level: NDArray[np.int64]
    missing: NDArray[np.bool_]


@dataclass(frozen=True)
class Draw:
    """Values drawn from likelihoods: numbers as deviates, the places of levels, what is missing."""

    numbers: Matrix
    levels: NDArray[np.int64]
    missing: NDArray[np.bool_]

    @classmethod
    def of(cls, heads: Heads, rng: np.random.Generator) -> Draw:
        """Draw one value a feature for each row of likelihoods."""
        gumbel = rng.gumbel(size=heads.logits.shape)
        return cls(
            heads.mean + np.exp(heads.log_scale) * rng.logistic(size=heads.mean.shape),
            _largest(heads.logits + gumbel),
            heads.missing + rng.logistic(size=heads.missing.shape) > 0,
        )


@dataclass(frozen=True)
class Vae:
    """A model that was learned from ``known`` rows, encoded."""

    layout: VaeLayout
    net: Network
    device: Any
    known: Matrix

    @property
    def schema(self) -> Schema:
        """The features."""
        return self.layout.coding.schema

    def encode(self, matrix: Matrix) -> Matrix:
        """Return where encoded rows are in the latent space."""
        latent: Matrix = self._latent(matrix).mean
        return latent

    def _latent(self, matrix: Matrix) -> Latent:
        from waysout.bench.methods.learned.vae_net import Latent

        inputs = self._put(self.layout.places(matrix, self.layout.free))
        given = self._put(self.layout.places(matrix, self.layout.given))
        with import_torch().inference_mode():
            found = self.net.encode(inputs, given)
            return Latent(*(part.double().cpu().numpy() for part in found))

    def decode(self, latent: Matrix, given: Matrix) -> Heads:
        """Return the likelihoods at some places; one ``given`` may stand for all of them."""
        from waysout.bench.methods.learned.vae_net import Heads

        given = np.broadcast_to(given, (len(latent), given.shape[1]))
        with import_torch().inference_mode():
            heads = self.net.decode(self._put(latent), self._put(given))
            return Heads(*(part.double().cpu().numpy() for part in heads))

    def person(self, row: Row) -> EncodedPerson:
        """Return one row as the model sees it."""
        layout, matrix = self.layout, self.schema.encode([row])
        latent, given = self.encode(matrix), layout.places(matrix, layout.given)
        return EncodedPerson(
            latent,
            given,
            self.decode(latent, given).mean,
            *layout.stretches(matrix),
            layout.level_numbers(matrix)[0],
            np.isnan(matrix[0]),
        )

    def spread(self, latent: Matrix) -> float:
        """Return how far the known rows are from a place, as the root of the mean square."""
        apart = np.sum((self._crowd.mean - latent) ** 2, axis=1)
        return float(np.sqrt(np.mean(apart)))

    @cached_property
    def _crowd(self) -> Latent:
        """Where some of the known rows are, taken evenly."""
        return self._latent(self.known[:: -(-len(self.known) // _CROWD)])

    def values(self, draw: Draw) -> Matrix:
        """Return what was drawn as encoded rows; what is given is missing there."""
        layout, found = self.layout, np.full((len(draw.numbers), len(self.schema)), np.nan)
        for place, j in enumerate(layout.numbers):
            found[:, j] = layout.coding.codes[j].code.decode(draw.numbers[:, [place]])
        found[:, list(layout.levels)] = draw.levels
        flags = list(layout.flags)
        found[:, flags] = np.where(draw.missing, np.nan, found[:, flags])
        return found

    def blurred(
        self, person: EncodedPerson, heads: Heads, draw: Draw, least: float
    ) -> NDArray[np.bool_]:
        """Return which values drawn differ from a person's own no more than a decoder blurs.

        Else a number lies so many deviates away, and so far did its mean move from that of the
        person's own place; and a level is likelier than the person's by so many units of log odds.
        """
        layout, found = self.layout, np.zeros((len(draw.numbers), len(self.schema)), np.bool_)
        gaps = np.maximum(person.low - draw.numbers, draw.numbers - person.high)
        moves = np.abs(heads.mean - person.mean)
        found[:, list(layout.numbers)] = np.minimum(gaps, moves) < least
        if layout.levels:
            own = heads.logits[:, np.arange(len(person.level)), person.level]
            new = np.take_along_axis(heads.logits, draw.levels[:, :, None], 2)[:, :, 0]
            found[:, list(layout.levels)] = new - own < least
        return found & ~person.missing

    def sample(self, count: int, rng: np.random.Generator) -> list[Row]:
        """Draw rows such as the known ones; what the model is given is drawn from those."""
        given = list(self.layout.given)
        known = self.known[rng.integers(len(self.known), size=count)]
        heads = self.decode(self._drawn(count, rng), self.layout.places(known, given))
        found = self.values(Draw.of(heads, rng))
        found[:, given] = known[:, given]
        return self.schema.decode(found)

    def _drawn(self, count: int, rng: np.random.Generator) -> Matrix:
        """Draw places: a normal distribution for the known rows of each part of the mixture.

        A small weight of the divergence lets them spread wider than the prior says.
        """
        parts = self._crowd.parts.argmax(1)
        wanted = parts[rng.integers(len(parts), size=count)]
        found = np.empty((count, self.net.sizes.latent))
        for part in np.unique(parts).tolist():
            means = self._crowd.mean[parts == part]
            within = np.exp(self._crowd.log_variance[parts == part]).mean(0)
            spread = np.atleast_2d(np.cov(means, rowvar=False, bias=True)) + np.diag(within)
            here = wanted == part
            found[here] = rng.multivariate_normal(means.mean(0), spread, int(here.sum()))
        return found

    def _put(self, values: Matrix) -> Any:
        return import_torch().tensor(values.astype(np.float32), device=self.device)


def _largest(logits: Matrix) -> NDArray[np.int64]:
    """Return the place of the largest of each feature's levels."""
    if not logits.shape[1]:  # there is no largest of none
        return np.zeros(logits.shape[:2], np.int64)
    found: NDArray[np.int64] = np.argmax(logits, axis=2).astype(np.int64)
    return found
