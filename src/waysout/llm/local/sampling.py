"""Drawing tokens: by numbers that belong to a request, so that no reply depends on its company."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_LARGEST_BELOW_1 = 1 - 1e-6
# Tokens are drawn in two steps, first a run of so many.
_RUN = 128


def chances(seeds: Tensor, positions: Tensor) -> Tensor:
    """Return a random number below 1 for each seed and position, always the same one."""
    x = (seeds ^ (positions * 0x9E3779B1)) & 0xFFFFFFFF
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = ((x ^ (x >> shift)) * factor) & 0xFFFFFFFF
    return ((x ^ (x >> 16)) >> 8).float() / 2**24


def sample(logits: Tensor, temperatures: Tensor, chance: Tensor) -> Tensor:
    """Draw a token from each row of scores by its chance; at temperature 0 take the likeliest.

    The draw is by cumulative sums, first of runs of tokens, then inside one: a sum over a whole
    vocabulary would lose the rare ones to rounding.
    """
    best = logits.argmax(-1)
    shares = (logits / temperatures.clamp(min=1e-3)[:, None]).softmax(-1)
    if shares.shape[-1] % _RUN:
        shares = F.pad(shares, (0, -shares.shape[-1] % _RUN))
    runs = shares.view(len(shares), -1, _RUN)
    totals = runs.sum(-1)
    run, inner = _reached(totals, chance * totals.sum(-1))
    chosen = runs[torch.arange(len(runs), device=runs.device), run]
    token, _ = _reached(chosen, inner)
    return torch.where(temperatures > 0, run * _RUN + token, best)


def _reached(weights: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return in which of the weights of a row a target lies, and how far inside."""
    sums = weights.cumsum(-1)
    target = torch.minimum(target, sums[:, -1] * _LARGEST_BELOW_1)[:, None]
    index = (sums <= target).sum(-1, keepdim=True)
    before = sums.gather(-1, index) - weights.gather(-1, index)
    return index[:, 0], (target - before).clamp(min=0)[:, 0]
