"""Load a model from a folder, the hub or a GGUF file, with as many slots as fit."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from waysout.errors import InputError, LLMError, UnavailableError, WaysoutError, shown
from waysout.llm.local import probe
from waysout.llm.local.attention import UnsupportedModel
from waysout.llm.local.chat import Chat
from waysout.llm.local.model import CacheLayout, Model, tune
from waysout.llm.local.process import Setup
from waysout.llm.local.sampling import FILE, Sampling, from_model
from waysout.llm.local.scheduler import Scheduler

CONTEXT = 4096
MOST_SLOTS, SLOTS_ON_CPU = 512, 4
# The fused attention requires mask rows aligned to at least 8 elements.
_ALIGNED = 64
_LEAST_CONTEXT = 512
# Share of the memory left after the weights that slots may use; passes need the rest.
_SHARE = 0.8
# Large enough that numpy releases the GIL, small enough for a CPU's cache.
_SLAB = 1 << 20


def load(setup: Setup) -> tuple[Chat, Scheduler]:
    """Load a model and create its slots, or raise an error that explains the problem."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    device = _device(setup.device)
    # 16 bits on a GPU, 32 on a CPU.
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    read = _from_gguf if setup.kind == "gguf" else _from_folder
    try:
        try:
            tokenizer, network = read(setup.place, dtype)
        except Exception as error:
            raise _explained(setup, error) from error
        network = network.to(device).eval()
        chat = Chat(tokenizer, setup.name)
        model = _fit(setup, network)
        ends, sampling = chat.ends(network), _sampling(setup, network)
        return chat, Scheduler(model, ends, setup.seconds, sampling)
    except torch.OutOfMemoryError:
        raise LLMError(
            f"{setup.name} does not fit in the memory of the GPU: reduce slots or context "
            "(?slots=64&context=2048), or choose a smaller model"
        ) from None


def _device(name: str) -> torch.device:
    has_gpu = torch.cuda.is_available()
    if name.startswith("cuda") and not has_gpu:
        raise InputError(f"device={name}: PyTorch {torch.__version__} sees no GPU here")
    return torch.device(("cuda" if has_gpu else "cpu") if name == "auto" else name)


def _sampling(setup: Setup, network: Any) -> Sampling:
    said: dict[str, Any] = {}
    if setup.sampling_of_model:
        said = from_model(network.generation_config.to_dict(), f"{FILE} of {setup.place}")
    return Sampling(**{**said, **setup.sampling})


def _from_folder(place: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """Load a model from a folder or by its name on the hub; its own code is never run."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
    # Otherwise config.json could select an attention kernel whose code lives on the hub.
    network = AutoModelForCausalLM.from_pretrained(
        place, dtype=dtype, trust_remote_code=False, attn_implementation="eager"
    )
    return tokenizer, network


def _from_gguf(place: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """Load a GGUF file; transformers' own loader needs an extra package and takes minutes."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    file = Path(place)
    with _quicker_gguf():
        tokenizer = AutoTokenizer.from_pretrained(
            file.parent, gguf_file=file.name, trust_remote_code=False
        )
        config = AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
        with torch.device("meta"):
            empty = AutoModelForCausalLM.from_config(config)
        read = load_gguf_checkpoint(
            place, return_tensors=True, model_to_load=empty, torch_dtype=dtype
        )
    network = type(empty).from_pretrained(
        None, config=config, state_dict=read["tensors"], dtype=dtype
    )
    return tokenizer, network


@contextmanager
def _quicker_gguf() -> Iterator[None]:
    """Read a file once instead of three times, dequantise in threads, hide the progress bar."""
    import gguf
    from transformers import modeling_gguf_pytorch_utils as reading

    original = gguf.GGUFReader, gguf.dequantize, getattr(reading, "tqdm", None)
    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def dequantize(data: npt.NDArray[Any], kind: Any) -> npt.NDArray[Any]:
            block, packed = gguf.GGML_QUANT_SIZES[kind]
            if block == 1:
                return np.asarray(original[1](data, kind))
            raw, size = np.asarray(data).reshape(-1), _SLAB // block * packed
            # One long row per slab; the package would split the work into batches of 16 short rows.
            slabs = (raw[at : at + size].reshape(1, -1) for at in range(0, raw.size, size))
            plain = pool.map(lambda slab: original[1](slab, kind)[0], slabs)
            return np.concatenate(list(plain)).reshape(*data.shape[:-1], -1)

        gguf.GGUFReader = functools.cache(gguf.GGUFReader)
        gguf.dequantize = dequantize
        reading.tqdm = lambda tensors, **_: tensors
        try:
            yield
        finally:
            gguf.GGUFReader, gguf.dequantize, reading.tqdm = original


def _explained(setup: Setup, error: Exception) -> WaysoutError:
    """Return an error that explains why a model could not be loaded, and what to do."""
    import transformers

    # transformers' own message suggests running it anyway.
    if "trust_remote_code" in str(error):
        return InputError(
            f"{setup.name} needs code of its own, and code that comes with a model is never run: "
            f"choose a model that transformers {transformers.__version__} supports without it"
        )
    if isinstance(error, UnpicklingError) or "weights_only" in str(error):
        return InputError(
            f"{setup.name} has pickled weights that would execute code, and code that comes with a "
            "model is never run: use safetensors"
        )
    reason = shown(" ".join(str(error).split()) or type(error).__name__, 400)
    if setup.kind == "hub" and isinstance(error, OSError):
        return UnavailableError(
            f"cannot get {setup.place} from the Hugging Face hub: {reason}\n"
            f"If its terms must be accepted, do so at https://huggingface.co/{setup.place} and "
            "set HF_TOKEN; without a network, use the folder of a downloaded model"
        )
    if isinstance(error, (ValueError, KeyError, OSError)):
        return InputError(f"transformers {transformers.__version__} cannot load {setup.name}: "
                          f"{reason}")  # fmt: skip
    return LLMError(f"{setup.name} cannot be loaded: {type(error).__name__}: {reason}")


# Slots -----------------------------------------------------------------------------------------


def _fit(setup: Setup, network: Any) -> Model:
    """Return the network with as many slots as fit, checked against its own attention."""
    cause: Exception | None = None
    try:
        with torch.inference_mode():
            layout = probe.layout_of(network)
            own = probe.own_scores(network)
            slots, context = fitting(setup, network, layout)
            probe.take_over(network)
            tune(network)
            model = Model(network, layout, slots, context)
            probe.check(model, own)
        if network.device.type == "cuda":
            # cuDNN would re-plan for every prompt length.
            torch.backends.cuda.enable_cudnn_sdp(False)
        return model
    except UnsupportedModel as error:
        reason = str(error)
    except torch.OutOfMemoryError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, RuntimeError) as error:
        reason, cause = f"{type(error).__name__}: {error}", error
    raise InputError(
        f"{setup.name} is a {type(network).__name__}, which transformers loads but this engine "
        f"cannot run: {reason[:300]}. Serve it with vLLM or llama.cpp, and use openai:MODEL@URL"
    ) from cause


def fitting(setup: Setup, network: Any, layout: list[CacheLayout]) -> tuple[int, int]:
    """Return the number of slots and of tokens in each: as requested, or as memory allows."""
    config = network.config.get_text_config()
    longest = getattr(config, "max_position_embeddings", None) or CONTEXT
    # Some models switch RoPE scaling, for all slots, as soon as one is longer than this.
    ropes = getattr(config, "rope_parameters", None) or {}
    for rope in (ropes, *(each for each in ropes.values() if isinstance(each, dict))):
        if rope.get("rope_type") in ("dynamic", "longrope"):
            longest = min(longest, rope.get("original_max_position_embeddings") or longest)
    if setup.context > longest:
        raise InputError(f"context={setup.context}: {setup.name} reads at most {longest} tokens")
    context = int(setup.context or min(CONTEXT, longest))
    context = -(-context // _ALIGNED) * _ALIGNED
    if network.device.type != "cuda":
        return setup.slots or SLOTS_ON_CPU, context
    room = _SHARE * torch.cuda.mem_get_info(network.device)[0]
    token = sum(each.size for each in layout) * network.dtype.itemsize
    if setup.slots:
        return setup.slots, context
    fit = min(MOST_SLOTS, int(room / (token * context)))
    while fit < 1 and not setup.context and context > _LEAST_CONTEXT:
        context //= 2
        fit = int(room / (token * context))
    if fit < 1:
        raise LLMError(
            f"{setup.name}: not enough GPU memory left after the weights: {room / 2**30:.1f} GB "
            f"free, one slot needs {token * context / 2**30:.1f} GB"
        )
    return fit, context
