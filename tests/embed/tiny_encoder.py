"""A sentence encoder small enough to work out by hand, in the files a real one has."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORDS = {"[UNK]": 0, "[PAD]": 1, "east": 2, "north": 3, "up": 4, "nowhere": 5}
# One vector for each word; padding would be seen at once.
VECTORS = np.array(
    [[1, 1, 1], [9, 9, 9], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=np.float32
)


def write_tokenizer(file: Path) -> None:
    """Write a tokenizer that, like the real file, cuts and fills up to 128 tokens."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.enable_truncation(128)
    tokenizer.enable_padding(length=128, pad_id=WORDS["[PAD]"], pad_token="[PAD]")
    tokenizer.save(str(file))


def write_model(
    file: Path, *, takes: str = "input_ids", pooled: bool = False, rows: int = len(VECTORS)
) -> None:
    """Write a model that looks each token up; ``pooled`` gives one vector for the whole text."""
    from onnx import TensorProto, helper, numpy_helper

    outputs = ["looked_up"] if pooled else ["tokens"]
    nodes = [helper.make_node("Gather", ["table", takes], outputs)]
    if pooled:
        nodes.append(helper.make_node("ReduceMax", ["looked_up", "axis"], ["tokens"], keepdims=0))
    constants = [numpy_helper.from_array(VECTORS[:rows], "table")]
    constants += [numpy_helper.from_array(np.array([1]), "axis")] if pooled else []
    shape: list[str | int | None] = ["batch", 3] if pooled else ["batch", "sequence", 3]
    inputs = ["input_ids", "attention_mask", "token_type_ids"]
    taken = inputs if takes in inputs else [takes]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "sequence"]) for n in taken],
        [helper.make_tensor_value_info("tokens", TensorProto.FLOAT, shape)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(model.SerializeToString())


def write_encoder(folder: Path, name: str = "model.onnx") -> Path:
    """Write both files into a folder; returns it."""
    write_model(folder / name)
    write_tokenizer(folder / "tokenizer.json")
    return folder
