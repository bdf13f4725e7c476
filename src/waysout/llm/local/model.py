"""A transformers model over a KV cache with a fixed place for every slot.

One pass serves prompts and single tokens alike: tokens come in one flat row, each with its slot and
its position there, and the caller passes the attention to use.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Cache

from waysout.llm.local import attention
from waysout.llm.local.attention import Attend, full_product


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """What one layer stores per token: the number of heads, and the widths of keys and values."""

    heads: int
    key: int
    value: int

    @property
    def size(self) -> int:
        """Number of values stored per token."""
        return self.heads * (self.key + self.value)


class Model:
    """A network, and the KV cache that its passes fill and read."""

    def __init__(
        self, network: Any, layout: Sequence[CacheLayout], slots: int, context: int
    ) -> None:
        self.network = network
        self.slots = slots
        self.context = context
        self.device, self.dtype = network.device, network.dtype
        # Zeros, since NaN would pass through any mask.
        self.kv = [
            tuple(
                torch.zeros(slots, each.heads, context, width, dtype=self.dtype, device=self.device)
                for width in (each.key, each.value)
            )
            for each in layout
        ]
        self.cache = _SlotCache(self.kv, context)

    def forward(
        self,
        tokens: Tensor,
        slots: Tensor,
        positions: Tensor,
        attend: Attend,
        keep: Tensor | None = None,
    ) -> Tensor:
        """Run tokens through the network; return the next-token logits of those to ``keep``."""
        self.cache.write_at(slots, positions)
        attention.use(attend)
        passed = self.network(
            input_ids=tokens[None],
            position_ids=positions[None],
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=0 if keep is None else keep,
        )
        return passed.logits[0].float()

    def copy(self, sources: Tensor, targets: Tensor, length: int) -> None:
        """Copy the first ``length`` tokens of slots to others.

        All are read before the first is written, since a slot can be source and target.
        """
        for part in (part for layer in self.kv for part in layer):
            part = part[:, :, :length]
            part.index_copy_(0, targets, part.index_select(0, sources))


class _SlotCache(Cache):  # type: ignore[misc]
    """The cache passed to transformers: writes tokens to their slots, and returns all slots."""

    def __init__(self, kv: Sequence[tuple[Tensor, ...]], context: int) -> None:
        super().__init__(layers=[])
        self._kv = kv
        self._context = context
        self._slots = self._positions = torch.empty(0)
        self._places: dict[int, Tensor] = {}

    def write_at(self, slots: Tensor, positions: Tensor) -> None:
        """Set the places of the tokens of the next pass."""
        self._slots, self._positions = slots, positions
        self._places = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store a layer's keys and values of all tokens, [1, heads, tokens, width]."""
        keys, values = self._kv[layer_idx]
        heads = keys.shape[1]
        if heads not in self._places:
            # Where the tokens go, in a cache of this many heads seen as one list.
            rows = self._slots[:, None] * heads + torch.arange(heads, device=self._slots.device)
            self._places[heads] = (rows * self._context + self._positions[:, None]).flatten()
        for kept, new in ((keys, key_states), (values, value_states)):
            rows = new[0].transpose(0, 1).reshape(-1, kept.shape[-1])
            kept.view(-1, kept.shape[-1]).index_copy_(0, self._places[heads], rows)
        return keys, values

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return 0: positions are always passed in."""
        return 0


def tune(network: Any) -> None:
    """Speed up a network and compute its logits in float32; the results stay the same."""
    for module in network.modules():
        if "RMSNorm" in type(module).__name__:
            _fuse(module, network.dtype)
    head = network.get_output_embeddings()

    def exact_scores(x: Tensor) -> Tensor:
        scores = full_product(torch.mm, x.flatten(0, -2), head.weight.t())
        scores = scores if head.bias is None else scores + head.bias.float()
        return scores.view(*x.shape[:-1], -1)

    if isinstance(head, nn.Linear) and head.weight.dtype != torch.float32:
        head.forward = exact_scores


def _fuse(norm: Any, dtype: torch.dtype) -> None:
    """Replace a norm by one fused kernel, if a trial shows that the results are the same."""
    weight = getattr(norm, "weight", None)
    epsilon = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    if weight is None or weight.dim() != 1 or weight.dtype != dtype or not epsilon:
        return
    if len(inspect.signature(norm.forward).parameters) != 1:
        return
    shape, wide = weight.shape, weight.detach().float()
    tried = torch.linspace(-3, 3, 4 * shape[0], device=weight.device).view(4, -1)
    wanted = norm(tried.to(weight.dtype)).float()
    nearly = 1e-5 if weight.dtype == torch.float32 else 0.03

    def is_it(scale: Tensor) -> bool:
        found = F.rms_norm(tried, shape, scale, epsilon)
        return bool(torch.allclose(found, wanted, rtol=nearly, atol=nearly))

    if is_it(wide):
        norm.forward = lambda x: F.rms_norm(x, shape, weight, epsilon)
    elif is_it(from_one := 1 + wide):
        # In float32, as in the models that have such norms.
        norm.forward = lambda x: F.rms_norm(x.float(), shape, from_one, epsilon).to(x.dtype)
