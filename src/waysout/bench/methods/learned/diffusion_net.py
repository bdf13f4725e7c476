"""The denoising network: a residual MLP, conditioned on the time and the outcome.

At the time t from 0 to 1, a row is mixed with noise: ``cos(πt/2) · row + sin(πt/2) · noise``. For a
number the network predicts the velocity of that mixture, which is well scaled at every time; for a
category the probability of each level, so that its estimate is always a mean of levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

NO_LABEL = 2  # the embedding index for a dropped label; outcomes are 0 and 1

_FREQUENCIES = 16
_CONDITION_WIDTH = 64  # of the embedding of time and outcome
_LARGEST_DEVIATE = 3.75  # just above the largest of a `Coding`
_NEVER = -1e9


@dataclass(frozen=True)
class Places:
    """Which positions of a vector encode numbers, levels of categories, and flags."""

    width: int
    numbers: tuple[int, ...]
    categories: tuple[tuple[int, ...], ...]
    flags: tuple[int, ...]


def mixture(time: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of the row and of the noise at each time, as columns."""
    angle = (math.pi / 2) * time[:, None]
    return torch.cos(angle), torch.sin(angle)


def step_back(noisy: Tensor, clean: Tensor, now: Tensor, later: Tensor, noise: Tensor) -> Tensor:
    """Return noisy rows at an earlier time, given their denoised estimates.

    Part of the noise is replaced by new noise, so that later steps correct the errors of this one.
    """
    (row, rest), (row_later, rest_later) = mixture(now), mixture(later)
    fresh = rest_later / rest * (1 - (row / row_later).square()).clamp(min=0).sqrt()
    kept = (rest_later.square() - fresh.square()).clamp(min=0).sqrt()
    return row_later * clean + kept * (noisy - row * clean) / rest + fresh * noise


class Denoiser(nn.Module):
    """Predicts rows without their noise."""

    def __init__(self, places: Places, width: int, blocks: int) -> None:
        super().__init__()
        self.numbers: Tensor
        self.choices: Tensor
        self.register_buffer("numbers", torch.tensor(places.numbers, dtype=torch.long), False)
        # One line per choice: the positions of its alternatives. A flag is chosen against a
        # constant 0, at the position after the last. The position after that is never chosen, and
        # pads all lines to one length.
        zero, never = places.width, places.width + 1
        among: list[Sequence[int]] = [*places.categories, *((flag, zero) for flag in places.flags)]
        longest = max(map(len, among), default=1)
        filled = [[*one, *[never] * (longest - len(one))] for one in among]
        choices = torch.tensor(filled, dtype=torch.long).reshape(len(among), longest)
        self.register_buffer("choices", choices, False)
        self.outcome = nn.Embedding(3, _CONDITION_WIDTH)
        self.time = nn.Sequential(
            nn.Linear(2 * _FREQUENCIES, _CONDITION_WIDTH),
            nn.SiLU(),
            nn.Linear(_CONDITION_WIDTH, _CONDITION_WIDTH),
        )
        # Stored weights are loaded by these names.
        self.enter = nn.Linear(places.width, width)
        self.blocks = nn.ModuleList(_Block(width) for _ in range(blocks))
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, places.width))

    def forward(self, noisy: Tensor, time: Tensor, outcome: Tensor) -> Tensor:
        """Return velocities of the numbers, and logits for the rest."""
        angles = time[:, None] * torch.logspace(0, 2, _FREQUENCIES, device=time.device)
        waves = torch.cat([angles.sin(), angles.cos()], dim=1)  # low to high frequencies
        condition = functional.silu(self.time(waves) + self.outcome(outcome))
        hidden = self.enter(noisy)
        for block in self.blocks:
            hidden = block(hidden, condition)
        output: Tensor = self.leave(hidden)
        return output

    def loss(self, clean: Tensor, noise: Tensor, time: Tensor, outcome: Tensor) -> Tensor:
        """Return the mean loss, with equal weight for all features."""
        row, rest = mixture(time)
        output = self(row * clean + rest * noise, time, outcome)
        velocity = row * noise - rest * clean
        miss = (output - velocity)[:, self.numbers].square().sum()
        if len(self.choices):
            wanted = self._chosen(clean).argmax(dim=2)
            logits = self._chosen(output).flatten(0, 1)
            miss = miss + functional.cross_entropy(logits, wanted.flatten(), reduction="sum")
        return miss / (len(clean) * (len(self.numbers) + len(self.choices)))

    def expected(self, noisy: Tensor, time: Tensor, outcome: Tensor, guidance: float) -> Tensor:
        """Return the denoised rows, with classifier-free guidance.

        A ``guidance`` of 0 ignores the outcome; 1 conditions on it as in training.
        """
        output = self(noisy, time, outcome)
        if guidance != 1.0:
            plain = self(noisy, time, torch.full_like(outcome, NO_LABEL))
            output = plain + guidance * (output - plain)
        row, rest = mixture(time)
        clean = (row * noisy - rest * output).clamp(-_LARGEST_DEVIATE, _LARGEST_DEVIATE)
        if len(self.choices):
            chances = functional.softmax(self._chosen(output), dim=2)
            real = self.choices < noisy.shape[1]
            clean[:, self.choices[real]] = 2 * chances[:, real] - 1
        return clean

    def _chosen(self, places: Tensor) -> Tensor:
        """Return the values of each choice: rows × choices × alternatives."""
        ends = places.new_tensor([0.0, _NEVER]).expand(len(places), 2)
        return torch.cat([places, ends], dim=1)[:, self.choices]


class _Block(nn.Module):
    """A residual block of two layers, scaled and shifted by time and outcome."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.first = nn.Linear(width, width)
        self.about = nn.Linear(_CONDITION_WIDTH, 2 * width)
        self.second = nn.Linear(width, width)
        nn.init.zeros_(self.second.weight)  # blocks that start as the identity are easier to train
        nn.init.zeros_(self.second.bias)

    def forward(self, hidden: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.about(condition).chunk(2, dim=1)
        inner = self.first(self.norm(hidden)) * (1 + scale) + shift
        added: Tensor = self.second(functional.silu(inner))
        return hidden + added
