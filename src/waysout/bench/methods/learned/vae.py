"""A conditional autoencoder of a table: its training, and rows to latent points and back.

Each feature has a likelihood for its kind. That of a number is the logistic probability of the
range of ranks its value owns (see `coding`), so skewed, count and ordinal features, and values
shared by half the rows, need no special likelihood. Categories have a softmax. Missing values are
masked, and a feature that has any also has a flag for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waysout.bench.methods.learned.coding import Coding, FeatureCode, LevelCode, Matrix, NumberCode
from waysout.bench.methods.learned.training import Recipe, TrainingTable, Weights, import_torch
from waysout.domain.schema import Row, Schema
from waysout.search.base import OnLearning

if TYPE_CHECKING:
    from waysout.bench.methods.learned.vae_net import Heads, Latent, Network, Sizes

_BATCH = 256
_STEPS_PER_ROW = 10  # limits the steps for a small table
_REPORTS = 50  # number of progress reports
_FINAL_TEMPERATURE = 0.3  # of the Gumbel softmax; it starts at 1
_LARGEST_DEVIATE = 50.0  # replaces an infinite end of a range, which has no gradient
_SAMPLE_ROWS = 1000


@dataclass(frozen=True)
class VaeRecipe(Recipe["Vae"]):
    """The network's sizes and its training; ``fixed`` features are conditioned on, not modelled."""

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
        """Return all settings that affect the trained weights."""
        return {**asdict(self), "fixed": sorted(self.fixed), "version": 1}

    def train(
        self, table: TrainingTable, device: Any, tell: OnLearning
    ) -> tuple[Weights, dict[str, Any]]:
        """Train the network; its final losses go into the manifest."""
        layout = VaeLayout.of(table, self.fixed)
        net = self._network(layout).to(device)
        steps = min(self.steps, _STEPS_PER_ROW * len(table))
        losses = _train(self, net, layout, table.matrix, device, steps, tell)
        weights = {name: value.cpu().numpy() for name, value in net.state_dict().items()}
        return weights, {"steps": steps, **losses}

    def load(self, table: TrainingTable, weights: Weights, device: Any) -> Vae:
        """Return the model with these weights."""
        torch = import_torch()
        layout = VaeLayout.of(table, self.fixed)
        net = self._network(layout)
        net.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
        return Vae(layout, net.to(device).eval(), device, table.matrix)

    def _network(self, layout: VaeLayout) -> Network:
        """Return an untrained network, the same each time."""
        torch = import_torch()
        from waysout.bench.methods.learned.vae_net import Network

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return Network(layout.sizes(self))


# Rows as the network sees them ------------------------------------------------------------------


@dataclass(frozen=True)
class VaeLayout:
    """Which features are conditioned on, which are modelled, and how each is encoded."""

    coding: Coding
    given: tuple[int, ...]
    numbers: tuple[int, ...]
    levels: tuple[int, ...]
    flags: tuple[int, ...]

    @classmethod
    def of(cls, table: TrainingTable, fixed: Collection[str]) -> VaeLayout:
        """Return the layout of a table, with some features held fixed."""
        found = []
        for feature, column in zip(table.schema, table.matrix.T, strict=True):
            code, known = FeatureCode.fit(feature, column), column[~np.isnan(column)]
            if feature.ordered and len(known):  # an ordered category is encoded as a number
                code = FeatureCode(NumberCode.fit(known), code.may_be_missing)
            found.append(code)
        codes = tuple(found)
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
        """The features that are modelled."""
        return tuple(sorted((*self.numbers, *self.levels)))

    def sizes(self, recipe: VaeRecipe) -> Sizes:
        """Return the sizes of the network."""
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
        """Return some features of encoded rows as network inputs."""
        blocks = [np.zeros((len(matrix), 0))]
        for j in features:
            feature, column = self.coding.codes[j], matrix[:, j]
            missing = np.isnan(column)
            if isinstance(feature.code, LevelCode):
                blocks.append(feature.encode(column, np.random.default_rng(0)))  # it draws nothing
                continue
            middle = _deviates(_ranks(feature.code, column).mean(1))
            blocks.append(np.where(missing, 0.0, middle)[:, None])
            if feature.may_be_missing:
                blocks.append(np.where(missing, 1.0, -1.0)[:, None])
        return np.hstack(blocks)

    def ranges(self, matrix: Matrix) -> tuple[Matrix, Matrix]:
        """Return the range of deviates, from and to, that each number's value owns."""
        ends = [np.zeros((len(matrix), 0, 2))]
        for j in self.numbers:
            code = self.coding.codes[j].code
            assert isinstance(code, NumberCode)
            ends.append(_deviates(_ranks(code, matrix[:, j]))[:, None])
        both = np.concatenate(ends, axis=1)
        return both[:, :, 0], both[:, :, 1]

    def level_numbers(self, matrix: Matrix) -> NDArray[np.int64]:
        """Return each category's level; the first where it is missing."""
        return np.nan_to_num(matrix[:, list(self.levels)]).astype(np.int64)


def _ranks(code: NumberCode, column: Matrix) -> Matrix:
    """Return the shares of rows below and up to each number."""
    known = np.where(np.isnan(column), code.values[0], column)
    at = np.clip(np.searchsorted(code.values, known, side="right") - 1, 0, None)
    return np.column_stack([np.concatenate([[0.0], code.ends[:-1]])[at], code.ends[at]])


def _deviates(shares: Matrix) -> Matrix:
    """Return shares as normal deviates."""
    torch = import_torch()
    found: Matrix = torch.special.ndtri(torch.from_numpy(shares)).numpy()
    return np.clip(found, -_LARGEST_DEVIATE, _LARGEST_DEVIATE)


# Training ---------------------------------------------------------------------------------------


def _train(
    recipe: VaeRecipe,
    net: Network,
    layout: VaeLayout,
    matrix: Matrix,
    device: Any,
    steps: int,
    tell: OnLearning,
) -> dict[str, float]:
    """Train a network; return its mean losses over the last tenth of the steps."""
    torch = import_torch()
    from waysout.bench.methods.learned.vae_net import Targets

    def put(values: NDArray[Any], kind: Any = torch.float32) -> Any:
        return torch.tensor(values, dtype=kind).to(device)

    low, high = layout.ranges(matrix)
    missing = np.isnan(matrix)
    inputs = put(layout.places(matrix, layout.free))
    given = put(layout.places(matrix, layout.given))
    targets = Targets(
        low=put(low),
        high=put(high),
        has_number=put(~missing[:, list(layout.numbers)]),
        level=put(layout.level_numbers(matrix), torch.int64),
        has_level=put(~missing[:, list(layout.levels)]),
        missing=put(missing[:, list(layout.flags)]),
    )
    rng = torch.Generator().manual_seed(recipe.seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=recipe.rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, 1.5 * (1.0 - step / steps) + 0.01)
    )
    batches: Iterator[Any] = iter(())
    last = list[Any]()
    for step in range(steps):
        if step % max(1, steps // _REPORTS) == 0:
            tell("", step / steps)
        rows = next(batches, None)
        if rows is None:  # a new pass over all rows
            batches = iter(torch.randperm(len(matrix), generator=rng).to(device).split(_BATCH))
            rows = next(batches)
        uniform = torch.rand((len(rows), recipe.mixture), generator=rng)
        normal = torch.randn((len(rows), recipe.latent), generator=rng)
        noise = uniform.clamp(1e-6, 1 - 1e-6).to(device), normal.to(device)
        wanted = Targets(*(part[rows] for part in targets))
        temperature = 1 - (1 - _FINAL_TEMPERATURE) * step / steps
        losses = net.loss(inputs[rows], given[rows], wanted, noise, temperature)
        optimizer.zero_grad(set_to_none=True)
        (losses[0] + recipe.kl_weight * losses[1]).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        optimizer.step()
        schedule.step()
        if step >= steps * 9 // 10:
            last.append(torch.stack(losses).detach())
    means = torch.stack(last).mean(0).tolist()
    return {"reconstruction": round(means[0], 3), "kl": round(means[1], 3)}


# The model --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EncodedPerson:
    """One row: its latent point, conditioning features, decoded means, and own values."""

    latent: Matrix
    given: Matrix
    mean: Matrix
    low: Matrix
    high: Matrix
    level: NDArray[np.int64]
    missing: NDArray[np.bool_]


@dataclass(frozen=True)
class Draw:
    """Values drawn from likelihoods: numbers as deviates, indices of levels, what is missing."""

    numbers: Matrix
    levels: NDArray[np.int64]
    missing: NDArray[np.bool_]

    @classmethod
    def of(cls, heads: Heads, rng: np.random.Generator) -> Draw:
        """Draw one value per feature and row."""
        noisy = heads.logits + rng.gumbel(size=heads.logits.shape)
        # argmax fails on an empty axis.
        levels = np.argmax(noisy, axis=2) if noisy.shape[1] else np.zeros(noisy.shape[:2])
        return cls(
            heads.mean + np.exp(heads.log_scale) * rng.logistic(size=heads.mean.shape),
            levels.astype(np.int64),
            heads.missing + rng.logistic(size=heads.missing.shape) > 0,
        )


@dataclass(frozen=True)
class Vae:
    """A model and the encoded rows (``known``) it was trained on."""

    layout: VaeLayout
    net: Network
    device: Any
    known: Matrix

    @property
    def schema(self) -> Schema:
        """The features."""
        return self.layout.coding.schema

    def encode(self, matrix: Matrix) -> Matrix:
        """Return the latent points of encoded rows."""
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
        """Return the likelihoods at latent points; a single ``given`` row is broadcast to all."""
        from waysout.bench.methods.learned.vae_net import Heads

        given = np.broadcast_to(given, (len(latent), given.shape[1]))
        with import_torch().inference_mode():
            heads = self.net.decode(self._put(latent), self._put(given))
            return Heads(*(part.double().cpu().numpy() for part in heads))

    def person(self, row: Row) -> EncodedPerson:
        """Return one row as encoded and decoded by the model."""
        layout, matrix = self.layout, self.schema.encode([row])
        latent, given = self.encode(matrix), layout.places(matrix, layout.given)
        return EncodedPerson(
            latent,
            given,
            self.decode(latent, given).mean,
            *layout.ranges(matrix),
            layout.level_numbers(matrix)[0],
            np.isnan(matrix[0]),
        )

    def spread(self, latent: Matrix) -> float:
        """Return the root mean square distance of the known rows from a latent point."""
        apart = np.sum((self._sampled.mean - latent) ** 2, axis=1)
        return float(np.sqrt(np.mean(apart)))

    @cached_property
    def _sampled(self) -> Latent:
        """The latent points of an even sample of the known rows."""
        return self._latent(self.known[:: -(-len(self.known) // _SAMPLE_ROWS)])

    def values(self, draw: Draw) -> Matrix:
        """Return a draw as encoded rows, where the conditioning features are missing."""
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
        """Return which drawn values are within decoding noise of the person's own.

        The others differ by at least ``least``: a number lies that many deviates away, and its mean
        is as far from the mean at the person's own point; a level has log odds higher than the
        person's by that much.
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
        """Draw rows like the known ones; conditioning features are copied from known rows.

        Latent points come from a normal distribution fitted to the known rows of each mixture
        component: with a small KL weight they spread wider than the prior.
        """
        given = list(self.layout.given)
        known = self.known[rng.integers(len(self.known), size=count)]
        parts = self._sampled.parts.argmax(1)
        wanted = parts[rng.integers(len(parts), size=count)]
        latent = np.empty((count, self.net.sizes.latent))
        for part in np.unique(parts).tolist():
            means = self._sampled.mean[parts == part]
            within = np.exp(self._sampled.log_variance[parts == part]).mean(0)
            spread = np.atleast_2d(np.cov(means, rowvar=False, bias=True)) + np.diag(within)
            here = wanted == part
            latent[here] = rng.multivariate_normal(means.mean(0), spread, int(here.sum()))
        found = self.values(Draw.of(self.decode(latent, self.layout.places(known, given)), rng))
        found[:, given] = known[:, given]
        return self.schema.decode(found)

    def _put(self, values: Matrix) -> Any:
        return import_torch().tensor(values.astype(np.float32), device=self.device)
