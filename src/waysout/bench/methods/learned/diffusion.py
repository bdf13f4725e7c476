"""Diffusion over rows encoded as vectors by a `Coding`: training and sampling."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waysout.bench.methods.learned.coding import Coding, LevelCode, Matrix
from waysout.bench.methods.learned.training import Recipe, TrainingTable, Weights, import_torch
from waysout.search.base import OnLearning

if TYPE_CHECKING:
    from torch import Tensor

    from waysout.bench.methods.learned.diffusion_net import Denoiser, Places

# t = 0 (no noise) and t = 1 (only noise) carry no training signal.
FIRST_TIME, LAST_TIME = 0.001, 0.999
_STEPS_PER_ROW = 5  # limits the steps for a small table
_REPORT_EVERY = 25  # steps


@dataclass(frozen=True)
class Drawing:
    """How rows are drawn.

    ``strength`` is the time they are noised to, ``steps`` the number of denoising steps, and
    ``guidance`` the classifier-free guidance weight: how strongly to condition on the outcome.
    """

    strength: float = 1.0
    guidance: float = 1.0
    steps: int = 50


@dataclass(frozen=True)
class Diffusion:
    """A trained network with the coding of its table."""

    coding: Coding
    net: Denoiser
    device: Any

    def sample(self, rows: int, label: bool, rng: np.random.Generator) -> Matrix:
        """Return new rows of an outcome, encoded (see `Schema.encode`), drawn from noise alone."""
        nothing = np.zeros((rows, self.coding.width))
        return self.coding.decode(self.vary(nothing, label, Drawing(), rng))

    def vary(
        self,
        vectors: Matrix,
        label: bool,
        how: Drawing,
        rng: np.random.Generator,
        held: NDArray[np.bool_] | None = None,
    ) -> Matrix:
        """Return vectors noised to a strength, and denoised as rows of an outcome.

        Positions in ``held`` keep their values: every denoised estimate is overwritten with them.
        The other features follow them less closely than in the data, since the network was not
        trained for inpainting.
        """
        torch = import_torch()
        from waysout.bench.methods.learned.diffusion_net import mixture, step_back

        own, outcome = self._moved(vectors), torch.full((len(vectors),), int(label)).to(self.device)
        known = own.new_zeros(vectors.shape[1]).bool() if held is None else self._moved(held).bool()

        def noise() -> Tensor:
            return self._moved(rng.standard_normal(vectors.shape, dtype=np.float32))

        def clean(noisy: Tensor, now: Tensor) -> Tensor:
            return torch.where(known, own, self.net.expected(noisy, now, outcome, how.guidance))

        first, *others = np.linspace(min(how.strength, LAST_TIME), 0.0, how.steps + 1)[:-1].tolist()
        with torch.inference_mode():
            now = own.new_full((len(own),), first)
            row, rest = mixture(now)
            noisy = row * own + rest * noise()
            for time in others:
                later = torch.full_like(now, time)
                noisy, now = step_back(noisy, clean(noisy, now), now, later, noise()), later
            drawn: Matrix = clean(noisy, now).cpu().numpy().astype(np.float64)
        return drawn

    def _moved(self, array: NDArray[Any]) -> Tensor:
        moved: Tensor = import_torch().from_numpy(array.astype(np.float32)).to(self.device)
        return moved


@dataclass(frozen=True)
class DiffusionRecipe(Recipe[Diffusion]):
    """A network of ``blocks`` residual blocks, trained on ``steps`` batches.

    The label is dropped for a fraction ``untold`` of the rows, so that the network also learns the
    unconditional distribution. The learning ``rate`` rises quickly and falls slowly; the stored
    weights are a moving ``average``.
    """

    name = "tabular-diffusion"

    width: int = 256
    blocks: int = 3
    steps: int = 5000
    batch: int = 512
    rate: float = 2e-3
    decay: float = 1e-4
    untold: float = 0.2
    average: float = 0.999
    seed: int = 0

    def settings(self) -> Mapping[str, Any]:
        """Return all settings."""
        return asdict(self)

    def train(
        self, table: TrainingTable, device: Any, tell: OnLearning
    ) -> tuple[Weights, dict[str, Any]]:
        """Return the averaged weights, the number of steps and the final loss."""
        training = _Training(self, table, device)
        steps = min(self.steps, _STEPS_PER_ROW * len(table))
        losses = list[float]()
        for step in range(steps):
            loss = training.step(step, steps)
            if step % _REPORT_EVERY == 0:
                losses.append(float(loss))
                tell(f"loss {losses[-1]:.3f}", step / steps)
        weights = {name: weight.cpu().numpy() for name, weight in training.average.items()}
        return weights, {"steps": steps, "loss": round(float(np.mean(losses[-10:])), 4)}

    def load(self, table: TrainingTable, weights: Weights, device: Any) -> Diffusion:
        """Return the model with these weights."""
        torch = import_torch()
        coding = Coding.fit(table.schema, table.matrix)
        net = self.network(coding)
        net.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
        return Diffusion(coding, net.to(device).eval(), device)

    def network(self, coding: Coding) -> Denoiser:
        """Return an untrained network, the same each time."""
        torch = import_torch()
        from waysout.bench.methods.learned.diffusion_net import Denoiser

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return Denoiser(places(coding), self.width, self.blocks)


def places(coding: Coding) -> Places:
    """Return which positions of a vector encode what."""
    from waysout.bench.methods.learned.diffusion_net import Places

    numbers, categories, flags = list[int](), list[tuple[int, ...]](), list[int]()
    for code, block in zip(coding.codes, coding.blocks, strict=True):
        own = range(block.start, block.start + code.code.width)
        if isinstance(code.code, LevelCode):
            categories.append(tuple(own))
        else:
            numbers += own
        flags += range(own.stop, block.stop)
    return Places(coding.width, tuple(numbers), tuple(categories), tuple(flags))


class _Training:
    """A network in training, and the moving average of its weights."""

    def __init__(self, recipe: DiffusionRecipe, table: TrainingTable, device: Any) -> None:
        self._torch, self._recipe, self._table, self._device = import_torch(), recipe, table, device
        self._coding = Coding.fit(table.schema, table.matrix)
        self._rng = np.random.default_rng(recipe.seed)
        self._batch = min(recipe.batch, len(table))
        self._batches = self._endless()
        self._net = recipe.network(self._coding).to(device).train()
        self.average = {name: w.detach().clone() for name, w in self._net.state_dict().items()}
        self._optimiser = self._torch.optim.AdamW(
            self._net.parameters(), lr=recipe.rate, weight_decay=recipe.decay
        )

    def step(self, number: int, steps: int) -> Tensor:
        """Train on one batch; return its loss."""
        warm = min(1.0, (number + 1) / (0.05 * steps + 1))
        pace = warm * 0.5 * (1 + math.cos(math.pi * number / steps))  # warm-up, then cosine decay
        for group in self._optimiser.param_groups:
            group["lr"] = self._recipe.rate * pace
        vectors, outcomes = next(self._batches)
        noise = self._rng.standard_normal(vectors.shape, dtype=np.float32)
        # Stratified times have lower variance than independent draws.
        times = (np.arange(self._batch) + self._rng.random(self._batch)) / self._batch
        times = np.clip(times, FIRST_TIME, LAST_TIME).astype(np.float32)
        arrays = (vectors, noise, times, outcomes)
        loss = self._net.loss(*(self._torch.from_numpy(a).to(self._device) for a in arrays))
        self._optimiser.zero_grad()
        loss.backward()
        self._torch.nn.utils.clip_grad_norm_(self._net.parameters(), 1.0)
        self._optimiser.step()
        # The average follows closely at first, so that it forgets the initial weights.
        share = 1 - min(self._recipe.average, (1 + number) / (10 + number))
        with self._torch.no_grad():
            for name, weight in self._net.state_dict().items():
                self.average[name].lerp_(weight, share)
        return loss.detach()

    def _endless(self) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
        """Yield shuffled batches, re-encoded at random within each value's range in every epoch."""
        from waysout.bench.methods.learned.diffusion_net import NO_LABEL

        labels = self._table.labels.astype(np.int64)
        while True:
            vectors = self._coding.encode(self._table.matrix, self._rng).astype(np.float32)
            order = self._rng.permutation(len(labels))
            for start in range(0, len(order) - self._batch + 1, self._batch):
                chosen = order[start : start + self._batch]
                keep_label = self._rng.random(self._batch) >= self._recipe.untold
                yield vectors[chosen], np.where(keep_label, labels[chosen], NO_LABEL)
