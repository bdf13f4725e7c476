"""The autoencoder's network: a mixture in latent space, a likelihood for each feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

_LOG_SCALES = (-4.0, 2.0)
_LEAST_WIDTH = 1e-6


@dataclass(frozen=True)
class Sizes:
    """The sizes of the network; ``levels`` are the numbers of levels of the categories."""

    inputs: int
    given: int
    numbers: int
    levels: tuple[int, ...]
    flags: int
    latent: int
    mixture: int
    hidden: int


class Targets(NamedTuple):
    """What rows should decode to: ranges of deviates of numbers, levels, and missing flags.

    ``has_number`` and ``has_level`` are 0 where a value is missing and must not count.
    """

    low: Any
    high: Any
    has_number: Any
    level: Any
    has_level: Any
    missing: Any


class Heads(NamedTuple):
    """The decoder's output: the parameters of each feature's likelihood.

    ``logits`` are minus infinity where a feature has fewer levels than another.
    """

    mean: Any
    log_scale: Any
    logits: Any
    missing: Any


class Latent(NamedTuple):
    """The encoder's output: components of the mixture, and a normal distribution there."""

    parts: Any
    mean: Any
    log_variance: Any


class Network(nn.Module):
    """q(s|x), q(z|s,x), p(z|s) and p(x|z), all conditioned on the fixed features."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        wide = sizes.hidden
        self.encoder = _layers(sizes.inputs + sizes.given, wide)
        self.to_parts = nn.Linear(wide, sizes.mixture)
        self.to_latent = nn.Linear(wide + sizes.mixture, 2 * sizes.latent)
        self.prior = nn.Linear(sizes.mixture, sizes.latent)
        self.decoder = _layers(sizes.latent + sizes.given, wide)
        outputs = 2 * sizes.numbers + sum(sizes.levels) + sizes.flags
        self.to_heads = nn.Linear(wide, outputs)
        self.register_buffer("_places", _places(sizes.levels), persistent=False)

    def parts(self, inputs: Any, given: Any) -> tuple[Any, Any]:
        """Return the hidden layer, and the logits of the components of the mixture."""
        seen = self.encoder(torch.cat([inputs, given], 1))
        return seen, self.to_parts(seen)

    def latent(self, seen: Any, parts: Any) -> Latent:
        """Return the distribution of rows, given their components of the mixture."""
        mean, log_variance = self.to_latent(torch.cat([seen, parts], 1)).chunk(2, 1)
        return Latent(parts, mean, log_variance.clamp(-10, 5))

    def encode(self, inputs: Any, given: Any) -> Latent:
        """Return the most likely component and distribution of rows."""
        seen, logits = self.parts(inputs, given)
        likeliest = functional.one_hot(logits.argmax(1), self.sizes.mixture).to(seen.dtype)
        return self.latent(seen, likeliest)

    def decode(self, latent: Any, given: Any) -> Heads:
        """Return the likelihoods of rows."""
        sizes = self.sizes
        outputs = self.to_heads(self.decoder(torch.cat([latent, given], 1)))
        widths = [sizes.numbers, sizes.numbers, sum(sizes.levels), sizes.flags]
        mean, log_scale, logits, missing = outputs.split(widths, 1)
        nowhere = logits.new_full((len(logits), 1), -torch.inf)
        spread = torch.cat([logits, nowhere], 1)[:, self._places]
        return Heads(mean, log_scale.clamp(*_LOG_SCALES), spread, missing)

    def loss(
        self, inputs: Any, given: Any, targets: Targets, noise: tuple[Any, Any], temperature: float
    ) -> tuple[Any, Any]:
        """Return two mean losses of rows: of the reconstruction, and the KL divergence of z and s.

        ``noise`` is uniform for s and normal for z; ``temperature`` is that of the Gumbel softmax.
        """
        seen, logits = self.parts(inputs, given)
        gumbel = -torch.log(-torch.log(noise[0]))
        found = self.latent(seen, torch.softmax((logits + gumbel) / temperature, 1))
        drawn = found.mean + torch.exp(0.5 * found.log_variance) * noise[1]
        unexplained = -log_likelihood(self.decode(drawn, given), targets)
        # KL divergence of q(z|s,x) from p(z|s), whose variance is 1.
        apart = found.mean - self.prior(found.parts)
        spread = torch.exp(found.log_variance)
        of_z = 0.5 * (spread + apart**2 - 1 - found.log_variance).sum(1)
        # KL divergence of q(s|x) from equally likely components.
        logs = torch.log_softmax(logits, 1)
        count = torch.tensor(float(logits.shape[1]), device=logits.device)
        of_s = (logs.exp() * (logs + torch.log(count))).sum(1)
        return unexplained.mean(), (of_z + of_s).mean()


def log_likelihood(heads: Heads, targets: Targets) -> Any:
    """Return the log likelihood of each row; a missing value counts only as missing.

    That of a number is the logistic probability mass between two deviates:
    F(b) - F(a) = F(b) · F(-a) · (1 - exp(a - b)), which stays exact far from the mean.
    """
    per_scale = torch.exp(-heads.log_scale)
    above = (targets.high - heads.mean) * per_scale
    below = (targets.low - heads.mean) * per_scale
    width = (targets.high - targets.low).clamp_min(_LEAST_WIDTH) * per_scale
    between = torch.log(-torch.expm1(-width))
    numbers = functional.logsigmoid(above) + functional.logsigmoid(-below) + between
    logs = torch.log_softmax(heads.logits, 2) if heads.logits.shape[1] else heads.logits
    levels = logs.gather(2, targets.level.unsqueeze(2)).squeeze(2) * targets.has_level
    flags = functional.logsigmoid(torch.where(targets.missing > 0, 1.0, -1.0) * heads.missing)
    return (numbers * targets.has_number).sum(1) + levels.sum(1) + flags.sum(1)


def _layers(inputs: int, wide: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, wide), nn.SiLU(), nn.Linear(wide, wide), nn.SiLU()
    )  # fmt: skip


def _places(levels: tuple[int, ...]) -> Any:
    """Return the index of each level of each feature; missing levels point after the last."""
    total, places, start = sum(levels), [], 0
    for count in levels:
        own = list(range(start, start + count))
        places.append(own + [total] * (max(levels) - count))
        start += count
    return torch.tensor(places, dtype=torch.long).reshape(len(levels), max(levels, default=0))
