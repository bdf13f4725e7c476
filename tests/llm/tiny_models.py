"""Chat models of a few thousand random weights, saved as transformers saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Smaller than the prompts of the tests, so that it matters.
WINDOW = 8

_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.6,
    "tie_word_embeddings": False,
}


def tokenizer(template: str | None = TEMPLATE) -> Any:
    """Return a tokenizer of single bytes, which every family of models can have."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<unk>", "<|end|>", "<|user|>", "<|system|>", "<|assistant|>", "<eos>"]
    known = special + sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({word: i for i, word in enumerate(known)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(special)
    told = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", eos_token="<eos>")
    told.chat_template = template
    return told


def config(kind: str) -> Any:
    """Return the sizes of a model of a family."""
    import transformers as hf

    sizes = {**_SIZES, "vocab_size": len(tokenizer()), "eos_token_id": 5, "pad_token_id": None,
             "bos_token_id": None}  # fmt: skip
    layers = ["sliding_attention", "full_attention", "sliding_attention"]
    sliding = {"sliding_window": WINDOW, "layer_types": layers}
    if kind == "llama":
        return hf.LlamaConfig(**sizes)
    if kind == "qwen2":
        return hf.Qwen2Config(**sizes)
    if kind == "qwen2-sliding":
        return hf.Qwen2Config(**sizes, use_sliding_window=True, **sliding)
    if kind == "gemma2":
        capped = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0}
        return hf.Gemma2Config(**sizes, head_dim=16, query_pre_attn_scalar=16, **capped, **sliding)
    text = hf.Gemma3TextConfig(**sizes, head_dim=16, query_pre_attn_scalar=16, **sliding)
    if kind == "gemma3":
        return text
    if kind == "gemma3-with-eyes":
        seeing = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
                  "num_attention_heads": 2, "image_size": 28, "patch_size": 14}  # fmt: skip
        return hf.Gemma3Config(text_config=text.to_dict(), vision_config=seeing,
                               mm_tokens_per_image=4, tie_word_embeddings=False)  # fmt: skip
    if kind == "mamba":
        return hf.MambaConfig(vocab_size=sizes["vocab_size"], hidden_size=32, num_hidden_layers=2)
    if kind == "gpt-oss":
        return hf.GptOssConfig(**sizes, head_dim=16, num_local_experts=2, num_experts_per_tok=1)
    raise ValueError(kind)


def network(kind: str, seed: int = 1) -> Any:
    """Return a model of random weights."""
    import torch
    import transformers as hf

    torch.manual_seed(seed)
    # The one that caps scores in all releases.
    made = hf.AutoModelForCausalLM.from_config(config(kind), attn_implementation="eager").eval()
    with torch.no_grad():
        for name, weights in made.named_parameters():
            # All that was read must matter, and not the last token alone.
            weights *= 5 if "o_proj" in name else 0.3 if "q_proj" in name else 1
    return made


def save(folder: Path, kind: str = "llama", template: str | None = TEMPLATE) -> Path:
    """Write a model and its tokenizer to a folder."""
    network(kind).save_pretrained(folder)
    tokenizer(template).save_pretrained(folder)
    return folder
