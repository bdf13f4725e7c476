"""Attention over the KV cache of slots, as an attention implementation for transformers.

A model that uses transformers' attention interface calls `_attend` in each layer. The function it
calls is set before each pass (`use`): decoding one token per slot and reading prompts differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

NAME = "waysout"


class UnsupportedModel(Exception):
    """A model needs something that this engine does not support."""


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """How a layer attends: the scale of its scores, how far back, and where scores are capped."""

    scale: float
    window: int | None = None
    softcap: float | None = None


Attend = Callable[[Tensor, Tensor, Tensor, AttentionForm], Tensor]
"""From queries [tokens, heads, width] and one layer's keys and values [slots, kv heads, context,
width] to what the queries read, [tokens, heads, width]."""


class _Current:
    """The attention of the pass that is running."""

    attend: Attend | None = None


def register() -> None:
    """Register this attention with transformers; it makes no masks, since ours are used."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _attend)


def use(attend: Attend) -> None:
    """Set the attention of the next passes."""
    _Current.attend = attend


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    if more.get("s_aux") is not None:
        raise UnsupportedModel("its attention has sinks")
    if attention_mask is not None:
        raise UnsupportedModel("it uses its own mask")
    if not getattr(module, "is_causal", True) or more.get("is_causal") is False:
        raise UnsupportedModel("its tokens look ahead")
    assert _Current.attend is not None
    form = AttentionForm(
        scaling or query.shape[-1] ** -0.5, sliding_window or None, softcap or None
    )
    return _Current.attend(query[0].transpose(0, 1), key, value, form)[None], None


# One token in each slot ----------------------------------------------------------------------


def by_matmul(at: Tensor, span: int) -> Attend:
    """Attend with one token per slot, at these positions, by plain matrix products.

    Only the first ``span`` tokens of each slot are attended to.
    """
    rows, bias_of = len(at), _biases(at[:, None], span)

    def attend(q: Tensor, keys: Tensor, values: Tensor, form: AttentionForm) -> Tensor:
        kv, width = keys.shape[1], keys.shape[-1]
        grouped = q.reshape(rows * kv, -1, width)
        k = keys[:rows, :, :span].flatten(0, 1).transpose(1, 2)
        # Scores of these models are large: with the 8 bits of bfloat16 they would be off by tenths.
        scores = full_product(torch.bmm, grouped, k).view(rows, kv, -1, span)
        bias = bias_of(form.window, torch.float32)[:, None, None]
        share = _weighed(scores, bias, form).softmax(-1).to(q.dtype).view(rows * kv, -1, span)
        return torch.bmm(share, values[:rows, :, :span].flatten(0, 1)).view(rows, q.shape[1], -1)

    return attend


def by_kernel(at: Tensor, span: int) -> Attend:
    """Attend with one token per slot through PyTorch's fused kernel.

    The heads that share keys are passed as if they were tokens.
    """
    rows, bias_of = len(at), _biases(at[:, None], span)

    def attend(q: Tensor, keys: Tensor, values: Tensor, form: AttentionForm) -> Tensor:
        if form.softcap:
            raise RuntimeError("the kernel cannot cap scores")
        kv = keys.shape[1]
        grouped = q.reshape(rows, kv, -1, q.shape[-1])
        bias = bias_of(form.window, q.dtype)[:, None, None]
        k, v = keys[:rows, :, :span], values[:rows, :, :span]
        mask = bias.expand(-1, kv, grouped.shape[2], -1)
        read = F.scaled_dot_product_attention(grouped, k, v, mask, scale=form.scale)
        return read.reshape(rows, q.shape[1], -1)

    return attend


BY_NAME: dict[str, Callable[[Tensor, int], Attend]] = {"matmul": by_matmul, "kernel": by_kernel}


# Several tokens in some slots ----------------------------------------------------------------


def by_prompt(slots: Tensor, lengths: Sequence[int], positions: Tensor, span: int) -> Attend:
    """Attend with several tokens per slot, concatenated slot by slot."""
    count, longest = len(lengths), max(lengths)
    # Only the attention is padded to the longest; everything else uses the flat row.
    spread = np.concatenate([i * longest + np.arange(n) for i, n in enumerate(lengths)])
    padded = upload(spread, slots.device)
    reach = torch.zeros(count * longest, dtype=torch.long, device=slots.device)
    bias_of = _biases(reach.index_copy(0, padded, positions).view(count, longest, 1), span)

    def read(cache: Tensor, heads: int) -> Tensor:
        """Return the cache of the slots, with shared keys repeated for each head."""
        kv = cache.shape[1]
        shared = torch.arange(heads, device=slots.device) // (heads // kv)
        rows = (slots[:, None] * kv + shared).flatten()
        taken = cache.flatten(0, 1)[:, :span].index_select(0, rows)
        return taken.view(count, heads, span, -1)

    def attend(q: Tensor, keys: Tensor, values: Tensor, form: AttentionForm) -> Tensor:
        heads = q.shape[1]
        wide = q.new_zeros(count * longest, heads, q.shape[-1])
        wide = wide.index_copy(0, padded, q).view(count, longest, heads, -1).transpose(1, 2)
        mask = bias_of(form.window, q.dtype)[:, None].expand(-1, heads, -1, -1)
        k, v = read(keys, heads), read(values, heads)
        if form.softcap:
            scores = (wide @ k.transpose(-1, -2)).float()
            out = _weighed(scores, mask, form).softmax(-1).to(q.dtype) @ v
        else:
            out = F.scaled_dot_product_attention(wide, k, v, mask, scale=form.scale)
        return out.transpose(1, 2).reshape(count * longest, heads, -1)[padded]

    return attend


# Shared ----------------------------------------------------------------------------------------


def _biases(at: Tensor, span: int) -> Callable[[int | None, torch.dtype], Tensor]:
    """Return a function for the bias to add to scores: 0 where a token at ``at`` sees, else -inf.

    It is computed once for all layers with the same window.
    """
    made: dict[tuple[int | None, torch.dtype], Tensor] = {}
    there = torch.arange(span, device=at.device)

    def bias_of(window: int | None, dtype: torch.dtype) -> Tensor:
        window = window if window and window < span else None
        if (window, dtype) not in made:
            seen = there <= at
            if window:
                seen &= there > at - window
            nothing = torch.zeros(seen.shape, dtype=dtype, device=at.device)
            made[window, dtype] = nothing.masked_fill(~seen, -torch.inf)
        return made[window, dtype]

    return bias_of


def _weighed(scores: Tensor, bias: Tensor, form: AttentionForm) -> Tensor:
    if not form.softcap:
        return torch.add(bias, scores, alpha=form.scale)
    return (scores * (form.scale / form.softcap)).tanh() * form.softcap + bias


def upload(values: object, device: torch.device, dtype: torch.dtype = torch.long) -> Tensor:
    """Copy numbers to the device without waiting for it."""
    here = torch.from_numpy(np.array(values)).to(dtype)
    if device.type == "cuda":
        here = here.pin_memory()
    return here.to(device, non_blocking=True)


def full_product(product: Callable[..., Tensor], a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices with a float32 result, whatever the precision of the factors."""
    if a.dtype != torch.float32 and a.is_cuda and _widens():
        return product(a, b, out_dtype=torch.float32)
    return product(a, b).float()


@cache
def _widens() -> bool:
    """Whether this PyTorch can return a product in another precision."""
    one = torch.ones(16, 16, dtype=torch.bfloat16, device="cuda")
    try:
        torch.mm(one, one, out_dtype=torch.float32)
        torch.bmm(one[None], one[None], out_dtype=torch.float32)
    except (RuntimeError, TypeError):
        return False
    return True
