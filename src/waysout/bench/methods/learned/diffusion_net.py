"""The network that removes the noise from a row: a residual MLP, given the time and the outcome.

At the time t from 0 to 1, a row is mixed with noise: ``cos(πt/2) · row + sin(πt/2) · noise``. For a
number the network predicts the velocity of that mixture, which is well scaled at every time; for a
category the chance of each level, so that what it expects always lies between the levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

UNTOLD = 2  # beside the outcomes 0 and 1

_FREQUENCIES = 16
_ABOUT = 64  # the width of the embedding of time and outcome
_FARTHEST = 3.75  # the deviates of a `Coding` end just below
_NEVER = -1e9


@dataclass(frozen=True)
class Places:
    """Which numbers of a vector are a number, which the levels of a category, which a flag."""

    width: int
    numbers: tuple[int, ...]
    categories: tuple[tuple[int, ...], ...]
    flags: tuple[int, ...]


def mixture(time: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of the row and of the noise at each time, as columns."""
    angle = (math.pi / 2) * time[:, None]
    return torch.cos(angle), torch.sin(angle)


def step_back(noisy: Tensor, clean: Tensor, now: Tensor, later: Tensor, noise: Tensor) -> Tensor:
    """Return noisy rows at an earlier time, given what they are expected to be without noise.

    Part of their noise is replaced by new noise, so that later steps forget the errors of a step.
    """
    (row, rest), (row_later, rest_later) = mixture(now), mixture(later)
    fresh = rest_later / rest * (1 - (row / row_later).square()).clamp(min=0).sqrt()
    kept = (rest_later.square() - fresh.square()).clamp(min=0).sqrt()
    return row_later * clean + kept * (noisy - row * clean) / rest + fresh * noise


class Denoiser(nn.Module):
    """Predicts noisy rows without the noise."""

    def __init__(self, places: Places, width: int, blocks: int) -> None:
        super().__init__()
        self.numbers: Tensor
        self.choices: Tensor
        self.register_buffer("numbers", torch.tensor(places.numbers, dtype=torch.long), False)
        # The places among which one is chosen, a line for each choice. A flag is chosen against 0,
        # which stands just behind the last place. Behind that stands what is never chosen, and
        # fills the lines up to one length.
        zero, never = places.width, places.width + 1
        among: list[Sequence[int]] = [*places.categories, *((flag, zero) for flag in places.flags)]
        longest = max(map(len, among), default=1)
        filled = [[*one, *[never] * (longest - len(one))] for one in among]
        choices = torch.tensor(filled, dtype=torch.long).reshape(len(among), longest)
        self.register_buffer("choices", choices, False)
        self.outcome = nn.Embedding(3, _ABOUT)
        self.time = nn.Sequential(
            nn.Linear(2 * _FREQUENCIES, _ABOUT), nn.SiLU(), nn.Linear(_ABOUT, _ABOUT)
        )
        self.enter = nn.Linear(places.width, width)
        self.blocks = nn.ModuleList(_Block(width) for _ in range(blocks))
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, places.width))

    def forward(self, noisy: Tensor, time: Tensor, outcome: Tensor) -> Tensor:
        """Return velocities of the numbers, and logits for the rest."""
        angles = time[:, None] * torch.logspace(0, 2, _FREQUENCIES, device=time.device)
        waves = torch.cat([angles.sin(), angles.cos()], dim=1)  # from slow to quick
        about = functional.silu(self.time(waves) + self.outcome(outcome))
        hidden = self.enter(noisy)
        for block in self.blocks:
            hidden = block(hidden, about)
        output: Tensor = self.leave(hidden)
        return output

    def loss(self, clean: Tensor, noise: Tensor, time: Tensor, outcome: Tensor) -> Tensor:
        """Return the mean loss; each feature counts as much as any other."""
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
        """Return the rows without noise; what the outcome changes about them, ``guidance`` times.

        That is classifier-free guidance: 0 forgets the outcome, 1 is what was learned.
        """
        output = self(noisy, time, outcome)
        if guidance != 1.0:
            plain = self(noisy, time, torch.full_like(outcome, UNTOLD))
            output = plain + guidance * (output - plain)
        row, rest = mixture(time)
        clean = (row * noisy - rest * output).clamp(-_FARTHEST, _FARTHEST)
        if len(self.choices):
            chances = functional.softmax(self._chosen(output), dim=2)
            real = self.choices < noisy.shape[1]
            clean[:, self.choices[real]] = 2 * chances[:, real] - 1
        return clean

    def _chosen(self, places: Tensor) -> Tensor:
        """Return the places of each choice: rows × choices × places."""
        ends = places.new_tensor([0.0, _NEVER]).expand(len(places), 2)
        return torch.cat([places, ends], dim=1)[:, self.choices]


class _Block(nn.Module):
    """A residual block of two layers, scaled and shifted by time and outcome."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.first = nn.Linear(width, width)
        self.about = nn.Linear(_ABOUT, 2 * width)
        self.second = nn.Linear(width, width)
        nn.init.zeros_(self.second.weight)  # a block that adds nothing yet is easy to train
        nn.init.zeros_(self.second.bias)

    def forward(self, hidden: Tensor, about: Tensor) -> Tensor:
        scale, shift = self.about(about).chunk(2, dim=1)
        inner = self.first(self.norm(hidden)) * (1 + scale) + shift
        added: Tensor = self.second(functional.silu(inner))
        return hidden + added
