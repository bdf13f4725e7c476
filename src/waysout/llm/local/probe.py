"""Whether a network can be run in slots: tried on a few tokens, against its own attention.

Models differ in too many ways to list; if the scores here are the same, the model runs correctly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from waysout.llm.local import attention
from waysout.llm.local.attention import BY_NAME, UnsupportedModel, by_prompt, upload
from waysout.llm.local.model import CacheLayout, Model

# Minimum correlation of scores. With 16 bits, a network's own attention rounds more than ours, and
# the correlation may be as low as 0.97.
_ALIKE, _ALIKE_IN_16_BITS = 0.99, 0.9
_KNOWN = {"full_attention", "sliding_attention"}
_LENGTHS = (21, 13)


def prompts(network: Any) -> list[list[int]]:
    """Return token lists of several lengths, spread over the vocabulary."""
    size = network.get_input_embeddings().weight.shape[0]
    return [[(7919 * (i + 1) * (n + i)) % size for i in range(n)] for n in _LENGTHS]


def layout_of(network: Any) -> list[CacheLayout]:
    """Return what each layer stores per token; raise if it is not keys and values."""
    kinds = set(getattr(network.config.get_text_config(), "layer_types", None) or ())
    if not kinds <= _KNOWN:
        raise UnsupportedModel(f"it has layers of {', '.join(sorted(kinds - _KNOWN))}")
    ids = torch.tensor(prompts(network)[:1], device=network.device)
    kept = getattr(network(input_ids=ids, use_cache=True), "past_key_values", None)
    layout: list[CacheLayout] = []
    for layer in getattr(kept, "layers", ()):
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if not isinstance(keys, Tensor) or not isinstance(values, Tensor) or keys.dim() != 4:
            layout = []
            break
        layout.append(CacheLayout(keys.shape[1], keys.shape[-1], values.shape[-1]))
    if not layout:
        raise UnsupportedModel("its layers do not store keys and values")
    return layout


def own_scores(network: Any) -> list[Tensor]:
    """Return the scores after each of the prompts, and one token later, by eager attention.

    Eager attention is the reference; faster implementations ignore features they do not support.
    """
    network.set_attn_implementation("eager")
    inputs = [ids[: len(ids) - cut] for ids in prompts(network) for cut in (1, 0)]
    passes = (torch.tensor([ids], device=network.device) for ids in inputs)
    return [network(input_ids=ids, use_cache=False).logits[0, -1].float() for ids in passes]


def take_over(network: Any) -> None:
    """Replace the attention of the network by ours."""
    attention.register()
    network.set_attn_implementation(attention.NAME)
    if network.config.get_text_config()._attn_implementation != attention.NAME:
        raise UnsupportedModel("its attention cannot be replaced")


def check(model: Model, own: Sequence[Tensor]) -> None:
    """Raise unless prompts read in parallel, and one step, give the network's own scores."""
    ids = prompts(model.network)[: model.slots]
    lengths = [len(each) - 1 for each in ids]
    device = model.device
    slots = torch.arange(len(ids), device=device)
    tokens = upload([token for each in ids for token in each[:-1]], device)
    at = upload([i for n in lengths for i in range(n)], device)
    owners = upload([i for i, n in enumerate(lengths) for _ in range(n)], device)
    attend = by_prompt(slots, lengths, at, 64)
    ends = upload([sum(lengths[: i + 1]) - 1 for i in range(len(ids))], device)
    read = model.forward(tokens, owners, at, attend, keep=ends)
    last, then = upload([each[-1] for each in ids], device), upload(lengths, device)
    step = model.forward(last, slots, then, BY_NAME["matmul"](then, 64))
    least = _ALIKE if model.network.dtype == torch.float32 else _ALIKE_IN_16_BITS
    for i in range(len(ids)):
        pairs = ((read[i], own[2 * i], "a prompt"), (step[i], own[2 * i + 1], "a step"))
        for found, wanted, after in pairs:
            alike = torch.corrcoef(torch.stack([found, wanted.to(found.device)]))[0, 1].item()
            if not alike > least:
                raise UnsupportedModel(
                    f"it gives different scores here after {after} (correlation {alike:.3f})"
                )
